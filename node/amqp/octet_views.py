"""Octets that stand in several pieces, and are cut without being put together first."""

from collections.abc import Sequence


class OctetViews:
    """Read from front to back.  left_bytes: octets that were not taken."""

    def __init__(self, views: Sequence[bytes | memoryview]) -> None:
        self._views: list[memoryview] = [memoryview(view) for view in views]
        self._next = 0
        self._start = 0
        """Of the views, which comes next, and where in it."""
        self.left_bytes: int = sum(map(len, self._views))

    def take(self, size: int) -> list[memoryview]:
        """The next so many octets, or all that is left, as views in order."""
        size = min(size, self.left_bytes)
        self.left_bytes -= size
        taken: list[memoryview] = []
        while size:
            view = self._views[self._next]
            part = view[self._start : self._start + size]
            taken.append(part)
            size -= len(part)
            self._start += len(part)
            if self._start == len(view):
                self._next += 1
                self._start = 0
        return taken

    def join(self, size: int) -> bytes:
        """The next so many octets, or all that is left, together."""
        return b"".join(self.take(size))
