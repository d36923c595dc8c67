"""Conversations that no client would have, made of one seed each, and what must hold whatever is said.

A broker with its shards gets them through a connection of its own: frames that are right, frames with octets changed,
field tables of every type and of none, methods in any order with arguments that exist and that don't. What must hold:
nothing raises, nothing is logged as an error, what is answered is AMQP, little is kept, and another client's messages
go through.
"""

import logging
import random
import struct
from typing import Any, Final

from pamqp import commands, frame

from tests.node.conftest import Client, World

MOST_KEPT_BYTES: Final = 300_000
INTERNAL_ERROR: Final = 541
HARD_CODES: Final = {320, 402, 501, 502, 503, 504, 505, 506, 530, 540, 541}
SOFT_CODES: Final = {311, 313, 403, 404, 405, 406}
"""AMQP 0-9-1, section 1.2.1 of the codes."""
_NAMES: Final = [
    *["q1", "q2"] * 5, "e1", "direct", "topic", "headers", "fanout", "amq.direct", "amq.topic", "amq.headers", "",
    "missing", "amq.rabbitmq.reply-to", "\u00e9",
]
_KEYS: Final = [
    "x-message-ttl", "x-expires", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-max-length", "x-overflow",
    "x-queue-type", "x-match", "x-priority", "x-single-active-consumer", "CC", "BCC", "x-death", "alternate-exchange",
    "x-max-priority", "x-delivery-limit", "k",
]
_TEXTS: Final = ["", "q1", "classic", "quorum", "drop-head", "all", "any", "5", "-1", "\x00", "x" * 300]
_SIZES: Final = dict(zip("tbBsuIiflLdTDV", (1, 1, 1, 2, 2, 4, 4, 4, 8, 8, 8, 8, 5, 0), strict=True))
METHODS: Final[list[Any]] = list(commands.INDEX_MAPPING.values())
LIKELY: Final[list[Any]] = [
    commands.Queue.Declare, commands.Queue.Bind, commands.Queue.Unbind, commands.Queue.Purge, commands.Queue.Delete,
    commands.Exchange.Declare, commands.Exchange.Bind, commands.Exchange.Delete, commands.Basic.Qos,
    commands.Basic.Consume, commands.Basic.Cancel, commands.Basic.Get, commands.Basic.Ack, commands.Basic.Nack,
    commands.Basic.Reject, commands.Basic.Recover, commands.Confirm.Select, commands.Tx.Select, commands.Tx.Commit,
    commands.Tx.Rollback,
]
_NUMBERS: Final = {"octet": 8, "short": 16, "long": 32, "longlong": 64}


