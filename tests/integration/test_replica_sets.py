"""Five real nodes, three replicas of each shard: clients are on nodes that have none, and notice nothing of it."""

import contextlib
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from mayfly.cluster.versions import LEVEL_FEEDS, LEVEL_HIGHEST
from mayfly.node.numbers import CATALOG_GROUP
from tests.integration.clients import PERSISTENT, Consumer, channel, declare_led_by, drain, publish_all
from tests.integration.growing import Growing
from tests.integration.nodes import PATIENT_SESSIONS, Nodes
from tests.integration.operators import ask, mayfly, put_policy
from tests.integration.replica_sets import as_planned, declare_kept, kill_leader, load, replicas, shard_of, without
from tests.waiting import BOUND_S, wait_for, wait_until_s

pytestmark = [pytest.mark.processes]

NODES = 5
GROUPS = 1 + 16
LEASE_MS = 1_500
KILLS = 4
REPLACED_AFTER_MS = 3_000
HEALED_S = 2 * BOUND_S


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Nodes]:
    """Five nodes that serve. At the end their logs must be clean."""
    with Nodes(folder, NODES, PATIENT_SESSIONS) as nodes:
        nodes.serve()
        yield nodes


def level_of(nodes: Nodes, id: int) -> int:
    """The cluster's feature level, as a node has it."""
    return int(nodes.page(id, "/cluster/members")[1]["level"])


def got(where: BlockingChannel, queue: str) -> bytes | None:
    """The next message, taken for good."""
    body: bytes | None = where.basic_get(queue, auto_ack=True)[2]
    return body


def test_replicas_are_where_the_plan_has_them_and_nowhere_else(cluster: Nodes) -> None:
    wait_for(lambda: {level_of(cluster, id) for id in cluster.ids} == {LEVEL_HIGHEST}, "the level")
    wait_for(lambda: as_planned(cluster, 1), "replicas as planned")
    assert sum(len(replicas(cluster, id)) for id in cluster.ids) == NODES + 3 * (GROUPS - 1)


def test_clients_are_served_by_nodes_without_the_shard(cluster: Nodes) -> None:
    """Confirms, gets, transactions, counts, returns, and acknowledgements by the hundred."""
    with channel(cluster, 1) as declaring:
        queue = declare_led_by(cluster, declaring, "distant", lambda leader: leader == 2)
    here, there = without(cluster, queue)
    bodies = [b"%d" % number for number in range(300)]
    publish_all(cluster, here, queue, bodies)
    with channel(cluster, there) as where:
        assert where.queue_declare(queue, passive=True).method.message_count == len(bodies)
        method, _, body = where.basic_get(queue)
        assert body == bodies[0] and not method.redelivered
        where.basic_nack(method.delivery_tag, requeue=True)
        method, _, body = where.basic_get(queue)
        assert body == bodies[0] and method.redelivered
        where.basic_reject(method.delivery_tag, requeue=False)
    assert drain(cluster, there, queue) == [(body, False) for body in bodies[1:]]
    with channel(cluster, here) as where, channel(cluster, there) as other:
        where.tx_select()
        where.basic_publish("", queue, b"never", PERSISTENT)
        where.tx_rollback()
        where.basic_publish("", queue, b"committed", PERSISTENT)
        assert got(other, queue) is None
        where.tx_commit()
        assert got(other, queue) == b"committed"
        assert got(other, queue) is None
        large = b"x" * 3_000_000
        where.basic_publish("", queue, large, PERSISTENT)
        where.tx_commit()
        assert got(other, queue) == large
    with channel(cluster, here, confirms=True) as where:
        where.basic_publish("", queue, b"purged", PERSISTENT, mandatory=True)
        assert where.queue_purge(queue).method.message_count == 1
        assert where.queue_delete(queue).method.message_count == 0
    cluster.until_nowhere(queue)


