"""Message TTL, dead-lettering and leases over real nodes that die."""

import time
from datetime import UTC, datetime
from typing import Any

import pika
import pytest

from tests.integration.clients import Consumer, Publisher, channel, declare_led_by, drain, publish_all
from tests.integration.nodes import Nodes, wait_for, wait_until_s

pytestmark = [pytest.mark.processes]

# The expiry tick is 250 ms; the rest is for a busy machine.
PROMPT_S = 1.25
SESSION_TIMEOUT_MS = 1500


@pytest.fixture(scope="module")
def settings() -> dict[str, object]:
    return {"session_timeout_ms": SESSION_TIMEOUT_MS}


def test_messages_expire_on_time_on_every_replica(cluster: Nodes) -> None:
    """T4, T5, T7: queue TTL and expiration, the lower wins; nobody looks, and they are gone on all nodes."""
    with channel(cluster, 1) as declaring:
        declaring.queue_declare("ttl", durable=True, arguments={"x-message-ttl": 1500})
    for expiration, ttl_s in (("60000", 1.5), ("700", 0.7)):
        before_s = time.monotonic()
        publish_all(cluster, 2, "ttl", [b"%d" % number for number in range(20)], expiration=expiration)
        after_s = time.monotonic()
        wait_for(lambda: cluster.ready(3, "ttl") == 20, "the messages at node 3")
        gone_s: dict[int, float] = {}
        while len(gone_s) < 3:
            asked_s = time.monotonic()
            assert asked_s < after_s + ttl_s + 10, "messages do not expire"
            for id in cluster.ids:
                if id not in gone_s and cluster.ready(id, "ttl") < 20:
                    gone_s[id] = time.monotonic()
            time.sleep(0.01)
        for id, at_s in gone_s.items():
            assert at_s >= before_s + ttl_s, f"early at node {id} by {before_s + ttl_s - at_s:.3f} s"
            assert at_s <= after_s + ttl_s + PROMPT_S, f"late at node {id} by {at_s - after_s - ttl_s:.3f} s"
        wait_for(lambda: all(cluster.ready(id, "ttl") == 0 for id in cluster.ids), "the end of the last messages", 2)


def test_a_message_is_there_until_its_deadline(cluster: Nodes) -> None:
    """T5, without the slack of the expiry tick: what is asked for shortly before the deadline is given."""
    with channel(cluster, 1) as declaring:
        declaring.queue_declare("early", durable=True)
    judged = 0
    for round in range(12):
        before_s = time.monotonic()
        publish_all(cluster, 1 + round % 3, "early", [b"0 in time"], expiration="600")
        with channel(cluster, 1 + (round + 1) % 3) as asking:
            wait_until_s(before_s + 0.5)
            _, _, body = asking.basic_get("early", auto_ack=True)
        if time.monotonic() < before_s + 0.6:
            assert body == b"0 in time", "expired before its deadline"
            judged += 1
        if judged == 3:
            return
    raise AssertionError("this machine was too slow to ask in time")


