"""What each command of the log does to the catalog's tables.

A command that is refused raises, and has changed nothing by then.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

from msgspec.structs import replace

from mayfly.cluster.versions import (
    LEVEL_GLOBAL_PARAMETERS,
    LEVEL_LEADER_LOCATORS,
    LEVEL_NUMBERED_MOVES,
    LEVEL_PLANS,
    LEVEL_QUEUE_MOVES,
    LEVEL_ROUTING_WEIGHT,
    LEVEL_SHARDS_ADDED,
    LEVEL_STREAMS,
    LEVEL_SWITCHES,
    LEVEL_VHOST_METADATA,
    VersionRange,
    level_fault,
)
from mayfly.node.amqp.errors import PRECONDITION_FAILED
from mayfly.node.catalog import refusals, streams
from mayfly.node.catalog.access_limits import check_room_for_queue, with_limit
from mayfly.node.catalog.arguments import exchange_argument, queue_settings, queue_type, stored_arguments
from mayfly.node.catalog.commands import (
    NEVER_STARTED,
    AddMember,
    AddShards,
    AddVhost,
    Bind,
    CatalogCommand,
    CheckedCommand,
    ClearGlobalParameter,
    ClearPermissions,
    ClearPolicy,
    ClearTopicPermissions,
    DeclareExchange,
    DeclareQueue,
    DefinitionsLoaded,
    DeleteExchange,
    DeleteUser,
    DeleteVhost,
    DescribeVhost,
    FoundCluster,
    MemberAway,
    MemberBack,
    MemberGone,
    MoveQueue,
    NodeLost,
    NodeStarted,
    PlaceGroup,
    PlanGroups,
    PreferLeader,
    PutUser,
    QueueMoved,
    RaiseLevel,
    RemoveMember,
    RemoveQueues,
    Rights,
    SetGlobalParameter,
    SetLimit,
    SetPermissions,
    SetPolicy,
    SetSwitch,
    SetTopicPermissions,
    Unbind,
    UpgradePassword,
)
from mayfly.node.catalog.declarations import (
    CLASSIC,
    DEFAULT_TYPES,
    RESERVED_PREFIX,
    check_origins,
    checked_binding,
    effectively_durable,
    existing_exchange,
    existing_queue,
    new_queue_settings,
    with_default_type,
)
from mayfly.node.catalog.journals import check_journal
from mayfly.node.catalog.leader_locators import BALANCED, CLIENT_LOCAL
from mayfly.node.catalog.members import Members
from mayfly.node.catalog.permissions import rights_digest
from mayfly.node.catalog.policies import KEYS_SINCE_LEVEL, policy_record
from mayfly.node.catalog.policy_changes import PolicyChange, PolicyChanges
from mayfly.node.catalog.records import (
    DELAYED,
    REPLICATED,
    ExchangeRecord,
    ExchangeType,
    GlobalParameterRecord,
    NodeRecord,
    PermissionRecord,
    PolicyRecord,
    QueueMovesRecord,
    QueueRecord,
    QueueSettings,
    TopicPermissionRecord,
    UserRecord,
    VhostRecord,
)
from mayfly.node.catalog.results import (
    CatalogResult,
    Done,
    ExchangeDeclared,
    MemberAdded,
    PolicySet,
    QueueDeclared,
    QueuesRemoved,
    Refusal,
)
from mayfly.node.catalog.state import CatalogState
from mayfly.node.catalog.streams import STREAM, switches_ttls_on, with_ttls_on
from mayfly.node.catalog.switches import FEATURES, SwitchRecord
from mayfly.node.catalog.values import erlang_string
from mayfly.node.catalog.vhost import DEFAULT_EXCHANGE, Vhost
from mayfly.node.limits import ROUTING_WEIGHT
from mayfly.node.numbers import transient_shard

_REMEMBERED: Final = 1000


class MovedQueues:
    """The last queues that have moved, numbered as `PolicyChanges` are."""

    def __init__(self) -> None:
        self.version = 0
        self._last: deque[int] = deque(maxlen=_REMEMBERED)

    def add(self, queue_id: int) -> None:
        """One more."""
        self.version += 1
        self._last.append(queue_id)

    def forget(self) -> None:
        """Any may have moved."""
        self.version += 1
        self._last.clear()

    def since(self, version: int) -> list[int] | None:
        """Those after that version; None if they are not all known any more."""
        count = self.version - version
        if not 0 <= count <= len(self._last):
            return None
        return list(self._last)[len(self._last) - count :]


class Versions:
    """Counts of changes on one replica, to tell what is out of date; no part of the replicated state.

    `routing_version` grows with every change that can alter where a message goes, `permissions_version` with every
    change of users, permissions and vhosts. `queues_dropped` grows when queues go without their shards being asked,
    with a vhost or a delayed exchange: a snapshot that takes the state's place may hide such changes.
    """

    def __init__(self) -> None:
        self.routing_version: int = 1
        self.permissions_version: int = 1
        self.queues_dropped: int = 0
        self.dropped: list[QueueRecord] = []
        """The queues of delayed exchanges that went with those, for who tells of it."""
        self.changed_policies = PolicyChanges()
        self.moved = MovedQueues()

    def all_may_differ(self) -> None:
        """Another state has taken the place of the one that these counts were of."""
        self.queues_dropped += 1
        self.routing_version += 1
        self.permissions_version += 1
        self.changed_policies.forget()
        self.moved.forget()


class Changes:
    """Changes one state, and counts what changed."""

    def __init__(self, state: CatalogState, versions: Versions) -> None:
        self._state = state
        self._versions = versions
        self._appliers: dict[type, Callable[[Any, int], CatalogResult]] = {
            DeclareQueue: self._declare_queue,
            RemoveQueues: self._remove_queues,
            MoveQueue: self._move_queue,
            QueueMoved: self._queue_moved,
            DeclareExchange: self._declare_exchange,
            DeleteExchange: self._delete_exchange,
            Bind: self._bind,
            Unbind: self._unbind,
            AddVhost: self._add_vhost,
            DescribeVhost: self._describe_vhost,
            DeleteVhost: self._delete_vhost,
            PutUser: self._put_user,
            DeleteUser: self._delete_user,
            SetPermissions: self._set_permissions,
            ClearPermissions: self._clear_permissions,
            SetTopicPermissions: self._set_topic_permissions,
            ClearTopicPermissions: self._clear_topic_permissions,
            SetLimit: self._set_limit,
            SetSwitch: self._set_switch,
            SetGlobalParameter: self._set_global_parameter,
            ClearGlobalParameter: self._clear_global_parameter,
            UpgradePassword: self._upgrade_password,
            NodeStarted: self._node_started,
            NodeLost: self._node_lost,
            FoundCluster: self._found_cluster,
            AddMember: self._add_member,
            RaiseLevel: self._raise_level,
            RemoveMember: lambda command, time_ms: Done(self._members().remove(command.name, time_ms)),
            MemberGone: self._member_gone,
            PlaceGroup: lambda command, _: Done(self._members().place(command)),
            PreferLeader: lambda command, _: Done(self._members().prefer(command)),
            MemberAway: self._member_away,
            MemberBack: lambda command, time_ms: Done(self._plans and self._members().back(command.node_id, time_ms)),
            PlanGroups: lambda command, _: Done(self._plans and self._members().plan_groups(command)),
            AddShards: self._add_shards,
            SetPolicy: self._set_policy,
            ClearPolicy: self._clear_policy,
            DefinitionsLoaded: self._definitions_loaded,
        }

    def apply(self, command: CatalogCommand, time_ms: int) -> CatalogResult:
        """Apply one command of the log; `time_ms` is the group's clock at it. Raises Refusal."""
        if isinstance(command, CheckedCommand) and command.rights is not None:
            self._check_rights(command, command.rights)
        result = self._appliers[type(command)](command, time_ms)
        self._remove_left()
        return result

    def _remove_left(self) -> None:
        """Queues of delayed exchanges go with those, however those went."""
        left = self._state.remove_left()
        if left:
            self._versions.dropped += left
            self._versions.queues_dropped += 1
            self._versions.routing_version += 1

    def _check_rights(self, command: CheckedCommand, rights: Rights) -> None:
        self._state.existing_vhost(command.vhost)
        if rights_digest(self._state, rights.user, command) != rights.digest:
            raise refusals.other_rights(rights.user)

    # Queues

    def _declare_queue(self, command: DeclareQueue, time_ms: int) -> CatalogResult:
        command = with_default_type(self._state.existing_vhost(command.vhost).record, command)
        self._state.switches.check_arguments(command.vhost, command.name, command.arguments)
        queue = existing_queue(self._state.existing_vhost(command.vhost), command, self._state.level)
        if queue is not None:
            if switches_ttls_on(command.arguments, queue.arguments) and self._state.level >= LEVEL_STREAMS:
                queue = self._with_ttls_on(queue)
            return QueueDeclared(queue, created=False)
        if self._state.level < LEVEL_STREAMS and queue_type(command.arguments) == STREAM:
            # As nodes that know no streams have it.
            fault = erlang_string(f"unsupported queue type '{STREAM}'")
            raise refusals.invalid_argument(command.vhost, command.name, "x-queue-type", fault)
        settings = new_queue_settings(command, self._state.level)
        vhost = self._state.existing_vhost(command.vhost)
        check_origins(vhost, command, settings)
        if settings.journal is not None:
            check_journal(command.vhost, command.name, settings.journal, vhost.queues.get(settings.journal))
        check_room_for_queue(vhost.record, len(vhost.queues), command.name)
        arguments, settings = self._state.shared(stored_arguments(command.arguments), settings)
        queue = self._new_queue(command, arguments, settings, time_ms)
        self._state.next_queue_id += 1
        self._state.add_queue(queue)
        self._versions.routing_version += 1
        return QueueDeclared(queue, created=True)

    def _with_ttls_on(self, queue: QueueRecord) -> QueueRecord:
        """A stream takes TTLs of messages from now on (RULES J2)."""
        arguments = with_ttls_on(queue.arguments)
        settings = queue_settings(queue.vhost, queue.name, arguments, level=self._state.level)
        arguments, settings = self._state.shared(arguments, settings)
        queue = replace(queue, arguments=arguments, settings=settings)
        self._state.replace_queue(queue)
        self._versions.routing_version += 1
        return queue

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
            vhost=self._state.existing_vhost(command.vhost).record.name,
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
        if self._state.level < LEVEL_LEADER_LOCATORS or command.leader_locator == BALANCED:
            return self._state.placement.choose()
        near = self._state.members.shards_led_by(command.node_id)
        return self._state.placement.choose(near, command.leader_locator == CLIENT_LOCAL)

    def _is_lost(self, node_id: int, incarnation: int) -> bool:
        node = self._state.nodes.get(node_id)
        if node is None:
            return False
        return incarnation < node.incarnation or (incarnation == node.incarnation and not node.alive)

    def _remove_queues(self, command: RemoveQueues, _time_ms: int) -> CatalogResult:
        return self._removed(self._state.remove_queues(command.ids))

    def queue_to_move(self, command: MoveQueue) -> QueueRecord:
        """The queue that is to move, or is where it is to be. Raises Refusal where the command would be refused."""
        state = self._state
        if state.level < LEVEL_QUEUE_MOVES:
            raise refusals.needs_level("moving a queue to another shard", LEVEL_QUEUE_MOVES, state.level)
        vhost = state.existing_vhost(command.vhost)
        queue = (vhost.delay_queues if command.delays else vhost.queues).get(command.name)
        if queue is None:
            raise refusals.not_found("exchange" if command.delays else "queue", command.vhost, command.name)
        if state.level >= LEVEL_NUMBERED_MOVES and (
            command.id not in (0, queue.id) or command.number not in (0, queue.move_number + 1)
        ):
            raise refusals.queue_has_changed(queue)
        if not queue.replicated:
            raise refusals.transient_queue_moves(queue)
        if queue_type(queue.arguments) == STREAM:
            raise refusals.stream_moves(queue)
        if not 1 <= command.shard <= state.members.shard_count:
            raise refusals.no_such_shard(command.shard, state.members.shard_count)
        if queue.moving_to and queue.moving_to != command.shard:
            raise refusals.queue_is_moving(queue, command.shard)
        return queue

    def _move_queue(self, command: MoveQueue, _time_ms: int) -> CatalogResult:
        queue = self.queue_to_move(command)
        if command.shard == (queue.moving_to or queue.shard):
            return Done(changed=False)
        moves = replace(queue.moves or QueueMovesRecord(), target=command.shard)
        self._state.replace_queue(replace(queue, moves=moves))
        self._versions.routing_version += 1
        return Done()

    def _queue_moved(self, command: QueueMoved, _time_ms: int) -> CatalogResult:
        queue = self._state.queues.get(command.id)
        if queue is None or queue.moves is None:
            return Done(changed=False)
        if (queue.shard, queue.moving_to) != (command.source, command.target):
            return Done(changed=False)
        if self._state.level >= LEVEL_NUMBERED_MOVES and command.number != queue.move_number + 1:
            return Done(changed=False)
        sources = queue.moves.sources
        if command.source not in sources:
            sources = (*sources, command.source)
        moves = QueueMovesRecord(0, sources, queue.moves.count + 1)
        self._state.replace_queue(replace(queue, shard=command.target, moves=moves))
        self._versions.moved.add(queue.id)
        self._versions.routing_version += 1
        return Done()

    def _removed(self, queues: tuple[QueueRecord, ...]) -> QueuesRemoved:
        if queues:
            self._versions.routing_version += 1
        return QueuesRemoved(queues)

    # Exchanges and bindings

    def _declare_exchange(self, command: DeclareExchange, time_ms: int) -> CatalogResult:
        vhost = self._state.existing_vhost(command.vhost)
        exchange = existing_exchange(vhost, command, self._state.level)
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
        if exchange.type == DELAYED:
            self._add_delay_queue(exchange, time_ms)
        self._versions.routing_version += 1
        return ExchangeDeclared(exchange, created=True)

    def _add_delay_queue(self, exchange: ExchangeRecord, time_ms: int) -> None:
        """The queue in which its messages wait: always replicated, and for no client (RULES S1)."""
        state = self._state
        queue = QueueRecord(
            id=state.next_queue_id, vhost=exchange.vhost, name=exchange.name, shard=state.placement.choose(),
            durable=True, exclusive=False, auto_delete=False, arguments={}, settings=QueueSettings(),
            created_ms=time_ms, delays=True,
        )
        state.next_queue_id += 1
        state.add_queue(queue)

    def _delete_exchange(self, command: DeleteExchange, _time_ms: int) -> CatalogResult:
        vhost = self._state.existing_vhost(command.vhost)
        if command.name == DEFAULT_EXCHANGE:
            raise refusals.default_exchange()
        if command.name.startswith(RESERVED_PREFIX):
            raise refusals.system_exchange(command.vhost, command.name)
        if vhost.exchange(command.name) is None:
            return Done(changed=False)
        if command.if_unused and vhost.is_source(command.name):
            raise refusals.exchange_in_use(command.vhost, command.name)
        vhost.remove_exchange(command.name)
        self._versions.routing_version += 1
        return Done()

    def _bind(self, command: Bind, _time_ms: int) -> CatalogResult:
        vhost = self._state.existing_vhost(command.vhost)
        binding = checked_binding(vhost, command)
        if binding is not None and self._state.level >= LEVEL_ROUTING_WEIGHT and vhost.too_heavy(binding):
            raise refusals.routing_weight(command.vhost, command.source, ROUTING_WEIGHT)
        return self._bindings_changed(binding is not None and vhost.add_binding(binding))

    def _unbind(self, command: Unbind, _time_ms: int) -> CatalogResult:
        vhost = self._state.existing_vhost(command.vhost)
        binding = checked_binding(vhost, command)
        return self._bindings_changed(binding is not None and vhost.remove_binding(binding))

    def _bindings_changed(self, changed: bool) -> Done:
        if changed:
            self._versions.routing_version += 1
        return Done(changed)

    # Vhosts, users, permissions

    def _add_vhost(self, command: AddVhost, _time_ms: int) -> CatalogResult:
        known = self._state.vhosts.get(command.name)
        if known is not None:
            changed = known.record.description != command.description
            known.record = replace(known.record, description=command.description)
            return Done(changed)
        self._state.add_vhost(VhostRecord(command.name, command.description, serial=self._state.new_serial()))
        self._versions.permissions_version += 1
        return Done()

    def _describe_vhost(self, command: DescribeVhost, _time_ms: int) -> CatalogResult:
        if self._state.level < LEVEL_VHOST_METADATA:
            what = "tags, a default queue type and protection from deletion of vhosts"
            raise refusals.needs_level(what, LEVEL_VHOST_METADATA, self._state.level)
        vhost = self._state.existing_vhost(command.name)
        before = vhost.record
        if command.default_queue_type is not None and command.default_queue_type not in DEFAULT_TYPES:
            raise refusals.no_queue_type(command.default_queue_type)
        kind = "" if command.default_queue_type == CLASSIC else command.default_queue_type
        given = {"tags": command.tags, "default_queue_type": kind, "protected": command.protected}
        vhost.record = replace(before, **{key: value for key, value in given.items() if value is not None})
        return Done(vhost.record != before)

    def _set_global_parameter(self, command: SetGlobalParameter, _time_ms: int) -> CatalogResult:
        self._check_global_parameters()
        before = self._state.global_parameters.get(command.name)
        record = GlobalParameterRecord(command.name, command.value)
        self._state.global_parameters[command.name] = record
        return Done(before != record)

    def _clear_global_parameter(self, command: ClearGlobalParameter, _time_ms: int) -> CatalogResult:
        self._check_global_parameters()
        return Done(self._state.global_parameters.pop(command.name, None) is not None)

    def _check_global_parameters(self) -> None:
        if self._state.level < LEVEL_GLOBAL_PARAMETERS:
            raise refusals.needs_level("setting global parameters", LEVEL_GLOBAL_PARAMETERS, self._state.level)

    def _delete_vhost(self, command: DeleteVhost, _time_ms: int) -> CatalogResult:
        if self._state.existing_vhost(command.name).record.protected:
            raise refusals.vhost_is_protected(command.name)
        queues = self._state.remove_vhost(command.name)
        self._versions.queues_dropped += 1
        self._versions.routing_version += 1
        self._versions.permissions_version += 1
        return QueuesRemoved(queues)

    def _put_user(self, command: PutUser, _time_ms: int) -> CatalogResult:
        known = self._state.users.get(command.name)
        if known is None:
            known = UserRecord(command.name, "", serial=self._state.new_serial())
        record = replace(known, password_hash=command.password_hash, tags=command.tags)
        changed = self._state.users.get(command.name) != record
        self._state.users[command.name] = record
        self._versions.permissions_version += 1
        return Done(changed)

    def _upgrade_password(self, command: UpgradePassword, _time_ms: int) -> CatalogResult:
        known = self._state.users.get(command.name)
        if known is None or known.password_hash != command.known_hash:
            return Done(changed=False)
        self._state.users[command.name] = replace(known, password_hash=command.password_hash)
        return Done()

    def _delete_user(self, command: DeleteUser, _time_ms: int) -> CatalogResult:
        self._versions.permissions_version += 1
        return Done(self._state.remove_user(command.name))

    def _set_limit(self, command: SetLimit, _time_ms: int) -> CatalogResult:
        record: VhostRecord | UserRecord
        if command.kind == "vhost":
            vhost = self._state.existing_vhost(command.name)
            record = vhost.record
            vhost.record = with_limit(vhost.record, command.limit, command.value)
            changed = vhost.record != record
        else:
            record = self._state.existing_user(command.name)
            self._state.users[command.name] = with_limit(record, command.limit, command.value)
            changed = self._state.users[command.name] != record
        self._versions.permissions_version += 1
        return Done(changed)

    def _set_switch(self, command: SetSwitch, _time_ms: int) -> CatalogResult:
        if self._state.level < LEVEL_SWITCHES:
            raise refusals.needs_level("switching something off", LEVEL_SWITCHES, self._state.level)
        if command.feature not in FEATURES:
            text = f"'{command.feature}' is nothing that can be switched off; there are {', '.join(FEATURES)}"
            raise Refusal(PRECONDITION_FAILED, text)
        if command.vhost is not None:
            self._state.existing_vhost(command.vhost)
        changed = self._state.switches.turn(SwitchRecord(command.vhost, command.feature), command.on)
        if changed:
            # All queues may be told something else by now.
            self._versions.changed_policies.forget()
        return Done(changed)

    def _definitions_loaded(self, command: DefinitionsLoaded, _time_ms: int) -> CatalogResult:
        changed = self._state.definitions_digest != command.digest
        self._state.definitions_digest = command.digest
        return Done(changed)

    def _set_permissions(self, command: SetPermissions, _time_ms: int) -> CatalogResult:
        self._state.existing_vhost(command.vhost)
        self._state.existing_user(command.user)
        record = PermissionRecord(command.user, command.vhost, command.configure, command.write, command.read)
        self._versions.permissions_version += 1
        return Done(self._state.permissions.put((command.user, command.vhost), record))

    def _clear_permissions(self, command: ClearPermissions, _time_ms: int) -> CatalogResult:
        self._versions.permissions_version += 1
        return Done(self._state.permissions.remove((command.user, command.vhost)))

    def _set_topic_permissions(self, command: SetTopicPermissions, _time_ms: int) -> CatalogResult:
        self._state.existing_vhost(command.vhost)
        self._state.existing_user(command.user)
        record = TopicPermissionRecord(
            command.user, command.vhost, command.exchange, command.write, command.read
        )
        self._versions.permissions_version += 1
        return Done(self._state.topic_permissions.put((command.user, command.vhost, command.exchange), record))

    def _clear_topic_permissions(self, command: ClearTopicPermissions, _time_ms: int) -> CatalogResult:
        self._versions.permissions_version += 1
        table = self._state.topic_permissions
        if command.exchange is None:
            return Done(table.remove_all(command.user, command.vhost))
        return Done(table.remove((command.user, command.vhost, command.exchange)))

    # Policies

    def _set_policy(self, command: SetPolicy, _time_ms: int) -> CatalogResult:
        vhost = self._state.existing_vhost(command.vhost)
        record = self.checked_policy(command)
        before = vhost.policy_table(command.operator).put(record)
        if before != record:
            self._policies_changed(vhost, before, record)
        return PolicySet(created=before is None)

    def checked_policy(self, command: SetPolicy) -> PolicyRecord:
        """The policy that the command would set now. Raises Refusal where it would be refused."""
        record = policy_record(command)
        for key in record.definition:
            if self._state.level < (since := KEYS_SINCE_LEVEL.get(key, 0)):
                raise refusals.needs_level(key, since, self._state.level)
        if self._state.level < LEVEL_STREAMS and record.apply_to == streams.APPLY_TO:
            raise refusals.needs_level(f"apply-to '{record.apply_to}'", LEVEL_STREAMS, self._state.level)
        self._state.switches.check_definition(command.vhost, record.definition)
        return record

    def _clear_policy(self, command: ClearPolicy, _time_ms: int) -> CatalogResult:
        vhost = self._state.existing_vhost(command.vhost)
        before = vhost.policy_table(command.operator).remove(command.name)
        if before is not None:
            self._policies_changed(vhost, before, None)
        return Done(changed=before is not None)

    def _policies_changed(self, vhost: Vhost, before: PolicyRecord | None, after: PolicyRecord | None) -> None:
        vhost.policies_changed()
        self._versions.routing_version += 1
        self._versions.changed_policies.add(PolicyChange(vhost.record.name, before, after))

    # Nodes

    @property
    def _plans(self) -> bool:
        """Whether the plan is changed by commands that say how."""
        return self._state.level >= LEVEL_PLANS

    def _members(self) -> Members:
        """The members, to be changed as it is done at the cluster's level."""
        members = self._state.members
        members.has_domain_paths = self._plans
        members.is_gradual = self._plans and bool(self._state.queues)
        return members

    def _member_away(self, command: MemberAway, time_ms: int) -> CatalogResult:
        known = self._state.nodes.get(command.node_id)
        if known is None:
            is_silent = command.incarnation == NEVER_STARTED
        else:
            is_silent = not known.alive and known.incarnation == command.incarnation
        return Done(self._plans and is_silent and self._members().away(command.node_id, time_ms))

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
        self._members().started(
            command.node_id, command.name, peer_address, command.store, time_ms, command.failure_domain
        )
        return self._drop_transient(command.node_id, command.incarnation - 1)

    def _found_cluster(self, command: FoundCluster, time_ms: int) -> CatalogResult:
        founded = self._state.members.found(command, time_ms)
        if founded:
            self._state.level = command.level
        return Done(founded)

    def _add_member(self, command: AddMember, time_ms: int) -> CatalogResult:
        # No more than this: members of the first level don't look.
        if command.levels[1] < self._state.level:
            raise Refusal(PRECONDITION_FAILED, level_fault(VersionRange(*command.levels), self._state.level))
        return MemberAdded(self._members().add(command, time_ms, self._is_up))

    def _raise_level(self, command: RaiseLevel, _: int) -> CatalogResult:
        present = [record.id for record in self._state.members.with_replicas()]
        known = [(id, self._state.nodes[id].incarnation) for id in present if id in self._state.nodes]
        same = len(known) == len(present) and sorted(command.nodes) == sorted(known)
        raised = same and command.level > self._state.level
        if raised:
            self._state.level = command.level
            # What shards are told of their queues goes by the level as well.
            self._versions.changed_policies.forget()
        return Done(raised)

    def _add_shards(self, command: AddShards, _: int) -> CatalogResult:
        if self._state.level < LEVEL_SHARDS_ADDED:
            raise refusals.needs_level("adding shards", LEVEL_SHARDS_ADDED, self._state.level)
        members = self._members()
        added = members.add_shards(command.total, self._has_come)
        self._state.placement.grow(members.shard_count)
        return Done(added)

    def _has_come(self, node_id: int) -> bool:
        known = self._state.nodes.get(node_id)
        return known is not None and known.alive

    def _is_up(self, node_id: int) -> bool:
        known = self._state.nodes.get(node_id)
        return known is None or known.alive

    def _member_gone(self, command: MemberGone, time_ms: int) -> CatalogResult:
        known = self._state.nodes.get(command.node_id)
        if not self._state.members.gone(command.node_id, time_ms) or known is None:
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
