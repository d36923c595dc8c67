"""Real nodes that join, leave and are replaced while clients go on: nothing confirmed is lost, nothing comes twice."""

import dataclasses
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mayfly.node.local_nodes import exit_codes
from tests.integration.clients import Consumer, Publisher, channel, drain, judge, publish_all
from tests.integration.growing import Growing
from tests.integration.nodes import fetch
from tests.waiting import wait_for

pytestmark = [pytest.mark.processes]

@pytest.fixture
def places(tmp_path: Path) -> Iterator[Growing]:
    nodes = Growing(tmp_path)
    with nodes:
        yield nodes


def test_one_three_five_three_under_load(places: Growing) -> None:
    """Clients of the nodes that stay publish with confirms and consume all the time."""
    places.start(1)
    places.until_serving()
    places.until_settled(1, 1)
    with channel(places, 1) as declaring:
        for number in range(3):
            declaring.queue_declare(f"load-{number}", durable=True)
    publish_all(places, 1, "load-2", [b"%d from the time of one node" % n for n in range(500)])
    publisher, consumer = Publisher(places, 1, "load-0", rate=300), Consumer(places, 1, "load-0").begin()
    publisher.start()
    publisher.until_confirmed(200)
    for number in (2, 3):
        places.join(number, through=1)
    places.until_settled(1, 1, 2, 3)
    # From here on through other nodes, as well as before.
    second, its_consumer = Publisher(places, 3, "load-1", rate=300), Consumer(places, 2, "load-1").begin()
    second.start()
    for number in (4, 5):
        places.join(number, through=number - 1)
    places.until_settled(5, 1, 2, 3, 4, 5)
    publisher.until_confirmed(100)
    places.remove("node4", witness=1)
    assert places.ends_by_itself(4) != 0
    assert "this node is being removed from the cluster: it drains" in places.log_text(4)
    places.remove("node5", witness=2)
    assert places.ends_by_itself(5) != 0
    places.until_settled(1, 1, 2, 3)
    for one in (publisher, second):
        one.until_confirmed(200)
        one.finish()
    consumer.until_received(len(publisher.confirmed))
    its_consumer.until_received(len(second.confirmed))
    for taker in (consumer, its_consumer):
        taker.finish()
    judge(publisher, [consumer])
    judge(second, [its_consumer])
    wait_for(lambda: places.ready(3, "load-2") == 500, "what was there before all others")


@pytest.mark.slow
def test_the_first_node_can_go_and_come_back_as_another(places: Growing) -> None:
    """The founder is removed under load; its old data is refused, as is its name while somebody bears it."""
    places.start(1)
    places.until_serving()
    for number in (2, 3):
        places.join(number, through=1)
    places.until_settled(3, 1, 2, 3)
    with channel(places, 2) as declaring:
        declaring.queue_declare("kept", durable=True)
    publisher, consumer = Publisher(places, 2, "kept", rate=300), Consumer(places, 3, "kept").begin()
    publisher.start()
    publisher.until_confirmed(100)
    places.remove("node1", witness=2)
    places.ends_by_itself(1)
    places.until_settled(2, 2, 3)
    places.start(1)
    assert places.ends_by_itself(1) == exit_codes.REFUSED
    assert "was removed from the cluster" in places.log_text(1)
    shutil.rmtree(places.plan(1).data_dir)
    # Others tell it, or its own catalog does, when that had its removal before the node ended.
    places.expected_errors.append(r"cannot start: (node . says: node 1( .*)?|this node \(node 1, node1\)) was removed")
    places.join(1, through=2)
    places.until_settled(1, 1, 2, 3)
    assert places.members(1)["node1"]["id"] == 4
    publisher.until_confirmed(100)
    publisher.finish()
    consumer.until_received(len(publisher.confirmed))
    consumer.finish()
    judge(publisher, [consumer])


