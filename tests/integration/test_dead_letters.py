"""Dead letters that wait, on three real nodes: for room, for a route, for an operator; whatever node is asked."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from click.testing import CliRunner
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import NackError, UnroutableError

from mayfly.node.command_line import main
from tests.integration.clients import PERSISTENT, channel, declare_in_shard, declare_led_by, drain
from tests.integration.nodes import Nodes
from tests.integration.operators import mayfly
from tests.waiting import until_judged, wait_for

pytestmark = [pytest.mark.processes]


def listed(nodes: Nodes, id: int, queue: str) -> dict[str, Any]:
    """The listing for one queue, as a node has it."""
    found: dict[str, Any] = json.loads(mayfly(nodes, id, "deadletters", "list", "--queue", queue, "--json"))
    return found


def parked(nodes: Nodes, id: int, queue: str) -> int:
    return sum(row["messages"] for row in listed(nodes, id, queue)["parked"])


def lists(nodes: Nodes, id: int, queue: str, count: int) -> bool:
    return parked(nodes, id, queue) == count


def take(where: BlockingChannel, queue: str) -> list[str]:
    """Everything that is ready in a queue, by the client's own node."""
    bodies = []
    while (body := where.basic_get(queue, auto_ack=True)[2]) is not None:
        bodies.append(body.decode())
    return bodies


def led_by_another(nodes: Nodes, than: str) -> Callable[[int], bool]:
    leader = nodes.planned_leader(than)
    return lambda other: other != leader


def publish(where: BlockingChannel, queue: str, body: str) -> bool:
    """Whether it was taken."""
    try:
        where.basic_publish("", queue, body.encode(), PERSISTENT)
    except (NackError, UnroutableError):
        return False
    return True


def test_d2_refusals_are_nacked_on_every_node(cluster: Nodes) -> None:
    with channel(cluster, 1) as declaring:
        declaring.queue_declare("full", durable=True, arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    for id in cluster.ids:
        with channel(cluster, id, confirms=True) as where:
            assert [publish(where, "full", f"{id}.{number}") for number in range(4)] == [True, True, False, False]
            assert take(where, "full") == [f"{id}.0", f"{id}.1"]


def test_d8_parked_ones_are_listed_dropped_and_released_on_any_node(cluster: Nodes) -> None:
    arguments = {"x-max-length": 0, "x-dead-letter-exchange": "nobody", "x-dead-letter-routing-key": "k"}
    with channel(cluster, 1, confirms=True) as where:
        for queue in ("parking", "other"):
            where.queue_declare(queue, durable=True, arguments=arguments)
            assert all(publish(where, queue, f"{queue} {number}") for number in range(3))
        for id in cluster.ids:
            wait_for(partial(lists, cluster, id, "parking", 3), f"node {id} lists them")
            (row,) = listed(cluster, id, "parking")["parked"]
            known = {key: row[key] for key in ("vhost", "queue", "reason", "exchange", "routing_key", "messages")}
            assert known == {
                "vhost": "/", "queue": "parking", "reason": "maxlen", "exchange": "nobody", "routing_key": "k",
                "messages": 3,
            }  # fmt: skip
        assert "parking" in mayfly(cluster, 2, "deadletters", "list")
        wait_for(partial(lists, cluster, 3, "other", 3), "node 3 lists those of the other queue")
        assert "3 dropped" in mayfly(cluster, 3, "deadletters", "drop", "--queue", "other", "--vhost", "/")
        wait_for(lambda: parked(cluster, 1, "other") == 0, "node 1 has heard of it")
        where.exchange_declare("nobody", "direct", durable=True)
        where.queue_declare("found", durable=True)
        where.queue_bind("found", "nobody", "k")
        # It goes by itself before long; an operator need not wait for that.
        assert "released" in mayfly(cluster, 2, "deadletters", "release", "--all")
        wait_for(lambda: where.queue_declare("found", passive=True).method.message_count == 3, "they arrive")
        assert take(where, "found") == ["parking 0", "parking 1", "parking 2"]
        for id in cluster.ids:
            wait_for(partial(lists, cluster, id, "parking", 0), f"node {id} lists none")


def test_a_wrong_password_changes_nothing(cluster: Nodes) -> None:
    words = ["deadletters", "drop", "--all", "--password", "wrong", "--node", str(cluster.plan(1).http)]
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, "administrator" in result.output) == (1, True)
    words = ["deadletters", "drop", "--node", str(cluster.plan(1).http)]
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, "say which" in result.output) == (1, True)


