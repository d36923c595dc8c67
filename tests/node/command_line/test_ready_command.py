"""`mayfly ready` and `mayfly cluster await`: what is in the way, in words and as exit codes."""

import time
from typing import Any

import pytest
from click.testing import CliRunner

from mayfly.node.command_line import main, ready_command

Page = dict[str, Any]


def members(*states: str, down: tuple[int, ...] = ()) -> Page:
    rows = [
        {"id": id, "name": f"n{id}", "state": state, "up": id not in down and state != "removed"}
        for id, state in enumerate(states, 1)
    ]
    return {"members": rows, "current": True}


def shard(group: int, *voters: int, leader: int = 1, plan: tuple[int, ...] = (), changing: bool = False) -> Page:
    planned = list(plan or voters)
    return {"group": group, "voters": list(voters), "leader": leader, "plan": planned, "changing": changing}


class Pages:
    """What a node answers."""

    def __init__(self) -> None:
        self.ready = (200, {"status": "ready"})
        self.members = members("member", "member", "member")
        self.shards = [shard(0, 1, 2, 3), shard(1, 1, 2, 3)]

    def fetch(self, where: object, path: str, timeout_s: float = 0) -> tuple[int, Page]:
        return {
            "/health/ready": self.ready,
            "/cluster/members": (200, self.members),
            "/shards": (200, {"shards": self.shards}),
        }[path]


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Pages:
    pages = Pages()
    monkeypatch.setattr(ready_command, "fetch", pages.fetch)
    return pages


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, [*words])
    return result.exit_code, result.stdout + result.stderr


def test_all_is_well(pages: Pages) -> None:
    pages.members = members("member", "removed", "member", "member")
    pages.shards = [shard(0, 1, 3, 4)]
    assert run("ready") == (0, "ready\n")
    assert run("ready", "--quorum-plus-one", "--members", "3") == (0, "ready\n")
    assert run("cluster", "await", "--members", "3", "--quorum-plus-one") == (0, "ready\n")


def test_a_node_that_does_not_serve(pages: Pages) -> None:
    """Of the node alone; `cluster await` asks about the cluster, whoever answers."""
    pages.ready = (503, {"reason": "drained: clients go to other nodes"})
    assert run("ready") == (1, "drained: clients go to other nodes\n")
    assert run("cluster", "await", "--members", "3")[0] == 0


@pytest.mark.parametrize(
    ("shards", "down", "text"),
    [
        ([shard(0, 1, 2, 3), shard(1, 1, 2, 3)], (3,), "groups 0, 1 have 2 of 3 voters up, one less is no majority"),
        ([shard(0, 1, 2)], (), "groups 0 have 2 of 2 voters up, one less is no majority"),
        ([shard(0, 1)], (), "groups 0 have 1 of 1 voters up, one less is no majority"),
        ([shard(0, 1, 2, 3), shard(5, 1, 2, 3, leader=0)], (), "groups 5 have no leader"),
        ([shard(5, 1, 2, 3, changing=True)], (), "groups 5 are changing their voters"),
    ],
)
def test_no_voter_to_spare(pages: Pages, shards: list[Page], down: tuple[int, ...], text: str) -> None:
    pages.members, pages.shards = members("member", "member", "member", down=down), shards
    assert run("ready", "--quorum-plus-one") == (1, text + "\n")


@pytest.mark.parametrize(
    ("states", "shards", "text"),
    [
        (("member",) * 3, [], "there are 3 members, 4 are wanted"),
        (("member", "member", "member", "joining"), [], "n4 is joining"),
        (("member", "member", "member", "member", "leaving"), [], "n5 is leaving"),
        (("member",) * 4, [shard(2, 1, 2, 3, plan=(1, 2, 4))], "votes move in groups 2"),
    ],
)
def test_members_on_their_way(pages: Pages, states: tuple[str, ...], shards: list[Page], text: str) -> None:
    pages.members, pages.shards = members(*states), shards
    assert run("cluster", "await", "--members", "4", "--timeout", "0") == (1, text + "\n")


def test_an_old_answer_is_none(pages: Pages) -> None:
    pages.members |= {"current": False, "reason": "no leader answered for groups 3"}
    assert run("ready", "--quorum-plus-one") == (1, "no leader answered for groups 3\n")


