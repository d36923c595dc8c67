"""A queue with a brake whose consumer fails all the time (RULES R5), with a judge of its own.

The judge sees each replica after all that its node does, and counts failures itself: when the queue has to be on brake,
and when it must not be. What a queue has delivered may not change while it is on brake.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pamqp import commands

from mayfly.node.duties.contents import content_of as content_of_entry
from simulation.cluster.events import MILLISECOND_US
from simulation.node.actor import Actor
from simulation.node.amqp_client import ReceivedMessage
from simulation.node.history import Delivery
from simulation.node.world import World, content_of, id_of
from simulation.simulator import Violation

if TYPE_CHECKING:
    from simulation.node.nodes import SimulatedNode

FAILING: Final = "braked"
DEAD: Final = "braked.dead"
MESSAGES: Final = 150
PER_SECOND: Final = 4
WINDOW_MS: Final = 1_000
LIMIT: Final = 4
_PREFETCH: Final = 2
_COUNTED_MS: Final = WINDOW_MS * 19 // 20
"""What failed within this counts in any case; of what is older up to the window, a part may not."""
_OF_QUEUE: Final[dict[str, Any]] = {
    "x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD, "x-dead-letter-brake-rate": PER_SECOND,
    "x-dead-letter-brake-window": WINDOW_MS,
}  # fmt: skip


class FailingConsumer(Actor):
    """Publishes messages, each again under another number until it is confirmed, and rejects all that it is given; at
    last it acknowledges what is left."""

    def __init__(self, world: World, name: str, until_us: Callable[[], int]) -> None:
        super().__init__(world, name)
        self.left = MESSAGES
        self.confirmed: list[int] = []
        self.acknowledged: dict[int, None] = {}
        self._until_us = until_us
        self._under_way: dict[int, int] = {}

    def begin(self) -> None:
        dead = commands.Queue.Declare(0, DEAD, durable=True)
        failing = commands.Queue.Declare(0, FAILING, durable=True, arguments=_OF_QUEUE)
        self.call(dead, lambda _: self.call(failing, lambda _: self._work()))

    def _work(self) -> None:
        self.call(commands.Basic.Qos(0, _PREFETCH), lambda _: None)
        self.call(commands.Basic.Consume(0, FAILING, self.name), lambda _: None)
        self._publish()

    def ended(self) -> None:
        self._under_way.clear()

    @property
    def queues_of_tags(self) -> dict[str, str]:
        return {self.name: FAILING}

    def on_confirm(self, tag: int, acknowledged: bool) -> None:
        number = self._under_way.pop(tag, None)
        if number is not None and acknowledged:
            self.left -= 1
            self.confirmed.append(number)
        if self.left > 0 and not self._under_way:
            self.later(20 * MILLISECOND_US, self._publish)

    def _publish(self) -> None:
        for _ in range(min(10, self.left)):
            if self.client is None:
                return
            self.world.next_message += 1
            number = self.world.next_message
            properties = commands.Basic.Properties(delivery_mode=2, message_id=str(number))
            tag = self.client.publish("", FAILING, content_of(number, self.random.choice((0, 30, 400))), properties)
            self._under_way[tag] = number
        self.give_up_unless(lambda: not self._under_way)

    def take(self, queue: str, holder: str, message: ReceivedMessage) -> Delivery:
        """It is none of the history's: it has a judge of its own."""
        tag = message.delivery_tag
        self.later(10 * MILLISECOND_US, lambda: self._settle(tag, id_of(message.body)))
        return Delivery(self.world.queue.now_us, queue, -1, holder, message.redelivered)

    def _settle(self, tag: int, number: int) -> None:
        if self.client is None:
            return
        if self.world.queue.now_us < self._until_us():
            self.client.settle(commands.Basic.Reject(tag, False))
        else:
            self.acknowledged.setdefault(number)
            self.client.settle(commands.Basic.Ack(tag))


class _Seen(NamedTuple):
    """The queue as a replica has it behind a log entry: the shard's time, failures and deliveries since it was
    declared, and since when it is on brake (-1: it is not)."""

    time_ms: int
    failed: int
    delivered: int
    since_ms: int


