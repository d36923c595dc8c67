"""Values that no queue, message or consumer should have, given to a broker in octets; its answers, as JSON.

    python -m tests.golden.bad_values PORT              what a broker answers, on standard output
    python -m tests.golden.bad_values PORT --write      the same, into the recording that our answers are held against

Client libraries check what they send, so everything here is written by hand. A port of 127.0.0.1, user guest.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pamqp import commands
from pamqp import frame as frames

from mayfly.node.amqp.content import Content
from tests.golden.one_answer_a_line import keep_what_is_asked_for
from tests.integration.amqp_socket import login_octets, method_frame, raw_frame

RECORDING: Final = Path(__file__).parent / "bad-values-rabbitmq-3.10.8.json"

QUEUE: Final = "bad-values"
PATIENCE_S: Final = 4.0

# -- values, as on the wire: a type octet and what follows it ---------------------------------------


def string(value: str | bytes) -> bytes:
    """A long string."""
    octets = value if isinstance(value, bytes) else value.encode()
    return b"S" + struct.pack(">I", len(octets)) + octets


def array(*values: bytes) -> bytes:
    """An array."""
    content = b"".join(values)
    return b"A" + struct.pack(">I", len(content)) + content


def table(**values: bytes) -> bytes:
    """A table; `_` in a name stands for `-`."""
    return b"F" + plain_table({name.replace("_", "-"): value for name, value in values.items()})


def plain_table(values: dict[str, bytes]) -> bytes:
    """A table without its type octet, as in arguments and properties."""
    content = b"".join(bytes((len(name.encode()),)) + name.encode() + value for name, value in values.items())
    return struct.pack(">I", len(content)) + content


def nested(depth: int) -> bytes:
    """Tables within tables."""
    value = table()
    for _ in range(depth):
        value = table(a=value)
    return value


def number(kind: bytes, value: int) -> bytes:
    """An integer of one of AMQP's types, or of those that RabbitMQ has besides."""
    packed = {b"b": ">b", b"B": ">B", b"s": ">h", b"u": ">H", b"I": ">i", b"i": ">I", b"l": ">q"}[kind]
    return kind + struct.pack(packed, value)


VALUES: Final[dict[str, bytes]] = {
    "byte 5": number(b"b", 5),
    "unsigned byte 5": number(b"B", 5),
    "short 5": number(b"s", 5),
    "unsigned short 5": number(b"u", 5),
    "int 5": number(b"I", 5),
    "unsigned int 5": number(b"i", 5),
    "long 5": number(b"l", 5),
    "int 0": number(b"I", 0),
    "byte -1": number(b"b", -1),
    "int -1": number(b"I", -1),
    "long -2^63": number(b"l", -(2**63)),
    "int 256": number(b"I", 256),
    "unsigned int 2^32-1": number(b"i", 2**32 - 1),
    "ten years": number(b"l", 315_360_000_000),
    "ten years and 1 ms": number(b"l", 315_360_000_001),
    "long 2^63-1": number(b"l", 2**63 - 1),
    "bool": b"t\x01",
    "float 5": b"f" + struct.pack(">f", 5),
    "double 5": b"d" + struct.pack(">d", 5),
    "double 1.5": b"d" + struct.pack(">d", 1.5),
    "NaN": b"d" + struct.pack(">d", float("nan")),
    "decimal 5": b"D\x00" + struct.pack(">i", 5),
    "decimal of scale 255": b"D\xff" + struct.pack(">i", 5),
    "empty string": string(""),
    "string 5": string("5"),
    "string -1": string("-1"),
    "string abc": string("abc"),
    "string ü": string("ü"),
    "string with NUL": string("a\0b"),
    "string of 256 octets": string("x" * 256),
    "string that is not UTF-8": string(b"a\xff"),
    "binary 5": b"x" + struct.pack(">I", 1) + b"5",
    "timestamp 5": b"T" + struct.pack(">Q", 5),
    "timestamp 2^64-1": b"T" + b"\xff" * 8,
    "void": b"V",
    "empty table": table(),
    "table": table(a=string("b")),
    "nested table": nested(3),
    "empty array": array(),
    "array": array(number(b"I", 5), string("b")),
}

EXPIRATIONS: Final[tuple[bytes, ...]] = (
    b"", b"-1", b"-", b"+5", b"1.5", b"1e3", b" 5", b"5 ", b"5\n", b"\x005", b"5\x00", b"0x10", b"5ms", b"abc", b"NaN",
    b"inf", b"true", b"null", b"1_000", b"1,000", b"0005", b"-0", b"--1", b"315360000000", b"315360000001",
    b"99999999999999999999", b"9" * 255, "\u0663".encode(), "\uff15".encode(), "\xb2".encode(), b"\xff", b"5\xff",
    b"'5'", b"5;6", b"\x7f",
)  # fmt: skip

