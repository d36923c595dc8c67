"""What many idle clients cost, and what others notice: `python -m tests.bench.many_clients [--installed]`.

Three nodes on loopback: of this tree, uncompiled, or with `--installed` of the installed package. So many connections
are opened (`--connections`, a third of them to each node), then so many channels (`--channels`, 2 047 to a connection),
as fast as nodes take them. Meanwhile each node gets a small message every 10 ms, as in `tests.bench.large_messages`. At
the end it is asked how many connections and channels there are.
"""

import argparse
import json
import resource
import selectors
import socket
import struct
import time
import urllib.request
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

import pika
from pamqp import commands, frame

from bench.mayfly_cluster import Mayfly
from tests.bench.large_messages import CALM_S, LOOK_S, Small, described, get_request, most_memory

MOST_CHANNELS: Final = 2_047
AT_ONCE: Final = 200
"""Connections of a node whose handshakes are under way."""
TAKES_AT_MOST_S: Final = 600.0

_HELLO: Final = b"AMQP\x00\x00\x09\x01" + b"".join(
    frame.marshal(method, 0)
    for method in (
        commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest"),
        commands.Connection.TuneOk(channel_max=MOST_CHANNELS, frame_max=131_072, heartbeat=0),
        commands.Connection.Open("/"),
    )
)
_OPEN_OK: Final = frame.marshal(commands.Connection.OpenOk(), 0)
_FRAME_HEAD: Final = struct.Struct(">BHI")
_FRAME_END_BYTES: Final = 1


def connect(port: int, count: int) -> list[socket.socket]:
    """So many connections to a node, open. Raises TimeoutError."""
    opened: list[socket.socket] = []
    selector = selectors.DefaultSelector()
    came: dict[int, bytes] = {}
    started = 0
    ends_s = time.monotonic() + TAKES_AT_MOST_S
    while len(opened) < count:
        while started < count and started - len(opened) < AT_ONCE:
            client = socket.create_connection(("127.0.0.1", port))
            client.sendall(_HELLO)
            selector.register(client, selectors.EVENT_READ, client)
            came[client.fileno()] = b""
            started += 1
        for key, _ in selector.select(1.0):
            client = key.data
            octets = client.recv(65_536)
            came[client.fileno()] += octets
            if not octets:
                raise ConnectionError(f"the node has closed a connection: {came[client.fileno()][-200:]!r}")
            if came[client.fileno()].endswith(_OPEN_OK):
                selector.unregister(client)
                del came[client.fileno()]
                opened.append(client)
        if time.monotonic() > ends_s:
            raise TimeoutError(f"{len(opened)} of {count} connections are open")
    return opened


def open_channels(clients: Sequence[socket.socket], count: int) -> None:
    """So many channels in all, as many as may be on each connection, one connection after the other."""
    for client in clients:
        some = min(count, MOST_CHANNELS)
        if not some:
            return
        client.settimeout(TAKES_AT_MOST_S)
        client.sendall(b"".join(frame.marshal(commands.Channel.Open(), number) for number in range(1, some + 1)))
        take_frames(client, some)
        count -= some


def take_frames(client: socket.socket, count: int) -> None:
    """Wait for so many frames."""
    octets = b""
    while count:
        octets += client.recv(65_536)
        while count and len(octets) >= _FRAME_HEAD.size:
            end = _FRAME_HEAD.size + _FRAME_HEAD.unpack_from(octets)[2] + _FRAME_END_BYTES
            if len(octets) < end:
                break
            octets = octets[end:]
            count -= 1


def totals(http: int) -> tuple[int, int]:
    """Connections and channels of the cluster."""
    with urllib.request.urlopen(get_request(http, "/api/overview"), timeout=60) as answer:
        found = json.loads(answer.read())["object_totals"]
    return found["connections"], found["channels"]


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=18_000)
    parser.add_argument("--channels", type=int, default=200_000)
    parser.add_argument("--installed", action="store_true", help="the installed package instead of this tree")
    options = parser.parse_args()
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    with Mayfly(source=not options.installed).three_nodes() as cluster:
        channel = pika.BlockingConnection(pika.URLParameters(cluster.uris[0])).channel()
        for node in range(3):
            channel.queue_declare(f"small{node}", durable=True)
        channel.connection.close()
        cluster.wait_until_well()
        small = [Small(uri, f"small{node}") for node, uri in enumerate(cluster.uris)]
        time.sleep(CALM_S)
        clients: list[socket.socket] = []

        def tell(what: str) -> None:
            time.sleep(LOOK_S)
            for node, each in enumerate(small):
                print(f"{what}, node {node + 1}: confirmed {described(each.confirmed_s)}")
                each.confirmed_s.clear()

        tell("before")
        with most_memory(cluster.pids) as most:
            began_s = time.monotonic()
            for uri in cluster.uris:
                clients += connect(urlsplit(uri).port or 0, options.connections // 3)
            print(f"{len(clients)} connections in {time.monotonic() - began_s:.1f} s")
            tell("meanwhile")
            print(f"most memory of each node: {', '.join(map(str, most))} MB")
            began_s = time.monotonic()
            every = max(1, len(clients) * MOST_CHANNELS // max(1, options.channels))
            open_channels(clients[::every], options.channels)
            print(f"channels opened in {time.monotonic() - began_s:.1f} s")
            tell("meanwhile")
            time.sleep(CALM_S)
            tell("then")
            print(f"most memory of each node: {', '.join(map(str, most))} MB")
        print("connections and channels: {}, {}".format(*totals(cluster.http[0])))
        for each in small:
            each.stop()
        for client in clients:
            client.close()


if __name__ == "__main__":
    main()
