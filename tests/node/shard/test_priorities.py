"""Queues with priorities: which message comes first, and what becomes of time, limits, snapshots and dead letters."""

import pytest
from pamqp.commands import Basic

from mayfly.node.shard import commands
from mayfly.node.shard.commands import LetterContent
from mayfly.node.shard.priority import priority_of
from mayfly.node.shard.settings import (
    ShardQueueSettings,
    decode_settings,
    decode_terms,
    encode_settings,
    encode_terms,
)
from mayfly.node.shard.shard import Shard
from mayfly.node.shard.waiting import WaitingIndex
from tests.node.amqp.headers import build_header
from tests.node.shard.driver import B, Driver, attach, encode_transfer, update_queue


def header(priority: int | None, **properties: object) -> bytes:
    return build_header(Basic.Properties(priority=priority, **properties), 1)  # type: ignore[arg-type]


def publish(body: str, priority: int | None, *queue_ids: int, ttl_ms: int = -1) -> bytes:
    parts: list[bytes] = []
    commands.encode_publish(
        parts, queue_ids or (1,), ttl_ms, b"\x00\x01q", header(priority, delivery_mode=2), body.encode()
    )
    return b"".join(parts)


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"content_type": "text/plain"},
        {"content_type": "", "content_encoding": "gzip", "headers": {"a": [1, {"b": "c"}]}, "delivery_mode": 1},
        {"headers": {}, "correlation_id": "7", "expiration": "100"},
    ],
)
@pytest.mark.parametrize("priority", [None, 0, 1, 200, 255])
def test_the_priority_in_a_content_header(properties: dict[str, object], priority: int | None) -> None:
    octets = header(priority, **properties)
    assert priority_of(b"before" + octets + b"\xff" * 20, 6, len(octets)) == (priority or 0)


def test_a_header_cut_off_has_no_priority() -> None:
    octets = header(9, content_type="t", content_encoding="e", headers={"a": "b"}, delivery_mode=2)
    assert [priority_of(octets, 0, length) for length in range(len(octets))] == [0] * len(octets)


def test_the_highest_comes_first_and_in_each_priority_the_oldest() -> None:
    """As RabbitMQ 3.10 does it: above the queue's highest counts as the highest."""
    driver = Driver()
    driver.create(1, max_priority=5)
    sent = (("a", None), ("b", 3), ("c", 9), ("d", 5), ("e", 1), ("f", 3), ("g", 0))
    driver.run(*(publish(body, priority) for body, priority in sent))
    assert driver.drain(1) == ["c", "d", "b", "f", "e", "a", "g"]


def test_queues_without_priorities_look_at_none() -> None:
    driver = Driver()
    driver.create(1)
    driver.create(2, max_priority=1)
    driver.run(*(publish(str(priority), priority, 1, 2) for priority in range(3)))
    assert driver.drain(1) == ["0", "1", "2"]
    assert driver.drain(2) == ["1", "2", "0"]


def test_consumers_get_the_highest_of_what_waits() -> None:
    driver = Driver()
    driver.create(1, max_priority=3)
    driver.run(attach(1, 5, prefetch=2))
    driver.run(publish("a", 0), publish("b", 1), publish("c", 2))
    assert driver.delivered(5) == ["c", "b"]
    driver.run(publish("d", 3))
    driver.run(commands.encode_settle(1, 5, commands.ACK, [1, 2]))
    assert driver.delivered(5) == ["d", "a"]


def test_what_comes_back_is_first_in_its_priority() -> None:
    driver = Driver()
    driver.create(1, max_priority=3, delivery_limit=20)
    driver.run(publish("low", 0), publish("high", 2), publish("higher", 2))
    for _ in range(3):
        driver.get(1, no_ack=False)
    driver.run(publish("new", 2), publish("newer", 1))
    driver.run(commands.encode_settle(1, 99, commands.REQUEUE, [1, 2, 3]))
    assert driver.drain(1) == ["high", "higher", "new", "newer", "low"]
    driver.run(publish("one", 1), publish("two", 2))
    driver.get(1, no_ack=False)
    driver.run(commands.encode_detach(1, 99, True))
    assert driver.drain(1) == ["two", "one"]


def test_t6_expired_heads_leave_in_every_priority() -> None:
    """RULES T6: at the head of their priority band; a live message of a higher one holds nothing up."""
    driver = Driver()
    driver.create(1, max_priority=5, dead_letter_exchange="dlx")
    driver.run(publish("live", 5), publish("early", 1, ttl_ms=50), publish("late", 0, ttl_ms=80))
    driver.run(publish("head", 3), publish("behind", 3, ttl_ms=10))
    assert driver.shard.next_message_due_ms() == driver.time_ms + 50
    driver.pass_ms(60)
    driver.tick()
    assert [driver.body(death.message) for death in driver.shard.unrouted(10)] == ["early"]
    assert driver.shard.next_message_due_ms() == driver.time_ms + 20
    driver.pass_ms(20)
    driver.tick()
    assert [driver.body(death.message) for death in driver.shard.unrouted(10)] == ["early", "late"]
    assert driver.drain(1) == ["live", "head"]
    assert [driver.body(death.message) for death in driver.shard.unrouted(10)] == ["early", "late", "behind"]
    assert driver.shard.next_message_due_ms() == -1


