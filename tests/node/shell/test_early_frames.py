"""A quick peer: its frame comes in the moment in which the node begins to listen, before it does anything else."""

import asyncio
from pathlib import Path

import pytest

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.transport.peer_transport import PeerTransport
from mayfly.node.settings import NodeSettings
from mayfly.node.settings.kinds import Address
from mayfly.node.shell.process import NodeProcess
from tests.waiting import until

QUICK_PEER = 2


def test_a_frame_that_comes_before_the_start_is_over_finds_a_whole_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Address("127.0.0.1", 0)
    settings = NodeSettings(
        data_dir=tmp_path, amqp_address=here, http_address=here, peer_address=here, frames_address=here, shards=1
    )
    process = NodeProcess(settings)
    pumped: list[bool] = []
    start = PeerTransport.start

    async def start_with_a_quick_peer(transport: PeerTransport) -> None:
        await start(transport)
        transport._events.on_up(QUICK_PEER)
        assert process.node is not None
        transport._events.on_frame(QUICK_PEER, Frame(process.node.opened.clock.now_ms()))
        transport._events.on_down(QUICK_PEER)
        drive = process.node.drive
        await until(lambda: not drive._pump_scheduled, "the node is pumped")
        pumped.append(True)

    monkeypatch.setattr(PeerTransport, "start", start_with_a_quick_peer)

    async def test() -> None:
        node = await process.start()
        try:
            assert pumped == [True]
            assert process.ending.failure is None
            assert node.catching_up.serving
        finally:
            await process.stop()

    asyncio.run(test())
