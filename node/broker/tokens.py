"""What logins need to know of tokens: OAuth 2, by the passwords of PLAIN and AMQPLAIN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from mayfly.node.catalog.token_user import TokenUser

NEW_SECRET_REFUSED = "New secret was refused by one of the backends"
"""As RabbitMQ closes the connection (530) of who shows a token that does not count."""


class TokenLogins(Protocol):
    """Where tokens are looked at; None in its place: they are passwords like others."""

    @property
    def only(self) -> bool:
        """Whether nobody logs in otherwise."""
        ...

    def look_at(self, token: str) -> TokenUser | str | None:
        """Whom it names; or why it does not count; None: it is signed with a key that is not known, yet."""
        ...

    def renew_keys(self, done: Callable[[], None]) -> None:
        """Have the provider's keys looked at again, if that was not done a moment ago; `done` is called after it, maybe
        at once."""
        ...


class TokenLife:
    """How long the token of a connection still counts, by the node's clock."""

    def __init__(self, lives_ms: int) -> None:
        """`lives_ms` from now, the next tick at the latest."""
        self._lives_ms: int = lives_ms
        self._ends_ms: int = -1

    def is_over(self, now_ms: int) -> bool:
        """Whether it has ended. The time counts from the first tick on."""
        if self._ends_ms < 0:
            self._ends_ms = now_ms + self._lives_ms
        return now_ms >= self._ends_ms
