"""A client that publishes at a steady rate, moves to another node when its own is gone, and notes when confirms come.

Every message has a number of its own and is published once, so that what is lost or comes twice is the broker's doing.
"""

import struct
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, NamedTuple

from pamqp import commands

from bench.amqp_pipeline import (
    ACK_BODY,
    BASIC_ACK,
    BASIC_NACK,
    METHOD,
    Pipeline,
    PipelineError,
    content,
    publish_method,
)

WINDOW: Final = 1000
STAMP: Final = struct.Struct(">IQ")
"""At the start of every body: which stream, and the number of the message in it."""
_SIZE_BYTES: Final = 1024
_RETRY_S: Final = 0.01
_LATE_S: Final = 0.05
"""What could not be sent in time for so long is left out, not sent in a burst."""
_ANSWER_S: Final = 10.0


class Confirm(NamedTuple):
    """A confirm, or several in one."""

    moment_s: float
    """Monotonic."""
    connection: int
    """Connections are counted from 1."""


class ConfirmStream:
    """Publishes to a queue from the start of the block; at its end it waits for confirms and hangs up."""

    def __init__(self, number: int, queue: str, uris: Sequence[str], rate: float) -> None:
        """The first URI comes first, then the others in turn. `rate`: messages per second."""
        self.confirms: list[Confirm] = []
        self.confirmed: set[int] = set()
        self.refused = 0
        self.number = number
        self._method, self._padding = publish_method(queue), bytes(_SIZE_BYTES - STAMP.size)
        self._uris, self._gap_s = list(uris), 1 / rate
        self._next = self._connection = 0
        self._unanswered: dict[int, int] = {}
        """Delivery tag to number, of the connection."""
        self._stopping = False
        self._pipeline: Pipeline | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "ConfirmStream":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        deadline_s = time.monotonic() + _ANSWER_S
        while self._unanswered and time.monotonic() < deadline_s:
            time.sleep(0.01)
        if self._pipeline is not None:
            self._pipeline.hang_up()
        self._thread.join(_ANSWER_S)
        if self._failure is not None and error is None:
            raise self._failure

    # ------------------------------------------------------------------ what the thread does

    def _run(self) -> None:
        try:
            place = 0
            while not self._stopping:
                try:
                    self._work_at(self._uris[place])
                except (PipelineError, OSError):
                    time.sleep(_RETRY_S)
                place = (place + 1) % len(self._uris)
        except BaseException as failure:
            self._failure = failure

    def _work_at(self, uri: str) -> None:
        """Until the connection breaks. Raises OSError if there is none."""
        with Pipeline(uri) as pipeline:
            pipeline.open_channels()
            pipeline.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
            self._connection += 1
            self._unanswered = {}
            self._pipeline = pipeline
            broken = threading.Event()
            reader = threading.Thread(target=self._read, args=(pipeline, broken), daemon=True)
            reader.start()
            try:
                self._publish(pipeline, broken)
            except OSError:
                pass
            finally:
                pipeline.hang_up()
                reader.join()

    def _publish(self, pipeline: Pipeline, broken: threading.Event) -> None:
        tag, due_s = 0, time.monotonic()
        while not broken.is_set():
            now_s = time.monotonic()
            if self._stopping or now_s < due_s or len(self._unanswered) >= WINDOW:
                # Woken at once when the connection breaks.
                broken.wait(min(max(due_s - now_s, 0.0005), 0.01))
                continue
            tag += 1
            self._unanswered[tag] = self._next
            body = STAMP.pack(self.number, self._next) + self._padding
            self._next += 1
            due_s = max(due_s, now_s - _LATE_S) + self._gap_s
            pipeline.send(self._method + content(body))

    def _read(self, pipeline: Pipeline, broken: threading.Event) -> None:
        try:
            for kind, _, payload in pipeline.frames():
                if kind != METHOD:
                    continue
                if payload[:4] not in (BASIC_ACK, BASIC_NACK):
                    raise PipelineError(f"not a confirm: method {payload[:4].hex()}")
                moment_s = time.monotonic()
                tag, bits = ACK_BODY.unpack_from(payload, 4)
                self._settle(tag, bool(bits & 1), payload[:4] == BASIC_ACK, moment_s)
        except (PipelineError, OSError):
            pass
        except BaseException as failure:
            self._failure = failure
        finally:
            broken.set()

    def _settle(self, tag: int, multiple: bool, taken: bool, moment_s: float) -> None:
        tags = [each for each in list(self._unanswered) if each <= tag] if multiple else [tag]
        numbers = [self._unanswered.pop(each) for each in tags]
        if taken:
            self.confirmed.update(numbers)
            self.confirms.append(Confirm(moment_s, self._connection))
        else:
            self.refused += len(numbers)
