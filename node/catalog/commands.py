"""The commands of the catalog: what the log of group 0 carries, and its wire form.

A command is encoded as a MessagePack map with the field `command` for its name. Unknown fields are ignored,
unknown commands are an error: every node must be able to apply what any node may propose.
"""
from __future__ import annotations

from typing import Any, Final

import msgspec

from mayfly.node.catalog.nesting import nested_deeper
from mayfly.node.catalog.records import DestinationKind, LimitedKind


class MalformedCommand(ValueError):
    """The bytes are not a catalog command this version knows."""


class Rights(msgspec.Struct, frozen=True, array_like=True):
    """Whose command it is, and what allowed it: the catalog's word on that user where the command was checked, as
    `permissions.rights_digest` has it.

    Replicas can't check permissions on apply, for the reason given at SetPermissions. So the log asks whether what was
    checked with still counts, and answers OtherRights if it does not; who has sent the command checks and sends it
    anew. What nobody needs a permission for has no rights, and neither has what was written below LEVEL_RIGHTS.
    """

    user: str
    digest: bytes


class DeclareQueue(msgspec.Struct, frozen=True, tag_field="command", tag="declare_queue"):
    """Declare a queue on behalf of a client of `node_id`. Answers QueueDeclared or Refusal.

    `name` is final: for a server-named queue the caller made it up. `connection` names the client's
    connection on that node; it becomes the owner of an exclusive queue. `leader_locator` is what the declaring node
    knows of where the leader is to be (`Catalog.leader_locator`): policies' patterns can't be matched on apply, for the
    reason given at SetPermissions. Nodes that don't know it pass it over, and it counts from LEVEL_LEADER_LOCATORS on.
    """

    vhost: str
    name: str
    durable: bool = False
    exclusive: bool = False
    auto_delete: bool = False
    arguments: dict[str, Any] = {}
    server_named: bool = False
    node_id: int = 0
    incarnation: int = 0
    connection: str = ""
    leader_locator: str = ""
    rights: Rights | None = None
    """To make it: who may only look up what is there does not send this command."""


class RemoveQueues(msgspec.Struct, frozen=True, tag_field="command", tag="remove_queues"):
    """Remove queues that are gone from their shard. Answers QueuesRemoved.

    Ids that are not there are passed over.
    """

    ids: tuple[int, ...]


class MoveQueue(msgspec.Struct, frozen=True, tag_field="command", tag="move_queue"):
    """A replicated queue is to move to another shard. From LEVEL_QUEUE_MOVES on. Answers Done (changed=False if it is
    there, or on its way there) or Refusal. If it `delays`, `name` is the exchange whose messages wait in it.

    From LEVEL_NUMBERED_MOVES on it is refused where the queue of that name is another one than `id`, or would not move
    for the `number`th time; 0: whichever. Before, and by nodes that don't know the two, they are passed over."""

    vhost: str
    name: str
    shard: int
    delays: bool = False
    id: int = 0
    number: int = 0


class QueueMoved(msgspec.Struct, frozen=True, tag_field="command", tag="queue_moved"):
    """The leader of shard `source` has seen that a queue which is moving from there is in shard `target`. Answers Done;
    changes nothing if the queue is not on that way, or (from LEVEL_NUMBERED_MOVES on; before it is passed over) this is
    not its move of that `number`."""

    id: int
    source: int
    target: int
    number: int = 0


class DeclareExchange(msgspec.Struct, frozen=True, tag_field="command", tag="declare_exchange"):
    """Declare an exchange. Answers ExchangeDeclared or Refusal.

    `type` is what the client sent: an unknown one is refused on apply.
    """

    vhost: str
    name: str
    type: str = "direct"
    durable: bool = False
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = {}
    rights: Rights | None = None
    """As in DeclareQueue."""


class DeleteExchange(msgspec.Struct, frozen=True, tag_field="command", tag="delete_exchange"):
    """Answers Done (also when there is no such exchange) or Refusal."""

    vhost: str
    name: str
    if_unused: bool = False
    rights: Rights | None = None


