"""Queue TTL: what keeps a queue, what deletes it (RULES L)."""

from mayfly.node.shard import commands
from mayfly.node.shard.commands import (
    ACK,
    REQUEUE,
    encode_create_queue,
    encode_detach,
    encode_expire_queue,
    encode_get,
    encode_settle,
    encode_touch_queue,
)
from mayfly.node.shard.results import Gone, QueueCounts
from mayfly.node.shard.settings import ShardQueueSettings
from tests.node.shard.driver import A, Close, Driver, attach, publish, update_queue


def leased(expires_ms: int = 1000, **settings: object) -> Driver:
    """A driver with queue 1 on a lease."""
    driver = Driver()
    driver.create(1, expires_ms=expires_ms, **settings)
    return driver


def ends_in_a_period(driver: Driver) -> None:
    """The lease of ``leased`` has begun anew just now: the queue goes when it is over, and not before."""
    driver.pass_ms(999)
    driver.tick()
    assert driver.exists(1)
    driver.pass_ms(1)
    driver.tick()
    assert not driver.exists(1)


def test_l2_an_idle_queue_goes_at_the_end_of_the_period_and_not_before() -> None:
    """RULES L2, L4."""
    driver = leased()
    assert driver.shard.next_lease_due_ms() == driver.led_ms + 1000
    ends_in_a_period(driver)
    assert driver.shard.next_lease_due_ms() == -1


def test_l2_publishing_does_not_renew() -> None:
    """RULES L2."""
    driver = leased()
    for _ in range(4):
        driver.pass_ms(250)
        driver.run(publish("m", 1))
        driver.tick()
    assert not driver.exists(1)


def test_l2_declare_active_and_passive_and_get_renew() -> None:
    """RULES L2: a get on an empty queue too; each use gives the full period."""
    for use in (
        encode_touch_queue(1),
        encode_create_queue(1, ShardQueueSettings(name="q1", expires_ms=1000)),
        encode_get(1, 99, True),
        encode_get(1, 99, False),
    ):
        driver = leased()
        for _ in range(5):
            driver.pass_ms(999)
            driver.tick()
            driver.run(use)
        assert driver.exists(1)
        ends_in_a_period(driver)


def test_l2_a_leader_making_sure_of_a_queue_does_not_renew() -> None:
    """RULES L2: reconciliation with the catalog is no use by a client."""
    driver = leased()
    driver.pass_ms(999)
    driver.run(encode_create_queue(1, ShardQueueSettings(name="q1", expires_ms=1000)), session=None)
    driver.pass_ms(1)
    driver.tick()
    assert not driver.exists(1)


def test_l3_a_consumer_suspends_and_its_going_starts_the_full_period() -> None:
    """RULES L3: cancel, channel close, loss of the node."""
    for going in ("cancel", "channel", "node"):
        driver = leased()
        driver.pass_ms(900)
        driver.run(attach(1, 5), attach(1, 6))
        driver.pass_ms(50_000)
        driver.tick()
        driver.run(encode_detach(1, 6, True))
        driver.pass_ms(50_000)
        driver.tick()
        assert driver.exists(1)
        if going == "node":
            driver.entry(Close(A))
        else:
            driver.run(encode_detach(1, 5, going == "channel"))
        driver.pass_ms(999)
        driver.tick()
        assert driver.exists(1), going
        driver.pass_ms(1)
        driver.tick()
        assert not driver.exists(1), going


def test_l3_what_a_cancelled_consumer_holds_keeps_the_lease_suspended() -> None:
    """RULES L3: until the last of it is settled; then the full period."""
    for settled in (
        encode_settle(1, 5, ACK, [2]),
        encode_settle(1, 5, REQUEUE, [2]),
        encode_detach(1, 5, True),
    ):
        driver = leased()
        driver.run(attach(1, 5), publish("a", 1), publish("b", 1))
        driver.run(encode_detach(1, 5, False))
        driver.run(encode_settle(1, 5, ACK, [1]))
        driver.pass_ms(90_000)
        driver.tick()
        assert driver.exists(1)
        driver.run(settled)
        ends_in_a_period(driver)


