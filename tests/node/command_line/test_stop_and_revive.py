"""A node that was told to stop can't be revived: its process would wait for the end of the drain for ever."""

import asyncio
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

from mayfly.node.engine.drain import NOT_DRAINING
from mayfly.node.operating.operator import Operator
from mayfly.node.settings import NodeSettings
from mayfly.node.settings.kinds import Address
from mayfly.node.shell.process import NodeProcess
from tests.waiting import BOUND_S


def test_a_node_that_was_told_to_stop_is_not_revived(tmp_path: Path) -> None:
    """Before the stop it may be; after it the answer is a 409, and the stop goes on to its end."""
    here = Address("127.0.0.1", 0)
    settings = NodeSettings(
        data_dir=tmp_path, amqp_address=here, http_address=here, peer_address=here, frames_address=here, shards=1,
        drain_notice_ms=1_000,
    )  # fmt: skip

    async def test() -> None:
        process = NodeProcess(settings)
        node = await process.start()
        nothing = cast(Any, None)
        operator = Operator(nothing, nothing, nothing, nothing, lambda: 0, node.control)
        try:
            operator.drain()
            assert (await operator.revive())[0] == HTTPStatus.OK
            assert node.control.drain.step == NOT_DRAINING
            stopping = asyncio.create_task(node.control.drain_before_stop())
            await asyncio.sleep(0)
            status, content = await operator.revive()
            assert status == HTTPStatus.CONFLICT
            assert content == {"error": "clients can't be taken again: the node was told to stop"}
            await asyncio.wait_for(stopping, BOUND_S)
        finally:
            await process.stop()

    asyncio.run(test())
