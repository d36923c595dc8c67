"""What RabbitMQ's management API asks for, beside users and definitions."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from mayfly.node.catalog.token_user import AnyUser
from mayfly.node.operating.ports.answers import Answer
from mayfly.node.operating.ports.clients import ClientsPort
from mayfly.node.operating.ports.queue_selection import Figures
from mayfly.node.operating.ports.users import User

MOST_COUNTED: Final = 10_000
"""Queues whose messages are added up for a page."""


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

    def auth(self) -> dict[str, Any]:
        """How to log in."""

    def has_vhost(self, vhost: str) -> bool:
        """Whether there is such a vhost."""

    def may_see(self, user: AnyUser, vhost: str) -> bool:
        """Whether the user may see that vhost: by a tag, or by having permissions in it."""

    def may_have_policies(self, user: AnyUser, vhost: str) -> bool:
        """Whether the user may come to policies of that vhost: administrators, and who has permissions in it."""

    def policies(self, vhost: str | None, operator: bool) -> list[dict[str, Any]]:
        """The policies of a vhost (None: of all), in RabbitMQ's shape."""

    async def set_policy(self, wish: PolicyWish) -> Answer:
        """Put a policy in its place; answers when it is committed and applied here: 201, 204, 400, 404, 504."""

    async def clear_policy(self, vhost: str, name: str, operator: bool) -> Answer:
        """Take a policy away; answers when that is committed and applied here: 204, 404, 504."""

    def vhosts_seen(self, user: AnyUser) -> list[str]:
        """The vhosts that the user may see."""

    async def queues(self, names: Sequence[tuple[str, str]], figures: Figures = "all") -> list[dict[str, Any]]:
        """Queues by vhost and name in RabbitMQ's shape and in that order, without those that are not there. No use of
        them (L2). What is in a queue is left out where no node with its shard has told it, and `unknown` says so."""

    async def timed_queues(self, names: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """The same with their ages, deadlines and leases, in the fields of `/queues`."""

    async def timed_queue(self, vhost: str, name: str) -> dict[str, Any] | None:
        """One of them with its settings, and where each comes from; None where there is none."""

    def queues_count(self) -> int:
        """How many queues there are, in all vhosts."""

    async def queue_names_by(self, column: str, vhosts: Collection[str]) -> Sequence[tuple[str, str]] | None:
        """Vhost and name of the queues in these vhosts in the order of that column, "" for that of vhosts and names; it
        may be some seconds old. None if many can't be put in order by it."""

    async def queue_names(self, vhosts: Iterable[str]) -> list[tuple[str, str]]:
        """Vhost and name of the queues in these vhosts, in no order; the node does other work in between."""

    async def overview(self, user: AnyUser, with_stats: bool = True) -> dict[str, Any]:
        """The cluster in RabbitMQ's shape: all of it for who has a tag that lets him see all, else what is in the
        vhosts that the user may see. Shards of which no node has told what is in them are `unknown_shards`, and not in
        the totals."""

    def feature_flags(self) -> list[dict[str, Any]]:
        """In RabbitMQ's shape, those that go with the version that tools are told (RULES Q4)."""

    def global_parameters(self) -> list[dict[str, Any]]:
        """Those that every cluster of RabbitMQ has, and those that were set."""

    async def set_global_parameter(self, name: str, value: object) -> Answer:
        """Keep a value of JSON under a name: 201, 204, 400, 504. `cluster_name` names the cluster."""

    async def clear_global_parameter(self, name: str) -> Answer:
        """Take it away: 204, 404, 504."""

    async def nodes(self) -> list[dict[str, Any]]:
        """The members in RabbitMQ's shape; what each knows of itself alone is left out of those that do not answer."""

    async def vhost_totals(self, vhosts: Sequence[str]) -> dict[str, dict[str, Any]]:
        """How many messages there are, by vhost, and what clients did. The first is left out where there are more than
        MOST_COUNTED queues, or where some can't be asked."""

    async def exchange_stats(self, names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], dict[str, Any]]:
        """What came to exchanges, by vhost and name."""

    async def delayed(self, names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], dict[str, Any]]:
        """Of those that are delayed exchanges, by vhost and name: `messages_delayed` wait, and the next of them is due
        in `next_due_in_ms`, None for none. One whose shard no node tells of is left out."""

    def login_attempts(self, node: str) -> list[dict[str, Any]] | None:
        """By protocol, since the node began or they were forgotten; None for another node than this one."""

    def forget_login_attempts(self) -> None:
        """Those of this node are counted from nothing again."""
