"""What operators see of real nodes: the same on each of them, as commands, pages, metrics and lines in the log."""

import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from urllib.request import urlopen

import pika
import pytest

import mayfly
from tests.integration.clients import PERSISTENT, channel, publish_all
from tests.integration.nodes import Nodes
from tests.integration.operators import ask
from tests.waiting import BOUND_S, wait_for, wait_for_each

pytestmark = [pytest.mark.processes]

ENVIRONMENT: Final = os.environ | {"PYTHONPATH": str(Path(mayfly.__file__).parent.parent)}


def mayfly_queue(nodes: Nodes, id: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, asked of a node."""
    command = [sys.executable, "-P", "-m", "mayfly", "queue", *arguments, "--node", str(nodes.plan(id).http)]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=5 * BOUND_S)


def shown(nodes: Nodes, id: int, name: str) -> dict[str, Any]:
    """The queue as the command shows it for scripts, when a leader has answered the node that is asked."""
    rows: list[dict[str, Any]] = []

    def is_current() -> bool:
        result = mayfly_queue(nodes, id, "show", name, "--json")
        rows.append(json.loads(result.stdout))
        assert (result.returncode, bool(result.stderr)) == (0, not rows[-1]["current"]), result.stderr
        return rows[-1]["current"] is True

    wait_for(is_current, f"{name} as it is now, at node {id}")
    return rows[-1]


def sample(nodes: Nodes, id: int, path: str, sample_start: str) -> float:
    """The sum of the samples that begin so."""
    with urlopen(f"http://{nodes.plan(id).http}{path}", timeout=BOUND_S) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(sample_start))


def is_listed(nodes: Nodes, id: int, pattern: str) -> bool:
    """Whether the queues of a name with `see` are listed so at a node."""
    listed = mayfly_queue(nodes, id, "list", "--name", "see", "--columns", "name,ready,ready_live")
    return re.search(pattern, listed.stdout) is not None


def test_any_node_shows_what_a_queue_has_now(cluster: Nodes) -> None:
    """RULES T6, L2: nothing that is asked here is a use, and an expired message behind a live one is not counted."""
    with channel(cluster, 1, confirms=True) as where:
        where.queue_declare("seen", durable=True, arguments={"x-expires": 600_000, "x-dead-letter-exchange": "gone"})
        short = pika.BasicProperties(delivery_mode=2, expiration="1")
        for properties in (PERSISTENT, PERSISTENT, short):
            where.basic_publish("", "seen", b"12345", properties)
        where.basic_get("seen")
        for id in cluster.ids:
            cluster.until_told(id)
            wait_for_each([id], lambda id: shown(cluster, id, "seen")["ready_live"] == 1, "the end of the short one")
            row = shown(cluster, id, "seen")
            assert (row["ready"], row["unacknowledged"], row["exact"], row["last_use"]) == (2, 1, True, "basic.get")
            assert 0 < row["lease"]["remaining_ms"] <= 600_000 and row["next_deadline_ms"] is None
            # The time that the shard was without a leader is not charged (L7).
            assert row["last_use_age_ms"] <= 600_000 - row["lease"]["remaining_ms"] + 1000 * BOUND_S
            text = mayfly_queue(cluster, id, "show", "seen").stdout
            assert "exchange 'gone'" in text and "left of 10 min 0 s" in text
            # Where no leader has answered in time, this may be what the node has itself.
            wait_for(partial(is_listed, cluster, id, r"seen +2 +1"), f"the counts in the list of node {id}")
            missing = mayfly_queue(cluster, id, "show", "unseen")
            assert missing.returncode == 1
            assert "this node knows no queue 'unseen' in vhost '/'" in missing.stderr
        per_queue = partial(
            sample, cluster, path="/metrics/per-queue?queue=seen", sample_start="mayfly_queue_ready_live{"
        )
        # Each is asked for itself, and the shard may get another leader meanwhile.
        wait_for(
            lambda: sorted(per_queue(id=id) for id in cluster.ids) == [0, 0, 1],
            "the count from the leader of its shard, and nobody else",
        )
        where.queue_delete("seen")


def test_l10_the_end_of_a_queue_is_told_and_counted(cluster: Nodes) -> None:
    """RULES L10: in the log of the node that leads its shard, and in the metrics of all."""
    before = {id: sample(cluster, id, "/metrics", 'mayfly_queues_gone_total{reason="expired"') for id in cluster.ids}
    with channel(cluster, 2) as where:
        where.queue_declare("brief", durable=True, arguments={"x-expires": 300})
    cluster.until_nowhere("brief")
    gone = "queue 'brief' in vhost '/' is gone, reason expired; "
    line = re.compile(gone + r"last activity 20\S+ \(created\), \d+ ms before")
    wait_for(lambda: sum(len(line.findall(cluster.log_text(id))) for id in cluster.ids) == 1, "one line in the logs")
    expired = 'mayfly_queues_gone_total{reason="expired"'
    wait_for_each(cluster.ids, lambda id: sample(cluster, id, "/metrics", expired) == before[id] + 1, "one more")


def test_lags_and_lanes_of_dead_letters(cluster: Nodes) -> None:
    """RULES T7, D8: what expires is in the histogram; what has no route is parked and ages."""
    with channel(cluster, 3) as where:
        arguments = {"x-message-ttl": 50, "x-dead-letter-exchange": "nowhere"}
        where.queue_declare("dying", durable=True, arguments=arguments)
    count = "mayfly_expiry_lag_seconds_count"
    before = {id: sample(cluster, id, "/metrics", count) for id in cluster.ids}
    publish_all(cluster, 3, "dying", [b"m"] * 20)
    wait_for_each(cluster.ids, lambda id: sample(cluster, id, "/metrics", count) >= before[id] + 20, "lags")
    wait_for_each(cluster.ids, lambda id: sample(cluster, id, "/metrics", "mayfly_parked{") == 20, "parked ones")
    oldest = "mayfly_parked_oldest_seconds"
    wait_for_each(cluster.ids, lambda id: sample(cluster, id, "/metrics", oldest) > 0, "age")
    for id in cluster.ids:
        assert sample(cluster, id, "/metrics", 'mayfly_deaths_total{reason="expired"') >= 20
        assert sample(cluster, id, "/metrics", "mayfly_expiry_lag_seconds_sum") > 0
    with channel(cluster, 3) as where:
        where.queue_delete("dying")


def managed(nodes: Nodes, id: int, page: str) -> Any:
    """A page of the management API."""
    status, found = ask(nodes, id, "GET", page)
    assert status == 200, found
    return found


def test_every_node_gives_the_same_overview(cluster: Nodes) -> None:
    """Totals of replicated queues, of connections and channels; all that nodes listen on."""
    with channel(cluster, 1, confirms=True) as one, channel(cluster, 3):
        one.queue_declare("counted", durable=True)
        cluster.until_well()  # so that what tests before have taken away is counted nowhere
        before = managed(cluster, 1, "overview")["queue_totals"]["messages"]
        one.basic_publish("", "counted", b"m", PERSISTENT)
        names = {plan.name for plan in cluster.plans}
        ports = {(plan.name, plan.amqp.port) for plan in cluster.plans}

        def is_shown(id: int) -> bool:
            found = managed(cluster, id, "overview")
            listeners = {(row["node"], row["port"]) for row in found["listeners"] if row["protocol"] == "amqp"}
            assert found["node"] == cluster.plan(id).name
            objects = found["object_totals"]
            counted = (found["queue_totals"]["messages"], objects["connections"], objects["channels"])
            return (listeners, counted) == (ports, (before + 1, 2, 2))

        def all_run(id: int) -> bool:
            rows = managed(cluster, id, "nodes")
            return {row["name"] for row in rows} == names and all(row["running"] for row in rows)

        for id in cluster.ids:
            wait_for(partial(is_shown, id), f"the totals at node {id}")
            wait_for(partial(all_run, id), f"all nodes as node {id} has them")


def test_every_node_lists_shows_and_closes_all_connections(cluster: Nodes) -> None:
    closed = pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="CONNECTION_FORCED")
    with channel(cluster, 1), channel(cluster, 2), closed, channel(cluster, 3):
        ports = {plan.amqp.port for plan in cluster.plans}
        nodes = [plan.name for plan in cluster.plans]

        def listed(id: int) -> list[dict[str, Any]]:
            return [row for row in managed(cluster, id, "connections") if row["port"] in ports]

        # A node that takes too long to say what it has is left out, and connections of tests before may be ending.
        wait_for_each(cluster.ids, lambda id: [row["node"] for row in listed(id)] == nodes, "a connection of each node")
        names = [row["name"] for row in listed(1)]
        wait_for_each(cluster.ids, lambda id: [row["name"] for row in listed(id)] == names, "the same connections")

        def is_paged() -> bool:
            page = managed(cluster, 3, "connections?page=2&page_size=2")
            shown = [row["name"] for row in page["items"]]
            return (page["total_count"], page["page_count"], shown) == (3, 2, names[2:])

        wait_for(is_paged, "the second page")
        path = f"connections/{quote(names[2], safe='')}"

        def is_found() -> bool:
            code, row = ask(cluster, 1, "GET", path)
            return code == 200 and row["node"] == cluster.plan(3).name

        def is_closed() -> bool:
            # A node that took too long to say so may have done it.
            assert ask(cluster, 2, "DELETE", path)[0] in (204, 404)
            return names[2] not in [row["name"] for row in managed(cluster, 3, "connections")]

        wait_for(is_found, "the connection at another node")
        wait_for(is_closed, "a connection to be closed", every_s=0.1)


def test_a_node_that_has_lost_the_others_says_that_it_is_not_current(cluster: Nodes) -> None:
    with channel(cluster, 1) as where:
        where.queue_declare("left-over", durable=True)
    cluster.kill(2, 3)
    result = mayfly_queue(cluster, 1, "show", "left-over")
    assert result.returncode == 0 and "not current: no leader answered for groups 0" in result.stderr
    assert "ready and live" in result.stdout
    cluster.heal()
    with channel(cluster, 1) as where:
        where.queue_delete("left-over")