def test_t5_nothing_expired_is_delivered_and_the_bound_of_an_entry_holds_the_order() -> None:
    """RULES T5, C4."""
    driver = Driver(expiries=2)
    driver.create(1, max_priority=2)
    driver.run(*(publish(f"x{n}", 2, ttl_ms=10) for n in range(5)))
    driver.run(publish("high", 2), publish("low", 0))
    driver.pass_ms(10)
    (result,) = driver.run(commands.encode_get(1, 99, True))
    assert result.message is None and result.try_again  # type: ignore[attr-defined]
    while driver.shard.due_messages(driver.time_ms):
        driver.tick()
    assert driver.drain(1) == ["high", "low"]


def test_t12_a_retroactive_ttl_reaches_every_priority() -> None:
    driver = Driver()
    driver.create(1, max_priority=2)
    driver.run(*(publish(str(priority), priority) for priority in range(3)))
    settings = ShardQueueSettings(name="q1", max_priority=2, message_ttl_ms=100, ttl_retroactive=True)
    driver.lead(update_queue(1, settings))
    driver.pass_ms(100)
    driver.tick()
    assert driver.ready(1) == 0 and driver.shard.live_entries() == {}.keys()


def test_drop_head_drops_the_head_of_the_queue() -> None:
    """That is the highest priority, as RabbitMQ documents and does."""
    driver = Driver()
    driver.create(1, max_priority=5, max_length=2)
    driver.run(*(publish(f"{letter}{n}", n) for letter, n in zip("abcd", (0, 3, 5, 1), strict=True)))
    assert driver.drain(1) == ["d1", "a0"]


def test_purge_delete_and_the_end_of_a_lease_take_every_priority() -> None:
    """RULES T13, L4, L11."""
    driver = Driver()
    driver.create(1, max_priority=2)
    driver.create(2, max_priority=2, expires_ms=50, expires_dead_letter=True, dead_letter_exchange="dlx")
    for queue_id in (1, 2):
        driver.run(*(publish(str(priority), priority, queue_id) for priority in range(3)))
    (purged,) = driver.run(commands.encode_purge(1))
    assert purged.messages == 3  # type: ignore[attr-defined]
    driver.run(*(publish(str(priority), priority) for priority in range(3)))
    (deleted,) = driver.run(commands.encode_delete_queue(1, False, False))
    assert deleted.messages == 3  # type: ignore[attr-defined]
    driver.pass_ms(50)
    driver.tick()
    assert not driver.exists(2)
    assert [driver.body(death.message) for death in driver.shard.unrouted(10)] == ["2", "1", "0"]


def test_d9_dead_letters_have_their_priority() -> None:
    """RULES D9: moved within the shard and transferred from another."""
    driver = Driver()
    driver.create(1, max_length=0, dead_letter_exchange="dlx")
    driver.create(2, max_priority=9)
    driver.run(publish("dead", 4))
    content = LetterContent(b"\x03dlx\x01k", header(4), b"dead")
    driver.lead(commands.encode_route([commands.RouteDecision(1, commands.ROUTED, [2], [], content)]))
    others = [LetterContent(b"\x00\x01k", header(n), str(n).encode()) for n in (3, 5)]
    driver.lead(encode_transfer(9, 2, 1, others))
    assert driver.drain(2) == ["5", "dead", "3"]


def test_c1_snapshots_have_every_priority() -> None:
    """RULES C1: after a restore everything goes on as on the other replicas."""
    driver = Driver()
    driver.create(1, max_priority=5, delivery_limit=9)
    driver.run(*(publish(f"{n}", n % 4, ttl_ms=50 * n or -1) for n in range(12)))
    driver.run(attach(1, 5, prefetch=3), session=B)
    driver.run(commands.encode_settle(1, 5, commands.REQUEUE, [2]), session=B)
    state = driver.shard.snapshot()
    other = Shard(3, 1)
    other.restore(state)
    assert other.snapshot() == state and other.digest() == driver.replay().digest()
    assert other.next_message_due_ms() == driver.shard.next_message_due_ms()
    assert other._state.live == driver.shard._state.live
    driver.shard.restore(state)
    driver.pass_ms(300)
    driver.tick()
    driver.run(commands.encode_detach(1, 5, True), session=B)
    assert driver.replay().digest() == driver.shard.digest()
    assert driver.drain(1) == ["11", "7", "10", "9", "0", "8"]



