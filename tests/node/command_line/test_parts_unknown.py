"""Commands show what is unknown as unknown: shards of which no node has told anything, copies that lack some."""

from __future__ import annotations

import io
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from mayfly.node.command_line import (
    cluster_command,
    deadletters_command,
    main,
    queue_command,
    shards_command,
    snapshot_command,
)
from mayfly.node.command_line.snapshot_command import COPIED_IN_PART
from mayfly.node.command_line.status_command import show_status

WHOLE = {"folder": "/copy", "bytes": 7, "groups": [0, 1], "lacks": [], "current": True}


class Node:
    """Answers each page, whoever asks for it."""

    def __init__(self, **pages: Any) -> None:
        self.pages = pages
        self.asked: list[Any] = []

    def get(self, address: str, path: str, *login: str) -> Any:
        return self.pages[path.strip("/").partition("?")[0].replace("/", "_")]

    def request(self, method: str, address: str, path: str, content: Any, *login: Any, **how: Any) -> tuple[int, Any]:
        self.asked.append((path, content))
        return 200, self.pages["snapshot"]


def run(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(main, [*words])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("answer", "says", "complains"),
    [
        ({**WHOLE, "lacks": [2, 3]}, "7 bytes in /copy\n",
         "not copied: shard 2, shard 3; other nodes have them, see --whole\n"),
        ({**WHOLE, "current": False, "reason": "no leader"}, "7 bytes in /copy\n",
         "this copy may lack what was confirmed lately: no leader\n"),
        (WHOLE, "7 bytes in /copy\n", ""),
    ],
)  # fmt: skip
def test_a_copy_says_which_shards_it_lacks(
    monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any], says: str, complains: str
) -> None:
    node = Node(snapshot=answer)
    monkeypatch.setattr(snapshot_command, "request", node.request)
    assert run("snapshot", "/copy") == (COPIED_IN_PART if answer["lacks"] else 0, says, complains)
    assert node.asked == [("/node/snapshot", {"folder": "/copy"})], "which older nodes take as well"


def test_copies_of_a_whole_cluster_are_told_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    one = {**WHOLE, "name": "a", "error": "", "reason": ""}
    node = Node(snapshot={"copies": [one, {**one, "name": "b", "error": "no room"}], "lacks": [2]})
    monkeypatch.setattr(snapshot_command, "request", node.request)
    code, said, complained = run("snapshot", "/copy", "--whole")
    assert (code, said) == (COPIED_IN_PART, "7 bytes in /copy of the machine of a\n")
    assert complained == (
        "/copy of the machine of b: not made: no room\nnot copied: shard 2; no node that has them could be copied\n"
    )
    assert node.asked == [("/node/snapshot", {"folder": "/copy", "whole": True})]


def test_pages_without_some_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    group = {"group": 3, "leader": 0, "voters": [], "learners": [], "plan": [1], "changing": False, "pinned": False}
    row = {"vhost": "/", "name": "q", "shard": 3, "leader": 0, "unknown": "no word of shard 3"}
    settings = {"dead_letter_exchange": None, "dead_letter_routing_key": None}
    node = Node(
        shards={"shards": [{**group, "unknown": "no word"}]},
        cluster_members={"members": [], "unknown_shards": [3]},
        queues={"queues": [row], "left_out": 0},
        **{"queues_%2F_q": {**row, "settings": settings}},
        deadletters={"parked": [], "lanes": [], "more": False, "unknown_shards": [3]},
    )
    for module in (shards_command, cluster_command, queue_command):
        monkeypatch.setattr(module, "get", node.get)
    monkeypatch.setattr(deadletters_command, "get_as", node.get)
    monkeypatch.setattr(queue_command, "_configuration", lambda row: [])
    for words, text in (
        (("shards", "status"), "unknown: no answer"),
        (("cluster", "members"), "Votes and leads without shards 3: no node with a replica has answered in time"),
        (("queue", "list"), "'-' in shards 3: no node with a replica has answered in time"),
        (("queue", "show", "q"), "shard 3: no word of shard 3"),
        (("deadletters", "list"), "Without shards 3: no node with a replica has answered in time."),
    ):
        code, said, _ = run(*words)
        assert code == 0 and text in said, said


def test_a_status_without_some_shards() -> None:
    out = io.StringIO()
    groups = [{"group": 3, "role": "none", "leader": 0, "leader_name": "", "unknown": "no word"}]
    show_status({"groups": groups, "queues": {"ready": 0}, "unknown_shards": [3]}, Console(file=out, width=160))
    assert "Without shards 3: no node with a replica has answered in time" in out.getvalue()
    line = next(line for line in out.getvalue().splitlines() if line.strip().startswith("shard 3"))
    assert line.split()[2:] == ["none", *["-"] * 8]
