"""What is known here of queues in shards of which this node has no replica (RULES D6, J4)."""

from mayfly.node.duties.distant_targets import ASK_AGAIN_MS, FORGET_MS, DistantTargets
from mayfly.node.engine.engine import Engine
from mayfly.node.numbers import CATALOG_GROUP, stream_source
from mayfly.node.shard.commands import encode_create_queue
from mayfly.node.shard.settings import ShardQueueSettings
from tests.node.broker.three_brokers import ThreeBrokers

MANY = 12_000
SOURCE = stream_source(5)


class Distant:
    """A node, and a queue in a shard that is not here, with an established leader elsewhere."""

    def __init__(self) -> None:
        self.brokers = ThreeBrokers(shards=10, nodes=5)
        self.brokers.nodes[1].client()
        self.engine: Engine = self.brokers.nodes[1].engine
        self.brokers.run_until(lambda: self.shard() > 0)
        self.queue = 1 << 40
        created: list[object] = []
        shard = self.engine.shard(self.shard())
        shard.submit(encode_create_queue(self.queue, ShardQueueSettings(name="q")), created.append)
        self.brokers.run_until(lambda: created)

    def shard(self) -> int:
        """The first that is elsewhere."""
        groups = range(CATALOG_GROUP + 1, 11)
        return next(
            (each for each in groups if each not in self.engine.shards and self.engine.host.leader_of(each)), 0
        )

    @property
    def targets(self) -> DistantTargets:
        return self.engine.distant

    def look(self, count: int) -> None:
        """What a duty with so many sources for the queue asks in one look."""
        for number in range(count):
            self.targets.received_up_to(self.shard(), self.queue, SOURCE + number)
            self.targets.room(self.shard(), self.queue, SOURCE + number, 0, self.brokers.now_ms)

    def known(self, count: int) -> int:
        """Of how many of them it is known that there is room."""
        rooms = [self.targets.room(self.shard(), self.queue, SOURCE + number, 0, 0) for number in range(count)]
        return sum([room.messages > 0 for room in rooms])

    def pass_ms(self, ms: int) -> None:
        until_ms = self.brokers.now_ms + ms
        while self.brokers.now_ms < until_ms:
            self.brokers.step()


def test_d6_j4_however_many_there_are_each_is_known_once_it_was_told() -> None:
    """With a bound on what is remembered, of one too many none was told in time: all of them stood still."""
    distant = Distant()
    for _ in range(3):
        distant.look(MANY)
        distant.pass_ms(2 * ASK_AGAIN_MS)
    assert distant.known(MANY) == MANY


def test_d6_j4_what_nobody_wants_to_know_any_more_is_forgotten() -> None:
    distant = Distant()
    distant.look(20)
    for _ in range(4):
        distant.pass_ms(FORGET_MS // 2)
        distant.look(5)
        distant.targets.room(distant.shard(), distant.queue, SOURCE + distant.brokers.now_ms, 0, distant.brokers.now_ms)
    assert 5 < len(distant.targets._targets) <= 5 + 4
    assert distant.known(5) == 5


def test_d7_what_may_have_come_is_asked_for_at_once() -> None:
    distant = Distant()
    distant.look(1)
    distant.pass_ms(2 * ASK_AGAIN_MS)
    target = distant.targets._targets[(distant.shard(), distant.queue, SOURCE)]
    distant.look(1)
    distant.pass_ms(ASK_AGAIN_MS // 2)
    asked_ms = target.asked_ms
    distant.look(1)
    assert target.asked_ms == asked_ms, "it was asked a moment ago"
    distant.engine.ask_again(distant.shard(), distant.queue, SOURCE)
    assert target.asked_ms > asked_ms
