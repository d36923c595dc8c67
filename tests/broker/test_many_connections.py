"""A node with many connections looks at them in portions: nobody else waits for all of them."""

import asyncio
from typing import Any, cast

from node.listener import AmqpListener


class Quiet:
    """A connection of which nothing is wanted but to be looked at."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes

    def tick(self, now_ms: int) -> None:
        self._notes.append("looked")


def test_the_loop_does_other_things_between_portions() -> None:
    notes: list[str] = []

    async def run() -> None:
        listener = AmqpListener(cast(Any, None), "127.0.0.1", 0, lambda: None)
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
