"""Users whom no catalog has: a token of an OAuth 2 provider says who they are, and its scopes what they may do.

A scope is `<permission>:<vhost>/<name>[/<routing key>]`, as RabbitMQ's plugin reads it: the permission is configure,
write or read, the rest are patterns. In a pattern `*` stands for any characters, none included; `%2A` and the like
stand for one octet, + for a space, and {vhost} for the vhost that is asked about. Without a routing key any will do.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

PERMISSIONS: Final = ("configure", "write", "read")
_VHOST: Final = "{vhost}"
_HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")
_UNCHANGED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_VHOSTS_REMEMBERED: Final = 64


class Pattern:
    """One pattern, matched in a time that grows with the text and the pattern, and no faster."""

    def __init__(self, text: str) -> None:
        """Raises ValueError: a % without two digits behind it, or octets that are no text."""
        self._first, *self._rest = [_decoded(part) for part in text.split("*")]

    @property
    def is_any(self) -> bool:
        """Whether it stands for every text."""
        return bool(self._rest) and not self._first and not any(self._rest)

    def matches(self, text: str) -> bool:
        """Whether it stands for the whole of the text."""
        if not self._rest:
            return text == self._first
        if not text.startswith(self._first):
            return False
        position = len(self._first)
        for part in self._rest[:-1]:
            # The first place will do: what is behind it can be found from there, if from anywhere.
            found = text.find(part, position)
            if found < 0:
                return False
            position = found + len(part)
        last = self._rest[-1]
        return len(text) - position >= len(last) and text.endswith(last)


def _decoded(part: str) -> str:
    """The text that a part between asterisks stands for."""
    part = part.replace("+", " ")
    if "%" not in part:
        return part
    plain, *encoded = part.split("%")
    octets = [plain.encode()]
    for piece in encoded:
        digits = piece[:2]
        if len(digits) < 2 or not _HEX_DIGITS.issuperset(digits):
            raise ValueError(f"%{digits} in a pattern is no octet in hexadecimal")
        octets += [bytes((int(digits, 16),)), piece[2:].encode()]
    return b"".join(octets).decode()


def quoted(text: str) -> str:
    """The pattern that stands for this text and nothing else."""
    octets = text.encode("utf-8", "surrogatepass")
    return "".join([chr(octet) if chr(octet) in _UNCHANGED else f"%{octet:02X}" for octet in octets])


class _Grant(NamedTuple):
    """What one scope allows in the vhosts that it is for."""

    there: Pattern
    permission: str
    name: Pattern
    key: Pattern


class Scopes:
    """What the scopes of one token allow, without the prefix that makes them this broker's. Those that are none of its
    kind, or have a pattern that can't be, allow nothing."""

    def __init__(self, scopes: Iterable[str]) -> None:
        self._fixed: list[_Grant] = []
        """Of scopes that say the same for each vhost."""
        self._by_vhost: list[tuple[str, list[str]]] = []
        """Permission and patterns of those that do not: {vhost} is in them."""
        self._in_vhost: dict[str, list[_Grant]] = {}
        for scope in scopes:
            permission, _, pattern = scope.partition(":")
            parts = pattern.split("/")
            if permission not in PERMISSIONS or len(parts) not in (2, 3):
                continue
            if _VHOST in pattern:
                self._by_vhost.append((permission, parts))
            elif (grant := _grant(permission, parts)) is not None:
                self._fixed.append(grant)

    def enter(self, vhost: str) -> bool:
        """Whether anything is allowed in the vhost."""
        return bool(self._of(vhost))

    def allow(self, permission: str, vhost: str, name: str) -> bool:
        """Whether that is allowed with the queue or exchange."""
        return any(grant.permission == permission and grant.name.matches(name) for grant in self._of(vhost))

    def allow_key(self, permission: str, vhost: str, exchange: str, key: str) -> bool:
        """Whether that is allowed with the topic exchange and a routing key: by one scope, not two."""
        return any(
            grant.permission == permission and grant.name.matches(exchange) and grant.key.matches(key)
            for grant in self._of(vhost)
        )

    def allow_any_key(self, permission: str, vhost: str, exchange: str) -> bool:
        """Whether one scope allows that with the exchange and every routing key."""
        return any(
            grant.permission == permission and grant.name.matches(exchange) and grant.key.is_any
            for grant in self._of(vhost)
        )

    def _of(self, vhost: str) -> list[_Grant]:
        grants = self._in_vhost.get(vhost)
        if grants is None:
            if len(self._in_vhost) >= _VHOSTS_REMEMBERED:
                self._in_vhost.clear()
            name = quoted(vhost)
            said = [_grant(each, [part.replace(_VHOST, name) for part in parts]) for each, parts in self._by_vhost]
            grants = self._in_vhost[vhost] = [
                grant for grant in (*self._fixed, *said) if grant is not None and grant.there.matches(vhost)
            ]
        return grants


def _grant(permission: str, parts: list[str]) -> _Grant | None:
    """What the scope allows; None if one of its patterns can't be."""
    try:
        there, name, *key = map(Pattern, parts)
    except ValueError:
        return None
    return _Grant(there, permission, name, key[0] if key else Pattern("*"))


class TokenUser:
    """Who has logged in by a token. Two are never the same, whatever they are called: each has the scopes of its
    token."""

    def __init__(self, name: str, tags: tuple[str, ...], scopes: Scopes, lives_ms: int) -> None:
        """`lives_ms`: how long the token counts from the moment that it was looked at."""
        self.name: Final = name
        self.tags: Final = tags
        self.scopes: Final = scopes
        self.lives_ms: Final = lives_ms

    @property
    def who(self) -> TokenUser:
        """Itself: what permissions are looked up by."""
        return self


AnyUser = str | TokenUser
"""Whose permissions count: a user of the catalog, by name, or that of a token. A name alone says nothing of a token's
user: the catalog may have another one of that name."""


def name_of(who: AnyUser) -> str:
    """What people call that user."""
    return who.name if isinstance(who, TokenUser) else who
