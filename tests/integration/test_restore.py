"""A whole cluster that was lost, begun anew from copies of its nodes' data: from one, and from all of them."""

import dataclasses
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.integration.clients import Publisher, channel, drain, publish_all
from tests.integration.growing import Growing
from tests.integration.nodes import wait_for

pytestmark = [pytest.mark.processes]


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Lost"]:
    lost = Lost(tmp_path_factory.mktemp("lost"))
    yield lost
    lost.nodes.close()


class Lost:
    """A cluster of three that was written to while its nodes were copied one after the other; all three are gone."""

    def __init__(self, folder: Path) -> None:
        self.nodes = nodes = Growing(folder / "cluster", seeds=3)
        try:
            nodes.start(1, 2, 3)
            nodes.until_serving()
            nodes.until_settled(1, 1, 2, 3)
            assert nodes.mayfly("shards", "add", "2", "--node", str(nodes.plan(3).http)).returncode == 0
            wait_for(lambda: nodes.group_count(1) == 19, "the shards that were added")
            nodes.until_settled(1, 1, 2, 3)
            with channel(nodes, 1) as declaring:
                for name in ("kept", "quiet"):
                    declaring.queue_declare(name, durable=True)
            publish_all(nodes, 1, "quiet", [b"%d" % number for number in range(50)])
            self.publisher = Publisher(nodes, 1, "kept", rate=300, size=200)
            self.publisher.start()
            self.confirmed_before: dict[int, int] = {}
            self.copies: dict[int, Path] = {}
            for id in (2, 1, 3):
                self.publisher.until_confirmed(60)
                self.copies[id] = folder / f"copy-{id}"
                wait_for(partial(self._is_copied, id), f"a copy of node {id} that lacks nothing")
            self.publisher.until_confirmed(60)
            self.publisher.finish()
            nodes.kill(1, 2, 3)
            for id in (1, 2, 3):
                shutil.rmtree(nodes.plan(id).data_dir)
        except BaseException:
            nodes.stop()
            raise

    def _is_copied(self, id: int) -> bool:
        """Copy a node. On a busy machine it may not hear in time of all that is confirmed, and says so."""
        copy = self.copies[id]
        self.confirmed_before[id] = len(self.publisher.confirmed)
        done = self.nodes.mayfly("snapshot", str(copy), "--node", str(self.nodes.plan(id).http))
        assert done.returncode == 0, done.stderr
        if "may lack" in done.stderr:
            shutil.rmtree(copy)
            return False
        return True

    def begin_anew(self, restored: int, *copies: Path) -> str:
        """`mayfly restore`, the node started, and the two others with empty folders; what the command said."""
        nodes = self.nodes
        done = nodes.mayfly("restore", *map(str, copies), "--data-dir", str(nodes.plan(restored).data_dir))
        assert done.returncode == 0, done.stderr
        nodes.plans = [dataclasses.replace(plan, seeds=()) for plan in nodes.plans]
        nodes.start(restored)
        nodes.until_serving()
        for id in {1, 2, 3} - {restored}:
            nodes.join(id, through=restored, serve=False)
        nodes.until_serving()
        nodes.until_settled(restored, 1, 2, 3)
        assert {nodes.group_count(id) for id in (1, 2, 3)} == {19}
        return done.stdout

    def give_up(self) -> None:
        """The cluster is lost once more."""
        self.nodes.kill(1, 2, 3)
        for id in (1, 2, 3):
            shutil.rmtree(self.nodes.plan(id).data_dir)

    def judge(self, witness: int, least: int) -> None:
        """All that was confirmed by then is there, once and in order; nothing that was never published."""
        numbers = [int(body.split(b" ")[0]) for body, _ in drain(self.nodes, witness, "kept")]
        assert least <= len(numbers) <= self.publisher.sent
        assert numbers == list(range(len(numbers)))
        assert [body for body, _ in drain(self.nodes, witness, "quiet")] == [b"%d" % number for number in range(50)]


def test_a_cluster_is_begun_anew_from_the_copy_of_one_node(copies: Lost) -> None:
    """What was confirmed before the copy was asked for is there; nodes of the lost cluster have no part in it."""
    nodes = copies.nodes
    copies.begin_anew(2, copies.copies[2])
    copies.judge(3, copies.confirmed_before[2])
    publish_all(nodes, 1, "kept", [b"goes on"])
    nodes.kill(2)
    wait_for(lambda: nodes.leads_nothing(nodes.members(1)["node2"]["id"], witness=1), "leaders without the first node")
    assert drain(nodes, 3, "kept") == [(b"goes on", False)]
    nodes.start(2)
    nodes.until_serving()
    copies.give_up()


@pytest.mark.slow
def test_a_cluster_is_begun_anew_from_the_copies_of_all_nodes(copies: Lost) -> None:
    """Made one after the other: of each shard the newest counts, whichever is named first."""
    said = copies.begin_anew(1, copies.copies[1], copies.copies[2], copies.copies[3])
    assert "behind in groups" in said
    copies.judge(2, max(copies.confirmed_before.values()))


def test_copies_that_do_not_belong_together_are_refused(copies: Lost, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for words, text in (
        ([str(empty)], "holds no data of a node"),
        ([str(copies.copies[1]), str(copies.nodes.plan(1).data_dir.parent)], "holds no data of a node"),
    ):
        done = copies.nodes.mayfly("restore", *words, "--data-dir", str(tmp_path / "new"))
        assert done.returncode == 1 and text in done.stderr, done.stderr
        assert not (tmp_path / "new").exists()
    done = copies.nodes.mayfly("restore", str(copies.copies[1]), "--data-dir", str(copies.copies[2]))
    assert done.returncode == 1 and "is not empty" in done.stderr
