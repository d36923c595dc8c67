"""What the shell and the engine of three nodes compute for one message when few come: no sockets, no disk, no kernel.

    PYTHONPATH=. python tests/bench/turns.py [--case "all apart"] [--messages 2000] [--rounds 3]

As `low_rate.py`, on the same virtual time, but with the nodes' shells: octets go through the protocols of listener and
frame streams, turns through `node.shell.drive`. Prints CPU us a message. For instructions, run it under
`valgrind --tool=callgrind` with two values of --messages and --rounds 1, and take the difference.
"""

import argparse
import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

from mayfly.cluster.transport import framing
from mayfly.cluster.transport.admission import OpenAdmission
from mayfly.cluster.transport.cluster_secret import NO_SECRET
from mayfly.cluster.transport.complaints import Complaints
from mayfly.cluster.transport.dialing import Dialer
from mayfly.cluster.transport.frame_stream import FrameConnection, FrameListener, FrameSender
from mayfly.cluster.transport.handshake import Handshake
from mayfly.cluster.transport.incoming import PeerStream
from mayfly.cluster.transport.intakes import Intakes
from mayfly.cluster.transport.local_peer import LocalPeer
from mayfly.cluster.transport.outgoing import PeerLink
from mayfly.cluster.transport.peer_events import PeerEvents
from mayfly.cluster.transport.peer_transport import PeerTransport, TransportSettings
from mayfly.cluster.versions import PROTOCOLS
from mayfly.node.shell.drive import Drive, Outlets
from mayfly.node.shell.listener import AmqpListener, ClientProtocol, ListenerSettings
from mayfly.node.shell.tick_times import TickTimes
from tests.bench.low_rate import CASES, CLIENT_US, FRAME_US, SETTLE_MS, WRITE_US, Flow, TimedBrokers
from tests.node.broker.three_brokers import TICK_MS, NodeWorld


class Timer:
    """What `call_later` gives."""

    cancelled = False

    def __init__(self, callback: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self._callback, self._arguments = callback, arguments

    def cancel(self) -> None:
        self.cancelled = True

    def __call__(self) -> None:
        if not self.cancelled:
            self._callback(*self._arguments)


class VirtualLoop:
    """As much of an event loop as a node needs between start and stop."""

    def __init__(self, brokers: TimedBrokers) -> None:
        self._brokers = brokers

    def time(self) -> float:
        return self._brokers.now_us / 1e6

    def call_soon(self, callback: Callable[..., None], *arguments: Any) -> None:
        self._brokers.at(self._brokers.now_us, partial(callback, *arguments) if arguments else callback)

    def call_later(self, delay_s: float, callback: Callable[..., None], *arguments: Any) -> Timer:
        timer = Timer(callback, arguments)
        self._brokers.at(self._brokers.now_us + max(1, int(delay_s * 1e6)), timer)
        return timer

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=cast(asyncio.AbstractEventLoop, self))

    def create_task(self, coroutine: Any, **_: object) -> None:
        coroutine.close()

    def get_debug(self) -> bool:
        return False


class Pipe:
    """A transport: what is written arrives later."""

    def __init__(self, brokers: TimedBrokers, takes_us: int, take: Callable[[bytes], None]) -> None:
        self._brokers, self._takes_us, self._take = brokers, takes_us, take

    def write(self, data: bytes) -> None:
        self._brokers.at(self._brokers.now_us + self._takes_us, partial(self._take, data))

    def get_extra_info(self, _: str) -> None:
        return None

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, *_: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


class Writer:
    """As `node.shell.log_writer`, without the thread."""

    def __init__(self, brokers: TimedBrokers, id: int, written: Callable[[None], None]) -> None:
        self._brokers, self._id, self._written = brokers, id, written
        self._ended = False
        self._wakes = True

    def write(self, batch: Any, wakes: bool = True) -> None:
        self._wakes = wakes
        self._brokers.at(self._brokers.now_us + WRITE_US, lambda: self._stored(batch))

    def _stored(self, batch: Any) -> None:
        self._brokers.stores[self._id].write(batch)
        self._ended = True
        if self._wakes:
            self._take()

    def _take(self) -> None:
        if self._ended:
            self._ended = False
            self._written(None)

    def look(self) -> None:
        self._wakes = True
        self._take()


class Clock:
    """The process clock on virtual time."""

    def __init__(self, brokers: TimedBrokers) -> None:
        self._brokers = brokers

    def now_ms(self) -> int:
        return self._brokers.now_ms