def test_l3_what_was_got_and_not_acknowledged_is_no_use() -> None:
    """RULES L2, L3: only consumers suspend; a late settlement of what is gone does no harm."""
    driver = leased()
    driver.run(publish("m", 1))
    assert driver.get(1, no_ack=False) == "m"
    driver.pass_ms(1000)
    driver.tick()
    assert not driver.exists(1)
    driver.run(encode_settle(1, 99, ACK, [1]), encode_detach(1, 99, True))
    assert list(driver.shard.live_entries()) == []


def test_l4_messages_go_with_the_queue_and_are_not_dead_lettered() -> None:
    """RULES L4, T13: ready and held ones; their entries are released, no timer stays."""
    driver = leased(dead_letter_exchange="dlx")
    driver.run(*(publish("m", 1, ttl_ms=9000) for _ in range(3)))
    driver.get(1, no_ack=False)
    driver.pass_ms(1000)
    driver.tick()
    assert driver.shard.unrouted(9) == []
    assert list(driver.shard.live_entries()) == []
    assert driver.shard.next_message_due_ms() == -1
    assert driver.shard.deleted[1].messages == 3


def test_l5_every_renewal_makes_an_earlier_decision_void() -> None:
    """RULES L5: a decision that was on its way when the queue was used is a no-op, even if the period is
    over.
    """
    for use in (encode_touch_queue(1), encode_get(1, 99, True), attach(1, 5)):
        driver = leased()
        driver.pass_ms(1000)
        ((queue_id, epoch),) = driver.shard.due_leases(driver.led_ms)
        driver.run(use)
        driver.pass_ms(5000)
        driver.lead(encode_expire_queue(queue_id, epoch))
        assert driver.exists(1)
    driver.run(encode_detach(1, 5, True))
    driver.pass_ms(5000)
    driver.lead(encode_expire_queue(queue_id, epoch))
    assert driver.exists(1)


def test_l5_a_decision_before_its_time_or_during_a_consumer_is_void() -> None:
    """RULES L4, L5: the state machine believes no ticker."""
    driver = leased()
    driver.pass_ms(999)
    driver.lead(encode_expire_queue(1, 1))
    assert driver.exists(1)
    driver.run(attach(1, 5))
    driver.pass_ms(5000)
    for epoch in range(5):
        driver.lead(encode_expire_queue(1, epoch))
    assert driver.exists(1)
    driver.create(2)
    driver.lead(*(encode_expire_queue(2, epoch) for epoch in range(5)), encode_expire_queue(77, 1))
    assert driver.exists(2)


def test_l5_use_and_decision_in_one_entry_are_applied_in_order() -> None:
    """RULES L5: first come, first served; the later one sees what the earlier did."""
    driver = leased()
    driver.pass_ms(1000)
    driver.entry((A, attach(1, 5)), (None, encode_expire_queue(1, 1)))
    assert driver.exists(1)
    driver = leased()
    driver.pass_ms(1000)
    (answer,) = driver.entry((None, encode_expire_queue(1, 1)), (A, attach(1, 5)))
    assert isinstance(answer, Gone)
    assert answer.reason == "expired"


def test_l6_a_snapshot_neither_resets_nor_shortens_a_lease() -> None:
    """RULES L6: the new leader's ticker sees the same lease."""
    driver = leased()
    driver.pass_ms(600)
    driver.shard.restore(driver.shard.snapshot())
    assert driver.shard.due_leases(driver.led_ms + 399) == []
    assert driver.shard.due_leases(driver.led_ms + 400) == [(1, 1)]


def test_l7_l8_only_led_time_is_charged() -> None:
    """RULES L7, L8: shard time may leap by hours, the lease stays."""
    driver = leased()
    driver.time_ms += 5 * 3_600_000
    driver.tick()
    driver.lead(encode_expire_queue(1, 1))
    assert driver.exists(1)
    driver.led_ms += 1000
    driver.tick()
    assert not driver.exists(1)


