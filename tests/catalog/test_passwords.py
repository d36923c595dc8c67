"""Password hashes."""
from __future__ import annotations

import pytest

from node.catalog import Catalog
from node.catalog.passwords import make_password_hash, verify_password

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
    assert verify_password(guest.password_hash, "guest")
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
