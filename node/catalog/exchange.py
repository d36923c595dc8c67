"""One exchange with its bindings: which destinations a key and headers lead to."""
from __future__ import annotations

from typing import Final

from mayfly.node.catalog.header_matching import HeaderPatterns, MessageHeaders
from mayfly.node.catalog.records import BindingRecord, ExchangeRecord
from mayfly.node.catalog.routing_steps import RoutingSteps
from mayfly.node.catalog.targets import Target, Targets
from mayfly.node.catalog.topics import TopicPatterns

EXCHANGE_TYPES: Final = frozenset({"direct", "fanout", "topic", "headers"})
"""The types that AMQP 0-9-1 has."""


class Exchange:
    """An exchange and the index of the bindings of which it is the source."""

    def __init__(self, record: ExchangeRecord, steps: RoutingSteps) -> None:
        self.record = record
        self.alternate: str | None = record.alternate
        """The alternate exchange that counts, of the arguments, else of the policies; as of `policies_seen`."""
        self.policies_seen = -1
        self.bindings_count = 0
        self.onward: dict[str, int] = {}
        """Other exchanges to which bindings lead, and how many do."""
        self.routes_as: str = record.routes_as
        self._keys: dict[str, Targets] = {}
        self._topics: TopicPatterns | None = TopicPatterns(steps) if self.routes_as == "topic" else None
        self._headers: HeaderPatterns | None = HeaderPatterns(steps) if self.routes_as == "headers" else None
        self._all: Targets | None = Targets() if self.routes_as == "fanout" else None

    def add(self, binding: BindingRecord, target: Target) -> None:
        """One binding more."""
        self.bindings_count += 1
        if isinstance(target, str):
            self.onward[target] = self.onward.get(target, 0) + 1
        if self._all is not None:
            self._all.add(binding, target)
        elif self._topics is not None:
            self._topics.add(binding, target)
        elif self._headers is not None:
            self._headers.add(binding, target)
        else:
            targets = self._keys.get(binding.routing_key)
            if targets is None:
                targets = self._keys[binding.routing_key] = Targets()
            targets.add(binding, target)

    def remove(self, binding: BindingRecord) -> None:
        """Undo `add`; the binding must be there."""
        self.bindings_count -= 1
        if binding.destination_kind == "exchange":
            count = self.onward.pop(binding.destination)
            if count > 1:
                self.onward[binding.destination] = count - 1
        if self._all is not None:
            self._all.remove(binding)
        elif self._topics is not None:
            self._topics.remove(binding)
        elif self._headers is not None:
            self._headers.remove(binding)
        else:
            targets = self._keys[binding.routing_key]
            targets.remove(binding)
            if not targets:
                del self._keys[binding.routing_key]

    @property
    def weight(self) -> int:
        """What its bindings can make a match cost: words of topic patterns, fields of headers. Others cost nothing."""
        if self._topics is not None:
            return self._topics.weight
        return 0 if self._headers is None else self._headers.weight

    def added_weight(self, binding: BindingRecord) -> int:
        """What a binding adds to `weight`; nothing if there is one like it."""
        if self._topics is not None:
            return self._topics.added_weight(binding.routing_key)
        return 0 if self._headers is None else self._headers.added_weight(binding.arguments)

    def match(self, key: str, headers: MessageHeaders | None) -> list[Targets]:
        """The destinations of the bindings that match, as sets that may overlap."""
        if self._all is not None:
            return [self._all]
        if self._topics is not None:
            return self._topics.match(key)
        if self._headers is not None:
            return self._headers.match(headers)
        targets = self._keys.get(key)
        return [] if targets is None else [targets]
