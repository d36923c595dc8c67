"""Headers exchanges: bindings that ask for header fields.

`x-match`: all (default), any, all-with-x, any-with-x. The two without "-with-x" do not look at arguments that
begin with "x-", so `all` with nothing else matches every message (golden
dlx.headers_exchange_on_death_headers).
A void argument asks for the field alone, whatever its value.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from node.catalog.records import BindingRecord
from node.catalog.targets import Target, Targets
from node.catalog.values import same_value, table_key

_NO_HEADERS: Final[dict[str, Any]] = {}


class _Pattern:
    """The arguments of one or more bindings."""

    __slots__ = ("any", "fields", "targets")

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        mode = arguments.get("x-match", "all")
        with_x = mode in ("all-with-x", "any-with-x")
        self.any = mode in ("any", "any-with-x")
        self.fields = [
            (name, value)
            for name, value in arguments.items()
            if name != "x-match" and (with_x or not name.startswith("x-"))
        ]
        self.targets = Targets()

    def matches(self, headers: Mapping[str, Any]) -> bool:
        for name, wanted in self.fields:
            found = name in headers and (wanted is None or same_value(wanted, headers[name]))
            if found is self.any:
                return self.any
        return not self.any


class HeaderPatterns:
    """The bindings of one headers exchange. Bindings with the same arguments share one test."""

    def __init__(self) -> None:
        self._patterns: dict[bytes, _Pattern] = {}

    def add(self, binding: BindingRecord, target: Target) -> None:
        """Bind by the binding's arguments."""
        key = table_key(binding.arguments)
        pattern = self._patterns.get(key)
        if pattern is None:
            pattern = self._patterns[key] = _Pattern(binding.arguments)
        pattern.targets.add(binding, target)

    def remove(self, binding: BindingRecord) -> None:
        """Undo `add`; the binding must be there."""
        key = table_key(binding.arguments)
        pattern = self._patterns[key]
        pattern.targets.remove(binding)
        if not pattern.targets:
            del self._patterns[key]

    def match(self, headers: Mapping[str, Any] | None) -> list[Targets]:
        """The targets of all bindings that match the message's headers."""
        found = _NO_HEADERS if headers is None else headers
        return [pattern.targets for pattern in self._patterns.values() if pattern.matches(found)]
