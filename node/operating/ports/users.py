"""Who has logged in, from where, and the tags that count."""

from contextvars import ContextVar
from typing import Final, Protocol

from mayfly.node.catalog.token_user import AnyUser

ORIGIN: ContextVar[str] = ContextVar("origin", default="")
"""The address that the request under way comes from; see `node.broker.failed_logins.origin_of`."""


ADMINISTRATOR: Final = "administrator"
MONITORING: Final = "monitoring"
POLICYMAKER: Final = "policymaker"
SEE_ALL: Final = frozenset({ADMINISTRATOR, MONITORING})
"""Tags of users who see what is in any vhost."""
MANAGEMENT_TAGS: Final = SEE_ALL | {POLICYMAKER, "management"}
"""Tags that the management API is for."""


class User(Protocol):
    """Somebody who has logged in."""

    @property
    def name(self) -> str: ...

    @property
    def who(self) -> AnyUser:
        """What the permissions are looked up by."""

    @property
    def tags(self) -> tuple[str, ...]: ...
