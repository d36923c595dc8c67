"""What somebody has to do for a shard besides applying entries: route the dead, move them on, bury deleted queues.

For a replicated shard its leader does it (`node.duties.shard_leader`), for a transient one the node that hosts it
(`node.transient.local_shard`). Nothing here is state: all of it is read off the shard, given back to it as commands
that are harmless when they are applied twice, and read off again. What is remembered between two looks only keeps the
same command from being given many times; after a while without effect it is given again.

    feature level    -> RAISE_LEVEL, once the catalog has been told it
    unrouted deaths  -> ROUTE, or ROUTE_NOTED where records of journals are among them, decided with the catalog; the
                        first of a lead after a barrier                                           (RULES D5, D6, D8, R4)
    parked deaths    -> RETRY_PARKED for those that have a route since the catalog changed        (RULES D8)
                        what is large borrows its body from the entry that has it
    lanes            -> see `node.duties.lane_transfers`                                            (D6, D7)
    tombstones       -> RemoveQueues in the catalog, then FORGET_DELETED
    queues on brake  -> a line in the log (`node.duties.brake_watch`)              (RULES R5)
    cron expressions -> NEXT_TIMES for what waits to be told (`node.duties.recurrences`)  (RULES S6)
"""

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Final

from mayfly.cluster.versions import LEVEL_FAILED_DELIVERIES, LEVEL_NOTED_ROUTES
from mayfly.node.amqp.content import Content
from mayfly.node.catalog import QueueRecord
from mayfly.node.dead_letter import DeadLetterRouter, decide_due
from mayfly.node.dead_letter.death_headers import PublishedContent
from mayfly.node.dead_letter.journal import JournalRecords, exchange_and_key
from mayfly.node.duties.brake_watch import BrakeWatch
from mayfly.node.duties.contents import content_of, names_and_header_of
from mayfly.node.duties.lane_transfers import LaneTransfers
from mayfly.node.duties.large_bodies import LargeBodies, LargeLetters
from mayfly.node.duties.lost_queues import LostQueues
from mayfly.node.duties.port import DutyPort
from mayfly.node.duties.progress import AGAIN_MS
from mayfly.node.duties.recurrences import Recurrences
from mayfly.node.duties.tenure import Tenure
from mayfly.node.limits import (
    DEAD_LETTERS_PER_ENTRY,
    DEAD_LETTERS_ROUTED_AHEAD,
    QUEUES_BURIED_PER_COMMAND,
    TRANSFER_BYTES,
)
from mayfly.node.shard import commands
from mayfly.node.shard.message import Message
from mayfly.node.shard.noted_commands import NotedRoute
from mayfly.node.shard.outbox import DUE, EXPIRED, RECORDS, Death
from mayfly.node.shard.settings import ShardQueueSettings
from mayfly.node.shard.shard import Shard

logger = logging.getLogger(__name__)

PARKED_PAUSE_MS: Final = 100
PARKED_REST_MS: Final = 5000
"""Between two looks at parked dead letters: after one that found routes, and after one that did not."""

_ROUTES_PER_LOOK: Final = 2
"""ROUTEs decided in one go: more would keep the event loop too long, fewer would never be ahead of the log."""

_UNROUTABLE: Final = (commands.PARKED, commands.DROPPED_UNROUTABLE)


class _Route:
    """Decisions as they are taken: ROUTE, or, once there is a record among them, ROUTE_NOTED if it may be."""

    __slots__ = (
        "_decisions", "_first", "_noted", "count", "exchange_and_key", "head", "index", "is_whole", "journal",
        "may_note", "settings",
    )  # fmt: skip

    def __init__(self, first: int, may_note: bool) -> None:
        self.count = 0
        self.may_note = may_note
        self.settings: ShardQueueSettings | None = None
        """Of the queue whose records go to..."""
        self.journal = (0, 0)
        """...this journal: its shard, 0 for the own one, and its id; and..."""
        self.exchange_and_key = b""
        """...by this."""
        self.index = -1
        """The entry with the last message that was noted, and..."""
        self.head = b""
        """...what it has of that, which is..."""
        self.is_whole = False
        """...all that belongs to it."""
        self._first = first
        self._decisions: list[commands.RouteDecision] = []
        self._noted: NotedRoute | None = None

    def add(self, decision: commands.RouteDecision) -> None:
        self.count += 1
        if self._noted is None:
            self._decisions.append(decision)
        else:
            self._noted.add(decision)

    def add_record(self, header: bytes, middle: bytes, end: bytes) -> bool:
        """A record with this content header, in three parts. False where it can only be a decision like others."""
        noted = self._noted
        if noted is None:
            noted = self._noted = NotedRoute(self._first)
            for decision in self._decisions:
                noted.add(decision)
        if not noted.add_record(self.journal, self.exchange_and_key, header, middle, end):
            return False
        self.count += 1
        return True

    def encoded(self) -> bytes:
        return commands.encode_route(self._decisions) if self._noted is None else self._noted.encoded()


