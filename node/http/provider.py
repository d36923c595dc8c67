"""What the HTTP server asks the node for."""

from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol, TypeAlias

from mayfly.node.operating.client_selection import ClientSelection, Kind
from mayfly.node.operating.parked_selection import Selection
from mayfly.node.operating.queue_selection import QueueSelection


class Histogram(NamedTuple):
    """The value of a sample of a histogram: how many there are by bucket, one more than bounds, and their sum."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


#: (name, help, "gauge", "counter" or "histogram", [(labels, value), ...]). A counter's name may leave `_total` out.
Metric: TypeAlias = tuple[str, str, str, Sequence[tuple[Mapping[str, str], float | Histogram]]]


class StatusProvider(Protocol):
    """A running node as others see it. All methods answer from memory: at once, or in steps between which the node does
    other work."""

    def is_live(self) -> bool:
        """False: the process should be replaced."""

    def readiness(self) -> tuple[bool, str]:
        """Whether clients can be served, and the reason where they cannot."""

    def alarms(self) -> list[str]:
        """Why publishers are blocked, of this node in full, of others which there are; consumers are served."""

    async def status(self) -> dict[str, Any]:
        """Nodes, groups, queues and alarms as this node knows them; goes through JSON."""

    def queue_info(self, vhost: str, name: str) -> dict[str, Any] | None:
        """One queue as this node has it; None if it knows of none. No use of it (L2).

        With `exact` False not all of its messages were looked at; ask again and some more are.
        """

    async def queues(self, selection: QueueSelection) -> tuple[list[dict[str, Any]], int]:
        """These queues by vhost and name, as this node has them, and how many more there are than it may be."""

    async def freshness(self, vhost: str | None = None, name: str | None = None) -> dict[str, Any]:
        """Waits, not long, until this node shows what the cluster has now, of one queue or of all. `current` says
        whether it does, and `reason` why not."""

    def queue_metrics(self, rows: Sequence[Mapping[str, Any]], left_out: int) -> Sequence[Metric]:
        """Metrics of the queues in `rows`, from `queues`. Called in a thread: takes nothing but these."""

    async def metrics_snapshot(self) -> Sequence[Metric]:
        """The node's metrics now."""


class OperatorPort(Protocol):
    """What operators may see and do. What changes something answers (status, JSON) when the catalog has decided."""

    async def tags(self, user: str, password: str, loopback: bool) -> tuple[str, ...]:
        """The tags of a user with the right password, who may come from there; none for anybody else. By the catalog
        as it is now, or as this node has it if it has no leader."""

    async def monitor_tags(self, user: str, password: str, loopback: bool) -> tuple[str, ...]:
        """The same by the catalog as this node has it: for pages that show what it has, whatever the others do."""

    def is_own_token(self, text: str) -> bool:
        """Whether that is this node's own token (`node.operating.own_token`)."""

    def may_be_removed_by_token(self, name: str) -> bool:
        """Whether the member (its name or id) is this node, or one that this node hears nothing of."""

    async def freshness(self) -> dict[str, Any]:
        """Waits, not long, until this node shows what the cluster has now. `current` says whether it does, and
        `reason` why not."""

    def members(self) -> list[dict[str, Any]]:
        """The members of the cluster."""

    def cluster(self) -> str:
        """The id of the cluster."""

    def level(self) -> int:
        """The cluster's feature level."""

    def groups(self) -> list[dict[str, Any]]:
        """Who votes in which group, and who shall."""

    def dead_letters(self, selection: Selection) -> dict[str, Any]:
        """Dead letters that wait (RULES D8): the parked ones that are meant, and the lanes."""

    async def settle_dead_letters(self, release: bool, selection: Selection) -> tuple[HTTPStatus, dict[str, Any]]:
        """Have the parked ones that are meant routed again, or dropped; answers when it is done."""

    async def remove_member(self, name: str) -> tuple[HTTPStatus, dict[str, Any]]:
        """Begin to take a member out."""

    def drain(self) -> tuple[HTTPStatus, dict[str, Any]]:
        """Begin to drain this node; `/status` shows how far it has come."""

    async def snapshot(self, folder: str) -> tuple[HTTPStatus, dict[str, Any]]:
        """Copy this node's data to a folder of its machine."""

    async def revive(self) -> tuple[HTTPStatus, dict[str, Any]]:
        """Have a drained node serve again."""

    async def move_group(self, group: int, voters: tuple[str, ...]) -> tuple[HTTPStatus, dict[str, Any]]:
        """Choose the voters of a group; nobody: have them worked out."""

    async def transfer_group(self, group: int, leader: str) -> tuple[HTTPStatus, dict[str, Any]]:
        """Choose the leader of a group among its voters."""


class PolicyWish(NamedTuple):
    """A policy as a client asks for it: what came in JSON is not checked. None: not given."""

    vhost: str
    name: str
    pattern: object
    definition: object
    priority: Any
    apply_to: object
    operator: bool


