"""Connections, channels and consumers."""

from typing import Any, Literal, Protocol, TypeAlias

from mayfly.node.catalog.token_user import AnyUser
from mayfly.node.operating.ports.client_selection import ClientSelection, Kind

Cancelled: TypeAlias = Literal["cancelled", "unknown", "untold"]
"""Of a consumer that was to be cancelled: "unknown" if there is none, "untold" if its client takes no cancel notices
and would wait for ever."""


class ClientsPort(Protocol):
    """Connections, channels and consumers over all nodes, in RabbitMQ's shape."""

    def sees_all(self, user: AnyUser) -> bool:
        """Whether the user has a tag with which those of all users are seen, not the own ones alone."""

    def may_close_all(self, user: AnyUser) -> bool:
        """Whether the user may close the connections of others."""

    async def count_clients(self, kind: Kind, selection: ClientSelection) -> int:
        """How many there are."""

    async def clients(
        self, kind: Kind, selection: ClientSelection, start: int, most: int
    ) -> tuple[int, list[dict[str, Any]]]:
        """How many there are, and so many of them from a place on."""

    async def client(self, kind: Kind, name: str) -> dict[str, Any] | None:
        """The connection or channel of that name; None where there is none."""

    async def close_connection(self, name: str, reason: str) -> bool:
        """Close it with 320; False if there is none."""

    async def close_channel(self, name: str, reason: str) -> bool:
        """Close it with 406; False if there is none."""

    async def cancel_consumer(self, channel: str, tag: str) -> Cancelled:
        """Cancel a consumer of the channel of that name, by its tag; what it holds stays held."""
