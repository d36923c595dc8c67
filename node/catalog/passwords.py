"""Password hashes: `scrypt$n$r$p$salt$hash`, salt and hash in hexadecimal.

Pure: the salt comes from the caller. One computation takes tens of milliseconds and 16 MiB: not for an
event loop.
"""
from __future__ import annotations

import hashlib
import hmac
from typing import Final

DEFAULT_N: Final = 16384
DEFAULT_R: Final = 8
DEFAULT_P: Final = 1
MINIMUM_SALT_BYTES: Final = 8
_HASH_BYTES: Final = 32
_MAXIMUM_MEMORY_BYTES: Final = 256 * 1024 * 1024


def make_password_hash(
    password: str, salt: bytes, n: int = DEFAULT_N, r: int = DEFAULT_R, p: int = DEFAULT_P
) -> str:
    """The string to store. `salt` is to be random, at least 8 bytes (ValueError otherwise)."""
    if len(salt) < MINIMUM_SALT_BYTES:
        raise ValueError(f"a salt has at least {MINIMUM_SALT_BYTES} bytes")
    return f"scrypt${n}${r}${p}${salt.hex()}${_digest(password, salt, n, r, p).hex()}"


def verify_password(stored: str, password: str) -> bool:
    """Whether the password is the one hashed in `stored`; False for an empty or unreadable stored hash."""
    parts = stored.split("$")
    if len(parts) != 6 or parts[0] != "scrypt":
        return False
    try:
        n, r, p = int(parts[1]), int(parts[2]), int(parts[3])
        salt, expected = bytes.fromhex(parts[4]), bytes.fromhex(parts[5])
        return hmac.compare_digest(_digest(password, salt, n, r, p), expected)
    except (TypeError, ValueError, OverflowError):
        return False


def _digest(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(
        password.encode("utf-8", "surrogateescape"), salt=salt, n=n, r=r, p=p, maxmem=_MAXIMUM_MEMORY_BYTES,
        dklen=_HASH_BYTES,
    )
