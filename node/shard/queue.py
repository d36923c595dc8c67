"""One queue: its messages in order, who holds them, its lease and its counts. HOT."""

from node.shard.consumers import Consumers, Holder
from node.shard.lease import Lease
from node.shard.line import Line
from node.shard.settings import ShardQueueSettings


class Queue:
    """A row in the shard's state.

    ``returned`` comes before ``ready``: messages that came back, in order of their return, then those never
    delivered (and, without a delivery limit, those requeued by a consumer, at the end). ``received`` has, per
    source of transfers, the highest sequence enqueued (RULES D6). ``touched`` marks work for the end of the
    entry.
    """

    __slots__ = (
        "acknowledged",
        "auto_delete",
        "consumers",
        "dead_lettered",
        "dead_letters",
        "deleted",
        "delivered",
        "delivery_limit",
        "duplicates",
        "enqueued",
        "expired",
        "expires_ms",
        "held_bytes",
        "held_count",
        "holders",
        "lease",
        "queue_id",
        "ready",
        "ready_bytes",
        "received",
        "returned",
        "settings",
        "settings_bytes",
        "touched",
        "ttl_ms",
    )

    def __init__(
        self, queue_id: int, settings: ShardQueueSettings, settings_bytes: bytes, lease: Lease
    ) -> None:
        self.queue_id = queue_id
        self.lease = lease
        self.ready = Line()
        self.returned = Line()
        self.ready_bytes = 0
        self.held_count = 0
        self.held_bytes = 0
        self.holders: dict[int, Holder] = {}
        self.consumers = Consumers(settings.single_active_consumer)
        self.received: dict[int, int] = {}
        self.enqueued = 0
        self.delivered = 0
        self.acknowledged = 0
        self.expired = 0
        self.dead_lettered = 0
        self.duplicates = 0
        self.touched = False
        self.deleted = False
        self.settings = settings
        self.settings_bytes = settings_bytes
        self.ttl_ms = -1
        self.expires_ms = -1
        self.delivery_limit = -1
        self.dead_letters = False
        self.auto_delete = False
        self.configure(settings, settings_bytes)

    def configure(self, settings: ShardQueueSettings, settings_bytes: bytes) -> None:
        """Take over the settings (which queue has a single active consumer is decided once, at its creation).
        """
        self.settings = settings
        self.settings_bytes = settings_bytes
        self.ttl_ms = -1 if settings.message_ttl_ms is None else settings.message_ttl_ms
        self.expires_ms = -1 if settings.expires_ms is None else settings.expires_ms
        self.delivery_limit = -1 if settings.delivery_limit is None else settings.delivery_limit
        self.dead_letters = settings.dead_letter_exchange is not None
        self.auto_delete = settings.auto_delete

    def ready_count(self) -> int:
        """Messages that nobody holds, expired ones that have not left yet among them (RULES T6)."""
        return self.ready.count() + self.returned.count()

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
