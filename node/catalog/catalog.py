"""The metadata state machine: vhosts, users, permissions, nodes, exchanges, bindings, queues, policies and places.

Deterministic: the same commands with the same times lead to the same state and the same snapshot, byte for
byte, on every replica (C1). It knows no clock, no chance and no order but that of the commands.

Reading has no side effects and is done on the local replica; every change is a command through the log.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from mayfly.cluster.versions import LEVEL_STREAMS, LEVEL_TTL_DIALECTS
from mayfly.node.amqp.settings import CLUSTER_NAME
from mayfly.node.catalog import refusals, snapshot
from mayfly.node.catalog.changes import Changes, Versions
from mayfly.node.catalog.commands import Bind, CatalogCommand, DeclareExchange, DeclareQueue, MoveQueue, SetPolicy
from mayfly.node.catalog.declarations import (
    checked_binding,
    existing_exchange,
    existing_queue,
    may_access,
    new_queue_settings,
    with_default_type,
)
from mayfly.node.catalog.effective_settings import CONSUMER_TIMEOUT, consumer_timeout_ms
from mayfly.node.catalog.members import Members
from mayfly.node.catalog.policies import merged_definition
from mayfly.node.catalog.policy_changes import PolicyChange
from mayfly.node.catalog.records import (
    CLUSTER_NAME_PARAMETER,
    BindingRecord,
    ExchangeRecord,
    GlobalParameterRecord,
    NodeRecord,
    PermissionRecord,
    PolicyRecord,
    QueueRecord,
    QueueSettings,
    TopicPermissionRecord,
    UserRecord,
    VhostRecord,
)
from mayfly.node.catalog.results import CatalogResult, Refusal
from mayfly.node.catalog.routing_steps import RoutingTurns
from mayfly.node.catalog.snapshot import CatalogSnapshotInSteps, ReadingInSteps
from mayfly.node.catalog.state import CatalogState
from mayfly.node.catalog.streams import switches_ttls_on
from mayfly.node.catalog.switches import Switches, without
from mayfly.node.catalog.ttl_dialects import POLICY_KEY, RABBITMQ, ttl_dialect

_LET_GO_AT_ONCE: Final = 1024
"""Queues, with their bindings."""


class Catalog(Versions):
    """One replica of the cluster's metadata: reading, and the way in for commands (`node.catalog.changes`)."""

    def __init__(self, founding_shards: int) -> None:
        super().__init__()
        self._state = CatalogState(founding_shards)
        self._state.add_defaults()
        self._changes = Changes(self._state, self)
        self.routing_turns: RoutingTurns = RoutingTurns(self._state.routing_steps)
        """Whose turn it is to route on this node; the engine begins them."""
        self._left: deque[CatalogState] = deque()
        """Large states that were replaced, and are let go bit by bit."""

    # The state machine

    def apply(self, command: CatalogCommand, time_ms: int = 0) -> CatalogResult:
        """Apply one command of the log; `time_ms` is the group's clock at it.

        A command that answers Refusal has changed nothing.
        """
        try:
            return self._changes.apply(command, time_ms)
        except Refusal as refusal:
            return refusal.with_traceback(None)

    def snapshot(self) -> bytes:
        """The whole state; equal bytes for equal states."""
        return snapshot.dump(self._state)

    def snapshot_steps(self) -> CatalogSnapshotInSteps:
        """The same as of now, in steps; what is applied between them changes nothing in it."""
        return CatalogSnapshotInSteps(self._state)

    def restore(self, data: bytes) -> None:
        """Replace the whole state. Raises MalformedSnapshot and changes nothing then."""
        self.become(snapshot.load(data, self._state.founding_shards))
        self._left.clear()

    def reading(self, data: bytes) -> ReadingInSteps:
        """What a snapshot says, in steps; its state is for `become`."""
        return ReadingInSteps(data, self._state.founding_shards)

    def become(self, state: CatalogState) -> None:
        """Replace the whole state by one that was read to its end."""
        if len(self._state.queues) > _LET_GO_AT_ONCE:
            self._left.append(self._state)
        state.routing_steps.taken = self._state.routing_steps.taken
        self.routing_turns.steps = state.routing_steps
        self._state = state
        self._changes = Changes(state, self)
        self.all_may_differ()

    def let_go(self) -> bool:
        """Let go of a bounded part of what was replaced, if there is such; whether there is more. To free a million
        queues at once would hold the node."""
        if self._left and not self._left[0].take_apart(_LET_GO_AT_ONCE):
            self._left.popleft()
        return bool(self._left)

    # Routing

    def route(
        self,
        vhost: str,
        exchange: str,
        routing_key: str,
        headers: Mapping[str, Any] | None = None,
        extra_keys: Sequence[str] = (),
        waits: bool = False,
    ) -> tuple[QueueRecord, ...]:
        """The queues a message goes to, each once. One that `waits` (RULES S1) comes no further than to the queues of
        delayed exchanges, `delay_queue`.

        `extra_keys` are the keys of CC and BCC. `headers` are looked at by headers exchanges alone
        (`looks_at_headers`). Empty when nothing is bound, or the vhost or exchange is not there. Raises TooManySteps.
        """
        found = self._state.vhosts.get(vhost)
        if found is None:
            return ()
        queues = found.route(exchange, routing_key, headers, extra_keys, waits)
        self._state.routing_steps.taken += len(queues)  # Whoever asks does something for each.
        return queues

    def may_delay(self, vhost: str, exchange: str) -> bool:
        """Whether a message published to the exchange may come to a delayed one, and wait there."""
        found = self._state.vhosts.get(vhost)
        return found is not None and found.may_delay(exchange)

    def looks_at_headers(self, vhost: str, exchange: str) -> bool:
        """Whether routing a message published to the exchange can depend on its headers."""
        found = self._state.vhosts.get(vhost)
        return found is not None and found.looks_at_headers(exchange)

    def may_reach(self, vhost: str, exchange: str, key: str | None, queue: str) -> bool:
        """Whether a message published to the exchange may go to the queue of that name, by whatever keys it is bound;
        with this key, or None: with any."""
        found = self._state.vhosts.get(vhost)
        return found is not None and found.may_reach(exchange, key, queue)

    @property
    def routing_steps(self) -> int:
        """What routing has cost here so far (`node.catalog.routing_steps`); it only grows."""
        return self._state.routing_steps.taken

    # Queues

    @property
    def shard_count(self) -> int:
        """The number of replicated shards; their ids are 1..shard_count. It only grows."""
        return self._state.members.shard_count

    @property
    def founding_shards(self) -> int:
        """With how many of them the cluster began: another catalog's snapshot can't be read."""
        return self._state.founding_shards

    @property
    def shard_queue_counts(self) -> Sequence[int]:
        """How many queues each replicated shard holds, shard 1 first."""
        return self._state.placement.counts

    def queue(self, vhost: str, name: str) -> QueueRecord | None:
        """The queue of that name."""
        found = self._state.vhosts.get(vhost)
        return None if found is None else found.queues.get(name)

    def delay_queue(self, vhost: str, exchange: str) -> QueueRecord | None:
        """The queue in which messages wait that were published to this delayed exchange (RULES S1)."""
        found = self._state.vhosts.get(vhost)
        return None if found is None else found.delay_queues.get(exchange)

    def delay_queues(self) -> list[QueueRecord]:
        """Those of all delayed exchanges."""
        return [queue for vhost in self._state.vhosts.values() for queue in vhost.delay_queues.values()]

    def queue_by_id(self, queue_id: int) -> QueueRecord | None:
        """The queue with that id; it may be that of a delayed exchange."""
        return self._state.queues.get(queue_id)

    def queues(self, vhost: str | None = None) -> Iterable[QueueRecord]:
        """The queues of a vhost, or all of them, without those of delayed exchanges."""
        if vhost is None:
            return (queue for queue in self._state.queues.values() if not queue.delays)
        found = self._state.vhosts.get(vhost)
        return () if found is None else found.queues.values()

    @property
    def queues_count(self) -> int:
        """How many queues there are in all vhosts, without those of delayed exchanges."""
        delaying = sum(len(vhost.delay_queues) for vhost in self._state.vhosts.values())
        return len(self._state.queues) - delaying

    def blocks_of_shard(self, shard: int) -> list[int]:
        """The blocks in which a shard has queues, ascending: so its queues can be gone through bit by bit."""
        return self._state.queues.blocks_of(shard)

    def queues_in_block(self, shard: int, block: int) -> list[QueueRecord]:
        """The queues that a shard has in a block, by id; a few thousand at most."""
        return self._state.queues.in_block(shard, block)

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
        """What the command would meet now: the equivalent queue, a Refusal, or None: it would make or change one."""
        try:
            command = with_default_type(self._state.existing_vhost(command.vhost).record, command)
            self._state.switches.check_arguments(command.vhost, command.name, command.arguments)
            queue = existing_queue(self._state.existing_vhost(command.vhost), command, self._state.level)
            if queue is None:
                new_queue_settings(command, self._state.level)
            elif switches_ttls_on(command.arguments, queue.arguments) and self._state.level >= LEVEL_STREAMS:
                return None  # It changes one.
            return queue
        except Refusal as refusal:
            return refusal.with_traceback(None)

    def with_default_type(self, command: DeclareQueue) -> DeclareQueue:
        """The command with the type of queues that its vhost has for those without one."""
        found = self._state.vhosts.get(command.vhost)
        return command if found is None else with_default_type(found.record, command)

    def leader_locator(self, command: DeclareQueue) -> str:
        """For the command's field of that name: what its arguments and this replica's policies say."""
        found = self._state.vhosts.get(command.vhost)
        return "" if found is None else found.leader_locator(command.name, command.arguments)

    def moving_queues(self) -> Collection[QueueRecord]:
        """The queues that are to move to another shard, or are moving."""
        return self._state.moving.values()

    def may_move(self, command: MoveQueue) -> bool:
        """Whether the command would not be refused now."""
        try:
            self._changes.queue_to_move(command)
        except Refusal:
            return False
        return True

    def copying_streams(self) -> Collection[QueueRecord]:
        """The streams that copy others (RULES J4)."""
        return self._state.copying.values()

    @property
    def queues_moved(self) -> int:
        """How many queues have moved, as far as this replica knows."""
        return self.moved.version

    def moved_since(self, version: int) -> list[int] | None:
        """The ids of those that have moved since `queues_moved` was `version`; None if any may have."""
        return self.moved.since(version)

    def queues_since(self, first_id: int) -> Iterator[QueueRecord]:
        """The queues with this id or a higher one, the youngest first; quick when there are few."""
        for queue in self._state.queues.newest_first():
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

    def policies(self, vhost: str | None = None, operator: bool = False) -> Iterator[PolicyRecord]:
        """The policies, or operator policies, of a vhost or of all; in each the one that goes before others first."""
        found = self._state.vhosts.values() if vhost is None else [self._state.vhosts.get(vhost)]
        return chain.from_iterable(each.policy_table(operator).by_precedence() for each in found if each is not None)

    def checked_policy(self, command: SetPolicy) -> PolicyRecord:
        """The policy that the command would set now, its pattern unchecked. Raises Refusal where it would be refused.
        """
        self._state.existing_vhost(command.vhost)
        return self._changes.checked_policy(command)

    def policies_of_queue(self, queue: QueueRecord) -> tuple[PolicyRecord | None, PolicyRecord | None]:
        """The policy and the operator policy that apply to a queue of the catalog; see `node.catalog.policies`."""
        return self._state.vhosts[queue.vhost].policies_of_queue(queue)

    def policy_definition(self, queue: QueueRecord) -> dict[str, Any]:
        """What the policies of a queue of the catalog say together, its arguments aside."""
        return merged_definition(*self.policies_of_queue(queue))

    def effective_settings(self, queue: QueueRecord, definition: dict[str, Any] | None = None) -> QueueSettings:
        """What counts for a queue now, arguments and policies together (T3, L1, D1); with a `definition`, if its
        policies said that.

        For one whose vhost is gone: its arguments.
        """
        found = self._state.vhosts.get(queue.vhost)
        settings = queue.settings if found is None else found.effective_settings(queue, definition)
        off = self._state.switches.off_in(queue.vhost)
        return without(settings, off) if off else settings

    @property
    def switches(self) -> Switches:
        """What is off; for reading."""
        return self._state.switches

    def ttl_dialect(self, queue: QueueRecord, definition: dict[str, Any] | None = None) -> str:
        """In whose way the TTLs of a queue count, one of `ttl_dialects.TTL_DIALECTS` (RULES X1); `definition` as in
        `effective_settings`."""
        if self._state.level < LEVEL_TTL_DIALECTS or queue.vhost not in self._state.vhosts:
            return RABBITMQ
        if definition is None:
            definition = self.policy_definition(queue) if self.a_policy_says(POLICY_KEY, queue.vhost) else {}
        return ttl_dialect(queue.arguments, definition)

    def says_dead_letter_strategy(self, queue: QueueRecord, definition: dict[str, Any] | None = None) -> bool:
        """Whether arguments or policies of a queue of the catalog choose one; `definition` as in
        `effective_settings`."""
        if "x-dead-letter-strategy" in queue.arguments:
            return True
        return "dead-letter-strategy" in (self.policy_definition(queue) if definition is None else definition)

    def consumer_timeout_ms(self, queue: QueueRecord) -> int | None:
        """How long consumers may hold a delivery of a queue of the catalog, as its arguments and policies say it; None:
        they say nothing (RULES Q3)."""
        definition = self.policy_definition(queue) if self.a_policy_says(CONSUMER_TIMEOUT, queue.vhost) else {}
        return consumer_timeout_ms(queue.arguments, definition)

    def a_policy_says(self, key: str, vhost: str) -> bool:
        """Whether the key is in a definition of any policy, or operator policy, of the vhost."""
        found = self._state.vhosts.get(vhost)
        return found is not None and (key in found.policies.keys_used or key in found.operator_policies.keys_used)

    @property
    def policies_count(self) -> int:
        """Of the vhost with the most, both kinds together: as many a name may be held against."""
        vhosts = self._state.vhosts.values()
        return max((len(each.policies) + len(each.operator_policies) for each in vhosts), default=0)

    @property
    def policies_version(self) -> int:
        """Grows with every change of policies; counts on this replica alone, to tell what is out of date."""
        return self.changed_policies.version

    def policy_changes(self, since_version: int) -> list[PolicyChange] | None:
        """What has changed since that version, oldest first; None: anything may have."""
        return self.changed_policies.since(since_version)

    # Exchanges and bindings

    def exchange(self, vhost: str, name: str) -> ExchangeRecord | None:
        """The exchange of that name; "" is the default exchange."""
        return self._state.exchange(vhost, name)

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
            return existing_exchange(self._state.existing_vhost(command.vhost), command, self._state.level)
        except Refusal as refusal:
            return refusal.with_traceback(None)

    def bindings(self, vhost: str) -> Iterable[BindingRecord]:
        """The bindings of a vhost, without the implicit ones of the default exchange."""
        found = self._state.vhosts.get(vhost)
        return () if found is None else found.bindings()

    def bindings_count_from(self, vhost: str, exchange: str) -> int:
        """How many bindings have this exchange as their source."""
        found = self._state.vhosts.get(vhost)
        return 0 if found is None else found.bindings_count_from(exchange)

    def is_bound(self, command: Bind) -> bool:
        """Whether the command would change nothing."""
        try:
            vhost = self._state.existing_vhost(command.vhost)
            binding = checked_binding(vhost, command)
        except Refusal:
            return False
        return binding is not None and vhost.has_binding(binding)

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

    @property
    def cluster_name(self) -> str:
        """What the cluster is called where clients and tools are told."""
        record = self._state.global_parameters.get(CLUSTER_NAME_PARAMETER)
        return CLUSTER_NAME if record is None else str(record.value)

    def global_parameters(self) -> list[GlobalParameterRecord]:
        """Those that were set."""
        return list(self._state.global_parameters.values())

    def global_parameter(self, name: str) -> GlobalParameterRecord | None:
        """The one of that name."""
        return self._state.global_parameters.get(name)

    def user(self, name: str) -> UserRecord | None:
        """The user of that name."""
        return self._state.users.get(name)

    def users(self) -> Iterable[UserRecord]:
        """All users."""
        return self._state.users.values()

    def permission(self, user: str, vhost: str) -> PermissionRecord | None:
        """The user's permissions in the vhost."""
        return self._state.permission(user, vhost)

    def permissions(self) -> Iterable[PermissionRecord]:
        """All permissions."""
        return self._state.permissions.records()

    def topic_permission(self, user: str, vhost: str, exchange: str) -> TopicPermissionRecord | None:
        """What restricts the user's routing keys at the exchange."""
        return self._state.topic_permission(user, vhost, exchange)

    def topic_permissions(self) -> Iterable[TopicPermissionRecord]:
        """All topic permissions."""
        return self._state.topic_permissions.records()

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
