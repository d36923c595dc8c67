"""What time will do to queues, and what a policy would do to them (RULES R2, R3)."""

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple, Protocol

from mayfly.node.operating.ports.answers import Answer
from mayfly.node.operating.ports.management import PolicyWish

USUAL_WINDOWS_MS: Final = (60_000, 3_600_000, 86_400_000)
"""The next minute, hour and day."""
LONGEST_WINDOW_MS: Final = 315_360_000_000
"""Ten years, as the longest TTL."""
MOST_WINDOWS: Final = 5
USUAL_ROWS: Final = 100
MOST_ROWS: Final = 1000


class ForecastWish(NamedTuple):
    """What a forecast is to be about: queues of these vhosts, None for all; at most so many rows; windows from now on,
    the shortest first."""

    vhosts: Collection[str] | None
    windows_ms: Sequence[int] = USUAL_WINDOWS_MS
    limit: int = USUAL_ROWS
    led_here: bool = False
    """Whether it is of the shards that this node leads alone, and of its own transient queues."""


class OutlookPort(Protocol):
    """What lies ahead. It is made in steps, between which the node does other work; of shards without a replica here
    other nodes are asked, and of those that none of them tells anything about the answer says `unknown_shards`."""

    async def forecast(self, wish: ForecastWish) -> dict[str, Any]:
        """What happens to queues by itself in each window. Those with most to happen in the longest one come first;
        `totals` are of all, those that are `left_out` of the rows among them. No use of queues (L2)."""

    async def try_policy(self, wish: PolicyWish, limit: int = USUAL_ROWS) -> Answer:
        """What the policy would change at once if it was set now: the queues, those to which most would happen first,
        and `totals` of all. 200, or what `ManagementPort.set_policy` would answer to a bad one. Nothing is set."""
