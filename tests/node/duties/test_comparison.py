"""A shard's comparison with the catalog: some of its own queues at a time, and what it finds."""

from collections.abc import Callable

import pytest

from mayfly.cluster.group.clock import GroupClock
from mayfly.cluster.versions import LEVEL_QUEUE_MOVES
from mayfly.node.catalog import (
    AddVhost,
    Catalog,
    DeclareQueue,
    DeleteVhost,
    FoundCluster,
    MoveQueue,
    QueueDeclared,
    QueueMoved,
    QueueRecord,
    RemoveQueues,
)
from mayfly.node.catalog.shard_settings import shard_settings
from mayfly.node.duties import shard_leader
from mayfly.node.duties.comparison import QUEUES_PER_STEP, Comparison
from mayfly.node.duties.shard_leader import RECONCILE_EVERY_MS, ShardLeader
from mayfly.node.shard import commands
from mayfly.node.shard.room import Room
from mayfly.node.shard.shard import Shard

TICK_MS = 50
SHARDS = 2
MANY = 3 * QUEUES_PER_STEP


class CountingCatalog(Catalog):
    """Counts queues that are looked at; nobody may look at all."""

    def __init__(self) -> None:
        super().__init__(SHARDS)
        self.looked = 0

    def queues(self, vhost: str | None = None) -> list[QueueRecord]:
        raise AssertionError("all queues of the catalog are looked at")

    def queues_in_block(self, shard: int, block: int) -> list[QueueRecord]:
        found = super().queues_in_block(shard, block)
        self.looked += len(found)
        return found

    def queue_by_id(self, queue_id: int) -> QueueRecord | None:
        self.looked += 1
        return super().queue_by_id(queue_id)


class Replica:
    """Shard 1 with its catalog. Commands are applied when they are given."""

    def __init__(self, queues: int = 0) -> None:
        self.catalog = CountingCatalog()
        self.shard = Shard(1, 1)
        self.index = 0
        self.given: list[bytes] = []
        self.records = [self.declare(f"q{number}") for number in range(queues)]
        self.create(*self.records)
        self.given.clear()

    def declare(self, name: str, vhost: str = "/") -> QueueRecord:
        result = self.catalog.apply(DeclareQueue(vhost, name, durable=True))
        assert isinstance(result, QueueDeclared)
        return result.queue

    def create(self, *records: QueueRecord) -> None:
        for record in records:
            if record.shard == 1:
                self.give(commands.encode_create_queue(record.id, shard_settings(self.catalog, record)))

    def give(self, command: bytes) -> None:
        self.given.append(command)
        self.index += 1
        self.shard.begin(self.index, 1, 1, command)
        self.shard.apply(None, 0, len(command))
        self.shard.finish()

    def drop(self, *records: QueueRecord) -> None:
        for record in records:
            self.give(commands.encode_drop_queue(record.id))

    def begin(self) -> Comparison:
        return Comparison(self.shard, self.catalog, self.give)

    def in_step(self) -> bool:
        blocks = self.catalog.blocks_of_shard(1)
        wanted = [queue.id for block in blocks for queue in self.catalog.queues_in_block(1, block)]
        return wanted == sorted(self.shard.queue_ids())


def test_a_step_looks_at_some_of_the_shard_s_own_queues() -> None:
    replica = Replica(SHARDS * MANY)
    comparison = replica.begin()
    steps, over = 0, False
    while not over:
        replica.catalog.looked = 0
        over = comparison.step()
        assert replica.catalog.looked <= 2 * QUEUES_PER_STEP
        steps += 1
    assert 2 * MANY // QUEUES_PER_STEP <= steps <= 2 * MANY // QUEUES_PER_STEP + 2
    assert not comparison.differed
    assert not replica.given
    small = Replica(20).begin()
    assert small.step(), "one step is enough"


def test_what_is_missing_is_created_and_what_is_too_much_dropped() -> None:
    replica = Replica(SHARDS * MANY)
    own = [record for record in replica.records if record.shard == 1]
    replica.drop(*own[::100])
    replica.catalog.apply(RemoveQueues(tuple(record.id for record in own[7::100])))
    replica.given.clear()
    comparison = replica.begin()
    created: list[int] = []
    over = False
    while not over:
        over = comparison.step()
        created += comparison.created
    assert comparison.differed
    assert created == [record.id for record in own[::100]]
    assert replica.in_step()
    assert replica.begin().step() is False


