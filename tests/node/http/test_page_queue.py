"""The queue of pages to be made: how often, how much in one go, and that health checks do not wait for it. By count."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import aiohttp
import pytest

from mayfly.node.http.page_queue import Made, PageQueue, TooManyWait
from mayfly.node.operating.ports.metrics import Metric
from tests.node.http.served import address_of, http_server
from tests.node.http.some_node import SomeNode
from tests.waiting import BOUND_S

CLIENTS = 50


class Clock:
    """Stands still but for what sleeps and pages take."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.rests_s: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.rests_s.append(seconds)
        self.now_s += seconds
        await asyncio.sleep(0)

    def time_s(self) -> float:
        return self.now_s


def test_whoever_waits_gets_one_page_that_was_begun_after_he_came() -> None:
    begun: list[str] = []

    async def work() -> None:
        queue, gate = PageQueue(100), asyncio.Event()

        async def make() -> Made:
            begun.append("page")
            text = b"page %d" % len(begun)
            await gate.wait()
            return Made(text, "text/plain")

        first = [asyncio.ensure_future(queue.get("page", make)) for _ in range(CLIENTS)]
        await asyncio.sleep(0.001)
        assert begun == ["page"]
        late = [asyncio.ensure_future(queue.get("page", make)) for _ in range(CLIENTS)]
        await asyncio.sleep(0.001)
        gate.set()
        assert {page.body for page in await asyncio.gather(*first)} == {b"page 1"}
        assert {page.body for page in await asyncio.gather(*late)} == {b"page 2"}
        queue.close()

    asyncio.run(asyncio.wait_for(work(), BOUND_S))
    assert len(begun) == 2


def test_a_page_that_is_given_up_keeps_no_other_from_being_made() -> None:
    async def work() -> None:
        queue = PageQueue(100, sleep=Clock().sleep)
        question: asyncio.Future[Made] = asyncio.get_running_loop().create_future()

        async def ask() -> Made:
            return await question

        async def make() -> Made:
            return Made(b"made", "text/plain")

        asked, wanted = asyncio.ensure_future(queue.get("asks", ask)), asyncio.ensure_future(queue.get("other", make))
        await asyncio.sleep(0)
        question.cancel()
        assert (await wanted).body == b"made"
        assert isinstance((await asyncio.gather(asked, return_exceptions=True))[0], asyncio.CancelledError)
        assert (await queue.get("other", make)).body == b"made"
        queue.close()

    asyncio.run(asyncio.wait_for(work(), BOUND_S))


def test_pages_leave_most_of_the_time_to_others() -> None:
    """Each takes 10 ms here: whatever is asked for, four fifths of the time go by without one."""
    clock = Clock()

    async def work() -> None:
        queue = PageQueue(100, clock.time_s, clock.sleep)

        async def make() -> Made:
            clock.now_s += 0.01
            return Made(b"", "text/plain")

        for _ in range(5):
            await asyncio.gather(*(queue.get(f"page {number}", make) for number in range(20)))
        queue.close()

    asyncio.run(asyncio.wait_for(work(), BOUND_S))
    assert len(clock.rests_s) in (99, 100), "the last page need not be followed by one"
    assert all(rest_s >= 4 * 0.01 for rest_s in clock.rests_s)


def test_there_is_an_end_to_waiting_and_a_failure_is_told_to_all_and_ends_nothing() -> None:
    async def work() -> None:
        queue = PageQueue(3)

        async def fail() -> Made:
            raise OSError("no disk")

        async def make() -> Made:
            return Made(b"page", "text/plain")

        asked = [asyncio.ensure_future(queue.get("bad", fail)) for _ in range(2)]
        asked.append(asyncio.ensure_future(queue.get("good", make)))
        await asyncio.sleep(0)
        with pytest.raises(TooManyWait):
            await queue.get("good", make)
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [str(each) for each in found[:2]] == ["no disk", "no disk"]
        assert isinstance(found[2], Made) and found[2].body == b"page"
        assert (await queue.get("good", make)).body == b"page"
        waiting = asyncio.ensure_future(queue.get("good", make))
        await asyncio.sleep(0)
        queue.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(asyncio.wait_for(work(), BOUND_S))


