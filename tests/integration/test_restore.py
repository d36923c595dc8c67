"""A whole cluster that was lost, begun anew from copies of its nodes' data: from one, and from all of them."""

import dataclasses
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.clients import Consumer, Publisher, channel, drain, publish_all
from tests.integration.growing import Growing
from tests.integration.nodes import wait_for
from tests.integration.operators import ask, put_policy
from tests.integration.replica_sets import as_planned, replicas

pytestmark = [pytest.mark.processes]

FIVE: Final = (1, 2, 3, 4, 5)
HOUR_MS: Final = 3_600_000
LEASE_MS: Final = 20_000


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
        said = begin_anew(self.nodes, restored, (1, 2, 3), *copies)
        assert {self.nodes.group_count(id) for id in (1, 2, 3)} == {19}
        return said

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


def begin_anew(nodes: Growing, restored: int, members: Sequence[int], *copies: Path) -> str:
    """`mayfly restore`, the node started, and the others with empty folders; what the command said."""
    done = nodes.mayfly("restore", *map(str, copies), "--data-dir", str(nodes.plan(restored).data_dir))
    assert done.returncode == 0, done.stderr
    nodes.plans = [dataclasses.replace(plan, seeds=()) for plan in nodes.plans]
    nodes.start(restored)
    nodes.until_serving()
    for id in members:
        if id != restored:
            nodes.join(id, through=restored, serve=False)
    nodes.until_serving()
    nodes.until_settled(restored, *members)
    return done.stdout


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


@pytest.mark.slow
def test_five_nodes_are_begun_anew_from_a_copy_of_the_whole(tmp_path: Path) -> None:
    """No node has all shards, and together the copies do: definitions, messages with their deadlines, leases, and what
    a consumer had unacknowledged. Without one of the copies nothing is made."""
    nodes = Growing(tmp_path / "cluster", seeds=len(FIVE))
    try:
        nodes.start(*FIVE)
        nodes.until_serving()
        nodes.until_settled(1, *FIVE)
        everything = {int(row["group"]) for row in nodes.page(1, "/shards")[1]["shards"]}
        wait_for(lambda: as_planned(nodes, 1), "replicas as planned")
        assert all(replicas(nodes, id) < everything for id in FIVE)
        kept = [f"kept-{number}" for number in range(len(everything))]
        define(nodes, kept)
        bodies = [b"%d" % number for number in range(50)]
        for number, name in enumerate(kept):
            publish_all(nodes, 1 + number % len(FIVE), name, bodies)
        publish_all(nodes, 2, "dated", bodies, expiration=str(HOUR_MS))
        publish_all(nodes, 3, "held", bodies)
        holder = Consumer(nodes, 4, "held", acknowledge=False).begin()
        holder.until_received(len(bodies))
        with channel(nodes, 5) as declaring:
            declaring.queue_declare("used", durable=True, arguments={"x-expires": LEASE_MS})
        suspended = Consumer(nodes, 5, "used").begin()
        publisher = Publisher(nodes, 5, "busy", rate=100)
        publisher.start()
        publisher.until_confirmed(60)
        began_s = time.monotonic()
        before = Facts(nodes, 1, tmp_path)
        copies, confirmed = copy_whole(nodes, publisher, tmp_path)
        assert 1 < len(copies) < len(FIVE)
        publisher.until_confirmed(60)
        publisher.finish()
        for consumer in (holder, suspended):
            consumer.finish()
        nodes.kill(*FIVE)
        for id in FIVE:
            shutil.rmtree(nodes.plan(id).data_dir)
        first = int(copies[0].name.removeprefix("node"))
        refused = nodes.mayfly("restore", *map(str, copies[:-1]), "--data-dir", str(nodes.plan(first).data_dir))
        assert refused.returncode == 1 and "missing or damaged in every copy" in refused.stderr, refused.stderr
        assert not nodes.plan(first).data_dir.exists()
        begin_anew(nodes, first, FIVE, *copies)
        wait_for(lambda: as_planned(nodes, first), "replicas as planned")
        after = Facts(nodes, 1 + first % len(FIVE), tmp_path)
        passed_ms = 1_000 * (time.monotonic() - began_s)
        assert after.definitions == before.definitions
        assert after.deadline_ms == before.deadline_ms
        assert 0 <= before.lease_ms - after.lease_ms <= passed_ms
        for number, name in enumerate(kept):
            assert drain(nodes, 1 + number % len(FIVE), name) == [(body, False) for body in bodies]
        assert drain(nodes, 1, "dated") == [(body, False) for body in bodies]
        assert drain(nodes, 2, "held") == [(body, True) for body in bodies]
        numbers = [int(body.split(b" ")[0]) for body, _ in drain(nodes, 3, "busy")]
        assert confirmed <= len(numbers) <= publisher.sent
        assert numbers == list(range(len(numbers)))
        # Its lease was suspended by a consumer that is no more.
        nodes.until_nowhere("used")
        publish_all(nodes, 4, "kept-0", [b"goes on"])
        assert drain(nodes, 5, "kept-0") == [(b"goes on", False)]
    except BaseException:
        nodes.stop()
        raise
    nodes.close()


