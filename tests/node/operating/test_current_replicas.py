"""Replicas are brought up to date for pages, which wait for a moment and not for ever."""

import asyncio
from collections.abc import Callable

import pytest

from mayfly.node.operating import current_replicas
from mayfly.node.operating.current_replicas import CurrentReplicas
from tests.waiting import BOUND_S

Done = Callable[[object], None]
LOST = object()


class SomeGroups:
    """Reads that a test answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Done]] = []
        self.pumped = 0
        self.replicas = CurrentReplicas(lambda group, done: self.asked.append((group, done)), self._pump)

    def _pump(self) -> None:
        self.pumped += 1

    def answer(self, result: object = None) -> None:
        asked, self.asked = self.asked, []
        for _, done in asked:
            done(result)


def run(test: Callable[[SomeGroups], object]) -> None:
    async def steps() -> None:
        await test(SomeGroups())  # type: ignore[misc]

    asyncio.run(steps())


@pytest.fixture(autouse=True)
def _long(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a busy machine takes from one step of a test to the next."""
    monkeypatch.setattr(current_replicas, "CURRENT_WITHIN_S", BOUND_S)


@pytest.fixture
def _short(_long: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """For those who get no answer."""
    monkeypatch.setattr(current_replicas, "CURRENT_WITHIN_S", 0.05)


def test_nothing_is_behind_when_all_have_answered() -> None:
    async def steps(groups: SomeGroups) -> None:
        page = asyncio.ensure_future(groups.replicas.behind((0, 3)))
        await asyncio.sleep(0)
        assert [group for group, _ in groups.asked] == [0, 3] and groups.pumped == 1
        assert not page.done()
        groups.answer()
        assert await page == []

    run(steps)


@pytest.mark.usefixtures("_short")
def test_a_group_without_a_leader_and_one_without_this_node_are_behind() -> None:
    async def steps(groups: SomeGroups) -> None:
        page = asyncio.ensure_future(groups.replicas.behind((0, 1, 2)))
        await asyncio.sleep(0)
        groups.asked[1][1](LOST)
        groups.asked[2][1](None)
        assert await page == [0, 1]

    run(steps)


def test_whoever_comes_while_a_read_is_under_way_gets_the_next_one() -> None:
    async def steps(groups: SomeGroups) -> None:
        early = asyncio.ensure_future(groups.replicas.behind((0,)))
        await asyncio.sleep(0)
        late = asyncio.ensure_future(groups.replicas.behind((0,)))
        await asyncio.sleep(0)
        assert len(groups.asked) == 1
        groups.answer()
        assert await early == [] and not late.done()
        groups.answer()
        assert await late == []
        assert groups.asked == []

    run(steps)


@pytest.mark.usefixtures("_short")
def test_those_who_gave_up_leave_one_read_behind_however_many_they_are() -> None:
    async def steps(groups: SomeGroups) -> None:
        for _ in range(5):
            assert await groups.replicas.behind((0,)) == [0]
        assert len(groups.asked) == 1
        groups.answer()
        assert groups.asked == [], "nobody waits any more"
        page = asyncio.ensure_future(groups.replicas.behind((0,)))
        await asyncio.sleep(0)
        groups.answer()
        assert await page == []

    run(steps)
