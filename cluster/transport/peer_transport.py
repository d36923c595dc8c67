"""Frames and snapshots between this node and its peers."""

import asyncio
import logging
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import grpc.aio

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.raft import MessageType
from mayfly.cluster.transport import codec, options
from mayfly.cluster.transport.cluster_secret import NO_SECRET, ClusterSecrets
from mayfly.cluster.transport.complaints import Complaints
from mayfly.cluster.transport.counters import PeerCounters
from mayfly.cluster.transport.door import Door
from mayfly.cluster.transport.frame_stream import FrameListener, host_of
from mayfly.cluster.transport.gate import Gate, OpenGate
from mayfly.cluster.transport.guard import Guard
from mayfly.cluster.transport.incoming import Incoming
from mayfly.cluster.transport.outgoing import PeerLink
from mayfly.cluster.transport.spool import SnapshotSpool
from mayfly.cluster.transport.tls import NodeTls, TlsFiles
from mayfly.cluster.versions import LEVELS, PROTOCOLS, VersionRange

log = logging.getLogger(__name__)

SNAPSHOT_THREADS: Final = 4
"""Threads that read and write what snapshots are made of: more would only wait for the same disk."""


class LocalPeer:
    """Who this node is. `store`, `starts` and `previous` tell its data from other, `address` is its own."""

    def __init__(
        self,
        node_id: int,
        name: str,
        cluster_id: str,
        store: str = "",
        starts: int = 0,
        address: str = "",
        previous: int = 0,
        protocols: VersionRange = PROTOCOLS,
        levels: VersionRange = LEVELS,
    ) -> None:
        self.protocols = protocols
        self.levels = levels
        self.node_id = node_id
        self.name = name
        self.cluster_id = cluster_id
        self.store = store
        self.starts = starts
        self.previous = previous
        self.address = address