def test_what_waits_is_looked_at_in_every_priority() -> None:
    driver = Driver()
    driver.create(1, max_priority=2)
    first_ms = driver.time_ms
    driver.run(publish("0", 2))
    driver.pass_ms(5)
    driver.run(*(publish(str(n), n % 3, ttl_ms=-1 if n < 3 else 10) for n in range(30)))
    queue = driver.shard.queue(1)
    assert queue is not None
    index = WaitingIndex(queue, 4)
    for passed_ms, expired in ((0, 0), (10, 27)):
        waiting = index.look(driver.time_ms + passed_ms, 1000)
        assert (waiting.expired, waiting.oldest_ms, waiting.exact) == (expired, first_ms, True)
    driver.get(1)
    assert index.look(driver.time_ms, 1000).oldest_ms == first_ms + 5


def create_quorum(driver: Driver, queue_id: int, **settings: object) -> None:
    """A queue with the priorities of RabbitMQ's quorum queues."""
    driver.create(queue_id, max_priority=31, default_priority=4, **settings)


def test_q2_levels_of_quorum_queues() -> None:
    """RULES Q2, golden priority4.order_and_default: 32 of them, no priority is 4, and what is above 31 is 31."""
    driver = Driver()
    create_quorum(driver, 1)
    sent = (("none", None), ("0", 0), ("4", 4), ("5", 5), ("31", 31), ("200", 200), ("1", 1), ("4 again", 4))
    driver.run(*(publish(body, priority) for body, priority in sent), publish("none again", None))
    assert driver.drain(1) == ["31", "200", "5", "none", "4", "4 again", "none again", "1", "0"]
    queue = driver.shard.queue(1)
    assert queue is not None and queue.ready_count() == 0


def test_q2_all_levels_are_in_order_and_strict() -> None:
    """RULES Q2: 0 to 31, however they come; a consumer that takes one at a time gets the highest of what waits."""
    driver = Driver()
    create_quorum(driver, 1)
    driver.run(*(publish(str(n * 7 % 32), n * 7 % 32) for n in range(32)))
    assert driver.drain(1) == [str(n) for n in range(31, -1, -1)]
    driver.run(attach(1, 5, prefetch=1))
    for n in range(3):
        driver.run(publish(f"low {n}", 0))
    driver.run(publish("usual", None), publish("high", 9))
    for delivery_id in range(1, 5):
        driver.run(commands.encode_settle(1, 5, commands.ACK, [delivery_id]))
    assert driver.delivered(5) == ["low 0", "high", "usual", "low 1", "low 2"]


def test_q2_what_came_back_goes_first_whatever_its_priority() -> None:
    """RULES Q2: as RabbitMQ documents it for quorum queues, in the order of return."""
    driver = Driver()
    create_quorum(driver, 1, delivery_limit=20)
    driver.run(publish("low", 0), publish("usual", None), attach(1, 5, prefetch=2))
    driver.run(publish("high", 31), publish("higher than usual", 5))
    driver.run(commands.encode_detach(1, 5, False))
    driver.run(commands.encode_settle(1, 5, commands.GIVE_BACK, [2]))
    driver.run(commands.encode_settle(1, 5, commands.GIVE_BACK, [1]))
    assert driver.drain(1) == ["low", "usual", "high", "higher than usual"]


def test_q2_t6_the_head_of_each_level_expires() -> None:
    """RULES Q2, T6, golden ttl4.expired_in_each_priority."""
    driver = Driver()
    create_quorum(driver, 1, dead_letter_exchange="dlx")
    create_quorum(driver, 2)
    driver.run(publish("high", 9), publish("low live", 1))
    for body, priority in (("low short", 1), ("mid short", 5), ("usual short", None)):
        driver.run(publish(body, priority, ttl_ms=300))
    driver.pass_ms(300)
    driver.tick()
    queue = driver.shard.queue(1)
    assert queue is not None and queue.ready_count() == 3
    dead = [driver.body(death.message) for death in driver.shard.unrouted(10)]
    assert sorted(dead) == ["mid short", "usual short"]
    assert driver.drain(1) == ["high", "low live"]
    assert [driver.body(death.message) for death in driver.shard.unrouted(10)][2:] == ["low short"]


def test_q2_a_queue_from_before_keeps_its_messages_as_usual_ones() -> None:
    """RULES Q2: what was published before the cluster had the level names no priority that anybody looked at."""
    driver = Driver()
    driver.create(1)
    driver.run(publish("before", 0), publish("before too", 31))
    driver.run(update_queue(1, ShardQueueSettings(name="q1", max_priority=31, default_priority=4)))
    driver.run(publish("usual", None), publish("low", 3), publish("high", 5))
    state = driver.shard.snapshot()
    other = Shard(3, 1)
    other.restore(state)
    assert other.snapshot() == state
    assert driver.drain(1) == ["high", "before", "before too", "usual", "low"]


def test_q2_settings_of_other_queues_are_written_as_before() -> None:
    """RULES Q2: a node of a release before reads what is written for queues without."""
    before, since = ShardQueueSettings(name="q", max_priority=9), ShardQueueSettings(name="q", default_priority=4)
    assert encode_settings(before)[0] == 0xDC and encode_settings(before)[2] == 17
    assert encode_settings(since)[2] == 18
    for settings in (before, since):
        assert decode_settings(encode_settings(settings)) == settings
        assert decode_terms(encode_terms(settings), "/", "q") == settings
