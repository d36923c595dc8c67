"""Headers exchanges: bindings that ask for header fields.

`x-match`: all (default), any, all-with-x, any-with-x. The two without "-with-x" do not look at arguments that
begin with "x-", so `all` with nothing else matches every message (golden
dlx.headers_exchange_on_death_headers).
A void argument asks for the field alone, whatever its value.

Only bindings that may match are looked at: each stands under one of the fields it asks for, all of them if any will do.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mayfly.node.catalog.records import BindingRecord
from mayfly.node.catalog.routing_steps import RoutingSteps
from mayfly.node.catalog.targets import Target, Targets
from mayfly.node.catalog.values import table_key, value_key

_Place = tuple[str, bytes | None]
"""A field with its value (`value_key`, which all stored values have), or with whatever value (None)."""


class _Pattern:
    """The arguments of one or more bindings."""

    __slots__ = ("any", "fields", "number", "places", "targets")

    def __init__(self, arguments: Mapping[str, Any], number: int) -> None:
        mode = arguments.get("x-match", "all")
        with_x = mode in ("all-with-x", "any-with-x")
        self.any = mode in ("any", "any-with-x")
        self.fields: list[_Place] = [
            (name, None if value is None else value_key(value))
            for name, value in arguments.items()
            if name != "x-match" and (with_x or not name.startswith("x-"))
        ]
        self.number = number
        """Patterns are told in the order of their numbers."""
        self.places: list[_Place] = []
        """Where it is to be found; nowhere: it is always looked at."""
        self.targets = Targets()

    @property
    def weight(self) -> int:
        """Fields to look at; 1 if there are none."""
        return len(self.fields) or 1

    def matches(self, headers: Mapping[str, bytes | None]) -> bool:
        """`headers`: the message's, by their values' keys."""
        for name, wanted in self.fields:
            found = name in headers and (wanted is None or wanted == headers[name])
            if found is self.any:
                return self.any
        return not self.any


class MessageHeaders:
    """The headers of one message, for all the exchanges that look at them."""

    def __init__(self, headers: Mapping[str, Any], steps: RoutingSteps) -> None:
        self._headers = headers
        self._steps = steps
        self._keys: dict[str, bytes | None] | None = None

    @property
    def keys(self) -> dict[str, bytes | None]:
        """The fields with the keys of their values (`value_key`). To make them costs a step for each value, also where
        there are hardly any bindings to hold them against."""
        if self._keys is None:
            self._steps.taken += _values_in(self._headers) - 1
            self._keys = {name: value_key(value) for name, value in self._headers.items()}
        return self._keys


def _values_in(value: Any) -> int:
    """The value itself, and all within it."""
    count = 0
    pending: list[Any] = [value]
    while pending:
        each = pending.pop()
        count += 1
        if isinstance(each, Mapping):
            pending.extend(each.values())
        elif isinstance(each, (list, tuple)):
            pending.extend(each)
    return count


class HeaderPatterns:
    """The bindings of one headers exchange. Bindings with the same arguments share one test."""

    def __init__(self, steps: RoutingSteps) -> None:
        self._steps = steps
        self._patterns: dict[bytes, _Pattern] = {}
        self.weight = 0
        """Fields of all of them: a match looks at no more, whatever the message has."""
        self._next_number = 0
        self._found_by: dict[_Place, dict[int, _Pattern]] = {}
        self._always: dict[int, _Pattern] = {}

    def add(self, binding: BindingRecord, target: Target) -> None:
        """Bind by the binding's arguments."""
        key = table_key(binding.arguments)
        pattern = self._patterns.get(key)
        if pattern is None:
            pattern = self._patterns[key] = _Pattern(binding.arguments, self._next_number)
            self._next_number += 1
            self._enter(pattern)
            self.weight += pattern.weight
        pattern.targets.add(binding, target)

    def remove(self, binding: BindingRecord) -> None:
        """Undo `add`; the binding must be there."""
        key = table_key(binding.arguments)
        pattern = self._patterns[key]
        pattern.targets.remove(binding)
        if not pattern.targets:
            del self._patterns[key]
            self._leave(pattern)
            self.weight -= pattern.weight

    def added_weight(self, arguments: Mapping[str, Any]) -> int:
        """What a binding with these arguments adds to `weight`."""
        return 0 if table_key(arguments) in self._patterns else _Pattern(arguments, 0).weight

    def match(self, headers: MessageHeaders | None) -> list[Targets]:
        """The targets of all bindings that match the message's headers."""
        present: dict[str, bytes | None] = {} if headers is None else headers.keys
        candidates = dict(self._always)
        steps = len(candidates)
        for patterns in self._found_under(present):
            candidates.update(patterns)
            steps += len(patterns)
        found: list[Targets] = []
        for _, pattern in sorted(candidates.items(), key=_number):
            steps += pattern.weight
            if pattern.matches(present):
                found.append(pattern.targets)
        self._steps.taken += steps
        return found

    def _found_under(self, present: dict[str, bytes | None]) -> list[dict[int, _Pattern]]:
        """The bindings that stand under the fields of a message: each field is looked up, or each of theirs, whichever
        are fewer."""
        found_by = self._found_by
        if len(found_by) < 2 * len(present):
            self._steps.taken += len(found_by)
            return [
                patterns
                for (name, wanted), patterns in found_by.items()
                if name in present and (wanted is None or wanted == present[name])
            ]
        self._steps.taken += len(present)
        found: list[dict[int, _Pattern]] = []
        for name, key in present.items():
            for place in ((name, None),) if key is None else ((name, None), (name, key)):
                patterns = found_by.get(place)
                if patterns is not None:
                    found.append(patterns)
        return found

    def _enter(self, pattern: _Pattern) -> None:
        places = pattern.fields
        if places and not pattern.any:
            # Under all of them it matches only if this one is there: the rarer it is asked for, the better.
            places = [min(places, key=lambda place: len(self._found_by.get(place, ())))]
        pattern.places = places
        for place in places:
            self._found_by.setdefault(place, {})[pattern.number] = pattern
        if not places:
            self._always[pattern.number] = pattern

    def _leave(self, pattern: _Pattern) -> None:
        for place in pattern.places:
            found = self._found_by[place]
            del found[pattern.number]
            if not found:
                del self._found_by[place]
        if not pattern.places:
            del self._always[pattern.number]


def _number(item: tuple[int, _Pattern]) -> int:
    return item[0]
