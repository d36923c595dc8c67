"""Frames and snapshots between this node and its peers."""

from collections.abc import Callable

from cluster.frame import Frame
from cluster.transport.tls import TlsFiles


class LocalPeer:
    """Who this node is."""

    def __init__(self, node_id: int, name: str, cluster_id: str) -> None:
        self.node_id = node_id
        self.name = name
        self.cluster_id = cluster_id


class PeerTransport:
    """Sends frames to peers and hands over theirs. Callbacks run in the event loop that called `start`."""

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
    ) -> None:
        raise NotImplementedError

    @property
    def port(self) -> int:
        """The port that is listened on, known after `start`."""
        raise NotImplementedError

    async def start(self) -> None:
        """Listen, and begin to connect to the peers. Raises `OSError` when the address is taken."""
        raise NotImplementedError

    async def stop(self) -> None:
        """End all streams and stop listening."""
        raise NotImplementedError

    def send(self, peer_id: int, frame: Frame) -> None:
        """Send, never blocking. A received snapshot arrives as an ordinary SNAP message in a frame."""
        raise NotImplementedError

    def set_peers(self, peers: dict[int, str]) -> None:
        """Replace addresses: connections to peers that changed or went are closed, new ones opened."""
        raise NotImplementedError

    def connected(self) -> list[int]:
        """Ids of the peers that can be sent to."""
        raise NotImplementedError
