"""Users, vhosts, permissions and limits."""

from typing import Any, Protocol

from mayfly.node.catalog.token_user import AnyUser
from mayfly.node.operating.ports.answers import Answer


class AccessPort(Protocol):
    """Users, vhosts, permissions and limits, in RabbitMQ's shapes. `at` has the names in the path of a page, by what
    they are of: vhost, user, exchange, limit. What changes something raises ValueError for what can't be, and answers
    (status, JSON or nothing) when the connected nodes have the change: 201, 204, 404, 504."""

    def may_see(self, user: AnyUser, vhost: str) -> bool:
        """Whether the user may see that vhost: by a tag, or by having permissions in it."""

    def users(self, name: str | None = None) -> list[dict[str, Any]]:
        """The user of that name, or all."""

    def users_without_permissions(self) -> list[dict[str, Any]]:
        """Those who may do nothing in any vhost."""

    async def delete_users(self, content: dict[str, Any]) -> Answer:
        """Delete the `users` of a body, by name; those that are not there are left out."""

    def vhosts(self, name: str | None = None) -> list[dict[str, Any]]:
        """The vhost of that name, or all."""

    def permissions(self, vhost: str | None, user: str | None) -> list[dict[str, Any]] | None:
        """Of that vhost and user, None for all; None: there is no such vhost or user."""

    def topic_permissions(self, vhost: str | None, user: str | None) -> list[dict[str, Any]] | None:
        """The same for topic permissions."""

    def limits(self, kind: str, name: str | None) -> list[dict[str, Any]] | None:
        """Of that vhost or user, or of all; None: there is no such thing. `kind` is vhost or user."""

    async def put_user(self, at: dict[str, str], content: dict[str, Any], by: AnyUser) -> Answer:
        """Add a user, or change its password and tags."""

    def hash_password(self, password: str) -> dict[str, Any]:
        """A hash for `put_user`, with `ok` for its name, as RabbitMQ makes them: salted SHA-256."""

    async def delete_user(self, at: dict[str, str]) -> Answer:
        """Delete a user; its connections are closed."""

    async def put_vhost(self, at: dict[str, str], content: dict[str, Any], by: AnyUser) -> Answer:
        """Add a vhost, in which `by` may do everything, or change its description, tags and default type of queues, as
        far as the body has them."""

    async def delete_vhost(self, at: dict[str, str]) -> Answer:
        """Delete a vhost with all in it; its connections are closed. 412 for one that is protected from it."""

    async def protect_vhost(self, vhost: str, protected: bool) -> Answer:
        """Keep a vhost from being deleted, or let it be deleted again."""

    async def put_permissions(self, at: dict[str, str], content: dict[str, Any], by: AnyUser) -> Answer:
        """Say what a user may do in a vhost."""

    async def delete_permissions(self, at: dict[str, str]) -> Answer:
        """Take that away."""

    async def put_topic_permissions(self, at: dict[str, str], content: dict[str, Any], by: AnyUser) -> Answer:
        """Restrict a user's routing keys at one exchange."""

    async def delete_topic_permissions(self, at: dict[str, str]) -> Answer:
        """Take the restrictions away, at one exchange or at all of the vhost."""

    async def put_limit(self, at: dict[str, str], content: dict[str, Any], by: AnyUser) -> Answer:
        """Set a limit of a vhost or user."""

    async def delete_limit(self, at: dict[str, str]) -> Answer:
        """Take it away."""
