"""Exchanges, queues, bindings and messages, as users of the management API see and change them."""

from collections.abc import Iterable
from typing import Any, Protocol

from mayfly.node.catalog.token_user import AnyUser
from mayfly.node.operating.ports.answers import Answer

Path = dict[str, str]
"""The names in the path of a page, by what they are of."""
Body = dict[str, Any]
"""A body, its values unchecked."""


class TopologyPort(Protocol):
    """In RabbitMQ's shapes. What changes something is done as an AMQP client of that user would do it, with that user's
    permissions; it raises ValueError for a body that can't be, and answers when the connected nodes have the change.
    `amq.default` stands for the exchange without a name."""

    def exchanges(self, vhosts: Iterable[str]) -> list[dict[str, Any]]:
        """Those of these vhosts."""

    def exchange(self, vhost: str, name: str) -> dict[str, Any] | None:
        """One; None where there is none."""

    async def put_exchange(self, user: AnyUser, at: Path, content: Body) -> Answer:
        """Declare it."""

    async def delete_exchange(self, user: AnyUser, at: Path, if_unused: bool) -> Answer:
        """Delete it."""

    def bindings(self, vhosts: Iterable[str]) -> list[dict[str, Any]]:
        """Those of these vhosts."""

    def bindings_of_queue(self, vhost: str, queue: str) -> list[dict[str, Any]] | None:
        """Those that lead to it; None where there is no such queue."""

    def bindings_of_exchange(self, vhost: str, exchange: str, as_source: bool) -> list[dict[str, Any]] | None:
        """Those that begin or end there; None where there is no such exchange."""

    def bindings_between(self, at: Path) -> list[dict[str, Any]] | None:
        """From an exchange to a queue or exchange; None where one of them is missing."""

    def binding(self, at: Path) -> dict[str, Any] | None:
        """The one with the `properties_key` in the path; None where there is none."""

    async def bind(self, user: AnyUser, at: Path, content: Body) -> Answer:
        """Make a binding; the answer has its `properties_key`."""

    async def unbind(self, user: AnyUser, at: Path) -> Answer:
        """Undo the one with the `properties_key` in the path."""

    async def put_queue(self, user: AnyUser, at: Path, content: Body) -> Answer:
        """Declare it."""

    async def delete_queue(self, user: AnyUser, at: Path, if_unused: bool, if_empty: bool) -> Answer:
        """Delete it."""

    async def purge(self, user: AnyUser, at: Path) -> Answer:
        """Take all messages out that no client holds."""

    async def publish(self, user: AnyUser, at: Path, content: Body) -> Answer:
        """Publish a message; `routed` says whether it came to a queue, and then it is stored."""

    async def get(self, user: AnyUser, at: Path, content: Body) -> tuple[int, Any]:
        """Messages from the head of a queue, taken out or put back as `ackmode` says."""

    async def is_alive(self, user: AnyUser, vhost: str) -> Answer:
        """Declare a queue, publish to it and get the message, as RabbitMQ's aliveness test does."""
