"""What the catalog knows: an immutable record of each vhost, user, permission, node, exchange and so on.

Records are replaced, never changed. Their field order is their stored form (`snapshot.py`): new fields
go to the end and have defaults. Those of which there may be millions are kept from the search for cycles (`gc=False`):
they hold nothing that could hold them.
"""
from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

REPLICATED: Final = 0

DestinationKind = Literal["queue", "exchange"]
ExchangeType = Literal["direct", "fanout", "topic", "headers", "x-delayed-message"]
DELAYED: Final = "x-delayed-message"
"""The type of exchanges whose messages may wait before they are routed (RULES S1)."""
DELAYED_TYPE: Final = "x-delayed-type"
"""The argument that says how such an exchange routes: one of the other types."""
Overflow = Literal["drop-head", "reject-publish", "reject-publish-dlx"]
MemberState = Literal["joining", "member", "leaving", "removed"]
DeadLetterStrategy = Literal["at-least-once", "at-most-once"]
LimitedKind = Literal["vhost", "user"]
ApplyTo = Literal["all", "queues", "classic_queues", "quorum_queues", "streams", "exchanges"]


class VhostRecord(msgspec.Struct, frozen=True, array_like=True):
    """A virtual host: a name space of exchanges and queues."""

    name: str
    description: str = ""
    limits: dict[str, int] = {}
    """See `access_limits`; one that is not there is none."""
    serial: int = 0
    """Tells it from others that had or will have its name."""
    tags: tuple[str, ...] = ()
    default_queue_type: str = ""
    """Of durable queues that are declared without a type; "" is classic."""
    protected: bool = False
    """From deletion."""


class UserRecord(msgspec.Struct, frozen=True, array_like=True):
    """A user. `password_hash` is as `passwords` has it, or empty: no password login."""

    name: str
    password_hash: str
    tags: tuple[str, ...] = ()
    limits: dict[str, int] = {}
    """See `access_limits`; one that is not there is none."""
    serial: int = 0
    """Tells the user from others that had or will have that name: who logged in as one of them is not this one."""

    @property
    def who(self) -> str:
        """What permissions are looked up by, as of `TokenUser`."""
        return self.name


class PermissionRecord(msgspec.Struct, frozen=True, array_like=True):
    """What a user may do in a vhost: regular expressions, searched in resource names.

    The empty expression matches nothing.
    """

    user: str
    vhost: str
    configure: str
    write: str
    read: str


class TopicPermissionRecord(msgspec.Struct, frozen=True, array_like=True):
    """With which routing keys a user may publish to a topic exchange, and bind to it: regular expressions, searched in
    keys, in which {username} and {vhost} stand for those names. Without a record any key will do."""

    user: str
    vhost: str
    exchange: str
    write: str
    read: str


class NodeRecord(msgspec.Struct, frozen=True, array_like=True):
    """A node as last heard of.

    `incarnation` grows at every start of the process; `changed_ms` is catalog time.
    """

    id: int
    name: str
    incarnation: int
    addresses: dict[str, str]
    alive: bool
    changed_ms: int = 0
    levels: tuple[int, int] = (1, 1)
    """The lowest and highest feature level that it knows, as far as was heard here: not the same on all replicas while
    there are members that know of no levels and make snapshots without them."""


class MemberRecord(msgspec.Struct, frozen=True, array_like=True):
    """A node that is to hold replicas, or has held some.

    `id` is never used again. `address` is where other nodes connect. `store` names the data that the node keeps, as
    made up when its folder was first used; "" is not known yet. The states: *joining* has replicas that don't vote,
    until the node has started; *member*; *leaving* keeps replicas that don't vote, until votes are elsewhere;
    *removed* has none, for good. `failure_domain` names what the node may be lost together with, such as its machine;
    "" is not known yet. One that is `away` was silent for so long that others are to vote in its place.
    """

    id: int
    name: str
    address: str
    state: MemberState
    store: str = ""
    changed_ms: int = 0
    failure_domain: str = ""
    away: bool = False


CLUSTER_NAME_PARAMETER: Final = "cluster_name"
"""The global parameter that names the cluster, as in RabbitMQ."""
CLUSTER_ID_PARAMETER: Final = "internal_cluster_id"
"""Shown as one, and never set."""
CLUSTER_TAGS_PARAMETER: Final = "cluster_tags"
"""Shown in the overview, too."""


