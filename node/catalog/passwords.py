"""Password hashes as they are stored.

    scrypt$n$r$p$salt$hash                 made here: slow by design; salt and hash in hexadecimal
    rabbit_password_hashing_sha256$BASE64  imported from RabbitMQ: four octets of salt, then the hash of salt and
                                           password; also _sha512, _md5. Quick to try: replaced at the next login.

Pure: the salt comes from the caller. One computation takes tens of milliseconds and 16 MiB: not for an
event loop.
"""
from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

DEFAULT_N: Final = 16384
DEFAULT_R: Final = 8
DEFAULT_P: Final = 1
MINIMUM_SALT_BYTES: Final = 8
SALT_BYTES: Final = 16
_HASH_BYTES: Final = 32
_MAXIMUM_MEMORY_BYTES: Final = 256 * 1024 * 1024
_MOST_WORK: Final = 16 * DEFAULT_N * DEFAULT_R * DEFAULT_P
"""What an imported hash may make a login cost: about a second."""

_SCRYPT: Final = "scrypt"
_QUICK: Final = {
    "rabbit_password_hashing_sha256": "sha256",
    "rabbit_password_hashing_sha512": "sha512",
    "rabbit_password_hashing_md5": "md5",
}
QUICK_SALT_BYTES: Final = 4
ALGORITHMS: Final = (*_QUICK, _SCRYPT)
"""The names of the ways to hash, as RabbitMQ's API has them; the first is what it takes when none is named."""


NOBODYS_HASH: Final = (
    f"{_SCRYPT}${DEFAULT_N}${DEFAULT_R}${DEFAULT_P}${bytes(SALT_BYTES).hex()}${bytes(_HASH_BYTES).hex()}"
)
"""Takes as long to check as any other, and fits no password that anybody could find."""


def make_password_hash(
    password: str, salt: bytes, n: int = DEFAULT_N, r: int = DEFAULT_R, p: int = DEFAULT_P
) -> str:
    """The string to store. `salt` is to be random, at least 8 bytes (ValueError otherwise)."""
    if len(salt) < MINIMUM_SALT_BYTES:
        raise ValueError(f"a salt has at least {MINIMUM_SALT_BYTES} bytes")
    return f"{_SCRYPT}${n}${r}${p}${salt.hex()}${_digest(password, salt, n, r, p).hex()}"


def make_quick_hash(password: str, salt: bytes) -> str:
    """As RabbitMQ makes them, for `from_imported` without an algorithm: for who is to be given a hash, and no password.
    `salt` is to be random, 4 bytes."""
    if len(salt) != QUICK_SALT_BYTES:
        raise ValueError(f"the salt of such a hash has {QUICK_SALT_BYTES} bytes")
    return base64.b64encode(salt + _quick_digest(_QUICK[ALGORITHMS[0]], password, salt)).decode()


def verify_password(stored: str, password: str) -> bool:
    """Whether the password is the one hashed in `stored`; False for an empty or unreadable stored hash."""
    parts = stored.split("$")
    try:
        if len(parts) == 2 and parts[0] in _QUICK:
            octets = base64.b64decode(parts[1], validate=True)
            salt, expected = octets[:QUICK_SALT_BYTES], octets[QUICK_SALT_BYTES:]
            return hmac.compare_digest(_quick_digest(_QUICK[parts[0]], password, salt), expected)
        n, r, p, salt, expected = _scrypt_parts(parts)
        return hmac.compare_digest(_digest(password, salt, n, r, p), expected)
    except (TypeError, ValueError, OverflowError, MemoryError):
        return False


def is_quick(stored: str) -> bool:
    """Whether whoever has got hold of the hash could try many passwords with little work: it is to be replaced."""
    return stored.partition("$")[0] in _QUICK


def check_and_renew(stored: str, password: str, salt: bytes) -> tuple[bool, str]:
    """`verify_password`, and, if the password is right and its hash is quick, a better one to store; else "".

    It takes as long for a wrong password and a quick hash as for any other, and as for `NOBODYS_HASH`: the time does
    not tell which users there are.
    """
    right = verify_password(stored, password)
    if not is_quick(stored):
        return right, ""
    better = make_password_hash(password, salt)
    return right, better if right else ""


def from_imported(algorithm: str, password_hash: str) -> str:
    """The string to store for a hash as RabbitMQ's API shows it; empty for an empty one: no login by password.

    Raises ValueError, which does not quote the hash.
    """
    if not password_hash:
        return ""
    if algorithm == _SCRYPT:
        _scrypt_parts(password_hash.split("$"))
        return password_hash
    if algorithm not in _QUICK:
        raise ValueError(f"hashing_algorithm is '{algorithm}', one of {', '.join(ALGORITHMS)} is expected")
    try:
        octets = base64.b64decode(password_hash, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("password_hash is not in base64") from None
    expected = QUICK_SALT_BYTES + hashlib.new(_QUICK[algorithm], usedforsecurity=False).digest_size
    if len(octets) != expected:
        raise ValueError(f"password_hash has {len(octets)} octets, {expected} are expected for {algorithm}")
    return f"{algorithm}${password_hash}"


def shown_hash(stored: str) -> tuple[str, str]:
    """The algorithm and hash that `from_imported` takes for this stored string."""
    algorithm, _, rest = stored.partition("$")
    if not stored:
        return ALGORITHMS[0], ""
    return (algorithm, rest) if algorithm in _QUICK else (_SCRYPT, stored)


def _scrypt_parts(parts: list[str]) -> tuple[int, int, int, bytes, bytes]:
    """n, r, p, salt and hash. Raises ValueError."""
    if len(parts) != 6 or parts[0] != _SCRYPT:
        raise ValueError("password_hash of scrypt is scrypt$n$r$p$salt$hash")
    n, r, p = (int(part) for part in parts[1:4])
    if min(n, r, p) < 1 or n & (n - 1) or n * r * p > _MOST_WORK:
        raise ValueError(f"n x r x p of scrypt is at most {_MOST_WORK}, and n a power of two")
    return n, r, p, bytes.fromhex(parts[4]), bytes.fromhex(parts[5])


def _digest(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(_octets(password), salt=salt, n=n, r=r, p=p, maxmem=_MAXIMUM_MEMORY_BYTES, dklen=_HASH_BYTES)


def _quick_digest(name: str, password: str, salt: bytes) -> bytes:
    return hashlib.new(name, salt + _octets(password), usedforsecurity=False).digest()


def _octets(password: str) -> bytes:
    return password.encode("utf-8", "surrogateescape")
