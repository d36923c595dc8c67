"""The public keys that a provider signs with, from a JWK set (RFC 7517) or PEM files.

A key fits the algorithms of its own kind and no other one: a token's word alone decides nothing (RFC 8725, 3.1). Keys
that are secrets (HS256 and the like) are no public keys, and are not taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from cryptography.x509 import load_pem_x509_certificate

from mayfly.node.limits import SIGNING_KEYS
from mayfly.node.oauth.algorithms import OF_CURVES, OF_ED25519, OF_RSA
from mayfly.node.oauth.octets import MalformedToken, decoded, object_in

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey

_LEAST_RSA_BITS: Final = 2048
_MOST_RSA_BITS: Final = 8192
_MOST_RSA_EXPONENT: Final = 2**32
_CURVES: Final[dict[str, type[ec.EllipticCurve]]] = {
    "P-256": ec.SECP256R1, "P-384": ec.SECP384R1, "P-521": ec.SECP521R1,
}  # fmt: skip
_OF_CURVE: Final = dict(zip(("secp256r1", "secp384r1", "secp521r1"), OF_CURVES, strict=True))
_HASHES: Final[dict[str, type[hashes.HashAlgorithm]]] = {
    "256": hashes.SHA256, "384": hashes.SHA384, "512": hashes.SHA512,
}  # fmt: skip

_PEM_BEGIN: Final = b"-----BEGIN "


class UnusableKey(ValueError):
    """A key that is none, or not of a kind that is taken; the text says why."""


class SigningKey:
    """One key, with the algorithms that it is for."""

    def __init__(self, key: PublicKey, id: str | None = None, algorithm: str | None = None) -> None:
        """`id` is None for a key without a name, which is tried for tokens of any; `algorithm` is the only one that it
        is for, if it says so. Raises UnusableKey."""
        fitting = _algorithms_of(key)
        if algorithm is not None and algorithm not in fitting:
            raise UnusableKey(f"its algorithm is {algorithm[:20]!r}, one of {', '.join(fitting)} fits it")
        self.id: Final = id
        self.algorithms: Final = fitting if algorithm is None else (algorithm,)
        self._key = key

    def has_signed(self, algorithm: str, content: bytes, signature: bytes) -> bool:
        """Whether the signature is this key's, by an algorithm that it is for."""
        if algorithm not in self.algorithms:
            return False
        key = self._key
        try:
            if isinstance(key, rsa.RSAPublicKey):
                key.verify(signature, content, _padding(algorithm), _HASHES[algorithm[2:]]())
            elif isinstance(key, ec.EllipticCurvePublicKey):
                half = (key.curve.key_size + 7) // 8
                if len(signature) != 2 * half:
                    return False
                r, s = int.from_bytes(signature[:half], "big"), int.from_bytes(signature[half:], "big")
                key.verify(encode_dss_signature(r, s), content, ec.ECDSA(_HASHES[algorithm[2:]]()))
            else:
                key.verify(signature, content)
        except InvalidSignature:
            return False
        return True


def _algorithms_of(key: PublicKey) -> tuple[str, ...]:
    if isinstance(key, rsa.RSAPublicKey):
        if not _LEAST_RSA_BITS <= key.key_size <= _MOST_RSA_BITS:
            raise UnusableKey(f"it has {key.key_size} bits, {_LEAST_RSA_BITS} to {_MOST_RSA_BITS} are taken")
        if key.public_numbers().e > _MOST_RSA_EXPONENT:
            raise UnusableKey("its exponent is above 2**32")
        return OF_RSA
    if isinstance(key, ec.EllipticCurvePublicKey):
        if key.curve.name not in _OF_CURVE:
            raise UnusableKey(f"its curve is {key.curve.name}, one of {', '.join(_CURVES)} is taken")
        return (_OF_CURVE[key.curve.name],)
    return OF_ED25519


def _padding(algorithm: str) -> padding.AsymmetricPadding:
    if algorithm.startswith("RS"):
        return padding.PKCS1v15()
    return padding.PSS(padding.MGF1(_HASHES[algorithm[2:]]()), padding.PSS.DIGEST_LENGTH)


