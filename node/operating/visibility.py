"""What users may see over HTTP, by their tags and permissions."""

from mayfly.node.catalog import Catalog
from mayfly.node.catalog.permissions import may_enter
from mayfly.node.catalog.token_user import AnyUser, TokenUser
from mayfly.node.operating.ports.users import SEE_ALL


def tags_of(catalog: Catalog, user: AnyUser) -> tuple[str, ...] | None:
    """The tags of a user; None for one that is not there any more."""
    record = user if isinstance(user, TokenUser) else catalog.user(user)
    return None if record is None else record.tags


def sees_all(catalog: Catalog, user: AnyUser) -> bool:
    """Whether a user sees what is in any vhost."""
    return not SEE_ALL.isdisjoint(tags_of(catalog, user) or ())


def sees_vhost(catalog: Catalog, user: AnyUser, vhost: str) -> bool:
    """Whether a user sees a vhost and what is in it."""
    is_there = tags_of(catalog, user) is not None
    return is_there and (sees_all(catalog, user) or may_enter(catalog, user, vhost))
