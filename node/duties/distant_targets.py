"""Items of lanes to shards of which this node has no replica, and to such shards here: what is asked and told.

    TRANSFER  source's leader -> target's leader   dead letters, or a queue  shard u16, a TRANSFER, MOVE_IN or
                                                   that moves                TRANSFER_MOVED command
    ASKED     source's leader -> target's leader   what of them is there?    shard u16, queue u64, source u64, next u64
    TOLD      target's leader -> source's leader   shard u16, queue u64, source u64, received up to i64,
                                                   room: messages u64, bytes of bodies u64, counted bytes u64

TOLD answers for what is committed, after each TRANSFER that was applied and each ASKED. What may have changed since is
asked again while somebody wants to know. Nothing is lost with a notice: transfers are repeated until TOLD says that
they are there (RULES D6), and dropped where they came before.

What nobody has told yet is no room: nothing is sent on a guess.
"""

import struct
from collections.abc import Collection, Mapping
from typing import Final

from mayfly.cluster.group.sessions import KIND_INTERNAL, encode_batch
from mayfly.cluster.host.host import Host
from mayfly.node.notice_kinds import TARGET_ASKED, TARGET_TOLD, TARGET_TRANSFER
from mayfly.node.shard.commands import transferred
from mayfly.node.shard.room import NO_ROOM, Room
from mayfly.node.shard.shard import Shard

ASK_AGAIN_MS: Final = 100
"""What was told may have changed by then: it is asked again, if somebody still wants to know."""

FORGET_MS: Final = 60_000
"""What nobody wanted to know in so long is forgotten. No number of targets is too many to remember: whoever forgot some
of them while all are wanted would have forgotten each again before it is told of."""

KINDS: Final = frozenset((TARGET_TRANSFER, TARGET_ASKED, TARGET_TOLD))

_SHARD: Final = struct.Struct("<H")
_ASKED: Final = struct.Struct("<HQQQ")
_TOLD: Final = struct.Struct("<HQQqQQQ")
_MOST: Final = (1 << 62) - 1


class _Target:
    """What is known here of one queue elsewhere, for one source."""

    __slots__ = ("asked_ms", "is_wanted", "received", "room")

    def __init__(self) -> None:
        self.asked_ms = -1 << 40
        self.is_wanted = True
        """Whether somebody wanted to know it since it was last looked for what nobody does."""
        self.received = 0
        self.room: Room = NO_ROOM


class DistantTargets:
    """Both ends on one node."""

    def __init__(self, shards: Mapping[int, Shard], host: Host) -> None:
        """`shards`: the replicas of this node, as they are at any time."""
        self._shards = shards
        self._host = host
        self._targets: dict[tuple[int, int, int], _Target] = {}
        """By shard, queue and source."""
        self._owed: dict[int, dict[tuple[int, int, int], None]] = {}
        """Shard -> (node, queue, source) of transfers that are on their way through the log."""
        self._has_news = False
        self._looked_ms = 0

    # ------------------------------------------------------------------ for the leader of a source

    def transfer(self, shard: int, command: bytes) -> None:
        """See `DutyPort.transfer`."""
        leader = self._host.leader_of(shard)
        if leader:
            self._host.send_notice(leader, TARGET_TRANSFER, _SHARD.pack(shard) + command, unordered=True)

    def received_up_to(self, shard: int, queue: int, source: int) -> int:
        """See `DutyPort.received_up_to`."""
        target = self._targets.get((shard, queue, source))
        if target is None:
            return 0
        target.is_wanted = True
        return target.received

    def room(self, shard: int, queue: int, source: int, next_bytes: int, now_ms: int) -> Room:
        """See `DutyPort.room`."""
        key = (shard, queue, source)
        target = self._targets.get(key)
        if target is None:
            if now_ms - self._looked_ms >= FORGET_MS:
                self._forget(now_ms)
            target = self._targets[key] = _Target()
        target.is_wanted = True
        if now_ms - target.asked_ms >= ASK_AGAIN_MS:
            self._ask(key, target, next_bytes, now_ms)
        return target.room

    def ask_again(self, shard: int, queue: int, source: int, now_ms: int) -> None:
        """See `DutyPort.ask_again`."""
        key = (shard, queue, source)
        target = self._targets.get(key)
        if target is not None:
            self._ask(key, target, 0, now_ms)

    def _ask(self, key: tuple[int, int, int], target: _Target, next_bytes: int, now_ms: int) -> None:
        leader = self._host.leader_of(key[0])
        if leader and leader != self._host.node:
            target.asked_ms = now_ms
            self._host.send_notice(leader, TARGET_ASKED, _ASKED.pack(*key, next_bytes), unordered=True)

    def _forget(self, now_ms: int) -> None:
        """What nobody wanted to know since the last look is forgotten."""
        self._looked_ms = now_ms
        self._targets = {key: target for key, target in self._targets.items() if target.is_wanted}
        for target in self._targets.values():
            target.is_wanted = False

    def take_news(self) -> bool:
        """Whether something was told since the last call."""
        news, self._has_news = self._has_news, False
        return news

    # ------------------------------------------------------------------ for the leader of a target

    def applied(self, changed: Collection[int]) -> None:
        """Shards have changed: tell those whose letters are there now."""
        for shard in changed:
            owed = self._owed.pop(shard, None)
            if owed:
                for node, queue, source in owed:
                    self._tell(node, shard, queue, source, 0)

    def _tell(self, node: int, shard: int, queue: int, source: int, next_bytes: int) -> None:
        replica = self._shards.get(shard)
        if replica is not None and self._host.groups[shard].established:
            room = replica.room(queue, source, next_bytes)
            told = _TOLD.pack(
                shard, queue, source, replica.received_up_to(queue, source),
                *[min(max(each, 0), _MOST) for each in room],
            )  # fmt: skip
            self._host.send_notice(node, TARGET_TOLD, told, unordered=True)

    # ------------------------------------------------------------------ notices

    def notice(self, peer: int, kind: int, data: bytes) -> None:
        """A notice of a peer, of one of KINDS. What can't be read is passed over: it is repeated, or asked again."""
        try:
            if kind == TARGET_TRANSFER:
                self._take_transfer(peer, data)
            elif kind == TARGET_ASKED:
                self._tell(peer, *_ASKED.unpack(data))
            else:
                self._take_told(data)
        except struct.error:
            return

    def _take_transfer(self, peer: int, data: bytes) -> None:
        (shard,) = _SHARD.unpack_from(data)
        command = data[_SHARD.size :]
        lane = transferred(command) if command else None
        if lane is None or shard not in self._shards:
            return
        source, queue = lane
        if self._host.groups[shard].leads:
            self._owed.setdefault(shard, {})[(peer, queue, source)] = None
            self._host.send_internal(shard, encode_batch(KIND_INTERNAL, 0, 0, 0, command))

    def _take_told(self, data: bytes) -> None:
        shard, queue, source, received, *room = _TOLD.unpack(data)
        target = self._targets.get((shard, queue, source))
        if target is not None and (received < 0 or received >= target.received):
            target.received = received
            target.room = Room(*room)
            self._has_news = True
