"""Random commands against a naive model; replicas that see the same log, one of them restored at random
points.
"""

from itertools import groupby
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pamqp.commands import Basic

from mayfly.cluster.versions import LEVEL_HIGHEST
from mayfly.node.shard import commands
from mayfly.node.shard.commands import LetterContent, RouteDecision
from mayfly.node.shard.effects import ConsumerCancelled, Deliver
from mayfly.node.shard.message import OVERHEAD_BYTES
from mayfly.node.shard.results import Attached, Deleted, GetResult, Gone, Published, Purged, QueueCounts, Refused
from mayfly.node.shard.settings import ShardQueueSettings, encode_terms
from mayfly.node.shard.shard import Shard
from tests.node.amqp.headers import build_header
from tests.node.readings import statistics_of
from tests.node.shard.driver import (
    Batch,
    Close,
    Entry,
    encode_prefetch,
    encode_settle_up_to,
    encode_transfer,
    update_queue,
)
from tests.node.shard.model import Model
from tests.node.shard.model_queue import Item, priority_in

KEY = b"\x00\x01k"
DEAD_KEY = b"\x03dlx\x01k"
EXPIRIES = 3
DELIVERIES = 4
PIECE = 1
RETURNED = 1
QUEUES = st.integers(1, 4)
SESSIONS = st.sampled_from([(1, 7), (2, 9)])
SOME_QUEUES = st.lists(QUEUES, min_size=1, max_size=3, unique=True)
TARGETS = st.lists(QUEUES, max_size=2, unique=True)
LANES = st.integers(70, 72)
ANY_LANE = st.one_of(LANES, QUEUES)
SOME_LANES = st.lists(LANES, max_size=2, unique=True)
HOLDERS = st.integers(5, 7)
ANY_HOLDER = st.integers(5, 8)
PREFETCH = st.integers(0, 3)
PRIORITY = st.integers(-1, 1)
# A message counts for some 300: none fits, one, some.
WINDOWS = st.sampled_from([0, 0, 1, 300, 700, 1500])
TAKEN = st.one_of(st.integers(0, 4000), st.just(1 << 40))
OUTCOME = st.sampled_from([0, 1, 2, 5, 6])
WAYS = st.integers(0, 2)
BEFORE_LEVEL_5 = {5: 1, 6: 2}
"""What nacks are to a shard that was not told that there are outcomes for them."""
IDS = st.lists(st.integers(1, 9), max_size=5)
FLAGS = st.booleans()
SETTINGS: list[dict[str, Any]] = [
    {},
    {"message_ttl_ms": 20, "dead_letter_exchange": "dlx"},
    {"message_ttl_ms": 0, "dead_letter_exchange": "", "delivery_limit": 1},
    {"expires_ms": 30, "delivery_limit": 2, "dead_letter_exchange": "dlx"},
    {"single_active_consumer": True, "expires_ms": 25},
    {"auto_delete": True, "message_ttl_ms": 10},
    {"max_length": 2, "dead_letter_exchange": "dlx"},
    {"max_length_bytes": 5, "message_ttl_ms": 30},
    {"max_length": 2, "overflow": "reject-publish", "message_ttl_ms": 20},
    {"max_length": 1, "max_length_bytes": 6, "overflow": "reject-publish-dlx", "dead_letter_exchange": ""},
    {"max_length": 0, "overflow": "reject-publish-dlx", "delivery_limit": 0},
    {"expires_ms": 20, "expires_if_empty": True, "message_ttl_ms": 40},
    {"expires_ms": 20, "expires_dead_letter": True, "dead_letter_exchange": "dlx"},
    {"expires_ms": 20, "expires_dead_letter": True, "expires_if_empty": True, "dead_letter_exchange": "dlx"},
    {"max_priority": 3, "message_ttl_ms": 20, "dead_letter_exchange": "dlx", "delivery_limit": 2},
    {"max_priority": 1, "max_length": 2},
    {"max_priority": 2, "max_length": 2, "overflow": "reject-publish", "expires_ms": 30},
    {"max_priority": 31, "default_priority": 4, "message_ttl_ms": 20, "dead_letter_exchange": "dlx"},
    {"max_priority": 31, "default_priority": 4, "max_length": 2, "expires_ms": 30},
    {"message_ttl_ms": 15, "ttl_dialect": "lavinmq", "ttl_retroactive": True, "dead_letter_exchange": "dlx"},
    {"message_ttl_ms": 0, "ttl_dialect": "lavinmq", "ttl_retroactive": True, "delivery_limit": 2, "expires_ms": 30},
    {"ttl_dialect": "lavinmq", "ttl_retroactive": True, "max_length": 2, "delivery_limit": 1},
    {"message_ttl_ms": 10, "ttl_dialect": "ottermq", "dead_letter_exchange": "dlx", "delivery_limit": 2},
    {"ttl_dialect": "ottermq", "max_length": 2, "max_priority": 2, "expires_ms": 25},
    {"message_ttl_ms": 15, "ttl_retroactive": True, "dead_letter_exchange": "dlx"},
    {"message_ttl_ms": 40, "ttl_retroactive": True, "delivery_limit": 3},
    {"ttl_retroactive": True},
    {"brake_limit": 1, "brake_window_ms": 40, "delivery_limit": 1, "dead_letter_exchange": "dlx"},
    {"brake_limit": 0, "brake_window_ms": 25, "max_length": 2, "overflow": "reject-publish", "message_ttl_ms": 20},
    {"brake_limit": 2, "brake_window_ms": 90, "max_priority": 2, "ttl_dialect": "ottermq", "expires_ms": 60},
]
KINDS = st.integers(0, len(SETTINGS) - 1)
RETROACTIVE = st.sampled_from([kind for kind, each in enumerate(SETTINGS) if "ttl_retroactive" in each])

