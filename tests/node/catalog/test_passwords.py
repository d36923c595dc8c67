"""Password hashes."""
from __future__ import annotations

import hashlib
from typing import Any

import pytest

from mayfly.node.catalog import Catalog
from mayfly.node.catalog.passwords import (
    DEFAULT_N,
    DEFAULT_P,
    DEFAULT_R,
    NOBODYS_HASH,
    check_and_renew,
    from_imported,
    is_quick,
    make_password_hash,
    shown_hash,
    verify_password,
)
from mayfly.node.catalog.state import DEFAULT_PASSWORD

SALT = b"0123456789abcdef"


def test_a_password_fits_its_hash() -> None:
    stored = make_password_hash("sécret", SALT, n=16)
    assert stored.startswith(f"scrypt$16$8$1${SALT.hex()}$")
    assert verify_password(stored, "sécret")
    assert not verify_password(stored, "secret")
    assert not verify_password(stored, "")


def test_guest_is_there_from_the_start() -> None:
    guest = Catalog(1).user("guest")
    assert guest is not None
    assert guest.tags == ("administrator",)
    assert verify_password(guest.password_hash, DEFAULT_PASSWORD)
    assert not verify_password(guest.password_hash, "Guest")


@pytest.mark.parametrize(
    "stored",
    [
        "", "scrypt", "md5$1$1$1$00$00", "scrypt$x$8$1$00$00", "scrypt$16$8$1$zz$00", "scrypt$3$8$1$00$00",
        "scrypt$1073741824$8$1$00$00", "scrypt$-16$8$1$00$00",
    ],
)
def test_unreadable_hashes_fit_nothing(stored: str) -> None:
    assert not verify_password(stored, "")
    assert not verify_password(stored, "guest")


def test_a_salt_has_a_least_length() -> None:
    with pytest.raises(ValueError, match="salt"):
        make_password_hash("p", b"short")


# Made by RabbitMQ's rule, and accepted by RabbitMQ 3.10.8: the password is "pw", the salt "abcd".
IMPORTED = {
    "rabbit_password_hashing_sha256": "YWJjZCUocPu+lAjLXU4Se7RFyins8lJaz+A5gv/b19IpfqUF",
    "rabbit_password_hashing_sha512": (
        "YWJjZAGZtNiCgC8g+Kc8wlg0lAQ+vPUzRi1/37+W08kOpdtM8gWHtFJpVmp2aWLUUUoal3oXnLMKe3FIBxv63fFyApM="
    ),
    "rabbit_password_hashing_md5": "YWJjZODzy6NRiTHUYpNJdsHFvNQ=",
}


@pytest.mark.parametrize(("algorithm", "imported"), IMPORTED.items())
def test_hashes_of_rabbitmq_are_taken_and_renewed(algorithm: str, imported: str) -> None:
    stored = from_imported(algorithm, imported)
    assert shown_hash(stored) == (algorithm, imported)
    assert verify_password(stored, "pw")
    assert not verify_password(stored, "pW")
    assert check_and_renew(stored, "pW", SALT) == (False, "")
    right, better = check_and_renew(stored, "pw", SALT)
    assert right
    assert not is_quick(better)
    assert check_and_renew(better, "pw", SALT) == (True, "")


def test_our_own_hashes_can_be_taken_elsewhere() -> None:
    stored = make_password_hash("pw", SALT, n=16)
    assert from_imported(*shown_hash(stored)) == stored
    assert from_imported(*shown_hash("")) == ""


@pytest.mark.parametrize(
    ("algorithm", "imported", "text"),
    [
        ("rabbit_password_hashing_sha256", "x!", "base64"),
        ("rabbit_password_hashing_sha256", IMPORTED["rabbit_password_hashing_md5"], "20 octets, 36 are expected"),
        ("nonsense", IMPORTED["rabbit_password_hashing_md5"], "hashing_algorithm is 'nonsense', one of rabbit_"),
        ("scrypt", "x", "scrypt"),
        ("scrypt", "scrypt$1048576$8$16$00$00", "at most"),
    ],
)
def test_hashes_that_can_not_be_used_are_refused_and_not_quoted(algorithm: str, imported: str, text: str) -> None:
    with pytest.raises(ValueError, match=text) as refused:
        from_imported(algorithm, imported)
    assert len(imported) < 3 or imported not in str(refused.value)


def test_nobody_has_that_hash() -> None:
    assert not verify_password(NOBODYS_HASH, "")
    assert not verify_password(NOBODYS_HASH, "guest")


@pytest.mark.parametrize("stored", ["nobody", "made here", *IMPORTED])
@pytest.mark.parametrize("password", ["pw", "pW"])
def test_a_wrong_password_costs_what_a_right_one_and_an_unknown_user_do(
    stored: str, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what is computed: one slow hash of the usual cost, whoever logs in with whatever."""
    if stored in IMPORTED:
        stored = from_imported(stored, IMPORTED[stored])
    else:
        stored = NOBODYS_HASH if stored == "nobody" else make_password_hash("pw", SALT)
    costs: list[tuple[int, int, int]] = []
    scrypt = hashlib.scrypt

    def counted(*arguments: Any, n: int, r: int, p: int, **others: Any) -> bytes:
        costs.append((n, r, p))
        return scrypt(*arguments, n=n, r=r, p=p, **others)

    monkeypatch.setattr(hashlib, "scrypt", counted)
    check_and_renew(stored, password, SALT)
    assert costs == [(DEFAULT_N, DEFAULT_R, DEFAULT_P)]
