"""SIGTERM and SIGINT as a question that a loop asks."""

import signal
from types import FrameType
from typing import Final

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


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
