"""What RabbitMQ's management API asks for, beside users and definitions."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from mayfly.node.operating.ports.answers import Answer
from mayfly.node.operating.ports.clients import ClientsPort
from mayfly.node.operating.ports.users import User


class PolicyWish(NamedTuple):
    """A policy as a client asks for it: what came in JSON is not checked. None: not given."""

    vhost: str
    name: str
    pattern: object
    definition: object
    priority: Any
    apply_to: object
    operator: bool


class ManagementPort(ClientsPort, Protocol):
    """What RabbitMQ's management API asks for; `operator` means operator policies instead of policies."""

    async def login(self, user: str, password: str, loopback: bool) -> User | None:
        """The user, if the password is right and that user may come from there."""

    def has_vhost(self, vhost: str) -> bool:
        """Whether there is such a vhost."""

    def may_see(self, user: str, vhost: str) -> bool:
        """Whether the user may see that vhost: by a tag, or by having permissions in it."""

    def may_have_policies(self, user: str, vhost: str) -> bool:
        """Whether the user may come to policies of that vhost: administrators, and who has permissions in it."""

    def policies(self, vhost: str | None, operator: bool) -> list[dict[str, Any]]:
        """The policies of a vhost (None: of all), in RabbitMQ's shape."""

    async def set_policy(self, wish: PolicyWish) -> Answer:
        """Put a policy in its place; answers when it is committed and applied here: 201, 204, 400, 404, 504."""

    async def clear_policy(self, vhost: str, name: str, operator: bool) -> Answer:
        """Take a policy away; answers when that is committed and applied here: 204, 404, 504."""

    def vhosts_seen(self, user: str) -> list[str]:
        """The vhosts that the user may see."""

    async def queues(self, names: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """Queues by vhost and name in RabbitMQ's shape and in that order, without those that are not there. No use of
        them (L2). What is in a queue is left out where no node with its shard has told it, and `unknown` says so."""

    async def queue_names(self, vhosts: Iterable[str]) -> list[tuple[str, str]]:
        """Vhost and name of the queues in these vhosts, in no order; the node does other work in between."""

    async def overview(self, user: str) -> dict[str, Any]:
        """The cluster in RabbitMQ's shape: all of it for who has a tag that lets him see all, else what is in the
        vhosts that the user may see. Shards of which no node has told what is in them are `unknown_shards`, and not in
        the totals."""

    def feature_flags(self) -> list[dict[str, Any]]:
        """In RabbitMQ's shape, those that go with the version that tools are told (RULES Q4)."""

    def nodes(self) -> list[dict[str, Any]]:
        """The members in RabbitMQ's shape; of this node more than of the others."""

    async def delete_queue(
        self, user: str, vhost: str, name: str, if_unused: bool, if_empty: bool
    ) -> Answer:
        """Delete a queue as the user may; answers when the connected nodes know: 204, 400, 401, 404, 504."""
