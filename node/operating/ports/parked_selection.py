"""Which parked dead letters an operator means (RULES D8)."""

from typing import NamedTuple

from mayfly.node.shard.outbox import Death


class Selection(NamedTuple):
    """Which parked dead letters are meant: those that agree with all that is given."""

    vhost: str | None = None
    queue: str | None = None
    reason: str | None = None
    shard: int | None = None

    def has(self, death: Death) -> bool:
        """Whether this one is meant; the shard is looked at elsewhere."""
        settings = death.settings
        return (
            (self.vhost is None or settings.vhost == self.vhost)
            and (self.queue is None or settings.name == self.queue)
            and (self.reason is None or death.reason == self.reason)
        )
