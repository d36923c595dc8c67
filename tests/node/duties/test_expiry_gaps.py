"""How often the leader of a shard has expire what is due (RULES T7, C4)."""

from typing import Any, cast

from mayfly.node.duties.shard_leader import ShardLeader
from mayfly.node.shard import commands
from mayfly.node.shard.settings import ShardQueueSettings
from mayfly.node.shard.shard import Shard
from tests.node.duties.test_comparison import UNCOMPILED, CountingCatalog, Led, Port

EXPIRY_TICK_MS = 250
STREAM = 1
AT_MOST = 20
"""So many messages an entry lets expire."""


class Leader:
    """The leader of a shard with a stream; commands are applied at the time at which they are given."""

    def __init__(self) -> None:
        self.shard = Shard(1, 1, AT_MOST)
        self.group = Led()
        self.index = 0
        self.now_ms = 1_000
        self.entries = 0
        """Those of the shard's leader, and those that others ask for."""
        self.joining: list[bytes] | None = None
        """What the leader gives while an entry is made."""
        self.expired = 0
        """Entries that have something expire."""
        group, port = cast(Any, self.group), cast(Any, Port(CountingCatalog()))
        self.duties = ShardLeader(self.shard, group, port, self.give, EXPIRY_TICK_MS)
        self.group.clock.observed(self.now_ms, 0, self.now_ms)
        self.apply(commands.encode_create_queue(STREAM, ShardQueueSettings(name="s", is_stream=True)))

    def give(self, command: bytes) -> None:
        self.expired += command == commands.encode_expire_due()
        if self.joining is not None:
            self.joining.append(command)
            return
        self.entries += 1
        self.apply(command)

    def apply(self, command: bytes) -> None:
        self.index += 1
        self.group.clock.applied(self.now_ms, 0)
        self.shard.begin(self.index, self.now_ms, 0, command)
        self.shard.apply(None, 0, len(command))
        self.shard.finish()

    def publish(self, ttls_ms: list[int]) -> None:
        parts: list[bytes] = []
        for ttl_ms in ttls_ms:
            commands.encode_publish_kept(parts, (STREAM,), -1, b"\0\0", b"", b"", None, ttl_ms)
        command = b"".join(parts)
        self.index += 1
        self.group.clock.applied(self.now_ms, 0)
        self.shard.begin(self.index, self.now_ms, 0, command)
        self.shard.apply((1, 1), 0, len(command))
        self.shard.finish()

    def ask(self) -> None:
        """Somebody has another entry made and applied, which touches nothing."""
        self.entries += 1
        self.joining = []
        self.duties.join_entry(self.now_ms)
        command, self.joining = b"".join(self.joining), None
        self.apply(command)
        self.duties.advance(self.now_ms)

    def left(self) -> int:
        found = self.shard.queue_statistics(STREAM)
        assert found is not None
        return found.ready


def let_all_expire(leader: Leader, for_ms: int, asked_every_ms: int) -> None:
    """A message is due every 10 ms for a second, and none stays longer than a tick."""
    leader.publish([1_000 + 10 * number for number in range(100)])
    for _ in range(for_ms):
        leader.now_ms += 1
        if leader.now_ms % asked_every_ms == 0:
            leader.ask()
        if leader.now_ms % 50 == 0:
            leader.duties.tick(leader.now_ms)
        overdue = min(100, max(0, (leader.now_ms - 2_000 - EXPIRY_TICK_MS) // 10))
        assert leader.left() <= 100 - overdue
    assert leader.left() == 0


@UNCOMPILED
def test_who_asks_often_has_no_more_entries_expire() -> None:
    """T7: however often, at most a few times a tick, and in none of its own; and nothing stays longer than a tick."""
    leader = Leader()
    let_all_expire(leader, 2_000, asked_every_ms=1)
    assert 8 <= leader.expired <= 15
    assert leader.entries == 2_000


@UNCOMPILED
def test_what_is_due_between_entries_of_others_has_one_of_its_own() -> None:
    """T7: others may have no entry made for a while."""
    leader = Leader()
    let_all_expire(leader, 2_200, asked_every_ms=650)
    assert leader.entries > 3


@UNCOMPILED
def test_c4_what_had_no_room_in_an_entry_follows_at_once() -> None:
    leader = Leader()
    leader.publish([1_000] * (10 * AT_MOST))
    leader.now_ms += 1_000
    leader.duties.tick(leader.now_ms)
    assert leader.left() == 9 * AT_MOST
    while leader.left():
        before = leader.left()
        leader.duties.advance(leader.now_ms)
        assert leader.left() == before - AT_MOST
    leader.duties.advance(leader.now_ms)
    assert leader.expired == 10
