"""A node that has just started is ready when it has what it missed: whoever restarts nodes in turn goes on then."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from mayfly.cluster.host import host
from mayfly.cluster.host.host import Host
from mayfly.node.settings import NodeSettings
from mayfly.node.settings.kinds import Address
from mayfly.node.shell.assembly import Node
from mayfly.node.shell.process import NodeProcess


async def until_said(node: Node, text: str) -> None:
    for _ in range(3_000):
        if node.view.readiness()[1] == text:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"it says: {node.view.readiness()[1]}")


@pytest.mark.skipif(host.__file__.endswith(".so"), reason="a method of a compiled class stays what it is")
def test_a_node_is_not_ready_while_a_replica_is_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The group has a leader and clients are let in; only its replica here lacks something."""
    here = Address("127.0.0.1", 0)
    settings = NodeSettings(
        data_dir=tmp_path, amqp_address=here, http_address=here, peer_address=here, frames_address=here, shards=2
    )
    late: list[Callable[[object], None]] = []
    read_index = Host.read_index

    def read(self: Host, id: int, done: Callable[[object], None]) -> None:
        if id == 2:
            late.append(done)
        else:
            read_index(self, id, done)

    monkeypatch.setattr(Host, "read_index", read)

    async def test() -> None:
        process = NodeProcess(settings)
        node = await process.start()
        try:
            await until_said(node, "starting: groups 2 are not up to date yet")
            late.pop()(None)
            # That is asked once: a replica that lags later is no reason to send clients away.
            assert node.view.readiness() == (True, "ready")
            assert not late
        finally:
            await process.stop()

    asyncio.run(test())
