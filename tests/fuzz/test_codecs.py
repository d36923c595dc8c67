"""A bounded part of the fuzzing of decoders, from fixed seeds."""

import pytest

from tests.fuzz.codecs import TARGETS, try_codecs

SEEDS = range(500)


@pytest.mark.parametrize("name", TARGETS)
def test_right_octets_are_read(name: str) -> None:
    target, right = TARGETS[name]
    for octets in right:
        target(octets)


def test_changed_octets_are_read_or_refused() -> None:
    for seed in SEEDS:
        try_codecs(seed)


@pytest.mark.parametrize(
    ("target", "octets"),
    [
        # A text that is no UTF-8 ended the reading with UnicodeDecodeError, which nobody expected.
        ("catalog state", b"\x9c\x05\x04\x01\x91\x93\x91\xa1\xff"),
        ("identity", b'{"format":1,"cluster":"\xff"}'),
        ("notice", bytes(16) + b"\x06\0\0\0" + b"\x91\x93\0\xa1\xff\0"),
        ("access counts", b"\x91\x93\x00\xa1\xff\x01"),
    ],
)
def test_what_was_found(target: str, octets: bytes) -> None:
    TARGETS[target][0](octets)