STEP = st.one_of(
    st.tuples(st.just("publish"), SOME_QUEUES, st.sampled_from([-1, -1, 0, 5, 25])),
    st.tuples(st.just("burst"), QUEUES, st.integers(2, 9), st.sampled_from([-1, 5, 25])),
    st.tuples(st.just("guarded"), SESSIONS, st.lists(SOME_QUEUES, max_size=5), st.sampled_from([-1, -1, 0, 25])),
    st.tuples(
        st.just("transaction"), SESSIONS, st.lists(SOME_QUEUES, max_size=4), st.sampled_from([-1, -1, 0, 25]),
        QUEUES, ANY_HOLDER, OUTCOME, IDS, FLAGS,
    ),
    st.tuples(st.just("create"), SESSIONS, QUEUES, KINDS),
    st.tuples(st.just("update"), QUEUES, KINDS),
    st.tuples(st.just("update all"), SOME_QUEUES, KINDS),
    st.tuples(st.just("update"), QUEUES, RETROACTIVE),
    st.tuples(st.just("touch"), SESSIONS, QUEUES),
    st.tuples(st.just("get"), SESSIONS, QUEUES, FLAGS),
    st.tuples(st.just("attach"), SESSIONS, QUEUES, HOLDERS, PREFETCH, FLAGS, st.just(False), PRIORITY, WINDOWS),
    st.tuples(st.just("attach"), SESSIONS, QUEUES, HOLDERS, PREFETCH, st.just(False), FLAGS, st.just(0)),
    st.tuples(st.just("detach"), SESSIONS, QUEUES, ANY_HOLDER, WAYS),
    st.tuples(st.just("flow"), SESSIONS, QUEUES, HOLDERS, FLAGS),
    st.tuples(st.just("taken"), SESSIONS, QUEUES, HOLDERS, TAKEN),
    st.tuples(st.just("prefetch"), SESSIONS, QUEUES, HOLDERS, PREFETCH),
    st.tuples(st.just("settle"), SESSIONS, QUEUES, ANY_HOLDER, OUTCOME, IDS),
    st.tuples(st.just("settle up to"), SESSIONS, QUEUES, ANY_HOLDER, OUTCOME, st.integers(0, 12)),
    st.tuples(st.just("purge"), SESSIONS, QUEUES),
    st.tuples(st.just("release brake"), SESSIONS, QUEUES),
    st.tuples(st.just("delete"), SESSIONS, QUEUES, FLAGS, FLAGS),
    st.tuples(st.just("close"), SESSIONS),
    st.tuples(st.just("detach"), SESSIONS, QUEUES, ANY_HOLDER, st.integers(1, 2)),
    st.tuples(st.just("settle up to"), SESSIONS, QUEUES, ANY_HOLDER, st.sampled_from([1, 5]), st.integers(3, 12)),
    st.tuples(st.just("forget"), QUEUES),
    st.tuples(st.just("drop"), QUEUES),
    st.tuples(st.just("route"), st.integers(0, 4), st.integers(0, 3), TARGETS, SOME_LANES),
    st.tuples(st.just("transfer"), st.integers(8, 9), QUEUES, st.integers(1, 4), st.integers(0, 3), FLAGS),
    st.tuples(st.just("settled"), ANY_LANE, st.integers(1, 5)),
    st.tuples(st.just("lane closed"), ANY_LANE),
    st.tuples(st.just("retry"), st.integers(1, 9)),
    st.tuples(st.just("drop parked"), st.integers(1, 9)),
    st.tuples(st.just("tick")),
    st.tuples(st.just("raise level"), st.sampled_from([4, 5, 6, LEVEL_HIGHEST])),
    st.tuples(st.just("expire queue"), QUEUES, st.integers(1, 4)),
)
ENTRIES = st.lists(
    st.tuples(st.integers(0, 15), st.sampled_from([0, 1, 1]), FLAGS, st.lists(STEP, min_size=1, max_size=6)),
    min_size=1,
    max_size=40,
)