class Bind(msgspec.Struct, frozen=True, tag_field="command", tag="bind"):
    """Answers Done (changed=False when it was bound already) or Refusal.

    `node_id` and `connection` are the client's, as in DeclareQueue; node 0 stands for the broker itself and
    passes the locks of exclusive queues.
    """

    vhost: str
    source: str
    destination_kind: DestinationKind
    destination: str
    routing_key: str = ""
    arguments: dict[str, Any] = {}
    node_id: int = 0
    connection: str = ""
    rights: Rights | None = None


class Unbind(msgspec.Struct, frozen=True, tag_field="command", tag="unbind"):
    """Answers Done (changed=False when nothing was bound, or either end is missing) or Refusal."""

    vhost: str
    source: str
    destination_kind: DestinationKind
    destination: str
    routing_key: str = ""
    arguments: dict[str, Any] = {}
    node_id: int = 0
    connection: str = ""
    rights: Rights | None = None


class AddVhost(msgspec.Struct, frozen=True, tag_field="command", tag="add_vhost"):
    """Answers Done; an existing vhost keeps what it has, its limits too, and takes the new description."""

    name: str
    description: str = ""


class DescribeVhost(msgspec.Struct, frozen=True, tag_field="command", tag="describe_vhost"):
    """What is said of a vhost beside its description, from LEVEL_VHOST_METADATA on; None: it stays as it is. Answers
    Done, or Refusal (no vhost, no such type of queues)."""

    name: str
    tags: tuple[str, ...] | None = None
    default_queue_type: str | None = None
    protected: bool | None = None


class DeleteVhost(msgspec.Struct, frozen=True, tag_field="command", tag="delete_vhost"):
    """Delete a vhost with everything in it. Answers QueuesRemoved: the queues that went with it; or Refusal, for one
    that is protected from it, too."""

    name: str


class PutUser(msgspec.Struct, frozen=True, tag_field="command", tag="put_user"):
    """Add a user, or give one another password and tags: permissions and limits stay. Answers Done.

    The caller computes `password_hash` (`passwords.make_password_hash`).
    """

    name: str
    password_hash: str
    tags: tuple[str, ...] = ()


class UpgradePassword(msgspec.Struct, frozen=True, tag_field="command", tag="upgrade_password"):
    """Store another hash of the same password, unless the user has got another one since. Answers Done."""

    name: str
    known_hash: str
    password_hash: str


class SetLimit(msgspec.Struct, frozen=True, tag_field="command", tag="set_limit"):
    """Set a limit of a vhost or a user (`access_limits`), or clear it (None). Answers Done, or Refusal."""

    kind: LimitedKind
    name: str
    limit: str
    value: int | None


class SetSwitch(msgspec.Struct, frozen=True, tag_field="command", tag="set_switch"):
    """Switch a feature (`switches.FEATURES`) on or off, in a vhost or, for None, in the whole cluster. Answers Done, or
    Refusal (unknown vhost or feature)."""

    vhost: str | None
    feature: str
    on: bool


class SetGlobalParameter(msgspec.Struct, frozen=True, tag_field="command", tag="set_global_parameter"):
    """Keep a value, any that JSON has, under a name, from LEVEL_GLOBAL_PARAMETERS on. Answers Done or Refusal."""

    name: str
    value: Any


class ClearGlobalParameter(msgspec.Struct, frozen=True, tag_field="command", tag="clear_global_parameter"):
    """From LEVEL_GLOBAL_PARAMETERS on. Answers Done (changed=False when there was none) or Refusal."""

    name: str


class DeleteUser(msgspec.Struct, frozen=True, tag_field="command", tag="delete_user"):
    """Delete a user and their permissions. Answers Done."""

    name: str


class SetPermissions(msgspec.Struct, frozen=True, tag_field="command", tag="set_permissions"):
    """Give a user regular expressions for a vhost. Answers Done, or Refusal (unknown user or vhost).

    The caller has checked the expressions (`expressions.expression_fault`): what is taken can differ between releases,
    and replicas must not. One that can't be searched matches nothing.
    """

    user: str
    vhost: str
    configure: str
    write: str
    read: str


