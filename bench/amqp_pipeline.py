"""AMQP clients for measuring: frames made beforehand, many under way at once, answers counted rather than decoded.

One client costs a few microseconds for a declare or a message, so that the broker is what is measured. Nothing of this
is fit for ordinary use: whatever is not expected ends the run.
"""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pamqp import commands
from pamqp import frame as frames
from pamqp.base import Frame

_PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
_FRAME_HEAD: Final = struct.Struct(">BHI")
METHOD: Final = 1
_HEADER: Final = 2
_BODY: Final = 3
_FRAME_EXTRA: Final = 8
"""Octets of a frame besides its payload."""
_READ_BYTES: Final = 1 << 18
_TIMEOUT_S: Final = 180
_CHANNELS: Final = 256
_CAPABILITIES: Final[dict[str, Any]] = {"capabilities": {"consumer_cancel_notify": True}}
"""Else a consumer that its node has lost (a session that ended, on a machine without CPU) waits for ever."""

_DECLARE_OK: Final = bytes((0, 50, 0, 11))
_DELIVER: Final = bytes((0, 60, 0, 60))
BASIC_ACK: Final = bytes((0, 60, 0, 80))
BASIC_NACK: Final = bytes((0, 60, 0, 120))
ACK_BODY: Final = struct.Struct(">QB")
"""After the method in both: delivery tag, and bits of which the lowest says that it stands for all before it."""


class PipelineError(Exception):
    """The broker closed the connection or a channel, or said something else that was not expected."""


class Confirms:
    """Which of the delivery tags 1, 2, ... are confirmed. One alone may come before a confirm of all up to an earlier
    one, which then stands for it no more: adding up what each confirm stands for would lose it.
    """

    def __init__(self) -> None:
        self._all_up_to = 0
        self._alone: set[int] = set()

    def take(self, tag: int, bits: int) -> None:
        """A basic.ack; the lowest of the bits: of all up to the tag."""
        if bits & 1:
            self._all_up_to = max(self._all_up_to, tag)
            self._alone = {each for each in self._alone if each > tag}
        elif tag > self._all_up_to:
            self._alone.add(tag)
        while self._all_up_to + 1 in self._alone:
            self._all_up_to += 1
            self._alone.discard(self._all_up_to)

    @property
    def count(self) -> int:
        """How many."""
        return self._all_up_to + len(self._alone)