def test_each_queue_is_judged_by_what_both_sides_say_then() -> None:
    """Queues come and go between two steps, on either side."""
    replica = Replica(SHARDS * MANY)
    own = [record for record in replica.records if record.shard == 1]
    comparison = replica.begin()
    assert not comparison.step()
    gone_from_both, gone_from_shard, new = own[-1], own[-2], replica.declare("new")
    replica.drop(gone_from_both, gone_from_shard)
    replica.catalog.apply(RemoveQueues((gone_from_both.id,)))
    replica.create(new)
    replica.given.clear()
    while not comparison.step():
        pass
    assert replica.given == [
        commands.encode_create_queue(gone_from_shard.id, shard_settings(replica.catalog, gone_from_shard))
    ]
    assert replica.in_step()


def test_what_the_shard_got_after_it_began_may_be_newer_than_the_catalog_here() -> None:
    """The barrier is for what was there before: a command of another node may be behind it."""
    replica = Replica(4)
    comparison = replica.begin()
    newer = QueueRecord(99, "/", "newer", 1, True, False, False, {}, replica.records[0].settings)
    replica.create(newer)
    replica.given.clear()
    assert comparison.step()
    assert not replica.given
    assert replica.shard.queue(99) is not None


def test_a_queue_that_moves_is_dropped_in_none_of_its_two_shards() -> None:
    """What has left sends what it has, what is about to come has begun to take it; once it is deleted both go."""
    replica = Replica()
    replica.catalog.apply(FoundCluster(((1, "n1", "n1:1"),), 3, LEVEL_QUEUE_MOVES))
    replica.give(commands.encode_raise_level(LEVEL_QUEUE_MOVES))
    leaves, comes = replica.declare("leaves"), replica.declare("comes")
    assert (leaves.shard, comes.shard) == (1, 2)
    replica.create(leaves)
    replica.catalog.apply(MoveQueue("/", "leaves", 2))
    replica.catalog.apply(MoveQueue("/", "comes", 1))
    replica.give(commands.encode_move_out(leaves.id, 2))
    replica.give(commands.encode_create_queue(comes.id, shard_settings(replica.catalog, comes)))
    replica.given.clear()
    while not replica.begin().step():
        pass
    replica.catalog.apply(QueueMoved(leaves.id, 1, 2))
    assert [queue.id for queue in replica.catalog.queues_in_block(2, 0)] == [leaves.id, comes.id]
    while not replica.begin().step():
        pass
    assert not replica.given
    left = replica.shard.queue(leaves.id)
    assert left is not None and left.has_left
    replica.catalog.apply(QueueMoved(comes.id, 2, 1))
    assert replica.catalog.blocks_of_shard(1) == [0]
    assert [queue.id for queue in replica.catalog.queues_in_block(1, 0)] == [comes.id]
    replica.catalog.apply(RemoveQueues((leaves.id, comes.id)))
    assert not replica.catalog.blocks_of_shard(1)
    assert replica.begin().step()
    assert replica.given[0] == commands.encode_drop_queue(leaves.id) + commands.encode_drop_queue(comes.id)


def test_a_queue_that_has_not_left_goes_where_the_catalog_has_it_and_is_not_dropped() -> None:
    """It had moved to and fro, and was to go once more, when the catalog heard of the first move for a second time,
    from a node that was cut off."""
    replica = Replica()
    replica.catalog.apply(FoundCluster(((1, "n1", "n1:1"),), 3, LEVEL_QUEUE_MOVES))
    replica.give(commands.encode_raise_level(LEVEL_QUEUE_MOVES))
    record = replica.declare("here")
    replica.create(record)
    for source, target in ((1, 2), (2, 1)):
        replica.catalog.apply(MoveQueue("/", "here", target))
        replica.catalog.apply(QueueMoved(record.id, source, target))
    replica.catalog.apply(MoveQueue("/", "here", 2))
    replica.catalog.apply(QueueMoved(record.id, 1, 2))
    replica.given.clear()
    assert replica.begin().step()
    assert replica.given == [commands.encode_move_out(record.id, 2)]
    left = replica.shard.queue(record.id)
    assert left is not None and left.has_left
    replica.given.clear()
    assert replica.begin().step() and not replica.given


