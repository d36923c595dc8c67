"""Every decoder of octets that come from clients, peers or disks: whatever they are, it reads them or says why not.

A target takes octets and returns when all is well: they were read, or refused with the one error that the decoder
names. What is read is held against a second reader: a few lines written here from AMQP 0-9-1 section 4.2, the same
octets in other pieces, or protobuf.
"""

import random
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final

import msgspec
from pamqp import commands, frame
from pamqp.commands import Basic

from mayfly.cluster.group.state_layout import GroupStateError, decode_group_head, encode_group_head
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.log import records
from mayfly.cluster.log.batch import CorruptStore, StoredSnapshot, WriteBatch
from mayfly.cluster.log.snapshot_codec import OutgoingSnapshot, ReceivedSnapshot
from mayfly.cluster.log.write_ahead_format import FILE_HEADER_BYTES, decode_record, encode_record, file_header, scan
from mayfly.cluster.raft import Entry, HardState
from mayfly.cluster.raft.messages import ConfState, MessageType, RaftMessage, SnapshotMetadata
from mayfly.cluster.transport import codec
from mayfly.cluster.transport.framing import FrameCutter, NotFrames, decode_greeting
from mayfly.cluster.versions import PROTOCOLS
from mayfly.node.amqp.content import Content, MalformedHeaderError, check_header, replace_properties
from mayfly.node.amqp.errors import ProtocolError
from mayfly.node.amqp.field_table import FieldTable, MalformedTableError
from mayfly.node.amqp.methods import decode_method, method_frame
from mayfly.node.amqp.sasl import read_response
from mayfly.node.broker.access_counts import CONNECTIONS_OF_USER, AccessCounts
from mayfly.node.broker.meanings import meanings_of
from mayfly.node.catalog import Catalog
from mayfly.node.catalog.snapshot import MalformedSnapshot
from mayfly.node.membership.identity import MalformedIdentity, decode_identity
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.shard import Shard
from mayfly.node.transient.streams import Events, MalformedNotice, decode_request, encode_request
from tests.cluster.transport.protobuf_frames import read_alike
from tests.node.amqp.headers import build_header
from tests.node.amqp.scripted_client import message as publish_octets
from tests.node.amqp.scripted_client import plain_events, running_client
from tests.node.conftest import World

_MOST_NESTED: Final = 100
_SALT: Final = 4711
_SIZES: Final = dict(zip("tbBsuIilLfdTDV", (1, 1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 8, 5, 0), strict=True))


# -- a second reader of field tables and properties, by AMQP 0-9-1 section 4.2 ------------------------------


class Unreadable(Exception):
    """The second reader can't read it."""


class Octets:
    """Octets that are taken from the front."""

    def __init__(self, octets: bytes) -> None:
        self.left = octets

    def take(self, count: int) -> bytes:
        if count > len(self.left):
            raise Unreadable
        taken, self.left = self.left[:count], self.left[count:]
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")


def read_table(octets: Octets, depth: int = 0) -> list[tuple[bytes, bytes]]:
    """The entries of a table behind its length: names and values with their types."""
    inner = Octets(octets.take(octets.number(4)))
    entries = []
    while inner.left:
        name = inner.take(inner.number(1))
        before = inner.left
        _read_value(inner, depth)
        entries.append((name, before[: len(before) - len(inner.left)]))
    return entries


def _read_value(octets: Octets, depth: int) -> None:
    kind = chr(octets.number(1))
    if kind in _SIZES:
        octets.take(_SIZES[kind])
    elif kind in "Sx":
        octets.take(octets.number(4))
    elif kind in "FA" and depth < _MOST_NESTED:
        if kind == "F":
            read_table(octets, depth + 1)
            return
        inner = Octets(octets.take(octets.number(4)))
        while inner.left:
            _read_value(inner, depth + 1)
    else:
        raise Unreadable