class Pipeline:
    """One connection."""

    def __init__(self, uri: str) -> None:
        parts = urlsplit(uri)
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self._position = 0
        self._channels = 0
        self._published = 0
        self._confirms = Confirms()
        self._log_in(parts.username or "guest", parts.password or "guest", unquote(parts.path[1:]) or "/")

    def __enter__(self) -> "Pipeline":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _log_in(self, user: str, password: str, vhost: str) -> None:
        self.send(_PROTOCOL_HEADER)
        self.expect(commands.Connection.Start)
        self.send(
            marshal(commands.Connection.StartOk(
                client_properties=_CAPABILITIES, mechanism="PLAIN", response=f"\0{user}\0{password}", locale="en_US"
            ), 0)
        )
        self.expect(commands.Connection.Tune)
        self.send(marshal(commands.Connection.TuneOk(channel_max=2047, frame_max=131072, heartbeat=0), 0))
        self.send(marshal(commands.Connection.Open(virtual_host=vhost), 0))
        self.expect(commands.Connection.OpenOk)

    def send(self, data: bytes) -> None:
        """Send octets."""
        self._socket.sendall(data)

    def give_up_after(self, seconds: float) -> None:
        """From now on who waits for so long without an octet gets a TimeoutError; the connection stays as it is."""
        self._socket.settimeout(seconds)

    def hang_up(self) -> None:
        """From another thread: whoever reads or writes gets an error at once."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def call(self, method: Frame, answer: type[Any], channel: int = 1) -> Any:
        """Send a method; its answer."""
        self.send(marshal(method, channel))
        return self.expect(answer)

    def expect(self, answer: type[Any]) -> Any:
        """The next method, which must be of this type."""
        for kind, channel, payload in self.frames():
            if kind == METHOD:
                raw = _FRAME_HEAD.pack(kind, channel, len(payload)) + payload + b"\xce"
                method = frames.unmarshal(raw)[2]
                if not isinstance(method, answer):
                    raise PipelineError(f"{_described(method)} where {answer.__name__} was due")
                return method
        raise PipelineError(f"closed where {answer.__name__} was due")

    def open_channels(self, count: int = 1) -> None:
        """Open the channels 1 to `count`, as far as they are not open."""
        missing = range(self._channels + 1, count + 1)
        self.send(b"".join(marshal(commands.Channel.Open(), channel) for channel in missing))
        for channel in missing:
            self.expect(commands.Channel.OpenOk)
            self._channels = channel

    def frames(self) -> Iterator[tuple[int, int, bytes]]:
        """Kind, channel and payload of frames as they come; what was not taken stays for the next caller."""
        while True:
            while self._unread >= _FRAME_EXTRA:
                kind, channel, length = _FRAME_HEAD.unpack_from(self._buffer, self._position)
                if self._unread < length + _FRAME_EXTRA:
                    break
                start = self._position + _FRAME_HEAD.size
                self._position = start + length + 1
                yield kind, channel, self._buffer[start : start + length]
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise PipelineError("the broker closed the socket")
            self._buffer = self._buffer[self._position :] + data
            self._position = 0

    @property
    def _unread(self) -> int:
        return len(self._buffer) - self._position

    # ------------------------------------------------------------------ declaring

    def declare_all(self, names: Sequence[str], arguments: dict[str, Any]) -> None:
        """Declare durable queues, one under way on each of many channels."""
        width = min(_CHANNELS, len(names))
        self.open_channels(width)
        head, tail = _around_name(arguments)
        waiting = iter(names)

        def declare(name: str, channel: int) -> bytes:
            encoded = name.encode()
            payload = head + bytes((len(encoded),)) + encoded + tail
            return _FRAME_HEAD.pack(METHOD, channel, len(payload)) + payload + b"\xce"

        self.send(b"".join(declare(name, channel) for channel, name in enumerate(islice(waiting, width), 1)))
        again: list[bytes] = []
        for answered, (_, channel, payload) in enumerate(self.frames(), 1):
            if payload[:4] != _DECLARE_OK:
                raise PipelineError(f"not a declare-ok: {_described_payload(payload)}")
            if answered == len(names):
                return
            name = next(waiting, None)
            if name is not None:
                again.append(declare(name, channel))
            # What came in one read is answered in one write.
            if again and self._unread < _FRAME_EXTRA:
                self.send(b"".join(again))
                again.clear()

    # ------------------------------------------------------------------ publishing

    def publish_all(self, messages: Iterable[bytes], window: int) -> int:
        """Publish with confirms, at most `window` unconfirmed; `messages` are octets from `message`. How many."""
        self.call_confirms()
        before = self._published
        waiting = iter(messages)
        chunk = list(islice(waiting, window))
        while chunk or self._unconfirmed:
            self._publish(chunk)
            self._take_confirm()
            room = window - self._unconfirmed
            # In portions: a window that is filled up message by message costs a system call for each.
            chunk = list(islice(waiting, room)) if room >= window // 8 else []
        return self._published - before

    def publish_at(self, rate: float, messages: Sequence[bytes], window: int) -> None:
        """The same, so many a second: each when it is due, if the window has room by then."""
        self.call_confirms()
        sent, began_s = 0, time.monotonic()
        while sent < len(messages) or self._unconfirmed:
            due = int((time.monotonic() - began_s) * rate) + 1
            room = window - self._unconfirmed
            chunk = messages[sent : min(due, sent + room)]
            self._publish(chunk)
            sent += len(chunk)
            waits_for_time = sent < len(messages) and len(chunk) < room
            wait_s = began_s + sent / rate - time.monotonic() if waits_for_time else _TIMEOUT_S
            self._socket.settimeout(max(wait_s, 0.0005))
            with contextlib.suppress(TimeoutError):
                self._take_confirm()
        self._socket.settimeout(_TIMEOUT_S)

    def publish_more(self, chunk: Sequence[bytes], window: int) -> None:
        """After `call_confirms`: publish these, once that leaves no more than `window` unconfirmed."""
        while self._unconfirmed and self._unconfirmed + len(chunk) > window:
            self._take_confirm()
        self._publish(chunk)

    def call_confirms(self) -> None:
        """Have what is published on channel 1 confirmed."""
        self.open_channels()
        self.call(commands.Confirm.Select(), commands.Confirm.SelectOk)

    def _publish(self, chunk: Sequence[bytes]) -> None:
        if chunk:
            self.send(b"".join(chunk))
            self._published += len(chunk)

    @property
    def _unconfirmed(self) -> int:
        return self._published - self._confirms.count

    def _take_confirm(self) -> None:
        _, _, payload = next(self.frames())
        if payload[:4] != BASIC_ACK:
            raise PipelineError(f"not a confirm: {_described_payload(payload)}")
        self._confirms.take(*ACK_BODY.unpack_from(payload, 4))

    # ------------------------------------------------------------------ consuming

    def consume(self, queue: str, take: Callable[[bytes], bool]) -> None:
        """Consume without acknowledgements; `take(body)` answers whether to go on. One body frame each."""
        self.begin_to_consume([queue])
        self.take_deliveries(take, None)

    def begin_to_consume(self, queues: Sequence[str]) -> None:
        """Consume from these, of which none delivers anything before the last has answered."""
        self.open_channels()
        for queue in queues:
            self.call(commands.Basic.Consume(queue=queue, no_ack=True), commands.Basic.ConsumeOk)

    def take_deliveries(self, take: Callable[[bytes], bool], waits: Callable[[], bool] | None) -> None:
        """`take(body)` answers whether to go on. `waits` is asked the same where nothing came for as long as
        `give_up_after` has it; None: that is an error."""
        while True:
            try:
                for kind, _, payload in self.frames():
                    if kind == _BODY:
                        if not take(payload):
                            return
                    elif kind == METHOD and payload[:4] != _DELIVER:
                        raise PipelineError(f"not a delivery: {_described_payload(payload)}")
            except TimeoutError:
                if waits is None:
                    raise
                if not waits():
                    return


def marshal(method: Frame, channel: int) -> bytes:
    """A method as it stands on the wire."""
    return bytes(frames.marshal(method, channel))


def message(queue: str, body: bytes, expiration: str = "") -> bytes:
    """A persistent message to a queue, by the default exchange, on channel 1; its TTL in ms, if it has any."""
    method = marshal(commands.Basic.Publish(routing_key=queue), 1)
    return method + content(body, expiration)


def content(body: bytes, expiration: str = "") -> bytes:
    """Header and body frame of a persistent message."""
    return with_properties(body, expiration=expiration)


def with_properties(body: bytes, expiration: str = "", headers: bytes = b"", message_id: str = "") -> bytes:
    """The same with these, `headers` as they stand in their table."""
    flags, parts = 1 << 12, [b"\x02"]
    if headers:
        flags |= 1 << 13
        parts.insert(0, struct.pack(">I", len(headers)) + headers)
    for bit, text in ((8, expiration), (7, message_id)):
        if text:
            flags |= 1 << bit
            parts.append(bytes((len(text),)) + text.encode())
    header = struct.pack(">HHQH", 60, 0, len(body), flags) + b"".join(parts)
    return b"".join((
        _FRAME_HEAD.pack(_HEADER, 1, len(header)), header, b"\xce",
        _FRAME_HEAD.pack(_BODY, 1, len(body)), body, b"\xce",
    ))


def publish_method(queue: str) -> bytes:
    """The basic.publish frame that goes before `content`."""
    return marshal(commands.Basic.Publish(routing_key=queue), 1)


def in_threads(work: Sequence[Callable[[], None]]) -> None:
    """Run these side by side; the first failure is raised when all have ended."""
    failures: list[BaseException] = []

    def run(each: Callable[[], None]) -> None:
        try:
            each()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(each,)) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _around_name(arguments: dict[str, Any]) -> tuple[bytes, bytes]:
    """What stands before and after the name in the payload of a queue.declare."""
    marker = "name-of-the-queue"
    payload = marshal(commands.Queue.Declare(queue=marker, durable=True, arguments=arguments), 1)[7:-1]
    before, after = payload.split(bytes((len(marker),)) + marker.encode())
    return before, after


def _described_payload(payload: bytes) -> str:
    raw = _FRAME_HEAD.pack(METHOD, 1, len(payload)) + payload + b"\xce"
    return _described(frames.unmarshal(raw)[2])


def _described(method: Any) -> str:
    return f"{method.name} {dict(method)}"
