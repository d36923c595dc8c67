"""One queue: its messages in order, who holds them, its lease and its counts. HOT."""

from typing import Final

from mayfly.node.numbers import STREAM_SOURCE
from mayfly.node.shard.brake import Brake
from mayfly.node.shard.consumers import Consumers, Holder
from mayfly.node.shard.counts import Counts
from mayfly.node.shard.dialect import DIALECTS, LAVINMQ, OF_STREAMS, OTTERMQ, RABBITMQ, queue_ttl_of, ttl_rule
from mayfly.node.shard.lease import Lease
from mayfly.node.shard.line import PIECE, Line
from mayfly.node.shard.message import Message, deadline_ms
from mayfly.node.shard.message_id import NO_DIGEST
from mayfly.node.shard.moving import Moving
from mayfly.node.shard.priority import place_of_default
from mayfly.node.shard.redrive import Redrive
from mayfly.node.shard.retiming import Retiming
from mayfly.node.shard.retries import Retries
from mayfly.node.shard.schedule import Schedule
from mayfly.node.shard.settings import DROP_HEAD, REJECT_PUBLISH_DLX, ShardQueueSettings, decode_terms
from mayfly.node.shard.stream import Stream

UNLIMITED: Final = 1 << 62
_LAVINMQ_ZERO: Final = ttl_rule(LAVINMQ, 0)
_NO_HOLDERS: Final[dict[int, Holder]] = {}
_NO_SOURCES: Final[dict[int, int]] = {}
"""What all queues that nobody holds messages of, or that no dead letters came to, have in common; never changed."""


def retries_of(terms: ShardQueueSettings) -> Retries:
    """What these terms, which have some, say of messages that come back."""
    return Retries(
        terms.retry_ways, terms.retry_min_ms, terms.retry_max_ms, terms.retry_multiplier, terms.retry_counts_all,
        terms.retry_jitter_ppm,
    )


class Level:
    """The lines of one priority, ``priority`` is its place (`node.shard.priority`): any but 0."""

    __slots__ = ("priority", "ready", "returned")

    def __init__(self, priority: int, piece: int) -> None:
        self.priority = priority
        self.returned = Line(piece)
        self.ready = Line(piece)


_NO_LEVELS: Final[list[Level]] = []
"""What all queues without priorities have in common; never changed."""


