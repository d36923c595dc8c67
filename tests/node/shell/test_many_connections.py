"""A node with many connections looks at them in portions: nobody else waits for all of them, nor for one that fails."""

import asyncio
import logging
from typing import Any, cast

import pytest

from mayfly.node.broker.broker import Broker
from mayfly.node.shell.listener import AmqpListener, ListenerSettings
from tests.node.broker.direct_cluster import DirectCluster
from tests.waiting import BOUND_S


class Quiet:
    """A connection of which nothing is wanted but to be looked at."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes

    def tick(self, now_ms: int) -> None:
        self._notes.append("looked")

    def flush(self) -> None:
        self._notes.append("looked")


def test_the_loop_does_other_things_between_portions() -> None:
    notes: list[str] = []

    async def run() -> None:
        listener = AmqpListener(cast(Any, None), lambda: None, ListenerSettings("127.0.0.1"))
        listener._protocols |= {cast(Any, Quiet(notes)) for _ in range(1000)}
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def other(left: int) -> None:
            notes.append("other")
            if left:
                loop.call_soon(other, left - 1)
            else:
                done.set_result(None)

        loop.call_soon(other, 30)
        listener._tick(loop)
        await done
        assert listener._ticker is not None
        listener._ticker.cancel()

    asyncio.run(run())
    assert notes.count("looked") == 1000
    portions = [part.count("looked") for part in " ".join(notes).split("other")]
    assert max(portions) <= 100


class Defective:
    """What a client's connection is after a defect of ours: whatever is wanted of it raises an exception."""

    name = "the defective one"

    def tick(self, now_ms: int) -> None:
        raise ZeroDivisionError

    def flush(self) -> list[bytes]:
        raise ZeroDivisionError

    def lost(self) -> None:
        """Its socket is gone."""


@pytest.mark.parametrize("what", ["tick", "flush"])
def test_a_connection_that_fails_is_lost_alone(what: str, caplog: pytest.LogCaptureFixture) -> None:
    """There is a tick after that, and the others are ticked, and written to, in this one."""
    def schedule() -> None:
        asyncio.get_running_loop().call_soon(listener.flush)

    listener = AmqpListener(Broker(DirectCluster(), lambda: b"\0" * 16), schedule, ListenerSettings("127.0.0.1"))
    notes: list[str] = []

    async def run() -> None:
        await listener.start_listening()
        loop = asyncio.get_running_loop()
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"AMQP\x00\x00\x09\x01")
        assert await reader.readexactly(1)
        (broken,) = listener._protocols
        broken._connection = cast(Any, Defective())
        quiet = cast(Any, Quiet(notes))
        if what == "tick":
            listener._protocols.add(quiet)
            listener._tick(loop)
            listener._protocols.remove(quiet)
            assert listener._ticker is not None
            listener._ticker.cancel()
        else:
            listener._dirty += [quiet, broken]  # the last is written to first
            listener.flush()
        await asyncio.wait_for(reader.read(), BOUND_S)
        writer.close()
        await listener.stop()

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())
    assert notes == ["looked"]
    assert [record.getMessage() for record in caplog.records] == ["connection the defective one failed"]
    assert listener.connection_count == 0
