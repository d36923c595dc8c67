"""Who is let in: what the transport asks the node about peers that greet it, and tells it when they send it away."""

from collections.abc import Sequence
from typing import Final, Protocol

import grpc

from mayfly.cluster.transport.joining import JoinAnswer, JoinRequest
from mayfly.cluster.versions import VersionRange

FINAL_REFUSALS: Final = frozenset((grpc.StatusCode.NOT_FOUND, grpc.StatusCode.DATA_LOSS))
"""Answers to a hello after which a node has no business in the cluster any more."""


class Objection:
    """Why a peer is sent away; `code` as in proto/peer.proto."""

    __slots__ = ("code", "text")

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        self.code = code
        self.text = text


class Admission(Protocol):
    """The node's word on peers."""

    def objection(self, node_id: int, store: str, starts: int, earlier_starts: Sequence[int]) -> Objection | None:
        """What speaks against a peer of this cluster that shows this data: `earlier_starts` are the last counts of
        starts before, the oldest first; of an older node the one before, of data that was never used none."""
        ...

    def level_fault(self, levels: VersionRange) -> str:
        """Why a node that knows these feature levels can't be in the cluster; "" if it can."""
        ...

    def is_newcomer(self, node_id: int) -> bool:
        """Whether a node that is not among the peers may be one that this node has not heard of yet."""
        ...

    def refused(self, peer: int, text: str, removed: bool) -> None:
        """A peer has sent this node away for good: because it was `removed`, or for its data."""
        ...

    async def join(self, request: JoinRequest) -> JoinAnswer:
        """A node asks for a place in the cluster."""
        ...


class OpenAdmission:
    """Peers are whom `set_peers` named, and nothing more is asked of them."""

    def objection(self, node_id: int, store: str, starts: int, earlier_starts: Sequence[int]) -> Objection | None:
        """None."""
        return None

    def level_fault(self, levels: VersionRange) -> str:
        """None."""
        return ""

    def is_newcomer(self, node_id: int) -> bool:
        """Never."""
        return False

    def refused(self, peer: int, text: str, removed: bool) -> None:
        """Nothing: it is logged, and tried again."""

    async def join(self, request: JoinRequest) -> JoinAnswer:
        """Nobody joins."""
        return JoinAnswer.refused("this node takes nobody in")
