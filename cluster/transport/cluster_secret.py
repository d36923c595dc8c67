"""The cluster secret: how two nodes show each other that they know it, without saying it. Pure.

    connects  -> nonce, node id, name of its data, whom it means, at which address
              <- nonce
              -> for each of its secrets: HMAC(secret, "connects" and all of the above)
    listens   <- HMAC(the secret that was right, "listens" and all of the above)

The one that connects proves first, so that nobody gets a proof to guess at by merely connecting. All values go into a
proof with their lengths, so that no two dialogues have the same octets. What comes on the connection afterwards is not
protected: who can change what is on its way needs TLS to be kept out.
"""

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Final

from mayfly.cluster import limits

NONCE_BYTES: Final = 32
_PURPOSE: Final = b"MayflyMQ cluster secret"
_LENGTH: Final = Struct(">I")
_NUMBER: Final = Struct(">Q")


class ClusterSecrets:
    """What a node knows: several secrets while one takes another's place. Shown in no text.

    If it is `demanded`, peers that do not prove one of them are refused; otherwise they are taken, for as long as some
    nodes have none yet.
    """

    def __init__(self, secrets: Iterable[str], demanded: bool = True) -> None:
        self._keys: tuple[bytes, ...] = tuple(dict.fromkeys(secret.encode() for secret in secrets))
        self.demanded: bool = demanded and bool(self._keys)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def __repr__(self) -> str:
        return f"ClusterSecrets({len(self._keys)}, demanded={self.demanded})"

    def proofs(self, dialogue: "Dialogue") -> list[bytes]:
        """Of the one that connects: one for each secret."""
        return [_proof(key, b"connects", dialogue) for key in self._keys]

    def proven_by(self, proofs: Iterable[bytes], dialogue: "Dialogue") -> "ProvenSecret | None":
        """The secret that the one that connects has proven to know; None: none of ours."""
        found = None
        for proof in proofs:
            for key in self._keys:
                if hmac.compare_digest(_proof(key, b"connects", dialogue), proof):
                    found = ProvenSecret(key)
        return found

    def shown_by(self, answer: bytes, dialogue: "Dialogue") -> "ProvenSecret | None":
        """The secret that the one that listens has shown to know, too; None: none of ours."""
        found = None
        for key in self._keys:
            if hmac.compare_digest(_proof(key, b"listens", dialogue), answer):
                found = ProvenSecret(key)
        return found


NO_SECRET: Final = ClusterSecrets(())


@dataclass(frozen=True, slots=True)
class Dialogue:
    """What both ends have said when they prove: who connects, whom it means, where, and a nonce of each."""

    node_id: int
    store: str
    target: int
    address: str
    nonce: bytes = b""
    nonce_of_listener: bytes = b""

    def octets(self) -> bytes:
        """All of it, each value with its length."""
        numbers = _NUMBER.pack(self.node_id), _NUMBER.pack(self.target)
        return _joined(*numbers, self.store.encode(), self.address.encode(), self.nonce, self.nonce_of_listener)


class ProvenSecret:
    """The secret by which a connection was proven, for what belongs to it. Shown in no text."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def answer(self, dialogue: Dialogue) -> bytes:
        """Of the one that listens: it knows the secret, too."""
        return _proof(self._key, b"listens", dialogue)

    def ticket(self, ticket: bytes, node_id: int) -> bytes:
        """What is shown for the ticket of a frame stream, which goes over the wire as it is."""
        return self._of_ticket(b"frames", ticket, node_id)

    def answer_to_ticket(self, ticket: bytes, node_id: int) -> bytes:
        """What is answered to that."""
        return self._of_ticket(b"frames taken", ticket, node_id)

    def _of_ticket(self, what: bytes, ticket: bytes, node_id: int) -> bytes:
        return _mac(self._key, _joined(_PURPOSE, what, ticket, _NUMBER.pack(node_id)))


def secret_fault(secrets: Iterable[str]) -> str:
    """What would be right for these secrets; "" if they are. Names none of them."""
    known = list(secrets)
    if len(known) > limits.MAX_SECRETS:
        return f"at most {limits.MAX_SECRETS} secrets"
    for secret in known:
        printable = secret.isascii() and secret.isprintable() and " " not in secret
        if not printable or not limits.MIN_SECRET_LENGTH <= len(secret) <= limits.MAX_SECRET_LENGTH:
            least, most = limits.MIN_SECRET_LENGTH, limits.MAX_SECRET_LENGTH
            return f"secrets of {least} to {most} characters from ! to ~, with space between two of them"
    return ""


def _proof(key: bytes, role: bytes, dialogue: Dialogue) -> bytes:
    return _mac(key, _joined(_PURPOSE, role, dialogue.octets()))


def _mac(key: bytes, octets: bytes) -> bytes:
    return hmac.digest(key, octets, "sha256")


def _joined(*values: bytes) -> bytes:
    return b"".join(_LENGTH.pack(len(value)) + value for value in values)
