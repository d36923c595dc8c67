"""One queue: its messages in order, who holds them, its lease and its counts. HOT."""

from typing import Final

from node.shard.consumers import Consumers, Holder
from node.shard.lease import Lease
from node.shard.line import PIECE, Line
from node.shard.settings import DROP_HEAD, REJECT_PUBLISH_DLX, ShardQueueSettings, decode_settings

UNLIMITED: Final = 1 << 62
_NO_HOLDERS: Final[dict[int, Holder]] = {}
_NO_SOURCES: Final[dict[int, int]] = {}
"""What all queues that nobody holds messages of, or that no dead letters came to, have in common; never changed."""


class Queue:
    """A row in the shard's state.

    ``returned`` comes before ``ready``: messages that came back, in order of their return, then those never
    delivered (and, without a delivery limit, those requeued by a consumer, at the end). ``received`` has, per
    source of transfers, the highest sequence enqueued (RULES D6). ``touched`` marks work for the end of the
    entry.

    A queue with a limit either ``drops`` its oldest messages or ``refuses`` new ones; with ``refusals_die`` these
    are dead-lettered. ``overflowed``, ``refused`` and ``delivery_limited`` count the messages that went for it.
    ``kept`` says that the lease has run out and the queue stays until it is empty (RULES L11).

    A node has as many of these as the cluster has queues, and most of them are idle: what an idle queue does not need
    is made when it is needed, and ``settings`` are kept as bytes until somebody asks.
    """

    __slots__ = (
        "_settings",
        "acknowledged",
        "auto_delete",
        "consumers",
        "dead_lettered",
        "dead_letters",
        "deleted",
        "delivered",
        "delivery_limit",
        "delivery_limited",
        "drops",
        "duplicates",
        "enqueued",
        "expired",
        "expires_ms",
        "held_bytes",
        "held_count",
        "holders",
        "kept",
        "lease",
        "max_length",
        "max_length_bytes",
        "overflowed",
        "queue_id",
        "ready",
        "ready_bytes",
        "received",
        "refusals_die",
        "refused",
        "refuses",
        "returned",
        "settings_bytes",
        "touched",
        "ttl_ms",
    )

    def __init__(
        self, queue_id: int, settings: ShardQueueSettings, settings_bytes: bytes, lease: Lease, piece: int = PIECE
    ) -> None:
        self.queue_id = queue_id
        self.lease = lease
        self.ready = Line(piece)
        self.returned = Line(piece)
        self.ready_bytes = 0
        self.held_count = 0
        self.held_bytes = 0
        self.holders = _NO_HOLDERS
        self.consumers = Consumers(settings.single_active_consumer)
        self.received = _NO_SOURCES
        self.enqueued = 0
        self.delivered = 0
        self.acknowledged = 0
        self.expired = 0
        self.dead_lettered = 0
        self.duplicates = 0
        self.overflowed = 0
        self.refused = 0
        self.delivery_limited = 0
        self.kept = False
        self.touched = False
        self.deleted = False
        self._settings: ShardQueueSettings | None = None
        self.settings_bytes = settings_bytes
        self.ttl_ms = -1
        self.expires_ms = -1
        self.delivery_limit = -1
        self.dead_letters = False
        self.auto_delete = False
        self.max_length = UNLIMITED
        self.max_length_bytes = UNLIMITED
        self.drops = False
        self.refuses = False
        self.refusals_die = False
        self.configure(settings, settings_bytes)

    def configure(self, settings: ShardQueueSettings, settings_bytes: bytes) -> None:
        """Take over the settings (which queue has a single active consumer is decided once, at its creation).
        """
        self._settings = None
        self.settings_bytes = settings_bytes
        self.ttl_ms = -1 if settings.message_ttl_ms is None else settings.message_ttl_ms
        self.expires_ms = -1 if settings.expires_ms is None else settings.expires_ms
        self.delivery_limit = -1 if settings.delivery_limit is None else settings.delivery_limit
        self.dead_letters = settings.dead_letter_exchange is not None
        self.auto_delete = settings.auto_delete
        self.max_length = UNLIMITED if settings.max_length is None else settings.max_length
        self.max_length_bytes = UNLIMITED if settings.max_length_bytes is None else settings.max_length_bytes
        limited = settings.max_length is not None or settings.max_length_bytes is not None
        self.drops = limited and settings.overflow == DROP_HEAD
        self.refuses = limited and settings.overflow != DROP_HEAD
        self.refusals_die = settings.overflow == REJECT_PUBLISH_DLX and self.dead_letters

    @property
    def settings(self) -> ShardQueueSettings:
        """What the queue was told about itself. The same object every time, until it is told anew."""
        settings = self._settings
        if settings is None:
            settings = decode_settings(self.settings_bytes)
            self._settings = settings
        return settings

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

    def forget_source(self, source: int) -> None:
        """Nothing comes from this source any more."""
        if source in self.received:
            del self.received[source]

    def ready_count(self) -> int:
        """Messages that nobody holds, expired ones that have not left yet among them (RULES T6)."""
        return self.ready.count() + self.returned.count()

    def is_over_limit(self) -> bool:
        """Whether more is ready than may be. What is held does not count, as in RabbitMQ's quorum queues."""
        return self.ready_count() > self.max_length or self.ready_bytes > self.max_length_bytes

    def fits(self, body_bytes: int) -> bool:
        """Whether one more message with such a body may be ready."""
        return (
            self.ready_count() < self.max_length and self.ready_bytes + body_bytes <= self.max_length_bytes
        )

    def is_empty(self) -> bool:
        """Whether it has no messages at all, held ones included."""
        return self.held_count == 0 and self.ready_count() == 0

    def next_deadline_ms(self) -> int:
        """The earlier deadline of the two heads, -1 for none: when this queue has something to expire."""
        one = self.returned.first_deadline_ms()
        two = self.ready.first_deadline_ms()
        if one < 0 or (0 <= two < one):
            return two
        return one

    def deadline_ms(self, now_ms: int, ttl_ms: int) -> int:
        """The deadline of a message enqueued now with this TTL of its own, -1 for none (RULES T3, T4)."""
        if ttl_ms < 0 or 0 <= self.ttl_ms < ttl_ms:
            ttl_ms = self.ttl_ms
        return now_ms + ttl_ms if ttl_ms >= 0 else -1
