"""Message TTL, dead-lettering and leases over real nodes that die."""

import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pika
import pytest

from tests.integration.clients import Consumer, Publisher, channel, declare_led_by, drain, publish_all
from tests.integration.nodes import Nodes
from tests.integration.operators import ask, put_policy
from tests.waiting import BOUND_S, until_judged, wait_for, wait_for_each, wait_until_s

pytestmark = [pytest.mark.processes]

# The expiry tick is 250 ms; the rest is for a busy machine. One that is busier still gets more rounds.
PROMPT_S = 5.0
ROUNDS = 5
SESSION_TIMEOUT_MS = 20_000
"""A consumer of a node that a busy machine lets wait keeps its place; a process that has ended is told by its port."""
CLOCK_LAGS_S = 2.0
"""What a new leader's clock may be behind: on a busy machine it heard the old one's late. So long after a deadline a
message may still be given out."""
LEADERLESS_S = 5.0
"""What the election of a new leader may take on a busy machine."""
CLOCKS_DIFFER_BY = timedelta(seconds=0.5)
"""A shard's clock and that of the machine: less than what the moments that are compared are apart."""
GONE = re.compile(
    r"queue '(\S+)' in vhost '/' is gone, reason expired; last activity (\S+) \(([^)]+)\), (\d+) ms before; (\d+) mess"
)


@dataclass
class End:
    """The end of a lease as the log tells it: by the shard's clock, however late a test looks."""

    last_use_at: datetime
    last_use: str
    unused_s: float
    messages: int


def end_of(nodes: Nodes, name: str) -> End:
    """What the leader of the queue's shard has logged of it."""
    found: list[tuple[str, ...]] = []

    def is_told() -> bool:
        found.extend(row for id in nodes.ids for row in GONE.findall(nodes.log_text(id)) if row[0] == name)
        return bool(found)

    wait_for(is_told, f"the end of {name} in a log")
    _, at, use, unused_ms, messages = found[0]
    return End(datetime.fromisoformat(at), use, int(unused_ms) / 1000, int(messages))


def expired(nodes: Nodes, id: int, name: str) -> int:
    """Messages of a queue that have expired, as a node has it."""
    # A node that has heard of the queue may be about to have it.
    return int((nodes.queue(id, name) or {}).get("expired", -1))


@pytest.fixture(scope="module")
def settings() -> dict[str, object]:
    return {"session_timeout_ms": SESSION_TIMEOUT_MS}


def test_messages_expire_on_time_on_every_replica(cluster: Nodes) -> None:
    """T4, T5, T7: queue TTL and expiration, the lower wins; nobody looks, and they are gone on all nodes."""
    with channel(cluster, 1) as declaring:
        declaring.queue_declare("ttl", durable=True, arguments={"x-message-ttl": 2500})

    def prompt(expiration: str, ttl_s: float, _: int) -> bool:
        """Whether 20 messages expire soon after their deadline on all nodes; before it, that is a failure."""
        before = expired(cluster, 1, "ttl")
        wait_for(lambda: all(expired(cluster, id, "ttl") == before for id in cluster.ids), "the same on all nodes")
        began_s = time.monotonic()
        publish_all(cluster, 2, "ttl", [b"%d" % number for number in range(20)], expiration=expiration)
        after_s = time.monotonic()
        late: list[float] = []
        for id in cluster.ids:
            wait_for_each([id], lambda id: expired(cluster, id, "ttl") > before, "deaths")
            at_s = time.monotonic()
            assert at_s >= began_s + ttl_s, f"early at node {id} by {began_s + ttl_s - at_s:.3f} s"
            late.append(at_s - after_s - ttl_s)
        wait_for_each(cluster.ids, lambda id: expired(cluster, id, "ttl") == before + 20, "all deaths")
        assert [cluster.ready(id, "ttl") for id in cluster.ids] == [0] * len(cluster.ids)
        return max(late) <= PROMPT_S

    for expiration, ttl_s in (("60000", 2.5), ("700", 0.7)):
        until_judged(partial(prompt, expiration, ttl_s), "messages that expire promptly", ROUNDS)