class GlobalParameterRecord(msgspec.Struct, frozen=True, array_like=True):
    """A value that operators keep under a name, as RabbitMQ's global parameters."""

    name: str
    value: Any


class PolicyRecord(msgspec.Struct, frozen=True, array_like=True):
    """A policy or operator policy of a vhost; see `policies`. `pattern` is searched in the names of what it is for."""

    vhost: str
    name: str
    pattern: str
    definition: dict[str, Any]
    priority: int = 0
    apply_to: ApplyTo = "all"


class QueueSettings(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A queue's arguments, alone or with its policies, as the queue state machine takes them.

    None is "not set". Times in milliseconds.

    `dead_letter_exchange` "" is the default exchange. `delivery_limit` None is unlimited.
    """

    message_ttl_ms: int | None = None
    expires_ms: int | None = None
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    dead_letter_strategy: DeadLetterStrategy = "at-least-once"
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: Overflow = "drop-head"
    delivery_limit: int | None = None
    max_priority: int | None = None
    single_active_consumer: bool = False
    ttl_retroactive: bool = False
    expires_only_if_empty: bool = False
    expires_dead_letter: bool = False
    allow_schedule: bool = False
    expire_anywhere: bool = False
    retry_type: str | None = None
    retry_min_ms: int | None = None
    retry_max_ms: int | None = None
    retry_multiplier: int | None = None
    retry_jitter: float | None = None
    """See `delayed_retries`."""
    allow_msg_ttl: bool = False
    marker_ttl_ms: int | None = None
    key_index: bool = False
    mirror: str | None = None
    sources: tuple[str, ...] = ()
    """Of streams: see `streams`."""
    journal: str | None = None
    """See `journals`."""
    brake_rate: float | None = None
    brake_window_ms: int | None = None
    """See `brakes`."""
    upstream: str | None = None
    """Of a mirror: see `streams`."""


class ExchangeRecord(msgspec.Struct, frozen=True, array_like=True):
    """An exchange. `alternate` names its alternate exchange, from the arguments. One of the type DELAYED has a queue of
    its own, which `Vhost.delay_queue` knows."""

    vhost: str
    name: str
    type: ExchangeType
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = {}
    alternate: str | None = None

    @property
    def routes_as(self) -> str:
        """How it routes: its type, or the one that a delayed exchange was declared with."""
        return str(self.arguments[DELAYED_TYPE]) if self.type == DELAYED else self.type


class BindingRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """From an exchange to a queue or another exchange.

    Two that differ in their arguments alone are two bindings.
    """

    vhost: str
    source: str
    destination_kind: DestinationKind
    destination: str
    routing_key: str
    arguments: dict[str, Any] = {}


class QueueMovesRecord(msgspec.Struct, frozen=True, array_like=True):
    """Where a queue goes to and where it was (docs/decisions/queues.md, 16).

    `target`: the shard to which it is to move, or is moving; 0: none. `sources`: the shards in which it was, each once:
    what was published there may still be on its way. `count`: how often it has moved.
    """

    target: int = 0
    sources: tuple[int, ...] = ()
    count: int = 0


class QueueRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A queue and where it lives.

    `id` is never used again. `owner_node` 0 means replicated: `shard` is then one of the Raft groups 1..S.
    Otherwise the queue lives in the memory of that node alone, in shard 0x10000 + owner_node, and goes with
    that `owner_incarnation` of it. `owner_connection` names the connection of an exclusive queue on its owner
    node and is empty for others. `created_ms` is catalog time. One that `delays` is no client's: what was published to
    the delayed exchange of its name waits in it until it is routed (RULES S1). It goes with that exchange.
    """

    id: int
    vhost: str
    name: str
    shard: int
    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: dict[str, Any]
    settings: QueueSettings
    owner_node: int = REPLICATED
    owner_incarnation: int = 0
    owner_connection: str = ""
    created_ms: int = 0
    moves: QueueMovesRecord | None = None
    """None for a queue that has never been asked to move."""
    delays: bool = False

    @property
    def replicated(self) -> bool:
        return self.owner_node == REPLICATED

    @property
    def moving_to(self) -> int:
        """The shard to which it is to move, 0 for none."""
        return 0 if self.moves is None else self.moves.target

    @property
    def move_number(self) -> int:
        """That of its last move; 0: it never has moved. The next one, or the one that is under way, has 1 more."""
        return 0 if self.moves is None else self.moves.count
