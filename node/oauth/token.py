"""A token's signature and times (RFC 7515, 7519, 8725): whether its claims may be believed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mayfly.node.limits import TOKEN_BYTES
from mayfly.node.oauth.octets import MalformedToken, decoded, is_base64url, object_in

if TYPE_CHECKING:
    # Whoever only asks `looks_like_token` needs no `cryptography`: it takes 8 MB.
    from mayfly.node.oauth.keys import KeySet

Claims = Mapping[str, Any]

_KEYS_TRIED: Final = 4
"""Of those without a name, by which a token is tried."""
_LONGEST_LIFE_MS: Final = 1000 * 60 * 60 * 24 * 366 * 10
_MOST_SECONDS: Final = 2**50
_BEGIN: Final = "eyJ"
"""What `{"` begins with in base64: so does every token."""


class TokenRefused(Exception):
    """The token does not count; the text says why, and nothing that is secret."""


class UnknownKey(TokenRefused):
    """It names a key that is not known here. It may have come into use since keys were last looked at."""


class Believed(NamedTuple):
    """What a token says, and for how long it counts from now."""

    claims: Claims
    lives_ms: int


def looks_like_token(text: str) -> bool:
    """Whether it has the form of a signed token: three parts, the first of which is a JSON object."""
    parts = text.split(".", 3)
    return text.startswith(_BEGIN) and len(parts) == 3 and all(map(is_base64url, parts))


def believed(token: str, keys: KeySet, algorithms: Collection[str], now_ms: int, leeway_ms: int) -> Believed:
    """The claims of a token that one of the keys has signed, by one of these algorithms, and that counts now.

    `now_ms` is the time since 1970; clocks of others may be wrong by `leeway_ms`. Raises TokenRefused."""
    if len(token) > TOKEN_BYTES:
        raise TokenRefused(f"it has more than {TOKEN_BYTES} octets")
    try:
        header_part, claims_part, signature_part = token.split(".")
        header = object_in(decoded(header_part))
        content, signature = decoded(claims_part), decoded(signature_part)
    except ValueError:
        raise TokenRefused("it is no signed token") from None
    _check_signature(header, f"{header_part}.{claims_part}".encode(), signature, keys, algorithms)
    try:
        claims = object_in(content)
    except MalformedToken:
        raise TokenRefused("its claims are no JSON object") from None
    return Believed(claims, _life_ms(claims, now_ms, leeway_ms))


def _check_signature(
    header: Claims, content: bytes, signature: bytes, keys: KeySet, algorithms: Collection[str]
) -> None:
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in algorithms:
        raise TokenRefused(f"it is not signed by one of {', '.join(sorted(algorithms))}")
    if "crit" in header:
        raise TokenRefused("it wants something understood that is not ('crit')")
    if not isinstance(key_id, str | None):
        raise TokenRefused("its 'kid' is no text")
    candidates = keys.candidates(key_id)
    if not candidates:
        raise UnknownKey("it is signed with a key that is not known here")
    if not any(key.has_signed(algorithm, content, signature) for key in candidates[:_KEYS_TRIED]):
        if key_id is not None and candidates[0].id is None:
            raise UnknownKey("none of the keys here has signed it")
        raise TokenRefused("its signature is wrong")


def _life_ms(claims: Claims, now_ms: int, leeway_ms: int) -> int:
    ends_ms = _moment_ms(claims, "exp")
    if ends_ms is None:
        raise TokenRefused("it has no 'exp', and would count for ever")
    begins_ms = _moment_ms(claims, "nbf")
    if begins_ms is not None and begins_ms > now_ms + leeway_ms:
        raise TokenRefused("it does not count yet ('nbf')")
    lives_ms = ends_ms + leeway_ms - now_ms
    if lives_ms <= 0:
        raise TokenRefused("it has expired ('exp')")
    return min(int(lives_ms), _LONGEST_LIFE_MS)


def _moment_ms(claims: Claims, name: str) -> float | None:
    """A NumericDate, which may have a fraction."""
    value = claims.get(name)
    if value is None and name not in claims:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_MOST_SECONDS < value < _MOST_SECONDS:
        raise TokenRefused(f"its '{name}' is no time in seconds")
    return value * 1000