class ShardDuties:
    """The duties for one shard."""

    def __init__(
        self,
        shard: Shard,
        source: int,
        port: DutyPort,
        give: Callable[[bytes], object],
        entry: Callable[[int], bytes],
        clock: Callable[[int], int],
        large: LargeLetters | None = None,
        tenure: Tenure | None = None,
    ) -> None:
        """`source` names the shard's life in transfers; it must never come again. `give(command)` takes an internal
        command for the shard itself, which may get lost; `entry(index)` is the payload of an entry in which a message
        lives; `clock(now_ms)` is the shard's clock. `large`: with a log, its `LargeBodies`. Without a `tenure` the
        shard is led here for as long as it is there."""
        self.shard: Shard = shard
        self._port = port
        self._catalog = port.catalog
        self._give = give
        self._entry = entry
        self._large = large if isinstance(large, LargeBodies) else None
        self._router = DeadLetterRouter(port.catalog)
        self._records = JournalRecords(port.catalog)
        self._lost_queues = LostQueues()
        self._recurrences = Recurrences(shard, give, entry)
        self.lanes: LaneTransfers = LaneTransfers(shard, source, port, give, entry, clock, large)
        self._tenure = tenure or Tenure()
        self.forget()

    def forget(self) -> None:
        """Begin anew: what was given before may never have arrived."""
        self._recurrences.forget()
        self._brakes = BrakeWatch()
        self._now_ms = 0
        self._in_line: set[bool] = set()
        """Waits for a turn to route: the dead (False), parked ones (True)."""
        self._raised_ms = -AGAIN_MS
        self._routed_first = 0
        self._routed_up_to = 0
        self._routed_ms = 0
        self.lanes.forget()
        self._burying: set[int] = set()
        self._removals = 0
        self._buried_ms = 0
        self._barrier_under_way = False
        self._has_caught_up = False
        """Whether the catalog here has been as new as any, in this life."""
        self._fresh_up_to = 0
        self._parked_version = -1
        self._parked_up_to = 0
        self._parked_next_ms = 0
        self._parked_cut_short = False
        """Whether the last look at parked ones ended before it had seen as many as one may."""
        self._retried: deque[tuple[int, int]] = deque()
        self._cycles_told: set[int] = set()
        self._dropped_told: set[int] = set()
        self._journals_told: set[int] = set()

    def perform(self, now_ms: int) -> None:
        """Look at the shard and give what is due."""
        self._now_ms = now_ms
        self._raise_level(now_ms)
        self._route(now_ms)
        self._retry_parked(now_ms)
        self._recurrences.perform(now_ms)
        self._brakes.tell(self.shard.braked())
        if self.shard.has_lanes:
            missing = self.lanes.move(now_ms)
            if missing:
                self._freshen(0, missing)
        if self.shard.deleted:
            self._bury(now_ms)

    @property
    def has_waiting(self) -> bool:
        """Whether dead letters wait for something that the shard itself does not show: other shards, the catalog."""
        return bool(self.has_lanes or self.shard.newest_parked() or self.shard.unrouted(1))

    @property
    def has_lanes(self) -> bool:
        """Whether dead letters wait for other shards, so that what those apply matters here."""
        return self.shard.has_lanes

    def _raise_level(self, now_ms: int) -> None:
        level = self._catalog.level
        if level >= LEVEL_FAILED_DELIVERIES and level > self.shard.level and now_ms - self._raised_ms >= AGAIN_MS:
            self._raised_ms = now_ms
            self._give(commands.encode_raise_level(level))

    # ------------------------------------------------------------------ deaths

    def _route(self, now_ms: int) -> None:
        head = self.shard.unrouted(1)
        if not head:
            return
        first = head[0].sequence
        if not self._has_caught_up:
            # An older catalog may know only some of the queues that were bound long ago: a node that comes back applies
            # what it knows to be committed, and may be elected before it hears of the rest (RULES D6).
            self._freshen(first, (), lambda: self._route(now_ms))
            return
        if first > self._routed_first:
            self._routed_first, self._routed_ms = first, now_ms
        elif now_ms - self._routed_ms >= AGAIN_MS:
            # A ROUTE got lost, and those behind it were refused for the gap.
            self._routed_up_to, self._routed_ms = first - 1, now_ms
        # While one ROUTE is on its way through the log, the next are decided.
        for _ in range(_ROUTES_PER_LOOK):
            if self._routed_up_to - first >= DEAD_LETTERS_ROUTED_AHEAD or not self._route_some(now_ms):
                return

    def _route_some(self, now_ms: int) -> bool:
        """Decide about the next deaths, as many as go into one entry; False: there is no more to do now."""
        waiting = self.shard.unrouted(DEAD_LETTERS_PER_ENTRY, self._routed_up_to)
        if waiting and not self._port.is_waited_for:
            # Whoever bound a queue before these died may have been answered without a look at the catalog here.
            if waiting[0].sequence > self._fresh_up_to:
                self._freshen(waiting[-1].sequence, (), lambda: self._route(now_ms))
                return False
            waiting = [death for death in waiting if death.sequence <= self._fresh_up_to]
        if not waiting or not self._may_route(False):
            return False
        turns = self._catalog.routing_turns
        route = _Route(waiting[0].sequence, self._catalog.level >= LEVEL_NOTED_ROUTES)
        is_full = False
        size = 0
        large: Message | None = None
        for death in waiting:
            is_record = death.reason != EXPIRED and death.reason in RECORDS
            if not is_record and self._is_large(death.message):
                if route.count:
                    is_full = True
                    break
                large = death.message
            if not is_record or not route.may_note or not self._note(route, death):
                decision = self._decide(death)
                if decision.outcome in _UNROUTABLE and death.sequence > self._fresh_up_to:
                    # That counts once our catalog is as new as the death: a binding may just not have arrived yet (D8).
                    self._freshen(waiting[-1].sequence, ())
                    break
                if decision.outcome == commands.DROPPED_UNROUTABLE:
                    self._tell_dropped(death)
                if decision.outcome != commands.ROUTED:
                    large = None
                route.add(decision)
            size += death.message.content_length
            if is_record:
                size -= death.message.body_length  # It goes into no record.
            if large is not None:
                size = TRANSFER_BYTES  # It goes alone.
            if size >= TRANSFER_BYTES or turns.is_over:
                is_full = True
                break
        if route.count:
            self._routed_up_to = waiting[0].sequence + route.count - 1
            if self._large is not None and large is not None:
                self._large.give(route.encoded(), large)
            else:
                self._give(route.encoded())
        return is_full or route.count == len(waiting)

    def _note(self, route: "_Route", death: Death) -> bool:
        """The record of the death goes to its journal; False, and nothing is done, where that is not so simple."""
        settings = death.settings
        if settings is not route.settings:
            journal, _ = self._records.journal(settings)
            if journal is None:
                return False
            is_here = journal.shard == self.shard.shard_id and self.shard.queue(journal.id) is not None
            route.settings, route.journal = settings, (0 if is_here else journal.shard, journal.id)
            route.exchange_and_key = exchange_and_key(settings)
        message = death.message
        large = self._large
        # Many in a row stand in the same entry.
        if message.index != route.index:
            route.index, route.head = message.index, self._head(message.index)
            route.is_whole = large is None or large.is_whole(message.index)
        if large is not None and not route.is_whole and large.has_names_elsewhere(message):
            names, header = large.names_and_header(message)
        else:
            names, header = names_and_header_of(route.head, message)
        opening, identity, trace = self._records.parts(death, names, header)
        return route.add_record(opening, identity, trace)

    def _is_large(self, message: Message) -> bool:
        """Whether its body is not written again when it is routed, and goes to other shards in pieces."""
        return self._large is not None and self._large.has(message)

    def _names_and_header(self, message: Message) -> tuple[bytes, bytes]:
        """Of what is to be noted: without the body, however large."""
        if self._large is not None:
            return self._large.names_and_header(message)
        return names_and_header_of(self._entry(message.index), message)

    def _head(self, index: int) -> bytes:
        """Of an entry what it has itself: without bodies that stand elsewhere."""
        return self._entry(index) if self._large is None else self._large.head(index)

    def _content(self, message: Message) -> commands.LetterContent:
        """The content of what is to be routed; of what is large without the body."""
        if self._large is not None:
            return self._large.in_shard(message)
        return content_of(self._entry(message.index), message)

    def _may_route(self, parked: bool) -> bool:
        """Whether there is a turn to route in now. If not, the shard stands in line, to go on by itself then."""
        turns = self._catalog.routing_turns
        if not turns.is_over:
            return True
        if parked not in self._in_line:
            self._in_line.add(parked)
            turns.enter(self, partial(self._turn_came, self._tenure.number, parked))
        return False

    def _turn_came(self, tenure: int, parked: bool) -> None:
        if not self._tenure.is_still(tenure):
            return
        self._in_line.discard(parked)
        if parked:
            self._retry_parked(self._now_ms)
        else:
            self._route(self._now_ms)

    def _decide_due(self, death: Death) -> commands.RouteDecision:
        """About what has waited for a delayed exchange (RULES S1)."""
        original = self._content(death.message)
        vhost, exchange = death.settings.vhost, death.settings.name
        decision = decide_due(self._catalog, vhost, exchange, death.queue_id, original)
        if not decision.targets:
            return commands.RouteDecision(death.sequence, commands.DROPPED_UNROUTABLE)
        return self._routed(death, decision.targets, decision.content, original.body_elsewhere)

    def _decide_record(self, death: Death) -> commands.RouteDecision:
        """About what is to be noted in a journal (RULES R4). Where that can't be done it is parked, or dropped, as a
        dead letter of the queue without a route."""
        settings = death.settings
        journal, fault = self._records.journal(settings)
        if journal is None:
            outcome = commands.DROPPED_UNROUTABLE if settings.dead_letter_at_most_once else commands.PARKED
            if death.queue_id not in self._journals_told and death.sequence <= self._fresh_up_to:
                self._journals_told.add(death.queue_id)
                logger.warning(
                    "queue %r in vhost %r can't have %r as its journal: %s; what is to be noted there is %s",
                    settings.name, settings.vhost, settings.journal, fault,
                    "parked" if outcome == commands.PARKED else "dropped",
                )  # fmt: skip
            return commands.RouteDecision(death.sequence, outcome)
        names, header = self._names_and_header(death.message)
        record = Content(exchange_and_key(settings), self._records.record(death, names, header), b"")
        return self._routed(death, (journal,), record)

    def _tell_dropped(self, death: Death) -> None:
        if death.reason == DUE and death.queue_id not in self._dropped_told:
            self._dropped_told.add(death.queue_id)
            logger.warning(
                "messages of the delayed exchange %r in vhost %r have no route when they are due, and are dropped",
                death.settings.name, death.settings.vhost,
            )  # fmt: skip

    def _decide(self, death: Death) -> commands.RouteDecision:
        if death.reason == DUE:
            return self._decide_due(death)
        if death.reason in RECORDS:
            return self._decide_record(death)
        original = self._content(death.message)
        decision = self._router.decide(death.settings, original, death.reason, death.time_ms // 1000)
        if decision.cycles and death.queue_id not in self._cycles_told:
            self._cycles_told.add(death.queue_id)
            logger.warning(
                "dead letters of queue %r in vhost %r would go in a circle, and are dropped: back to %s",
                death.settings.name, death.settings.vhost, ", ".join(repr(queue.name) for queue in decision.cycles),
            )  # fmt: skip
        if decision.unroutable:
            at_most_once = death.settings.dead_letter_at_most_once
            outcome = commands.DROPPED_UNROUTABLE if at_most_once else commands.PARKED
            return commands.RouteDecision(death.sequence, outcome)
        if not decision.targets:
            return commands.RouteDecision(death.sequence, commands.DROPPED_CYCLE)
        return self._routed(death, decision.targets, decision.content, original.body_elsewhere)

    def _routed(
        self, death: Death, targets: Sequence[QueueRecord], found: PublishedContent, body_elsewhere: int = 0
    ) -> commands.RouteDecision:
        # One that this shard has not made yet gets a lane, as if it were in another: what waits there is not lost.
        local: list[int] = []
        remote: list[tuple[int, int]] = []
        for queue in targets:
            if queue.shard == self.shard.shard_id and self.shard.queue(queue.id) is not None:
                local.append(queue.id)
            else:
                remote.append((queue.shard, queue.id))
        content = commands.LetterContent(
            found.exchange_and_key, found.header, found.body, body_elsewhere=body_elsewhere
        )
        return commands.RouteDecision(death.sequence, commands.ROUTED, local, remote, content)

    def _retry_parked(self, now_ms: int) -> None:
        """Parked deaths are looked at once for each state of the catalog's routes, some at a time, the oldest first: so
        those that have a route go in the order in which they died."""
        self._look_after_retry(now_ms)
        version = self._catalog.routing_version
        newest = self.shard.newest_parked()
        # Where one look does not see them all, it goes on to the newest, however often routes change meanwhile; then
        # there is another.
        if version != self._parked_version and (
            newest <= self._parked_up_to
            or (len(self.shard.parked()) <= DEAD_LETTERS_PER_ENTRY and not self._parked_cut_short)
        ):
            self._parked_up_to = 0
        if newest <= self._parked_up_to or now_ms < self._parked_next_ms or not self._may_route(True):
            return
        if self._parked_up_to == 0:
            self._parked_version = version
        parked = list(self.shard.parked())
        start = bisect_right(parked, self._parked_up_to, key=lambda death: death.sequence)
        batch = parked[start : start + DEAD_LETTERS_PER_ENTRY]
        routable: list[int] = []
        for death in batch:
            if self._decide(death).outcome not in _UNROUTABLE:
                routable.append(death.sequence)
            self._parked_up_to = death.sequence
            if self._catalog.routing_turns.is_over:
                break
        self._parked_cut_short = self._parked_up_to < batch[-1].sequence
        self._parked_next_ms = now_ms + (PARKED_PAUSE_MS if routable else PARKED_REST_MS)
        if routable:
            self._retried.append((routable[0], now_ms))
            self._give(commands.encode_retry_parked(routable))

    def _look_after_retry(self, now_ms: int) -> None:
        """Parked deaths whose RETRY_PARKED got lost are looked at again: routes need not change for that."""
        retried = self._retried
        while retried and not self.shard.is_parked(retried[0][0]):
            retried.popleft()
        if retried and now_ms - retried[0][1] >= AGAIN_MS:
            self._parked_up_to = min(self._parked_up_to, retried[0][0] - 1)
            self._parked_next_ms = min(self._parked_next_ms, now_ms)
            retried.clear()

    def _freshen(
        self, death_sequence: int, closable: tuple[int, ...], then: Callable[[], None] | None = None
    ) -> None:
        """After a barrier: deaths up to this one may be unroutable, lanes to these queues may be closed."""
        if self._barrier_under_way:
            return
        self._barrier_under_way = True
        tenure = self._tenure.number

        def fresh() -> None:
            if self._tenure.is_still(tenure):
                self._barrier_under_way = False
                self._has_caught_up = True
                self._fresh_up_to = max(self._fresh_up_to, death_sequence)
                self.lanes.may_close(closable)
                if then is not None:
                    then()

        self._port.barrier(fresh)

    # ------------------------------------------------------------------ deleted queues

    def _bury(self, now_ms: int) -> None:
        deleted = self.shard.deleted
        if not self._removals and now_ms - self._buried_ms >= AGAIN_MS:
            self._burying.clear()
        ids = tuple(islice((id for id in deleted if id not in self._burying), QUEUES_BURIED_PER_COMMAND))
        if not ids:
            return
        self._lost_queues.tell(deleted)
        if len(self._burying) > len(deleted):
            self._burying.intersection_update(deleted)
        self._burying.update(ids)
        self._removals += 1
        self._buried_ms = now_ms
        tenure = self._tenure.number

        def removed(known: bool) -> None:
            # They count as seen to until they have left the shard, a moment after this, or are asked for again.
            if self._tenure.is_still(tenure):
                self._removals -= 1
                if known:
                    self._give(commands.encode_forget_deleted(ids))

        self._port.remove_queues(ids, removed)
