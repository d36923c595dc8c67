"""What time removes from a queue with a journal is noted once each, on its way to a stream (RULES R4)."""

import pytest

from mayfly.node.shard import commands
from mayfly.node.shard.commands import PARKED, ROUTED, LetterContent, RouteDecision, encode_route
from mayfly.node.shard.outbox import RECORD_OF_EXPIRED, RECORD_OF_QUEUE, RECORD_OF_QUEUE_EXPIRED
from mayfly.node.shard.settings import ShardQueueSettings, encode_terms
from tests.node.readings import statistics_of
from tests.node.shard.driver import Driver, publish

DEAD_LETTERS: dict[str, object] = {"dead_letter_exchange": "dlx"}


def outbox(driver: Driver) -> list[tuple[str, str]]:
    return [(driver.body(death.message), death.reason) for death in driver.shard.unrouted(10_000)]


def routed(driver: Driver, local: list[int], remote: list[tuple[int, int]] | None = None) -> None:
    """All that is in the outbox goes there, with content of its own."""
    deaths = driver.shard.unrouted(10_000)
    driver.lead(encode_route([
        RouteDecision(each.sequence, ROUTED, local, remote or (), LetterContent(b"\x00\x01q", b"head", b"record"))
        for each in deaths
    ]))  # fmt: skip


@pytest.mark.parametrize("dead_letters", [{}, DEAD_LETTERS], ids=["nowhere", "dead-lettered"])
@pytest.mark.parametrize("anywhere", [False, True], ids=["at the head", "anywhere"])
def test_r4_each_that_expires_is_noted_once(dead_letters: dict[str, object], anywhere: bool) -> None:
    driver = Driver()
    driver.create(1, message_ttl_ms=100, journal="j", expire_anywhere=anywhere, **dead_letters)
    driver.run(publish("a"), publish("b"))
    driver.pass_ms(100)
    due_ms = driver.time_ms
    driver.pass_ms(7)
    driver.tick()
    driver.tick()
    records = [death for death in driver.shard.unrouted(9) if death.reason == RECORD_OF_EXPIRED]
    assert [driver.body(death.message) for death in records] == ["a", "b"]
    assert {(death.message.deadline_ms, death.time_ms, death.queue_id) for death in records} == {
        (due_ms, due_ms + 7, 1)
    }
    assert [reason for _, reason in outbox(driver)].count("expired") == (2 if dead_letters else 0)
    statistics = statistics_of(driver.shard)
    assert (statistics.expired, statistics.dead_lettered) == (2, 2 if dead_letters else 0)


def test_r4_what_goes_otherwise_is_not_noted() -> None:
    """Rejected, too much, purged, deleted, acknowledged: time has no part in it."""
    driver = Driver()
    driver.create(1, journal="j", max_length=2, **DEAD_LETTERS)
    driver.run(*(publish(body) for body in "abcd"))
    driver.get(1)
    driver.get_message(1, no_ack=False, holder=7)
    driver.run(commands.encode_settle(1, 7, commands.REJECT, [1]))
    assert {reason for _, reason in outbox(driver)} == {"maxlen", "rejected"}
    driver.run(publish("e"), commands.encode_purge(1))
    driver.run(publish("f"), commands.encode_delete_queue(1, False, False))
    assert {reason for _, reason in outbox(driver)} == {"maxlen", "rejected"}


def test_r4_a_queue_without_a_journal_leaves_nothing_behind() -> None:
    driver = Driver()
    driver.create(1, message_ttl_ms=100)
    driver.run(publish("a"))
    driver.pass_ms(100)
    driver.tick()
    assert (outbox(driver), list(driver.shard.live_entries())) == ([], [])


@pytest.mark.parametrize("dead_letters", [False, True])
def test_r4_a_queue_whose_lease_ends_is_noted_and_then_its_messages(dead_letters: bool) -> None:
    driver = Driver()
    settings: dict[str, object] = {"expires_dead_letter": True, **DEAD_LETTERS} if dead_letters else {}
    driver.create(1, expires_ms=100, journal="j", **settings)
    driver.run(publish("a"), publish("b"))
    used_ms = driver.time_ms
    driver.pass_ms(100)
    ended_ms = driver.time_ms
    driver.pass_ms(30)
    driver.tick()
    assert not driver.exists(1)
    (queue, *messages) = driver.shard.unrouted(99)
    stands_for_it = queue.message
    assert (queue.reason, queue.queue_id, queue.time_ms) == (RECORD_OF_QUEUE, 1, ended_ms + 30)
    assert (stands_for_it.deadline_ms, stands_for_it.enqueued_ms, stands_for_it.delivery_count) == (
        ended_ms, used_ms, 2
    )
    assert stands_for_it.content_length == 0
    noted = [driver.body(death.message) for death in messages if death.reason == RECORD_OF_QUEUE_EXPIRED]
    assert noted == ["a", "b"]
    assert len(messages) == (4 if dead_letters else 2)
    statistics = statistics_of(driver.shard)
    assert (statistics.queue_expired, statistics.orphans) == (2 if dead_letters else 0, 0)


