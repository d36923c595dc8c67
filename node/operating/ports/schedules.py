"""What waits for its time in a queue or for a delayed exchange, as users of the management API see and change it (RULES
S4)."""

from typing import Final, Literal, NamedTuple, Protocol

from mayfly.node.catalog.token_user import AnyUser
from mayfly.node.operating.ports.answers import Answer

MOST_LISTED: Final = 1000
"""Messages of one listing."""


class WaitingPlace(NamedTuple):
    """In which queue, or for which delayed exchange."""

    kind: Literal["queue", "exchange"]
    vhost: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} '{self.name}' in vhost '{self.vhost}'"


class ScheduledWish(NamedTuple):
    """Which messages are listed, in order of due times: at most ``most`` behind the place ``after`` (the ``next`` of
    the listing before, "" for the first), those with a message id, those due from and up to a time, in ms since 1970 as
    the queue's shard counts them; -1 for any."""

    message_id: str = ""
    from_ms: int = -1
    until_ms: int = -1
    after: str = ""
    most: int = 100


class SchedulePort(Protocol):
    """Who asks is a user with rights: to list takes reading from the queue or exchange, to change writing to the
    exchange by which a publisher would do it: the default one for a queue. Raises ValueError for what can't be."""

    async def scheduled(self, user: AnyUser, where: WaitingPlace, wish: ScheduledWish) -> Answer:
        """`messages`, and `next` if there are more."""

    async def change(self, user: AnyUser, where: WaitingPlace, message_id: str, due: tuple[str, int] | None) -> Answer:
        """Cancel what waits under an id, or have it due (`x-delay` or `x-deliver-at`, and ms); 404 if nothing waits."""