def read_properties(header: bytes) -> list[bytes]:
    """The properties of a content header, in their order."""
    octets = Octets(header)
    octets.take(12)
    flags = octets.number(2)
    found = []
    for place, kind in enumerate("ssFooSsseTssss".lower()):
        if flags & 0x8000 >> place:
            before = octets.left
            if kind == "f":
                read_table(octets)
            elif kind == "o":
                octets.take(1)
            elif kind == "t":
                octets.take(8)
            else:
                octets.take(octets.number(1))
            found.append(before[: len(before) - len(octets.left)])
    if octets.left or flags & 1:
        raise Unreadable
    return found


def agrees(second: Callable[[], Any], was_read: bool, what: str) -> Any:
    """What the second reader reads; both or neither can."""
    try:
        read = second()
    except Unreadable:
        assert not was_read, f"{what} was read, though it is none"
        return None
    assert was_read, f"{what} was refused, though it is right"
    return read


def tells(refusal: Exception, words: str = "") -> None:
    """A refusal says something, and of what."""
    assert str(refusal) and words in str(refusal), f"refused without saying why: {refusal!r}"


# -- what clients send ---------------------------------------------------------------------------------------


def table(octets: bytes) -> None:
    """A field table, with its length."""
    try:
        read: FieldTable | None = FieldTable.decode(octets)
    except MalformedTableError:
        read = None
    whole = Octets(octets)

    def second() -> list[tuple[bytes, bytes]]:
        entries = read_table(whole)
        if whole.left:
            raise Unreadable
        return entries

    entries = agrees(second, read is not None, "a table")
    if read is not None:
        assert read.encode() == octets
        assert [bytes([value.tag]) + value.raw for _, value in read.entries] == [value for _, value in entries]
        read.python()


def header(octets: bytes) -> None:
    """The payload of a content header."""
    try:
        check_header(octets)
        was_read = True
    except MalformedHeaderError:
        was_read = False
    if agrees(lambda: read_properties(octets), was_read, "a content header") is None:
        return
    content = Content(b"\0\0", octets, b"")
    assert replace_properties(octets, {}) == octets
    content.properties()
    content.expiration_bytes()
    content.headers_table()
    meanings_of(octets)


def method(octets: bytes) -> None:
    """The payload of a method frame."""
    try:
        read, arguments = decode_method(octets)
    except ProtocolError as refused:
        tells(refused, "5")
        return
    for name in read.attributes():
        getattr(read, name)
    if not arguments:
        again, _ = decode_method(method_frame(1, read)[7:-1])
        for name in read.attributes():
            assert getattr(again, name) == getattr(read, name)