class SetTopicPermissions(msgspec.Struct, frozen=True, tag_field="command", tag="set_topic_permissions"):
    """Give a user regular expressions for routing keys of a topic exchange, which need not be there. Answers Done, or
    Refusal (unknown user or vhost). The caller has checked the expressions, as for SetPermissions."""

    user: str
    vhost: str
    exchange: str
    write: str
    read: str


class ClearTopicPermissions(msgspec.Struct, frozen=True, tag_field="command", tag="clear_topic_permissions"):
    """Those of one exchange, or (None) of all in the vhost. Answers Done."""

    user: str
    vhost: str
    exchange: str | None = None


class ClearPermissions(msgspec.Struct, frozen=True, tag_field="command", tag="clear_permissions"):
    """Answers Done."""

    user: str
    vhost: str


class NodeStarted(msgspec.Struct, frozen=True, tag_field="command", tag="node_started"):
    """A node process is up. Answers QueuesRemoved: the transient queues of the node's earlier incarnations.

    An older incarnation than the known one changes nothing. A node that was joining is a member from now on; `store`
    names its data, `addresses["peer"]` is where others connect to it. `failure_domain` is what it may be lost together
    with, "" is not known: the plan follows when it is known of all members that vote.
    """

    node_id: int
    incarnation: int
    name: str
    addresses: dict[str, str] = {}
    store: str = ""
    failure_domain: str = ""
    levels: tuple[int, int] = (1, 1)
    """The lowest and the highest feature level that the node knows (cluster/versions.py), or lets the cluster have."""


class NodeLost(msgspec.Struct, frozen=True, tag_field="command", tag="node_lost"):
    """That incarnation of the node is gone for good, and older ones with it. Answers QueuesRemoved: their
    transient queues."""

    node_id: int
    incarnation: int


class FoundCluster(msgspec.Struct, frozen=True, tag_field="command", tag="found_cluster"):
    """The members with which the cluster began: (id, name, address), and its feature level. Answers Done; changes
    nothing the second time."""

    members: tuple[tuple[int, str, str], ...]
    replication_factor: int
    level: int = 1


class AddMember(msgspec.Struct, frozen=True, tag_field="command", tag="add_member"):
    """A node wants to join, with data named `store`. Answers MemberAdded, the same one for the same store, or Refusal.

    Without a name it is called after its id.
    """

    name: str
    address: str
    store: str
    levels: tuple[int, int] = (1, 1)
    """As in NodeStarted: who does not know the cluster's is refused."""


class RaiseLevel(msgspec.Struct, frozen=True, tag_field="command", tag="raise_level"):
    """Raise the cluster's feature level: these nodes, in these incarnations, all know it. Answers Done.

    Changes nothing unless they are exactly the members as they are now. So all replicas decide alike, whatever they
    have heard of who knows what; and nothing is decided on what a member knew before it was started anew.
    """

    level: int
    nodes: tuple[tuple[int, int], ...]


class RemoveMember(msgspec.Struct, frozen=True, tag_field="command", tag="remove_member"):
    """Begin to take a member out, dead or alive, by its name or its id as text. Answers Done or Refusal."""

    name: str


class MemberGone(msgspec.Struct, frozen=True, tag_field="command", tag="member_gone"):
    """A leaving member votes nowhere any more: it is removed. Answers QueuesRemoved: its transient queues."""

    node_id: int


class PlaceGroup(msgspec.Struct, frozen=True, tag_field="command", tag="place_group"):
    """Who is to vote in a group, by name or id as text, the preferred leader first; nobody: as it is worked out.

    Answers Done or Refusal.
    """

    group: int
    voters: tuple[str, ...]


class PreferLeader(msgspec.Struct, frozen=True, tag_field="command", tag="prefer_leader"):
    """One of a group's voters, by name or id as text, is to lead it. Answers Done or Refusal."""

    group: int
    leader: str


NEVER_STARTED: Final = 0
"""The incarnation of a founder that has not come yet."""


