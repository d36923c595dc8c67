"""What users may see over HTTP, by their tags and permissions."""

from mayfly.node.catalog import Catalog
from mayfly.node.operating.ports.users import SEE_ALL


def sees_all(catalog: Catalog, user: str) -> bool:
    """Whether a user sees what is in any vhost."""
    record = catalog.user(user)
    return record is not None and not SEE_ALL.isdisjoint(record.tags)


def sees_vhost(catalog: Catalog, user: str, vhost: str) -> bool:
    """Whether a user sees a vhost and what is in it."""
    known = catalog.user(user) is not None
    return known and (sees_all(catalog, user) or catalog.permission(user, vhost) is not None)