def define(nodes: Growing, kept: Sequence[str]) -> None:
    """Some of everything that there are definitions of."""
    assert ask(nodes, 1, "PUT", "vhosts/other")[0] == 201
    assert ask(nodes, 1, "PUT", "users/ann", {"password": "secret", "tags": "monitoring"})[0] == 201
    put_policy(nodes, 1, "short", "^busy$", {"max-length": 1_000_000})
    with channel(nodes, 1) as declaring:
        for name in (*kept, "dated", "held", "busy"):
            declaring.queue_declare(name, durable=True, arguments={"x-queue-leader-locator": "balanced"})
        declaring.exchange_declare("topics", "topic", durable=True)
        declaring.queue_bind("kept-0", "topics", "some.#")
        declaring.queue_declare("leased", durable=True, arguments={"x-expires": HOUR_MS})


class Facts:
    """What has to be the same in the new cluster, as a node of it says."""

    def __init__(self, nodes: Growing, witness: int, folder: Path) -> None:
        nodes.until_told(witness)
        file = folder / "definitions.json"
        done = nodes.mayfly("export", str(file), "--node", str(nodes.plan(witness).http))
        assert done.returncode == 0, done.stderr
        content: dict[str, Any] = json.loads(file.read_text())
        # This one's lease may have ended.
        content["queues"] = [queue for queue in content["queues"] if queue["name"] != "used"]
        self.definitions = content
        wait_for(lambda: (nodes.queue(witness, "dated") or {}).get("next_deadline_ms"), "a deadline")
        dated, leased = nodes.queue(witness, "dated"), nodes.queue(witness, "leased")
        assert dated is not None and leased is not None
        self.deadline_ms: int = dated["next_deadline_ms"]
        self.lease_ms: int = leased["lease"]["remaining_ms"]


def copy_whole(nodes: Growing, publisher: Publisher, folder: Path) -> tuple[list[Path], int]:
    """`mayfly snapshot --whole`, while there is work; the copies, and how many messages were confirmed before. On a
    busy machine a node may not hear in time of all that is confirmed, and says so."""
    for number in range(10):
        copy, confirmed = folder / f"copy-{number}", len(publisher.confirmed)
        done = nodes.mayfly("snapshot", str(copy), "--whole", "--node", str(nodes.plan(1).http))
        assert done.returncode == 0, done.stderr
        if "may lack" not in done.stderr:
            # In the order in which they were made: what the last one has the others lack.
            words = (line.split(" bytes in ")[1] for line in done.stdout.splitlines())
            return [Path(each.split(" of ")[0]) for each in words], confirmed
    raise AssertionError("no copy that lacks nothing")
