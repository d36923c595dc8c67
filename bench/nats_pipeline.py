"""A client of JetStream for measuring, as `amqp_pipeline` is one of AMQP: many publishes under way at once, answers
counted. Whatever is not expected ends the run.
"""

import json
import secrets
import socket
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final
from urllib.parse import urlsplit

_READ_BYTES: Final = 1 << 18
_TIMEOUT_S: Final = 180
_LINE_END: Final = b"\r\n"
_CONNECT: Final = {
    "verbose": False, "pedantic": False, "headers": True, "lang": "python", "version": "0", "protocol": 1,
}


class NatsError(Exception):
    """The server said something else than what was expected."""


class NatsPipeline:
    """One connection."""

    def __init__(self, uri: str) -> None:
        parts = urlsplit(uri)
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self._position = 0
        # Else it would be told what others are answered.
        own = b"bench." + secrets.token_hex(8).encode()
        self._inbox, self._acks = own + b".inbox", own + b".acks"
        self._line()
        connect = b"CONNECT " + json.dumps(_CONNECT).encode()
        subscribe = [b"SUB " + self._inbox + b" 1", b"SUB " + self._acks + b" 2"]
        self._socket.sendall(_LINE_END.join([connect, *subscribe, b"PING", b""]))
        if self._line() != b"PONG":
            raise NatsError("no PONG")

    def __enter__(self) -> "NatsPipeline":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, subject: str, question: dict[str, Any]) -> dict[str, Any]:
        """What JetStream's interface answers. Raises NatsError with its words if that is an error."""
        body = json.dumps(question).encode()
        head = b"PUB %s %s %d\r\n" % (subject.encode(), self._inbox, len(body))
        self._socket.sendall(head + body + _LINE_END)
        answer: dict[str, Any] = json.loads(self._message())
        if "error" in answer:
            raise NatsError(f"{subject}: {answer['error']}")
        return answer

    def publish_all(self, messages: Iterable[bytes], window: int) -> int:
        """At most `window` without a PubAck; `messages` are those of `with_ttl`. How many."""
        waiting = iter(messages)
        chunk = list(islice(waiting, window))
        published = acknowledged = 0
        while chunk or acknowledged < published:
            if chunk:
                self._socket.sendall(b"".join(chunk))
                published += len(chunk)
            if b'"error"' in self._message():
                raise NatsError("a publish was refused")
            acknowledged += 1
            room = window - (published - acknowledged)
            chunk = list(islice(waiting, room)) if room >= window // 8 else []
        return published

    def with_ttl(self, subject: str, body: bytes, ttl_s: int) -> bytes:
        """A publish, on this connection, whose message lives so long; its PubAck is counted."""
        headers = b"NATS/1.0\r\nNats-TTL: %d\r\n\r\n" % ttl_s
        head = b"HPUB %s %s %d %d\r\n" % (subject.encode(), self._acks, len(headers), len(headers) + len(body))
        return head + headers + body + _LINE_END

    def _message(self) -> bytes:
        """The payload of the next message."""
        while True:
            line = self._line()
            if line == b"PING":
                self._socket.sendall(b"PONG\r\n")
            elif line.startswith(b"MSG "):
                length = int(line.rpartition(b" ")[2])
                return self._take(length + len(_LINE_END))[:length]
            elif line.startswith(b"HMSG "):
                # Without anybody there to answer, the headers say so.
                raise NatsError(f"headers alone: {self._take(int(line.rpartition(b' ')[2]))!r}")
            elif not line.startswith((b"INFO ", b"+OK")):
                raise NatsError(line.decode(errors="replace"))

    def _line(self) -> bytes:
        while (end := self._buffer.find(_LINE_END, self._position)) < 0:
            self._read()
        line = self._buffer[self._position : end]
        self._position = end + len(_LINE_END)
        return line

    def _take(self, length: int) -> bytes:
        while len(self._buffer) - self._position < length:
            self._read()
        taken = self._buffer[self._position : self._position + length]
        self._position += length
        return taken

    def _read(self) -> None:
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise NatsError("the server closed the socket")
        self._buffer = self._buffer[self._position :] + data
        self._position = 0
