"""SIGTERM and SIGINT as a question that a loop asks."""

import os
import signal
import sys
from types import FrameType
from typing import Final

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

_FIRST_PROCESS: Final = 1


def end_like_any_process() -> None:
    """Have SIGTERM and SIGINT end this process even if it is the first of a container, which they pass by otherwise.

    For the time until a command has handlers of its own; without it, who stops a container that has just been started
    waits until the patience of the engine is over.
    """
    if os.getpid() == _FIRST_PROCESS:
        for number in STOP_SIGNALS:
            signal.signal(number, lambda number, frame: sys.exit(128 + number))


class StopSignals:
    """Within `with`, notes SIGTERM and SIGINT instead of acting on them."""

    def __init__(self) -> None:
        self._times = 0
        self._before: dict[signal.Signals, object] = {}

    def asked(self) -> bool:
        """Whether one of the signals has come."""
        return self._times > 0

    def asked_again(self) -> bool:
        """Whether a second one has come: whoever sent it does not want to wait."""
        return self._times > 1

    def __enter__(self) -> "StopSignals":
        for number in STOP_SIGNALS:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number in STOP_SIGNALS:
            signal.signal(number, self._before[number])  # type: ignore[arg-type]  # what signal() gave us

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._times += 1
