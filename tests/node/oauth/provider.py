"""A provider of tokens: its keys, what it signs, and what it must never sign."""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import json
from typing import Any, Final

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

NOW_S: Final = 1_700_000_000
CLUSTER: Final = "rabbitmq"
EVERYTHING: Final = ["configure:*/*", "write:*/*", "read:*/*"]
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_HASHES: Final[dict[str, Any]] = {"256": hashes.SHA256, "384": hashes.SHA384, "512": hashes.SHA512}
_CURVES: Final[dict[str, tuple[str, Any]]] = {
    "ES256": ("P-256", ec.SECP256R1), "ES384": ("P-384", ec.SECP384R1), "ES512": ("P-521", ec.SECP521R1),
}  # fmt: skip


def base64url(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()


def part(content: object) -> str:
    return base64url(content if isinstance(content, bytes) else json.dumps(content).encode())


@functools.cache
def private_key(kind: str, name: str = "own") -> Any:
    """One for each kind and name; `name` tells keys of others."""
    if kind == "RSA":
        return rsa.generate_private_key(65537, 2048)
    return ed25519.Ed25519PrivateKey.generate() if kind == "EdDSA" else ec.generate_private_key(_CURVES[kind][1]())


def key_for(algorithm: str, name: str = "own") -> Any:
    return private_key("RSA" if algorithm[0] in "RP" else algorithm, name)


def sign(algorithm: str, content: bytes, key: Any) -> bytes:
    if algorithm == "EdDSA":
        return bytes(key.sign(content))
    hashed = _HASHES[algorithm[2:]]()
    if algorithm.startswith("ES"):
        size = (key.curve.key_size + 7) // 8
        r, s = decode_dss_signature(key.sign(content, ec.ECDSA(hashed)))
        return r.to_bytes(size, "big") + s.to_bytes(size, "big")
    plain, salted = padding.PKCS1v15(), padding.PSS(padding.MGF1(hashed), hashed.digest_size)
    scheme: Any = plain if algorithm.startswith("RS") else salted
    return bytes(key.sign(content, scheme, hashed))


def claims(*scopes: str, name: str = "ada", now_s: int = NOW_S, **more: Any) -> dict[str, Any]:
    """Those of an ordinary token of an hour, for this cluster; None takes one out."""
    said = {
        "sub": name, "aud": [CLUSTER], "exp": now_s + 3600, "scope": [f"{CLUSTER}.{scope}" for scope in scopes],
    } | more  # fmt: skip
    return {key: value for key, value in said.items() if value is not None}


def token(said: object, algorithm: str = "RS256", kid: Any = "own", key: Any = None, **header: Any) -> str:
    """A token with these claims; `key` is the provider's own unless it is given."""
    named: dict[str, Any] = {"alg": algorithm} | ({} if kid is None else {"kid": kid}) | header
    content = f"{part(named)}.{part(said)}"
    return f"{content}.{base64url(sign(algorithm, content.encode(), key or key_for(algorithm)))}"


def unsigned(said: object, **header: Any) -> str:
    return f"{part({'alg': 'none', 'kid': 'own'} | header)}.{part(said)}."


def signed_with_secret(said: object, secret: bytes, algorithm: str = "HS256", **header: Any) -> str:
    """As somebody does who takes what is public for a secret that is shared."""
    content = f"{part({'alg': algorithm, 'kid': 'own'} | header)}.{part(said)}"
    return f"{content}.{base64url(hmac.new(secret, content.encode(), hashlib.sha256).digest())}"


def pem(algorithm: str = "RS256", name: str = "own") -> bytes:
    """The public key."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return bytes(key_for(algorithm, name).public_key().public_bytes(serialization.Encoding.PEM, form))


def jwk(algorithm: str = "RS256", kid: str | None = "own", name: str = "own", **more: Any) -> dict[str, Any]:
    """The public key as a JWK, for any algorithm that fits it."""
    public = key_for(algorithm, name).public_key()
    said: dict[str, Any] = {"use": "sig"} | ({} if kid is None else {"kid": kid}) | more
    if algorithm == "EdDSA":
        raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        return said | {"kty": "OKP", "crv": "Ed25519", "x": base64url(raw)}
    numbers = public.public_numbers()
    if algorithm.startswith("ES"):
        size = (public.curve.key_size + 7) // 8
        point = {"x": numbers.x, "y": numbers.y}
        octets = {each: base64url(value.to_bytes(size, "big")) for each, value in point.items()}
        return said | {"kty": "EC", "crv": _CURVES[algorithm][0], **octets}
    size = (numbers.n.bit_length() + 7) // 8
    return said | {"kty": "RSA", "n": base64url(numbers.n.to_bytes(size, "big")), "e": base64url(b"\x01\x00\x01")}


def jwks(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys or (jwk(),))}).encode()
