"""The catalog as a file of definitions in RabbitMQ's JSON."""

from typing import Any, Final

from mayfly.node.catalog import Catalog, PolicyRecord
from mayfly.node.operating.definitions.reading import OPERATOR_POLICY, VHOST_LIMITS
from mayfly.node.operating.views.shown_user import shown_user
from mayfly.node.operating.views.shown_vhost import shown_vhost
from mayfly.node.version import RABBITMQ_VERSION, VERSION

_NOT_EXPORTED: Final = ("tracing", "protected_from_deletion")
"""Of what is shown of a vhost: its metadata says the second."""


def definitions_of(catalog: Catalog, rabbitmq_version: str = RABBITMQ_VERSION) -> dict[str, Any]:
    """The catalog as RabbitMQ's management of that version exports it. Queues that go with their clients are not in it.

    A password hash that was made here has `"hashing_algorithm": "scrypt"`, which RabbitMQ does not know.
    """
    vhosts = catalog.vhosts()
    names = [vhost.name for vhost in vhosts]
    return {
        "rabbit_version": rabbitmq_version,
        "rabbitmq_version": rabbitmq_version,
        "product_name": "MayflyMQ",
        "product_version": VERSION,
        "users": [shown_user(user) for user in catalog.users()],
        "vhosts": [
            {key: value for key, value in shown_vhost(vhost).items() if key not in _NOT_EXPORTED} for vhost in vhosts
        ],
        "permissions": [
            {"user": it.user, "vhost": it.vhost, "configure": it.configure, "write": it.write, "read": it.read}
            for it in catalog.permissions()
        ],
        "topic_permissions": [
            {"user": it.user, "vhost": it.vhost, "exchange": it.exchange, "write": it.write, "read": it.read}
            for it in catalog.topic_permissions()
        ],
        "parameters": parameters_of(catalog),
        "global_parameters": [{"name": it.name, "value": it.value} for it in catalog.global_parameters()],
        "policies": [{"vhost": it.vhost, "name": it.name, **_shown_policy(it)} for it in catalog.policies(None, False)],
        "queues": [
            {"name": it.name, "vhost": it.vhost, "durable": True, "auto_delete": False, "arguments": it.arguments}
            for it in catalog.queues()
            if it.replicated
        ],
        "exchanges": [
            {
                "name": it.name, "vhost": it.vhost, "type": it.type, "durable": True, "auto_delete": it.auto_delete,
                "internal": it.internal, "arguments": it.arguments,
            }
            for vhost in names
            for it in catalog.exchanges(vhost)
            if it.durable and it.name and not it.name.startswith("amq.")
        ],
        "bindings": [
            {
                "source": it.source, "vhost": it.vhost, "destination": it.destination,
                "destination_type": it.destination_kind, "routing_key": it.routing_key, "arguments": it.arguments,
            }
            for vhost in names
            for it in catalog.bindings(vhost)
            if it.source and _lasts(catalog, vhost, it.source, it.destination_kind, it.destination)
        ],
    }  # fmt: skip


_OF_VHOST: Final = ("parameters", "policies", "queues", "exchanges", "bindings")
"""Sections of what is in a vhost."""


def in_vhost(definitions: dict[str, Any], vhost: str) -> dict[str, Any]:
    """Of definitions those of one vhost, as RabbitMQ exports them: they say no vhost, and may be imported into any."""
    head = {key: definitions[key] for key in definitions if key.endswith("version") or key == "product_name"}
    return head | {
        section: [{key: it[key] for key in it if key != "vhost"} for it in definitions[section] if it["vhost"] == vhost]
        for section in _OF_VHOST
    }


def into_vhost(content: Any, vhost: str) -> Any:
    """The same for import: of what a file says what may be in a vhost, in this one. What is no such file is left as it
    is, for who reads it."""
    if not isinstance(content, dict):
        return content
    kept: dict[str, Any] = {}
    for section in _OF_VHOST:
        items = content.get(section)
        if isinstance(items, list):
            kept[section] = [it | {"vhost": vhost} if isinstance(it, dict) else it for it in items]
        elif section in content:
            kept[section] = items
    return kept


def parameters_of(catalog: Catalog) -> list[dict[str, Any]]:
    """Operator policies, and limits of vhosts, as RabbitMQ's parameters."""
    return [
        {"vhost": it.vhost, "component": OPERATOR_POLICY, "name": it.name, "value": _shown_policy(it)}
        for it in catalog.policies(None, True)
    ] + [
        {"vhost": it.name, "component": VHOST_LIMITS, "name": "limits", "value": it.limits}
        for it in catalog.vhosts()
        if it.limits
    ]


def _lasts(catalog: Catalog, vhost: str, source: str, kind: str, destination: str) -> bool:
    """Whether both ends of a binding are exported, or are there everywhere."""
    ends = [catalog.exchange(vhost, source)]
    if kind == "exchange":
        ends.append(catalog.exchange(vhost, destination))
    else:
        queue = catalog.queue(vhost, destination)
        if queue is None or not queue.replicated:
            return False
    return all(end is not None and end.durable for end in ends)


def _shown_policy(policy: PolicyRecord) -> dict[str, Any]:
    return {
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": policy.definition,
        "priority": policy.priority,
    }
