"""Copies of nodes' data: which nodes are copied to have all shards, and what is said of what could not be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mayfly.node.operating import data_copies
from mayfly.node.operating.data_copies import DataCopies, cover
from tests.node.broker.three_brokers import ThreeBrokers
from tests.node.operating.seeing import Seeing


class Copying:
    """Three nodes that note what they were to copy; those that `fail` have no room."""

    def __init__(self) -> None:
        self.brokers = ThreeBrokers(shards=4)
        self.nodes = {id: Seeing(self.brokers, id) for id in self.brokers.ids}
        self.copied: list[tuple[int, Path]] = []
        self.fail: set[int] = set()
        self.copies = {id: self._copies(id, seeing) for id, seeing in self.nodes.items()}

    def _copies(self, id: int, seeing: Seeing) -> DataCopies:
        async def copy_data(folder: Path) -> int:
            if id in self.fail:
                raise OSError("no room")
            self.copied.append((id, folder))
            return 100 + id

        return DataCopies(seeing.engine, seeing.freshness, seeing.groups, seeing.questions, copy_data)

    def have(self, **shards: set[int]) -> None:
        """Of each node, `n1` to `n3`, the shards that it has replicas of."""
        for id, seeing in self.nodes.items():
            seeing.lacks.clear()
            seeing.lacks.update({1, 2, 3, 4} - shards.get(f"n{id}", set()))

    def whole(self, at: int) -> dict[str, Any]:
        return self.nodes[at].run(self.copies[at].whole("/backup"))


@pytest.fixture
def copying(monkeypatch: pytest.MonkeyPatch) -> Copying:
    monkeypatch.setattr(data_copies, "LOOK_S", 0)
    monkeypatch.setattr(data_copies, "SILENT_LOOKS", 3)
    return Copying()


def test_a_node_with_all_shards_is_enough(copying: Copying) -> None:
    done = copying.whole(2)
    assert copying.copied == [(2, Path("/backup/node2"))]
    assert done["lacks"] == [] and [each["groups"] for each in done["copies"]] == [[0, 1, 2, 3, 4]]
    assert copying.nodes[1].run(copying.copies[1].here("/one")) == {
        "folder": "/one", "bytes": 101, "groups": [0, 1, 2, 3, 4], "lacks": [], "current": True
    }


def test_few_nodes_are_chosen() -> None:
    """The one with the most of what is missing first; of several alike the lowest id."""
    assert cover({}) == [] and cover({3: set()}) == []
    assert cover({1: {2, 3}, 2: {3, 4}, 3: {4}, 4: set()}) == [3, 4]
    assert cover({1: {2, 3}, 2: {2, 3}}) == [2]


@pytest.mark.parametrize("again", [False, True])
def test_as_many_nodes_are_copied_as_it_takes(copying: Copying, again: bool) -> None:
    copying.have(n1={1, 2}, n2={2, 3}, n3={3, 4})
    for round in range(1 + again):
        done = copying.whole(1)
        rows = {each["node"]: (each["groups"], each["bytes"], each["current"]) for each in done["copies"]}
        assert rows == {1: ([0, 1, 2], 101, True), 2: ([0, 2, 3], 102, True), 3: ([0, 3, 4], 103, True)}
        assert done["lacks"] == []
        assert len(copying.copied) == 3 * (round + 1), "of the same folder, too, a node is asked anew"
    assert copying.nodes[1].run(copying.copies[1].here("/one"))["lacks"] == [3, 4]


def test_what_could_not_be_copied_is_told(copying: Copying) -> None:
    copying.have(n1={1, 2}, n2={2, 3}, n3={3, 4})
    copying.fail = {3}
    done = copying.whole(1)
    assert [(each["name"], each["error"]) for each in done["copies"]] == [
        ("node1", ""), ("node2", ""), ("node3", "no room")
    ]  # fmt: skip
    assert done["lacks"] == [4]
    copying.brokers.cut = {3}
    copying.brokers.nodes[1].engine.peer_down(3, copying.brokers.now_ms)
    done = copying.whole(1)
    assert [each["node"] for each in done["copies"]] == [1, 2] and done["lacks"] == [4]
    copying.fail = {1}
    with pytest.raises(OSError, match="no room"):
        copying.nodes[1].run(copying.copies[1].here("/one"))


def test_a_node_that_never_says_that_it_is_done_is_given_up(copying: Copying) -> None:
    copying.have(n1={1, 2}, n2=set(), n3={3, 4})
    answer = copying.brokers.nodes[3].engine.questions.answer
    assert answer is not None
    copying.brokers.nodes[3].engine.questions.answer = lambda question, respond: (
        respond(b"") if b"CopyData" in question else answer(question, respond)
    )
    done = copying.whole(1)
    assert [(each["node"], bool(each["error"])) for each in done["copies"]] == [(1, False), (2, False), (3, True)]
    assert done["lacks"] == [3, 4]


@pytest.mark.parametrize("folder", ["relative", "/nul\0"])
def test_a_folder_that_cannot_be_is_refused_by_the_node_itself(copying: Copying, folder: str) -> None:
    with pytest.raises(OSError, match="an absolute path on the node's machine is expected"):
        copying.nodes[1].run(copying.copies[1].here(folder))
    assert copying.copied == []