def header_of(body: str) -> bytes:
    """A content header with the priority that the model expects of this body; none for 0."""
    priority = priority_in(body)
    properties = Basic.Properties(content_type="t", headers={"k": "v"}, delivery_mode=2, priority=priority or None)
    return build_header(properties, len(body))


class Run:
    """The model, a replica on node 1, its double that is restored now and then, and a replica on node 2."""

    def __init__(self) -> None:
        self.model = Model(EXPIRIES, DELIVERIES, RETURNED)
        # So low that the bounds of an entry are met all the time.
        self.one, self.restored, self.two = (
            Shard(1, node, EXPIRIES, DELIVERIES, PIECE, returned_per_entry=RETURNED) for node in (1, 1, 2)
        )
        self.log: dict[int, Entry] = {}
        self.now = 1000
        self.led = 500
        self.bodies = 0

    def body(self, message: Any) -> str:
        start = message.offset + message.key_length + message.header_length
        return self.log[message.index].data[start : start + message.body_length].decode()

    def new_body(self, key: bytes = KEY) -> str:
        self.bodies += 1
        body = "b" * (self.bodies % 3) + str(self.bodies)
        self.model.sizes[body] = OVERHEAD_BYTES + len(key) + len(header_of(body)) + len(body)
        return body

    def entry(self, steps: list[tuple[Any, ...]]) -> None:
        """One entry of several steps: encode them, apply everywhere, compare everything."""
        index = len(self.log) + 1
        batches: list[Batch | Close] = []
        wanted: list[object] = []
        model = self.model
        model.begin(index, self.now, self.led)
        for step in steps:
            batch = getattr(self, "do_" + step[0].replace(" ", "_"))(wanted, *step[1:])
            if batch is not None:
                batches.append(batch)
        model.finish()
        entry = Entry(index, self.now, self.led, batches)
        self.log[index] = entry
        answers = [[self.plain(result) for result in entry.apply(shard)] for shard in self.shards()]
        # A barrier or a detach answers too, with nothing to compare.
        assert [a for a in answers[0] if a is not None] == wanted
        assert answers[0] == answers[1] == answers[2]
        self.compare()

    def shards(self) -> tuple[Shard, Shard, Shard]:
        return self.one, self.restored, self.two

    def plain(self, result: object) -> object:
        match result:
            case Gone():
                return ("gone", result.reason)
            case QueueCounts():
                return ("counts", result.ready, result.consumers)
            case GetResult():
                body = None if result.message is None else self.body(result.message)
                return ("get", body, result.delivery_id, result.ready_count, result.try_again)
            case Attached():
                return ("attached", result.consumers)
            case Refused():
                return ("refused", result.reason)
            case Purged():
                return ("purged", result.messages)
            case Deleted():
                return ("deleted", result.messages)
            case Published():
                return ("published", list(result.refused), list(result.nowhere))
        return None

    def effects(self, shard: Shard) -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        for effect in shard.take_effects():
            if isinstance(effect, ConsumerCancelled):
                found.append((effect.session, effect.consumer_id, "cancelled", effect.queue_id))
            elif isinstance(effect, Deliver):
                for place, message in enumerate(effect.messages):
                    number = effect.first_delivery_id + place
                    found.append(
                        (
                            effect.session,
                            effect.consumer_id,
                            number,
                            self.body(message),
                            message.delivery_count,
                            message.acquired_count,
                        )
                    )
        return found

    def compare(self) -> None:
        model = self.model
        assert self.one.digest() == self.restored.digest() == self.two.digest()
        mine = self.effects(self.one)
        assert mine == self.effects(self.restored)
        theirs = self.effects(self.two)
        # Messages of gets are answers, no effects. Those of one consumer come in order.
        for session, seen in (((1, 7), mine), ((2, 9), theirs)):
            expected = [effect for effect in model.effects if effect[0] == session]
            assert {effect[0] for effect in seen} <= {session}
            for who in {effect[1] for effect in expected + seen}:
                assert [e for e in seen if e[1] == who] == [e for e in expected if e[1] == who]
        model.effects = []
        state = self.one._state
        assert set(state.queues) == set(model.rows)
        for number, row in model.rows.items():
            queue = state.queues[number]
            lines = [(line.live(), line.timed, line.returning) for line in queue.lines() if line.count()]
            parts = [part for part, _ in row.lines() if part]
            for (_, timed, coming), part in zip(lines, parts, strict=True):
                assert coming or timed == sum(item.deadline >= 0 for item in part)
            for (messages, _, _), part in zip(lines, parts, strict=True):
                assert [self.item(message) for message in messages] == [self.item_of(item) for item in part]
            people = [(p.session, p.number, p.attached, p.last, p.held, p.given, p.taken) for p in row.people]
            holders = [
                (h.session, h.holder_id, h.attached, h.last_delivery_id, h.held, h.given_bytes, h.taken_bytes)
                for h in queue.holders.values()
            ]
            assert [(*each[:4], *each[5:]) for each in people] == [(*each[:4], *each[5:]) for each in holders]
            for person, holder in zip(people, holders, strict=True):
                held = {number: self.item_of(item) for number, item in person[4].items()}
                # What is held is judged when it comes back (T10): its deadline is worked out then.
                by_now = {n: m if queue.retiming is None else queue.retiming.of(m) for n, m in holder[4].items()}
                assert {number: self.item(message) for number, message in by_now.items()} == held
            statistics = self.one.queue_statistics(number)
            assert statistics is not None
            assert statistics.ready_bytes == sum(len(item.body) for item in row.ready + row.returned)
            assert statistics.unacknowledged_bytes == sum(len(i.body) for p in people for i in p[4].values())
            assert statistics.unacknowledged == sum(len(p[4]) for p in people)
            assert queue.received == row.received
            counted = (statistics.overflowed, statistics.refused, statistics.delivery_limited)
            assert counted == (row.overflowed, row.refused, row.delivery_limited)
            assert queue.is_braked == row.braked == (number in state.braked)
        assert {number: tombstone.reason for number, tombstone in self.one.deleted.items()} == model.deleted
        deaths = [(d.sequence, d.queue_id, self.item(d.message), d.reason) for d in self.one.unrouted(10_000)]
        assert deaths == [(s, q, self.item_of(item), reason) for s, q, item, reason in model.outbox.deaths]
        assert {death.sequence for death in self.one.parked()} == set(model.outbox.parked)
        lanes = {lane.target_queue: [self.body(item) for item in lane.items] for lane in self.one.lanes()}
        assert lanes == {lane: [item.body for item in items] for lane, items in model.outbox.lanes.items()}
        for shard in self.shards():
            assert set(shard.live_entries()) == model.live_entries()
        assert self.one.due_leases(self.led) == model.due_leases()
        due = model.due()
        unfinished = model.unfinished() or bool(state.returning.queues)
        assert self.one.next_message_due_ms() == (0 if unfinished else due[0][0] if due else -1)
        remains = [
            (number, [self.item(message) for left in lines for message in left.line.live()])
            for number, lines in groupby(state.orphans.in_order(), lambda left: left.queue_id)
        ]
        assert remains == [(number, [self.item_of(item) for item in items]) for number, items in model.remains]
        assert statistics_of(self.one).queue_expired == model.queue_expired
        assert statistics_of(self.one).gone_for["expired"] == model.expired_queues
        assert len(state.message_timers.due) == len(due)
        released = self.one.take_released()
        assert released == self.restored.take_released() == self.two.take_released()
        assert len(set(released)) == len(released)
        assert not set(released) & model.live_entries()

    def item(self, message: Any) -> tuple[object, ...]:
        counts = (message.delivery_count, message.acquired_count)
        return (message.index, self.body(message), message.deadline_ms, *counts, message.priority)

    def item_of(self, item: Item) -> tuple[object, ...]:
        return (item.entry, item.body, item.deadline, item.count, item.acquired, item.priority)

    # -- each step: what the model does, and the batch that says the same --

    def do_publish(self, wanted: list[object], queues: list[int], ttl: int) -> Batch:
        body = self.new_body()
        self.model.publish(queues, body, None if ttl < 0 else ttl)
        parts: list[bytes] = []
        commands.encode_publish(parts, queues, ttl, KEY, header_of(body), body.encode())
        return ((1, 7), b"".join(parts))

    def do_burst(self, wanted: list[object], queue: int, count: int, ttl: int) -> Batch:
        return ((2, 9), b"".join(self.do_publish(wanted, [queue], ttl)[1] for _ in range(count)))

    def do_guarded(
        self, wanted: list[object], session: tuple[int, int], targets: list[list[int]], ttl: int
    ) -> Batch:
        parts = [commands.encode_guard(len(targets))]
        refused = []
        nowhere = [place for place, queues in enumerate(targets) if not self.model.rows.keys() & set(queues)]
        for place, queues in enumerate(targets):
            body = self.new_body()
            if self.model.guarded(queues, body, None if ttl < 0 else ttl):
                refused.append(place)
            commands.encode_publish(parts, queues, ttl, KEY, header_of(body), body.encode())
        wanted.append(("published", refused, nowhere))
        return (session, b"".join(parts))

    def do_transaction(
        self,
        wanted: list[object],
        session: tuple[int, int],
        targets: list[list[int]],
        ttl: int,
        queue: int,
        holder: int,
        outcome: int,
        ids: list[int],
        only_held: bool,
    ) -> Batch:
        if only_held:
            ids = self.model.held(session, queue, holder)
        publishes = [(queues, self.new_body()) for queues in targets]
        parts: list[bytes] = []
        for queues, body in publishes:
            commands.encode_publish(parts, queues, ttl, KEY, header_of(body), body.encode())
        if not self.model.holds(session, queue, holder, ids):
            wanted.append(("refused", "not-held"))
        elif self.model.transaction(publishes, None if ttl < 0 else ttl):
            self.model.settle(session, queue, holder, self.known(outcome), ids)
        else:
            wanted.append(("refused", "full"))
        settle = commands.encode_settle(queue, holder, outcome, ids)
        return (session, commands.encode_transaction(len(publishes), [*parts, settle]))

    def has_usual(self, queue: int, kind: int) -> bool:
        """Whether a queue may become of this kind: one with messages doesn't change what priority is the usual one."""
        row = self.model.rows.get(queue)
        return row is None or row.usual == SETTINGS[kind].get("default_priority", 0)

    def do_update(self, wanted: list[object], queue: int, kind: int) -> Batch:
        if not self.has_usual(queue, kind):
            return self.do_update_all(wanted, [queue], kind)
        self.model.update(queue, SETTINGS[kind])
        made = ShardQueueSettings(name=f"q{queue}", **SETTINGS[kind])
        return (None, update_queue(queue, made))

    def do_update_all(self, wanted: list[object], queues: list[int], kind: int) -> Batch:
        queues = [queue for queue in queues if self.has_usual(queue, kind)]
        for queue in queues:
            self.model.update(queue, SETTINGS[kind])
        terms = encode_terms(ShardQueueSettings(**SETTINGS[kind]))
        return (None, commands.encode_update_queues(terms, queues))

    def do_create(self, wanted: list[object], session: tuple[int, int], queue: int, kind: int) -> Batch:
        wanted.append(self.model.create(queue, SETTINGS[kind]))
        made = ShardQueueSettings(name=f"q{queue}", **SETTINGS[kind])
        return (session, commands.encode_create_queue(queue, made))

    def do_touch(self, wanted: list[object], session: tuple[int, int], queue: int) -> Batch:
        wanted.append(self.model.touch_queue(queue))
        return (session, commands.encode_touch_queue(queue))

    def do_get(self, wanted: list[object], session: tuple[int, int], queue: int, no_ack: bool) -> Batch:
        wanted.append(self.model.get(session, queue, 8, no_ack))
        return (session, commands.encode_get(queue, 8, no_ack))

    def do_attach(self, wanted: list[object], session: tuple[int, int], *arguments: Any) -> Batch:
        wanted.append(self.model.attach(session, *arguments))
        return (session, commands.encode_attach(*arguments))

    def do_detach(
        self, wanted: list[object], session: tuple[int, int], queue: int, holder: int, way: int
    ) -> Batch:  # fmt: skip
        self.model.detach(session, queue, holder, way if self.model.level >= 5 else min(way, 1))
        return (session, commands.encode_detach(queue, holder, way))

    def known(self, outcome: int) -> int:
        """What an outcome means at this level; nodes may have been told a higher one before the shard."""
        return outcome if self.model.level >= 5 else BEFORE_LEVEL_5.get(outcome, outcome)

    def do_raise_level(self, wanted: list[object], level: int) -> Batch:
        self.model.raise_level(level)
        return (None, commands.encode_raise_level(level))

    def do_flow(self, wanted: list[object], session: tuple[int, int], *arguments: Any) -> Batch:
        self.model.flow(session, *arguments)
        return (session, commands.encode_flow(*arguments))

    def do_taken(self, wanted: list[object], session: tuple[int, int], *arguments: Any) -> Batch:
        self.model.take(session, *arguments)
        return (session, commands.encode_taken(*arguments))

    def do_prefetch(self, wanted: list[object], session: tuple[int, int], *arguments: Any) -> Batch:
        self.model.set_prefetch(session, *arguments)
        return (session, encode_prefetch(*arguments))

    def do_settle(
        self,
        wanted: list[object],
        session: tuple[int, int],
        queue: int,
        holder: int,
        outcome: int,
        ids: list[int],
    ) -> Batch:
        self.model.settle(session, queue, holder, self.known(outcome), ids)
        return (session, commands.encode_settle(queue, holder, outcome, ids))

    def do_settle_up_to(
        self,
        wanted: list[object],
        session: tuple[int, int],
        queue: int,
        holder: int,
        outcome: int,
        up_to: int,
    ) -> Batch:
        self.model.settle(session, queue, holder, self.known(outcome), range(up_to + 1))
        return (session, encode_settle_up_to(queue, holder, outcome, up_to))

    def do_purge(self, wanted: list[object], session: tuple[int, int], queue: int) -> Batch:
        wanted.append(self.model.purge(queue))
        return (session, commands.encode_purge(queue))

    def do_release_brake(self, wanted: list[object], session: tuple[int, int], queue: int) -> Batch:
        answer = self.model.release_brake(queue)
        if answer is not None:
            wanted.append(answer)
        return (session, commands.encode_release_brake(queue))

    def do_delete(self, wanted: list[object], session: tuple[int, int], *arguments: Any) -> Batch:
        wanted.append(self.model.delete(*arguments))
        return (session, commands.encode_delete_queue(*arguments))

    def do_close(self, wanted: list[object], session: tuple[int, int]) -> Close:
        self.model.close(session)
        return Close(session)

    def do_forget(self, wanted: list[object], queue: int) -> Batch:
        self.model.deleted.pop(queue, None)
        return (None, commands.encode_forget_deleted([queue]))

    def do_drop(self, wanted: list[object], queue: int) -> Batch:
        if queue in self.model.rows:
            self.model.remove(self.model.rows[queue], "")
        return (None, commands.encode_drop_queue(queue))

    def do_route(
        self, wanted: list[object], count: int, outcome: int, local: list[int], remote: list[int]
    ) -> Batch:
        first = self.model.outbox.deaths[0][0] if self.model.outbox.deaths else 1
        decisions = []
        # One too early, and maybe some too many.
        for sequence in range(max(1, first - 1), first + count):
            body = self.new_body(DEAD_KEY)
            self.model.route(sequence, outcome, local, remote, body)
            pairs = [(6, lane) for lane in remote]
            content = LetterContent(DEAD_KEY, header_of(body), body.encode())
            decisions.append(RouteDecision(sequence, outcome, local, pairs, content))
        return (None, commands.encode_route(decisions))

    def do_transfer(self, wanted: list[object], source: int, lane: int, first: int, count: int, marked: bool) -> Batch:
        bodies = [self.new_body() for _ in range(count)]
        self.model.transfer(source, lane, first, bodies, marked and self.model.level >= 5)
        contents = [LetterContent(KEY, header_of(body), body.encode(), marked) for body in bodies]
        return (None, encode_transfer(source, lane, first, contents))

    def do_settled(self, wanted: list[object], lane: int, up_to: int) -> Batch:
        self.model.outbox.settled(lane, up_to)
        return (None, commands.encode_settled(lane, up_to))

    def do_lane_closed(self, wanted: list[object], lane: int) -> Batch:
        self.model.outbox.lane_closed(lane)
        return (None, commands.encode_lane_closed(lane))

    def do_retry(self, wanted: list[object], sequence: int) -> Batch:
        self.model.outbox.retry_parked(sequence)
        return (None, commands.encode_retry_parked([sequence]))

    def do_drop_parked(self, wanted: list[object], sequence: int) -> Batch:
        self.model.outbox.drop_parked(sequence)
        return (None, commands.encode_drop_parked([sequence]))

    def do_tick(self, wanted: list[object]) -> Batch:
        self.model.due_asked = True
        encoded = commands.encode_expire_due()
        for number, epoch in self.model.due_leases():
            self.model.expire_queue(number, epoch)
            encoded += commands.encode_expire_queue(number, epoch)
        return (None, encoded)

    def do_expire_queue(self, wanted: list[object], queue: int, epoch: int) -> Batch:
        self.model.expire_queue(queue, epoch)
        return (None, commands.encode_expire_queue(queue, epoch))


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.permutations(range(len(SETTINGS))), st.booleans(), ENTRIES)
def test_c1_any_commands_do_what_the_rules_say_on_every_replica(
    kinds: list[int], is_new: bool, entries: list[tuple[int, int, bool, list[tuple[Any, ...]]]]
) -> None:
    """RULES C1, C4, T4-T10, T13, L2-L5, L11, D2, D6-D9, Q1: the model after every entry, with timers, live entries."""
    run = Run()
    if is_new:
        run.entry([("raise level", LEVEL_HIGHEST)])
    run.entry([("create", (1, 7), queue, kinds[queue]) for queue in range(1, 5)])
    for passed, led, restore, steps in entries:
        run.now += passed
        run.led += passed * led
        if restore:
            run.restored.restore(run.restored.snapshot())
        run.entry(steps)
    entries_left = run.bodies
    while run.one._state.returning.queues:
        run.entry([("touch", (1, 7), 1)])
        entries_left -= 1
        assert entries_left >= 0, "what came back in great numbers is dealt with some time"