def test_a_wiped_node_comes_back_as_another_member(tmp_path: Path) -> None:
    """Three nodes begin, one of them late; one loses its disk: it may not vote again under its id, joins as a new
    member, and the old one goes."""
    nodes = Growing(tmp_path, seeds=3)
    try:
        nodes.start(2, 1)
        nodes.until_serving()
        nodes.start(3)
        nodes.until_serving()
        nodes.until_settled(1, 1, 2, 3)
        with channel(nodes, 1) as declaring:
            declaring.queue_declare("kept", durable=True)
        publish_all(nodes, 3, "kept", [b"%d" % number for number in range(1000)])
        nodes.kill(3)
        shutil.rmtree(nodes.plan(3).data_dir)
        nodes.start(3)
        nodes.until_serving()
        assert "joined cluster" in nodes.log_text(3)
        nodes.until_settled(2, 1, 2, 3)
        assert nodes.members(2)["node3"]["id"] == 4
        nodes.kill(1)
        wait_for(lambda: nodes.ready(3, "kept") == 1000, "the messages at the new node")
        publish_all(nodes, 3, "kept", [b"more"])
        nodes.start(1)
        nodes.until_serving()
        nodes.until_settled(1, 1, 2, 3)
        # It starts again with the same command as at first, and a fourth one with the same finds a member by a name.
        nodes.kill(3)
        nodes.start(3)
        nodes.plans[3] = dataclasses.replace(nodes.plan(4), seeds=nodes.plan(1).seeds)
        nodes.configure(4, join=f"localhost:{nodes.plan(2).peer.port}", name="")
        nodes.start(4)
        nodes.until_serving()
        nodes.until_settled(1, 1, 2, 3, 4)
    except BaseException:
        nodes.stop()
        raise
    nodes.close()


def test_operators_move_shards_and_strangers_do_not(places: Growing) -> None:
    """`mayfly shards move | transfer | status`, `mayfly queue move`, `mayfly cluster members`, and what happens without
    the password."""
    places.start(1)
    places.until_serving()
    for number in (2, 3):
        places.join(number, through=1)
    places.until_settled(1, 1, 2, 3)
    node = ["--node", str(places.plan(2).http)]
    refused = places.mayfly("shards", "transfer", "1", "node1", *node, password="wrong")
    assert refused.returncode == 1 and "administrator" in refused.stderr

    def shard(id: int) -> dict[str, Any]:
        rows: list[dict[str, Any]] = fetch(places.plan(3).http, "/shards")[1]["shards"]
        return rows[id]

    ids = {name: row["id"] for name, row in places.members(1).items()}
    for name in ("node2", "node3"):
        assert places.mayfly("shards", "transfer", "1", name, *node).returncode == 0
        wait_for(lambda name=name: shard(1)["leader"] == ids[name], f"shard 1 led by {name}")  # type: ignore[misc]
    assert places.mayfly("shards", "move", "1", "node1", *node).returncode == 0
    wait_for(lambda: shard(1)["voters"] == [ids["node1"]] and shard(1)["leader"] == ids["node1"], "shard 1 on node 1")
    assert places.mayfly("shards", "move", "1", *node).returncode == 0
    places.until_settled(1, 1, 2, 3)
    assert places.mayfly("shards", "move", "1", "nobody", *node).returncode == 1

    with channel(places, 1) as declaring:
        declaring.queue_declare("moved", durable=True)
    publish_all(places, 1, "moved", [b"goes with it"])
    found = places.queue(1, "moved")
    assert found is not None
    target = found["shard"] % 16 + 1
    places.until_told(2)
    done = places.mayfly("queue", "move", "/", "moved", str(target), *node)
    assert (done.returncode, f"moves to shard {target}" in done.stdout) == (0, True), done.stderr

    def is_there() -> bool:
        row = places.queue(3, "moved") or {}
        return (row.get("shard"), row.get("ready")) == (target, 1)

    wait_for(is_there, f"the queue in shard {target}, with its message")
    assert [body for body, _ in drain(places, 2, "moved")] == [b"goes with it"]
    assert places.mayfly("queue", "move", "/", "moved", "17", *node).returncode == 1
    shown = places.mayfly("cluster", "members", *node).stdout + places.mayfly("shards", "status", *node).stdout
    assert "node3" in shown and "shard 16" in shown


