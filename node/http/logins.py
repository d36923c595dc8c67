"""Who asks for a page."""

import base64
import binascii

from aiohttp import web

from mayfly.node.http.origins import is_from_here
from mayfly.node.oauth.token import looks_like_token


def login_in(request: web.Request) -> tuple[str, str, bool] | None:
    """User and password in a request, by basic authentication, or a token, as a bearer's, which is a password without a
    user; and whether it comes from this machine. None without them."""
    given = _credentials(request.headers.get("Authorization", ""))
    return None if given is None else (*given, is_from_here(request))


def _credentials(header: str) -> tuple[str, str] | None:
    """User and password in an Authorization header; None if it has none."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() == "bearer":
        return ("", encoded.strip()) if looks_like_token(encoded.strip()) else None
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (user, password) if colon else None