def test_it_waits(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    pages.members = members("member", "member", "member", "joining")

    def joined(seconds: float) -> None:
        pages.members = members("member", "member", "member", "member")

    monkeypatch.setattr(time, "sleep", joined)
    assert run("cluster", "await", "--members", "4")[0] == 0
    assert run("cluster", "await", "--members", "4") == (0, "ready\n")


def test_something_has_to_be_waited_for() -> None:
    assert run("cluster", "await")[0] == 2


@pytest.mark.parametrize(
    ("name", "down", "draining", "text"),
    [
        ("n3", (), (), ""),
        ("n3", (), (3,), ""),
        ("n3", (2,), (), "groups 0, 1 have 1 other voters that stay, 2 are needed"),
        ("n2", (), (3,), "groups 0, 1 have 1 other voters that stay, 2 are needed"),
        ("n4", (2, 3), (), ""),
        ("n1", (2, 3, 4), (), ""),
        ("n1", (), (2, 3, 4), ""),
    ],
)
def test_whether_one_can_be_spared(
    pages: Pages, name: str, down: tuple[int, ...], draining: tuple[int, ...], text: str
) -> None:
    """n4 votes nowhere. Where nobody stays there is nothing to wait for."""
    pages.members = members("member", "member", "member", "member", down=down)
    for row in pages.members["members"]:
        row["draining"] = row["id"] in draining
    pages.ready = (503, {"reason": "drained: clients go to other nodes"})
    assert run("ready", "--without", name) == ((1, text + "\n") if text else (0, "ready\n"))


@pytest.mark.parametrize(
    ("incoming", "outgoing", "name", "down", "text"),
    [
        ((1, 2, 4), (1, 2, 3), "n1", (3,), "groups 5 have 1 other voters that stay, 2 are needed"),
        ((1, 2, 3), (1, 2, 4), "n1", (3,), "groups 5 have 1 other voters that stay, 2 are needed"),
        ((1, 2, 4), (1, 2, 3), "n3", (1,), "groups 5 have 1 other voters that stay, 2 are needed"),
        ((1, 2, 4), (1, 2, 3), "n1", (), ""),
        ((1, 2, 4), (1, 2, 3), "n4", (3,), ""),
        ((1, 2, 4), (1,), "n1", (4,), ""),
    ],
)
def test_both_halves_of_a_change_need_their_majority(
    pages: Pages, incoming: tuple[int, ...], outgoing: tuple[int, ...], name: str, down: tuple[int, ...], text: str
) -> None:
    """Last: without n1 no vote comes about in any case."""
    pages.members = members("member", "member", "member", "member", down=down)
    pages.shards = [shard(5, *incoming, changing=True) | {"voters_outgoing": list(outgoing)}]
    assert run("ready", "--without", name) == ((1, text + "\n") if text else (0, "ready\n"))


def test_of_two_that_drain_one_goes(pages: Pages) -> None:
    """Both look at the same moment: neither both may go, nor may both wait for each other."""
    pages.members["members"][1]["draining"] = pages.members["members"][2]["draining"] = True
    assert run("ready", "--without", "n3")[0] == 0
    assert run("ready", "--without", "n2")[0] == 1


def test_a_node_that_drains_is_none_to_spare(pages: Pages) -> None:
    pages.members["members"][2]["draining"] = True
    assert "one less is no majority" in run("ready", "--quorum-plus-one")[1]


def test_without_whom(pages: Pages) -> None:
    assert run("ready", "--without", "n9") == (1, "no member 'n9'; there are n1, n2, n3\n")
    assert run("ready", "--without", "n1", "--quorum-plus-one")[0] == 2
    pages.members |= {"current": False, "reason": "no leader answered for groups 3"}
    assert run("ready", "--without", "n1") == (1, "no leader answered for groups 3\n")


def test_what_no_node_has_told_is_no_yes(pages: Pages) -> None:
    """Nobody stops a node on the word of a page that lacks some groups."""
    unknown = {**shard(1), "voters": [], "leader": 2, "unknown": "no node has answered"}
    for words in (("--quorum-plus-one",), ("--without", "n1"), ("--members", "3")):
        pages.shards = [shard(0, 1, 2, 3), shard(1, 1, 2, 3)]
        assert run("ready", *words)[0] == 0
        pages.shards[1] = unknown
        assert run("ready", *words) == (1, "no node has told who votes in groups 1\n")
