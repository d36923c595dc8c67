"""What a node's clients missed when a snapshot took the place of entries: the same as those entries would have told."""

from random import Random

import pytest

from mayfly.cluster.group.state_machine import UNKNOWN, Missed
from mayfly.cluster.versions import LEVEL_QUEUE_MOVES
from mayfly.node.shard import commands
from mayfly.node.shard.commands import KEPT
from mayfly.node.shard.consumers import Holder
from mayfly.node.shard.effects import ConsumerCancelled, ConsumerMoved, Deliver, Missing
from mayfly.node.shard.message import GIVEN_BACK
from mayfly.node.shard.results import Applied, Attached, Detached, GetResult, Published, QueueCounts
from mayfly.node.shard.settings import REJECT_PUBLISH, ShardQueueSettings
from mayfly.node.shard.shard import Shard
from tests.node.shard.driver import LEADER, A, B, Driver, attach, encode_prefetch, encode_settle_up_to, noop, publish
from tests.node.shard.moving_shards import MovingShards


def guarded(*publishes: bytes) -> bytes:
    return commands.encode_guard(len(publishes)) + b"".join(publishes)


def settings(**values: object) -> ShardQueueSettings:
    return ShardQueueSettings(name="q", **values)  # type: ignore[arg-type]


class Away:
    """A shard, and a replica on the node of session A that falls behind it."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.replica = Shard(3, 1)
        self.batches: list[bytes] = []
        """Of A, since the replica fell behind."""
        self.answers: list[object] = []
        self.effects: list[object] = []
        """What they would have told."""

    def falls_behind(self) -> None:
        for entry in self.driver.log.values():
            entry.apply(self.replica)
        self.driver.effects.clear()
        self.batches, self.answers = [], []

    def run(self, *encoded: bytes, session: tuple[int, int] | None = A) -> list[object]:
        results = self.driver.run(*encoded, session=session)
        if session == A:
            self.batches.append(b"".join(encoded))
            self.answers.append(results)
        return results

    def missed(self) -> Missed:
        self.effects = [effect for effect in self.driver.effects if effect.session == A]  # type: ignore[attr-defined]
        told = self.replica.told()
        self.replica.restore(self.driver.shard.snapshot())
        missed = self.replica.missed(told, A, self.batches)
        assert self.replica.snapshot() == self.driver.shard.snapshot(), "it changes nothing"
        return missed

    def given(self, effects: object) -> dict[int, list[tuple[int, str]]]:
        """What consumers are given, by consumer: delivery ids and bodies."""
        given: dict[int, list[tuple[int, str]]] = {}
        for effect in effects:  # type: ignore[attr-defined]
            if isinstance(effect, Deliver):
                bodies = [self.driver.body(message) for message in effect.messages]
                given.setdefault(effect.consumer_id, []).extend(enumerate(bodies, effect.first_delivery_id))
        return given


def test_only_what_was_not_told_is_delivered() -> None:
    away = Away()
    away.driver.create(1)
    away.driver.run(attach(1, 5, prefetch=3), publish("told"), publish("settled"))
    away.falls_behind()
    away.run(commands.encode_settle(1, 5, commands.ACK, [2]))
    away.run(publish("one"), publish("two"), publish("no room"), session=B)
    missed = away.missed()
    assert away.given(missed.effects_before) == {5: [(3, "one"), (4, "two")]}
    assert not missed.effects and missed.answers == [[]]
    again = away.replica.missed(away.replica.told(), A, [])
    assert not again.effects_before and not again.effects


def test_a_new_consumer_is_told_of_before_its_messages() -> None:
    away = Away()
    away.driver.create(1)
    away.falls_behind()
    away.run(attach(1, 5), publish("one"))
    missed = away.missed()
    assert isinstance(missed.answers[0][0], Attached) and not missed.effects_before
    assert away.given(missed.effects) == {5: [(1, "one")]}


def test_who_takes_without_acknowledging_knows_that_something_is_missing() -> None:
    away = Away()
    away.driver.create(1)
    away.driver.create(2)
    away.driver.run(attach(1, 5, no_ack=True), attach(2, 6, no_ack=True), publish("told", 1), publish("told", 2))
    away.falls_behind()
    away.run(publish("missed", 1), session=B)
    missed = away.missed()
    (missing,) = missed.effects
    assert isinstance(missing, Missing) and (missing.consumer_id, missing.queue_id) == (5, 1)
    assert not missed.effects_before


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_consumer_whose_queue_is_gone_is_cancelled(cancelled: bool) -> None:
    """If its client has cancelled it, the answer to that comes first, and then nobody listens."""
    away = Away()
    away.driver.create(1)
    away.driver.run(attach(1, 5))
    away.falls_behind()
    if cancelled:
        away.run(commands.encode_detach(1, 5, KEPT))
    away.run(commands.encode_delete_queue(1, False, False), session=B)
    missed = away.missed()
    (gone,) = missed.effects
    assert isinstance(gone, ConsumerCancelled) and gone.consumer_id == 5
    assert not missed.effects_before


@pytest.mark.parametrize("returned", [False, True])
@pytest.mark.parametrize("attached", [False, True])
def test_a_consumer_follows_its_queue(returned: bool, attached: bool) -> None:
    """It may be where it was: then that is where it is to be attached again."""
    shards = MovingShards()
    shards.create(1, 1)
    node = shards.shards[1]
    shards.run(1, attach(1, 5, prefetch=7, priority=2) if not attached else noop())
    replica = node.new_shard()
    for entry in node.log.values():
        entry.apply(replica)
    batches = []
    if attached:
        batches.append(attach(1, 5, prefetch=7, priority=2))
        shards.run(1, *batches)
    shards.publish(1, 1, "held")
    for target in (2, 1) if returned else (2,):
        shards.ask_to_move(1, target)
        shards.finish_moves()
    told = replica.told()
    replica.restore(node.shard.snapshot())
    missed = replica.missed(told, A, batches)
    *deliveries, moved = [*missed.effects_before, *missed.effects]
    assert isinstance(moved, ConsumerMoved)
    assert (moved.consumer_id, moved.shard, moved.prefetch, moved.priority) == (5, 1 if returned else 2, 7, 2)
    assert [len(each.messages) for each in deliveries if isinstance(each, Deliver)] == [1]
    again = replica.missed(replica.told(), A, [])
    assert not again.effects_before and not again.effects, "it was told so"


def test_who_may_have_been_refused_hears_nothing_else() -> None:
    away = Away()
    away.driver.create(1, max_length=2, overflow=REJECT_PUBLISH)
    away.driver.create(2)
    away.falls_behind()
    away.run(guarded(publish("a", 1), publish("b", 1, 2)))
    away.run(guarded(publish("x", 7)))
    first = away.missed()
    assert [type(answer) for answer, *_ in first.answers] == [Published, type(UNKNOWN)]
    away.batches.clear()
    away.run(guarded(publish("d", 2), publish("c", 2, 1)))
    away.run(guarded(publish("d", 2)))
    away.run(commands.encode_transaction(1, [publish("e", 1)]))
    away.run(commands.encode_transaction(1, [publish("e", 2)]))
    assert away.answers[2][0].refused == [1]  # type: ignore[index]
    second = away.missed()
    assert [type(answer) for answer, *_ in second.answers] == [type(UNKNOWN), Published, type(UNKNOWN), Applied]


def test_who_has_published_to_a_queue_that_came_or_went_meanwhile_hears_nothing_else() -> None:
    """Whether it came before the queue nobody knows, but where the session has made it."""
    away = Away()
    away.driver.create(1)
    away.driver.create(2)
    away.falls_behind()
    away.run(guarded(publish("a", 3)), commands.encode_transaction(1, [publish("b", 3)]))
    away.run(commands.encode_create_queue(3, settings()), session=B)
    away.run(guarded(publish("c", 3)), guarded(publish("d", 2)), guarded(publish("e", 1)))
    away.run(commands.encode_delete_queue(2, False, False), session=B)
    away.run(
        guarded(publish("f", 4)), commands.encode_create_queue(4, settings()), guarded(publish("g", 4)),
        commands.encode_transaction(1, [publish("h", 4)]),
    )  # fmt: skip
    missed = away.missed()
    assert [[type(answer) for answer in answers] for answers in missed.answers] == [
        [type(UNKNOWN), type(UNKNOWN)],
        [type(UNKNOWN), type(UNKNOWN), Published],
        [type(UNKNOWN), QueueCounts, Published, Applied],
    ]


def test_the_commands_of_a_session_end_where_the_next_begins() -> None:
    each = [
        publish("body"), publish("", 1, 2, 3, ttl_ms=5), commands.encode_settle(1, 2, commands.ACK, [1, 2, 3]),
        commands.encode_settle(1, 2, commands.ACK, [1, 5, 9]), encode_settle_up_to(1, 2, commands.ACK, 3),
        commands.encode_get(1, 2, True), attach(1, 2), attach(1, 2, window_bytes=1000),
        commands.encode_detach(1, 2, KEPT), commands.encode_create_queue(1, settings(max_length=3)),
        commands.encode_touch_queue(1), commands.encode_purge(1), commands.encode_delete_queue(1, True, False),
        commands.encode_flow(1, 2, True), noop(), commands.encode_guard(3),
        commands.encode_transaction(1, [publish("x"), commands.encode_settle(1, 2, commands.ACK, [1])]),
        encode_prefetch(1, 2, 3), commands.encode_taken(1, 2, 3), commands.encode_cross(1, 2),
    ]  # fmt: skip
    kinds = {command[0] for command in each}
    assert kinds == set(range(1, commands.CROSS + 1)), "all of a session are there"
    data = b"".join(each)
    ends, position = [], 0
    while position < len(data):
        position = commands.end_of(data, position)
        ends.append(position)
    assert ends == [sum(map(len, each[: place + 1])) for place in range(len(each))]


class Chaos:
    """Random commands of two sessions. What A settles or ends after its node fell behind is what it had been told."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.away = Away()
        self.next_id = 100
        self.known: list[tuple[int, int]] = []
        """Consumers and holders of A that it knows of: queue, id."""
        self.new: list[tuple[int, int]] = []
        self.of_b: list[tuple[int, int]] = []
        self.bodies = 0
        self.told: dict[int, int] = {}
        """How much each of A's holders was told of."""
        self.is_behind = False
        self.away.driver.lead(commands.encode_raise_level(LEVEL_QUEUE_MOVES))
        for queue in (1, 2, 3, 4):
            self.away.run(self.create(queue))

    def create(self, queue: int) -> bytes:
        values: list[dict[str, object]] = [
            {}, {"message_ttl_ms": 40}, {"max_length": 3, "overflow": REJECT_PUBLISH}, {"max_length": 4},
        ]  # fmt: skip
        return commands.encode_create_queue(queue, settings(**values[queue - 1]))

    def falls_behind(self) -> None:
        self.away.falls_behind()
        self.is_behind = True
        self.known += self.new
        self.new.clear()
        state = self.away.replica._state
        self.told = {holder.holder_id: holder.last_delivery_id for holder in state.sessions.get(A, {}).values()}

    def publishes(self) -> list[bytes]:
        found = []
        for _ in range(self.random.randint(1, 3)):
            self.bodies += 1
            queues = self.random.sample((1, 2, 3, 4), self.random.choice((1, 1, 2)))
            found.append(publish(f"{self.bodies}", *queues))
        return found

    def settle(self, queue: int, holder: int, last: int) -> bytes:
        ids = sorted(self.random.sample(range(1, last + 1), self.random.randint(1, last)))
        outcome = self.random.choice((commands.ACK, commands.REQUEUE, commands.REJECT, commands.GIVE_BACK))
        return commands.encode_settle(queue, holder, outcome, ids)

    def command_of_a(self) -> bytes:
        queue = self.random.randint(1, 4)
        kind = self.random.randrange(14)
        if kind == 0:
            self.next_id += 1
            self.new.append((queue, self.next_id))
            return attach(queue, self.next_id, self.random.choice((0, 2, 5)), self.random.random() < 0.4)
        if kind == 1:
            self.next_id += 1
            return commands.encode_get(queue, self.next_id, self.random.random() < 0.3)
        if kind in (2, 3, 4) and self.known:
            queue, holder = self.random.choice(self.known)
            last = self.told.get(holder, 0) if self.is_behind else 3
            if last:
                return self.settle(queue, holder, last)
        if kind == 5 and self.known:
            queue, holder = self.known.pop(self.random.randrange(len(self.known)))
            return commands.encode_detach(queue, holder, self.random.choice((KEPT, GIVEN_BACK)))
        if kind == 6 and self.known:
            return commands.encode_flow(*self.random.choice(self.known), self.random.random() < 0.6)
        if kind == 7:
            return self.random.choice((commands.encode_touch_queue(queue), commands.encode_cross(queue, 0), noop()))
        if kind == 8:
            return guarded(*self.publishes())
        if kind == 9:
            publishes = self.publishes()
            return commands.encode_transaction(len(publishes), publishes)
        return b"".join(self.publishes())

    def command_of_b(self) -> bytes:
        queue = self.random.randint(1, 4)
        kind = self.random.randrange(12)
        if kind == 0:
            self.next_id += 1
            self.of_b.append((queue, self.next_id))
            return attach(queue, self.next_id, 2)
        if kind in (1, 2, 3) and self.of_b:
            return self.settle(*self.random.choice(self.of_b), 3)
        if kind == 4:
            return commands.encode_purge(queue)
        if kind == 5 and self.random.random() < 0.2:
            return commands.encode_delete_queue(queue, False, False)
        if kind == 6 and self.of_b:
            return commands.encode_detach(*self.of_b.pop(), GIVEN_BACK)
        return b"".join(self.publishes())

    def step(self) -> None:
        self.away.driver.pass_ms(self.random.randrange(10))
        whose = self.random.randrange(8)
        count = self.random.randint(1, 3)
        if whose == 0:
            self.away.run(commands.encode_expire_due(), session=LEADER)
        elif whose < 4:
            self.away.run(*[self.command_of_b() for _ in range(count)], session=B)
        else:
            self.away.run(*[self.command_of_a() for _ in range(count)])

    def check(self) -> dict[str, int]:
        away = self.away
        missed = away.missed()
        shard = away.driver.shard
        holders = {holder.holder_id: holder for holder in shard._state.sessions.get(A, {}).values()}
        told = away.given([*missed.effects_before, *missed.effects])
        reference = away.given(away.effects)
        others = [effect for effect in missed.effects if not isinstance(effect, Deliver)]
        missing = {effect.consumer_id for effect in others if isinstance(effect, Missing)}
        cancelled = {effect.consumer_id for effect in others if isinstance(effect, ConsumerCancelled)}
        assert not [effect for effect in missed.effects_before if not isinstance(effect, Deliver)]
        assert set(told) <= set(holders) and missing <= set(holders)
        for id, holder in holders.items():
            if holder.is_consumer:
                assert told.get(id, []) == ([] if holder.no_ack else reference.get(id, []))
                assert (id in missing) == (holder.no_ack and id in reference)
        gone = {effect.consumer_id for effect in away.effects if isinstance(effect, ConsumerCancelled)}
        assert cancelled >= gone & self.told.keys(), "who was attached before is cancelled with its queue"
        known = 0
        for ours, theirs in zip(missed.answers, away.answers, strict=True):
            for our, their in zip(ours, theirs, strict=True):  # type: ignore[call-overload]
                known += our is not UNKNOWN
                self.check_answer(our, their, holders)
        return {
            "told": len(told), "missing": len(missing), "cancelled": len(cancelled), "known": known,
            "unknown": sum(our is UNKNOWN for ours in missed.answers for our in ours),
        }  # fmt: skip

    def check_answer(self, our: object, their: object, holders: dict[int, Holder]) -> None:
        if our is UNKNOWN:
            if isinstance(their, GetResult) and their.message is not None:
                got = [held for holder in holders.values() if not holder.is_consumer for held in holder.held.values()]
                places = [(message.index, message.offset) for message in got]
                assert not their.delivery_id or (their.message.index, their.message.offset) not in places
            assert not isinstance(their, Detached)
            return
        if isinstance(our, QueueCounts):
            return
        assert type(our) is type(their)
        if isinstance(our, Published) and isinstance(their, Published):
            assert our.refused == their.refused == our.nowhere == their.nowhere == []
        if isinstance(our, Applied) and isinstance(their, Applied):
            assert our.nowhere == their.nowhere == []
        if isinstance(our, GetResult) and isinstance(their, GetResult):
            assert our.message is not None and their.message is not None
            assert self.away.driver.body(our.message) == self.away.driver.body(their.message)
            assert our.delivery_id == their.delivery_id


def test_it_is_what_the_entries_would_have_told() -> None:
    seen: dict[str, int] = {}
    for seed in range(400):
        chaos = Chaos(seed)
        for _ in range(chaos.random.randint(5, 40)):
            chaos.step()
        chaos.falls_behind()
        for _ in range(chaos.random.randint(1, 25)):
            chaos.step()
        for what, count in chaos.check().items():
            seen[what] = seen.get(what, 0) + count
    assert all(count > 10 for count in seen.values()), seen