def test_pages_of_this_node_do_not_wait_for_pages_that_ask_others() -> None:
    """But for the places, which they share."""

    async def work() -> None:
        pages, gate = PageQueue(2, sleep=Clock().sleep), asyncio.Event()

        async def ask() -> Made:
            await gate.wait()
            return Made(b"of others", "text/plain")

        async def make() -> Made:
            return Made(b"own", "text/plain")

        asked = asyncio.ensure_future(pages.get("page", ask, asks_others=True))
        await asyncio.sleep(0)
        assert (await pages.get("page", make)).body == b"own" and not asked.done()
        second = asyncio.ensure_future(pages.get("other", make, asks_others=True))
        await asyncio.sleep(0)
        with pytest.raises(TooManyWait):
            await pages.get("page", make)
        gate.set()
        assert ((await asked).body, (await second).body) == (b"of others", b"own")
        pages.close()

    asyncio.run(asyncio.wait_for(work(), BOUND_S))


class SlowNode(SomeNode):
    """Its metrics take as long as the test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.snapshots = 0

    async def metrics_snapshot(self) -> Sequence[Metric]:
        self.snapshots += 1
        await self.gate.wait()
        return await super().metrics_snapshot()


def test_health_is_told_while_clients_of_other_pages_wait_for_one_rendering() -> None:
    """Fifty clients want the metrics, a node takes 60 connections: health answers, and the page is made once or twice.
    Those for whom there is no place in the line are told to come again."""

    async def work() -> None:
        node = SlowNode()
        server = http_server(node, most_connections=60)
        await server.start()
        try:
            connector = aiohttp.TCPConnector(limit=0)
            async with aiohttp.ClientSession(connector=connector) as session:

                async def status(path: str) -> int:
                    async with session.get(f"http://{address_of(server)}{path}") as response:
                        await response.read()
                        return response.status

                asked = [asyncio.ensure_future(status("/metrics")) for _ in range(CLIENTS)]
                refused: set[asyncio.Future[int]] = set()
                while len(refused) < CLIENTS - 30:
                    refused = {each for each in asked if each.done()}
                    await asyncio.sleep(0.001)
                assert {each.result() for each in refused} == {503}
                for path in ("/health/live", "/health/ready") * 5:
                    assert await status(path) == 200
                assert not [each for each in asked if each.done() and each not in refused]
                assert node.snapshots == 1
                node.gate.set()
                found = await asyncio.gather(*asked)
                assert found.count(200) == 30
                assert node.snapshots <= 2
        finally:
            await server.stop()

    asyncio.run(asyncio.wait_for(work(), 2 * BOUND_S))


def test_who_was_told_that_no_leader_answers_shares_no_page_with_who_was_not() -> None:
    node = SomeNode()
    late = {"current": False, "reason": "no leader"}
    told: Iterator[dict[str, Any]] = iter([{"current": True}, late, {"current": True}])
    both_wait = asyncio.Event()

    async def freshness(vhost: str | None = None, name: str | None = None) -> dict[str, Any]:
        mine = next(told)
        node.asked.append("freshness")
        if len(node.asked) == 3:
            both_wait.set()
        await both_wait.wait()
        return mine

    node.freshness = freshness  # type: ignore[method-assign]

    async def work() -> None:
        server = http_server(node)
        await server.start()
        try:
            async with aiohttp.ClientSession() as session:

                async def current() -> bool:
                    async with session.get(f"http://{address_of(server)}/queues?fresh=true") as response:
                        return bool((await response.json())["current"])

                assert sorted(await asyncio.gather(*(current() for _ in range(3)))) == [False, True, True]
        finally:
            await server.stop()

    asyncio.run(asyncio.wait_for(work(), 2 * BOUND_S))
