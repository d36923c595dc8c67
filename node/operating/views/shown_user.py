"""A user as RabbitMQ's management and its definitions have it."""

from typing import Any

from mayfly.node.catalog.passwords import shown_hash
from mayfly.node.catalog.records import UserRecord


def shown_user(user: UserRecord) -> dict[str, Any]:
    """For JSON, with the hash of the password."""
    algorithm, password_hash = shown_hash(user.password_hash)
    return {
        "name": user.name,
        "password_hash": password_hash,
        "hashing_algorithm": algorithm,
        "tags": list(user.tags),
        "limits": user.limits,
    }
