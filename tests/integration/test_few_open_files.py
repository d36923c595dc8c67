"""Nodes that may open few files: clients take all that is theirs, and nobody else misses any."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from pamqp import commands

from mayfly.node.limits import SURPLUS_CONNECTIONS
from mayfly.node.local_nodes.local_cluster import this_mayfly
from mayfly.node.shell.open_files import share_out
from tests.integration.amqp_socket import AmqpSocket, login_octets
from tests.integration.clients import PERSISTENT, channel
from tests.integration.nodes import Nodes, wait_for
from tests.waiting import BOUND_S

pytestmark = [pytest.mark.processes]

ALLOWED = 512
SHARES = share_out(ALLOWED)
TARGET = 1
OTHER = 2
SILENT = 300
"""More than there are files left when all clients are in."""
OPENED_LATER = 24
"""Files that a node has open now and then, for streams and copies."""


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Nodes]:
    """Three nodes whose processes may open so many files."""
    with Nodes(folder, 3, executable=["prlimit", f"--nofile={ALLOWED}:{ALLOWED}", *this_mayfly()]) as nodes:
        nodes.serve()
        yield nodes


def open_files(nodes: Nodes, id: int) -> int:
    return len(os.listdir(f"/proc/{nodes.pid(id)}/fd"))


def kept_alive(nodes: Nodes, id: int) -> socket.socket:
    """An HTTP connection that waits for its next request."""
    address = nodes.plan(id).http
    own = socket.create_connection((address.host, address.port), BOUND_S)
    own.sendall(b"GET /health/live HTTP/1.1\r\nHost: node\r\n\r\n")
    assert own.recv(1 << 16).startswith(b"HTTP/1.1 200")
    return own


def is_let_in(client: AmqpSocket) -> bool:
    """Log in; whether the node takes the client. If not, it has to say why."""
    client.send(login_octets())
    client.expect(commands.Connection.Start)
    client.expect(commands.Connection.Tune)
    _, answer = client.next()
    if isinstance(answer, commands.Connection.OpenOk):
        return True
    assert isinstance(answer, commands.Connection.Close)
    assert (answer.reply_code, answer.reply_text) == (
        530, f"NOT_ALLOWED - connection refused: node connection limit ({SHARES.clients}) is reached"
    )  # fmt: skip
    return False


def test_a_node_says_at_its_start_how_many_clients_fit(cluster: Nodes) -> None:
    assert SHARES.warning is not None
    for id in cluster.ids:
        assert SHARES.warning in cluster.log_text(id)


def test_clients_that_take_all_there_is_keep_nothing_from_the_log_and_the_other_nodes(cluster: Nodes) -> None:
    at_rest = open_files(cluster, TARGET)
    with contextlib.ExitStack() as stack:
        for _ in range(SHARES.http):
            stack.enter_context(kept_alive(cluster, TARGET))
        first = stack.enter_context(channel(cluster, TARGET, confirms=True))
        first.queue_declare("few", durable=True)
        for _ in range(SHARES.clients - 1):
            assert is_let_in(stack.enter_context(AmqpSocket(cluster, TARGET)))
        for _ in range(3):
            with AmqpSocket(cluster, TARGET) as beyond:
                assert not is_let_in(beyond)
        # Those who say nothing are not told. The first few hold their places for a while, the others none.
        for _ in range(SILENT):
            stack.enter_context(AmqpSocket(cluster, TARGET))
        cluster.kill(OTHER)
        cluster.start(OTHER)
        cluster.until_serving()
        cluster.until_well()
        first.basic_publish("", "few", b"x", PERSISTENT)
        wait_for(lambda: cluster.ready(OTHER, "few") == 1, "the message at the node that came back")
        most = at_rest + SHARES.clients + SURPLUS_CONNECTIONS + SHARES.http + OPENED_LATER
        assert SHARES.clients + SHARES.http <= open_files(cluster, TARGET) <= most


def test_when_they_have_left_others_come_in(cluster: Nodes) -> None:
    def let_in() -> bool:
        with AmqpSocket(cluster, TARGET) as client:
            return is_let_in(client)

    wait_for(let_in, "a place")
    with channel(cluster, TARGET) as again:
        again.queue_delete("few")
