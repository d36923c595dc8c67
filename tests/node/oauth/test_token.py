"""Whose word counts: signatures, keys and times of tokens, and what strangers try instead."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st

from mayfly.node.limits import TOKEN_BYTES
from mayfly.node.oauth.algorithms import ALGORITHMS
from mayfly.node.oauth.keys import KeySet, UnusableKey, read_keys
from mayfly.node.oauth.token import Believed, TokenRefused, UnknownKey, believed, looks_like_token
from tests.node.oauth import provider
from tests.node.oauth.provider import NOW_S, claims, jwk, jwks, part, pem, signed_with_secret, token, unsigned

LEEWAY_MS = 10_000


def keys(content: bytes | None = None) -> KeySet:
    return read_keys(jwks() if content is None else content)[0]


def look(text: str, known: KeySet | None = None, now_ms: int = NOW_S * 1000, algorithms: Any = ALGORITHMS) -> Believed:
    return believed(text, known or keys(), algorithms, now_ms, LEEWAY_MS)


def refused(text: str, known: KeySet | None = None, now_ms: int = NOW_S * 1000) -> str:
    with pytest.raises(TokenRefused) as raised:
        look(text, known, now_ms)
    return str(raised.value)


@pytest.mark.parametrize("algorithm", provider.ALGORITHMS)
def test_what_the_provider_has_signed_is_believed(algorithm: str) -> None:
    said = claims("read:*/*")
    text = token(said, algorithm)
    assert looks_like_token(text)
    for known in (keys(jwks(jwk(algorithm))), keys(pem(algorithm))):
        found = look(text, known)
        assert (found.claims, found.lives_ms) == (said, 3600_000 + LEEWAY_MS)
    forged = token(said, algorithm, key=provider.key_for(algorithm, "another"))
    assert "signature" in refused(forged, keys(jwks(jwk(algorithm))))


def test_a_public_key_is_no_secret_and_no_signature_is_none() -> None:
    """RFC 8725, 3.1 and 2.1: the algorithm that a token names is not what it is checked by."""
    said = claims("tag:administrator")
    for secret in (pem(), pem().strip(), jwk()["n"].encode(), b""):
        for algorithm in ("HS256", "HS384", "RS256"):
            for known in (keys(), keys(pem())):
                assert refused(signed_with_secret(said, secret, algorithm), known)
    names: list[Any] = ["none", "None", "NONE", "", None, 256, ["RS256"], "RS257"]
    for name in names:
        assert "not signed by" in refused(unsigned(said, alg=name))
    good = token(said)
    header, body, _ = good.split(".")
    for bad in (f"{header}.{body}.", f"{header}.{body}", f"{header}..", "..", f"{good}.", f".{good}", ""):
        assert refused(bad)


def test_an_algorithm_of_another_kind_of_key_is_refused() -> None:
    said = claims()
    both = keys(jwks(jwk("RS256", kid="rsa"), jwk("ES256", kid="ec")))
    look(token(said, "ES256", kid="ec"), both)
    assert "signature" in refused(token(said, "RS256", kid="ec"), both)
    assert "signature" in refused(token(said, "ES256", kid="rsa"), both)
    narrow = keys(jwks(jwk("RS256", alg="RS512")))
    look(token(said, "RS512"), narrow)
    assert "signature" in refused(token(said, "RS256"), narrow)
    with pytest.raises(TokenRefused, match="not signed by one of ES256"):
        look(token(said), algorithms=("ES256",))


def test_the_key_that_is_named_counts_and_those_without_a_name_for_all() -> None:
    said = claims()
    two = keys(jwks(jwk(kid="a"), jwk(kid="b", name="another")))
    look(token(said, kid="a"), two)
    assert "signature" in refused(token(said, kid="b"), two)
    with pytest.raises(UnknownKey):
        look(token(said, kid="c"), two)
    with pytest.raises(UnknownKey):
        look(token(said, kid=None), two)
    look(token(said, kid=None), keys())
    rotated = keys(pem(name="another") + pem())
    look(token(said, kid="whatever"), rotated)
    look(token(said, kid=None), rotated)


def test_times() -> None:
    now_ms = NOW_S * 1000
    text = token(claims(exp=NOW_S))
    assert look(text, now_ms=now_ms + LEEWAY_MS - 1).lives_ms == 1
    assert "expired" in refused(text, now_ms=now_ms + LEEWAY_MS)
    text = token(claims(nbf=NOW_S))
    look(text, now_ms=now_ms - LEEWAY_MS)
    assert "yet" in refused(text, now_ms=now_ms - LEEWAY_MS - 1)
    assert "for ever" in refused(token(claims(exp=None)))
    others: list[Any] = ["1", True, [NOW_S], 1e300, -(2**60), {}, 10**40]
    for bad in others:
        assert "exp" in refused(token(claims(exp=bad)))
    assert look(token(claims(exp=NOW_S + 0.5))).lives_ms == LEEWAY_MS + 500
    assert 0 < look(token(claims(exp=2**49))).lives_ms < 2**40


def test_what_can_not_be_read_is_refused() -> None:
    assert "octets" in refused("eyJ" + "a" * TOKEN_BYTES + ".a.a")
    assert "crit" in refused(token(claims(), crit=["b64"], b64=False))
    assert "kid" in refused(token(claims(), kid=["own"]))
    header, said, signature = token(claims()).split(".")
    for octet in ("\udcff", "\u00e9"):
        for parts in ((header, said + octet, signature), (octet + header, said, signature), (header, said, octet)):
            assert "no signed token" in refused(".".join(parts))
    for bad in (b"no json", b"[]", b'"text"', b"\xff", b"[" * 20_000):
        assert "claims" in refused(token(bad))
        assert refused(f"{part(bad)}.{part(claims())}.AAAA")


@given(st.data())
def test_no_change_of_a_token_is_believed(data: st.DataObject) -> None:
    text = GOOD
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.one_of(st.sampled_from("AZaz09-_.=+/ \x00é"), st.characters()))
    changed = text[:place] + other + text[place + data.draw(st.integers(0, 1)) :]
    try:
        found = look(changed)
    except TokenRefused:
        return
    # The last octet of base64 has bits to spare: another way to write the same.
    assert found.claims == look(text).claims
    assert changed.rpartition(".")[0] == text.rpartition(".")[0]


@given(st.one_of(st.text(), st.binary().map(lambda octets: octets.decode("latin-1"))), st.text(), st.text())
def test_hostile_text_is_refused_and_nothing_else_happens(first: str, second: str, third: str) -> None:
    for text in (first, f"{first}.{second}.{third}", f"{part({'alg': 'RS256', 'kid': first})}.{second}.{third}"):
        looks_like_token(text)
        with pytest.raises(TokenRefused):
            look(text)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)
)


@given(st.dictionaries(st.sampled_from(["alg", "kid", "crit", "typ", "b64", "jwk", "jku", "x5c"]), _json))
def test_no_header_of_whoever_has_no_key_is_believed(header: dict[str, Any]) -> None:
    """Keys that a token brings along are not looked at (RFC 8725, 3.10)."""
    with pytest.raises(TokenRefused):
        look(f"{part(header)}.{part(claims())}.{part(b'x' * 256)}")


def test_a_key_that_comes_with_the_token_is_none() -> None:
    stranger = provider.key_for("RS256", "stranger")
    brought: dict[str, Any] = {"jwk": jwk(name="stranger"), "jku": "https://stranger.example/keys", "x5u": "https://stranger.example"}
    assert "signature" in refused(token(claims(), key=stranger, **brought))


def test_keys_that_are_left_out() -> None:
    small = rsa.generate_private_key(65537, 1024).public_key().public_numbers()
    weak = {"kty": "RSA", "n": provider.base64url(small.n.to_bytes(128, "big")), "e": "AQAB", "kid": "weak"}
    odd: list[Any] = [
        weak, {"kty": "oct", "k": "c2VjcmV0", "kid": "own"}, {"kty": "EC", "crv": "P-256", "x": "AQ", "y": "AQ"},
        {"kty": "EC", "crv": "secp256k1", "x": "AQ", "y": "AQ"}, {"kty": "RSA", "n": 1, "e": "AQAB"}, 1, {},
        {"kty": "OKP", "crv": "Ed25519", "x": "AQ"}, jwk(alg="HS256"), jwk(alg="ES256"), jwk(alg=[]),
        {"kty": "RSA", "n": "=", "e": "AQAB"}, {"kty": "RSA", "n": "A" * 100_000, "e": "AQAB"},
        jwk() | {"e": "AA"}, jwk() | {"e": "_" * 60},
    ]  # fmt: skip
    found, notes = read_keys(jwks(*odd, jwk(use="enc"), jwk(key_ops=["encrypt"]), jwk(key_ops=["verify"])))
    assert (len(found), len(notes)) == (1, len(odd))
    look(token(claims()), found)
    for bad in (jwks(*odd), b"", b"no keys", b"[]", b'{"keys": 1}', b"-----BEGIN PUBLIC KEY-----\nAAAA\n", b"\xff"):
        with pytest.raises(UnusableKey):
            read_keys(bad)
    with pytest.raises(UnusableKey, match="at most 64"):
        read_keys(jwks(*[jwk(kid=str(number)) for number in range(65)]))
    look(token(claims()), read_keys(str(jwk()).replace("'", '"').encode())[0])


def test_a_private_key_is_not_taken() -> None:
    from cryptography.hazmat.primitives import serialization as form

    private = provider.key_for("RS256").private_bytes(
        form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()
    )
    with pytest.raises(UnusableKey, match="private key"):
        read_keys(private)


@given(st.binary(max_size=200) | _json.map(lambda content: str(content).encode()))
def test_any_octets_for_keys_are_keys_or_refused(content: bytes) -> None:
    with pytest.raises(UnusableKey):
        read_keys(content)


GOOD = token(claims("read:*/*"))