def test_a_message_is_there_until_its_deadline(cluster: Nodes) -> None:
    """T5, without the slack of the expiry tick: what is asked for shortly before the deadline is given."""
    with channel(cluster, 1) as declaring:
        declaring.queue_declare("early", durable=True)

    def in_time(round: int) -> bool:
        ttl_s = 0.6 * 1.2**round  # the busier the machine, the longer it takes to be asked in time
        with channel(cluster, 1 + (round + 1) % 3) as asking:
            before_s = time.monotonic()
            publish_all(cluster, 1 + round % 3, "early", [b"0 in time"], expiration=str(int(1000 * ttl_s) + 1))
            wait_until_s(before_s + ttl_s * 5 / 6)
            _, _, body = asking.basic_get("early", auto_ack=True)
            answered_s = time.monotonic()
        if answered_s >= before_s + ttl_s:
            return False
        assert body == b"0 in time", "expired before its deadline"
        return True

    until_judged(in_time, "answers just before the deadline", rounds=20, times=3)


def test_an_expired_message_is_not_delivered_late(cluster: Nodes) -> None:
    """T5, T6: what a consumer of any node gets is younger than its TTL when the delivery is decided."""
    with channel(cluster, 1) as declaring:
        declaring.queue_declare("late", durable=True)

    def led_by_the_same(id: int, _: int) -> bool:
        """Whether one leader's clock has told of all of it: the next one's may be somewhat behind."""
        before = term_of(cluster, "late")
        published_s = time.monotonic()
        publish_all(cluster, 1, "late", [b"0 short"] * 5, expiration="400")
        confirmed_s = time.monotonic()
        publish_all(cluster, 1, "late", [b"1 lasting"])
        # The moment at which all deadlines have passed: only what lives may come from now on.
        wait_until_s(confirmed_s + 0.4)
        consumer = Consumer(cluster, id, "late").begin()
        wait_for(lambda: b"1 lasting" in [each.body for each in consumer.deliveries] or consumer.error, "what lives")
        consumer.finish()
        if term_of(cluster, "late") != before:
            return False
        assert [delivery.body for delivery in consumer.deliveries] == [b"1 lasting"], published_s
        return True

    for id in cluster.ids:
        until_judged(partial(led_by_the_same, id), "a leader that stays", rounds=20)


def term_of(nodes: Nodes, name: str) -> int:
    """The term of the queue's shard, as the node has it that is ahead: another one has another leader."""
    shard = (nodes.queue(1, name) or {})["shard"]
    return max(int(nodes.groups(id)[shard]["term"]) for id in nodes.ids)


def death_of(delivery: Any) -> dict[str, Any]:
    deaths = delivery.headers["x-death"]
    assert len(deaths) == 1, deaths
    return dict(deaths[0])


def test_dead_letters_tell_their_story_across_nodes(cluster: Nodes) -> None:
    """T7, D3, D4, D7: expired and rejected, source led by one node, target by another, consumer on the third."""
    with channel(cluster, 1) as declaring:
        declaring.exchange_declare("time-dlx", exchange_type="direct", durable=True)
        dead = declare_led_by(cluster, declaring, "time-dead", lambda leader: leader == 2)
        declaring.queue_bind(dead, "time-dlx", "died")
        arguments = {"x-dead-letter-exchange": "time-dlx", "x-dead-letter-routing-key": "died"}
        source = declare_led_by(cluster, declaring, "time-source", lambda leader: leader == 1, arguments)
        consumer = Consumer(cluster, 3, dead).begin()
        before_s = time.monotonic()
        publish_all(cluster, 3, source, [b"%d" % number for number in range(50)], expiration="800")
        consumer.until_received(50)
        assert consumer.numbers == list(range(50))
        for delivery in consumer.deliveries:
            assert before_s + 0.8 <= delivery.at_s
            death = death_of(delivery)
            at = death.pop("time")
            age_s = abs((datetime.now(UTC) - at.replace(tzinfo=UTC)).total_seconds())
            assert age_s < 5 * BOUND_S
            assert death == {
                "count": 1, "reason": "expired", "queue": source, "exchange": "", "routing-keys": [source],
                "original-expiration": "800",
            }  # fmt: skip
            for when in ("first", "last"):
                told = {key: delivery.headers[f"x-{when}-death-{key}"] for key in ("reason", "queue", "exchange")}
                assert told == {"reason": "expired", "queue": source, "exchange": ""}
        publish_all(cluster, 2, source, [b"%d" % number for number in range(50, 60)])
        with channel(cluster, 3) as rejecting:
            for method, _, _ in rejecting.consume(source, inactivity_timeout=BOUND_S):
                assert method is not None
                rejecting.basic_reject(method.delivery_tag, requeue=False)
                if method.delivery_tag == 10:
                    break
            consumer.until_received(60)
        assert [death_of(delivery)["reason"] for delivery in consumer.deliveries[50:]] == ["rejected"] * 10
        assert consumer.numbers == list(range(60))
        consumer.finish()


