"""How fast something may go (pure; the clock is passed in)."""

from typing import Final

SAVED_UP_S: Final = 0.25
"""What was not used for so long may be used at once: what is small goes without a wait."""


class BytePace:
    """A bucket of tokens, one a byte, for all who share it: so many bytes a second, 0: as many as there are."""

    def __init__(self, bytes_per_second: int) -> None:
        self._bytes_per_second = bytes_per_second
        self._used_until_s: float | None = None
        """When all that was taken would be through, had it gone at this pace from the first byte on."""

    def take(self, size_bytes: int, now_s: float) -> float:
        """These bytes are to go: how many seconds to wait before. Who waits has taken them, and others come after."""
        if not self._bytes_per_second:
            return 0.0
        earliest_s = now_s - SAVED_UP_S
        used_s = earliest_s if self._used_until_s is None else max(self._used_until_s, earliest_s)
        self._used_until_s = used_s + size_bytes / self._bytes_per_second
        return max(0.0, used_s - now_s)
