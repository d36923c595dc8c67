"""Policies on real nodes: set on any, effective on queues that are there on every node, whatever leader dies."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.integration.clients import PERSISTENT, channel, declare_led_by
from tests.integration.nodes import Nodes
from tests.integration.operators import ask, put_policy
from tests.waiting import wait_for

pytestmark = [pytest.mark.processes]


@pytest.fixture(autouse=True)
def no_policies(cluster: Nodes) -> Iterator[None]:
    """Each test begins and ends without any."""
    yield
    cluster.heal()
    for kind in ("policies", "operator-policies"):
        for row in ask(cluster, 1, "GET", kind)[1]:
            assert ask(cluster, 1, "DELETE", f"{kind}/%2F/{quote(row['name'], safe='')}")[0] == 204


def applies_on_all(nodes: Nodes, queue: str, policy: str | None, operator: str | None = None) -> bool:
    """Whether every running node shows these policies for the queue."""
    shown = [nodes.queue(id, queue) or {} for id in nodes.ids if nodes.runs(id)]
    return all((each.get("policy"), each.get("operator_policy")) == (policy, operator) for each in shown)


@pytest.mark.parametrize("id", [1, 2, 3])
def test_set_on_one_node_seen_on_all_and_effective_on_a_queue_that_is_there(cluster: Nodes, id: int) -> None:
    """T3, T12: each node is asked once, for a queue that another one leads."""
    leader = id % 3 + 1
    with channel(cluster, leader, confirms=True) as where:
        queue = declare_led_by(cluster, where, f"pol-{id}-", lambda led_by: led_by == leader)
        put_policy(cluster, id, "p", f"^{queue}$", {"message-ttl": 20_000, "max-length": 1000})
        put_policy(cluster, id, "o", f"^{queue}$", {"message-ttl": 300}, operator=True)
        wait_for(lambda: applies_on_all(cluster, queue, "p", "o"), "all nodes that see the policies")
        definition = {"max-length": 1000, "message-ttl": 300}
        assert (cluster.queue(leader, queue) or {})["effective_policy_definition"] == definition

        def one_expires() -> bool:
            """Messages from before the shard knew stay (T12), and those behind them (T6); not those after."""
            if (cluster.queue(leader, queue) or {}).get("expired", 0) > 0:
                return True
            where.queue_purge(queue)
            where.basic_publish("", queue, b"m", PERSISTENT)
            return False

        wait_for(one_expires, "a message that expires", every_s=1.0)
        where.queue_purge(queue)
        wait_for(lambda: cluster.ready(id, queue) >= 0, f"the queue at node {id}")
        status, page = ask(cluster, id, "GET", f"queues/%2F/{queue}")
        assert status == 200
        assert (page["policy"], page["operator_policy"]) == ("p", "o")
        assert page["effective_policy_definition"] == definition
        arguments = {"x-queue-leader-locator": "balanced"}
        assert (page["consumers"], page["durable"], page["arguments"]) == (0, True, arguments)
        assert page["messages"] == page["messages_ready"] + page["messages_unacknowledged"]
        where.queue_delete(queue)
    assert ask(cluster, id, "GET", "queues/%2F/none")[0] == 404


@pytest.mark.parametrize("victim", [2, 3])
def test_a_policy_set_while_the_leader_dies_reaches_its_queues(cluster: Nodes, victim: int) -> None:
    """The leader of the queue's shard is killed right after the policy is committed; the next one goes on."""
    with channel(cluster, 1) as where:
        queue = declare_led_by(cluster, where, f"dies-{victim}-", lambda leader: leader == victim)
        where.basic_publish("", queue, b"m", PERSISTENT)
        wait_for(lambda: cluster.ready(1, queue) == 1, "the message")
        put_policy(cluster, 1, "dies", f"^{queue}$", {"message-ttl": 1, "ttl-applies": "retroactive"})
        cluster.kill(victim)
        wait_for(lambda: cluster.ready(1, queue) == 0, "the end of the message, by the next leader")
        where.queue_delete(queue)


def test_policies_are_there_after_a_restart_of_all(cluster: Nodes) -> None:
    with channel(cluster, 1) as where:
        where.queue_declare("stays", durable=True)
    put_policy(cluster, 3, "stays", "^stays$", {"max-length": 7})
    cluster.kill(1, 2, 3)
    cluster.heal()
    wait_for(lambda: applies_on_all(cluster, "stays", "stays"), "the policy on all nodes")
    with channel(cluster, 2) as where:
        where.queue_delete("stays")


def test_l1_expires_on_a_transient_queue_of_another_node(cluster: Nodes) -> None:
    with channel(cluster, 3) as where:
        where.queue_declare("passing", auto_delete=True)
        put_policy(cluster, 1, "passing", "^passing$", {"expires": 200})
        cluster.until_nowhere("passing")