class Queue(Counts):
    """A row in the shard's state.

    ``levels`` are the lines of the places (`node.shard.priority`) above 0, the highest first; ``returned`` and
    ``ready`` have the others, in most queues all messages. ``returned`` comes before ``ready``: messages that came
    back, in order of their return, then those never delivered (and, without a delivery limit, those requeued by a
    consumer, at the end). With a ``default_priority`` all that came back is in ``returned``, whatever its priority, and
    first of all, as in RabbitMQ's quorum queues (RULES Q2).
    ``received`` has, per source of transfers, the highest sequence enqueued (RULES D6); rows stay as long
    as the queue. ``touched`` marks work for the end of the entry; ``active_ms`` is the shard time of the last one that
    changed anything in it, for who looks: 0 if there was none since the snapshot that it is from.

    A queue with a limit either ``drops`` its oldest messages or ``refuses`` new ones; with ``refusals_die`` these
    are dead-lettered.
    ``dialect`` is that of its TTLs (`node.shard.dialect`), and ``ttl_ms`` the TTL rule that follows from it: without a
    dialect of its own its TTL.
    ``retiming`` says which deadlines are others by now than messages that were held then say.
    ``moving``: what a queue has besides that has come from another shard or gone to one. Of one that has left, its
    row stays for what is held and published here (`node.shard.departing`).
    ``schedule`` has the messages that wait for their time, None while there are none; of what nobody holds they are not
    *ready*, but count towards its limits (RULES S2, S3). Publishes may wait where it ``allows_schedule``, and where it
    has ``retries`` what comes back does.
    ``stream``: what one has besides that is a stream (`node.shard.stream`); decided once, at its creation.
    ``expires_anywhere``: what is due leaves from wherever it is in the queue (RULES X2).
    ``redrive``: the one that is under way, or was the last (RULES R1).
    ``journals``: what time removes from it is noted in a stream (RULES R4).
    ``brake``: what has failed in it lately, too much of which stops deliveries (RULES R5); None where nothing does.
    ``kept`` says that the lease has run out and the queue stays until it is empty (RULES L11).

    A node has as many of these as the cluster has queues, and most of them are idle: what an idle queue does not need
    is made when it is needed, and ``settings`` are kept as names and ``terms_bytes`` until somebody asks. Queues with
    the same terms have the same object (`State.shared_terms`).
    """

    __slots__ = (
        "_settings",
        "active_ms",
        "auto_delete",
        "brake",
        "consumers",
        "dead_letters",
        "default_priority",
        "deleted",
        "delivery_limit",
        "dialect",
        "drops",
        "expires_anywhere",
        "expires_ms",
        "held_bytes",
        "held_count",
        "holders",
        "journals",
        "kept",
        "lease",
        "levels",
        "max_length",
        "max_length_bytes",
        "max_priority",
        "moving",
        "name",
        "queue_id",
        "ready",
        "ready_bytes",
        "received",
        "redrive",
        "refuses",
        "retiming",
        "returned",
        "schedule",
        "stream",
        "terms_bytes",
        "touched",
        "ttl_ms",
        "vhost",
    )

    def __init__(
        self, queue_id: int, vhost: str, name: str, terms: ShardQueueSettings, terms_bytes: bytes, lease: Lease,
        piece: int = PIECE,
    ) -> None:
        """``terms``: settings with these ``terms_bytes``, whoever's names are beside them."""
        super().__init__()
        self.queue_id = queue_id
        self.vhost = vhost
        self.name = name
        self.lease = lease
        self.ready = Line(piece)
        self.returned = Line(piece)
        self.levels = _NO_LEVELS
        self.ready_bytes = 0
        self.held_count = 0
        self.held_bytes = 0
        self.holders = _NO_HOLDERS
        self.consumers = Consumers(terms.single_active_consumer)
        self.received = _NO_SOURCES
        self.kept = False
        self.touched = False
        self.active_ms = 0
        self.deleted = False
        self.moving: Moving | None = None
        self.schedule: Schedule | None = None
        self._settings: ShardQueueSettings | None = None
        self.terms_bytes = terms_bytes
        self.retiming: Retiming | None = None
        self.redrive: Redrive | None = None
        self.brake: Brake | None = None
        self.stream: Stream | None = None
        if terms.is_stream:
            self.stream = Stream(piece, terms.key_index, -1 if terms.marker_ttl_ms is None else terms.marker_ttl_ms)
        self.ttl_ms = -1
        self.dialect = RABBITMQ
        self.expires_ms = -1
        self.expires_anywhere = False
        self.delivery_limit = -1
        self.max_priority = 0
        self.default_priority = 0
        self.dead_letters = False
        self.journals = False
        self.auto_delete = False
        self.max_length = UNLIMITED
        self.max_length_bytes = UNLIMITED
        self.drops = False
        self.refuses = False
        self.configure(terms, terms_bytes)

    def configure(self, terms: ShardQueueSettings, terms_bytes: bytes) -> None:
        """Take over the terms (which queue has a single active consumer is decided once, at its creation)."""
        self._settings = None
        self.terms_bytes = terms_bytes
        self.dialect = OF_STREAMS if terms.is_stream else DIALECTS.index(terms.ttl_dialect)
        self.ttl_ms = ttl_rule(self.dialect, -1 if terms.message_ttl_ms is None else terms.message_ttl_ms)
        if self.stream is not None:
            self.stream.honours_ttls = terms.honours_ttls
            self.stream.is_mirror = terms.is_mirror
        self.expires_ms = -1 if terms.expires_ms is None else terms.expires_ms
        self.delivery_limit = -1 if terms.delivery_limit is None else terms.delivery_limit
        self.dead_letters = terms.dead_letter_exchange is not None
        self.journals = terms.journal is not None and self.stream is None
        if not terms.brake_window_ms or self.stream is not None:
            self.brake = None
        elif self.brake is None:
            self.brake = Brake(terms.brake_limit, terms.brake_window_ms)
        else:
            self.brake.limit = terms.brake_limit
            self.brake.window_ms = terms.brake_window_ms
        self.auto_delete = terms.auto_delete
        self.max_priority = terms.max_priority
        self.default_priority = terms.default_priority
        self.max_length = UNLIMITED if terms.max_length is None else terms.max_length
        self.max_length_bytes = UNLIMITED if terms.max_length_bytes is None else terms.max_length_bytes
        anywhere = terms.expire_anywhere and self.stream is None and not self.is_lazy
        if anywhere or self.expires_anywhere:
            self.expires_anywhere = anywhere
            for line in self.lines():
                line.look_anywhere(anywhere)
        limited = terms.max_length is not None or terms.max_length_bytes is not None
        self.drops = limited and terms.overflow == DROP_HEAD
        self.refuses = limited and terms.overflow != DROP_HEAD

    @property
    def settings(self) -> ShardQueueSettings:
        """What the queue was told about itself. The same object every time, until it is told anew."""
        settings = self._settings
        if settings is None:
            settings = decode_terms(self.terms_bytes, self.vhost, self.name)
            self._settings = settings
        return settings

    @property
    def refusals_die(self) -> bool:
        """Whether what it refuses is dead-lettered. Asked only where something is refused, so no queue keeps it."""
        return self.dead_letters and self.settings.overflow == REJECT_PUBLISH_DLX

    @property
    def is_mirror(self) -> bool:
        """Whether it is a stream with the messages of another one alone: nothing but copies may come into it (J4)."""
        return self.stream is not None and self.stream.is_mirror

    def follows_another(self, source: int) -> bool:
        """Whether the source is a stream, and the queue a mirror that has taken over from another one. What it has
        received from shards, of which it keeps nothing, does not count."""
        if source < STREAM_SOURCE or not self.is_mirror or source in self.received:
            return False
        return any(other >= STREAM_SOURCE for other in self.received)

    @property
    def has_left(self) -> bool:
        """Whether the queue is in another shard."""
        return self.moving is not None and self.moving.target_shard != 0

    @property
    def is_arriving(self) -> bool:
        """Whether some of its messages are still on their way from another shard."""
        return self.moving is not None and self.moving.source_shard != 0

    @property
    def returns(self) -> bool:
        """Whether what comes for the queue waits in its lane until all that was in another shard is here."""
        return self.moving is not None and self.moving.returns

    def entry_line(self, priority: int) -> Line:
        """Where a message of this priority comes in that was never delivered."""
        moving = self.moving
        return moving.late if moving is not None and moving.returns else self.ready_line(priority)

    @property
    def is_braked(self) -> bool:
        """Whether nothing is delivered because too much has failed (RULES R5)."""
        return self.brake is not None and self.brake.is_on

    @property
    def has_failures(self) -> bool:
        """Whether its brake has something to remember."""
        return self.brake is not None and self.brake.count > 0

    @property
    def is_between_shards(self) -> bool:
        """Whether some of what is in it may be in another shard, or on its way from one: so what waits under an id
        can't be told here."""
        moving = self.moving
        return moving is not None and (moving.target_shard != 0 or moving.source_shard != 0 or moving.returns)

    @property
    def holds_back(self) -> bool:
        """Whether nothing is to be delivered yet: it is on brake, or, with a single active consumer, what was delivered
        in the shard from which the queue has come is settled first."""
        if self.brake is not None and self.brake.is_on:
            return True
        moving = self.moving
        return moving is not None and len(moving.guests) > 0 and self.consumers.single_active

    @property
    def waits_for_earlier(self) -> bool:
        """Whether messages that were in it before may still have to arrive: what waits for a delayed exchange does not
        leave meanwhile, as it leaves in order (RULES S1)."""
        moving = self.moving
        return self.settings.delays and moving is not None and (moving.source_shard != 0 or moving.returns)

    def forget_move(self) -> None:
        """If nothing of a move is left, nothing is known of it."""
        moving = self.moving
        if moving is not None and not (
            moving.target_shard or moving.source_shard or moving.returns or moving.guests or moving.awaited
        ):
            self.moving = None

    def add_holder(self, holder: Holder) -> None:
        """Somebody more who may hold messages."""
        if self.holders:
            self.holders[holder.order] = holder
        else:
            self.holders = {holder.order: holder}

    def note_received(self, source: int, sequence: int) -> None:
        """Dead letters have come from a source, up to this sequence."""
        if self.received:
            self.received[source] = sequence
        else:
            self.received = {source: sequence}

    def ready_count(self) -> int:
        """Messages that nobody holds, expired ones that have not left yet among them (RULES T6)."""
        count = self.ready.count() + self.returned.count()
        if self.levels:
            for level in self.levels:
                count += level.ready.count() + level.returned.count()
        return count

    def scheduled_count(self) -> int:
        """Messages that wait for their time."""
        return 0 if self.schedule is None else self.schedule.count

    def waiting_count(self) -> int:
        """All that nobody holds: ready or scheduled."""
        return self.ready_count() if self.schedule is None else self.ready_count() + self.schedule.count

    def waiting_bytes(self) -> int:
        """Bytes of the bodies of these."""
        return self.ready_bytes if self.schedule is None else self.ready_bytes + self.schedule.body_bytes

    def has_waiting(self) -> bool:
        """Whether ``waiting_count`` is not 0."""
        return self.schedule is not None or self.has_ready()

    def has_ready(self) -> bool:
        """Whether ``ready_count`` is not 0."""
        if self.ready.items or self.returned.items:
            return True
        if self.levels:
            for level in self.levels:
                if level.ready.items or level.returned.items:
                    return True
        return False

    def level(self, priority: int) -> Level:
        """The lines of a place above 0, made when there are none; they stay."""
        place = 0
        for level in self.levels:
            if level.priority == priority:
                return level
            if level.priority < priority:
                break
            place += 1
        made = Level(priority, self.ready.piece)
        made.ready.look_anywhere(self.expires_anywhere)
        made.returned.look_anywhere(self.expires_anywhere)
        if self.levels:
            self.levels.insert(place, made)
        else:
            self.levels = [made]
        return made

    def ready_line(self, priority: int) -> Line:
        """Where a message of this place waits that was never delivered."""
        return self.level(priority).ready if priority else self.ready

    def returned_line(self, priority: int) -> Line:
        """Where a message of this place waits that came back."""
        return self.level(priority).returned if priority and not self.default_priority else self.returned

    def lines(self) -> list[Line]:
        """All lines, in the order in which messages leave the queue."""
        if not self.default_priority:
            lines: list[Line] = []
            for level in self.levels:
                lines += (level.returned, level.ready)
            lines += (self.returned, self.ready)
            return lines
        # What came back when returns still had their priorities is in the lines of these.
        lines = [self.returned]
        below: list[Line] = []
        middle = place_of_default(self.default_priority)
        for level in self.levels:
            (lines if level.priority > middle else below).extend((level.returned, level.ready))
        return [*lines, self.ready, *below]

    @property
    def allows_schedule(self) -> bool:
        """Whether publishes may say when they are due (RULES S2); of a stream none waits, whatever a policy says."""
        return self.settings.allow_schedule and self.stream is None

    @property
    def is_redriven(self) -> bool:
        """Whether a redrive of it is running or paused."""
        redrive = self.redrive
        return redrive is not None and redrive.is_active

    @property
    def retries(self) -> Retries | None:
        """How what comes back waits (RULES S5); None if it does not."""
        return retries_of(self.settings) if self.settings.retry_ways and self.stream is None else None

    def wait(self, message: Message, digest: bytes = NO_DIGEST) -> None:
        """The message, which is no longer anywhere else, waits until its ``enqueued_ms``. With the digest of its id
        (`node.shard.message_id`) it can be cancelled (RULES S4)."""
        if self.schedule is None:
            self.schedule = Schedule(self.ready.piece)
        self.schedule.put(message, digest)

    def has_more_named(self, digest: bytes, than: int) -> bool:
        """Whether more are scheduled under an id."""
        return self.schedule is not None and self.schedule.has_more(digest, than)

    def take_named(self, digest: bytes, most: int) -> list[Message]:
        """At most so many of what is scheduled under an id; they leave."""
        if self.schedule is None:
            return []
        taken = self.schedule.remove(digest, most)
        if not self.schedule.count:
            self.schedule = None
        return taken

    def take_scheduled(self, until_ms: int, most: int, digests: list[bytes] | None = None) -> list[Message]:
        """The first of what is scheduled, at most so many, that are due then; they leave. The digests of their ids go
        into ``digests``."""
        if self.schedule is None:
            return []
        taken = self.schedule.take(until_ms, most, digests)
        if not self.schedule.count:
            self.schedule = None
        return taken

    def leave_schedule(self) -> list[Line]:
        """All that is scheduled leaves, as lines."""
        if self.schedule is None:
            return []
        lines = self.schedule.lines()
        self.schedule = None
        return lines

    def is_over_limit(self) -> bool:
        """Whether more is ready or scheduled than may be. What is held does not count, as in RabbitMQ's quorum queues.
        """
        return self.waiting_count() > self.max_length or self.waiting_bytes() > self.max_length_bytes

    def fits(self, body_bytes: int) -> bool:
        """Whether one more message with such a body may be ready or scheduled."""
        return (
            self.waiting_count() < self.max_length and self.waiting_bytes() + body_bytes <= self.max_length_bytes
        )

    def is_returning(self) -> bool:
        """Whether messages that came back in great numbers still have to be dealt with."""
        return self.returned.returning > 0 or self.ready.returning > 0

    def is_empty(self) -> bool:
        """Whether it has no messages at all, held ones included."""
        return self.held_count == 0 and self.waiting_count() == 0

    def next_due_ms(self) -> int:
        """When this queue has something to do by itself, -1 for never as things are: the earliest deadline of the heads
        of its lines, when the first of what is scheduled is due, or when its brake ends."""
        if self.stream is not None:
            return self.stream.next_due_ms(self.ready, queue_ttl_of(self.ttl_ms))
        deadline_ms = -1 if self.is_lazy else self.next_deadline_ms()
        if self.brake is not None and self.brake.is_on:
            ends_ms = self.brake.ends_ms()
            deadline_ms = ends_ms if deadline_ms < 0 else min(deadline_ms, ends_ms)
        if self.schedule is None or self.waits_for_earlier:
            return deadline_ms
        due_ms = self.schedule.next_due_ms()
        return due_ms if deadline_ms < 0 or 0 <= due_ms < deadline_ms else deadline_ms

    @property
    def is_lazy(self) -> bool:
        """Whether nothing expires but when it is looked at: to be delivered, got, or put back (RULES X1)."""
        return self.dialect == OTTERMQ

    def next_deadline_ms(self) -> int:
        """The earliest deadline of the heads of its lines, -1 for none: when this queue has something to expire. Where
        it ``expires_anywhere``, one before which none is, whatever is in line."""
        if self.expires_anywhere:
            return min([line.soonest_ms for line in self.lines() if line.soonest_ms >= 0], default=-1)
        if self.levels:
            return min([ms for ms in [line.first_deadline_ms() for line in self.lines()] if ms >= 0], default=-1)
        one = self.returned.first_deadline_ms()
        two = self.ready.first_deadline_ms()
        if one < 0 or (0 <= two < one):
            return two
        return one

    def oldest_head_ms(self) -> int:
        """When the oldest of the heads of its lines was enqueued, -1 where nothing is ready."""
        one = self.returned.first_enqueued_ms()
        two = self.ready.first_enqueued_ms()
        oldest_ms = two if one < 0 or (0 <= two < one) else one
        for level in self.levels:
            for ms in (level.returned.first_enqueued_ms(), level.ready.first_enqueued_ms()):
                if ms >= 0 and (oldest_ms < 0 or ms < oldest_ms):
                    oldest_ms = ms
        return oldest_ms

    def deadline_ms(self, now_ms: int, ttl_ms: int) -> int:
        """The deadline of a message enqueued now with this TTL of its own, -1 for none (RULES T3, T4)."""
        if self.dialect == LAVINMQ and self.consumers.bands and (ttl_ms == 0 or self.ttl_ms == _LAVINMQ_ZERO):
            return -1
        return deadline_ms(now_ms, ttl_ms, self.ttl_ms)
