"""Long work leaves turns to others."""

import asyncio
from collections.abc import Iterator

from mayfly.node.operating.turns import in_turns


def test_steps_are_made_so_many_at_a_time() -> None:
    made: list[int] = []

    async def work() -> list[int]:
        def steps() -> Iterator[int | None]:
            for number in range(100):
                made.append(number)
                yield number if number % 2 else None

        turns: list[int] = []
        working = asyncio.ensure_future(in_turns(steps(), 8))
        while not working.done():
            before = len(made)
            await asyncio.sleep(0)
            turns.append(len(made) - before)
        assert max(turns) == 8
        return working.result()

    assert asyncio.run(work()) == list(range(1, 100, 2))
