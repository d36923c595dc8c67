"""The contents of one virtual host: exchanges, queues by name, bindings, policies, and routing through them."""
from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, TypeVar

from mayfly.node.catalog.arguments import queue_type
from mayfly.node.catalog.blocks import Blocks
from mayfly.node.catalog.effective_settings import effective_settings
from mayfly.node.catalog.exchange import Exchange
from mayfly.node.catalog.header_matching import MessageHeaders
from mayfly.node.catalog.leader_locators import POLICY_KEYS, leader_locator
from mayfly.node.catalog.policies import PolicyTable, merged_definition
from mayfly.node.catalog.records import (
    DELAYED,
    BindingRecord,
    DestinationKind,
    ExchangeRecord,
    PolicyRecord,
    QueueRecord,
    QueueSettings,
    VhostRecord,
)
from mayfly.node.catalog.routing_steps import RoutingSteps
from mayfly.node.catalog.targets import Targets
from mayfly.node.catalog.values import table_key
from mayfly.node.limits import ROUTING_WEIGHT

DEFAULT_EXCHANGE: Final = ""

_Name = TypeVar("_Name")

BindingKey = tuple[str, DestinationKind, str, str, bytes]
"""Source, destination kind and name, routing key, arguments: what makes two bindings the same."""


def binding_key(binding: BindingRecord) -> BindingKey:
    """What tells the binding from others of its vhost."""
    return (
        binding.source, binding.destination_kind, binding.destination, binding.routing_key,
        table_key(binding.arguments),
    )


def predeclared_exchanges(vhost: str) -> list[ExchangeRecord]:
    """The exchanges every vhost begins with (AMQP 0-9-1, 3.1.3)."""
    return [
        ExchangeRecord(vhost, DEFAULT_EXCHANGE, "direct"),
        ExchangeRecord(vhost, "amq.direct", "direct"),
        ExchangeRecord(vhost, "amq.fanout", "fanout"),
        ExchangeRecord(vhost, "amq.headers", "headers"),
        ExchangeRecord(vhost, "amq.match", "headers"),
        ExchangeRecord(vhost, "amq.topic", "topic"),
    ]


