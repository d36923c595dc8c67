"""What is under way to one follower and not yet acknowledged."""

from collections import deque


class Inflights:
    """A window over APP messages, oldest first, limited in messages and in bytes.

    The limit of bytes is soft: the message that crosses it still goes.
    """

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self._max_messages: int = max_messages
        self._max_bytes: int = max_bytes
        self._window: deque[tuple[int, int]] = deque()
        self._bytes: int = 0

    def add(self, last_index: int, byte_count: int) -> None:
        """A message whose last entry has ``last_index`` was sent. Call only when not `full`."""
        self._window.append((last_index, byte_count))
        self._bytes += byte_count

    def free_to(self, index: int) -> None:
        """Everything up to ``index`` has arrived."""
        window = self._window
        while window and window[0][0] <= index:
            self._bytes -= window.popleft()[1]

    def full(self) -> bool:
        return len(self._window) >= self._max_messages or self._bytes >= self._max_bytes

    def count(self) -> int:
        return len(self._window)

    def reset(self) -> None:
        self._window.clear()
        self._bytes = 0

    def copy(self) -> "Inflights":
        twin = Inflights(self._max_messages, self._max_bytes)
        twin._window.extend(self._window)
        twin._bytes = self._bytes
        return twin
