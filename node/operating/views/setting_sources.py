"""Where each setting of a queue comes from: arguments, a policy, an operator policy, or what all queues have. Pure."""

import msgspec

from mayfly.node.catalog import Catalog, QueueRecord
from mayfly.node.catalog.arguments import queue_settings, queue_type
from mayfly.node.catalog.effective_settings import effective_settings
from mayfly.node.catalog.policies import merged_definition
from mayfly.node.catalog.records import QueueSettings


def setting_sources(catalog: Catalog, record: QueueRecord) -> dict[str, str]:
    """By the fields of QueueSettings: "default", "argument", "policy NAME" or "operator policy NAME", the first of them
    that says what counts."""
    policy, operator_policy = catalog.policies_of_queue(record)
    usual = queue_settings(record.vhost, record.name, {"x-queue-type": queue_type(record.arguments)})
    stages: list[tuple[str, QueueSettings]] = [("default", usual), ("argument", record.settings)]
    for source, some in (
        (None if policy is None else f"policy {policy.name}", (policy, None)),
        (None if operator_policy is None else f"operator policy {operator_policy.name}", (policy, operator_policy)),
    ):
        if source is not None:
            definition = merged_definition(*some)
            stages.append((source, effective_settings(record.settings, record.arguments, definition)))
    counts = stages[-1][1]
    return {
        field: next(source for source, settings in stages if getattr(settings, field) == getattr(counts, field))
        for field in (each.name for each in msgspec.structs.fields(QueueSettings))
    }
