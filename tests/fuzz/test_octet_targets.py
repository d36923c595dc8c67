"""The targets of fuzzing by coverage, from fixed octets; atheris itself is not needed."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import codecs
from tests.fuzz.octet_targets import FROM_CLIENTS, FromOctets, first_inputs, one_input, sequence
from tests.node.amqp.scripted_client import running_client
from tests.waiting import BOUND_S


def test_octets_are_tried() -> None:
    for octets in first_inputs():
        one_input(octets)
    chance = random.Random(7)
    for _ in range(100):
        one_input(bytes([len(FROM_CLIENTS)]) + chance.randbytes(chance.randrange(300)))


def test_sequences_get_beyond_the_first_frame() -> None:
    """Most of them: a target whose input ends the connection at once would find nothing."""
    chance = random.Random(7)
    counts = []
    for _ in range(50):
        client = running_client(frame_max=4096)
        counts.append(len(client.feed(sequence(chance.randbytes(200)))))
    assert sum(count > 3 for count in counts) > 20, counts


def test_the_same_octets_are_the_same_choices_and_come_to_an_end() -> None:
    octets = bytes(range(100))
    assert sequence(octets) == sequence(octets) != sequence(octets[1:])
    assert FromOctets(b"").choice([1, 2, 3]) == 1


def test_a_defect_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that takes any header."""
    octets = bytes([FROM_CLIENTS.index("header")]) + bytes(12) + b"\x80\x00\xff"
    one_input(octets)
    monkeypatch.setattr(codecs, "check_header", lambda _: None)
    with pytest.raises(AssertionError, match="was read, though it is none"):
        one_input(octets)


def test_without_atheris_it_says_so() -> None:
    program = Path(__file__).with_name("run_atheris.py")
    command = [sys.executable, "-S", str(program)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, check=True)
    assert "atheris is not installed" in ran.stdout
