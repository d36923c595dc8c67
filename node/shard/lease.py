"""The lease of a queue: how long it may stay unused (RULES L). HOT."""

from typing import Final

# What a lease was used by last (RULES L2, L3).
CREATED: Final = "created"
DECLARED: Final = "declared"
GOT: Final = "basic.get"
CONSUMED: Final = "basic.consume"
RELEASED: Final = "the last consumer left"
USES: Final = (CREATED, DECLARED, GOT, CONSUMED, RELEASED)


class Lease:
    """Counts unused time. ``epoch`` grows with every renewal, so that a decision to delete names what it saw
    (L5).

    ``started_ms`` is lease time (``led_ms``, L7); ``last_activity_ms`` is shard time, for the event (L10), and
    ``last_use``, one of USES, what that activity was.
    ``suspended_by`` counts consumers that are attached or, cancelled, still hold messages (L3): with one or
    more the lease does not run. The epoch is kept for queues without x-expires as well: a policy may add it
    (L9).
    """

    __slots__ = ("epoch", "last_activity_ms", "last_use", "started_ms", "suspended_by")

    def __init__(self, led_ms: int, time_ms: int) -> None:
        self.epoch = 1
        self.started_ms = led_ms
        self.last_activity_ms = time_ms
        self.last_use = CREATED
        self.suspended_by = 0

    def renew(self, led_ms: int, time_ms: int) -> None:
        """Used: the full period starts again."""
        self.epoch += 1
        self.started_ms = led_ms
        self.last_activity_ms = time_ms

    def has_run_out(self, epoch: int, expires_ms: int, led_ms: int) -> bool:
        """Whether the queue goes by this lease now (L4, L5)."""
        return (
            expires_ms >= 0
            and self.epoch == epoch
            and self.suspended_by == 0
            and led_ms >= self.started_ms + expires_ms
        )
