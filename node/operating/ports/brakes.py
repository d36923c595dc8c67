"""Brakes of queues, as users of the management API see and release them (RULES R5)."""

from collections.abc import Collection
from typing import Protocol

from mayfly.node.catalog.token_user import AnyUser
from mayfly.node.operating.ports.answers import Answer


class BrakePort(Protocol):
    """Who asks is a user with rights."""

    async def braked(self, vhosts: Collection[str] | None) -> Answer:
        """The replicated queues of these vhosts, None for all, that are on `brake`: those that have been for longest
        first."""

    async def release(self, user: AnyUser, vhost: str, queue: str) -> Answer:
        """The queue delivers again, and what has failed up to now is forgotten. It takes reading from the queue. 404
        where there is no such queue, 409 where it is not on brake."""
