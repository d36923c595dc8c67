"""Clients that do not read, or are gone, cost a bounded amount of memory, and not for long."""

import socket
import time
from collections.abc import Iterator

import pytest
from pamqp import commands, frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from mayfly.node.limits import MIB, OUTPUT_FULL_BYTES, OUTPUT_HIGH_WATER_BYTES
from tests.node.broker.direct_node import DirectNode
from tests.node.broker.raw_client import Client, protocol_of
from tests.waiting import until_judged, wait_for

MESSAGES = 40
STALL_S = 1.0


@pytest.fixture(scope="module")
def node() -> Iterator[DirectNode]:
    with DirectNode(stall_seconds=STALL_S) as node:
        yield node


@pytest.fixture(scope="module")
def patient() -> Iterator[DirectNode]:
    with DirectNode(stall_seconds=3600) as node:
        yield node


def unsent(client: Client) -> int:
    protocol = protocol_of(client)
    return 0 if protocol is None else int(protocol._transport.get_write_buffer_size())  # type: ignore[attr-defined]


def full_queue(node: DirectNode, name: str) -> None:
    client = Client(node)
    client.send(1, commands.Queue.Declare(queue=name), commands.Confirm.Select())
    for number in range(MESSAGES):
        body = b"%06d" % number + bytes(MIB - 6)
        client.send(1, commands.Basic.Publish(routing_key=name))
        client.socket.sendall(frame.marshal(ContentHeader(body_size=MIB), 1))
        pieces = [body[start : start + 131_064] for start in range(0, MIB, 131_064)]
        client.socket.sendall(b"".join(frame.marshal(ContentBody(piece), 1) for piece in pieces))
    done = 0
    while done < MESSAGES:
        found = client.read()
        if isinstance(found, commands.Basic.Ack):
            done = max(done, found.delivery_tag or 0)
    client.socket.close()


def until_much_waits(client: Client) -> None:
    """Or until the client was given up: a busy machine may come to look only then."""
    wait_for(
        lambda: unsent(client) > OUTPUT_HIGH_WATER_BYTES or protocol_of(client) is None,
        "much that waits for the client",
    )


def most_unsent(client: Client) -> int:
    """The most that waited for the client: once it was much, until it did not change for a while."""
    until_much_waits(client)
    most = last = 0
    since = time.monotonic()
    while time.monotonic() - since < 0.5:
        now = unsent(client)
        if now != last:
            since, last = time.monotonic(), now
        most = max(most, now)
        time.sleep(0.005)
    return most


@pytest.mark.parametrize("no_ack", [True, False])
def test_deliveries_stop_when_nothing_is_read(patient: DirectNode, no_ack: bool) -> None:
    """Without a prefetch; later everything comes, in order."""
    full_queue(patient, f"d{no_ack}")
    client = Client(patient)
    client.send(1, commands.Basic.Consume(queue=f"d{no_ack}", no_ack=no_ack))
    # What some entries deliver until the shard hears that nothing is to be delivered.
    assert most_unsent(client) < OUTPUT_HIGH_WATER_BYTES + 16 * MIB
    assert client.bodies(MESSAGES) == list(range(MESSAGES))
    client.socket.close()


def test_what_is_asked_for_without_reading_is_not_done_ahead(patient: DirectNode) -> None:
    """The answers would have to be kept."""
    full_queue(patient, "got")
    client = Client(patient)
    client.send(1, *[commands.Basic.Get(queue="got", no_ack=True)] * MESSAGES)
    assert most_unsent(client) < OUTPUT_FULL_BYTES + 4 * MIB
    assert client.bodies(MESSAGES) == list(range(MESSAGES))
    client.socket.close()


def test_a_client_that_takes_nothing_is_given_up(node: DirectNode) -> None:
    full_queue(node, "stuck")
    client = Client(node)
    began_s = time.monotonic()
    client.send(1, commands.Basic.Consume(queue="stuck"))
    until_much_waits(client)
    wait_for(lambda: protocol_of(client) is None, "the end of the client")
    assert time.monotonic() - began_s >= STALL_S
    # What it held goes to others.
    other = Client(node)
    other.send(1, commands.Basic.Consume(queue="stuck", no_ack=True))
    assert other.bodies(MESSAGES) == list(range(MESSAGES))
    other.socket.close()


def test_a_slow_client_that_takes_something_stays(node: DirectNode) -> None:
    until_judged(lambda round: stays(node, f"slow {round}"), "a client that was slow and never stood still", rounds=10)


def stays(node: DirectNode, name: str) -> bool:
    """False if the client was given up because this machine kept it from reading."""
    full_queue(node, name)
    client = Client(node)
    last_s = time.monotonic()
    client.send(1, commands.Basic.Consume(queue=name, no_ack=True))
    until_much_waits(client)
    # More than what the system keeps on the way, several times over, while something always waits in the node.
    began_s = time.monotonic()
    try:
        while last_s < began_s + 2 * STALL_S:
            goal = len(client.buffer) + 400_000
            while len(client.buffer) < goal:
                client.receive(65_536)
            last_s = time.monotonic()
            time.sleep(0.05)
        bodies = client.bodies(MESSAGES)
    except (AssertionError, OSError):
        if time.monotonic() - last_s < STALL_S / 2:
            raise
        return False
    finally:
        client.socket.close()
    assert bodies == list(range(MESSAGES))
    return True


def test_a_silent_client_goes_though_it_was_not_done_with_reading(patient: DirectNode) -> None:
    """Its heartbeats are missing; what waits for it does not hold the socket."""
    full_queue(patient, "silent")
    client = Client(patient, heartbeat=1)
    client.send(1, commands.Basic.Consume(queue="silent"))
    until_much_waits(client)
    wait_for(lambda: protocol_of(client) is None, "the end of the client")


@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="Linux tells the state of a connection")
def test_a_blocked_client_that_leaves_is_noticed(patient: DirectNode) -> None:
    """Nothing is read from it, so nothing tells by itself."""
    client = Client(patient)
    client.send(1, commands.Queue.Declare(queue="blocked"))
    assert isinstance(client.read(), commands.Queue.DeclareOk)
    protocol = protocol_of(client)
    alarm(patient, "low on memory")
    try:
        client.send(1, commands.Basic.Publish(routing_key="blocked"))
        client.socket.sendall(frame.marshal(ContentHeader(body_size=0), 1))
        wait_for(lambda: not protocol._reading, "a client that is not read from")  # type: ignore[attr-defined]
        client.socket.close()
        wait_for(lambda: protocol not in patient.listener._protocols, "the end of the client")
    finally:
        alarm(patient, None)


def alarm(node: DirectNode, reason: str | None) -> None:
    def change() -> None:
        node.cluster.blocked = reason
        node.broker.alarm_changed(reason)

    node._loop.call_soon_threadsafe(change)