QUEUE_ARGUMENTS: Final[tuple[str, ...]] = (
    "x-message-ttl", "x-expires", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy",
    "x-max-length", "x-max-length-bytes", "x-overflow", "x-delivery-limit", "x-single-active-consumer", "x-queue-type",
    "x-quorum-initial-group-size", "x-queue-leader-locator", "x-max-in-memory-length", "x-no-such-thing",
)  # fmt: skip
CLASSIC_ARGUMENTS: Final[tuple[str, ...]] = (
    "x-max-priority", "x-queue-mode", "x-queue-version", "x-message-ttl", "x-expires", "x-max-length",
)  # fmt: skip
EXTENSIONS: Final[tuple[str, ...]] = ("x-ttl-applies", "x-expires-if", "x-expires-dead-letter")
"""Arguments that RabbitMQ does not know."""
COPY_HEADERS: Final = ("CC", "BCC")
DEATH_HEADERS: Final = ("x-death", "x-first-death-queue")
DEAD: Final = "bad-values-dead"


def death(**fields: bytes) -> bytes:
    """One entry of x-death, as a client may write it."""
    return table(**fields)


LIAR: Final = death(count=number(b"l", -5), reason=string("expired"), queue=string(QUEUE), time=string("now"))
FORGED: Final[dict[str, bytes]] = {
    "entries that are no tables": array(string("a"), b"V", number(b"I", 5), array(), b"t\x01"),
    "an empty entry": array(table()),
    "a negative count": array(LIAR),
    "the greatest count": array(death(count=number(b"l", 2**63 - 1), reason=string("expired"), queue=string(QUEUE))),
    "the same entry a hundred times": array(*[LIAR] * 100),
    "a thousand entries": array(*[death(queue=string(str(i)), reason=string("expired")) for i in range(1000)]),
    "a queue that is not UTF-8": array(death(queue=string(b"\xff"), reason=string("expired"))),
    "entries within entries": array(death(queue=nested(3), reason=array(array(array())))),
    "keys that are no strings": array(death(queue=string("x"), reason=string("maxlen"), routing_keys=b"V")),
    "the target, not rejected": array(death(queue=string(DEAD), reason=string("expired"))),
    "the target, rejected": array(death(queue=string(DEAD), reason=string("rejected"))),
    # From here on RabbitMQ's queue does not survive it.
    "a count that is a string": array(death(count=string("5"), reason=string("expired"), queue=string(QUEUE))),
    "a count that is NaN": array(death(count=VALUES["NaN"], reason=string("expired"), queue=string(QUEUE))),
    "no count": array(death(reason=string("expired"), queue=string(QUEUE))),
    "queue and reason of other types": array(death(queue=number(b"I", 5), reason=table(), count=table())),
}
"""Histories of death that no broker would write."""

SILENCE: Final = object()

# -- talking ----------------------------------------------------------------------------------------


HEADER_FRAME: Final = 2


class Header:
    """The content header of a message."""

    def __init__(self, payload: bytes) -> None:
        self.content = Content(b"\0\0", payload, b"")