def test_a_lease_keeps_its_time_though_its_leader_dies(whole: Nodes) -> None:
    """L4, L6, L10: deleted not before the period has passed, promptly after, bindings and all."""

    def prompt(round: int) -> bool:
        lease_s = 4.0 * (1 + round)  # the busier the machine, the longer it takes to get there
        whole.heal()
        with channel(whole, 1) as declaring:
            name = declare_led_by(whole, declaring, f"lease-{round}", lambda leader: leader == 3)
            declaring.exchange_declare("to-lease", exchange_type="fanout")
            declaring.queue_bind(name, "to-lease")
            # Only now: however long it took to get there, the lease begins with the change (L9).
            leased_s = time.monotonic()
            put_policy(whole, 1, f"lease-{round}", f"^{name}$", {"expires": int(lease_s * 1000)})
            wait_for(lambda: (whole.queue(1, name) or {"lease": True}).get("lease"), "a lease, or its end")
            used_s = time.monotonic()
            try:
                declaring.queue_declare(name, passive=True)
            except pika.exceptions.ChannelClosedByBroker:
                assert time.monotonic() >= leased_s + lease_s, "gone early"
                return False
            answered_at = datetime.now(UTC)
        # Publishing does not renew (L2).
        publish_all(whole, 2, name, [b"0 left behind"])
        wait_until_s(used_s + lease_s / 2)
        whole.kill(3)
        for id in (1, 2):
            wait_for_each([id], lambda id: whole.queue(id, name) is None, "the end of the lease")
            assert time.monotonic() >= used_s + lease_s, f"early at node {id}"
        end = end_of(whole, name)
        assert end.last_use == "declared"
        assert end.last_use_at <= answered_at + CLOCKS_DIFFER_BY, "the next leader has renewed it"
        assert end.unused_s >= lease_s
        with channel(whole, 1, confirms=True) as after, pytest.raises(pika.exceptions.UnroutableError):
            after.basic_publish("to-lease", "", b"", mandatory=True)
        with channel(whole, 2) as after:
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
                after.queue_declare(name, passive=True)
            assert refused.value.reply_code == 404
        # Time without a leader is not charged (L7): that may add a little.
        return end.unused_s <= lease_s + LEADERLESS_S + PROMPT_S

    until_judged(prompt, "a lease that ends promptly", ROUNDS)


def test_a_consumer_suspends_the_lease_until_its_node_dies(whole: Nodes) -> None:
    """L3: no deletion while it is there; the full period once its node is known to be gone."""
    lease_s = 1.5
    with channel(whole, 1) as declaring:
        name = declare_led_by(whole, declaring, "suspended", lambda leader: leader == 1)
    consumer = Consumer(whole, 3, name, acknowledge=False).begin()
    publish_all(whole, 2, name, [b"0 held"])
    consumer.until_received(1)
    # Only now: however long it took to get there, the lease begins with the change (L9).
    put_policy(whole, 1, "suspended", f"^{name}$", {"expires": int(lease_s * 1000)})
    wait_for(lambda: (whole.queue(1, name) or {}).get("policy") == "suspended", "the policy")
    leased_s = time.monotonic()
    while time.monotonic() < leased_s + 2 * lease_s:
        assert whole.queue(2, name) is not None, "deleted under its consumer"
        time.sleep(0.02)
    killed_at = datetime.now(UTC)
    killed_s = whole.kill(3)
    consumer.abandon()
    wait_for(lambda: whole.queue(1, name) is None, "the end of the lease")
    assert time.monotonic() >= killed_s + lease_s
    end = end_of(whole, name)
    assert end.last_use == "the last consumer left" and end.last_use_at >= killed_at - CLOCKS_DIFFER_BY
    assert end.unused_s >= lease_s
    assert end.messages == 1, "what the dead node's consumer held"
    assert ask(whole, 1, "DELETE", "policies/%2F/suspended")[0] == 204


