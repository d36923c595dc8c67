"""A policy that is not set yet, among those that are: which queues it would concern, and what they would be told (RULES
R3). Nothing of the catalog is changed."""

from __future__ import annotations

from typing import Any

import msgspec

from mayfly.node.catalog.arguments import queue_type
from mayfly.node.catalog.catalog import Catalog
from mayfly.node.catalog.effective_settings import consumer_timeout_ms
from mayfly.node.catalog.policies import PolicyTable, merged_definition
from mayfly.node.catalog.policy_changes import PolicyChange
from mayfly.node.catalog.records import PolicyRecord, QueueRecord
from mayfly.node.catalog.shard_settings import shard_settings
from mayfly.node.shard.settings import encode_terms


class PolicyTrial:
    """One policy, or operator policy, on trial: put beside those that there are, in the place of that of its name."""

    def __init__(self, catalog: Catalog, policy: PolicyRecord, operator: bool) -> None:
        self._catalog = catalog
        self._operator = operator
        self._table = PolicyTable()
        for record in catalog.policies(policy.vhost, operator):
            self._table.put(record)
        self._change = PolicyChange(policy.vhost, self._table.put(policy), policy)

    def concerns(self, record: QueueRecord) -> bool:
        """Whether it may make a difference to the queue."""
        return self._change.concerns(record)

    def policies(self, record: QueueRecord) -> tuple[PolicyRecord | None, PolicyRecord | None]:
        """The policy and the operator policy that would apply to the queue."""
        policy, operator_policy = self._catalog.policies_of_queue(record)
        own = self._table.for_thing(queue_type(record.arguments), record.name)
        return (policy, own) if self._operator else (own, operator_policy)

    def terms(self, record: QueueRecord) -> bytes:
        """What the shard would be told of the queue, as UPDATE_QUEUES carries it."""
        return encode_terms(shard_settings(self._catalog, record, self._definition(record)))

    def changes(self, record: QueueRecord) -> dict[str, list[Any]]:
        """The settings of the queue that would be others: as they are, and as they would be."""
        before = self._settings(record, self._catalog.policy_definition(record))
        after = self._settings(record, self._definition(record))
        return {name: [value, after[name]] for name, value in before.items() if value != after[name]}

    def _definition(self, record: QueueRecord) -> dict[str, Any]:
        return merged_definition(*self.policies(record))

    def _settings(self, record: QueueRecord, definition: dict[str, Any]) -> dict[str, Any]:
        return {
            **msgspec.structs.asdict(self._catalog.effective_settings(record, definition)),
            "ttl_dialect": self._catalog.ttl_dialect(record, definition),
            "consumer_timeout_ms": consumer_timeout_ms(record.arguments, definition),
        }