# --- the leader ---------------------------------------------------------------------------------------------


UNCOMPILED = pytest.mark.skipif(
    shard_leader.__file__.endswith(".so"), reason="a compiled leader takes no other class for its group"
)


class Led:
    """A group that is led here."""

    def __init__(self) -> None:
        self.established, self.term = True, 1
        self.clock = GroupClock()
        self.sessions = self
        self.ended = 0
        self.log = self

    def data(self, index: int) -> bytes:
        raise LookupError(index)


class Port:
    """The node around the shard: barriers are over when `arrive` is called."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.waiting: list[Callable[[], None]] = []

    def barrier(self, done: Callable[[], None]) -> None:
        self.waiting.append(done)

    def arrive(self) -> int:
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done()
        return len(waiting)

    def transfer(self, target_shard: int, command: bytes) -> None: ...

    def received_up_to(self, target_shard: int, queue: int, source: int) -> int:
        return -1

    def ask_again(self, target_shard: int, queue: int, source: int) -> None: ...

    def room(self, target_shard: int, queue: int, source: int, next_bytes: int) -> Room:
        raise LookupError(queue)

    def has_leader(self, shard: int) -> bool:
        return True

    def queue_moved(self, queue: int, source: int, target: int, number: int) -> None: ...

    def remove_queues(self, ids: tuple[int, ...], done: Callable[[bool], None]) -> None: ...


class Leader:
    """The leader of the replica's shard, from tick to tick."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.port = Port(replica.catalog)
        self.group = Led()
        self.duties = ShardLeader(replica.shard, self.group, self.port, replica.give, 250)  # type: ignore[arg-type]
        self.now_ms = 0

    def tick(self, times: int = 1) -> int:
        """How many comparisons began."""
        begun = 0
        for _ in range(times):
            self.now_ms += TICK_MS
            self.duties.tick(self.now_ms)
            begun += self.port.arrive()
        return begun


@UNCOMPILED
def test_a_leader_compares_a_large_shard_in_several_ticks_and_then_no_more() -> None:
    replica = Replica(SHARDS * MANY)
    leader = Leader(replica)
    looked = []
    for _ in range(10):
        replica.catalog.looked = 0
        leader.tick()
        looked.append(replica.catalog.looked)
    assert max(looked) <= 3 * QUEUES_PER_STEP, "the sweep for policies goes on beside it"
    replica.catalog.looked = 0
    assert leader.tick(4 * RECONCILE_EVERY_MS // TICK_MS) == 0
    assert replica.catalog.looked <= MANY, "the rest of that sweep"


@UNCOMPILED
def test_what_happens_during_a_comparison_is_seen_by_the_next_one() -> None:
    """A vhost that goes takes queues along that were looked at before: nobody waits for the timer."""
    replica = Replica()
    replica.catalog.apply(AddVhost("v"))
    replica.create(*[replica.declare(f"q{number}", "v") for number in range(4)])
    replica.create(*[replica.declare(f"q{number}") for number in range(SHARDS * MANY)])
    leader = Leader(replica)
    while replica.catalog.looked < MANY + 2 * QUEUES_PER_STEP:
        assert leader.tick() == (leader.now_ms == TICK_MS)
    replica.catalog.apply(DeleteVhost("v"))
    assert not replica.in_step()
    assert leader.tick(10) == 1
    leader.tick(10)
    assert replica.in_step()


@UNCOMPILED
def test_another_lead_begins_anew() -> None:
    replica = Replica(SHARDS * MANY)
    leader = Leader(replica)
    assert leader.tick() == 1
    leader.group.term = 2
    assert leader.tick() == 1
    leader.tick(20)
    replica.drop(replica.records[0])
    leader.tick(RECONCILE_EVERY_MS // TICK_MS)
    assert replica.in_step()