def test_d6_d7_d8_dead_letters_wait_for_room_though_leaders_die(cluster: Nodes) -> None:
    """The target is full and led elsewhere; its leader is killed; what waits arrives once, in order, as room comes."""
    with channel(cluster, 1) as declaring:
        target = declare_led_by(
            cluster, declaring, "narrow", lambda leader: leader == 2,
            {"x-max-length": 3, "x-overflow": "reject-publish"},
        )  # fmt: skip
        arguments = {"x-message-ttl": 50, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": target}
        source = declare_led_by(cluster, declaring, "source", led_by_another(cluster, target), arguments)
    wanted = [f"m{number}" for number in range(20)]
    with channel(cluster, 3, confirms=True) as where:
        assert all(publish(where, source, body) for body in wanted)

        def lane() -> tuple[int, str]:
            rows = [row for row in listed(cluster, 3, source)["lanes"] if row["queue"] == target]
            return (rows[0]["messages"], rows[0]["waits_for"]) if rows else (0, "")

        wait_for(lambda: lane() == (17, "room"), "the lane stands still")
        wait_for(lambda: "room" in mayfly(cluster, 1, "deadletters", "list"), "node 1 lists it, too")
        got = take(where, target)
        cluster.kill(2)

        def all_came() -> bool:
            got.extend(take(where, target))
            return len(got) >= len(wanted)

        wait_for(all_came, "all of them")
        assert got == wanted
        wait_for(lambda: lane() == (0, ""), "the lane is empty")
        assert take(where, target) == []
    cluster.heal()


def redrive_of(nodes: Nodes, id: int, queue: str) -> dict[str, Any]:
    """How far it has come, as a node has it; nothing while nobody knows."""
    rows = json.loads(mayfly(nodes, id, "redrive", "list", "--json"))["redrives"]
    return next((row for row in rows if row["queue"] == queue), {"state": "", "moved": 0})


def test_r1_d6_d7_a_redrive_goes_on_though_its_leader_is_killed(cluster: Nodes) -> None:
    """The source is led elsewhere. Each message comes back once, in order, and as many as the preview has said."""
    with channel(cluster, 1) as declaring:
        dead = declare_led_by(cluster, declaring, "buried", lambda leader: leader == 2)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
        work = declare_led_by(cluster, declaring, "digging", led_by_another(cluster, dead), arguments)
    wanted = [f"m{number}" for number in range(400)]
    dying = BasicProperties(delivery_mode=2, expiration="1")
    with channel(cluster, 3, confirms=True) as where:
        for body in wanted:
            where.basic_publish("", work, body.encode(), dying)
        wait_for(lambda: cluster.ready(3, dead) == len(wanted), "all are dead")
        ahead = json.loads(mayfly(cluster, 3, "redrive", "preview", dead, "--json"))
        assert (ahead["moves"], ahead["stays"], ahead["complete"]) == (len(wanted), 0, True)
        mayfly(cluster, 1, "redrive", "start", dead, "--rate", "100")
        wait_for(lambda: redrive_of(cluster, 3, dead)["moved"] > 0, "the first have moved")
        cluster.kill(2)
        wait_for(lambda: redrive_of(cluster, 3, dead)["state"] == "done", "it is over")
        assert redrive_of(cluster, 3, dead)["moved"] == len(wanted)
        got: list[str] = []

        def all_came() -> bool:
            got.extend(take(where, work))
            return len(got) >= len(wanted)

        wait_for(all_came, "all of them")
        assert got == wanted
        assert take(where, work) == [] == take(where, dead)
    cluster.heal()


def test_l11_a_long_queue_expires_into_its_dead_letter_queue_while_others_are_served(cluster: Nodes) -> None:
    """20 000 messages: every one arrives, and a queue of the same shard goes on meanwhile."""
    until_judged(lambda round: expire_long_queue(cluster, round) > 0, "a neighbour that is served meanwhile", rounds=3)


def expire_long_queue(nodes: Nodes, round: int) -> int:
    """How often the queue's neighbour was served while its messages were on their way."""
    count, going, remains = 20_000, f"going-{round}", f"remains-{round}"
    with channel(nodes, 1) as where:
        where.queue_declare(remains, durable=True)
        arguments = {
            "x-expires": 86_400_000, "x-expires-dead-letter": True, "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": remains,
        }  # fmt: skip
        where.queue_declare(going, durable=True, arguments=arguments)
        for number in range(count):
            where.basic_publish("", going, b"%d" % number)
        where.queue_declare(going, durable=True, passive=True)
        neighbour = declare_in_shard(nodes, where, f"same-{round}", (nodes.queue(1, going) or {})["shard"])

        def arrived() -> int:
            return int(where.queue_declare(remains, passive=True).method.message_count)

        # Only now: however long it took to get there, the lease begins with the change (L9).
        mayfly(nodes, 1, "policy", "set", f"short-{round}", f"^{going}$", '{"expires": 1}')
        wait_for(lambda: arrived() > 0, "the first of them", every_s=0)
        served = 0
        while arrived() < count:
            where.basic_publish("", neighbour, b"x")
            wait_for(lambda: where.basic_get(neighbour, auto_ack=True)[2] is not None, "the neighbour is served")
            served += arrived() < count
    nodes.until_nowhere(going)
    mayfly(nodes, 1, "policy", "delete", f"short-{round}")
    bodies = [body for body, _ in drain(nodes, 2, remains)]
    assert bodies == [b"%d" % number for number in range(count)]
    return served