def frames(octets: bytes) -> None:
    """What comes behind the handshake: the same in one piece, octet by octet, and in halves."""
    told = []
    for size in (len(octets) or 1, 1, len(octets) // 2 or 1):
        client = running_client(frame_max=4096)
        events = []
        for start in range(0, len(octets), size):
            events += client.feed(octets[start : start + size])
            assert client.connection._reader.buffered_bytes <= 4096 + 8
        # Where frames can't be told apart any more, an answer to our close is looked for where a read ends.
        state = None if client.connection._framing_lost else client.connection.state
        # As text: NaN in a table is not even equal to itself.
        told.append((repr(plain_events(events)), b"".join(client.connection.take_output()), state))
    assert told[0] == told[1] == told[2], "the same octets in other pieces say something else"


def response(octets: bytes) -> None:
    """A SASL response."""
    for mechanism in ("PLAIN", "AMQPLAIN", "OTHER"):
        read_response(mechanism, octets)


# -- what peers send -----------------------------------------------------------------------------------------


def peer_frame(octets: bytes) -> None:
    """A frame of a peer, read without protobuf and with it."""
    with suppress(codec.PeerRefused):
        codec.decode_frame(octets, 1, 2)
    read_alike(octets, 1, 2)


def peer_snapshot(octets: bytes) -> None:
    """The pieces of a snapshot."""
    for read in (
        lambda: codec.decode_snapshot_header(octets, 2), lambda: codec.decode_snapshot_data(octets, 0, 1 << 20),
        lambda: codec.decode_hello(octets),
    ):
        try:
            read()
        except codec.PeerRefused as refused:
            tells(refused)


def framing(octets: bytes) -> None:
    """Frames on their own connection, whole and in pieces."""

    def cut(size: int) -> list[bytes] | None:
        cutter = FrameCutter(1000)
        found = []
        try:
            for start in range(0, len(octets), size):
                found += cutter.cut(octets[start : start + size])
                assert len(cutter._gathered) <= 1100
        except NotFrames:
            return None
        return found

    assert cut(len(octets) or 1) == cut(1) == cut(3)
    if len(octets) >= 8:
        try:
            decode_greeting(octets, PROTOCOLS)
        except (NotFrames, struct.error):
            return


def notice(octets: bytes) -> None:
    """What nodes tell each other of the queues of one of them."""
    try:
        decode_request(octets)
    except MalformedNotice as refused:
        tells(refused)
    try:
        for _ in Events(octets).items():
            pass
    except MalformedNotice as refused:
        tells(refused)


def access_counts(octets: bytes) -> None:
    """How many connections a peer says that it has."""
    counts = AccessCounts()
    counts.told(2, octets)
    counts.total(CONNECTIONS_OF_USER, "guest")


# -- what disks hold -----------------------------------------------------------------------------------------


def write_ahead(octets: bytes) -> None:
    """A write-ahead file."""
    try:
        found = scan(octets, "a file", 0)
    except CorruptStore as damaged:
        tells(damaged, "a file")
        return
    for each in found:
        decode_record(octets, each)


def stored_records(octets: bytes) -> None:
    """Entries, hard states and snapshots of the log."""
    group = records.GROUP_KEY.pack(1)
    for read in (
        lambda: records.decode_entry(records.ENTRY_KEY.pack(1, 5), octets),
        lambda: records.decode_hard_state(group, octets), lambda: records.decode_snapshot_record(group, octets),
    ):
        try:
            read()
        except CorruptStore as damaged:
            tells(damaged, "group 1")


def received_snapshot(octets: bytes) -> None:
    """A snapshot as it was received: its octets are those that were sent, whatever these are."""
    received = ReceivedSnapshot(lambda at, size: octets[at : at + size], len(octets), sha256(octets).digest(), 100)
    try:
        for _ in received.check():
            pass
    except CorruptStore as damaged:
        tells(damaged, "snapshot")
        return
    assert len(list(received)) == len(received)


def group_state(octets: bytes) -> None:
    """The state of a group in a snapshot."""
    try:
        decode_group_head(octets)
    except GroupStateError as refused:
        tells(refused)


def shard_state(octets: bytes) -> None:
    """A shard's state. One that can be read can be written again."""
    shard = Shard(1, 1)
    try:
        shard.restore(octets)
    except ShardError as refused:
        tells(refused)


def catalog_state(octets: bytes) -> None:
    """The catalog's state."""
    catalog = Catalog(4)
    before = catalog.snapshot()
    try:
        catalog.restore(octets)
    except MalformedSnapshot as refused:
        tells(refused, "catalog")
        assert catalog.snapshot() == before
        return
    catalog.snapshot()


def identity(octets: bytes) -> None:
    """Who a node is, from its data directory."""
    try:
        decode_identity(octets)
    except MalformedIdentity as refused:
        tells(refused, "identity")


# -- right octets to begin with ------------------------------------------------------------------------------


def _tables() -> list[bytes]:
    entries = [
        b"\x01at\x01", b"\x01bI\0\0\0\x05", b"\x01cS\0\0\0\x02hi", b"\x01dF\0\0\0\x04\x01kt\0", b"\x01eA\0\0\0\x03VVV",
        b"\x01fT" + bytes(8), b"\x01gD" + bytes(5), b"\x01hd" + bytes(8), b"\x01ix\0\0\0\x01z", b"\x01jl" + bytes(8),
    ]
    octets = b"".join(entries)
    nested = b""
    for _ in range(_MOST_NESTED + 1):
        nested = b"\x01kF" + struct.pack(">I", len(nested)) + nested
    return [bytes(4), struct.pack(">I", len(octets)) + octets, struct.pack(">I", len(nested)) + nested]


def _headers() -> list[bytes]:
    some = Basic.Properties(
        content_type="a", content_encoding="b", headers={"k": [1, {"x": None}]}, delivery_mode=2, priority=3,
        correlation_id="c", reply_to="d", expiration="60", message_id="e", message_type="f", user_id="g", app_id="h",
    )
    one = Basic.Properties(expiration="1")
    return [build_header(Basic.Properties(), 0), build_header(some, 5), build_header(one, 1)]


def _frames() -> list[bytes]:
    tame: list[Any] = [
        commands.Queue.Declare(queue="q", arguments={"a": [1]}), Basic.Ack(5, True), Basic.Nack(1), Basic.Reject(2),
        Basic.Consume(queue="q"), commands.Channel.Flow(True), commands.Channel.Close(200, "bye", 0, 0), Basic.Ack(1),
    ]
    octets = [frame.marshal(each, 1) for each in tame]
    return [
        publish_octets(1) + octets[1], publish_octets(1, b"x" * 300, frame_bytes=100) + publish_octets(1, b""),
        b"".join(octets[1:4]) * 2 + publish_octets(1), *octets,
        frame.marshal(commands.Channel.Open(), 2) + publish_octets(2),
        b"\x08\0\0\0\0\0\0\xce" + publish_octets(1)[:40],
    ]


def _peer_frames() -> list[bytes]:
    full = Frame(12345)
    append = RaftMessage(MessageType.APP, 1, 2, 3)
    append.index, append.log_term, append.commit = 4, 2, 3
    append.entries = [Entry(3, 5, 0, b"payload"), Entry(3, 6, 0, b"")]
    full.raft = [(1, append), (2, RaftMessage(MessageType.HEARTBEAT_RESP, 1, 2, 3))]
    full.group_clocks = [(1, 1000, 900)]
    full.proposals = [(1, b"envelope")]
    full.notices = [(2, b"octets")]
    return [codec.encode_frame(Frame(1)), codec.encode_frame(full)]


def _notices() -> list[bytes]:
    items = [
        [0, 2, 5, 1, True], [0, 1, 7, 0], [0, 11, [1, 2]], [0, 3, [0, 2, 3, 4, 5, -1, 0, -1], 1, 2, False], [2, 5, 6],
        [1, 5, 1, [[0, 2, 3, 4, 5, -1, 0, -1]]],
    ]
    packed = msgspec.msgpack.encode(items)
    return [
        encode_request(1, 2, [(1, b"unit"), (2, b"")]), struct.pack("<QQI", 1, 2, len(packed)) + packed + b"kkhhhbbbb",
    ]


def _images() -> list[bytes]:
    batches = []
    for first in (1, 2, 3):
        batch = WriteBatch()
        batch.group(1).entries = [Entry(1, first, 0, b"payload" * first)]
        batch.group(2).hard_state = HardState(first, 2, 1)
        batches.append(encode_record(first, batch, _SALT))
    octets = b"".join(batches)
    size = FILE_HEADER_BYTES + len(octets) + 600
    return [(file_header(size, _SALT) + octets).ljust(size, b"\0"), file_header(size, _SALT).ljust(size, b"\0")]


def _records() -> list[bytes]:
    group = records.GROUP_KEY.pack(1)
    metadata = SnapshotMetadata(5, 2, ConfState([1, 2, 3], [4]))
    return [
        records.encode_entry(records.ENTRY_KEY.pack(1, 5), Entry(2, 5, 0, b"payload")),
        records.encode_hard_state(group, HardState(3, 2, 1)),
        records.encode_snapshot_record(group, StoredSnapshot(metadata, b"state")),
    ]


def _snapshots() -> list[bytes]:
    entries = {3: Entry(1, 3, 0, b"three"), 5: Entry(2, 5, 0, b"five")}
    outgoing = OutgoingSnapshot(1, b"state", [3, 5], lambda group, index: entries[index])
    for _ in outgoing.prepare():
        pass
    return [b"".join(outgoing.pieces(0, 1000))]


def _states() -> tuple[list[bytes], list[bytes]]:
    """Snapshots of shards and of the catalog of a broker that was used."""
    world = World()
    client = world.client()
    for queue in ("q1", "q2", "q3", "q4"):
        client.declare(queue, arguments={"x-message-ttl": 60_000, "x-dead-letter-exchange": "", "x-max-length": 3})
        client.publish_bytes(1, queue)
        for _ in range(4):
            client.publish(1, queue, b"body")
    client.consume("q1")
    client.send(1, Basic.Nack(1, requeue=True), Basic.Nack(2, requeue=False))
    client.call(1, commands.Exchange.Declare(exchange="e", exchange_type="topic", durable=True))
    client.call(1, commands.Queue.Bind(queue="q1", exchange="e", routing_key="a.#"))
    world.advance(1000)
    return [local.shard.snapshot() for local in world.cluster.shards.values()], [world.cluster.catalog.snapshot()]


_shard_states, _catalog_states = _states()

TARGETS: Final[dict[str, tuple[Callable[[bytes], None], list[bytes]]]] = {
    "table": (table, _tables()),
    "header": (header, _headers()),
    "method": (method, [octets[7:-1] for octets in _frames()[3:11]]),
    "frames": (frames, _frames()),
    "response": (response, [b"\0guest\0guest", b"\x05LOGINS\0\0\0\x05guest\x08PASSWORDS\0\0\0\x05guest"]),
    "peer frame": (peer_frame, _peer_frames()),
    "peer snapshot": (peer_snapshot, [codec.encode_snapshot_data(0, b"piece"), *_peer_frames()]),
    "framing": (framing, [b"\0\0\0\x03abc\0\0\0\0", struct.pack("<I", 3) + b"abc", b"\xff\xff\xff\xff"]),
    "notice": (notice, _notices()),
    "access counts": (access_counts, [b"\x91\x93\xa4user\xa5guest\x05", b"\x90"]),
    "write-ahead": (write_ahead, _images()),
    "records": (stored_records, _records()),
    "received snapshot": (received_snapshot, _snapshots()),
    "group state": (
        group_state,
        [
            encode_group_head(1, 2, [(1, 2, 3, True)]) + b"machine",
            encode_group_head(1, 2, [(1, 2, 3, True)], [(0, 1, 7, 30, 5), (9, 0, 8, 30, 5)]) + b"machine",
        ],
    ),
    "shard state": (shard_state, _shard_states),
    "catalog state": (catalog_state, _catalog_states),
    "identity": (identity, [b'{"format":1,"cluster":"c","node":1,"store":"s"}', b"{}", b"[]"]),
}
"""Name -> target and right octets."""

_NUMBERS: Final = [
    b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", bytes(4), b"\0\0\0\x01", b"\xff", b"\0", b"\x80",
]


def spoil(chance: random.Random, octets: bytes, others: Iterable[bytes]) -> bytes:
    """With changes that decoders are weak against: lengths, types, cuts, and parts of others."""
    changed = bytearray(octets)
    for _ in range(chance.choice([0, 1, 1, 1, 2, 4])):
        place = chance.randrange(len(changed) + 1)
        way = chance.randrange(7)
        if way == 0 and place < len(changed):
            changed[place] = chance.randrange(256)
        elif way == 1 and place < len(changed):
            changed[place] = (changed[place] + chance.choice([1, -1])) % 256
        elif way == 2:
            del changed[place : place + chance.choice([1, 1, 2, 4, 20])]
        elif way == 3:
            changed[place:place] = chance.randbytes(chance.choice([1, 1, 2, 4, 20]))
        elif way == 4:
            number = chance.choice(_NUMBERS)
            changed[place : place + len(number)] = number
        elif way == 5:
            other = chance.choice(list(others))
            start = chance.randrange(len(other) + 1)
            changed[place : place + chance.choice([0, 4])] = other[start : start + chance.randrange(40)]
        else:
            del changed[place:]
    return bytes(changed)


def try_codecs(seed: int) -> None:
    """Some octets for each target."""
    chance = random.Random(seed)
    for name, (target, right) in TARGETS.items():
        octets = spoil(chance, chance.choice(right), right)
        try:
            target(octets)
        except Exception as error:
            raise AssertionError(f"{name}: {type(error).__name__}: {error}: {octets[:2000].hex()}") from error