def test_operators_add_shards_under_load(places: Growing) -> None:
    """`mayfly shards add`, with a member that does not vote there, one that was down, and one that joins later."""
    places.start(1)
    places.until_serving()
    for number in (2, 3, 4):
        places.join(number, through=1)
    places.until_settled(1, 1, 2, 3, 4)
    with channel(places, 1) as declaring:
        for number in range(4 * 16):
            declaring.queue_declare(f"load-{number}", durable=True)
    publisher, consumer = Publisher(places, 1, "load-0", rate=300), Consumer(places, 3, "load-0").begin()
    publisher.start()
    publisher.until_confirmed(100)
    places.kill(4)
    node = ["--node", str(places.plan(2).http)]
    refused = places.mayfly("shards", "add", "4", *node, password="wrong")
    assert refused.returncode == 1 and "administrator" in refused.stderr
    refused = places.mayfly("shards", "add", "2000", *node)
    assert refused.returncode == 1 and "1024" in refused.stderr
    done = places.mayfly("shards", "add", "4", *node)
    assert (done.returncode, done.stdout) == (0, "16 shards, there are to be 20\n4 shards added\n"), done.stderr
    wait_for(lambda: all(places.group_count(id) == 21 for id in (1, 2, 3)), "the shards that were added")
    with channel(places, 3) as declaring:
        for number in range(8):
            declaring.queue_declare(f"new-{number}", durable=True)
    publish_all(places, 2, "new-7", [b"%d" % number for number in range(100)])
    places.start(4)
    places.join(5, through=3)
    places.until_settled(5, 1, 2, 3, 4, 5)
    assert {places.group_count(id) for id in (1, 2, 3, 4, 5)} == {21}
    rows: list[dict[str, Any]] = fetch(places.plan(5).http, "/shards")[1]["shards"]
    assert all(row["queues"] for row in rows[17:]), "the new ones are the emptiest"
    assert [body for body, _ in drain(places, 4, "new-7")] == [b"%d" % number for number in range(100)]
    publisher.until_confirmed(100)
    publisher.finish()
    consumer.until_received(len(publisher.confirmed))
    consumer.finish()
    judge(publisher, [consumer])
    shown = places.mayfly("status", "--all", *node).stdout
    assert "shards 20" in shown and "shard 20" in shown


def test_hooks_of_a_node_need_no_login(places: Growing) -> None:
    """A pod's hook drains and removes its own node after its login was changed, with the node's own token, and nothing
    else with it."""
    places.start(1)
    places.until_serving()
    for number in (2, 3):
        places.join(number, through=1)
    places.until_settled(1, 1, 2, 3)
    file = places.plan(3).data_dir / "own-token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

    def asked(node: int, *words: str) -> tuple[int, str]:
        done = places.mayfly(*words, "--node", str(places.plan(node).http), password="guest")
        return done.returncode, done.stderr

    token = ("--token-file", str(file))
    assert asked(3, "user", "password", "guest", "--new-password", "changed")[0] == 0
    for node, words, said in (
        (3, ("drain",), "administrator"),
        (3, ("cluster", "remove", "node3"), "administrator"),
        (2, ("drain", *token), "administrator"),
        (3, ("cluster", "remove", "node2", *token), "not '2'"),
        (3, ("drain", "--token-file", str(places.plan(3).log_file)), "holds no token"),
        (3, ("drain", "--token-file", str(file.with_name("none"))), "can't be read"),
    ):
        code, text = asked(node, *words)
        assert (code, said in text) == (1, True), (words, text)
    places.kill(2)
    wait_for(lambda: not places.members(3)["node2"]["up"], "a node that is down")
    assert asked(3, "cluster", "remove", "node2", *token) == (0, "")
    places.until_settled(1, 1, 3)
    assert asked(3, "drain", *token) == (0, "")
    assert asked(3, "cluster", "remove", "node3", "--no-wait", *token) == (0, "")
    assert places.ends_by_itself(3) == exit_codes.REFUSED
    places.until_settled(1, 1)
    assert file.read_text().strip() not in places.log_text(3)