def test_an_outage_longer_than_the_lease_is_not_charged_and_ttl_goes_on(whole: Nodes) -> None:
    """L7, T14, D6: nodes down longer than the lease and than a TTL; the queue is still there, the message is not."""
    until_judged(lambda round: outage(whole, round), "messages that died while no node ran", ROUNDS)


def outage(nodes: Nodes, round: int) -> bool:
    """Whether the nodes were killed before a message was due."""
    lease_s, ttl_s = 4.0 * (1 + round), 1.5 * (1 + round)  # the busier the machine, the longer it takes to get there
    leased, source, dead = (f"outage-{what}-{round}" for what in ("lease", "source", "dead"))
    with channel(nodes, 1) as declaring, channel(nodes, 2) as renewing:
        declaring.queue_declare(leased, durable=True, arguments={"x-expires": int(lease_s * 1000)})
        declaring.queue_declare(dead, durable=True)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
        declaring.queue_declare(source, durable=True, arguments=arguments)
        began_s = time.monotonic()
        bodies = [b"%d" % number for number in range(20)]
        publish_all(nodes, 1, source, bodies, expiration=str(int(ttl_s * 1000)))
        declared_s = time.monotonic()
        renewing.queue_declare(leased, durable=True, arguments={"x-expires": int(lease_s * 1000)})
        renewing_s = time.monotonic()
        try:
            renewing.queue_declare(leased, passive=True)
        except pika.exceptions.ChannelClosedByBroker:
            assert time.monotonic() >= declared_s + lease_s, "gone early"
            return False
    nodes.kill(*nodes.ids)
    killed_s = time.monotonic()
    wait_until_s(killed_s + lease_s + 1.0)
    started_s = time.monotonic()
    nodes.start()
    nodes.until_serving()
    if killed_s >= renewing_s + lease_s:
        return False  # it may have been gone by then
    wait_for(lambda: nodes.ready(1, dead) == 20, "the messages that died during the outage")
    wait_for(lambda: all(nodes.ready(id, source) == 0 for id in nodes.ids), "an empty source")
    nodes.until_nowhere(leased)
    charged_at_most_s = killed_s - renewing_s
    assert time.monotonic() >= started_s + lease_s - charged_at_most_s
    # Unused all the time, but the lease stood still while no node ran.
    unused_s = lease_s + started_s - killed_s
    assert end_of(nodes, leased).unused_s >= unused_s - CLOCKS_DIFFER_BY.total_seconds()
    assert [body for body, _ in drain(nodes, 3, dead)] == bodies
    return killed_s < began_s + ttl_s


