"""Cuts between hosts are what they say, in the direction they say, and leave nothing behind."""

import subprocess
from collections.abc import Iterator

import pytest

from tests.reliability.network import Network, why_impossible
from tests.waiting import BOUND_S

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
        [*network.inside(receiver), "python3", "-c", RECEIVE, address, str(BOUND_S if expected else 1)],
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


@pytest.fixture
def soft_network() -> Iterator[Network]:
    reason = why_impossible(soft=True)
    if reason:
        pytest.skip(reason)
    made = Network(3, soft=True)
    yield made
    made.close()


def test_a_soft_network_carries_and_cuts_as_the_other_does(soft_network: Network) -> None:
    assert arrives(soft_network, 1, 2, expected=True)
    soft_network.cut(1, 2)
    assert not arrives(soft_network, 1, 2, expected=False)
    assert arrives(soft_network, 2, 1, expected=True)
    soft_network.heal()
    assert arrives(soft_network, 1, 2, expected=True)


def test_packets_of_one_direction_are_lost_and_come_twice(soft_network: Network) -> None:
    # The sender knows the receiver's address from now on: else it asks for it three times, in vain while all is lost,
    # and throws away what it was to send meanwhile.
    assert arrives(soft_network, 1, 2, expected=True)
    soft_network.disturb(1, 2, loss=1.0)
    assert not arrives(soft_network, 1, 2, expected=False)
    soft_network.disturb(1, 2, repeats=1.0)
    assert sorted(number for number, _ in numbered(soft_network, 10, each=2)) == sorted([*range(10)] * 2)
    soft_network.heal()
    assert [number for number, _ in numbered(soft_network, 10)] == list(range(10))


def test_packets_are_late_and_overtake_each_other(soft_network: Network) -> None:
    soft_network.disturb(1, 2, delay_ms=100, jitter_ms=200)
    came = numbered(soft_network, 30)
    assert min(late_ms for _, late_ms in came) >= 100
    numbers = [number for number, _ in came]
    assert sorted(numbers) == list(range(30)) and numbers != sorted(numbers), "none has overtaken another"


TAKE_NUMBERED = """
import socket, sys, time
taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
taken.bind((sys.argv[1], 9))
print("bound", flush=True)
try:
    came = 0
    while True:
        taken.settimeout(float(sys.argv[3]) if came < int(sys.argv[2]) else 0.5)
        words = taken.recv(50).split()
        if len(words) == 2:  # else one of `arrives`, which has waited for the address of its receiver
            came += 1
            print(int(words[0]), 1000 * (time.monotonic() - float(words[1])))
except TimeoutError:
    pass  # no more than are expected come, or not even these
"""
SEND_NUMBERED = """
import socket, sys, time
sending = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(int(sys.argv[2])):
    sending.sendto(f"{number} {time.monotonic()!r}".encode(), (sys.argv[1], 9))
    time.sleep(0.005)
"""


def numbered(network: Network, count: int, each: int = 1) -> list[tuple[int, float]]:
    """Notices from host 1 to host 2 as they come, each so often: their numbers, and how late each was, in ms."""
    address = network.address(2)
    taking = [*network.inside(2), "python3", "-c", TAKE_NUMBERED, address, str(each * count), str(BOUND_S)]
    with subprocess.Popen(taking, stdout=subprocess.PIPE, text=True) as taker:
        assert taker.stdout is not None and taker.stdout.readline() == "bound\n"
        sending = [*network.inside(1), "python3", "-c", SEND_NUMBERED, address, str(count)]
        subprocess.run(sending, check=True)
        rows = [line.split() for line in taker.stdout.read().splitlines()]
    return [(int(number), float(late_ms)) for number, late_ms in rows]


@pytest.mark.parametrize("soft", [False, True])
def test_nothing_is_left(soft: bool) -> None:
    reason = why_impossible(soft)
    if reason:
        pytest.skip(reason)
    made = Network(2, soft)
    name = made.inside(1)[-1]
    assert name in subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    made.close()
    left = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert name.removesuffix("1") not in left
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    assert f"{name.removesuffix('-1')}@" not in links and f"{name.removesuffix('-1')}:" not in links
