"""What each command of a shard costs, in whatever state the shard is: no more where there is four times as much.

Every command meets every *burden*, a great number of something, at a size and at four times that. A command may cost
more there only if it is in `GROWS`, with the reason. The bounds of an entry (RULES C4) are lowered to a few, so that
what is bounded counts as constant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, Final

import pytest

from mayfly.cluster.versions import LEVEL_FAILED_DELIVERIES, LEVEL_HIGHEST
from mayfly.node.numbers import STREAM_SOURCE
from tests.cost.growth import SMALL, TIMES, is_bounded, is_linear
from tests.cost.metered import MeteredCopy, source
from tests.node.shard.driver import encode_settle_up_to

BOUND: Final = 3
"""What an entry may do of anything: messages that expire, are delivered, released, packed together, and come back."""

A: Final = (1, 7)
B: Final = (2, 9)
BIG: Final = 1
"""The queue that has much."""
BESIDE: Final = 2
"""Another one, with a consumer and a message or two."""
STREAM: Final = 3
"""A stream, where there is one."""
SAME: Final = "same"
"""The id under which many messages wait."""
FIRST_OF_MANY: Final = 1_000
MINE: Final = 900_000
"""A consumer of the big queue that the command is about."""


class Modules:
    """The metered copy."""

    def __init__(self) -> None:
        self.copy = MeteredCopy("mayfly.node.shard")
        self.commands = self.copy.module("mayfly.node.shard.commands")
        self.settings = self.copy.module("mayfly.node.shard.settings")
        self.message_id = self.copy.module("mayfly.node.shard.message_id")
        self.message = self.copy.module("mayfly.node.shard.message")
        self.recurring = self.copy.module("mayfly.node.shard.recurring")
        self.noted = self.copy.module("mayfly.node.shard.noted_commands")
        self.redrives = self.copy.module("mayfly.node.shard.redrive_commands")
        self.redrive = self.copy.module("mayfly.node.shard.redrive")
        self.shard = self.copy.module("mayfly.node.shard.shard")
        self.copy.module("mayfly.node.shard.queues").RELEASED_PER_ENTRY = BOUND
        self.copy.module("mayfly.node.shard.state").CHANGED_PER_ENTRY = BOUND


@cache
def modules() -> Modules:
    return Modules()


class World:
    """A shard, fed with entries."""

    def __init__(self, restored: tuple[bytes, int, int] | None = None, level: int = LEVEL_HIGHEST) -> None:
        """``restored``: from a snapshot, at an index and a time. ``level``: the one that it is told, 0 for none."""
        self.modules = modules()
        self.c = self.modules.commands
        self.shard = self.modules.shard.Shard(3, 1, BOUND, BOUND, BOUND, False, BOUND)
        self.index = 0
        self.time_ms = 1_000_000
        if restored is not None:
            data, self.index, self.time_ms = restored
            self.shard.restore(data)
            return
        if level:
            self.lead(self.c.encode_raise_level(level))
        self.create(BIG)
        self.create(BESIDE)
        self.attach(BESIDE, 1, prefetch=4)

    def entry(self, *commands: bytes, session: Any = A, leader: bool = False) -> list[Any]:
        """Apply one entry of a session, or of the leader."""
        self.index += 1
        self.begin(b"".join(commands))
        answers = self.shard.apply(None if leader else session, 0, sum(map(len, commands)))
        self.shard.finish()
        self.shard.take_effects()
        self.shard.take_released()
        return list(answers)

    def begin(self, data: bytes) -> None:
        self.shard.begin(self.index, self.time_ms, self.time_ms, data)

    def close(self, session: Any) -> None:
        """An entry in which a session ends."""
        self.index += 1
        self.begin(b"")
        self.shard.session_closed(session)
        self.shard.finish()

    def lead(self, *commands: bytes) -> None:
        self.entry(*commands, leader=True)

    def create(self, queue: int, **settings: Any) -> None:
        self.entry(self.c.encode_create_queue(queue, self.modules.settings.ShardQueueSettings(**settings)))

    def update(self, queues: list[int], **settings: Any) -> bytes:
        terms = self.modules.settings.encode_terms(self.modules.settings.ShardQueueSettings(**settings))
        return bytes(self.c.encode_update_queues(terms, queues))

    def publish(self, *queues: int, count: int = 1, ttl_ms: int = -1) -> bytes:
        parts: list[bytes] = []
        for _ in range(count):
            self.c.encode_publish(parts, queues, ttl_ms, b"\0\1k", b"h", b"body")
        return b"".join(parts)

    def publish_later(self, queue: int, after_ms: int, message_id: str = "") -> bytes:
        parts: list[bytes] = []
        header = b"h"
        if message_id:
            header = b"\0\x3c" + bytes(10) + b"\0\x80" + bytes((len(message_id),)) + message_id.encode()
        self.c.encode_publish_later(parts, (queue,), -1, b"\0\1k", header, b"body", (self.c.AFTER, after_ms))
        return b"".join(parts)

    def publish_recurring(self, queue: int, message_id: str, every_s: int) -> bytes:
        """Under an id as short as this."""
        parts: list[bytes] = []
        header = b"\0\x3c" + bytes(10) + b"\0\x80" + bytes((len(message_id),)) + message_id.encode()
        self.c.encode_publish_later(parts, (queue,), -1, b"\0\1k", header, b"body", (self.c.RECURRING, every_s))
        return b"".join(parts)

    def publish_kept(self, count: int, ttl_ms: int) -> bytes:
        """To the stream, each with a TTL of its own and one of a few keys."""
        parts: list[bytes] = []
        for number in range(count):
            key = b"\0\1%d" % (number % 8)
            self.c.encode_publish_kept(parts, (STREAM,), -1, key, b"h", b"body", None, ttl_ms + 7919 * number % 10_007)
        return b"".join(parts)

    def ensure_stream(self) -> None:
        """There is one, with keys and markers."""
        if self.shard.queue(STREAM) is None:
            self.create(STREAM, is_stream=True, marker_ttl_ms=100_000, key_index=True)

    def cancel(self, message_id: str) -> bytes:
        return self.change(message_id, (self.c.CANCEL, 0))

    def change(self, message_id: str, due: tuple[int, int]) -> bytes:
        digest = self.modules.message_id.digest_of(message_id.encode())
        change = self.c.encode_change_scheduled([BIG], digest, due)
        return bytes(self.c.encode_guard(1) + change)

    def fill(self, queue: int, count: int, ttl_ms: int = -1) -> None:
        self.entry(self.publish(queue, count=count, ttl_ms=ttl_ms))

    def attach(self, queue: int, consumer: int, prefetch: int = 0, priority: int = 0, session: Any = A) -> None:
        self.entry(self.c.encode_attach(queue, consumer, prefetch, False, False, priority), session=session)

    def settle_down(self) -> None:
        """Entries until the bounds have cut nothing short."""
        for _ in range(10_000):
            if not self.shard.due_messages(self.time_ms):
                return
            self.lead(self.c.encode_expire_due())
        raise AssertionError("there is always more to do")

    def die(self, count: int) -> None:
        """So many messages die, for a dead-letter queue."""
        self.lead(self.update([BIG], dead_letter_exchange="x"))
        self.fill(BIG, count, ttl_ms=0)
        self.time_ms += 1
        self.settle_down()
        assert len(self.shard.unrouted(count + 1)) == count

    def route(self, outcome: int, *remote: tuple[int, int], local: tuple[int, ...] = ()) -> bytes:
        """A decision for the death that is next."""
        content = self.c.LetterContent(b"\0\1k", b"h", b"body") if outcome == self.c.ROUTED else None
        sequence = self.shard.unrouted(1)[0].sequence
        return bytes(self.c.encode_route([self.c.RouteDecision(sequence, outcome, local, remote, content)]))


# -- burdens ----------------------------------------------------------------------------------------------

Burden = Callable[[World, int], None]


def nothing(world: World, n: int) -> None:
    """No burden at all."""


def queues(world: World, n: int) -> None:
    for queue in range(FIRST_OF_MANY, FIRST_OF_MANY + n):
        world.create(queue)


def leases(world: World, n: int) -> None:
    """Queues that will expire, half of them at once."""
    for place in range(n):
        world.create(FIRST_OF_MANY + place, expires_ms=1_000_000 if place % 2 else 5)
    world.time_ms += 5


def deadlines(world: World, n: int) -> None:
    """Queues with a message that will expire."""
    for queue in range(FIRST_OF_MANY, FIRST_OF_MANY + n):
        world.create(queue)
        world.fill(queue, 1, ttl_ms=1_000_000 + queue % 7)


def scheduled(world: World, n: int) -> None:
    """Messages that wait under ids."""
    world.lead(world.update([BIG], allow_schedule=True))
    world.entry(*[world.publish_later(BIG, 1_000_000 + place * 7919 % 1_000, str(place)) for place in range(n)])


def equal_ids(world: World, n: int) -> None:
    """Messages that wait under one id."""
    world.lead(world.update([BIG], allow_schedule=True))
    world.entry(*[world.publish_later(BIG, 1_000_000 + place * 7919 % 1_000, SAME) for place in range(n)])


def delayed(world: World, n: int) -> None:
    """Messages that wait for a delayed exchange."""
    world.lead(world.update([BIG], allow_schedule=True, delays=True, dead_letter_exchange="x"))
    world.entry(*[world.publish_later(BIG, 1_000_000 + place * 7919 % 1_000, str(place)) for place in range(n)])


def due_delayed(world: World, n: int) -> None:
    """More of them are due than an entry sends off, and than was decided."""
    delayed(world, n)
    world.time_ms += 2_000_000
    for _ in range(n // BOUND // 2):
        world.lead(world.c.encode_expire_due())


def scattered_deadlines(world: World, n: int) -> None:
    """Messages that expire wherever they are in their queue, one of each three at other times."""
    world.lead(world.update([BIG], expire_anywhere=True))
    for place in range(n):
        world.fill(BIG, 1, ttl_ms=-1 if place % 3 else 1_000_000 + place * 7919 % 1_000)


def tombstones(world: World, n: int) -> None:
    queues(world, n)
    for queue in range(FIRST_OF_MANY, FIRST_OF_MANY + n):
        world.entry(world.c.encode_delete_queue(queue, False, False))


def waiting_consumers(world: World, n: int) -> None:
    for consumer in range(n):
        world.attach(BIG, 10 + consumer, prefetch=3)


def full_consumers(world: World, n: int) -> None:
    for consumer in range(n):
        world.attach(BIG, 10 + consumer, prefetch=1)
    world.fill(BIG, n)
    world.settle_down()


def priorities(world: World, n: int) -> None:
    """Consumers of as many priorities, the higher half of which can take no more."""
    for consumer in range(n):
        world.attach(BIG, 10 + consumer, prefetch=1, priority=consumer)
    world.fill(BIG, n // 2)
    world.settle_down()


def single_active(world: World, n: int) -> None:
    world.entry(world.c.encode_delete_queue(BIG, False, False))
    world.lead(world.c.encode_forget_deleted([BIG]))
    world.create(BIG, single_active_consumer=True)
    for consumer in range(n):
        world.attach(BIG, 10 + consumer, prefetch=1, priority=consumer % 3)


def sessions(world: World, n: int) -> None:
    for node in range(n):
        world.attach(BIG, 10, session=(10 + node, 1))


def getters(world: World, n: int) -> None:
    world.fill(BIG, n)
    for holder in range(n):
        world.entry(world.c.encode_get(BIG, 10 + holder, False))


def ready(world: World, n: int) -> None:
    world.fill(BIG, n)


def priority_levels(world: World, n: int) -> None:
    """Messages of several priorities. There are at most 255, so it is a constant; a tenth of them here."""
    world.lead(world.update([BIG], max_priority=9))
    world.fill(BIG, n)


def late(world: World, n: int) -> None:
    """Messages that are past their deadlines, more than an entry lets die."""
    world.fill(BIG, n, ttl_ms=1)
    world.time_ms += 1_000


def a_stream(world: World, n: int) -> None:
    """Messages with TTLs of their own, of a few keys."""
    world.ensure_stream()
    for _ in range(n):
        world.entry(world.publish_kept(1, 100_000))


def held(world: World, n: int) -> None:
    world.attach(BIG, 10)
    world.fill(BIG, n)
    world.settle_down()


def returned(world: World, n: int) -> None:
    held(world, n)
    for delivery in range(1, n + 1):
        world.entry(world.c.encode_flow(BIG, 10, False), world.c.encode_settle(BIG, 10, world.c.RETURN, [delivery]))


def returning(world: World, n: int) -> None:
    """Queues into which more has come back than an entry deals with."""
    for queue in range(FIRST_OF_MANY, FIRST_OF_MANY + n):
        world.create(queue)
        world.attach(queue, queue)
        for _ in range(3):
            world.fill(queue, BOUND)
    for queue in range(FIRST_OF_MANY, FIRST_OF_MANY + n):
        world.entry(world.c.encode_detach(queue, queue, True))


def much_returning(world: World, n: int) -> None:
    """As many consumers of one queue give back more than an entry deals with."""
    for consumer in range(n):
        world.attach(BIG, 10 + consumer, prefetch=BOUND)
    world.fill(BIG, BOUND * n)
    world.settle_down()
    world.entry(*(world.c.encode_detach(BIG, 10 + consumer, True) for consumer in range(n)))


def unserved(world: World, n: int) -> None:
    """Queues with more messages than an entry delivers, and consumers that wait for them."""
    for queue in range(FIRST_OF_MANY, FIRST_OF_MANY + n):
        world.create(queue)
        world.fill(queue, 4)
    world.entry(
        *(world.c.encode_attach(queue, queue, 0, False, False, 0) for queue in range(FIRST_OF_MANY, FIRST_OF_MANY + n))
    )


def overfull(world: World, n: int) -> None:
    """Queues with more messages than they may have, and than an entry drops."""
    many = list(range(FIRST_OF_MANY, FIRST_OF_MANY + n))
    for queue in many:
        world.create(queue)
        world.fill(queue, 4)
    world.lead(world.update(many, max_length=1))


def orphans(world: World, n: int) -> None:
    """Queues that are gone and left more than an entry releases."""
    for queue in range(FIRST_OF_MANY, FIRST_OF_MANY + n):
        world.create(queue)
        world.fill(queue, BOUND + 1)
    world.entry(
        *(world.c.encode_delete_queue(queue, False, False) for queue in range(FIRST_OF_MANY, FIRST_OF_MANY + n))
    )


def orphans_that_die(world: World, n: int) -> None:
    """Queues whose lease is over and that left dead letters."""
    many = range(FIRST_OF_MANY, FIRST_OF_MANY + n)
    for queue in many:
        world.create(queue, expires_ms=1_000, expires_dead_letter=True, dead_letter_exchange="x")
        world.fill(queue, 1)
    world.time_ms += 1_000
    world.lead(*(world.c.encode_expire_queue(queue, world.shard.queue(queue).lease.epoch) for queue in many))


def deaths(world: World, n: int) -> None:
    world.die(n)


def parked(world: World, n: int) -> None:
    world.die(n)
    for _ in range(n):
        world.lead(world.route(world.c.PARKED))


def lanes(world: World, n: int) -> None:
    """To as many queues of other shards; most of them are empty again."""
    world.die(n)
    for target in range(n):
        world.lead(world.route(world.c.ROUTED, (5, FIRST_OF_MANY + target)))
        if target % 8:
            world.lead(world.c.encode_settled(FIRST_OF_MANY + target, 1))


def lane(world: World, n: int) -> None:
    world.die(n)
    for _ in range(n):
        world.lead(world.route(world.c.ROUTED, (5, FIRST_OF_MANY)))


def sources(world: World, n: int) -> None:
    for shard in range(n):
        world.lead(*world.c.transfer_parts(100 + shard, BIG, 1, [world.c.LetterContent(b"\0\1k", b"h", b"body")]))


BURDENS: list[Burden] = [
    scheduled, equal_ids, delayed, due_delayed, scattered_deadlines,
    nothing, queues, leases, deadlines, tombstones, waiting_consumers, full_consumers, priorities, single_active,
    sessions, getters, ready, priority_levels, late, held, returned, returning, much_returning, unserved, overfull,
    orphans, orphans_that_die, deaths, parked, lanes, lane, sources, a_stream,
]  # fmt: skip


# -- commands ---------------------------------------------------------------------------------------------

Act = Callable[[World], Callable[[], object]]
"""Makes ready, and answers what is to be measured."""

ACTS: dict[str, Act] = {}
NO_COMMAND: Final = "no command"


def act(kind: str) -> Callable[[Act], Act]:
    def add(function: Act) -> Act:
        ACTS[f"{kind}: {function.__name__}"] = function
        return function

    return add


def by_session(world: World, *commands: bytes) -> Callable[[], object]:
    return lambda: world.entry(*commands)


def by_leader(world: World, *commands: bytes) -> Callable[[], object]:
    return lambda: world.lead(*commands)


def with_consumer(world: World, prefetch: int = 2, priority: int = 0) -> None:
    """One of the big queue, whose turn comes when all others have had theirs."""
    world.attach(BIG, MINE, prefetch, priority)


@act("PUBLISH")
def publish(world: World) -> Callable[[], object]:
    return by_session(world, world.publish(BIG))


@act("PUBLISH")
def publish_to_two(world: World) -> Callable[[], object]:
    return by_session(world, world.publish(BESIDE, BIG, ttl_ms=1_000))


@act("PUBLISH_LATER")
def publish_later(world: World) -> Callable[[], object]:
    world.lead(world.update([BIG], allow_schedule=True))
    return by_session(world, world.publish_later(BIG, 1000))


@act("PUBLISH_LATER")
def publish_that_waits_no_more(world: World) -> Callable[[], object]:
    world.lead(world.update([BIG], allow_schedule=True))
    return by_session(world, world.publish_later(BIG, 0))


@act("PUBLISH_LATER")
def publish_that_recurs_instead_of_another(world: World) -> Callable[[], object]:
    world.lead(world.update([BIG], allow_schedule=True))
    world.entry(world.publish_recurring(BIG, "mine", 1000))
    return by_session(world, world.publish_recurring(BIG, "mine", 2000))


@act("NEXT_TIMES")
def tell_next_times(world: World) -> Callable[[], object]:
    world.lead(world.update([BIG], allow_schedule=True))
    world.entry(world.publish_recurring(BIG, "mine", 0))
    digest = world.modules.recurring.recurring_digest(world.modules.message_id.digest_of(b"mine"))
    return by_leader(world, world.c.encode_next_times([(BIG, digest, world.time_ms, world.time_ms + 60_000)]))


@act("PUBLISH_KEPT")
def publish_kept(world: World) -> Callable[[], object]:
    world.ensure_stream()
    return by_session(world, world.publish_kept(1, 1_000))


@act("DELETE_OFFSET")
def delete_offset(world: World) -> Callable[[], object]:
    world.ensure_stream()
    world.entry(world.publish_kept(1, 1_000))
    stream = world.shard.queue(STREAM).stream
    return by_session(world, world.c.encode_delete_offset(STREAM, stream.next_offset // 2))


@act("PURGE_KEY")
def purge_key(world: World) -> Callable[[], object]:
    world.ensure_stream()
    world.entry(world.publish_kept(1, 1_000))
    return by_session(world, world.c.encode_purge_key(STREAM, b"0", 1 << 40))


@act("CHANGE_SCHEDULED")
def cancel_what_waits(world: World) -> Callable[[], object]:
    world.lead(world.update([BIG], allow_schedule=True))
    world.entry(world.publish_later(BIG, 1_000_000, "mine"))
    return by_session(world, world.cancel("mine"))


@act("CHANGE_SCHEDULED")
def cancel_what_waits_under_one_id(world: World) -> Callable[[], object]:
    world.lead(world.update([BIG], allow_schedule=True))
    world.entry(world.publish_later(BIG, 1_000_000, SAME))
    return by_session(world, world.cancel(SAME))


@act("CHANGE_SCHEDULED")
def reschedule(world: World) -> Callable[[], object]:
    world.lead(world.update([BIG], allow_schedule=True))
    world.entry(world.publish_later(BIG, 1_000_000, "mine"))
    return by_session(world, world.change("mine", (world.c.AFTER, 1_000)))


@act("CHANGE_SCHEDULED")
def reschedule_what_waits_under_one_id(world: World) -> Callable[[], object]:
    world.lead(world.update([BIG], allow_schedule=True))
    world.entry(world.publish_later(BIG, 1_000_000, SAME))
    return by_session(world, world.change(SAME, (world.c.AFTER, 1_000)))


@act("PUBLISH_GUARDED")
def publish_guarded(world: World) -> Callable[[], object]:
    world.lead(world.update([BIG], max_length=1_000_000, overflow="reject-publish"))
    return by_session(world, world.c.encode_guard(1), world.publish(BIG))


@act("PUBLISH_GUARDED")
def publish_to_a_full_queue(world: World) -> Callable[[], object]:
    world.lead(world.update([BIG], max_length=0, overflow="reject-publish"))
    return by_session(world, world.c.encode_guard(1), world.publish(BIG))


@act("TRANSACTION")
def transaction(world: World) -> Callable[[], object]:
    return by_session(world, world.c.encode_transaction(1, [world.publish(BIG)]))


@act("TRANSACTION")
def transaction_for_a_full_queue(world: World) -> Callable[[], object]:
    world.lead(world.update([BIG], max_length=0, overflow="reject-publish"))
    return by_session(world, world.c.encode_transaction(1, [world.publish(BIG)]))


def settling(outcome: str) -> Act:
    def settle(world: World) -> Callable[[], object]:
        with_consumer(world, 1, priority=1_000_000)
        world.fill(BIG, 1)
        return by_session(world, world.c.encode_settle(BIG, MINE, getattr(world.c, outcome), [1]))

    settle.__name__ = f"settle_{outcome.lower()}"
    return settle


for each in ("ACK", "REQUEUE", "REJECT", "RETURN", "UNSENT"):
    act("SETTLE")(settling(each))


@act("SETTLE")
def acknowledge_the_first_of_many(world: World) -> Callable[[], object]:
    return by_session(world, encode_settle_up_to(BIG, 10, world.c.ACK, 1))


@act("SETTLE")
def acknowledge_one_in_the_middle(world: World) -> Callable[[], object]:
    return by_session(world, world.c.encode_settle(BIG, 10, world.c.ACK, [5]))


@act("GET")
def get(world: World) -> Callable[[], object]:
    return by_session(world, world.c.encode_get(BIG, MINE, True))


@act("GET")
def get_and_hold(world: World) -> Callable[[], object]:
    return by_session(world, world.c.encode_get(BIG, MINE, False))


@act("ATTACH")
def attach(world: World) -> Callable[[], object]:
    return by_session(world, world.c.encode_attach(BIG, MINE, 2, False, False, 0))


@act("ATTACH")
def attach_above_all(world: World) -> Callable[[], object]:
    return by_session(world, world.c.encode_attach(BIG, MINE, 2, False, False, 2_000_000, 100))


@act("DETACH")
def detach_the_last(world: World) -> Callable[[], object]:
    with_consumer(world)
    return by_session(world, world.c.encode_detach(BIG, MINE, True))


@act("DETACH")
def detach_the_first(world: World) -> Callable[[], object]:
    return by_session(world, world.c.encode_detach(BIG, 10, False))


@act("DETACH")
def detach_one_in_the_middle(world: World) -> Callable[[], object]:
    return by_session(world, world.c.encode_detach(BIG, 10 + SMALL // 2, False))


@act("DETACH")
def detach_and_return(world: World) -> Callable[[], object]:
    return by_session(world, world.c.encode_detach(BIG, 10, True))


@act("CREATE_QUEUE")
def create(world: World) -> Callable[[], object]:
    settings = world.modules.settings.ShardQueueSettings(expires_ms=1_000)
    return by_session(world, world.c.encode_create_queue(999_999, settings))


@act("TOUCH_QUEUE")
def touch(world: World) -> Callable[[], object]:
    return by_session(world, world.c.encode_touch_queue(BIG))


@act("PURGE")
def purge(world: World) -> Callable[[], object]:
    return by_session(world, world.c.encode_purge(BIG))


@act("DELETE_QUEUE")
def delete(world: World) -> Callable[[], object]:
    return by_session(world, world.c.encode_delete_queue(BIG, False, False))


@act("DELETE_QUEUE")
def delete_another(world: World) -> Callable[[], object]:
    return by_session(world, world.c.encode_delete_queue(BESIDE, False, False))


@act("FLOW")
def pause(world: World) -> Callable[[], object]:
    with_consumer(world)
    return by_session(world, world.c.encode_flow(BIG, MINE, False))


@act("FLOW")
def resume(world: World) -> Callable[[], object]:
    with_consumer(world)
    world.entry(world.c.encode_flow(BIG, MINE, False))
    return by_session(world, world.c.encode_flow(BIG, MINE, True))


@act("NOOP")
def noop(world: World) -> Callable[[], object]:
    return by_session(world, bytes((world.c.NOOP,)))


@act("PREFETCH")
def limit(world: World) -> Callable[[], object]:
    with_consumer(world)
    return by_session(world, world.c.PREFETCH_HEAD.pack(world.c.PREFETCH, 1, BIG, MINE))


@act("TAKEN")
def taken(world: World) -> Callable[[], object]:
    world.entry(world.c.encode_attach(BIG, MINE, 0, False, False, 1_000_000, 1))
    world.fill(BIG, 1)
    return by_session(world, world.c.encode_taken(BIG, MINE, 1_000_000))


@act("EXPIRE_DUE")
def expire_due(world: World) -> Callable[[], object]:
    world.fill(BESIDE, 6)
    world.fill(BESIDE, 2, ttl_ms=1)
    world.time_ms += 2
    return by_leader(world, world.c.encode_expire_due())


@act("EXPIRE_DUE")
def make_ready_what_is_due(world: World) -> Callable[[], object]:
    world.lead(world.update([BIG, BESIDE], allow_schedule=True))
    world.entry(world.publish_later(BIG, 1), world.publish_later(BESIDE, 1))
    world.time_ms += 2
    return by_leader(world, world.c.encode_expire_due())


@act("EXPIRE_DUE")
def expire_anywhere(world: World) -> Callable[[], object]:
    world.lead(world.update([BIG], expire_anywhere=True))
    world.fill(BIG, 3)
    world.fill(BIG, 1, ttl_ms=1)
    world.time_ms += 2
    return by_leader(world, world.c.encode_expire_due())


@act("EXPIRE_DUE")
def send_off_what_a_delayed_exchange_has_due(world: World) -> Callable[[], object]:
    world.create(999_997, allow_schedule=True, delays=True, dead_letter_exchange="x")
    world.entry(*[world.publish_later(999_997, 1) for _ in range(6)])
    world.time_ms += 2
    return by_leader(world, world.c.encode_expire_due())


@act("EXPIRE_QUEUE")
def expire_queue(world: World) -> Callable[[], object]:
    world.create(999_999, expires_ms=1)
    world.time_ms += 1
    return by_leader(world, world.c.encode_expire_queue(999_999, 1))


def with_death(world: World, **settings: str) -> None:
    """One more, in front of whom nobody waits."""
    world.create(999_998, **(settings or {"dead_letter_exchange": "x"}))
    world.fill(999_998, 1, ttl_ms=0)
    world.time_ms += 1
    for _ in range(1_000):
        waiting = world.shard.unrouted(1)
        if waiting and (waiting[0].queue_id == 999_998 or len(world.shard.unrouted(2)) > 1):
            return
        world.lead(world.c.encode_expire_due())
    raise AssertionError("nothing died")


@act("START_REDRIVE")
def start_redrive(world: World) -> Callable[[], object]:
    return by_session(world, world.modules.redrives.encode_start_redrive(BIG, b"terms", 0))


@act("CHANGE_REDRIVE")
def pause_redrive(world: World) -> Callable[[], object]:
    start_redrive(world)()
    return by_session(world, world.modules.redrives.encode_change_redrive(BIG, world.modules.redrives.PAUSE))


@act("RELEASE_BRAKE")
def release_brake(world: World) -> Callable[[], object]:
    """Of a queue that one message which failed has put on brake."""
    world.lead(world.update([BIG], brake_window_ms=1_000_000))
    world.entry(world.publish(BIG), world.c.encode_get(BIG, MINE, False))
    world.entry(world.c.encode_settle(BIG, MINE, world.c.REJECT, [1]))
    return by_session(world, world.c.encode_release_brake(BIG))


def redrive(world: World, place: Callable[[list[Any]], Any]) -> Callable[[], object]:
    """One message of the longest line moves, that in this place."""
    world.entry(world.publish(BIG))
    start_redrive(world)()
    lines = [line.live() for line in world.shard.queue(BIG).lines() if line.count()]
    it = place(max(lines, key=len)) if lines else None
    content = world.c.LetterContent(b"\0\1k", b"h", b"body")
    known_by = (1, 0, 0) if it is None else (it.index, it.offset, it.enqueued_ms)
    redriven = [world.modules.redrives.Redriven(*known_by, (BESIDE,), (), content)]
    started = world.shard.queue(BIG).redrive
    redrive_id = 1 if started is None else started.redrive_id  # The queue of a delayed exchange has none.
    at = world.modules.redrive.Place(False, 0, 0, 0, 0, 0)
    return by_leader(world, world.modules.redrives.encode_redrive(BIG, redrive_id, 1, redriven, 0, at, False))


@act("REDRIVE")
def redrive_the_first(world: World) -> Callable[[], object]:
    return redrive(world, lambda line: line[0])


@act("REDRIVE")
def redrive_one_in_the_middle(world: World) -> Callable[[], object]:
    return redrive(world, lambda line: line[len(line) // 2])


@act("ROUTE")
def route_here(world: World) -> Callable[[], object]:
    with_death(world)
    return by_leader(world, world.route(world.c.ROUTED, local=(BIG,)))


@act("ROUTE")
def route_elsewhere(world: World) -> Callable[[], object]:
    with_death(world)
    return by_leader(world, world.route(world.c.ROUTED, (5, FIRST_OF_MANY)))


@act("ROUTE")
def park(world: World) -> Callable[[], object]:
    with_death(world)
    return by_leader(world, world.route(world.c.PARKED))


def note(world: World, journal: tuple[int, int]) -> Callable[[], object]:
    """The record of one death goes there."""
    with_death(world, journal="j")
    noted = world.modules.noted.NotedRoute(world.shard.unrouted(1)[0].sequence)
    assert noted.add_record(journal, b"\0\1k", b"h")
    return by_leader(world, bytes(noted.encoded()))


@act("ROUTE_NOTED")
def note_here(world: World) -> Callable[[], object]:
    return note(world, (0, BIG))


@act("ROUTE_NOTED")
def note_elsewhere(world: World) -> Callable[[], object]:
    return note(world, (5, FIRST_OF_MANY))


@act("TRANSFER")
def transfer(world: World) -> Callable[[], object]:
    content = world.c.LetterContent(b"\0\1k", b"h", b"body")
    return by_leader(world, b"".join(world.c.transfer_parts(99, BIG, 1, [content])))


@act("TRANSFER_MARKED")
def transfer_marked(world: World) -> Callable[[], object]:
    content = world.c.LetterContent(b"\0\1k", b"h", b"body", redelivered=True)
    return by_leader(world, b"".join(world.c.transfer_parts(99, BIG, 1, [content])))


@act("CROSS")
def cross(world: World) -> Callable[[], object]:
    return by_session(world, world.c.encode_cross(BIG, 0))


@act("MOVE_OUT")
def move_out(world: World) -> Callable[[], object]:
    world.create(777_777)
    return by_leader(world, world.c.encode_move_out(777_777, 2))


@act("MOVE_OUT_NUMBERED")
def move_out_numbered(world: World) -> Callable[[], object]:
    world.create(777_777)
    return by_leader(world, world.c.encode_move_out(777_777, 2, 1))


@act("MOVE_IN")
def move_in(world: World) -> Callable[[], object]:
    lease = world.c.MovedLease(1, 0, 0, 0, ())
    settings = world.modules.settings.ShardQueueSettings()
    return by_leader(world, world.c.encode_move_in(888_888, 99, 1, settings, lease, False, ()))


@act("TRANSFER_MOVED")
def transfer_moved(world: World) -> Callable[[], object]:
    letter = world.c.LetterContent(b"\0\1k", b"h", b"body")
    message = world.modules.message.Message(1, 0, 3, 1, 4, 0, -1, 0)
    return by_leader(world, world.c.encode_transfer_moved(99, BIG, 1, 0, [(message, letter)]))


@act("TRANSFER_COPIES")
def transfer_copies(world: World) -> Callable[[], object]:
    world.ensure_stream()
    letter = world.c.LetterContent(b"\0\1k", b"h" * 20, b"body")
    message = world.modules.message.Message(1, 0, 3, 20, 4, 0, -1, 0)
    return by_leader(world, world.c.encode_transfer_copies(STREAM_SOURCE + 99, STREAM, 1, 1, 0, [(message, letter)]))


@act("RAISE_LEVEL")
def raise_level(world: World) -> Callable[[], object]:
    return by_leader(world, world.c.encode_raise_level(LEVEL_FAILED_DELIVERIES))


@act("SETTLED")
def settled(world: World) -> Callable[[], object]:
    return by_leader(world, world.c.encode_settled(FIRST_OF_MANY, 1))


@act("LANE_CLOSED")
def lane_closed(world: World) -> Callable[[], object]:
    return by_leader(world, world.c.encode_lane_closed(FIRST_OF_MANY))


@act("FORGET_DELETED")
def forget_deleted(world: World) -> Callable[[], object]:
    return by_leader(world, world.c.encode_forget_deleted([FIRST_OF_MANY]))


@act("DROP_QUEUE")
def drop(world: World) -> Callable[[], object]:
    return by_leader(world, world.c.encode_drop_queue(BIG))


@act("UPDATE_QUEUES")
def update(world: World) -> Callable[[], object]:
    return by_leader(world, world.update([BIG], message_ttl_ms=1_000_000, max_length=3, expires_ms=1_000_000))


@act("UPDATE_QUEUES")
def update_retroactively(world: World) -> Callable[[], object]:
    return by_leader(world, world.update([BIG], message_ttl_ms=1_000_000, ttl_retroactive=True))


@act("RETRY_PARKED")
def retry_parked(world: World) -> Callable[[], object]:
    return by_leader(world, world.c.encode_retry_parked([1]))


@act("DROP_PARKED")
def drop_parked(world: World) -> Callable[[], object]:
    return by_leader(world, world.c.encode_drop_parked([1]))


@act(NO_COMMAND)
def another_session_ends(world: World) -> Callable[[], object]:
    world.attach(BIG, MINE, 1, session=B)
    return lambda: world.close(B)


@act(NO_COMMAND)
def looks_of_the_leader(world: World) -> Callable[[], object]:
    def look() -> None:
        shard = world.shard
        shard.due_leases(world.time_ms, BOUND)
        shard.next_message_due_ms()
        shard.unrouted(BOUND)
        shard.room(BIG, 8, 10)
        shard.newest_parked()
        assert shard.has_lanes in (True, False) and shard.empty_lanes >= 0

    return look


# -- what may grow ----------------------------------------------------------------------------------------

GOES_WITH_ITS_QUEUE: Final = "removes the queue with all who hold its messages"
LOOKS_AT_EACH_RUN: Final = "looks at each run of what waits: of thousands of messages, but here of one"
GROWS: Final[dict[tuple[str, str], str]] = {
    (command, burden): GOES_WITH_ITS_QUEUE
    for command in ("DELETE_QUEUE: delete", "DROP_QUEUE: drop")
    for burden in (
        "waiting_consumers", "full_consumers", "priorities", "single_active", "sessions", "getters", "held",
    )
} | {
    ("LANE_CLOSED: lane_closed", "lane"): "releases all that waits in the lane",
    ("PUBLISH_KEPT: publish_kept", "a_stream"): "looks at each run of deadlines when another is made, once in 2048",
    ("DETACH: detach_and_return", "held"): "looks once at each message that comes back",
    ("REDRIVE: redrive_the_first", "late"): "asks each piece of packed messages: what it names has died meanwhile",
} | {
    ("UPDATE_QUEUES: update_retroactively", burden): "marks each piece of packed messages"
    for burden in (
        "ready", "priority_levels", "late", "returned", "much_returning", "sources", "scattered_deadlines",
    )
} | {
    ("REDRIVE: redrive_one_in_the_middle", burden): "asks each piece of packed messages whether it may be there"
    for burden in (
        "ready", "priority_levels", "late", "returned", "much_returning", "sources", "scattered_deadlines",
    )
} | {
    (command, burden): LOOKS_AT_EACH_RUN
    for command in ("PUBLISH_LATER: publish_that_recurs_instead_of_another", "NEXT_TIMES: tell_next_times")
    for burden in ("scheduled", "equal_ids", "delayed")
} | {
    ("EXPIRE_DUE: expire_anywhere", burden): "looks at each piece of packed messages: of hundreds, but here of one"
    for burden in ("ready", "priority_levels", "late", "much_returning", "sources", "scattered_deadlines")
} | {
    (command, burden): LOOKS_AT_EACH_RUN
    for command in (
        "PURGE: purge", "DELETE_QUEUE: delete", "DROP_QUEUE: drop", "UPDATE_QUEUES: update_retroactively",
    )
    for burden in ("scheduled", "equal_ids", "delayed", "due_delayed")
} | {
    (command, burden): LOOKS_AT_EACH_RUN
    for command in ("PUBLISH_LATER: publish_later", "CHANGE_SCHEDULED: reschedule")
    for burden in ("scheduled", "equal_ids", "delayed")
} | {
    ("CHANGE_SCHEDULED: reschedule_what_waits_under_one_id", burden): LOOKS_AT_EACH_RUN
    for burden in ("scheduled", "delayed")
} | {
    ("RAISE_LEVEL: raise_level", burden): "looks at each queue, once in the life of a shard"
    for burden in ("queues", "leases", "deadlines", "returning", "unserved", "overfull")
}  # fmt: skip


@cache
def burdened(burden: Burden, n: int, level: int) -> tuple[bytes, int, int]:
    """A world with a burden, as a snapshot at an index and a time."""
    world = World(level=level)
    burden(world, n)
    return world.shard.snapshot(), world.index, world.time_ms


def world_for(name: str, burden: Burden, n: int) -> World:
    """A world with a burden, in which something is done."""
    # One that was told a level looks at nothing when it hears of another.
    return World(burdened(burden, n, 0 if name.startswith("RAISE_LEVEL") else LEVEL_HIGHEST))


def cost(name: str, burden: Burden, n: int) -> int:
    world = world_for(name, burden, n)
    measured = ACTS[name](world)
    return world.modules.copy.cost(measured)


@pytest.mark.parametrize("name", ACTS)
def test_a_command_costs_the_same_however_much_there_is(name: str) -> None:
    grown = []
    for burden in BURDENS:
        small, large = cost(name, burden, SMALL), cost(name, burden, TIMES * SMALL)
        if is_bounded(small, large) == ((name, burden.__name__) in GROWS):
            grown.append(f"{burden.__name__}: {small} steps, with {TIMES} times as much {large}")
        elif not is_linear(small, large):
            grown.append(f"{burden.__name__}: more than linear, {small} and {large}")
    assert not grown, "\n".join(grown)


def test_every_command_is_here() -> None:
    kinds, _, _ = source("mayfly/node/shard/commands.py").read_text(encoding="utf-8").partition("ANSWERING")
    there_are = set(re.findall(r"^([A-Z_]+): Final", kinds, re.MULTILINE))
    assert {name.partition(":")[0] for name in ACTS} == {NO_COMMAND, *there_are}


WITHOUT_EFFECT: Final = frozenset({"NOOP: noop", "CROSS: cross", "MOVE_OUT: move_out"})
"""These only ask, or are done with: from LEVEL_NUMBERED_MOVES on a queue moves by MOVE_OUT_NUMBERED alone."""


@pytest.mark.parametrize("name", [name for name in ACTS if name != "no command: looks_of_the_leader"])
def test_an_act_does_what_an_entry_without_it_does_not(name: str) -> None:
    """Under some burden, so that it is not the cost of a no-op alone that is measured."""

    def does_something(burden: Burden) -> bool:
        with_it, without = world_for(name, burden, SMALL), world_for(name, burden, SMALL)
        measured = ACTS[name](with_it)
        ACTS[name](without)
        measured()
        without.entry(bytes((without.c.NOOP,)))
        return bool(with_it.shard.snapshot() != without.shard.snapshot())

    assert any(map(does_something, BURDENS)) == (name not in WITHOUT_EFFECT)


# -- many in a row ----------------------------------------------------------------------------------------


def delayed_and_due(world: World, n: int) -> None:
    delayed(world, n)
    world.time_ms += 2_000_000


def in_a_row(world: World, commands: list[bytes], at_once: bool, leader: bool) -> int:
    give = world.lead if leader else world.entry
    if at_once:
        return world.modules.copy.cost(lambda: give(*commands))

    def one_by_one() -> None:
        for command in commands:
            give(command)

    return world.modules.copy.cost(one_by_one)


def _rows() -> Iterator[Any]:
    def row(name: str, burden: Burden, make: Callable[[World, int], bytes], leader: bool = False) -> Any:
        return pytest.param(burden, make, leader, id=name)

    def detach(world: World, place: int) -> bytes:
        return bytes(world.c.encode_detach(BIG, 10 + place, True))

    for burden in (waiting_consumers, full_consumers, priorities, single_active, getters):
        yield row(f"detaching {burden.__name__}", burden, detach)
    yield row("acks", held, lambda world, place: world.c.encode_settle(BIG, 10, world.c.ACK, [place + 1]))
    yield row("acks, the last first", held, lambda world, place: encode_settle_up_to(BIG, 10, 0, place + 1))
    yield row("requeues", held, lambda world, place: world.c.encode_settle(BIG, 10, world.c.REQUEUE, [place + 1]))
    yield row("gets", ready, lambda world, place: world.c.encode_get(BIG, MINE, False))
    yield row("cancels", scheduled, lambda world, place: world.cancel(str(place)))
    yield row("cancels under one id", equal_ids, lambda world, place: world.cancel(SAME))
    yield row("due", delayed_and_due, lambda world, place: world.c.encode_expire_due(), True)
    yield row("deletes", queues, lambda world, place: world.c.encode_delete_queue(FIRST_OF_MANY + place, False, False))
    yield row("leases", leases, lambda world, place: world.c.encode_expire_queue(FIRST_OF_MANY + place, 1), True)
    yield row("policies", queues, lambda world, place: world.update([1_000 + place], expires_ms=place + 9), True)
    yield row("deliveries", unserved, lambda world, place: bytes((world.c.NOOP,)))
    yield row("drops", overfull, lambda world, place: world.c.encode_expire_due(), True)
    yield row("releases", orphans, lambda world, place: bytes((world.c.NOOP,)))
    yield row("deaths of what is left", orphans_that_die, lambda world, place: world.c.encode_expire_due(), True)
    yield row("returns", returning, lambda world, place: bytes((world.c.NOOP,)))
    yield row("returns to one queue", much_returning, lambda world, place: bytes((world.c.NOOP,)))
    yield row("settled lanes", lanes, lambda world, place: world.c.encode_settled(FIRST_OF_MANY + place, 1), True)
    yield row("retries", parked, lambda world, place: world.c.encode_retry_parked([place + 1]), True)


@pytest.mark.parametrize("at_once", [True, False], ids=["in one entry", "one by one"])
@pytest.mark.parametrize(("burden", "make", "leader"), list(_rows()))
def test_as_many_in_a_row_cost_as_many_times_as_much(
    burden: Burden, make: Callable[[World, int], bytes], leader: bool, at_once: bool
) -> None:
    totals = []
    for n in (SMALL, TIMES * SMALL):
        world = World()
        burden(world, n)
        totals.append(in_a_row(world, [make(world, place) for place in range(n)], at_once, leader))
    assert is_linear(*totals), totals


@pytest.mark.parametrize("burden", BURDENS)
def test_the_end_of_a_session_costs_what_it_held(burden: Burden) -> None:
    totals = []
    for n in (SMALL, TIMES * SMALL):
        world = World()
        burden(world, n)
        totals.append(world.modules.copy.cost(partial(world.close, A)))
    assert is_linear(*totals), totals


@pytest.mark.parametrize("burden", BURDENS)
def test_a_snapshot_costs_what_is_in_it(burden: Burden) -> None:
    written, read = [], []
    for n in (SMALL, TIMES * SMALL):
        world = World()
        burden(world, n)
        written.append(world.modules.copy.cost(world.shard.snapshot))
        data, fresh = world.shard.snapshot(), World().shard
        read.append(world.modules.copy.cost(partial(fresh.restore, data)))
        assert fresh.snapshot() == data
    assert is_linear(*written), written
    assert is_linear(*read), read
