"""A bag of binding destinations: each counted, each told once."""
from __future__ import annotations

from mayfly.node.catalog.records import BindingRecord, QueueRecord

Target = QueueRecord | str
"""A queue, or the name of an exchange of the same vhost."""


class Targets:
    """Where the bindings of one kind (one key, one pattern) lead, in the order in which they were made."""

    def __init__(self) -> None:
        self._queues: dict[str, QueueRecord] = {}
        self._exchanges: dict[str, None] = {}
        self._counts: dict[tuple[str, str], int] = {}
        # Built at the first look after a change: a binding more costs no copy of all the others.
        self._queue_tuple: tuple[QueueRecord, ...] | None = ()

    def add(self, binding: BindingRecord, target: Target) -> None:
        """One binding more leads to the target."""
        key = (binding.destination_kind, binding.destination)
        self._counts[key] = self._counts.get(key, 0) + 1
        if isinstance(target, str):
            self._exchanges[target] = None
        else:
            self._queues[target.name] = target
            self._queue_tuple = None

    def remove(self, binding: BindingRecord) -> None:
        """One binding less leads to its destination."""
        key = (binding.destination_kind, binding.destination)
        count = self._counts.pop(key)
        if count > 1:
            self._counts[key] = count - 1
        elif binding.destination_kind == "queue":
            del self._queues[binding.destination]
            self._queue_tuple = None
        else:
            del self._exchanges[binding.destination]

    @property
    def queues(self) -> tuple[QueueRecord, ...]:
        """The queues among them."""
        if self._queue_tuple is None:
            self._queue_tuple = tuple(self._queues.values())
        return self._queue_tuple

    @property
    def exchanges(self) -> tuple[str, ...]:
        """The names of the exchanges among them."""
        return tuple(self._exchanges)

    def __bool__(self) -> bool:
        return bool(self._counts)