@pytest.mark.parametrize("victim", ["source", "target"])
def test_dead_letters_arrive_once_though_leaders_die(whole: Nodes, victim: str) -> None:
    """D6, D7: 5 000 messages expire while the source's or the target's leader is killed in the middle."""
    count = 5000
    with channel(whole, 1) as declaring:
        source_leader, target_leader = (3, 2) if victim == "source" else (2, 3)
        dead = declare_led_by(whole, declaring, f"once-dead-{victim}", lambda leader: leader == target_leader)
        arguments = {"x-message-ttl": 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
        source = declare_led_by(
            whole, declaring, f"once-source-{victim}", lambda leader: leader == source_leader, arguments
        )
    consumer = Consumer(whole, 1, dead, prefetch=500).begin()
    publisher = Publisher(whole, 2, source, count=count, rate=1500, window=300)
    publisher.start()
    consumer.until_received(count // 5)
    wait_for(lambda: whole.leader_of(source) == source_leader, f"the source led by node {source_leader}")
    wait_for(lambda: whole.leader_of(dead) == target_leader, f"the target led by node {target_leader}")
    whole.kill(3)
    publisher.join(5 * BOUND_S)
    publisher.finish()
    assert len(publisher.confirmed) == count
    consumer.until_received(count, 5 * BOUND_S)
    # A second copy would be behind the last one: an empty source, an empty outbox, an empty target.
    wait_for(lambda: whole.ready(1, source) == 0, "the end of the source's messages")
    wait_for(lambda: whole.status(1)["queues"]["outbox"] == 0, "an empty outbox")
    wait_for(lambda: whole.status(1)["queues"]["unacknowledged"] == 0, "the last acknowledgement")
    wait_for(lambda: whole.ready(1, dead) == 0, "an empty target")
    consumer.finish()
    assert len(consumer.numbers) == len(set(consumer.numbers)) == count
    assert consumer.numbers == list(range(count)), "dead letters overtook one another"
    assert not any(delivery.redelivered for delivery in consumer.deliveries)
    assert all(death_of(delivery)["count"] == 1 for delivery in consumer.deliveries)


def test_s3_what_waits_comes_once_and_never_early_though_the_leader_dies(whole: Nodes) -> None:
    """S2, S3: the leader is killed while 120 messages wait for their time."""
    arguments = {"x-allow-schedule": True}
    with channel(whole, 1) as declaring:
        awaited = declare_led_by(whole, declaring, "awaited", lambda leader: leader == 3, arguments)
    delays_ms = (1_000, 3_000, 6_000, 8_000)
    before_s: list[float] = []
    for batch, delay_ms in enumerate(delays_ms):
        before_s.append(time.monotonic())
        bodies = [b"%d" % (batch * 40 + number) for number in range(40)]
        publish_all(whole, 2, awaited, bodies, headers={"x-delay": delay_ms})
    consumer = Consumer(whole, 1, awaited).begin()
    consumer.until_received(40)
    whole.kill(3)
    consumer.until_received(160)
    consumer.finish()
    assert sorted(consumer.numbers) == list(range(160)), "each once"
    for delivery in consumer.deliveries:
        batch = delivery.number // 40
        assert delivery.at_s >= before_s[batch] + delays_ms[batch] / 1000, "early"


def test_t5_deadlines_hold_though_the_leader_dies(whole: Nodes) -> None:
    """T4, T5, T6, T7: the leader is killed between the deadlines of 200 messages: none dies early, and none is given to
    a consumer that comes when its deadline has passed."""
    with channel(whole, 1) as declaring:
        dead = declare_led_by(whole, declaring, "held-dead", lambda leader: leader != 3)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
        source = declare_led_by(whole, declaring, "held", lambda leader: leader == 3, arguments)
    consumer = Consumer(whole, 1, dead).begin()
    # Each batch has a deadline of its own; the later, the longer.
    before_s: dict[int, float] = {}
    after_s: dict[int, float] = {}
    ttls_ms = (2_000, 3_000, 4_000, 10_000, 60_000)
    for batch, ttl_ms in enumerate(ttls_ms):
        before_s[batch] = time.monotonic()
        bodies = [b"%d" % (batch * 40 + number) for number in range(40)]
        publish_all(whole, 2, source, bodies, expiration=str(ttl_ms))
        after_s[batch] = time.monotonic()
    consumer.until_received(40)
    whole.kill(3)
    # Once the third deadline has passed, by the next leader's clock as well, only what lives may come.
    wait_until_s(after_s[2] + ttls_ms[2] / 1000 + CLOCK_LAGS_S)
    late = Consumer(whole, 2, source, acknowledge=False).begin()
    late.until_received(40)
    late.finish()
    assert min(late.numbers) >= 3 * 40, "given out past its deadline"
    consumer.until_received(4 * 40 - len([number for number in late.numbers if number < 4 * 40]))
    for delivery in consumer.deliveries:
        batch = delivery.number // 40
        assert delivery.at_s >= before_s[batch] + ttls_ms[batch] / 1000, f"message {delivery.number} died early"
    consumer.finish()
