"""Frames and snapshots between this node and its peers."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc.aio

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.raft import MessageType
from mayfly.cluster.transport import options
from mayfly.cluster.transport.admission import Admission, OpenAdmission
from mayfly.cluster.transport.authentication import Authentication
from mayfly.cluster.transport.cluster_secret import NO_SECRET, ClusterSecrets
from mayfly.cluster.transport.complaints import Complaints
from mayfly.cluster.transport.counters import PeerCounters
from mayfly.cluster.transport.dialing import Dialer
from mayfly.cluster.transport.frame_stream import FrameListener, host_of
from mayfly.cluster.transport.handshake import Handshake
from mayfly.cluster.transport.incoming import Incoming
from mayfly.cluster.transport.intakes import Intakes
from mayfly.cluster.transport.local_peer import LocalPeer
from mayfly.cluster.transport.outgoing import PeerLink
from mayfly.cluster.transport.pace import BytePace
from mayfly.cluster.transport.peer_events import PeerEvents
from mayfly.cluster.transport.peer_port import PeerPort
from mayfly.cluster.transport.snapshot_receiver import SnapshotReceiver
from mayfly.cluster.transport.spool import SnapshotSpool
from mayfly.cluster.transport.tls import NodeTls, PeerTlsFiles

log = logging.getLogger(__name__)

SNAPSHOT_THREADS: Final = 4
"""Threads that read and write what snapshots are made of: more would only wait for the same disk."""


@dataclass(frozen=True, slots=True)
class TransportSettings:
    """Where a node listens for its peers, and what is asked of them."""

    listen_address: str
    """"host:port"; port 0 means any."""
    snapshot_folder: Path
    """For snapshots that have not come whole. The next start goes on with them."""
    frames_address: tuple[str, int] | None = None
    """Where peers bring their frames; None: at any port of the host that is listened on."""
    tls: PeerTlsFiles | None = None
    known: ClusterSecrets = NO_SECRET
    """The cluster secret, which peers have to prove if it is demanded."""
    snapshot_bytes_per_second: int = 0
    """How much of snapshots may be sent, to all peers together; 0: as much as goes."""


class PeerTransport:
    """Sends frames to peers and hands over theirs. All calls and all callbacks happen in one event loop.

    A peer is *up* while this node's own stream to it is open and accepted. Frames arrive in the order in
    which they were sent, or not at all; only a SNAP message may be overtaken by what was sent after it, and what is
    `unordered` in a frame may overtake the rest and be overtaken by it.
    """

    def __init__(
        self,
        local: LocalPeer,
        peers: dict[int, str],
        events: PeerEvents,
        settings: TransportSettings,
        admission: Admission | None = None,
    ) -> None:
        """`peers` maps node ids to "host:port"; this node's own id in it is passed over. Without `admission` they alone
        are let in. Raises `OSError`: TLS files unusable."""
        complaints = Complaints()
        self._peer_port = PeerPort(settings.listen_address, complaints)
        self._authentication = Authentication(self._peer_port, settings.known, complaints)
        self._authentication.node_id = local.node_id
        self._settings = settings
        self._pace = BytePace(settings.snapshot_bytes_per_second)
        self._node_tls = None if settings.tls is None else NodeTls(settings.tls)
        self._spool = SnapshotSpool(settings.snapshot_folder)
        self._executor = ThreadPoolExecutor(SNAPSHOT_THREADS, "snapshots")
        self._local = local
        self._addresses = dict(peers)
        self._events = events
        self._admission: Admission = admission or OpenAdmission()
        self._links: dict[int, PeerLink] = {}
        self.counters: dict[int, PeerCounters] = {}
        """Traffic by peer, kept over reconnections."""
        self._incoming = self._make_incoming()
        context = None if self._node_tls is None else self._node_tls.server_context
        self._frame_listener = FrameListener(
            self._incoming.redeem, local.protocols, self._incoming.complaints, context
        )
        self._listens = False
        self._server_end = AsyncExitStack()

    def _make_incoming(self) -> Incoming:
        handshake = Handshake(self._local, self._admission, self.counters.get, self._let_in)
        intakes = Intakes(self._local.node_id, self.counters.get, handshake.refuse_stranger, self._events.on_frame)
        snapshots = SnapshotReceiver(handshake, self._authentication, intakes, self._spool, self._executor)
        return Incoming(
            handshake, self._authentication, intakes, snapshots, self._greeted, self._node_tls is not None
        )

    @property
    def port(self) -> int:
        """The port that is listened on, once it is started."""
        return self._peer_port.port

    @property
    def frames_port(self) -> int:
        """The port for frames, once it is started."""
        return self._frame_listener.port

    async def start(self) -> None:
        """Listen, and begin to connect to peers. Raises `OSError`: address taken, folder unusable; then, too, `stop`
        closes what is open."""
        self._spool.start()
        host, port = self._settings.frames_address or (host_of(self._settings.listen_address), 0)
        await self._frame_listener.start(host, port)
        self._incoming.frames_port = self.frames_port
        await self._peer_port.open()
        server = grpc.aio.server(options=options.server_options(), compression=options.compression())
        server.add_generic_rpc_handlers((self._incoming.handlers(),))
        self._peer_port.serve(server, None if self._node_tls is None else self._node_tls.server_credentials)
        self._count_peers()
        await server.start()
        self._server_end.push_async_callback(server.stop, None)
        self._listens = True
        self._peer_port.begin()
        log.info("listening for peers on port %d, for their frames on port %d", self.port, self.frames_port)
        self._open_links()

    def reload_tls(self) -> None:
        """Go by what is in the TLS files now, for connections from here on. Raises OSError; nothing changes then."""
        if self._node_tls is not None:
            self._node_tls.reload()

    async def stop(self) -> None:
        """End all streams and stop listening. No callback comes after this."""
        links, self._links = self._links, {}
        for link in links.values():
            await link.stop()
        await self._peer_port.end()
        self._listens = False
        await self._server_end.aclose()
        await self._peer_port.close()
        await self._frame_listener.stop()
        # Nobody reads the log or writes to the folder after this.
        await asyncio.get_running_loop().run_in_executor(None, self._executor.shutdown)
        self._spool.stop()

    def send(self, peer: int, frame: Frame) -> None:
        """Send a frame, never blocking; it belongs to the transport from here on.

        What is sent while the connection takes no more is merged into fewer frames. A frame for a peer that is away,
        or that has too much waiting already, is dropped; so is one for an unknown peer. The fate of a snapshot is
        reported all the same: Raft waits for it.
        """
        link = self._links.get(peer)
        if link is not None:
            link.send_queue.send(frame)
            return
        for group, message in frame.raft:
            if message.type == MessageType.SNAP:
                asyncio.get_running_loop().call_soon(self._events.on_snapshot_sent, peer, group, False)

    async def set_peers(self, peers: dict[int, str]) -> None:
        """Change who the peers are: streams to those that went or moved are closed, to new ones opened. A later call
        that comes while this one waits for streams to close counts."""
        self._addresses = dict(peers)
        for peer, link in list(self._links.items()):
            # While another one was closed this one may have been, or become a peer again.
            if self._links.get(peer) is link and self._addresses.get(peer) != link.address:
                del self._links[peer]
                # Before the wait: a new stream may be up after it.
                if link.up:
                    self._events.on_down(peer)
                await link.stop()
        self._count_peers()
        if self._listens:
            self._open_links()

    def _let_in(self, peer: int, address: str) -> None:
        """A newcomer has greeted this node: it is a peer until `set_peers` says otherwise."""
        self._addresses[peer] = address
        self._count_peers()
        self._open_links()

    def _greeted(self, peer: int) -> None:
        link = self._links.get(peer)
        if link is not None:
            link.greeted()

    def peers(self) -> dict[int, str]:
        """Where the peers are, newcomers too."""
        return {peer: address for peer, address in self._addresses.items() if peer != self._local.node_id}

    def _count_peers(self) -> None:
        """Keep counters for exactly the peers: who has counters is let in."""
        for peer in [peer for peer in self.counters if peer not in self._addresses]:
            del self.counters[peer]
        for peer in self._addresses:
            if peer != self._local.node_id:
                self.counters.setdefault(peer, PeerCounters())

    def _open_links(self) -> None:
        for peer, address in self._addresses.items():
            if peer == self._local.node_id or peer in self._links:
                continue
            dialer = Dialer(peer, address, self._local.hello(peer), self._node_tls, self._settings.known)
            self._links[peer] = PeerLink(
                dialer, self.counters[peer], self._events, self._admission.refused, self._executor, self._pace
            )
