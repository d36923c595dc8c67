"""Base64url and JSON as tokens and keys have them: strictly, and never half."""

from __future__ import annotations

import binascii
from typing import Any, Final

import msgspec

_ALPHABET: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_TO_BASE64: Final = str.maketrans("-_", "+/")


class MalformedToken(ValueError):
    """It is not what it should be; the text says why, and nothing of what is in it."""


def is_base64url(text: str) -> bool:
    """Whether no other character is in it (RFC 7515, 2: without padding)."""
    return _ALPHABET.issuperset(text)


def decoded(text: str) -> bytes:
    """The octets. Raises MalformedToken."""
    if not is_base64url(text) or len(text) % 4 == 1:
        raise MalformedToken("it is no base64url")
    try:
        return binascii.a2b_base64(text.translate(_TO_BASE64) + "=" * (-len(text) % 4))
    except binascii.Error:
        raise MalformedToken("it is no base64url") from None


def object_in(octets: bytes) -> dict[str, Any]:
    """The JSON object. Raises MalformedToken."""
    try:
        content = msgspec.json.decode(octets)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        raise MalformedToken("it is no JSON") from None
    if not isinstance(content, dict):
        raise MalformedToken("it is no JSON object")
    return content
