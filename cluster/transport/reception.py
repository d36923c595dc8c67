"""The peer address of a node that is nobody yet: who asks it for a place is told how things stand, and no more."""

from collections.abc import Callable

import grpc
import grpc.aio

from cluster.transport import joining, options
from cluster.transport.joining import JoinAnswer, JoinRequest
from cluster.transport.tls import NodeTls, TlsFiles
from cluster.versions import PROTOCOLS


class Reception:
    """Answers `Join` at an address until it is closed; `PeerTransport` can then listen there."""

    def __init__(self, listen_address: str, tls: TlsFiles | None, answer: Callable[[JoinRequest], JoinAnswer]) -> None:
        self._listen_address = listen_address
        self._tls = tls
        self._answer = answer
        self._server: grpc.aio.Server | None = None

    async def open(self) -> None:
        """Listen. Raises OSError: address taken, TLS files unusable."""
        server = grpc.aio.server(options=options.server_options())
        service, join = options.JOIN.lstrip("/").split("/")
        handler = grpc.unary_unary_rpc_method_handler(self._join)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {join: handler}),))
        try:
            if self._tls is None:
                server.add_insecure_port(self._listen_address)
            else:
                server.add_secure_port(self._listen_address, NodeTls(self._tls).server_credentials)
        except RuntimeError:
            raise OSError(f"can't listen on {self._listen_address}: address taken, or not ours") from None
        await server.start()
        self._server = server

    async def close(self) -> None:
        """Listen no more."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)

    async def _join(self, data: bytes, context: grpc.aio.ServicerContext) -> bytes:
        request = joining.decode_request(data, PROTOCOLS)
        answer = JoinAnswer.refused(request) if isinstance(request, str) else self._answer(request)
        return joining.encode_answer(answer)
