"""The peer address of a node that is nobody yet: who asks it for a place is told how things stand, and no more."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final

import grpc
import grpc.aio

from mayfly.cluster.transport import joining, options
from mayfly.cluster.transport.authentication import Authentication
from mayfly.cluster.transport.cluster_secret import NO_SECRET, ClusterSecrets
from mayfly.cluster.transport.complaints import Complaints
from mayfly.cluster.transport.joining import JoinAnswer, JoinRequest
from mayfly.cluster.transport.peer_port import PeerPort
from mayfly.cluster.transport.tls import NodeTls, PeerTlsFiles
from mayfly.cluster.versions import PROTOCOLS

_ANSWERS_LEAVE_S: Final = 1.0
"""At the end, so long may answers take that are on their way: who gets none asks again, later."""


class JoinListener:
    """Answers `Join` at an address until it is closed; `PeerTransport` can then listen there.

    Nodes that come with a stream hear that there is no node yet (UNAVAILABLE), and come again in a moment."""

    def __init__(
        self,
        listen_address: str,
        tls: PeerTlsFiles | None,
        answer: Callable[[JoinRequest], JoinAnswer],
        known: ClusterSecrets = NO_SECRET,
    ) -> None:
        """`known`: the cluster secret, which those that ask have to prove if it is demanded."""
        complaints = Complaints()
        self._peer_port = PeerPort(listen_address, complaints)
        self._authentication = Authentication(self._peer_port, known, complaints)
        self._tls = tls
        self._answer = answer
        self._server_end = AsyncExitStack()

    async def open(self) -> None:
        """Listen. Raises OSError: address taken, TLS files unusable."""
        server = grpc.aio.server(options=options.server_options())
        service, join = options.JOIN.lstrip("/").split("/")
        not_yet = grpc.stream_unary_rpc_method_handler(self._not_yet)
        handlers = {
            join: grpc.unary_unary_rpc_method_handler(self._join),
            options.EXCHANGE.rsplit("/", 1)[1]: not_yet,
            options.SEND_SNAPSHOT.rsplit("/", 1)[1]: not_yet,
            **dict((self._authentication.handler(),)),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        credentials = None if self._tls is None else NodeTls(self._tls).server_credentials
        await self._peer_port.open()
        self._peer_port.serve(server, credentials)
        await server.start()
        self._server_end.push_async_callback(server.stop, _ANSWERS_LEAVE_S)
        self._peer_port.begin()

    async def close(self) -> None:
        """Listen no more."""
        await self._peer_port.end()
        await self._server_end.aclose()
        await self._peer_port.close()

    async def _not_yet(self, _: object, context: grpc.aio.ServicerContext) -> bytes:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "this node is in no cluster yet")
        raise AssertionError("abort raises")

    async def _join(self, data: bytes, context: grpc.aio.ServicerContext) -> bytes:
        return await joining.answer_join(data, context, self._authentication, PROTOCOLS, self._answered)

    async def _answered(self, request: JoinRequest) -> JoinAnswer:
        return self._answer(request)
