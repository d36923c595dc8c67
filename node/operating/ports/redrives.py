"""Messages of dead-letter queues on their way back, as users of the management API see and start it (RULES R1)."""

from collections.abc import Collection
from typing import Final, NamedTuple, Protocol

from mayfly.node.catalog.token_user import AnyUser
from mayfly.node.operating.ports.answers import Answer

MOST_SHOWN: Final = 100
"""Messages that a preview shows."""
PREVIEW_MS: Final = 10_000
"""A preview that takes longer says what it has found so far, if it was not given more time."""
LONGEST_PREVIEW_MS: Final = 600_000
"""More than that nobody gets."""


class RedriveWish(NamedTuple):
    """Which messages are to go, and where to; "" and None for any. Without a ``target_queue`` or ``target_exchange``
    each goes back to the queue in which it died. ``target_key`` goes with an exchange, None for the key that a message
    had; ``key`` is a filter. ``rate``: messages a second, 0 for as fast as it goes. Ages are of the message in this
    queue."""

    target_queue: str | None = None
    target_exchange: str | None = None
    target_key: str | None = None
    reason: str | None = None
    from_queue: str | None = None
    key: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    min_age_ms: int | None = None
    max_age_ms: int | None = None
    rate: int = 0


class RedrivePort(Protocol):
    """Who asks is a user with rights: to all of it takes reading from the queue, as to purge it does, and to preview or
    start a redrive besides writing to the exchange it goes to, which is the default exchange for queues. 404 where
    there is no such queue or target."""

    async def progress(self, user: AnyUser, vhost: str, queue: str) -> Answer:
        """The redrive that is under way, or the last one; `state` is `none` if there was none."""

    async def listed(self, vhosts: Collection[str] | None) -> Answer:
        """`redrives` of these vhosts, None for all: those under way first."""

    async def preview(
        self, user: AnyUser, vhost: str, queue: str, wish: RedriveWish, shown: int, within_ms: int
    ) -> Answer:
        """What a start would move now: how many (`moves`), where to (`targets`), and the first of them (`messages`);
        `complete` says whether all of the queue was looked at in time, `within_ms`."""

    async def start(self, user: AnyUser, vhost: str, queue: str, wish: RedriveWish) -> Answer:
        """Begin; 400 while another one is under way."""

    async def change(self, user: AnyUser, vhost: str, queue: str, state: str | None, rate: int | None) -> Answer:
        """`paused` or `running`, another rate, or both."""

    async def cancel(self, user: AnyUser, vhost: str, queue: str) -> Answer:
        """It moves nothing more."""
