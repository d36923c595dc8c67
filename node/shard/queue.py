"""One queue: its messages in order, who holds them, its lease and its counts. HOT."""

from typing import Final

from mayfly.node.shard.consumers import Consumers, Holder
from mayfly.node.shard.counts import Counts
from mayfly.node.shard.lease import Lease
from mayfly.node.shard.line import PIECE, Line
from mayfly.node.shard.message import deadline_ms
from mayfly.node.shard.moving import Moving
from mayfly.node.shard.retiming import Retiming
from mayfly.node.shard.settings import DROP_HEAD, REJECT_PUBLISH_DLX, ShardQueueSettings, decode_terms

UNLIMITED: Final = 1 << 62
_NO_HOLDERS: Final[dict[int, Holder]] = {}
_NO_SOURCES: Final[dict[int, int]] = {}
"""What all queues that nobody holds messages of, or that no dead letters came to, have in common; never changed."""


class Level:
    """The lines of one priority above 0."""

    __slots__ = ("priority", "ready", "returned")

    def __init__(self, priority: int, piece: int) -> None:
        self.priority = priority
        self.returned = Line(piece)
        self.ready = Line(piece)


_NO_LEVELS: Final[list[Level]] = []
"""What all queues without priorities have in common; never changed."""


class Queue(Counts):
    """A row in the shard's state.

    ``levels`` are the lines of the priorities above 0, the highest first; ``returned`` and ``ready`` have the others,
    in most queues all messages. ``returned`` comes before ``ready``: messages that came back, in order of their
    return, then those never delivered (and, without a delivery limit, those requeued by a consumer, at the end).
    ``received`` has, per source of transfers, the highest sequence enqueued (RULES D6); rows stay as long
    as the queue. ``touched`` marks work for the end of the entry.

    A queue with a limit either ``drops`` its oldest messages or ``refuses`` new ones; with ``refusals_die`` these
    are dead-lettered.
    ``retiming`` says which deadlines are others by now than messages that were held then say.
    ``moving``: what a queue has besides that has come from another shard or gone to one. Of one that has left, its
    row stays for what is held and published here (`node.shard.departing`).
    ``kept`` says that the lease has run out and the queue stays until it is empty (RULES L11).

    A node has as many of these as the cluster has queues, and most of them are idle: what an idle queue does not need
    is made when it is needed, and ``settings`` are kept as names and ``terms_bytes`` until somebody asks. Queues with
    the same terms have the same object (`State.shared_terms`).
    """

    __slots__ = (
        "_settings",
        "auto_delete",
        "consumers",
        "dead_letters",
        "deleted",
        "delivery_limit",
        "drops",
        "expires_ms",
        "held_bytes",
        "held_count",
        "holders",
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
        "refusals_die",
        "refuses",
        "retiming",
        "returned",
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
        self.deleted = False
        self.moving: Moving | None = None
        self._settings: ShardQueueSettings | None = None
        self.terms_bytes = terms_bytes
        self.retiming: Retiming | None = None
        self.ttl_ms = -1
        self.expires_ms = -1
        self.delivery_limit = -1
        self.max_priority = 0
        self.dead_letters = False
        self.auto_delete = False
        self.max_length = UNLIMITED
        self.max_length_bytes = UNLIMITED
        self.drops = False
        self.refuses = False
        self.refusals_die = False
        self.configure(terms, terms_bytes)

    def configure(self, terms: ShardQueueSettings, terms_bytes: bytes) -> None:
        """Take over the terms (which queue has a single active consumer is decided once, at its creation)."""
        self._settings = None
        self.terms_bytes = terms_bytes
        self.ttl_ms = -1 if terms.message_ttl_ms is None else terms.message_ttl_ms
        self.expires_ms = -1 if terms.expires_ms is None else terms.expires_ms
        self.delivery_limit = -1 if terms.delivery_limit is None else terms.delivery_limit
        self.dead_letters = terms.dead_letter_exchange is not None
        self.auto_delete = terms.auto_delete
        self.max_priority = terms.max_priority
        self.max_length = UNLIMITED if terms.max_length is None else terms.max_length
        self.max_length_bytes = UNLIMITED if terms.max_length_bytes is None else terms.max_length_bytes
        limited = terms.max_length is not None or terms.max_length_bytes is not None
        self.drops = limited and terms.overflow == DROP_HEAD
        self.refuses = limited and terms.overflow != DROP_HEAD
        self.refusals_die = terms.overflow == REJECT_PUBLISH_DLX and self.dead_letters

    @property
    def settings(self) -> ShardQueueSettings:
        """What the queue was told about itself. The same object every time, until it is told anew."""
        settings = self._settings
        if settings is None:
            settings = decode_terms(self.terms_bytes, self.vhost, self.name)
            self._settings = settings
        return settings

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
    def holds_back(self) -> bool:
        """Whether nothing is to be delivered yet: with a single active consumer, what was delivered in the shard from
        which the queue has come is settled first."""
        moving = self.moving
        return moving is not None and len(moving.guests) > 0 and self.consumers.single_active

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
        """The lines of a priority above 0, made when there are none; they stay."""
        place = 0
        for level in self.levels:
            if level.priority == priority:
                return level
            if level.priority < priority:
                break
            place += 1
        made = Level(priority, self.ready.piece)
        if self.levels:
            self.levels.insert(place, made)
        else:
            self.levels = [made]
        return made

    def ready_line(self, priority: int) -> Line:
        """Where a message of this priority waits that was never delivered."""
        return self.level(priority).ready if priority else self.ready

    def returned_line(self, priority: int) -> Line:
        """Where a message of this priority waits that came back."""
        return self.level(priority).returned if priority else self.returned

    def lines(self) -> list[Line]:
        """All lines, in the order in which messages leave the queue; ``ready`` is the last."""
        lines: list[Line] = []
        for level in self.levels:
            lines += (level.returned, level.ready)
        lines += (self.returned, self.ready)
        return lines

    def is_over_limit(self) -> bool:
        """Whether more is ready than may be. What is held does not count, as in RabbitMQ's quorum queues."""
        return self.ready_count() > self.max_length or self.ready_bytes > self.max_length_bytes

    def fits(self, body_bytes: int) -> bool:
        """Whether one more message with such a body may be ready."""
        return (
            self.ready_count() < self.max_length and self.ready_bytes + body_bytes <= self.max_length_bytes
        )

    def is_returning(self) -> bool:
        """Whether messages that came back in great numbers still have to be dealt with."""
        return self.returned.returning > 0 or self.ready.returning > 0

    def is_empty(self) -> bool:
        """Whether it has no messages at all, held ones included."""
        return self.held_count == 0 and self.ready_count() == 0

    def next_deadline_ms(self) -> int:
        """The earliest deadline of the heads of its lines, -1 for none: when this queue has something to expire."""
        if self.levels:
            return min([ms for ms in [line.first_deadline_ms() for line in self.lines()] if ms >= 0], default=-1)
        one = self.returned.first_deadline_ms()
        two = self.ready.first_deadline_ms()
        if one < 0 or (0 <= two < one):
            return two
        return one

    def deadline_ms(self, now_ms: int, ttl_ms: int) -> int:
        """The deadline of a message enqueued now with this TTL of its own, -1 for none (RULES T3, T4)."""
        return deadline_ms(now_ms, ttl_ms, self.ttl_ms)