class Talk:
    """A connection with channel 1 open, which is made again when the broker has closed it."""

    def __init__(self, port: int, patience_s: float = PATIENCE_S) -> None:
        """`patience_s`: a broker that says nothing for so long gives no answer."""
        self._port = port
        self._patience_s = patience_s
        self._socket: socket.socket | None = None
        self._buffer = b""
        self.connections = 0

    def close(self) -> None:
        """Hang up."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            self._buffer = b""

    def _open(self) -> None:
        self.connections += 1
        self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=self._patience_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(login_octets() + method_frame(commands.Channel.Open(), 1))
        self._read_open_ok()

    def _read_open_ok(self) -> None:
        while not isinstance(got := self.next(), commands.Channel.OpenOk):
            assert got is not None and got is not SILENCE

    def next(self) -> Any:
        """The content of the next frame; None when the broker has hung up, SILENCE when it says nothing."""
        assert self._socket is not None
        while True:
            if len(self._buffer) >= 7:
                size = struct.unpack(">I", self._buffer[3:7])[0] + 8
                if len(self._buffer) >= size:
                    data, self._buffer = self._buffer[:size], self._buffer[size:]
                    # pamqp can't read every table that there is.
                    return Header(data[7:-1]) if data[0] == HEADER_FRAME else frames.unmarshal(data)[2]
            try:
                data = self._socket.recv(65536)
            except ConnectionError:
                data = b""
            except TimeoutError:
                return SILENCE
            if not data:
                return None
            self._buffer += data

    def ask(self, data: bytes, *wanted: type[Any]) -> Any:
        """Send octets for channel 1: the first method of the types that are `wanted`, or [code, text, class, method] of
        a close (after which channel 1 is open again), "hung up" or "no answer"."""
        if self._socket is None:
            self._open()
        assert self._socket is not None
        self._socket.sendall(data)
        while True:
            got = self.next()
            if isinstance(got, wanted):
                return got
            if got is None or got is SILENCE:
                self.close()
                return "no answer" if got is SILENCE else "hung up"
            if isinstance(got, commands.Channel.Close | commands.Connection.Close):
                answer = [got.reply_code, got.reply_text, got.class_id, got.method_id]
                if isinstance(got, commands.Channel.Close):
                    again = (commands.Channel.CloseOk(), commands.Channel.Open())
                    self._socket.sendall(b"".join(method_frame(method, 1) for method in again))
                    self._read_open_ok()
                else:
                    answer.append("connection")
                    self.close()
                return answer


def short(text: str | bytes) -> bytes:
    """A short string."""
    octets = text if isinstance(text, bytes) else text.encode()
    return bytes((len(octets),)) + octets


def declare(arguments: dict[str, bytes], queue: str | bytes = QUEUE) -> bytes:
    """queue.declare of a durable queue."""
    payload = struct.pack(">HHH", 50, 10, 0) + short(queue) + b"\x02" + plain_table(arguments)
    return raw_frame(1, 1, payload)


def declare_exchange(arguments: dict[str, bytes]) -> bytes:
    """exchange.declare of a durable fanout."""
    payload = struct.pack(">HHH", 40, 10, 0) + short(QUEUE) + short("fanout") + b"\x02" + plain_table(arguments)
    return raw_frame(1, 1, payload)


def bind(arguments: dict[str, bytes]) -> bytes:
    """queue.bind of the queue to amq.headers."""
    payload = struct.pack(">HHH", 50, 20, 0) + short(QUEUE) + short("amq.headers") + short("") + b"\x00"
    return raw_frame(1, 1, payload + plain_table(arguments))


def consume(arguments: dict[str, bytes]) -> bytes:
    """basic.consume."""
    payload = struct.pack(">HHH", 60, 20, 0) + short(QUEUE) + short("tag") + b"\x00" + plain_table(arguments)
    return raw_frame(1, 1, payload)


def publish(
    key: str, headers: dict[str, bytes] | None = None, expiration: bytes | None = None, exchange: str = "",
    body: bytes = b"m",
) -> bytes:  # fmt: skip
    """basic.publish with a body."""
    flags, properties = 0x1000, b""
    if headers is not None:
        flags |= 0x2000
        properties += plain_table(headers)
    properties += b"\x02"
    if expiration is not None:
        flags |= 0x0100
        properties += short(expiration)
    method = struct.pack(">HHH", 60, 40, 0) + short(exchange) + short(key) + b"\x00"
    header = struct.pack(">HHQH", 60, 0, len(body), flags) + properties
    return raw_frame(1, 1, method) + raw_frame(2, 1, header) + raw_frame(3, 1, body)


DELETE: Final = method_frame(commands.Queue.Delete(queue=QUEUE), 1)
DELETE_EXCHANGE: Final = method_frame(commands.Exchange.Delete(exchange=QUEUE), 1)
CONFIRMS: Final = method_frame(commands.Confirm.Select(), 1)
PLAIN: Final = {"x-queue-type": string("quorum")}


def count(talk: Talk, queue: str = QUEUE) -> int:
    """Messages that are ready, by a passive declare."""
    got = talk.ask(method_frame(commands.Queue.Declare(queue=queue, passive=True), 1), commands.Queue.DeclareOk)
    assert isinstance(got, commands.Queue.DeclareOk), got
    return int(got.message_count or 0)


# -- doors ------------------------------------------------------------------------------------------


class Case:
    """One bad value at one door: what is sent, and what answers it if it is taken."""

    def __init__(
        self, name: str, data: bytes, taken: type[Any], undo: bytes = b"", undone: type[Any] | None = None
    ) -> None:
        self.name = name
        self.data = data
        self.taken = taken
        self.undo = undo
        self.undone = undone

    def play(self, talk: Talk) -> Any:
        """The answer: "taken", a close, or "hung up". What is taken is taken back."""
        got = talk.ask(self.data, self.taken)
        if not isinstance(got, self.taken):
            return got
        if self.undone is not None:
            talk.ask(self.undo, self.undone)
        return "taken"


def declares() -> Iterator[Case]:
    """queue.declare: each argument with each value."""
    undo = (DELETE, commands.Queue.DeleteOk)
    for key in (*QUEUE_ARGUMENTS, *EXTENSIONS):
        for label, value in VALUES.items():
            arguments = {key: value} if key == "x-queue-type" else {**PLAIN, key: value}
            if key == "x-dead-letter-routing-key":
                arguments["x-dead-letter-exchange"] = string("")
            yield Case(f"declare {key}: {label}", declare(arguments), commands.Queue.DeclareOk, *undo)
    for key in CLASSIC_ARGUMENTS:
        for label, value in VALUES.items():
            yield Case(f"declare classic {key}: {label}", declare({key: value}), commands.Queue.DeclareOk, *undo)


def others() -> Iterator[Case]:
    """exchange.declare, queue.bind and basic.consume; the queue has to be there."""
    for label, value in VALUES.items():
        yield Case(
            f"exchange alternate-exchange: {label}", declare_exchange({"alternate-exchange": value}),
            commands.Exchange.DeclareOk, DELETE_EXCHANGE, commands.Exchange.DeleteOk,
        )  # fmt: skip
    unbinding = struct.pack(">HHH", 50, 50, 0) + short(QUEUE) + short("amq.headers") + short("")
    for label, value in VALUES.items():
        undo = raw_frame(1, 1, unbinding + plain_table({"x-match": value}))
        yield Case(
            f"bind x-match: {label}", bind({"x-match": value}), commands.Queue.BindOk, undo, commands.Queue.UnbindOk
        )
    for label, value in VALUES.items():
        yield Case(
            f"consume x-priority: {label}", consume({"x-priority": value}), commands.Basic.ConsumeOk,
            method_frame(commands.Basic.Cancel(consumer_tag="tag"), 1), commands.Basic.CancelOk,
        )  # fmt: skip


def publishes() -> Iterator[Case]:
    """basic.publish with confirms to the queue, which has to be there and is purged: expirations, and CC and BCC."""
    purge = (method_frame(commands.Queue.Purge(queue=QUEUE), 1), commands.Queue.PurgeOk)
    for text in EXPIRATIONS:
        data = CONFIRMS + publish(QUEUE, expiration=text)
        yield Case(f"expiration: {text!r}", data, commands.Basic.Ack, *purge)
    for header in COPY_HEADERS:
        for label, value in VALUES.items():
            data = CONFIRMS + publish(QUEUE, {header: value})
            yield Case(f"publish {header}: {label}", data, commands.Basic.Ack, *purge)


def forgeries() -> Iterator[tuple[str, dict[str, bytes]]]:
    """Headers of messages that die in QUEUE and go to DEAD. RabbitMQ 4.3.6 answers all of them with one death, in
    QUEUE, its first; but for NaN, which its reader does not survive."""
    for header in DEATH_HEADERS:
        for label, value in VALUES.items():
            yield f"dead {header}: {label}", {header: value}
    for label, value in FORGED.items():
        yield f"dead x-death: {label}", {"x-death": value}


def declare_dying(talk: Talk) -> None:
    """QUEUE and where its dead go."""
    to_dead = {"x-dead-letter-exchange": string(""), "x-dead-letter-routing-key": string(DEAD)}
    for arguments, queue in ((PLAIN | to_dead, QUEUE), (PLAIN, DEAD)):
        got = talk.ask(declare(arguments, queue), commands.Queue.DeclareOk)
        assert isinstance(got, commands.Queue.DeclareOk), got


def dead_letter(talk: Talk, headers: dict[str, bytes], within_s: float) -> Any:
    """What comes of a message with these headers: queue, reason and count of its newest death, and how many there are;
    "taken" if nothing comes within this time, or the close that answers it."""
    got = talk.ask(CONFIRMS + publish(QUEUE, headers, expiration=b"0"), commands.Basic.Ack)
    if not isinstance(got, commands.Basic.Ack):
        return got
    deadline_s = time.monotonic() + within_s
    asking = method_frame(commands.Basic.Get(queue=DEAD, no_ack=True), 1)
    while time.monotonic() < deadline_s:
        if isinstance(talk.ask(asking, commands.Basic.GetOk, commands.Basic.GetEmpty), commands.Basic.GetOk):
            return _told(talk.next())
        time.sleep(0.01)
    return "taken"


def _told(header: Header) -> Any:
    table_ = header.content.headers_table()
    deaths = table_.get("x-death") if table_ is not None else None
    if deaths is None or not deaths.array():
        return "no history"
    newest = {name: value.python() for name, value in deaths.array()[0].table().entries}
    return [newest.get("queue"), newest.get("reason"), newest.get("count"), len(deaths.array())]


def answers(talk: Talk, cases: Sequence[Case]) -> dict[str, Any]:
    """What the broker answers, by the names of the cases."""
    return {case.name: case.play(talk) for case in cases}


def record(port: int) -> dict[str, Any]:
    """All answers of a broker."""
    talk = Talk(port)
    found = answers(talk, list(declares()))
    talk.ask(declare(PLAIN), commands.Queue.DeclareOk)
    found |= answers(talk, list(others()))
    found |= answers(talk, list(publishes()))
    talk.close()
    return found


def main() -> None:
    """See the module's text."""
    keep_what_is_asked_for(record, RECORDING)


if __name__ == "__main__":
    main()
