"""Whom an empty node believes that asks for a place: real gRPC on loopback, and servers that are none of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import grpc
import grpc.aio
import pytest

from mayfly.cluster.transport import joining, options
from mayfly.cluster.transport.joining import JoinAnswer, JoinRefused, JoinRequest, ask_to_join
from mayfly.cluster.versions import PROTOCOL_LOWEST
from mayfly.node.settings import NodeSettings
from mayfly.node.settings.kinds import Address
from mayfly.node.shell.arrival import NodeRefused, _come_in

PLACE = JoinAnswer("", False, 7, "seven", "blue", 16, 3, 5, {1: ("one", "h:1"), 7: ("seven", "h:7")})
OTHER_PROTOCOL = JoinAnswer.refused(f"protocol version 9 to 9, {PROTOCOL_LOWEST} is spoken here")
NAME_TAKEN = JoinAnswer.refused("there is a node of that name")
FOREIGN_SERVICE = "foreign"
WITHIN_S = 60.0


class Server:
    """Somebody at an address: counts who asks, and answers so; FOREIGN_SERVICE knows no such method."""

    def __init__(self, answer: Callable[[], JoinAnswer | str]) -> None:
        self.asked = 0
        self.address: Address
        self._answer = answer
        self._server = grpc.aio.server()

    async def __aenter__(self) -> Server:
        service, join = options.JOIN.lstrip("/").split("/")
        handler = grpc.unary_unary_rpc_method_handler(self._join)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {join: handler}),))
        self.address = Address("127.0.0.1", self._server.add_insecure_port("127.0.0.1:0"))
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(None)

    async def _join(self, _: bytes, context: grpc.aio.ServicerContext) -> bytes:
        self.asked += 1
        answer = self._answer()
        if isinstance(answer, str):
            # As gRPC itself does where there is no such method.
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
            raise AssertionError
        return joining.encode_answer(answer)


def settings(folder: Path, *others: Server) -> NodeSettings:
    """Of an empty node whose address is not among the seeds."""
    here = Address("127.0.0.1", 0)
    first, *rest = [other.address for other in others]
    return NodeSettings(
        data_dir=folder, amqp_address=here, http_address=here, peer_address=here, frames_address=here,
        seeds=tuple(rest), join=first, name="seven",
    )


@pytest.mark.parametrize("stranger", [FOREIGN_SERVICE, OTHER_PROTOCOL])
def test_a_stranger_at_one_of_several_addresses_does_no_harm(stranger: JoinAnswer | str, tmp_path: Path) -> None:
    """The node is let in by the other, who does so only after the stranger was asked twice."""

    async def test() -> None:
        async with Server(lambda: stranger) as one, Server(lambda: PLACE if one.asked > 1 else _NOT_YET) as two:
            place = await asyncio.wait_for(_come_in(settings(tmp_path, one, two), "data"), WITHIN_S)
            assert place is not None
            assert place[0].node == 7

    asyncio.run(test())


def test_a_refusal_that_is_about_this_node_or_from_the_only_address_is_final(tmp_path: Path) -> None:
    async def test() -> None:
        async with Server(lambda: OTHER_PROTOCOL) as one:
            with pytest.raises(NodeRefused, match="protocol version"):
                await asyncio.wait_for(_come_in(settings(tmp_path, one), "data"), WITHIN_S)
        async with Server(lambda: NAME_TAKEN) as one, Server(lambda: _NOT_YET) as two:
            with pytest.raises(NodeRefused, match="that name"):
                await asyncio.wait_for(_come_in(settings(tmp_path, one, two), "data"), WITHIN_S)

    asyncio.run(test())


def test_a_server_without_that_method_may_be_gone_at_the_next_try() -> None:
    async def test() -> None:
        async with Server(lambda: FOREIGN_SERVICE) as one:
            with pytest.raises(JoinRefused, match="Method not found") as refused:
                await ask_to_join(str(one.address), JoinRequest("x", "h:1", "d"), None)
            assert refused.value.again

    asyncio.run(test())


_NOT_YET = JoinAnswer.refused("the catalog has no leader at present", True)