def test_r4_what_expires_as_the_lease_ends_died_of_its_own_deadline() -> None:
    driver = Driver()
    driver.create(1, expires_ms=100, message_ttl_ms=90, journal="j")
    driver.run(publish("a"))
    driver.pass_ms(100)
    driver.lead(*(commands.encode_expire_queue(*each) for each in driver.shard.due_leases(driver.led_ms)))
    assert [reason for _, reason in outbox(driver)] == [RECORD_OF_EXPIRED, RECORD_OF_QUEUE]


def test_r4_c4_a_long_queue_is_noted_bit_by_bit_and_snapshots_lose_nothing() -> None:
    driver = Driver(expiries=100)
    driver.create(1, expires_ms=100, journal="j", **DEAD_LETTERS)
    driver.create(2)
    driver.run(*(publish(f"m{number}") for number in range(350)))
    driver.pass_ms(100)
    driver.tick()
    assert len(outbox(driver)) == 101
    while driver.shard.due_messages(driver.time_ms):
        live = sorted(driver.shard.live_entries())
        driver.shard.restore(driver.shard.snapshot())
        assert sorted(driver.shard.live_entries()) == live
        driver.tick()
    assert outbox(driver) == [("", RECORD_OF_QUEUE), *((f"m{n}", RECORD_OF_QUEUE_EXPIRED) for n in range(350))]
    routed(driver, [2])
    assert driver.ready(2) == 351
    assert statistics_of(driver.shard).journaled == 351


def test_r4_a_record_arrives_in_the_journal_and_lets_go_of_the_message() -> None:
    """In this shard, and in the lane to another; it was never delivered, whatever became of the message."""
    driver = Driver()
    driver.lead(commands.encode_raise_level(8))
    driver.create(1, journal="j", delivery_limit=9, **DEAD_LETTERS)
    driver.create(2, is_stream=True, ttl_retroactive=True)
    driver.run(publish("a", ttl_ms=100))
    driver.get_message(1, no_ack=False, holder=7)
    driver.pass_ms(100)
    driver.run(commands.encode_settle(1, 7, commands.REQUEUE, [1]))
    driver.tick()
    assert [reason for _, reason in outbox(driver)] == ["expired", RECORD_OF_EXPIRED]
    published_in = driver.shard.unrouted(1)[0].message.index
    routed(driver, [2], [(9, 90)])
    lane = driver.shard.lane(90)
    assert lane is not None
    assert (driver.ready(2), [item.redelivered for item in lane.items]) == (2, [True, False])
    assert published_in not in driver.shard.live_entries()
    statistics = statistics_of(driver.shard)
    assert (statistics.routed, statistics.journaled, statistics.dead_lettered) == (1, 1, 1)


def test_r4_records_are_in_snapshots_parked_and_tried_again() -> None:
    driver = Driver()
    driver.create(1, message_ttl_ms=100, journal="j")
    driver.create(2)
    driver.run(publish("a"), publish("b"))
    driver.pass_ms(100)
    driver.tick()
    first, second = driver.shard.unrouted(9)
    driver.lead(encode_route([
        RouteDecision(first.sequence, ROUTED, [2], (), LetterContent(b"\x00\x01q", b"head", b"record")),
        RouteDecision(second.sequence, PARKED),
    ]))  # fmt: skip
    driver.shard.restore(driver.shard.snapshot())
    (parked,) = driver.shard.parked()
    assert (parked.reason, parked.settings.journal, parked.message.deadline_ms) == (
        RECORD_OF_EXPIRED, "j", driver.time_ms
    )
    driver.lead(commands.encode_retry_parked([parked.sequence]))
    routed(driver, [2])
    assert driver.ready(2) == 2
    driver.shard.restore(driver.shard.snapshot())
    assert statistics_of(driver.shard).journaled == 2
    assert driver.shard.snapshot() == driver.replay().snapshot()


def test_r4_settings_say_so_only_where_they_do() -> None:
    """Older releases read all other queues' settings."""
    assert encode_terms(ShardQueueSettings()) == encode_terms(ShardQueueSettings(journal=None))
    assert len(encode_terms(ShardQueueSettings(journal="j"))) > len(encode_terms(ShardQueueSettings()))


def test_r4_a_policy_turns_it_on_and_off() -> None:
    driver = Driver()
    driver.create(1)
    for journal, noted in (("j", 1), (None, 1), ("j", 2)):
        driver.lead(commands.encode_update_queues(encode_terms(ShardQueueSettings(journal=journal)), (1,)))
        driver.run(publish("a", ttl_ms=10))
        driver.pass_ms(10)
        driver.tick()
        assert len(outbox(driver)) == noted