class KeySet:
    """The keys of one provider."""

    def __init__(self, keys: Iterable[SigningKey] = ()) -> None:
        self._keys: Sequence[SigningKey] = tuple(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def candidates(self, id: str | None) -> Sequence[SigningKey]:
        """Those that may have signed a token that names this key: it, or else those without a name. Of one that names
        none: the only one with a name, and those without."""
        named = [key for key in self._keys if key.id is not None and (id is None or key.id == id)]
        if id is None and len(named) > 1:
            named = []
        return named or [key for key in self._keys if key.id is None]


def read_keys(content: bytes) -> tuple[KeySet, list[str]]:
    """The keys in a file, or in what an address answers: a JWK set, one JWK, or PEM (public keys, certificates); and
    what is to be said of those that are left out. Raises UnusableKey if there is none that can be used."""
    text = content.strip()
    keys, left_out = _from_pem(text) if text.startswith(_PEM_BEGIN) else _from_json(text)
    if not keys:
        raise UnusableKey("no key that can be used is in it" + "".join(f"; {each}" for each in left_out[:4]))
    if len(keys) > SIGNING_KEYS:
        raise UnusableKey(f"{len(keys)} keys are in it, at most {SIGNING_KEYS} are taken")
    return KeySet(keys), left_out


def _from_pem(text: bytes) -> tuple[list[SigningKey], list[str]]:
    keys, left_out = [], []
    for number, block in enumerate(text.split(_PEM_BEGIN)[1 : SIGNING_KEYS + 2], 1):
        try:
            keys.append(SigningKey(_key_in_pem(_PEM_BEGIN + block)))
        except (ValueError, UnsupportedAlgorithm) as error:
            why = str(error) if isinstance(error, UnusableKey) else "it can't be read as a public key or certificate"
            left_out.append(f"key {number} is left out: {why}")
    return keys, left_out


def _key_in_pem(block: bytes) -> PublicKey:
    if b"PRIVATE KEY" in block.split(b"\n", 1)[0]:
        raise UnusableKey("it is a private key, and those are nobody's but the provider's")
    if block.startswith(_PEM_BEGIN + b"CERTIFICATE"):
        key: object = load_pem_x509_certificate(block).public_key()
    else:
        key = load_pem_public_key(block)
    if not isinstance(key, PublicKey):
        raise UnusableKey("it is of a kind that is not taken; RSA, P-256, P-384, P-521 and Ed25519 are")
    return key


def _from_json(text: bytes) -> tuple[list[SigningKey], list[str]]:
    try:
        content = object_in(text)
    except MalformedToken as error:
        raise UnusableKey(f"neither PEM nor a JWK set: {error}") from None
    listed = content.get("keys", [content])
    if not isinstance(listed, list):
        raise UnusableKey("'keys' is no list")
    keys, left_out = [], []
    for number, each in enumerate(listed[: 2 * SIGNING_KEYS], 1):
        try:
            if not isinstance(each, dict):
                raise UnusableKey("it is no object")
            key = _from_jwk(each)
        except (ValueError, UnsupportedAlgorithm) as error:
            why = str(error) if isinstance(error, UnusableKey) else "its numbers make no key"
            left_out.append(f"key {number} is left out: {why}")
        else:
            if key is not None:
                keys.append(key)
    return keys, left_out


def _from_jwk(jwk: Mapping[str, Any]) -> SigningKey | None:
    """None: it is for something else than signatures. Raises UnusableKey, ValueError."""
    operations = jwk.get("key_ops", ["verify"])
    if jwk.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return None
    id, algorithm = jwk.get("kid"), jwk.get("alg")
    if not isinstance(id, str | None) or not isinstance(algorithm, str | None):
        raise UnusableKey("'kid' and 'alg' are texts")
    return SigningKey(_numbers_in(jwk), id, algorithm)


def _numbers_in(jwk: Mapping[str, Any]) -> PublicKey:
    kind = jwk.get("kty")
    if kind == "RSA":
        modulus = _octets(jwk, "n")
        if len(modulus) > _MOST_RSA_BITS // 8 + 1:
            raise UnusableKey(f"it has more than {_MOST_RSA_BITS} bits")
        exponent = int.from_bytes(_octets(jwk, "e")[:64], "big")
        return rsa.RSAPublicNumbers(exponent, int.from_bytes(modulus, "big")).public_key()
    curve = jwk.get("crv")
    if kind == "EC" and isinstance(curve, str) and curve in _CURVES:
        x, y = (int.from_bytes(_octets(jwk, each)[:80], "big") for each in ("x", "y"))
        return ec.EllipticCurvePublicNumbers(x, y, _CURVES[curve]()).public_key()
    if kind == "OKP" and curve == "Ed25519":
        return ed25519.Ed25519PublicKey.from_public_bytes(_octets(jwk, "x"))
    if kind == "oct":
        raise UnusableKey("it is a secret and no public key")
    raise UnusableKey("it is of a kind that is not taken; RSA, P-256, P-384, P-521 and Ed25519 are")


def _octets(jwk: Mapping[str, Any], name: str) -> bytes:
    text = jwk.get(name)
    if not isinstance(text, str):
        raise UnusableKey(f"it has no '{name}'")
    try:
        return decoded(text)
    except MalformedToken:
        raise UnusableKey(f"its '{name}' is no base64url") from None


