"""From the claims of a token to a user with tags and scopes, as RabbitMQ's plugin reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mayfly.node.catalog.token_user import Scopes, TokenUser, quoted
from mayfly.node.limits import TOKEN_NAME_BYTES, TOKEN_SCOPE_CHARACTERS, TOKEN_SCOPES
from mayfly.node.oauth.token import Believed, Claims, TokenRefused

_NAMES: Final = ("sub", "client_id")
_SCOPE: Final = "scope"
_OF_REQUESTING_PARTY: Final = "authorization.permissions.scopes"
_TAG: Final = "tag:"
_DEEPEST_PATH: Final = 8
_MOST_VARIABLES: Final = 8
_VHOST: Final = "vhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRules:
    """What this broker is called where tokens are issued, and where its scopes stand in them."""

    resource_server_id: str
    verify_audience: bool = True
    issuer: str = ""
    """What `iss` must be; "": anything."""
    scope_prefix: str | None = None
    """None: the id of this resource server and a point."""
    additional_scopes: tuple[str, ...] = ()
    """Claims with more scopes, as paths with points."""
    scope_aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    preferred_names: tuple[str, ...] = ()
    """Claims with the user's name, before `sub` and `client_id`."""


def token_user(token: Believed, rules: ClaimRules) -> TokenUser:
    """Whom the claims name, with what they grant. Raises TokenRefused: they are not for this broker, or name nobody."""
    claims = token.claims
    if rules.issuer and claims.get("iss") != rules.issuer:
        raise TokenRefused("it is of another issuer ('iss')")
    if rules.verify_audience and rules.resource_server_id not in _words(claims.get("aud")):
        raise TokenRefused("it is not for this resource server ('aud')")
    own = list(dict.fromkeys(_own_scopes(claims, rules)))
    if len(own) > TOKEN_SCOPES:
        raise TokenRefused(f"it has {len(own)} scopes, at most {TOKEN_SCOPES} are taken")
    tags = sorted({scope.removeprefix(_TAG) for scope in own if scope.startswith(_TAG)})
    return TokenUser(_name(claims, rules), tuple(tags), Scopes(_filled_in(own, claims)), token.lives_ms)


def _name(claims: Claims, rules: ClaimRules) -> str:
    for claim in (*rules.preferred_names, *_NAMES):
        value = claims.get(claim)
        if isinstance(value, str) and value:
            if not value.isprintable() or len(value.encode()) > TOKEN_NAME_BYTES:
                raise TokenRefused(f"its '{claim}' is no name of at most {TOKEN_NAME_BYTES} octets")
            return value
    raise TokenRefused("it names nobody")


def _own_scopes(claims: Claims, rules: ClaimRules) -> Iterator[str]:
    """The scopes that are for this broker, without their prefix."""
    found = _words(claims.get(_SCOPE))
    for path in (_OF_REQUESTING_PARTY, *rules.additional_scopes):
        found += _at(claims, path.split(".")[:_DEEPEST_PATH], rules.resource_server_id)
    found += [scope for alias in found for scope in rules.scope_aliases.get(alias, ())]
    prefix = f"{rules.resource_server_id}." if rules.scope_prefix is None else rules.scope_prefix
    return (
        scope[len(prefix) :]
        for scope in found
        if scope.startswith(prefix) and len(scope) <= TOKEN_SCOPE_CHARACTERS
    )


def _words(value: object) -> list[str]:
    """A text with spaces in it, or a list of texts."""
    if isinstance(value, str):
        return value.split()
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _at(value: object, path: list[str], resource_server_id: str) -> list[str]:
    """The scopes at a path through objects and lists of objects. At its end, an object has them by resource server, and
    without a prefix."""
    if path and isinstance(value, list):
        return [scope for each in value if isinstance(each, dict) for scope in _at(each, path, resource_server_id)]
    if path:
        inner = value.get(path[0]) if isinstance(value, dict) else None
        return _at(inner, path[1:], resource_server_id)
    if isinstance(value, dict):
        return [f"{resource_server_id}.{scope}" for scope in _words(value.get(resource_server_id))]
    return _words(value)


def _filled_in(scopes: Iterable[str], claims: Mapping[str, Any]) -> Iterator[str]:
    """With claims that are texts in place of their names in braces. A text stands for itself, whatever is in it."""
    for scope in scopes:
        first, *pieces = scope.split("{", _MOST_VARIABLES)
        filled = [first]
        for piece in pieces:
            name, brace, behind = piece.partition("}")
            value = claims.get(name)
            is_known = brace and name != _VHOST and isinstance(value, str) and len(value) <= TOKEN_NAME_BYTES
            filled.append(quoted(str(value)) + behind if is_known else "{" + piece)
        yield "".join(filled)