class User(Protocol):
    """Somebody who has logged in."""

    @property
    def name(self) -> str: ...

    @property
    def tags(self) -> tuple[str, ...]: ...


Changed: TypeAlias = tuple[HTTPStatus, dict[str, Any]]
"""Status and JSON of an answer; nothing in it for an empty one."""


class AccessPort(Protocol):
    """Users, vhosts, permissions and limits, in RabbitMQ's shapes. `at` has the names in the path of a page, by what
    they are of: vhost, user, exchange, limit. What changes something raises ValueError for what can't be, and answers
    (status, JSON or nothing) when the connected nodes have the change: 201, 204, 404, 504."""

    async def login(self, user: str, password: str, loopback: bool) -> User | None:
        """The user, if the password is right and that user may come from there."""

    def may_see(self, user: str, vhost: str) -> bool:
        """Whether the user may see that vhost: by a tag, or by having permissions in it."""

    def users(self, name: str | None = None) -> list[dict[str, Any]]:
        """The user of that name, or all."""

    def vhosts(self, name: str | None = None) -> list[dict[str, Any]]:
        """The vhost of that name, or all."""

    def permissions(self, vhost: str | None, user: str | None) -> list[dict[str, Any]] | None:
        """Of that vhost and user, None for all; None: there is no such vhost or user."""

    def topic_permissions(self, vhost: str | None, user: str | None) -> list[dict[str, Any]] | None:
        """The same for topic permissions."""

    def limits(self, kind: str, name: str | None) -> list[dict[str, Any]] | None:
        """Of that vhost or user, or of all; None: there is no such thing. `kind` is vhost or user."""

    async def put_user(self, at: dict[str, str], content: dict[str, Any], by: str) -> Changed:
        """Add a user, or change its password and tags."""

    async def delete_user(self, at: dict[str, str]) -> Changed:
        """Delete a user; its connections are closed."""

    async def put_vhost(self, at: dict[str, str], content: dict[str, Any], by: str) -> Changed:
        """Add a vhost, in which `by` may do everything, or change its description."""

    async def delete_vhost(self, at: dict[str, str]) -> Changed:
        """Delete a vhost with all in it; its connections are closed."""

    async def put_permissions(self, at: dict[str, str], content: dict[str, Any], by: str) -> Changed:
        """Say what a user may do in a vhost."""

    async def delete_permissions(self, at: dict[str, str]) -> Changed:
        """Take that away."""

    async def put_topic_permissions(self, at: dict[str, str], content: dict[str, Any], by: str) -> Changed:
        """Restrict a user's routing keys at one exchange."""

    async def delete_topic_permissions(self, at: dict[str, str]) -> Changed:
        """Take the restrictions away, at one exchange or at all of the vhost."""

    async def put_limit(self, at: dict[str, str], content: dict[str, Any], by: str) -> Changed:
        """Set a limit of a vhost or user."""

    async def delete_limit(self, at: dict[str, str]) -> Changed:
        """Take it away."""


class ClientsPort(Protocol):
    """Connections, channels and consumers over all nodes, in RabbitMQ's shape."""

    def sees_all(self, user: str) -> bool:
        """Whether the user has a tag with which those of all users are seen, not the own ones alone."""

    def may_close_all(self, user: str) -> bool:
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

    async def set_policy(self, wish: PolicyWish) -> tuple[HTTPStatus, dict[str, Any]]:
        """Put a policy in its place; answers when it is committed and applied here: 201, 204, 400, 404, 504."""

    async def clear_policy(self, vhost: str, name: str, operator: bool) -> tuple[HTTPStatus, dict[str, Any]]:
        """Take a policy away; answers when that is committed and applied here: 204, 404, 504."""

    def vhosts_seen(self, user: str) -> list[str]:
        """The vhosts that the user may see."""

    def queue(self, vhost: str, name: str) -> dict[str, Any] | None:
        """One queue in RabbitMQ's shape; None where there is none. No use of it (L2)."""

    async def queue_names(self, vhosts: Iterable[str]) -> list[tuple[str, str]]:
        """Vhost and name of the queues in these vhosts, in no order; the node does other work in between."""

    async def overview(self, user: str) -> dict[str, Any]:
        """The cluster in RabbitMQ's shape: all of it for who has a tag that lets him see all, else what is in the
        vhosts that the user may see."""

    def feature_flags(self) -> list[dict[str, Any]]:
        """In RabbitMQ's shape, those that go with the version that tools are told (RULES Q4)."""

    def nodes(self) -> list[dict[str, Any]]:
        """The members in RabbitMQ's shape; of this node more than of the others."""

    async def delete_queue(
        self, user: str, vhost: str, name: str, if_unused: bool, if_empty: bool
    ) -> tuple[HTTPStatus, dict[str, Any]]:
        """Delete a queue as the user may; answers when the connected nodes know: 204, 400, 401, 404, 504."""
