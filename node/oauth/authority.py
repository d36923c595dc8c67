"""Who decides whether a token counts: the rules of this broker with the keys of the provider."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from mayfly.node.catalog.token_user import TokenUser
from mayfly.node.oauth.claims import ClaimRules, token_user
from mayfly.node.oauth.keys import KeySet
from mayfly.node.oauth.token import believed


class TokenRules(NamedTuple):
    """What a token must be to count."""

    claims: ClaimRules
    algorithms: Collection[str]
    leeway_ms: int
    """How far clocks of providers may be off."""


class Authority:
    """Of one node."""

    def __init__(self, rules: TokenRules, keys: KeySet) -> None:
        self._rules = rules
        self.keys = keys
        """Those that count now; may be replaced."""

    def user_of(self, token: str, now_ms: int) -> TokenUser:
        """Whom a token names at that time since 1970. Raises UnknownKey, TokenRefused."""
        rules = self._rules
        return token_user(believed(token, self.keys, rules.algorithms, now_ms, rules.leeway_ms), rules.claims)
