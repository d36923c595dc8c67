"""The metadata state machine: vhosts, users, permissions, nodes, exchanges, bindings, queues, policies and places.

Deterministic: the same commands with the same times lead to the same state and the same snapshot, byte for
byte, on every replica (C1). It knows no clock, no chance and no order but that of the commands.

Reading has no side effects and is done on the local replica; every change is a command through the log.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, cast

from msgspec.structs import replace

from cluster.versions import LEVEL_LEADER_LOCATORS, VersionRange, level_fault
from node.catalog import refusals, snapshot
from node.catalog.access_limits import check_room_for_queue, with_limit
from node.catalog.arguments import exchange_argument, stored_arguments
from node.catalog.commands import (
    AddMember,
    AddVhost,
    Bind,
    CatalogCommand,
    ClearPermissions,
    ClearPolicy,
    ClearTopicPermissions,
    DeclareExchange,
    DeclareQueue,
    DefinitionsLoaded,
    DeleteExchange,
    DeleteUser,
    DeleteVhost,
    FoundCluster,
    MemberGone,
    NodeLost,
    NodeStarted,
    PlaceGroup,
    PreferLeader,
    PutUser,
    RaiseLevel,
    RemoveMember,
    RemoveQueues,
    SetLimit,
    SetPermissions,
    SetPolicy,
    SetTopicPermissions,
    Unbind,
    UpgradePassword,
)
from node.catalog.declarations import (
    RESERVED_PREFIX,
    checked_binding,
    effectively_durable,
    existing_exchange,
    existing_queue,
    may_access,
    new_queue_settings,
)
from node.catalog.leader_locators import BALANCED, CLIENT_LOCAL, POLICY_KEYS
from node.catalog.members import Members
from node.catalog.policies import PolicyTable, merged_definition, policy_record
from node.catalog.policy_changes import PolicyChange, PolicyChanges
from node.catalog.records import (
    REPLICATED,
    BindingRecord,
    ExchangeRecord,
    ExchangeType,
    NodeRecord,
    PermissionRecord,
    PolicyRecord,
    QueueRecord,
    QueueSettings,
    TopicPermissionRecord,
    UserRecord,
    VhostRecord,
    transient_shard,
)
from node.catalog.results import (
    CatalogResult,
    Done,
    ExchangeDeclared,
    MemberAdded,
    PolicySet,
    QueueDeclared,
    QueuesRemoved,
    Refusal,
)
from node.catalog.state import CatalogState
from node.catalog.vhost import DEFAULT_EXCHANGE, Vhost


class Catalog:
    """One replica of the cluster's metadata.

    `routing_version` grows with every change that can alter what `route` answers, `permissions_version` with
    every change of users, permissions and vhosts; both count on this replica alone, to tell caches apart.
    `vhosts_deleted` counts those, on this replica as well: a snapshot that takes its place may hide some.
    """

    def __init__(self, shard_count: int) -> None:
        self._state = CatalogState(shard_count)
        self._state.add_defaults()
        self.routing_version: int = 1
        self.permissions_version: int = 1
        self.vhosts_deleted: int = 0
        self._policy_changes = PolicyChanges()
        self._appliers: dict[type, Callable[[Any, int], CatalogResult]] = {
            DeclareQueue: self._declare_queue,
            RemoveQueues: self._remove_queues,
            DeclareExchange: self._declare_exchange,
            DeleteExchange: self._delete_exchange,
            Bind: self._bind,
            Unbind: self._unbind,
            AddVhost: self._add_vhost,
            DeleteVhost: self._delete_vhost,
            PutUser: self._put_user,
            DeleteUser: self._delete_user,
            SetPermissions: self._set_permissions,
            ClearPermissions: self._clear_permissions,
            SetTopicPermissions: self._set_topic_permissions,
            ClearTopicPermissions: self._clear_topic_permissions,
            SetLimit: self._set_limit,
            UpgradePassword: self._upgrade_password,
            NodeStarted: self._node_started,
            NodeLost: self._node_lost,
            FoundCluster: self._found_cluster,
            AddMember: self._add_member,
            RaiseLevel: self._raise_level,
            RemoveMember: lambda command, time_ms: Done(self.members.remove(command.name, time_ms)),
            MemberGone: self._member_gone,
            PlaceGroup: lambda command, _: Done(self.members.place(command)),
            PreferLeader: lambda command, _: Done(self.members.prefer(command)),
            SetPolicy: self._set_policy,
            ClearPolicy: self._clear_policy,
            DefinitionsLoaded: self._definitions_loaded,
        }

    # The state machine

    def apply(self, command: CatalogCommand, time_ms: int = 0) -> CatalogResult:
        """Apply one command of the log; `time_ms` is the group's clock at it.

        A command that answers Refusal has changed nothing.
        """
        try:
            return self._appliers[type(command)](command, time_ms)
        except Refusal as refusal:
            return refusal.with_traceback(None)

    def snapshot(self) -> bytes:
        """The whole state; equal bytes for equal states."""
        return snapshot.dump(self._state)

    def restore(self, data: bytes) -> None:
        """Replace the whole state. Raises MalformedSnapshot and changes nothing then."""
        self.become(self.read_snapshot(data))

    def read_snapshot(self, data: bytes) -> CatalogState:
        """What a snapshot says, for `become`. Raises MalformedSnapshot."""
        return snapshot.load(data, self._state.shard_count)

    def become(self, state: CatalogState) -> None:
        """Replace the whole state by what `read_snapshot` gave."""
        self._state = state
        self.vhosts_deleted += 1
        self.routing_version += 1
        self.permissions_version += 1
        self._policy_changes.forget()

    # Routing

    def route(
        self,
        vhost: str,
        exchange: str,
        routing_key: str,
        headers: Mapping[str, Any] | None = None,
        extra_keys: Sequence[str] = (),
    ) -> tuple[QueueRecord, ...]:
        """The queues a message goes to, each once.

        `extra_keys` are the keys of CC and BCC. `headers` are looked at by headers exchanges alone
        (`looks_at_headers`). Empty when nothing is bound, or the vhost or exchange is not there.
        """
        found = self._state.vhosts.get(vhost)
        return () if found is None else found.route(exchange, routing_key, headers, extra_keys)

    def looks_at_headers(self, vhost: str, exchange: str) -> bool:
        """Whether routing a message published to the exchange can depend on its headers."""
        found = self._state.vhosts.get(vhost)
        return found is not None and found.looks_at_headers(exchange)

    # Queues

    @property
    def shard_count(self) -> int:
        """The number of replicated shards; their ids are 1..shard_count."""
        return self._state.shard_count

    @property
    def shard_queue_counts(self) -> Sequence[int]:
        """How many queues each replicated shard holds, shard 1 first."""
        return self._state.placement.counts

    def queue(self, vhost: str, name: str) -> QueueRecord | None:
        """The queue of that name."""
        found = self._state.vhosts.get(vhost)
        return None if found is None else found.queues.get(name)

    def queue_by_id(self, queue_id: int) -> QueueRecord | None:
        """The queue with that id."""
        return self._state.queues.get(queue_id)

    def queues(self, vhost: str | None = None) -> Iterable[QueueRecord]:
        """The queues of a vhost, or all of them."""
        if vhost is None:
            return self._state.queues.values()
        found = self._state.vhosts.get(vhost)
        return () if found is None else found.queues.values()

    def find_queue(
        self, vhost: str, name: str, node_id: int = 0, connection: str = ""
    ) -> QueueRecord | Refusal:
        """The queue of that name for a client's use: Refusal 404 if there is none, 405 if it is the exclusive
        one of another connection. Node 0 stands for the broker itself, which may use all."""
        queue = self.queue(vhost, name)
        if queue is None:
            return refusals.not_found("queue", vhost, name)
        return queue if may_access(queue, node_id, connection) else refusals.exclusive_lock(vhost, name)

    def inspect_queue(self, command: DeclareQueue) -> QueueRecord | Refusal | None:
        """What the command would meet now: the equivalent queue, a Refusal, or None: it would make one."""
        try:
            queue = existing_queue(self._vhost(command.vhost), command)
            if queue is None:
                new_queue_settings(command)
            return queue
        except Refusal as refusal:
            return refusal.with_traceback(None)

    def leader_locator(self, command: DeclareQueue) -> str:
        """For the command's field of that name: what its arguments and this replica's policies say."""
        found = self._state.vhosts.get(command.vhost)
        return "" if found is None else found.leader_locator(command.name, command.arguments)

    def queues_since(self, first_id: int) -> Iterator[QueueRecord]:
        """The queues with this id or a higher one, the youngest first; quick when there are few."""
        for queue in reversed(self._state.queues.values()):
            if queue.id < first_id:
                break
            yield queue

    @property
    def next_queue_id(self) -> int:
        """The id of the next queue: all that are known have lower ones."""
        return self._state.next_queue_id

    # Versions

    @property
    def level(self) -> int:
        """The cluster's feature level: nothing that is new in a higher one (cluster/versions.py) may be proposed."""
        return self._state.level

    # Policies

    def policy(self, vhost: str, name: str, operator: bool = False) -> PolicyRecord | None:
        """The policy, or operator policy, of that name."""
        found = self._state.vhosts.get(vhost)
        return None if found is None else _policies(found, operator).get(name)

    def policies(self, vhost: str | None = None, operator: bool = False) -> Iterator[PolicyRecord]:
        """The policies, or operator policies, of a vhost or of all; in each the one that goes before others first."""
        found = self._state.vhosts.values() if vhost is None else [self._state.vhosts.get(vhost)]
        return chain.from_iterable(_policies(each, operator).by_precedence() for each in found if each is not None)

    def policies_of_queue(self, queue: QueueRecord) -> tuple[PolicyRecord | None, PolicyRecord | None]:
        """The policy and the operator policy that apply to a queue of the catalog; see `node.catalog.policies`."""
        return self._state.vhosts[queue.vhost].policies_of_queue(queue)

    def policy_definition(self, queue: QueueRecord) -> dict[str, Any]:
        """What the policies of a queue of the catalog say together, its arguments aside."""
        return merged_definition(*self.policies_of_queue(queue))

    def effective_settings(self, queue: QueueRecord) -> QueueSettings:
        """What counts for a queue now, arguments and policies together (T3, L1, D1).

        For one whose vhost is gone: its arguments.
        """
        found = self._state.vhosts.get(queue.vhost)
        return queue.settings if found is None else found.effective_settings(queue)

    @property
    def policies_version(self) -> int:
        """Grows with every change of policies; counts on this replica alone, to tell what is out of date."""
        return self._policy_changes.version

    def policy_changes(self, since_version: int) -> list[PolicyChange] | None:
        """What has changed since that version, oldest first; None: anything may have."""
        return self._policy_changes.since(since_version)

    # Exchanges and bindings

    def exchange(self, vhost: str, name: str) -> ExchangeRecord | None:
        """The exchange of that name; "" is the default exchange."""
        found = self._state.vhosts.get(vhost)
        return None if found is None else found.exchange(name)

    def exchanges(self, vhost: str) -> Iterator[ExchangeRecord]:
        """The exchanges of a vhost."""
        found = self._state.vhosts.get(vhost)
        return iter(()) if found is None else found.exchanges()

    def find_exchange(self, vhost: str, name: str) -> ExchangeRecord | Refusal:
        """The exchange of that name, or Refusal 404."""
        return self.exchange(vhost, name) or refusals.not_found("exchange", vhost, name)

    def find_exchange_to_publish(self, vhost: str, name: str) -> ExchangeRecord | Refusal:
        """The exchange a client may publish to: Refusal 404 if there is none, 403 if it is internal."""
        exchange = self.exchange(vhost, name)
        if exchange is None:
            return refusals.not_found("exchange", vhost, name)
        return refusals.internal_exchange(vhost, name) if exchange.internal else exchange

    def inspect_exchange(self, command: DeclareExchange) -> ExchangeRecord | Refusal | None:
        """What the command would meet now: the equivalent exchange, a Refusal, or None: it would make one."""
        try:
            return existing_exchange(self._vhost(command.vhost), command)
        except Refusal as refusal:
            return refusal.with_traceback(None)

    def bindings(self, vhost: str) -> Iterable[BindingRecord]:
        """The bindings of a vhost, without the implicit ones of the default exchange."""
        found = self._state.vhosts.get(vhost)
        return () if found is None else found.bindings()

    def bindings_of_queue(self, queue: QueueRecord) -> list[BindingRecord]:
        """The bindings that lead to the queue, without the implicit one of the default exchange."""
        return self._state.vhosts[queue.vhost].bindings_to("queue", queue.name)

    def bindings_of_exchange(self, exchange: ExchangeRecord) -> list[BindingRecord]:
        """The bindings of which the exchange is the source."""
        return self._state.vhosts[exchange.vhost].bindings_from(exchange.name)

    # Vhosts, users, permissions, nodes

    def has_vhost(self, name: str) -> bool:
        """Whether there is such a vhost."""
        return name in self._state.vhosts

    def vhost(self, name: str) -> VhostRecord | None:
        """The vhost of that name."""
        found = self._state.vhosts.get(name)
        return None if found is None else found.record

    def vhosts(self) -> list[VhostRecord]:
        """All vhosts."""
        return [vhost.record for vhost in self._state.vhosts.values()]

    def user(self, name: str) -> UserRecord | None:
        """The user of that name."""
        return self._state.users.get(name)

    def users(self) -> Iterable[UserRecord]:
        """All users."""
        return self._state.users.values()

    def permission(self, user: str, vhost: str) -> PermissionRecord | None:
        """The user's permissions in the vhost."""
        return self._state.permissions.get((user, vhost))

    def permissions(self) -> Iterable[PermissionRecord]:
        """All permissions."""
        return self._state.permissions.values()

    def topic_permission(self, user: str, vhost: str, exchange: str) -> TopicPermissionRecord | None:
        """What restricts the user's routing keys at the exchange."""
        return self._state.topic_permissions.get((user, vhost, exchange))

    def topic_permissions(self) -> Iterable[TopicPermissionRecord]:
        """All topic permissions."""
        return self._state.topic_permissions.values()

    @property
    def definitions_digest(self) -> str:
        """Of the file of definitions that was imported last at the start of a node; "" without one."""
        return self._state.definitions_digest

    def node(self, node_id: int) -> NodeRecord | None:
        """The node with that id."""
        return self._state.nodes.get(node_id)

    def nodes(self) -> Iterable[NodeRecord]:
        """All nodes that ever started."""
        return self._state.nodes.values()

    @property
    def members(self) -> Members:
        """Who belongs to the cluster, and who votes where. Changed by commands alone."""
        return self._state.members

    # Applying: queues

    def _declare_queue(self, command: DeclareQueue, time_ms: int) -> CatalogResult:
        queue = existing_queue(self._vhost(command.vhost), command)
        if queue is not None:
            return QueueDeclared(queue, created=False)
        settings = new_queue_settings(command)
        vhost = self._vhost(command.vhost)
        check_room_for_queue(vhost.record, len(vhost.queues), command.name)
        arguments, settings = self._state.shared(stored_arguments(command.arguments), settings)
        queue = self._new_queue(command, arguments, settings, time_ms)
        self._state.next_queue_id += 1
        self._state.add_queue(queue)
        self.routing_version += 1
        return QueueDeclared(queue, created=True)

    def _new_queue(
        self, command: DeclareQueue, arguments: dict[str, Any], settings: QueueSettings, time_ms: int
    ) -> QueueRecord:
        replicated = command.durable and not command.exclusive and not command.auto_delete
        if not replicated and (
            command.node_id == REPLICATED or self._is_lost(command.node_id, command.incarnation)
        ):
            raise refusals.no_such_node(command.node_id)
        return QueueRecord(
            id=self._state.next_queue_id,
            vhost=self._vhost(command.vhost).record.name,
            name=command.name,
            shard=self._replicated_shard(command) if replicated else transient_shard(command.node_id),
            durable=effectively_durable(command),
            exclusive=command.exclusive,
            auto_delete=command.auto_delete,
            arguments=arguments,
            settings=settings,
            owner_node=REPLICATED if replicated else command.node_id,
            owner_incarnation=0 if replicated else command.incarnation,
            owner_connection=command.connection if command.exclusive else "",
            created_ms=time_ms,
        )

    def _replicated_shard(self, command: DeclareQueue) -> int:
        """By the plan and not by who leads just now: every replica has it, and leaders come back to it."""
        if self.level < LEVEL_LEADER_LOCATORS or command.leader_locator == BALANCED:
            return self._state.placement.choose()
        near = self.members.shards_led_by(command.node_id)
        return self._state.placement.choose(near, command.leader_locator == CLIENT_LOCAL)

    def _is_lost(self, node_id: int, incarnation: int) -> bool:
        node = self._state.nodes.get(node_id)
        if node is None:
            return False
        return incarnation < node.incarnation or (incarnation == node.incarnation and not node.alive)

    def _remove_queues(self, command: RemoveQueues, _time_ms: int) -> CatalogResult:
        return self._removed(self._state.remove_queues(command.ids))

    def _removed(self, queues: tuple[QueueRecord, ...]) -> QueuesRemoved:
        if queues:
            self.routing_version += 1
        return QueuesRemoved(queues)

    # Applying: exchanges and bindings

    def _declare_exchange(self, command: DeclareExchange, _time_ms: int) -> CatalogResult:
        vhost = self._vhost(command.vhost)
        exchange = existing_exchange(vhost, command)
        if exchange is not None:
            return ExchangeDeclared(exchange, created=False)
        exchange = ExchangeRecord(
            vhost=command.vhost,
            name=command.name,
            type=cast(ExchangeType, command.type),
            durable=command.durable,
            auto_delete=command.auto_delete,
            internal=command.internal,
            arguments=stored_arguments(command.arguments),
            alternate=exchange_argument(command.vhost, command.name, command.arguments),
        )
        vhost.add_exchange(exchange)
        self.routing_version += 1
        return ExchangeDeclared(exchange, created=True)

    def _delete_exchange(self, command: DeleteExchange, _time_ms: int) -> CatalogResult:
        vhost = self._vhost(command.vhost)
        if command.name == DEFAULT_EXCHANGE:
            raise refusals.default_exchange()
        if command.name.startswith(RESERVED_PREFIX):
            raise refusals.system_exchange(command.vhost, command.name)
        if vhost.exchange(command.name) is None:
            return Done(changed=False)
        if command.if_unused and vhost.bindings_from(command.name):
            raise refusals.exchange_in_use(command.vhost, command.name)
        vhost.remove_exchange(command.name)
        self.routing_version += 1
        return Done()

    def _bind(self, command: Bind, _time_ms: int) -> CatalogResult:
        vhost = self._vhost(command.vhost)
        binding = checked_binding(vhost, command)
        return self._bindings_changed(binding is not None and vhost.add_binding(binding))

    def _unbind(self, command: Unbind, _time_ms: int) -> CatalogResult:
        vhost = self._vhost(command.vhost)
        binding = checked_binding(vhost, command)
        return self._bindings_changed(binding is not None and vhost.remove_binding(binding))

    def _bindings_changed(self, changed: bool) -> Done:
        if changed:
            self.routing_version += 1
        return Done(changed)

    # Applying: vhosts, users, permissions

    def _add_vhost(self, command: AddVhost, _time_ms: int) -> CatalogResult:
        known = self._state.vhosts.get(command.name)
        if known is not None:
            changed = known.record.description != command.description
            known.record = replace(known.record, description=command.description)
            return Done(changed)
        self._state.add_vhost(VhostRecord(command.name, command.description, serial=self._state.new_serial()))
        self.permissions_version += 1
        return Done()

    def _delete_vhost(self, command: DeleteVhost, _time_ms: int) -> CatalogResult:
        self._vhost(command.name)
        queues = self._state.remove_vhost(command.name)
        self.vhosts_deleted += 1
        self.routing_version += 1
        self.permissions_version += 1
        return QueuesRemoved(queues)

    def _put_user(self, command: PutUser, _time_ms: int) -> CatalogResult:
        known = self._state.users.get(command.name)
        if known is None:
            known = UserRecord(command.name, "", serial=self._state.new_serial())
        record = replace(known, password_hash=command.password_hash, tags=command.tags)
        changed = self._state.users.get(command.name) != record
        self._state.users[command.name] = record
        self.permissions_version += 1
        return Done(changed)

    def _upgrade_password(self, command: UpgradePassword, _time_ms: int) -> CatalogResult:
        known = self._state.users.get(command.name)
        if known is None or known.password_hash != command.known_hash:
            return Done(changed=False)
        self._state.users[command.name] = replace(known, password_hash=command.password_hash)
        return Done()

    def _delete_user(self, command: DeleteUser, _time_ms: int) -> CatalogResult:
        self.permissions_version += 1
        return Done(self._state.remove_user(command.name))

    def _set_limit(self, command: SetLimit, _time_ms: int) -> CatalogResult:
        record: VhostRecord | UserRecord
        if command.kind == "vhost":
            vhost = self._vhost(command.name)
            record = vhost.record
            vhost.record = with_limit(vhost.record, command.limit, command.value)
            changed = vhost.record != record
        else:
            record = self._user(command.name)
            self._state.users[command.name] = with_limit(record, command.limit, command.value)
            changed = self._state.users[command.name] != record
        self.permissions_version += 1
        return Done(changed)

    def _definitions_loaded(self, command: DefinitionsLoaded, _time_ms: int) -> CatalogResult:
        changed = self._state.definitions_digest != command.digest
        self._state.definitions_digest = command.digest
        return Done(changed)

    def _set_permissions(self, command: SetPermissions, _time_ms: int) -> CatalogResult:
        self._vhost(command.vhost)
        self._user(command.user)
        record = PermissionRecord(command.user, command.vhost, command.configure, command.write, command.read)
        key = (command.user, command.vhost)
        changed = self._state.permissions.get(key) != record
        self._state.permissions[key] = record
        self.permissions_version += 1
        return Done(changed)

    def _clear_permissions(self, command: ClearPermissions, _time_ms: int) -> CatalogResult:
        known = self._state.permissions.pop((command.user, command.vhost), None)
        self.permissions_version += 1
        return Done(known is not None)

    def _set_topic_permissions(self, command: SetTopicPermissions, _time_ms: int) -> CatalogResult:
        self._vhost(command.vhost)
        self._user(command.user)
        record = TopicPermissionRecord(
            command.user, command.vhost, command.exchange, command.write, command.read
        )
        key = (command.user, command.vhost, command.exchange)
        changed = self._state.topic_permissions.get(key) != record
        self._state.topic_permissions[key] = record
        self.permissions_version += 1
        return Done(changed)

    def _clear_topic_permissions(self, command: ClearTopicPermissions, _time_ms: int) -> CatalogResult:
        table = self._state.topic_permissions
        gone = [
            key for key in table
            if key[:2] == (command.user, command.vhost) and command.exchange in (None, key[2])
        ]
        for key in gone:
            del table[key]
        self.permissions_version += 1
        return Done(bool(gone))

    # Applying: policies

    def _set_policy(self, command: SetPolicy, _time_ms: int) -> CatalogResult:
        vhost = self._vhost(command.vhost)
        record = policy_record(command)
        if self.level < LEVEL_LEADER_LOCATORS and (early := POLICY_KEYS & record.definition.keys()):
            raise refusals.needs_level(min(early), LEVEL_LEADER_LOCATORS, self.level)
        before = _policies(vhost, command.operator).put(record)
        if before != record:
            self._policies_changed(vhost, before, record)
        return PolicySet(created=before is None)

    def _clear_policy(self, command: ClearPolicy, _time_ms: int) -> CatalogResult:
        vhost = self._vhost(command.vhost)
        before = _policies(vhost, command.operator).remove(command.name)
        if before is not None:
            self._policies_changed(vhost, before, None)
        return Done(changed=before is not None)

    def _policies_changed(self, vhost: Vhost, before: PolicyRecord | None, after: PolicyRecord | None) -> None:
        vhost.policies_changed()
        self.routing_version += 1
        self._policy_changes.add(PolicyChange(vhost.record.name, before, after))

    # Applying: nodes

    def _node_started(self, command: NodeStarted, time_ms: int) -> CatalogResult:
        known = self._state.nodes.get(command.node_id)
        if known is not None and command.incarnation < known.incarnation:
            return QueuesRemoved()
        addresses = dict(command.addresses)
        # An incarnation that is lost is lost for good, even if it has more to say of itself.
        alive = known is None or known.alive or command.incarnation > known.incarnation
        self._state.nodes[command.node_id] = NodeRecord(
            command.node_id, command.name, command.incarnation, addresses, alive=alive, changed_ms=time_ms,
            levels=command.levels,
        )
        peer_address = addresses.get("peer", "")
        self.members.started(
            command.node_id, command.name, peer_address, command.store, time_ms, command.failure_domain
        )
        return self._drop_transient(command.node_id, command.incarnation - 1)

    def _found_cluster(self, command: FoundCluster, time_ms: int) -> CatalogResult:
        founded = self.members.found(command, time_ms)
        if founded:
            self._state.level = command.level
        return Done(founded)

    def _add_member(self, command: AddMember, time_ms: int) -> CatalogResult:
        # No more than this: members of the first level don't look.
        if command.levels[1] < self.level:
            raise Refusal(406, level_fault(VersionRange(*command.levels), self.level))
        return MemberAdded(self.members.add(command, time_ms, self._is_up))

    def _raise_level(self, command: RaiseLevel, _: int) -> CatalogResult:
        present = [record.id for record in self.members.with_replicas()]
        known = [(id, self._state.nodes[id].incarnation) for id in present if id in self._state.nodes]
        raised = command.level > self.level and len(known) == len(present) and sorted(command.nodes) == sorted(known)
        if raised:
            self._state.level = command.level
        return Done(raised)

    def _is_up(self, node_id: int) -> bool:
        known = self._state.nodes.get(node_id)
        return known is None or known.alive

    def _member_gone(self, command: MemberGone, time_ms: int) -> CatalogResult:
        known = self._state.nodes.get(command.node_id)
        if not self.members.gone(command.node_id, time_ms) or known is None:
            return QueuesRemoved()
        return self._node_lost(NodeLost(known.id, known.incarnation), time_ms)

    def _node_lost(self, command: NodeLost, time_ms: int) -> CatalogResult:
        known = self._state.nodes.get(command.node_id)
        if known is not None and known.alive and known.incarnation <= command.incarnation:
            self._state.nodes[command.node_id] = replace(
                known, incarnation=command.incarnation, alive=False, changed_ms=time_ms
            )
        return self._drop_transient(command.node_id, command.incarnation)

    def _drop_transient(self, node_id: int, up_to_incarnation: int) -> QueuesRemoved:
        lost = self._state.transient_queues(node_id, up_to_incarnation)
        return self._removed(self._state.remove_queues(queue.id for queue in lost))

    def _user(self, name: str) -> UserRecord:
        user = self._state.users.get(name)
        if user is None:
            raise refusals.user_not_found(name)
        return user

    def _vhost(self, name: str) -> Vhost:
        vhost = self._state.vhosts.get(name)
        if vhost is None:
            raise refusals.vhost_not_found(name)
        return vhost


def _policies(vhost: Vhost, operator: bool) -> PolicyTable:
    return vhost.operator_policies if operator else vhost.policies