class Vhost:
    """Exchanges, queues and bindings of one vhost. The caller has checked what it asks for."""

    def __init__(self, record: VhostRecord, left_queues: list[QueueRecord], steps: RoutingSteps) -> None:
        """`left_queues` gets the queues of delayed exchanges that go, for who knows all queues; `steps` count what
        routing costs."""
        self.record = record
        self._left_queues = left_queues
        self.queues: dict[str, QueueRecord] = {}
        self.delay_queues: dict[str, QueueRecord] = {}
        """By exchange, the queues in which messages of delayed exchanges wait (RULES S1)."""
        self.policies = PolicyTable()
        self.operator_policies = PolicyTable()
        self.weight = 0
        """Of the bindings of all exchanges (`Exchange.weight`)."""
        self._steps = steps
        self._policies_version = 0
        self._exchanges: dict[str, Exchange] = {}
        self._bindings: Blocks[BindingRecord] = Blocks()
        """In the order of their making: by numbers that count on this replica alone."""
        self._numbers: dict[BindingKey, int] = {}
        self._next_number = 0
        self._from: dict[str, dict[BindingKey, BindingRecord]] = {}
        self._to: dict[tuple[DestinationKind, str], dict[BindingKey, BindingRecord]] = {}

    # Reading

    def exchange(self, name: str) -> ExchangeRecord | None:
        """The exchange of that name."""
        found = self._exchanges.get(name)
        return None if found is None else found.record

    def exchanges(self) -> Iterator[ExchangeRecord]:
        """All exchanges, in the order of their declaration."""
        return (exchange.record for exchange in self._exchanges.values())

    def bindings(self) -> Iterable[BindingRecord]:
        """All bindings but the default exchange's, in the order of their making."""
        return self._bindings.values()

    @property
    def bindings_count(self) -> int:
        """How many those are."""
        return len(self._bindings)

    def lend_bindings(self) -> deque[dict[int, BindingRecord]]:
        """The same as they are now; see `Blocks.lend`."""
        return self._bindings.lend()

    def is_source(self, exchange: str) -> bool:
        """Whether any bindings lead from the exchange."""
        return exchange in self._from

    def bindings_from(self, exchange: str) -> list[BindingRecord]:
        """The bindings of which the exchange is the source."""
        return list(self._from.get(exchange, {}).values())

    def bindings_count_from(self, exchange: str) -> int:
        """How many there are with this source."""
        return len(self._from.get(exchange, ()))

    def bindings_to(self, kind: DestinationKind, name: str) -> list[BindingRecord]:
        """The bindings that lead to the queue or exchange."""
        return list(self._to.get((kind, name), {}).values())

    # Policies

    def policy_table(self, operator: bool) -> PolicyTable:
        """The policies, or the operator policies."""
        return self.operator_policies if operator else self.policies

    def policies_of_queue(self, queue: QueueRecord) -> tuple[PolicyRecord | None, PolicyRecord | None]:
        """The policy and the operator policy that apply to the queue; its type is the one that was asked for."""
        kind = queue_type(queue.arguments)
        return self.policies.for_thing(kind, queue.name), self.operator_policies.for_thing(kind, queue.name)

    def effective_settings(self, queue: QueueRecord, definition: dict[str, Any] | None = None) -> QueueSettings:
        """What counts for the queue now: its arguments and the policies that apply to it, or what they would say."""
        if definition is None:
            definition = merged_definition(*self.policies_of_queue(queue))
        return effective_settings(queue.settings, queue.arguments, definition)

    def leader_locator(self, name: str, arguments: Mapping[str, Any]) -> str:
        """What a queue of that name says of its leader's place with these arguments and the policies that apply."""
        kind = queue_type(arguments)
        policies = (
            None if table.keys_used.keys().isdisjoint(POLICY_KEYS) else table.for_thing(kind, name)
            for table in (self.policies, self.operator_policies)
        )
        return leader_locator(kind != "classic", arguments, merged_definition(*policies))

    def policies_changed(self) -> None:
        """The policies are others now: exchanges get their alternates anew, each when it is used."""
        self._policies_version += 1

    def _alternate(self, exchange: Exchange) -> str | None:
        if exchange.policies_seen != self._policies_version:
            exchange.policies_seen = self._policies_version
            exchange.alternate = self._find_alternate(exchange.record)
        return exchange.alternate

    def _find_alternate(self, exchange: ExchangeRecord) -> str | None:
        if exchange.alternate is not None:
            return exchange.alternate
        name = exchange.name
        if name == DEFAULT_EXCHANGE:
            return None  # what it can't route is returned, whatever policies fit an empty name
        self._steps.taken += len(self.policies) + len(self.operator_policies)
        policies = (
            table.for_thing("exchange", name) if "alternate-exchange" in table.keys_used else None
            for table in (self.policies, self.operator_policies)
        )
        return merged_definition(*policies).get("alternate-exchange")

    # Changing

    def add_exchange(self, record: ExchangeRecord) -> None:
        """Add an exchange of a new name."""
        self._exchanges[record.name] = Exchange(record, self._steps)

    def remove_exchange(self, name: str) -> None:
        """Remove the exchange with its bindings, and auto-delete exchanges that lose their last one by it."""
        doomed = [name]
        for each in doomed:
            exchange = self._exchanges.pop(each, None)
            if exchange is None:
                continue
            self.weight -= exchange.weight
            if exchange.record.type == DELAYED and (delay_queue := self.delay_queues.pop(each, None)) is not None:
                self._left_queues.append(delay_queue)
            for binding in self.bindings_from(each):
                self._drop(binding)
            doomed.extend(
                binding.source
                for binding in self.bindings_to("exchange", each)
                if self._drop(binding) and self._is_done_with(binding.source)
            )

    def add_queue(self, record: QueueRecord) -> None:
        """Add a queue of a new name."""
        self._table_of(record)[record.name] = record

    def _table_of(self, record: QueueRecord) -> dict[str, QueueRecord]:
        return self.delay_queues if record.delays else self.queues

    def replace_queue(self, record: QueueRecord) -> None:
        """The queue of that name is known as this from now on, and so are the targets of its bindings."""
        self._table_of(record)[record.name] = record
        if record.delays:
            return
        for binding in self.bindings_to("queue", record.name):
            self._drop(binding)
            self.add_binding(binding)

    def remove_queue(self, record: QueueRecord) -> None:
        """Remove the queue with its bindings, and auto-delete exchanges that lose their last one by it."""
        del self._table_of(record)[record.name]
        if record.delays:
            return
        for binding in self.bindings_to("queue", record.name):
            self.remove_binding(binding)

    def add_binding(self, binding: BindingRecord) -> bool:
        """Bind; False when it was bound already. Both ends must be there."""
        key = binding_key(binding)
        if key in self._numbers:
            return False
        self._numbers[key] = self._next_number
        self._bindings.put(self._next_number, binding)
        self._next_number += 1
        self._from.setdefault(binding.source, {})[key] = binding
        self._to.setdefault((binding.destination_kind, binding.destination), {})[key] = binding
        name = binding.destination
        target = self.queues[name] if binding.destination_kind == "queue" else name
        source = self._exchanges[binding.source]
        self.weight -= source.weight
        source.add(binding, target)
        self.weight += source.weight
        return True

    def has_binding(self, binding: BindingRecord) -> bool:
        """Whether it is bound already."""
        return binding_key(binding) in self._numbers

    def too_heavy(self, binding: BindingRecord) -> bool:
        """Whether routing could take too long with this binding as well, and by it. Its source must be there."""
        added = self._exchanges[binding.source].added_weight(binding)
        return added > 0 and self.weight + added > ROUTING_WEIGHT

    def remove_binding(self, binding: BindingRecord) -> bool:
        """Unbind; False when it was not bound. An auto-delete source goes with its last binding."""
        if not self._drop(binding):
            return False
        if self._is_done_with(binding.source):
            self.remove_exchange(binding.source)
        return True

    def _is_done_with(self, exchange: str) -> bool:
        source = self._exchanges.get(exchange)
        return source is not None and source.record.auto_delete and source.bindings_count == 0

    def _drop(self, binding: BindingRecord) -> bool:
        key = binding_key(binding)
        number = self._numbers.pop(key, None)
        known = None if number is None else self._bindings.get(number)
        if number is None or known is None:
            return False
        self._bindings.remove(number)
        _forget(self._from, known.source, key)
        _forget(self._to, (known.destination_kind, known.destination), key)
        source = self._exchanges.get(known.source)
        if source is not None:
            self.weight -= source.weight
            source.remove(known)
            self.weight += source.weight
        return True

    # Routing

    def route(
        self, exchange: str, key: str, headers: Mapping[str, Any] | None, extra_keys: Sequence[str],
        waits: bool = False,
    ) -> tuple[QueueRecord, ...]:
        """The queues a message published to the exchange goes to, each once; none without the exchange, and no mirrors
        (RULES J4). If it `waits`, what comes to a delayed exchange goes into the queue of that, and no further (S1).
        Raises TooManySteps."""
        self._steps.taken += 1
        source = self._exchanges.get(exchange)
        if source is None:
            return ()
        seen = None if headers is None else MessageHeaders(headers, self._steps)
        matches: list[Targets] | None = None
        if not extra_keys and not waits:
            if exchange == DEFAULT_EXCHANGE:
                queue = self.queues.get(key)
                return () if queue is None or queue.settings.mirror is not None else (queue,)
            if not source.onward:
                matches = source.match(key, seen)
                if len(matches) == 1:
                    found = matches[0].queues
                    if found or self._alternate(source) is None:
                        return found
        return self._route_on(exchange, [key, *extra_keys], seen, waits, matches)

    def _route_on(
        self, first: str, keys: list[str], headers: MessageHeaders | None, waits: bool, matches: list[Targets] | None
    ) -> tuple[QueueRecord, ...]:
        """Follow bindings from exchange to exchange, each exchange once, so that rings of them do no harm. `matches`:
        those of the first one, if they are known."""
        queues: dict[int, QueueRecord] = {}
        before = self._steps.taken
        pending = [first]
        seen = {first}
        for name in pending:
            exchange = self._exchanges.get(name)
            if exchange is None:
                continue
            self._steps.taken += 1 + len(keys)
            self._steps.check(before)
            onward: list[str] = []
            routed = False
            if waits and name in self.delay_queues:
                queue = self.delay_queues[name]
                queues[queue.id] = queue
                continue
            if name == DEFAULT_EXCHANGE:
                for key in keys:
                    named = self.queues.get(key)
                    if named is not None and named.settings.mirror is None:
                        queues[named.id] = named
                        routed = True
            else:
                if matches is None:
                    matches = self._matches(exchange, keys, headers, before)
                for targets in matches:
                    found, further = targets.queues, targets.exchanges
                    self._steps.taken += 1 + len(found) + len(further)
                    for queue in found:
                        queues[queue.id] = queue
                    onward.extend(further)
                    routed = routed or bool(targets)
            matches = None
            if not routed and (alternate := self._alternate(exchange)) is not None:
                onward.append(alternate)
            for following in onward:
                if following not in seen:
                    seen.add(following)
                    pending.append(following)
        return tuple(queues.values())

    def _matches(
        self, exchange: Exchange, keys: list[str], headers: MessageHeaders | None, before: int
    ) -> list[Targets]:
        if exchange.routes_as in ("fanout", "headers"):
            return exchange.match(keys[0], headers)
        found: list[Targets] = []
        for key in keys:
            found += exchange.match(key, headers)
            self._steps.check(before)
        return found

    def looks_at_headers(self, exchange: str) -> bool:
        """Whether a message published to the exchange may reach a headers exchange."""
        return any(self._exchanges[name].routes_as == "headers" for name in self._reached_from(exchange))

    def may_delay(self, exchange: str) -> bool:
        """Whether a message published to the exchange may come to a delayed one."""
        return bool(self.delay_queues) and any(name in self.delay_queues for name in self._reached_from(exchange))

    def may_reach(self, exchange: str, key: str | None, queue: str) -> bool:
        """Whether a message published to the exchange may go to the queue, by whatever keys it is bound; with this key,
        or None: with any."""
        sources = {binding.source for binding in self.bindings_to("queue", queue)}
        return any(
            key is None or key == queue if name == DEFAULT_EXCHANGE else name in sources
            for name in self._reached_from(exchange)
        )

    def _reached_from(self, exchange: str) -> Iterator[str]:
        """The exchanges to which a message published to the exchange may come, itself first."""
        pending = [exchange]
        seen = {exchange}
        for name in pending:
            reached = self._exchanges.get(name)
            if reached is None:
                continue
            self._steps.taken += 1
            yield name
            alternate = self._alternate(reached)
            onward = [] if alternate is None else [alternate]
            for following in chain(onward, reached.onward):
                if following not in seen:
                    seen.add(following)
                    pending.append(following)


def _forget(index: dict[_Name, dict[BindingKey, BindingRecord]], name: _Name, key: BindingKey) -> None:
    entries = index[name]
    del entries[key]
    if not entries:
        del index[name]