def test_an_expired_message_is_not_delivered_late(cluster: Nodes) -> None:
    """T5, T6: what a consumer of any node gets is younger than its TTL when the delivery is decided."""
    with channel(cluster, 1) as declaring:
        declaring.queue_declare("late", durable=True)
    for id in cluster.ids:
        published_s = time.monotonic()
        publish_all(cluster, 1, "late", [b"0 short"] * 5, expiration="400")
        confirmed_s = time.monotonic()
        publish_all(cluster, 1, "late", [b"1 lasting"])
        # The moment at which all deadlines have passed: only what lives may come from now on.
        wait_until_s(confirmed_s + 0.4)
        consumer = Consumer(cluster, id, "late").begin()
        consumer.until_received(1)
        consumer.finish()
        assert [delivery.body for delivery in consumer.deliveries] == [b"1 lasting"], published_s


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
        after_s = time.monotonic()
        consumer.until_received(50)
        assert consumer.numbers == list(range(50))
        for delivery in consumer.deliveries:
            assert before_s + 0.8 <= delivery.at_s <= after_s + 0.8 + PROMPT_S
            death = death_of(delivery)
            at = death.pop("time")
            age_s = abs((datetime.now(UTC) - at.replace(tzinfo=UTC)).total_seconds())
            assert age_s < 30
            assert death == {
                "count": 1, "reason": "expired", "queue": source, "exchange": "", "routing-keys": [source],
                "original-expiration": "800",
            }  # fmt: skip
            for when in ("first", "last"):
                told = {key: delivery.headers[f"x-{when}-death-{key}"] for key in ("reason", "queue", "exchange")}
                assert told == {"reason": "expired", "queue": source, "exchange": ""}
        publish_all(cluster, 2, source, [b"%d" % number for number in range(50, 60)])
        with channel(cluster, 3) as rejecting:
            for method, _, _ in rejecting.consume(source, inactivity_timeout=10):
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
    lease_s = 4.0
    with channel(whole, 1) as declaring:
        arguments = {"x-expires": int(lease_s * 1000)}
        name = declare_led_by(whole, declaring, "lease", lambda leader: leader == 3, arguments)
        declaring.exchange_declare("to-lease", exchange_type="fanout")
        declaring.queue_bind(name, "to-lease")
        used_s = time.monotonic()
        declaring.queue_declare(name, passive=True)
        answered_s = time.monotonic()
    # Publishing does not renew (L2).
    publish_all(whole, 2, name, [b"0 left behind"])
    wait_until_s(used_s + lease_s / 2)
    whole.kill(3)
    gone_s: dict[int, float] = {}
    while len(gone_s) < 2:
        assert time.monotonic() < answered_s + lease_s + 15, "the lease does not end"
        for id in (1, 2):
            if id not in gone_s and whole.queue(id, name) is None:
                gone_s[id] = time.monotonic()
        time.sleep(0.01)
    # Time without a leader is not charged (L7): that may add a little.
    for at_s in gone_s.values():
        assert used_s + lease_s <= at_s <= answered_s + lease_s + 1.0 + PROMPT_S
    with channel(whole, 1, confirms=True) as after, pytest.raises(pika.exceptions.UnroutableError):
        after.basic_publish("to-lease", "", b"", mandatory=True)
    with channel(whole, 2) as after:
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            after.queue_declare(name, passive=True)
        assert refused.value.reply_code == 404


def test_a_consumer_suspends_the_lease_until_its_node_dies(whole: Nodes) -> None:
    """L3: no deletion while it is there; the full period once its node is known to be gone."""
    lease_s = 1.5
    with channel(whole, 1) as declaring:
        arguments = {"x-expires": int(lease_s * 1000)}
        name = declare_led_by(whole, declaring, "suspended", lambda leader: leader == 1, arguments)
    consumer = Consumer(whole, 3, name, acknowledge=False).begin()
    attached_s = time.monotonic()
    publish_all(whole, 2, name, [b"0 held"])
    consumer.until_received(1)
    while time.monotonic() < attached_s + 2 * lease_s:
        assert whole.queue(2, name) is not None, "deleted under its consumer"
        time.sleep(0.02)
    killed_s = whole.kill(3)
    consumer.abandon()
    back_s = killed_s + wait_for(lambda: whole.ready(1, name) == 1, "what the dead node's consumer held", 10)
    wait_for(lambda: whole.queue(1, name) is None, "the end of the lease", lease_s + 5)
    gone_s = time.monotonic()
    assert gone_s >= killed_s + lease_s
    assert back_s - killed_s <= SESSION_TIMEOUT_MS / 1000 + 2.5
    assert back_s + lease_s - 0.3 <= gone_s <= back_s + lease_s + PROMPT_S