class MemberAway(msgspec.Struct, frozen=True, tag_field="command", tag="member_away"):
    """A member was silent, in that incarnation (NEVER_STARTED: in none), for so long that others are to vote in its
    place. Answers Done.

    Changes nothing when it is there again, or nobody else is. Counts from LEVEL_PLANS on, as the next two do.
    """

    node_id: int
    incarnation: int


class MemberBack(msgspec.Struct, frozen=True, tag_field="command", tag="member_back"):
    """A member that was away has been there for a while: it may vote again. Answers Done."""

    node_id: int


class PlanGroups(msgspec.Struct, frozen=True, tag_field="command", tag="plan_groups"):
    """Who is to vote in some groups: (group, ids, the preferred leader first). Answers Done, or Refusal.

    Worked out from the members of that version; if it is another one by now, nothing is changed.
    """

    version: int
    changes: tuple[tuple[int, tuple[int, ...]], ...]


class AddShards(msgspec.Struct, frozen=True, tag_field="command", tag="add_shards"):
    """There are to be so many shards in all, from LEVEL_SHARDS_ADDED on. Answers Done, or Refusal: fewer than there
    are, more than there can be, or too few members up to vote in them.

    What is said is how many there are in the end, so that a command that comes twice adds nothing the second time.
    """

    total: int


class SetPolicy(msgspec.Struct, frozen=True, tag_field="command", tag="set_policy"):
    """Put a policy, or an operator policy, in its place. Answers PolicySet, or Refusal (no vhost, a bad value).

    The caller has checked the pattern (`policies.check_policy`), for the reason given at SetPermissions. One that
    can't be searched matches nothing.
    """

    vhost: str
    name: str
    pattern: str
    definition: dict[str, Any]
    priority: int = 0
    apply_to: str = "all"
    operator: bool = False


class ClearPolicy(msgspec.Struct, frozen=True, tag_field="command", tag="clear_policy"):
    """Answers Done (changed=False when there was none) or Refusal (no vhost)."""

    vhost: str
    name: str
    operator: bool = False


class DefinitionsLoaded(msgspec.Struct, frozen=True, tag_field="command", tag="definitions_loaded"):
    """The file of definitions with this digest was imported at the start of a node. Answers Done."""

    digest: str


CheckedCommand = DeclareQueue | DeclareExchange | DeleteExchange | Bind | Unbind
"""What a client needs permissions for, and the log decides."""

CatalogCommand = (
    DeclareQueue | RemoveQueues | DeclareExchange | DeleteExchange | Bind | Unbind | AddVhost | DeleteVhost
    | PutUser | UpgradePassword | DeleteUser | SetPermissions | ClearPermissions | SetTopicPermissions
    | ClearTopicPermissions | SetLimit | SetSwitch | NodeStarted | NodeLost
    | FoundCluster | AddMember | RaiseLevel | RemoveMember | MemberGone | PlaceGroup | PreferLeader
    | MemberAway | MemberBack | PlanGroups | AddShards
    | SetPolicy | ClearPolicy | DefinitionsLoaded | MoveQueue | QueueMoved
    | DescribeVhost | SetGlobalParameter | ClearGlobalParameter
)

MAX_NESTING: Final = 200
"""Maps and arrays within each other in a command. Arguments are refused far below it (`values.MAX_DEPTH`), but fields
that are passed over are read as well; how deep that can go depends on the stack, not the same on every replica."""

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[CatalogCommand] = msgspec.msgpack.Decoder(CatalogCommand)


def encode(command: CatalogCommand) -> bytes:
    """The command's bytes for the log. Raises MalformedCommand for arguments that have no stored form."""
    try:
        return _encoder.encode(command)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise MalformedCommand(f"a catalog command cannot be encoded: {error}") from error


def decode(data: bytes) -> CatalogCommand:
    """The command in the bytes. Raises MalformedCommand when they are not one."""
    if len(data) > MAX_NESTING and nested_deeper(data, MAX_NESTING):
        raise MalformedCommand(f"not a catalog command: nested more than {MAX_NESTING} deep")
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise MalformedCommand(f"not a catalog command: {error}") from error
