"""Whose password is checked next: from each address a few at once, the others in line behind them. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from mayfly.node.limits import PASSWORD_CHECKS_OF_ORIGIN, PASSWORD_CHECKS_WAITING, PASSWORD_LINES_MOST

Turn = Callable[[], None]


class PasswordLine:
    """The checks under way by address, and the line at each address. Bounded: see `node.limits`. A check that begins
    must not end before `begin` or `end` has returned."""

    def __init__(self) -> None:
        self._under_way: dict[str, int] = {}
        self._under_way_total = 0
        self._lines: dict[str, deque[Turn]] = {}
        self._standing = 0

    def begin(self, origin: str) -> bool:
        """A check of a login from there begins, if it may now; then `end` it."""
        of_origin = self._under_way.get(origin, 0)
        if of_origin >= PASSWORD_CHECKS_OF_ORIGIN or self._under_way_total >= PASSWORD_CHECKS_WAITING:
            return False
        self._under_way[origin] = of_origin + 1
        self._under_way_total += 1
        return True

    def stand(self, origin: str, turn: Turn) -> bool:
        """Get in line where `begin` said no: `turn` is called when it may be asked again, once, or `leave`. False: the
        line is full, or nothing is under way from there whose end would come."""
        line = self._lines.get(origin)
        if origin not in self._under_way or self._standing >= PASSWORD_LINES_MOST:
            return False
        if line is None:
            line = self._lines[origin] = deque()
        if len(line) >= PASSWORD_CHECKS_WAITING:
            return False
        line.append(turn)
        self._standing += 1
        return True

    def leave(self, origin: str, turn: Turn) -> None:
        """Get out of line; of no effect after the turn."""
        line = self._lines.get(origin)
        if line is not None and turn in line:
            line.remove(turn)
            self._standing -= 1
            if not line:
                del self._lines[origin]

    def end(self, origin: str) -> None:
        """A check has ended: those in line have their turn, until one begins."""
        self._under_way_total -= 1
        self._under_way[origin] -= 1
        left = self._under_way[origin]
        while self._under_way[origin] <= left and (line := self._lines.get(origin)):
            turn = line.popleft()
            self._standing -= 1
            if not line:
                del self._lines[origin]
            turn()
        if not self._under_way[origin]:
            del self._under_way[origin]
