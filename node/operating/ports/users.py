"""Who has logged in, and from where."""

from contextvars import ContextVar
from typing import Protocol

ORIGIN: ContextVar[str] = ContextVar("origin", default="")
"""The address that the request under way comes from; see `node.broker.failed_logins.origin_of`."""


class User(Protocol):
    """Somebody who has logged in."""

    @property
    def name(self) -> str: ...

    @property
    def tags(self) -> tuple[str, ...]: ...
