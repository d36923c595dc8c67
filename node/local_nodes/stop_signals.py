"""SIGTERM and SIGINT, and SIGHUP, as questions that a loop asks."""

import signal
from types import FrameType
from typing import Any, Final

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Within `with`, notes SIGTERM and SIGINT, and with `hang_up` SIGHUP, instead of acting on them."""

    def __init__(self, hang_up: bool = False) -> None:
        self._hang_up = hang_up
        self._times = 0
        self._hung_up = False
        self._before: dict[signal.Signals, Any] = {}

    def asked(self) -> bool:
        """Whether one of the signals has come."""
        return self._times > 0

    def asked_again(self) -> bool:
        """Whether a second one has come: whoever sent it does not want to wait."""
        return self._times > 1

    def hung_up(self) -> bool:
        """Whether SIGHUP has come since this was last asked."""
        hung_up, self._hung_up = self._hung_up, False
        return hung_up

    def __enter__(self) -> "StopSignals":
        for number in STOP_SIGNALS:
            self._before[number] = signal.signal(number, self._note)
        if self._hang_up:
            self._before[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._note_hang_up)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._times += 1

    def _note_hang_up(self, number: int, frame: FrameType | None) -> None:
        self._hung_up = True
