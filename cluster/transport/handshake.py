"""What a peer says first, and whether it is let in for that."""

import asyncio
import logging
from collections.abc import Callable, Sequence

import grpc
import grpc.aio

from mayfly.cluster import limits
from mayfly.cluster.rpc import peer_pb2
from mayfly.cluster.transport import codec
from mayfly.cluster.transport.admission import Admission
from mayfly.cluster.transport.authentication import TurnedAway
from mayfly.cluster.transport.checksum import is_damaged
from mayfly.cluster.transport.codec import DamagedOnTheWay
from mayfly.cluster.transport.counters import PeerCounters
from mayfly.cluster.transport.local_peer import LocalPeer
from mayfly.cluster.versions import protocol_fault

log = logging.getLogger(__name__)


class Handshake:
    """Compares what a peer says of itself with who this node is, and whom it knows."""

    def __init__(
        self,
        local: LocalPeer,
        admission: Admission,
        counters_of: Callable[[int], PeerCounters | None],
        let_in: Callable[[int, str], None],
    ) -> None:
        """`counters_of` gives those of a known peer, None for an unknown one; `let_in(peer, address)` makes it
        known."""
        self.local = local
        self.admission = admission
        self.counters_of = counters_of
        self._let_in = let_in

    def admit(self, hello: peer_pb2.Hello) -> tuple[int, int, PeerCounters]:
        """The id of a peer that belongs to the cluster, the protocol version for it, and its counters. Raises
        `TurnedAway`."""
        theirs = codec.protocols_of(hello)
        protocol = self.local.protocols.common(theirs)
        if not protocol:
            text = protocol_fault(self.local.node_id, self.local.protocols, hello.node_id, theirs)
            raise TurnedAway(grpc.StatusCode.FAILED_PRECONDITION, text)
        if hello.cluster_id != self.local.cluster_id:
            raise TurnedAway(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"node {self.local.node_id} belongs to cluster {self.local.cluster_id!r}, "
                f"node {hello.node_id} to {hello.cluster_id!r}",
            )
        if hello.target not in (0, self.local.node_id):
            # Heartbeats do not say for whom they are: those for a predecessor must not come here.
            raise TurnedAway(
                grpc.StatusCode.UNAVAILABLE,
                f"node {hello.node_id} means node {hello.target}, this is {self.local.node_id}",
            )
        before = (hello.previous,) if hello.previous else ()
        self._check_data(hello.node_id, hello.store, hello.starts, tuple(hello.earlier_starts) or before)
        fault = self.admission.level_fault(codec.levels_of(hello))
        if fault:
            text = f"node {hello.node_id} ({hello.node_name}) can't be let in: {fault}"
            raise TurnedAway(grpc.StatusCode.FAILED_PRECONDITION, text)
        counters = self.counters_of(hello.node_id)
        if counters is None and hello.address and self.admission.is_newcomer(hello.node_id):
            log.info("node %d (%s) at %s is new here", hello.node_id, hello.node_name, hello.address)
            self._let_in(hello.node_id, hello.address)
            counters = self.counters_of(hello.node_id)
        if counters is None:
            raise TurnedAway(
                grpc.StatusCode.PERMISSION_DENIED,
                f"node {self.local.node_id} knows no node {hello.node_id} ({hello.node_name!r})",
            )
        return hello.node_id, protocol, counters

    def refuse_stranger(self, peer: int) -> None:
        """Raises `TurnedAway`: it was a peer, and is none any more."""
        self._check_data(peer, "", 0, ())
        raise TurnedAway(grpc.StatusCode.PERMISSION_DENIED, f"node {peer} is no peer any more")

    def _check_data(self, peer: int, store: str, starts: int, earlier_starts: Sequence[int]) -> None:
        objection = self.admission.objection(peer, store, starts, earlier_starts)
        if objection is not None:
            raise TurnedAway(objection.code, objection.text)


async def first_message(context: grpc.aio.ServicerContext) -> bytes | None:
    """The first message, None when the peer has ended its stream. Raises `TurnedAway` when none comes, and
    `DamagedOnTheWay`."""
    timeout_seconds = limits.HELLO_TIMEOUT_SECONDS
    try:
        async with asyncio.timeout(timeout_seconds):
            data: bytes | None = await context.read()
    except TimeoutError:
        raise TurnedAway(grpc.StatusCode.DEADLINE_EXCEEDED, f"nothing was sent for {timeout_seconds} s") from None
    if data is None or data is grpc.aio.EOF:
        return None
    if is_damaged(data, context.invocation_metadata()):
        raise DamagedOnTheWay("the first message of a call was damaged on its way, its checksum differs")
    return data