class Errors(logging.Handler):
    """What was logged as an error: a defect that was caught."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def table(chance: random.Random, depth: int = 0) -> bytes:
    """A field table: right, as far as its octets go."""
    entries = []
    for _ in range(chance.choice([0, 1, 1, 2, 4])):
        key = (chance.choice(_KEYS) if chance.random() < 0.8 else "x" * chance.randrange(9)).encode()
        entries.append(bytes([len(key)]) + key + value(chance, depth))
    octets = b"".join(entries)
    return struct.pack(">I", len(octets)) + octets


def value(chance: random.Random, depth: int) -> bytes:
    """A field value with its type."""
    kind = chance.choice("SSStbBsuIilLfdDTVxAF")
    if kind in "Sx":
        text = chance.choice(_TEXTS).encode() if chance.random() < 0.7 else chance.randbytes(chance.randrange(9))
        return kind.encode() + struct.pack(">I", len(text)) + text
    if kind == "F" and depth < 5:
        return b"F" + table(chance, depth + 1)
    if kind == "A" and depth < 5:
        octets = b"".join(value(chance, depth + 1) for _ in range(chance.randrange(4)))
        return b"A" + struct.pack(">I", len(octets)) + octets
    size = _SIZES.get(kind, 0)
    octets = chance.choice([bytes(size), b"\xff" * size, chance.randbytes(size), b"\x05".rjust(size, b"\0")[:size]])
    if kind == "T":
        octets = bytes(4) + octets[4:]
    return (kind if kind in _SIZES else "V").encode() + octets


def short_text(chance: random.Random) -> bytes:
    text = chance.choice(_NAMES).encode() if chance.random() < 0.98 else chance.randbytes(chance.randrange(255))
    return bytes([len(text)]) + text


def method_octets(chance: random.Random, method: Any) -> bytes:
    """A method with any arguments of the right types."""
    octets = struct.pack(">I", method.index)
    bits = -1
    for name in method.attributes():
        kind = method.amqp_type(name)
        if kind == "bit":
            bits = max(0, bits)
            continue
        if bits >= 0:
            octets += some_bits(chance)
            bits = -1
        if kind in _NUMBERS:
            size = _NUMBERS[kind] // 8
            number = chance.choice([0, 0, 0, 0, 1, 2, 3, 5, (1 << 8 * size) - 1, chance.getrandbits(8 * size)])
            octets += number.to_bytes(size, "big")
        elif kind == "shortstr":
            octets += short_text(chance)
        elif kind == "table":
            octets += table(chance)
        else:
            text = chance.randbytes(chance.randrange(20))
            octets += struct.pack(">I", len(text)) + text
    return octets + (some_bits(chance) if bits >= 0 else b"")


def some_bits(chance: random.Random) -> bytes:
    """Mostly few: many of them ask for what is not there, and that ends the connection."""
    return bytes([chance.choice([0, 0, 0, 1, 1, 2, 8, chance.randrange(256)])])


def raw_frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def content(chance: random.Random, channel: int) -> bytes:
    """A publish with its content, properties of any kind among them."""
    flags = chance.choice([0, 0x2000, 0x0100, 0x8000, chance.getrandbits(16) & 0xFFFE])
    properties = b""
    for bit, kind in enumerate("ssFooSsseTsss"):
        if flags & (0x8000 >> bit):
            if kind == "F":
                properties += table(chance)
            elif kind == "o":
                properties += chance.randbytes(1)
            elif kind == "T":
                # This and what is no UTF-8 is passed on as it is, as in RabbitMQ; the client here could not read it.
                properties += bytes(4) + chance.randbytes(4)
            else:
                properties += b"\x0260" if kind == "e" else chance.choice([b"\0", b"\5guest", b"\3abc"])
    body = chance.randbytes(chance.choice([0, 0, 3, 5000]))
    size = len(body) if chance.random() < 0.95 else chance.getrandbits(chance.choice([3, 30, 64]))
    parts = [
        raw_frame(1, channel, method_octets(chance, commands.Basic.Publish)),
        raw_frame(2, channel, struct.pack(">HHQH", 60, 0, size, flags) + properties),
    ]
    while body:
        piece = chance.choice([1, 100, 5000])
        parts.append(raw_frame(3, channel, body[:piece]))
        body = body[piece:]
    return b"".join(parts)


def tame_piece(chance: random.Random) -> bytes:
    """Something that a client might say, though not with these arguments."""
    channel = chance.choice([1, 1, 2])
    return content(chance, channel) if chance.random() < 0.3 else likely_method(chance, channel)


def likely_method(chance: random.Random, channel: int) -> bytes:
    return raw_frame(1, channel, method_octets(chance, chance.choice(LIKELY)))


def piece(chance: random.Random) -> bytes:
    """Something to say."""
    channel = chance.choice([1, 1, 1, 1, 2, 3, 0])
    way = chance.random()
    if way < 0.3:
        return content(chance, channel)
    if way < 0.4:
        return frame.marshal(commands.Channel.Open(), channel or 1)
    if way < 0.85:
        if chance.random() < 0.9:
            return likely_method(chance, channel)
        return raw_frame(1, channel, method_octets(chance, chance.choice(METHODS)))
    if way < 0.9:
        # A queue that others then find.
        method_of_note = commands.Queue.Declare(queue=chance.choice(_NAMES[:2]), durable=chance.random() < 0.5)
        return frame.marshal(method_of_note, channel or 1)
    return raw_frame(chance.choice([1, 2, 3, 8, 4]), channel, chance.randbytes(chance.choice([0, 4, 20])))


def spoiled(chance: random.Random, octets: bytes) -> bytes:
    """With some octets changed, left out or put in."""
    changed = bytearray(octets)
    for _ in range(chance.choice([0, 0, 0, 0, 1, 3])):
        if changed:
            place = chance.randrange(len(changed))
            way = chance.randrange(3)
            if way == 0:
                changed[place] = chance.randrange(256)
            elif way == 1:
                del changed[place : place + chance.randrange(1, 9)]
            else:
                changed[place:place] = chance.randbytes(chance.randrange(1, 9))
    return bytes(changed)


class Fuzzed:
    """A broker to be talked to, with a client that watches whether others are served."""

    def __init__(self, errors: Errors) -> None:
        self.errors = errors
        self.world = World()
        self.witness = self.world.client()
        self.witness.declare("witness")

    def _client(self, ready: bool) -> Client:
        if not ready:
            return self.world.socket()
        client: Client = self.world.client()
        client.open_channel(2)
        for queue in ("q1", "q2"):
            client.send(2, commands.Queue.Declare(queue=queue, durable=True, nowait=True))
        client.take()
        return client

    def _by_the_book(self, client: Client) -> None:
        """Whoever is closed is told why, with a code of that kind of close, and no reply comes on a channel that the
        broker has closed."""
        for id, what in client.received:
            if isinstance(what, commands.Connection.Close):
                assert id == 0 and what.reply_code in HARD_CODES, (id, what.reply_code, what.reply_text)
                assert what.reply_code != INTERNAL_ERROR, what.reply_text
            elif isinstance(what, commands.Channel.Close):
                assert id != 0 and what.reply_code in SOFT_CODES, (id, what.reply_code, what.reply_text)

    def _leave(self, client: Client) -> None:
        client.take()
        client.lose()
        assert client.connection.over, "the connection does not end"

    def converse(self, seed: int) -> int:
        """One conversation; how many octets were said. Raises what must not be."""
        chance = random.Random(seed)
        tame = chance.random() < 0.7
        client = self._client(tame or chance.random() < 0.95)
        said = 0
        for _ in range(chance.choice([3, 10, 30])):
            if client.closed:
                self._leave(client)
                client = self._client(True)
            made = [tame_piece(chance) if tame else piece(chance) for _ in range(chance.choice([1, 1, 3]))]
            octets = b"".join(made) if tame else spoiled(chance, b"".join(made))
            cut = chance.randrange(len(octets) + 1)
            for part in (octets[:cut], octets[cut:]):
                client.send_bytes(part)
            said += len(octets)
            # Channels that the broker closed are opened again, or nothing more would be looked at.
            closed = {id for id, what in client.received if isinstance(what, commands.Channel.Close)}
            for id in closed:
                if not client.closed:
                    client.send(id, commands.Channel.CloseOk(), commands.Channel.Open())
            self._by_the_book(client)
            client.take()
            if chance.random() < 0.2:
                self.world.advance(chance.choice([50, 300, 20_000]), 250)
            kept = client.connection.amqp._reader.buffered_bytes
            assert kept < MOST_KEPT_BYTES, f"{kept} bytes are kept"
        self._leave(client)
        self.witness.publish(1, "witness", b"%d" % seed)
        got = self.witness.get("witness")
        assert got.body == b"%d" % seed, "another client is not served"
        assert not self.errors.lines, self.errors.lines
        return said


class Conversations:
    """Conversations one after the other, with a broker that is made anew now and then."""

    MOST_WITH_ONE_BROKER: Final = 200

    def __init__(self) -> None:
        self.errors = Errors()
        self._fuzzed: Fuzzed | None = None
        self._count = 0

    def converse(self, seed: int) -> None:
        """One conversation.  What it leaves behind may matter to the next ones, but not for ever.  Raises what must not
        be."""
        if self._fuzzed is None or self._count >= self.MOST_WITH_ONE_BROKER:
            self._fuzzed, self._count = Fuzzed(self.errors), 0
        self._count += 1
        logging.getLogger().addHandler(self.errors)
        try:
            self._fuzzed.converse(seed)
        except Exception:
            self._fuzzed = None
            self.errors.lines.clear()
            raise
        finally:
            logging.getLogger().removeHandler(self.errors)
