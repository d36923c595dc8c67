"""Clients that vanish without a word: no FIN, no RST, nothing comes through in either direction.

The node and its clients run in a network namespace of their own, in which packets of a connection can be dropped. Those
who agreed on heartbeats are missed after two to three intervals. RabbitMQ (3.10) keeps those without: for ever if
nothing is on its way to them, since it does not ask for TCP keepalive, else for the system's quarter of an hour.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from pamqp import commands, frame
from pamqp.header import ContentHeader

from mayfly.node.limits import KEEPALIVE_IDLE_SECONDS, KEEPALIVE_INTERVAL_SECONDS, KEEPALIVE_PROBES
from tests.node.broker.direct_node import DirectNode
from tests.node.broker.raw_client import Client, protocol_of
from tests.waiting import BOUND_S, wait_for

_ROOT = Path(__file__).resolve().parents[3]


def _why_impossible() -> str:
    if sys.platform != "linux":
        return f"network namespaces are Linux's, this is {sys.platform}"
    if os.geteuid() != 0:
        return "network namespaces take root"
    for command in ("unshare", "ip", "iptables"):
        if shutil.which(command) is None:
            return f"there is no `{command}`"
    tried = subprocess.run(["unshare", "-n", "iptables", "-L"], capture_output=True, timeout=BOUND_S, check=False)
    return "" if tried.returncode == 0 else "no packet filter in a network namespace"


_IMPOSSIBLE = _why_impossible()


@pytest.mark.skipif(bool(_IMPOSSIBLE), reason=_IMPOSSIBLE)
def test_who_is_gone_without_a_word_is_missed_and_gives_back_what_it_held() -> None:
    """With heartbeats, with none and nothing on its way, with none and something on its way."""
    command = ["unshare", "-n", sys.executable, "-m", "tests.node.broker.test_half_open"]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    ran = subprocess.run(
        command, cwd=_ROOT, env=environment, capture_output=True, text=True, timeout=5 * BOUND_S, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["heartbeats", "idle", "unacknowledged", "present"], ran.stdout


def test_every_client_is_asked_by_tcp_whether_it_is_there() -> None:
    with DirectNode() as node:
        client = Client(node)
        own = protocol_of(client)._transport.get_extra_info("socket")  # type: ignore[attr-defined]
        assert own.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        for name, value in (
            ("TCP_KEEPIDLE", KEEPALIVE_IDLE_SECONDS),
            ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_SECONDS),
            ("TCP_KEEPCNT", KEEPALIVE_PROBES),
        ):
            if hasattr(socket, name):
                assert own.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value
        client.socket.close()


# -- within the namespace -----------------------------------------------------------------------------------


def is_gone(client: Client) -> bool:
    """Whether the node has given the client up."""
    return protocol_of(client) is None


def _drop(port: int) -> None:
    """From now on nothing comes through from or to this port."""
    for side in ("--sport", "--dport"):
        subprocess.run(["iptables", "-A", "INPUT", "-p", "tcp", side, str(port), "-j", "DROP"], check=True)


def _main() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with DirectNode(keepalive_idle_seconds=1, keepalive_interval_seconds=1) as node:
        names = ["heartbeats", "idle", "unacknowledged", "present"]
        # The one with heartbeats, which it does not send, is the last to come: it is missed from then on.
        clients = {name: Client(node, heartbeat=2 if name == "heartbeats" else 0) for name in reversed(names)}
        present = clients.pop("present")
        for name, client in clients.items():
            client.send(1, commands.Queue.Declare(queue=name), commands.Basic.Qos(prefetch_count=1))
            client.send(1, commands.Basic.Consume(queue=name))
            while not isinstance(client.read(), commands.Basic.ConsumeOk):
                pass
        assert not any(protocol_of(client) is None for client in [*clients.values(), present])
        for client in clients.values():
            _drop(client.socket.getsockname()[1])
        _publish(present, "unacknowledged")  # is given to a consumer that never gets it
        for name in names[:-1]:
            wait_for(partial(is_gone, clients[name]), f"the end of {name}")
            print(name, flush=True)
        present.send(1, commands.Basic.Get(queue="unacknowledged"))
        got = present.read()
        assert isinstance(got, commands.Basic.GetOk) and got.redelivered, got
        print("present", flush=True)


def _publish(client: Client, queue: str) -> None:
    client.send(1, commands.Confirm.Select(), commands.Basic.Publish(routing_key=queue))
    client.socket.sendall(frame.marshal(ContentHeader(body_size=0), 1))
    while not isinstance(client.read(), commands.Basic.Ack):
        pass


if __name__ == "__main__":
    _main()
