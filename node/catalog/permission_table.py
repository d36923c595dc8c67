"""Records of what users may do in vhosts, found by either: a user or a vhost that goes takes its own along, and nobody
looks at those of others."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from mayfly.node.catalog.records import PermissionRecord, TopicPermissionRecord

_Record = TypeVar("_Record", PermissionRecord, TopicPermissionRecord)

Key = tuple[str, ...]
"""User and vhost, and, where a record is for one exchange, that."""

_Owner = tuple[str | None, str | None]
"""A user (with None), a vhost (behind None), or a user in a vhost."""


class PermissionTable(Generic[_Record]):
    """In the order in which the keys came, on every replica."""

    def __init__(self) -> None:
        self._records: dict[Key, _Record] = {}
        self._of: dict[_Owner, dict[Key, None]] = {}

    def get(self, key: Key) -> _Record | None:
        """The record of that key."""
        return self._records.get(key)

    def records(self) -> Iterable[_Record]:
        """All of them."""
        return self._records.values()

    def put(self, key: Key, record: _Record) -> bool:
        """Set a record; whether it is another one than before."""
        before = self._records.get(key)
        self._records[key] = record
        if before is None:
            for owner in _owners(key):
                self._of.setdefault(owner, {})[key] = None
        return before != record

    def remove(self, key: Key) -> bool:
        """Remove a record; whether there was one."""
        if self._records.pop(key, None) is None:
            return False
        for owner in _owners(key):
            keys = self._of[owner]
            del keys[key]
            if not keys:
                del self._of[owner]
        return True

    def remove_all(self, user: str | None, vhost: str | None) -> bool:
        """Remove the records of a user, of a vhost, or of a user in a vhost; whether there were any."""
        keys = list(self._of.get((user, vhost), ()))
        for key in keys:
            self.remove(key)
        return bool(keys)


def _owners(key: Key) -> tuple[_Owner, ...]:
    return (key[0], None), (None, key[1]), (key[0], key[1])
