"""A vhost as RabbitMQ's management API and its files of definitions show it."""

from typing import Any, Final

from mayfly.node.catalog import VhostRecord

_USUAL_TYPE: Final = "classic"
"""Of queues, where a vhost was told no other."""


def shown_vhost(vhost: VhostRecord) -> dict[str, Any]:
    """In RabbitMQ's fields; there is no tracing."""
    described = described_vhost(vhost)
    return {
        "name": vhost.name,
        **described,
        "protected_from_deletion": vhost.protected,
        "metadata": described | ({"protected_from_deletion": True} if vhost.protected else {}),
        "tracing": False,
    }


def described_vhost(vhost: VhostRecord) -> dict[str, Any]:
    """What RabbitMQ keeps of every vhost as its metadata."""
    return {
        "description": vhost.description,
        "tags": list(vhost.tags),
        "default_queue_type": vhost.default_queue_type or _USUAL_TYPE,
    }