class BrakeJudge:
    """Watches the queue on all replicas."""

    def __init__(self, world: World, programs: Callable[[], list[SimulatedNode]]) -> None:
        self._programs = programs
        self._until_us = 1 << 60
        self._client = FailingConsumer(world, "failing", lambda: self._until_us)
        self._seen: dict[int, _Seen] = {}
        """By log entry."""
        self._differ: list[str] = []

    def start(self, until_us: int) -> None:
        """The client begins; it fails until then."""
        self._until_us = until_us
        self._client.start()

    def finish(self) -> None:
        """No more messages."""
        self._client.finish()

    @property
    def times(self) -> int:
        """How often the queue was on brake."""
        return len({seen.since_ms for seen in self._seen.values()} - {-1})

    def look(self, program: SimulatedNode) -> None:
        """After something has happened at a node."""
        record = program.engine.catalog.queue("/", FAILING)
        group = None if record is None else program.engine.host.groups.get(record.shard)
        if record is None or group is None:
            return
        shard = program.engine.shards[record.shard]
        queue = shard.queue(record.id)
        if queue is None or queue.brake is None or shard.index != group.applied:
            return
        seen = _Seen(
            shard.time_ms, queue.dead_lettered, queue.delivered, queue.brake.since_ms if queue.is_braked else -1
        )
        before = self._seen.setdefault(group.applied, seen)
        if before != seen:
            node = program.machine.id
            self._differ.append(f"behind entry {group.applied} there is {before}, and at node {node} {seen}")

    def is_settled(self) -> bool:
        """Whether nothing is left in the queue, and all that died has arrived."""
        found = self._contents()
        return self._client.left <= 0 and found is not None and not found[0] and not any(
            shard.has_lanes or shard.unrouted(1)
            for program in self._programs()
            for shard in program.engine.shards.values()
        )

    def _contents(self) -> tuple[int, list[int]] | None:
        """How many messages are in the queue, and which have died; None if that is not known now."""
        best: tuple[int, int, list[int]] | None = None
        for program in self._programs():
            catalog, engine = program.engine.catalog, program.engine
            records = [catalog.queue("/", name) for name in (FAILING, DEAD)]
            groups = [None if record is None else engine.host.groups.get(record.shard) for record in records]
            if records[0] is None or records[1] is None or groups[0] is None or groups[1] is None:
                continue
            failing = engine.shards[records[0].shard].queue(records[0].id)
            dead = engine.shards[records[1].shard].queue(records[1].id)
            applied = groups[0].applied + groups[1].applied
            if failing is None or dead is None or (best is not None and applied <= best[0]):
                continue
            log = groups[1].log
            numbers = [
                id_of(content_of_entry(log.data(message.index), message).body)
                for line in dead.lines()
                for message in line.live()
            ]
            best = (applied, failing.ready_count() + failing.held_count, numbers)
        return None if best is None else best[1:]

    # ------------------------------------------------------------------ the verdict

    def judge(self) -> list[Violation]:
        """On brake exactly when too much has failed, nothing delivered meanwhile, and nothing lost or doubled."""
        faults = self._differ[:1] + self._faults_of_the_brake()
        found = self._contents()
        if found is None or found[0] or self._client.left > 0:
            faults.append(f"it could not be drained in time: {found}")
        else:
            dead, acknowledged = found[1], self._client.acknowledged
            if len(set(dead)) != len(dead) or set(dead) & acknowledged.keys():
                faults.append(f"some came twice: {sorted(dead)} have died, {sorted(acknowledged)} are acknowledged")
            lost = set(self._client.confirmed) - set(dead) - acknowledged.keys()
            if lost:
                faults.append(f"{sorted(lost)} are lost")
        return [Violation("R5", text) for text in faults]

    def _faults_of_the_brake(self) -> list[str]:
        seen = [self._seen[applied] for applied in sorted(self._seen)]
        times_ms = [each.time_ms for each in seen]
        for before, now in pairwise(seen):
            if now.since_ms >= 0 and now.since_ms == before.since_ms and now.delivered != before.delivered:
                return [f"{now.delivered - before.delivered} messages were delivered on brake: {before}, {now}"]
            if now.since_ms >= 0 and now.since_ms != before.since_ms:
                place = bisect_right(times_ms, now.since_ms - WINDOW_MS)
                failed = now.failed - (seen[place - 1].failed if place else 0)
                if failed <= LIMIT:
                    return [f"it was put on brake for {failed} failures in {WINDOW_MS} ms: {now}"]
            if now.since_ms < 0:
                first = seen[bisect_left(times_ms, now.time_ms - _COUNTED_MS)]
                if now.failed - first.failed > LIMIT:
                    return [f"it is not on brake for {now.failed - first.failed} failures in {_COUNTED_MS} ms: {now}"]
        return [f"it is still on brake: {seen[-1]}"] if seen and seen[-1].since_ms >= 0 else []