def test_l9_a_policy_resets_the_lease_only_if_expires_changed() -> None:
    """RULES L9."""
    driver = leased()
    driver.pass_ms(900)
    same = ShardQueueSettings(name="q1", expires_ms=1000, message_ttl_ms=7)
    driver.lead(update_queue(1, same))
    assert driver.shard.next_lease_due_ms() == driver.led_ms + 100
    longer = ShardQueueSettings(name="q1", expires_ms=2000, message_ttl_ms=7)
    driver.lead(update_queue(1, longer))
    assert driver.shard.next_lease_due_ms() == driver.led_ms + 2000
    driver.lead(update_queue(1, ShardQueueSettings(name="q1")))
    assert driver.shard.next_lease_due_ms() == -1
    driver.run(attach(1, 5))
    driver.lead(update_queue(1, longer))
    assert driver.shard.next_lease_due_ms() == -1
    driver.run(encode_detach(1, 5, False))
    assert driver.shard.next_lease_due_ms() == driver.led_ms + 2000


def test_l10_an_expired_queue_leaves_a_tombstone() -> None:
    """RULES L10: reason, last activity and name for the event; every use is answered with it until it is
    forgotten.
    """
    driver = leased()
    driver.pass_ms(300)
    driver.run(encode_touch_queue(1))
    used = driver.time_ms
    driver.pass_ms(1000)
    driver.tick()
    tombstone = driver.shard.deleted[1]
    assert (tombstone.reason, tombstone.last_activity_ms, tombstone.time_ms) == (
        "expired",
        used,
        driver.time_ms,
    )
    assert (tombstone.vhost, tombstone.name) == ("/", "q1")
    answers = driver.run(
        encode_touch_queue(1),
        encode_get(1, 99, True),
        attach(1, 5),
        commands.encode_purge(1),
        commands.encode_delete_queue(1, False, False),
        encode_create_queue(1, ShardQueueSettings(name="q1")),
    )
    assert [answer.reason for answer in answers if isinstance(answer, Gone)] == ["expired"] * 6
    driver.lead(commands.encode_forget_deleted([1, 55]))
    assert driver.shard.deleted == {}
    (answer,) = driver.run(encode_touch_queue(1))
    assert isinstance(answer, Gone)
    assert answer.reason == ""
    (created,) = driver.run(encode_create_queue(1, ShardQueueSettings(name="q1")))
    assert isinstance(created, QueueCounts)
    assert created.created


def test_l_many_leases_come_due_in_order_and_within_the_limit() -> None:
    """RULES L6: by deadline, then by queue; asking changes nothing."""
    driver = Driver()
    for queue_id in range(1, 40):
        driver.create(queue_id, expires_ms=1000 + queue_id % 3)
    wanted = sorted(range(1, 40), key=lambda queue_id: (queue_id % 3, queue_id))
    for _ in range(2):
        assert [due[0] for due in driver.shard.due_leases(driver.led_ms + 1001, 20)] == wanted[:20]
        assert [due[0] for due in driver.shard.due_leases(driver.led_ms + 1002)] == wanted
    for queue_id in range(2, 40):
        driver.run(encode_touch_queue(queue_id))
    driver.pass_ms(1)
    for queue_id in range(2, 40):
        driver.run(encode_touch_queue(queue_id))
    assert driver.shard.due_leases(driver.led_ms + 1000) == [(1, 1), *((q, 3) for q in range(3, 40, 3))]


def test_l_a_lease_timer_is_one_entry_however_often_it_is_renewed() -> None:
    """RULES L, T13: renewals leave nothing behind."""
    driver = leased()
    for _ in range(1000):
        driver.pass_ms(1)
        driver.run(encode_touch_queue(1))
    timers = driver.shard._state.lease_timers
    assert (len(timers.due), len(timers.heap)) == (1, 1)