class Shells(TimedBrokers):
    """Three nodes with their shells, from `begin` on."""

    def begin(self) -> None:
        self.running = False
        self.now_us = self.now_ms * 1000
        self.loop = VirtualLoop(self)
        asyncio._set_running_loop(cast(asyncio.AbstractEventLoop, self.loop))
        self._intakes: dict[int, Intakes] = {}
        self.drives = {id: self._drive(node) for id, node in self.nodes.items()}
        for id in self.ids:
            for peer in self.ids:
                if peer != id:
                    self._connect(id, peer)
        for place, drive in enumerate(self.drives.values()):
            self.at(self.now_us + place * TICK_MS * 1000 // 3, partial(drive.begin_ticks, lambda: None))

    def _drive(self, node: NodeWorld) -> Drive:
        loop = cast(asyncio.AbstractEventLoop, self.loop)
        times = TickTimes(TICK_MS, node.engine.host.settings.group.heartbeat_ticks, lambda most: 0)
        drive = Drive(
            loop, node.engine, cast(Any, Clock(self)), NeverFails(), times, lambda drive: self._outlets(node, drive)
        )
        transport = drive.transport
        transport._count_peers()
        handshake = Handshake(transport._local, OpenAdmission(), transport.counters.get, lambda *_: None)
        intakes = Intakes(node.id, transport.counters.get, handshake.refuse_stranger, drive.on_frame)
        self._intakes[node.id] = intakes
        return drive

    def _outlets(self, node: NodeWorld, drive: Drive) -> Outlets:
        others = {id: f"node{id}:1" for id in self.ids if id != node.id}
        transport = PeerTransport(
            LocalPeer(node.id, f"node{node.id}", "cluster"), others,
            PeerEvents(
                on_frame=drive.on_frame, on_up=drive.on_peer_up, on_down=drive.on_peer_down,
                on_snapshot_sent=drive.on_snapshot_sent,
            ),
            TransportSettings("", Path("of-no-snapshots")),
        )  # fmt: skip
        writer = cast(Any, Writer(self, node.id, drive.written))
        return Outlets(writer, transport, AmqpListener(node.broker, drive.schedule_pump, ListenerSettings("")))

    def _connect(self, id: int, peer: int) -> None:
        """Frames of a node for a peer."""
        transport, intakes = self.drives[id].transport, self._intakes[peer]
        dialer = Dialer(peer, "", transport._local.hello(peer), None, NO_SECRET)
        link = PeerLink(
            dialer, transport.counters[peer], PeerEvents(), lambda *_: None, transport._executor, transport._pace
        )
        transport._links[peer] = link
        intake = intakes.of(id, self.drives[peer].transport.counters[id], self.loop.time)
        stream = PeerStream(id, PROTOCOLS.highest, intake, "", checked=True)
        listener = FrameListener(lambda *_: stream, PROTOCOLS, Complaints(), None)
        connection = FrameConnection(listener, cast(Any, None), "")
        greeting = framing.encode_greeting(PROTOCOLS.highest, id, bytes(framing.TICKET_BYTES))
        sender = FrameSender(PROTOCOLS.highest, greeting, link.send_queue.write_waiting, link._frames_ended, b"", True)
        connection.connection_made(cast(Any, Pipe(self, FRAME_US, sender.data_received)))
        sender.connection_made(cast(Any, Pipe(self, FRAME_US, connection.data_received)))
        self.at(self.now_us + 3 * FRAME_US, lambda: self._up(link, sender))

    @staticmethod
    def _up(link: PeerLink, sender: FrameSender) -> None:
        assert sender.writable
        link.send_queue.stream, link.up = sender, True

    def schedule(self, node: NodeWorld) -> None:
        self.drives[node.id].schedule_pump()

    def socket(self, node: NodeWorld, client: Any) -> ClientProtocol:
        """A client that has logged in gets a socket."""
        listener = self.drives[node.id].listener
        protocol = ClientProtocol(listener, cast(asyncio.AbstractEventLoop, self.loop))
        protocol._transport = cast(Any, Pipe(self, CLIENT_US, lambda data: self.outputs[client](data)))
        protocol._connection = client.connection
        client.connection.host = protocol
        listener._protocols.add(protocol)
        return protocol


class NeverFails:
    """A node that goes on."""

    failure: str | None = None

    def fail(self, text: str) -> None:
        raise AssertionError(text)

    lost_log = fail


class SocketFlow(Flow):
    """As `Flow`, through the listeners' sockets."""

    def attach(self, brokers: Shells) -> None:
        self._sockets = {
            "publisher": brokers.socket(self._homes["publisher"], self.publisher),
            "consumer": brokers.socket(self._homes["consumer"], self.consumer),
        }

    def _input(self, name: str, client: Any, data: bytes) -> None:
        self._brokers.at(self._brokers.now_us + CLIENT_US, partial(self._sockets[name].data_received, data))


def prepared(name: str, shards: int) -> tuple[Shells, SocketFlow]:
    """Nodes and clients of a case, with everything quiet."""
    brokers = Shells(shards)
    first = next(iter(brokers.nodes.values()))
    first.client().declare("q")
    (record,) = [each for each in first.engine.catalog.queues() if each.name == "q"]
    leader = next(id for id, node in brokers.nodes.items() if node.engine.host.groups[record.shard].leads)
    order = [(leader - 1 + step) % 3 + 1 for step in range(3)]
    publisher, consumer = (brokers.nodes[order[place]] for place in CASES[name] or (0, 0))
    flow = SocketFlow(brokers, publisher, consumer, "q")
    brokers.begin()
    flow.attach(brokers)
    brokers.run(brokers.now_us + SETTLE_MS * 1000)
    return brokers, flow


def main() -> None:
    """Print CPU us a message."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=list(CASES), default="all apart")
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shards", type=int, default=16)
    options = parser.parse_args()
    brokers, flow = prepared(options.case, options.shards)
    for _ in range(options.rounds):
        # Encoded before, so that less of it is the clients' work.
        before = len(flow.confirm_us)
        began = brokers.now_us
        for number in range(options.messages):
            brokers.at(began + number * 1_000_003 // 1000, flow.publish)
        began_s = time.process_time()
        brokers.run(began + options.messages * 1000)
        used_s = time.process_time() - began_s
        brokers.run(brokers.now_us + 1_000_000)
        assert len(flow.confirm_us) - before == options.messages
        transports = [drive.transport for drive in brokers.drives.values()]
        frames = sum(each.frames_sent for transport in transports for each in transport.counters.values())
        print(f"{options.case}: {used_s * 1e6 / options.messages:.1f} us a message; {frames} frames so far")


if __name__ == "__main__":
    main()
