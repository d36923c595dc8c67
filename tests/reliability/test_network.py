"""Cuts between hosts are what they say, in the direction they say, and leave nothing behind."""

import subprocess
from collections.abc import Iterator

import pytest

from tests.reliability.network import Network, why_impossible

IMPOSSIBLE = why_impossible()
pytestmark = [pytest.mark.processes, pytest.mark.skipif(bool(IMPOSSIBLE), reason=IMPOSSIBLE)]

RECEIVE = """
import socket, sys
taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
taken.bind((sys.argv[1], 9))
taken.settimeout(float(sys.argv[2]))
print("bound", flush=True)
try:
    print(taken.recv(10).decode())
except TimeoutError:
    print("nothing")
"""
SEND = "import socket, sys; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'hello', (sys.argv[1], 9))"


@pytest.fixture
def network() -> Iterator[Network]:
    made = Network(3)
    yield made
    made.close()


def arrives(network: Network, sender: int, receiver: int, expected: bool) -> bool:
    """Whether one notice arrives; where it should not, that is believed after a second."""
    address = network.address(receiver)
    taker = subprocess.Popen(
        [*network.inside(receiver), "python3", "-c", RECEIVE, address, "20" if expected else "1"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert taker.stdout is not None and taker.stdout.readline() == "bound\n"
    subprocess.run([*network.inside(sender), "python3", "-c", SEND, address], check=True)
    return taker.communicate()[0] == "hello\n"


def test_one_direction_is_cut_and_healed(network: Network) -> None:
    assert arrives(network, 1, 2, expected=True)
    network.cut(1, 2)
    assert not arrives(network, 1, 2, expected=False)
    assert arrives(network, 2, 1, expected=True)
    assert arrives(network, 1, 3, expected=True)
    network.heal()
    assert arrives(network, 1, 2, expected=True)


def test_nothing_is_left() -> None:
    made = Network(2)
    name = made.inside(1)[-1]
    assert name in subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    made.close()
    left = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert name.removesuffix("1") not in left
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    assert f"{name.removesuffix('-1')}@" not in links
