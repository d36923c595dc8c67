"""How the one that connects proves the cluster secret: on each of its connections, before anything else."""

import asyncio
import secrets
from typing import Final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from mayfly.cluster import limits
from mayfly.cluster.raft import MAX_NODE_ID
from mayfly.cluster.rpc import peer_pb2
from mayfly.cluster.transport import options
from mayfly.cluster.transport.cluster_secret import NONCE_BYTES, ClusterSecrets, Dialogue, ProvenSecret
from mayfly.cluster.transport.codec import PeerRefused
from mayfly.cluster.transport.peer_text import address_fault, name_fault, printable

MOST_PROOFS: Final = limits.MAX_SECRETS

DEMANDED: Final = "a cluster secret is demanded here and was not proven: give the node the others' cluster_secret"
WRONG: Final = "the cluster secret is another one here: give all nodes the same cluster_secret"
_OR_WAIT: Final = "or start this node with cluster_secret_demanded = false until all have one"
_NONE_THERE: Final = f"has no cluster secret, and this node demands one: give it the cluster_secret, {_OR_WAIT}"
_TOO_OLD: Final = f"is too old to know of cluster secrets, and this node demands one: upgrade it, {_OR_WAIT}"
_NOT_SHOWN: Final = "does not show that it knows the cluster secret: it may be somebody else"


class NotProven(Exception):
    """The secret could not be proven, or the other end has not shown that it knows it. The text says why; `code` is as
    if it were the answer to the call that was to follow."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def dialogue_of(step: peer_pb2.ProofStep) -> Dialogue:
    """Who connects, by the first step. Raises `PeerRefused`."""
    fault = name_fault("store", step.store) or address_fault(step.address)
    if fault:
        raise PeerRefused(f"proof of the cluster secret with {fault}")
    if len(step.nonce) != NONCE_BYTES:
        raise PeerRefused(f"proof with a nonce of {len(step.nonce)} octets, {NONCE_BYTES} are taken")
    if max(step.node_id, step.target) > MAX_NODE_ID:
        raise PeerRefused(f"proof of node {step.node_id} towards node {step.target}")
    return Dialogue(step.node_id, step.store, step.target, step.address, step.nonce)


async def prove(
    channel: grpc.aio.Channel, known: ClusterSecrets, node_id: int, store: str, target: int, address: str
) -> ProvenSecret | None:
    """Prove a secret on a connection, and see that the other end knows it: by which. None: this node has none, or does
    not demand it and the other one has none. Raises `NotProven`."""
    if not known:
        return None
    call = channel.stream_stream(options.PROVE)()
    try:
        async with asyncio.timeout(limits.HELLO_TIMEOUT_SECONDS):
            nonce = secrets.token_bytes(NONCE_BYTES)
            return await _prove(call, known, Dialogue(node_id, store, target, address, nonce))
    except TimeoutError:
        raise NotProven(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer") from None
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        code = await call.code()
        if code is not grpc.StatusCode.UNIMPLEMENTED:
            # Nothing else that somebody says who has proven nothing may count: some answers end a node for good.
            heard = code if code is grpc.StatusCode.UNAUTHENTICATED else grpc.StatusCode.UNAVAILABLE
            raise NotProven(heard, printable(await call.details() or code.name)) from None
        if known.demanded:
            raise NotProven(grpc.StatusCode.UNAUTHENTICATED, f"the node at {address} {_TOO_OLD}") from None
        return None
    finally:
        call.cancel()


async def _prove(
    call: grpc.aio.StreamStreamCall, known: ClusterSecrets, dialogue: Dialogue
) -> ProvenSecret | None:
    address = dialogue.address
    await call.write(
        peer_pb2.ProofStep(
            nonce=dialogue.nonce, node_id=dialogue.node_id, store=dialogue.store, target=dialogue.target,
            address=address,
        ).SerializeToString()
    )
    told = await _read(call, address)
    if told.without_secret:
        if known.demanded:
            raise NotProven(grpc.StatusCode.UNAUTHENTICATED, f"the node at {address} {_NONE_THERE}")
        return None
    whole = Dialogue(
        dialogue.node_id, dialogue.store, dialogue.target, address, dialogue.nonce, told.nonce[: NONCE_BYTES + 1]
    )
    await call.write(peer_pb2.ProofStep(proofs=known.proofs(whole)).SerializeToString())
    proofs = (await _read(call, address)).proofs
    proven = known.shown_by(proofs[0], whole) if len(proofs) == 1 else None
    if proven is None:
        raise NotProven(grpc.StatusCode.UNAUTHENTICATED, f"the node at {address} {_NOT_SHOWN}")
    return proven


async def _read(call: grpc.aio.StreamStreamCall, address: str) -> peer_pb2.ProofStep:
    """What the other end says. Raises `NotProven`; and AioRpcError when it ends the call."""
    data = await call.read()
    if data is grpc.aio.EOF:
        code = await call.code()
        if code is grpc.StatusCode.OK:
            raise NotProven(grpc.StatusCode.UNAUTHENTICATED, f"the node at {address} {_NOT_SHOWN}")
        raise asyncio.InvalidStateError  # As where the call had ended before: its code says why.
    try:
        return peer_pb2.ProofStep.FromString(data)
    except DecodeError:
        raise NotProven(grpc.StatusCode.UNAUTHENTICATED, f"the node at {address} {_NOT_SHOWN}") from None
