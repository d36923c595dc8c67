"""The frame stream between two nodes: what stands on the wire, and how it is cut into frames again. Pure.

    greeting = magic, version u8, node id u64, ticket
    answer   = magic, version u8, the same [, proof]
    frame    = length u32 [, crc u32 of the octets, crc u32 of these eight], that many octets (`codec.encode_frame`)
    apart    = [crc u32,] the octets: a frame in a message of the Exchange

All integers are big-endian. The connecting side greets, waits for the answer, and then sends frames; the listening side
says nothing but its answer. The ticket is the one that the listening side gave it in an Exchange (proto/peer.proto),
for the version that was agreed upon there. Where a cluster secret was proven on the connection of the Exchange, what is
shown is made of both, and so is the proof in the answer (`cluster_secret.ProvenSecret`); otherwise there is none.

The checksums (CRC-32) are there from protocol 7 on where there is no TLS, which has its own. A length has one for
itself: one that is wrong would have the receiver wait for what never comes.
"""

import hmac
import zlib
from struct import Struct
from typing import Final, Generic, TypeVar

from mayfly.cluster import limits
from mayfly.cluster.raft import MAX_NODE_ID
from mayfly.cluster.versions import VersionRange

MAGIC: Final = b"MAYFLY\xf2"
"""No text, and nothing that another protocol begins with."""

TICKET_BYTES: Final = 32
LENGTH: Final = Struct(">I")
CHECKED: Final = Struct(">III")
_LENGTH_AND_CHECKSUM: Final = Struct(">II")
_GREETING: Final = Struct(f">{len(MAGIC)}sBQ{TICKET_BYTES}s")
GREETING_BYTES: Final = _GREETING.size

_DAMAGED: Final = "a frame was damaged on its way, its checksum differs"

Owner = TypeVar("Owner")


class NotFrames(Exception):
    """What came is not what a node sends. The text says what, for the log."""


class Damaged(NotFrames):
    """What came is not what was sent: bits have changed on the way."""


def frame_header(frame: list[bytes], size_bytes: int, checked: bool) -> bytes:
    """What stands before an encoded frame, given in pieces of this size together."""
    if not checked:
        return LENGTH.pack(size_bytes)
    checksum = 0
    for piece in frame:
        checksum = zlib.crc32(piece, checksum)
    beginning = _LENGTH_AND_CHECKSUM.pack(size_bytes, checksum)
    return beginning + LENGTH.pack(zlib.crc32(beginning))


def encode_apart(frame: bytes) -> bytes:
    """An encoded frame as a message of the Exchange, with its checksum."""
    return LENGTH.pack(zlib.crc32(frame)) + frame


def decode_apart(data: bytes) -> bytes:
    """The encoded frame in a message of the Exchange that has a checksum. Raises `Damaged`."""
    frame = data[LENGTH.size :]
    if len(data) < LENGTH.size or LENGTH.unpack_from(data)[0] != zlib.crc32(frame):
        raise Damaged(_DAMAGED)
    return frame


def encode_greeting(version: int, node_id: int, ticket: bytes) -> bytes:
    """What the connecting side says first."""
    return _GREETING.pack(MAGIC, version, node_id, ticket)


def encode_answer(version: int, proof: bytes = b"") -> bytes:
    """What the listening side says."""
    return MAGIC + bytes((version,)) + proof


def check_beginning(data: bytes, spoken: VersionRange) -> None:
    """Whether the octets so far can be the beginning of a greeting, or of an answer. Raises `NotFrames`."""
    if not MAGIC.startswith(data[: len(MAGIC)]):
        raise NotFrames("not a node of this protocol")
    if len(data) > len(MAGIC) and not spoken.knows(data[len(MAGIC)]):
        raise NotFrames(f"version {data[len(MAGIC)]} of the frame stream, {spoken!r} is spoken here")