class PeerTransport:
    """Sends frames to peers and hands over theirs. All calls and all callbacks happen in one event loop.

    A peer is *up* while this node's own stream to it is open and accepted. Frames arrive in the order in
    which they were sent, or not at all; only a SNAP message may be overtaken by what was sent after it, and what is
    `unordered` in a frame may overtake the rest and be overtaken by it.
    """

    def __init__(
        self,
        local: LocalPeer,
        listen_address: str,
        peers: dict[int, str],
        on_frame: Callable[[int, Frame], None],
        on_peer_up: Callable[[int], None],
        on_peer_down: Callable[[int], None],
        on_snapshot_sent: Callable[[int, int, bool], None],
        tls: TlsFiles | None = None,
        gate: Gate | None = None,
        snapshot_folder: Path | None = None,
        frames_address: tuple[str, int] | None = None,
        on_peer_gone: Callable[[int], None] = lambda peer: None,
        known: ClusterSecrets = NO_SECRET,
    ) -> None:
        """`peers` maps node ids to "host:port"; this node's own id in it is passed over.

        `on_frame(peer, frame)`; `on_snapshot_sent(peer, group, ok)` once for every SNAP message given to
        `send`, unless a newer one of the same group took its place. Port 0 in `listen_address` means any.
        `snapshot_folder` is for snapshots that have not come whole; without it they are given up at `stop`.
        `frames_address` is where peers bring their frames: this host at any port, unless given.
        `on_peer_gone(peer)` after `on_peer_down`, once the peer's host has refused connections for
        `limits.GONE_AFTER_MS` and no frame of it came meanwhile: nobody listens any more. `known` is the cluster
        secret, which peers have to prove if it is demanded.
        """
        complaints = Complaints()
        self._known = known
        self._door = Door(listen_address, complaints)
        self._guard = Guard(self._door, known, complaints)
        self._guard.node_id = local.node_id
        self._snapshot_folder = snapshot_folder
        self._temporary_folder: tempfile.TemporaryDirectory[str] | None = None
        self._spool: SnapshotSpool | None = None
        self._executor = ThreadPoolExecutor(SNAPSHOT_THREADS, "snapshots")
        self._local = local
        self._frames_address = frames_address or (host_of(listen_address), 0)
        self._addresses = dict(peers)
        self._on_frame = on_frame
        self._on_peer_up = on_peer_up
        self._on_peer_down = on_peer_down
        self._on_snapshot_sent = on_snapshot_sent
        self._on_peer_gone = on_peer_gone
        self._tls = tls
        self._gate: Gate = gate or OpenGate()
        self._hello = codec.new_hello(
            local.node_id, local.name, local.cluster_id, local.store, local.starts, local.address, local.previous,
            local.protocols, local.levels,
        )
        self._links: dict[int, PeerLink] = {}
        self._server: grpc.aio.Server | None = None
        self._frame_listener: FrameListener | None = None
        self._node_tls: NodeTls | None = None
        self.counters: dict[int, PeerCounters] = {}
        """Traffic by peer, kept over reconnections."""
        self.port = 0
        """The port that is listened on, known after `start`."""
        self.frames_port = 0
        """The port for frames, known after `start`."""

    async def start(self) -> None:
        """Listen, and begin to connect to peers. Raises `OSError`: address taken, TLS files or folder unusable; then,
        too, `stop` closes what is open."""
        self._node_tls = None if self._tls is None else NodeTls(self._tls)
        folder = self._snapshot_folder
        if folder is None:
            self._temporary_folder = tempfile.TemporaryDirectory(prefix="mayfly-snapshots-")
            folder = Path(self._temporary_folder.name)
        self._spool = SnapshotSpool(folder)
        self._spool.start()
        incoming = Incoming(
            self._local.node_id, self._local.cluster_id, self.counters.get, self._on_frame, self._gate, self._let_in,
            self._spool, self._executor, self._local.protocols, self._greeted, self._guard, self._tls is not None,
        )
        tls = None if self._node_tls is None else self._node_tls.server_context
        self._frame_listener = FrameListener(incoming.redeem, self._local.protocols, incoming.complaints, tls)
        await self._frame_listener.start(*self._frames_address)
        self.frames_port = incoming.frames_port = self._frame_listener.port
        await self._door.open()
        self.port = self._door.port
        server = grpc.aio.server(options=options.server_options(), compression=options.compression())
        server.add_generic_rpc_handlers((incoming.handlers(),))
        self._door.serve(server, None if self._node_tls is None else self._node_tls.server_credentials)
        self._count_peers()
        await server.start()
        self._server = server
        self._door.begin()
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
        await self._door.end()
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)
        await self._door.close()
        if self._frame_listener is not None:
            await self._frame_listener.stop()
        # Nobody reads the log or writes to the folder after this.
        await asyncio.get_running_loop().run_in_executor(None, self._executor.shutdown)
        if self._spool is not None:
            self._spool.stop()
        if self._temporary_folder is not None:
            self._temporary_folder.cleanup()

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
                asyncio.get_running_loop().call_soon(self._on_snapshot_sent, peer, group, False)

    def is_up(self, peer: int) -> bool:
        """Whether frames can be sent to a peer now."""
        link = self._links.get(peer)
        return link is not None and link.up

    def protocol(self, peer: int) -> int:
        """The version of what is sent to a peer, as agreed upon the last time; 0: never."""
        link = self._links.get(peer)
        return 0 if link is None else link.protocol

    def waiting_bytes(self, peer: int) -> int:
        """About how many bytes wait to be sent to a peer; at `MAX_PEER_QUEUE_BYTES` frames are dropped."""
        link = self._links.get(peer)
        return 0 if link is None else link.waiting_bytes

    def receiving(self) -> list[int]:
        """Groups of which a snapshot is on its way to this node."""
        return [] if self._spool is None else self._spool.receiving()

    def kept_bytes(self, group: int) -> int:
        """How much has come of a group's snapshot that has not come whole."""
        return 0 if self._spool is None else self._spool.received_bytes().get(group, 0)

    def connected(self) -> list[int]:
        """Ids of the peers that are up."""
        return [peer for peer, link in self._links.items() if link.up]

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
                    self._on_peer_down(peer)
                await link.stop()
        self._count_peers()
        if self._server is not None:
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
            self._links[peer] = PeerLink(
                self._hello,
                peer,
                address,
                self._node_tls,
                self.counters[peer],
                self._on_peer_up,
                self._on_peer_down,
                self._on_peer_gone,
                self._on_snapshot_sent,
                self._gate.refused,
                self._executor,
                self._known,
            )