def test_dead_letters_go_from_shard_to_shard_over_nodes_that_have_but_one_of_them(cluster: Nodes) -> None:
    """The source's leader has no replica of the target's shard."""
    with channel(cluster, 1) as declaring:
        target = declare_led_by(cluster, declaring, "letters", lambda leader: leader == 1)
        outside = without(cluster, target)
        arguments = {"x-message-ttl": 50, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": target}
        source = declare_led_by(cluster, declaring, "mortal", lambda leader: leader in outside, arguments)
    bodies = [b"%d" % number for number in range(200)]
    consumer = Consumer(cluster, outside[1], target).begin()
    publish_all(cluster, outside[0], source, bodies)
    consumer.until_received(len(bodies))
    consumer.finish()
    assert [delivery.body for delivery in consumer.deliveries] == bodies
    assert {delivery.headers["x-death"][0]["reason"] for delivery in consumer.deliveries} == {"expired"}


def test_a_lease_is_kept_through_a_node_without_the_shard(cluster: Nodes) -> None:
    """By a consumer, for longer than the lease; then it runs out."""
    with channel(cluster, 1) as declaring:
        queue = declare_led_by(cluster, declaring, "leased", lambda leader: leader == 3)
    here, there = without(cluster, queue)
    consumer = Consumer(cluster, here, queue).begin()
    # Only now: however long it took to get there, the lease begins with the change (L9).
    put_policy(cluster, 1, "leased", f"^{queue}$", {"expires": LEASE_MS})
    wait_for(lambda: (cluster.queue(there, queue) or {}).get("policy") == "leased", "the policy")
    wait_until_s(time.monotonic() + 2 * LEASE_MS / 1000)
    assert cluster.queue(there, queue) is not None
    publish_all(cluster, there, queue, [b"kept"])
    consumer.until_received(1)
    consumer.finish()
    cluster.until_nowhere(queue)
    assert ask(cluster, 1, "DELETE", "policies/%2F/leased")[0] == 204


def test_operators_see_every_shard_from_any_node(cluster: Nodes) -> None:
    """`mayfly status`, pages and metrics of a node without the shard say what its leader says."""
    with channel(cluster, 1) as declaring:
        queue = declare_led_by(cluster, declaring, "shown", lambda leader: leader == 4)
    away, other = without(cluster, queue)
    publish_all(cluster, away, queue, [b"%d" % number for number in range(7)])
    wait_for(lambda: cluster.ready(away, queue) == 7, "the count at a node without the shard")

    def counts() -> list[int]:
        return [row["messages_ready"] for row in ask(cluster, away, "GET", "queues/%2F")[1] if row["name"] == queue]

    def are_all_shown() -> bool:
        shown = mayfly(cluster, other, "status", "--all")
        assert all(f"shard {number}" in shown for number in range(1, GROUPS))
        return "no node with a replica" not in shown

    def are_led() -> bool:
        groups = cluster.groups(away)
        assert len(groups) == GROUPS
        known = not [row for row in groups.values() if "unknown" in row]
        led = known and groups[shard_of(cluster, queue)]["leader"] == 4
        return led and cluster.metric(away, "mayfly_groups_without_leader") == 0

    # A node that takes too long to say what it has is left out, and a leader that a busy machine lets wait is replaced.
    wait_for(lambda: counts() == [7], "the count in the list")
    assert f'queue="{queue}"' not in text_of(cluster, away, "/metrics/per-queue")
    wait_for(lambda: f'queue="{queue}"' in text_of(cluster, 4, "/metrics/per-queue"), "the queue at its leader")
    wait_for(are_all_shown, "what a node with a replica says of each shard")
    wait_for(are_led, "leaders of all groups")
    wait_for(lambda: {cluster.page(id, "/health/ready")[0] for id in cluster.ids} == {200}, "nodes that are ready")
    assert drain(cluster, other, queue) == [(b"%d" % number, False) for number in range(7)]


def text_of(nodes: Nodes, id: int, path: str) -> str:
    """A page of text."""
    with urlopen(f"http://{nodes.plan(id).http}{path}", timeout=BOUND_S) as page:
        return str(page.read().decode())


def test_the_leader_dies_under_load(cluster: Nodes) -> None:
    """Clients on nodes that have no replica go on, in order, with nothing lost and nothing twice."""
    queue, here, there = declare_kept(cluster, "led", 5)
    with load(cluster, queue, here, there) as publisher:
        kill_leader(cluster, queue, witness=here)
        publisher.until_confirmed(200)
    cluster.heal()


@pytest.mark.slow
def test_leaders_die_one_after_the_other_under_load(cluster: Nodes) -> None:
    """And come back; the clients are not on any of them."""
    queue, here, there = declare_kept(cluster, "often", 1)
    with load(cluster, queue, here, there) as publisher, load(cluster, queue_of_all(cluster, "far"), there, here):
        for _ in range(KILLS):
            victim = kill_leader(cluster, queue, witness=here)
            publisher.until_confirmed(200)
            cluster.start(victim)
            cluster.until_serving()
            wait_for(lambda: as_planned(cluster, here), "replicas as planned")
    cluster.heal()


def queue_of_all(nodes: Nodes, name: str) -> str:
    """A queue in any shard."""
    with channel(nodes, 1) as declaring:
        declaring.queue_declare(name, durable=True)
    return name


@pytest.mark.slow
def test_nodes_that_stay_away_are_replaced_where_they_had_replicas(tmp_path: Path) -> None:
    """Each time all shards have three replicas on living nodes again, so that another node may die: two of five leave
    three with everything. The clients' own nodes get replicas meanwhile, and give some up again when the two come back
    after all; for the clients nothing changes."""
    settings = {**PATIENT_SESSIONS, "replace_after_ms": REPLACED_AFTER_MS, "compact_entries": 100}
    with Nodes(tmp_path, NODES, settings) as nodes:
        nodes.expected_errors.append("is left alone: most of its voters are away")
        nodes.serve()
        names = [f"kept-{number}" for number in range(GROUPS - 1)]
        with channel(nodes, 1) as declaring:
            for name in names:
                declaring.queue_declare(name, durable=True, arguments={"x-queue-leader-locator": "balanced"})
        bodies = [b"%d" % number for number in range(100)]
        for number, name in enumerate(names):
            publish_all(nodes, 1 + number % NODES, name, bodies)
        queue, here, there = declare_kept(nodes, "led", 5)
        assert nodes.planned_leader(queue, here) == 5
        lost = [id for id in (5, 4, 3, 2, 1) if id not in (here, there)][:2]
        with load(nodes, queue, here, there) as publisher, load(nodes, queue_of_all(nodes, "far"), there, here):
            for count, victim in enumerate(lost, 1):
                nodes.kill(victim)
                healed_s = wait_for(partial(is_healed, nodes, here), f"replicas elsewhere than on {lost}", HEALED_S)
                print(f"node {victim} replaced after {healed_s:.1f} s")
                # One that a busy machine lets wait for so long is away, too, until it is heard again.
                wait_for(partial(has_away, nodes, here, count), f"{count} members away")
                publisher.until_confirmed(200)
            wait_for(partial(is_healed, nodes, here), "replicas of all groups on those that are left", HEALED_S)
            assert all(replicas(nodes, id) == set(range(GROUPS)) for id in nodes.ids if nodes.runs(id))
            for number, name in enumerate(names[::2]):
                assert drain(nodes, (here, there)[number % 2], name) == [(body, False) for body in bodies]
            nodes.start(*lost)
            nodes.until_serving()
            wait_for(partial(has_away, nodes, here, 0), "members that are there again", HEALED_S)
            wait_for(partial(is_healed, nodes, lost[0]), "replicas as planned", HEALED_S)
        assert all(replicas(nodes, id) > {CATALOG_GROUP} for id in lost)
        for number, name in enumerate(names[1::2]):
            assert drain(nodes, lost[number % 2], name) == [(body, False) for body in bodies]


def has_away(nodes: Nodes, witness: int, count: int) -> bool:
    """Whether so many members are away, as a node has it."""
    return nodes.metric(witness, "mayfly_members_away") == count


def is_healed(nodes: Nodes, witness: int) -> bool:
    """Whether every group votes on three nodes that run, as planned, and replicas are nowhere else."""
    living = {id for id in nodes.ids if nodes.runs(id)}
    return all(
        len(row["plan"]) == 3 and set(row["voters"]) == set(row["plan"]) <= living and not row["changing"]
        for row in nodes.page(witness, "/shards")[1]["shards"]
    ) and as_planned(nodes, witness)


@pytest.mark.slow
def test_all_die_at_once_and_come_back_with_all_that_was_confirmed(cluster: Nodes) -> None:
    """Replicas that were given up stay so."""
    names = [f"left-{number}" for number in range(8)]
    with channel(cluster, 3) as declaring:
        for name in names:
            declaring.queue_declare(name, durable=True, arguments={"x-queue-leader-locator": "balanced"})
    bodies = [b"%d" % number for number in range(100)]
    for number, name in enumerate(names):
        publish_all(cluster, 1 + number % NODES, name, bodies)
    cluster.kill(*cluster.ids)
    cluster.start()
    cluster.until_serving()
    cluster.until_well()
    assert as_planned(cluster, 2)
    for number, name in enumerate(names):
        assert [body for body, _ in drain(cluster, 1 + number % NODES, name)] == bodies


@pytest.mark.slow
def test_a_replica_comes_and_goes_under_load(tmp_path: Path) -> None:
    """Nodes join and are removed: sessions change from replicas to feeds, and back."""
    with Growing(tmp_path, seeds=3) as nodes:
        nodes.start(1, 2, 3)
        nodes.until_serving()
        nodes.until_settled(1, 1, 2, 3)
        names = [f"load-{number}" for number in range(4)]
        with channel(nodes, 1) as declaring:
            for name in names:
                declaring.queue_declare(name, durable=True, arguments={"x-queue-leader-locator": "balanced"})
        with contextlib.ExitStack() as stack:
            streams = [
                stack.enter_context(load(nodes, name, 1 + number % 3, 1 + (number + 1) % 3, rate=100))
                for number, name in enumerate(names)
            ]
            for joining in (4, 5):
                nodes.join(joining, through=1)
                nodes.until_settled(joining, *range(1, joining + 1))
                wait_for(partial(as_planned, nodes, joining), "replicas as planned")
                for stream in streams:
                    stream.until_confirmed(50)
            # Those that are left give nothing up, and take over what the two had.
            for leaving in (4, 5):
                nodes.remove(f"node{leaving}", witness=1)
                nodes.ends_by_itself(leaving)
                for stream in streams:
                    stream.until_confirmed(50)
            nodes.until_settled(2, 1, 2, 3)
        assert all(replicas(nodes, id) == set(range(GROUPS)) for id in (1, 2, 3))


@pytest.mark.slow
def test_raising_the_level_drops_spare_copies_under_load(tmp_path: Path) -> None:
    """One member's limit keeps every group on every node; started without it, the cluster goes on with the plan's."""
    with Nodes(tmp_path, NODES, {**PATIENT_SESSIONS, "feature_level_limit": LEVEL_FEEDS - 1}) as nodes:
        # All begin with it: for a founder that comes late the others do not wait, and would begin at their own level.
        nodes.serve()
        for id in nodes.ids[:-1]:
            nodes.kill(id)
            nodes.configure(id, feature_level_limit=0)
            nodes.start(id)
            nodes.until_serving()
        nodes.until_balanced()
        assert {level_of(nodes, id) for id in nodes.ids} == {LEVEL_FEEDS - 1}
        assert all(replicas(nodes, id) == set(range(GROUPS)) for id in nodes.ids)
        names = [f"load-{number}" for number in range(4)]
        with channel(nodes, 1) as declaring:
            for name in names:
                declaring.queue_declare(name, durable=True, arguments={"x-queue-leader-locator": "balanced"})
        publish_all(nodes, 2, queue_of_all(nodes, "old"), [b"%d" % number for number in range(300)])
        with contextlib.ExitStack() as stack:
            streams = [
                stack.enter_context(load(nodes, name, 1 + number % 4, 1 + (number + 1) % 4, rate=100))
                for number, name in enumerate(names)
            ]
            nodes.kill(5)
            for stream in streams:
                stream.until_confirmed(50)
            assert level_of(nodes, 1) == LEVEL_FEEDS - 1
            nodes.configure(5, feature_level_limit=0)
            nodes.start(5)
            nodes.until_serving()
            wait_for(lambda: {level_of(nodes, id) for id in nodes.ids} == {LEVEL_HIGHEST}, "the level")
            wait_for(lambda: as_planned(nodes, 1), "replicas as planned")
            for stream in streams:
                stream.until_confirmed(100)
        (outside, _) = without(nodes, "old")
        assert drain(nodes, outside, "old") == [(b"%d" % number, False) for number in range(300)]
