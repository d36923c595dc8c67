"""Which queues an operator asks about."""

from typing import Final, NamedTuple

MOST_QUEUES: Final = 10_000
"""As many are told about at most, however many are asked for."""
USUAL_QUEUES: Final = 1000


class QueueSelection(NamedTuple):
    """The queues of a vhost (None: of all) with one of these names (none: with any) and this text in their name."""

    vhost: str | None = None
    names: frozenset[str] = frozenset()
    part: str = ""
    limit: int = USUAL_QUEUES

    def has(self, vhost: str, name: str) -> bool:
        """Whether it is one of them."""
        return (
            (self.vhost is None or vhost == self.vhost)
            and (not self.names or name in self.names)
            and self.part in name
        )
