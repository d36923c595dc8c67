"""Passwords that were verified a moment ago.

A password hash is slow to check by design, and a client that opens a connection
per message would be refused service by it.  The cache remembers keyed digests of
what was verified; the key lives and dies with the process, so the digests are of
no use to whoever reads the memory image of another one.
"""

from __future__ import annotations

import hashlib


class CredentialCache:
    """A bounded set of verified (user, stored hash, password) triples."""

    def __init__(self, key: bytes, capacity: int = 1024) -> None:
        """`key`: at least 16 random bytes, made once per process."""
        self._key = key[:64]
        self._capacity = capacity
        self._known: dict[bytes, None] = {}

    def known(self, user: str, password_hash: str, password: bytes) -> bool:
        """Whether exactly this was verified.  A changed stored hash is another triple."""
        return self.digest(user, password_hash, password) in self._known

    def remember(self, user: str, password_hash: str, password: bytes) -> None:
        """Note that the password was verified against the stored hash; the oldest goes."""
        if len(self._known) >= self._capacity:
            del self._known[next(iter(self._known))]
        self._known[self.digest(user, password_hash, password)] = None

    def digest(self, user: str, password_hash: str, password: bytes) -> bytes:
        """What stands for the three, in this process alone."""
        digest = hashlib.blake2b(key=self._key, digest_size=32)
        for part in (user.encode("utf-8", "surrogateescape"), password_hash.encode(), password):
            digest.update(len(part).to_bytes(4, "big"))
            digest.update(part)
        return digest.digest()