def decode_greeting(data: bytes, spoken: VersionRange) -> tuple[int, int, bytes]:
    """Version, node id and ticket in a greeting of `GREETING_BYTES`. Raises `NotFrames`."""
    check_beginning(data, spoken)
    _, version, node_id, ticket = _GREETING.unpack(data)
    if not 0 < node_id <= MAX_NODE_ID:
        raise NotFrames(f"greeting of node {node_id}")
    return version, node_id, ticket


class FrameCutter:
    """Cuts what comes into frames, whatever its pieces are."""

    __slots__ = ("_checked", "_gathered", "_header_bytes", "_length", "_most_bytes")

    def __init__(self, most_bytes: int = limits.MAX_PEER_MESSAGE_BYTES, checked: bool = False) -> None:
        """`checked`: frames carry checksums."""
        self._most_bytes = most_bytes
        self._checked = checked
        self._header_bytes: int = CHECKED.size if checked else LENGTH.size
        self._gathered = bytearray()
        self._length = -1
        """Of the frame that is not whole yet, with the octets before it; -1: not known."""

    def cut(self, data: bytes) -> list[bytes]:
        """The frames that end in these octets. Raises `NotFrames`: too long a frame is announced; `Damaged`: one is not
        what was sent. Then it is all over, and none of these frames is given, nor any later one.

        No more is ever kept than one frame, and nothing of one that is too long."""
        gathered = self._gathered
        if gathered:
            gathered += data
            if len(gathered) < self._length:
                return []
            if len(gathered) == self._length:
                # As a large frame comes: one copy instead of two.
                whole = bytes(memoryview(gathered)[self._header_bytes :])
                if self._checked and zlib.crc32(whole) != LENGTH.unpack_from(gathered, LENGTH.size)[0]:
                    raise Damaged(_DAMAGED)
                self._gathered = bytearray()
                self._length = -1
                return [whole]
            data = bytes(gathered)
            gathered.clear()
        frames: list[bytes] = []
        at, end = 0, len(data)
        header_bytes = self._header_bytes
        self._length = -1
        while end - at >= header_bytes:
            length = data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]
            if self._checked and zlib.crc32(data[at : at + 8]) != LENGTH.unpack_from(data, at + 8)[0]:
                raise Damaged(_DAMAGED)
            if length > self._most_bytes:
                raise NotFrames(f"frame of {length} bytes, at most {self._most_bytes} are taken")
            following = at + header_bytes + length
            if following > end:
                self._length = following - at
                break
            frame = data[at + header_bytes : following]
            if self._checked and zlib.crc32(frame) != LENGTH.unpack_from(data, at + 4)[0]:
                raise Damaged(_DAMAGED)
            frames.append(frame)
            at = following
        if at < end:
            gathered += data[at:] if at else data
        return frames


class Tickets(Generic[Owner]):
    """Tickets that were given out, and for what. Each is good once, for one node, for a while."""

    def __init__(self, good_for_s: float) -> None:
        self._good_for_s = good_for_s
        self._given: dict[bytes, tuple[int, float, Owner]] = {}

    def __len__(self) -> int:
        return len(self._given)

    def give(self, ticket: bytes, node_id: int, holder: Owner, now_s: float) -> None:
        """Let `ticket` stand for `holder` when this node shows it."""
        self._given[ticket] = (node_id, now_s + self._good_for_s, holder)

    def withdraw(self, ticket: bytes) -> None:
        """The ticket is good no more; nothing happens if it was used."""
        self._given.pop(ticket, None)

    def redeem(self, shown: bytes, node_id: int, now_s: float) -> Owner:
        """What the ticket stands for. Raises `NotFrames`. Whoever shows it, it is good no more.

        Takes as long for a wrong ticket as for a right one, however much of it is right."""
        found = b""
        for ticket in self._given:
            if hmac.compare_digest(ticket, shown):
                found = ticket
        if not found:
            raise NotFrames("unknown ticket")
        owner, good_until_s, holder = self._given.pop(found)
        if owner != node_id:
            raise NotFrames(f"node {node_id} shows the ticket of node {owner}")
        if now_s > good_until_s:
            raise NotFrames("ticket that came too late")
        return holder