def test_an_outage_longer_than_the_lease_is_not_charged_and_ttl_goes_on(whole: Nodes) -> None:
    """L7, T14, D6: nodes down longer than the lease and than a TTL; the queue is still there, the message is not."""
    lease_s, ttl_ms = 4.0, 1500
    with channel(whole, 1) as declaring:
        declaring.queue_declare("outage-lease", durable=True, arguments={"x-expires": int(lease_s * 1000)})
        declaring.queue_declare("outage-dead", durable=True)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "outage-dead"}
        declaring.queue_declare("outage-source", durable=True, arguments=arguments)
    publish_all(whole, 1, "outage-source", [b"%d" % number for number in range(20)], expiration=str(ttl_ms))
    published_s = time.monotonic()
    with channel(whole, 2) as renewing:
        renewing.queue_declare("outage-lease", passive=True)
    renewed_s = time.monotonic()
    killed_s = whole.kill(*whole.ids)
    assert killed_s - published_s < ttl_ms / 1000
    wait_until_s(renewed_s + lease_s + 1.0)
    started_s = time.monotonic()
    whole.start()
    whole.until_serving()
    serving_s = time.monotonic()
    wait_for(lambda: whole.ready(1, "outage-dead") == 20, "the messages that died during the outage", PROMPT_S + 1)
    assert whole.ready(2, "outage-source") in (0, 20)
    wait_for(lambda: whole.queue(3, "outage-lease") is not None, "the leased queue", 1)
    wait_for(lambda: whole.queue(3, "outage-lease") is None, "the end of the lease", lease_s + 10)
    gone_s = time.monotonic()
    charged_at_most_s = killed_s - renewed_s + 0.05
    assert gone_s >= started_s + lease_s - charged_at_most_s
    assert gone_s <= serving_s + lease_s + PROMPT_S + 1.0
    bodies = [int(body) for body, _ in drain(whole, 3, "outage-dead")]
    assert bodies == list(range(20))


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
    assert whole.leader_of(source) == source_leader
    assert whole.leader_of(dead) == target_leader
    whole.kill(3)
    publisher.join(60)
    publisher.finish()
    assert len(publisher.confirmed) == count
    consumer.until_received(count, 60)
    # A second copy would be behind the last one: an empty source, an empty outbox, an empty target.
    wait_for(lambda: whole.ready(1, source) == 0, "the end of the source's messages")
    wait_for(lambda: whole.status(1)["queues"]["outbox"] == 0, "an empty outbox")
    wait_for(lambda: whole.status(1)["queues"]["unacknowledged"] == 0, "the last acknowledgement")
    assert whole.ready(1, dead) == 0
    consumer.finish()
    assert len(consumer.numbers) == len(set(consumer.numbers)) == count
    assert consumer.numbers == list(range(count)), "dead letters overtook one another"
    assert not any(delivery.redelivered for delivery in consumer.deliveries)
    assert all(death_of(delivery)["count"] == 1 for delivery in consumer.deliveries)


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
    ttls_ms = (2_000, 3_000, 4_000, 5_000, 30_000)
    for batch, ttl_ms in enumerate(ttls_ms):
        before_s[batch] = time.monotonic()
        bodies = [b"%d" % (batch * 40 + number) for number in range(40)]
        publish_all(whole, 2, source, bodies, expiration=str(ttl_ms))
        after_s[batch] = time.monotonic()
    consumer.until_received(40)
    whole.kill(3)
    # Once the third deadline has passed, only what lives may come.
    wait_until_s(after_s[2] + ttls_ms[2] / 1000)
    late = Consumer(whole, 2, source, acknowledge=False).begin()
    late.until_received(40)
    late.finish()
    assert min(late.numbers) >= 3 * 40, "given out past its deadline"
    consumer.until_received(4 * 40 - len([number for number in late.numbers if number < 4 * 40]))
    for delivery in consumer.deliveries:
        batch = delivery.number // 40
        assert delivery.at_s >= before_s[batch] + ttls_ms[batch] / 1000, f"message {delivery.number} died early"
    consumer.finish()
