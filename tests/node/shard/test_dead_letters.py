"""The outbox: deaths, routing, lanes, transfers (RULES D)."""

from typing import Any

import pytest
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from mayfly.node.shard import commands
from mayfly.node.shard.commands import (
    DROPPED_CYCLE,
    DROPPED_UNROUTABLE,
    PARKED,
    REJECT,
    ROUTED,
    LetterContent,
    RouteDecision,
    encode_route,
    encode_settle,
)
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.shard import Shard
from tests.node.readings import statistics_of
from tests.node.shard.driver import Driver, attach, content_header, encode_transfer, publish


def content(body: str, header: bytes = b"") -> LetterContent:
    """New content of a dead letter."""
    return LetterContent(b"\x03dlx\x01k", header or content_header(body.encode()), body.encode())


def routed(
    sequence: int, body: str, local: list[int], remote: list[tuple[int, int]], header: bytes = b""
) -> RouteDecision:
    """A decision with targets."""
    return RouteDecision(sequence, ROUTED, local, remote, content(body, header))


def with_deaths(count: int, **settings: object) -> Driver:
    """A driver whose queue 1 has lost `count` messages to a deadline; queues 2 and 3 are targets."""
    driver = Driver()
    driver.create(1, message_ttl_ms=100, dead_letter_exchange="dlx", dead_letter_routing_key="k")
    driver.create(2, **settings)
    driver.create(3)
    driver.run(*(publish(f"m{i}", 1) for i in range(count)))
    driver.pass_ms(100)
    driver.tick()
    assert len(driver.shard.unrouted(count + 1)) == count
    return driver


def test_d_a_death_keeps_what_routing_needs_even_if_the_queue_goes() -> None:
    """RULES D1, D2: reason, time, queue and settings; the content stays in the log."""
    driver = with_deaths(1)
    died_at = driver.time_ms
    driver.run(commands.encode_delete_queue(1, False, False))
    driver.pass_ms(5)
    driver.shard.restore(driver.shard.snapshot())
    (death,) = driver.shard.unrouted(9)
    assert (death.sequence, death.queue_id, death.reason, death.time_ms) == (1, 1, "expired", died_at)
    settings = death.settings
    assert (settings.vhost, settings.name) == ("/", "q1")
    assert (settings.dead_letter_exchange, settings.dead_letter_routing_key) == ("dlx", "k")
    assert driver.body(death.message) == "m0"
    assert list(driver.shard.live_entries()) == [death.message.index]


def test_d2_rejected() -> None:
    """RULES D2: in the order of the ids given; without a DLX they are gone."""
    driver = Driver()
    driver.create(1, dead_letter_exchange="")
    driver.create(2)
    for queue_id in (1, 2):
        driver.run(
            attach(queue_id, 5), publish("a", queue_id), publish("b", queue_id), publish("c", queue_id)
        )
        driver.run(encode_settle(queue_id, 5, REJECT, [3, 1]))
    deaths = [(driver.body(d.message), d.reason, d.sequence) for d in driver.shard.unrouted(9)]
    assert deaths == [("c", "rejected", 1), ("a", "rejected", 2)]
    statistics = statistics_of(driver.shard)
    assert (statistics.dead_lettered, statistics.outbox, statistics.unacknowledged) == (2, 2, 2)


def test_d6_same_shard_one_entry_moves_it() -> None:
    """RULES D6: off the outbox and into the target in one ROUTE; the old entry is released."""
    driver = with_deaths(2)
    source = driver.shard.unrouted(9)[0].message.index
    driver.lead(encode_route([routed(1, "n0", [2, 3], []), routed(2, "n1", [3], [])]))
    assert driver.released == [source]
    assert driver.shard.unrouted(9) == []
    message = driver.get_message(2)
    assert message is not None
    assert driver.content(message) == b"\x03dlx\x01k" + content_header(b"n0") + b"n0"
    assert (message.enqueued_ms, message.deadline_ms, message.delivery_count) == (driver.time_ms, -1, 0)
    assert driver.drain(3) == ["n0", "n1"]
    assert list(driver.shard.live_entries()) == []
    assert statistics_of(driver.shard).routed == 2


def test_d6_decisions_are_idempotent_and_in_order() -> None:
    """RULES D6, D7: two leaders decide the same; a gap is refused."""
    driver = with_deaths(4)
    first = encode_route([routed(1, "n0", [2], []), routed(2, "n1", [2], [])])
    driver.lead(first, first)
    driver.lead(first)
    driver.lead(encode_route([routed(4, "n3", [2], []), routed(5, "?", [2], [])]))
    assert statistics_of(driver.shard).refused_routes == 2
    driver.lead(encode_route([routed(2, "n1", [2], []), routed(3, "n2", [2], []), routed(4, "n3", [2], [])]))
    driver.lead(encode_route([routed(5, "?", [2], [])]))
    assert driver.drain(2) == ["n0", "n1", "n2", "n3"]
    assert list(driver.shard.live_entries()) == []


def test_d8_parked_ones_wait_for_an_operator() -> None:
    """RULES D8: kept and counted; released under a new number, or dropped."""
    driver = with_deaths(3)
    driver.lead(encode_route([RouteDecision(1, PARKED), RouteDecision(2, PARKED), RouteDecision(3, PARKED)]))
    driver.run(commands.encode_delete_queue(1, False, False))
    driver.shard.restore(driver.shard.snapshot())
    assert [death.sequence for death in driver.shard.parked()] == [1, 2, 3]
    assert statistics_of(driver.shard).parked == 3
    driver.lead(commands.encode_retry_parked([2, 2, 77]), commands.encode_drop_parked([1, 1, 77]))
    (again,) = driver.shard.unrouted(9)
    assert (again.sequence, driver.body(again.message), again.settings.name) == (4, "m1", "q1")
    driver.lead(encode_route([routed(4, "m1", [2], [])]))
    assert driver.drain(2) == ["m1"]
    driver.lead(commands.encode_drop_parked([3]))
    assert statistics_of(driver.shard).dropped_by_operator == 2
    assert list(driver.shard.live_entries()) == []


def test_d5_d8_dropped_ones_are_gone_and_counted() -> None:
    """RULES D5, D8: a cycle, and no route at most once."""
    driver = with_deaths(3)
    driver.lead(
        encode_route(
            [RouteDecision(1, DROPPED_CYCLE), RouteDecision(2, DROPPED_UNROUTABLE), routed(3, "n", [], [])]
        )
    )
    statistics = statistics_of(driver.shard)
    assert (statistics.dropped_cycle, statistics.dropped_unroutable, statistics.outbox) == (1, 1, 0)
    assert list(driver.shard.live_entries()) == []


def test_d6_d8_lanes_carry_to_other_shards() -> None:
    """RULES D6, D8: a lane per target, contiguous numbers that never start again, one content for all."""
    driver = with_deaths(3)
    driver.lead(
        encode_route(
            [
                routed(1, "n0", [2], [(7, 70), (8, 80)]),
                routed(2, "n1", [], [(7, 70)]),
                routed(3, "n2", [], [(7, 71)]),
            ]
        )
    )
    route_entry = driver.index
    assert driver.drain(2) == ["n0"]
    lane = driver.shard.lane(70)
    assert lane is not None
    assert (lane.target_shard, lane.target_queue, lane.first_sequence) == (7, 70, 1)
    assert [driver.body(item) for item in lane.items] == ["n0", "n1"]
    assert statistics_of(driver.shard).outbox == 4
    driver.lead(
        commands.encode_settled(70, 1), commands.encode_settled(70, 1), commands.encode_settled(99, 5)
    )
    driver.shard.restore(driver.shard.snapshot())
    lane = driver.shard.lane(70)
    assert lane is not None
    assert (lane.first_sequence, [driver.body(item) for item in lane.items]) == (2, ["n1"])
    driver.lead(commands.encode_settled(70, 1000))
    lane = driver.shard.lane(70)
    assert lane is not None
    assert (lane.first_sequence, len(lane.items)) == (3, 0)
    driver.lead(commands.encode_lane_closed(71), commands.encode_lane_closed(71))
    assert driver.shard.lane(71) is None
    assert list(driver.shard.live_entries()) == [route_entry]
    driver.lead(commands.encode_settled(80, 1))
    assert list(driver.shard.live_entries()) == []
    statistics = statistics_of(driver.shard)
    assert (statistics.settled, statistics.lost, statistics.routed) == (3, 1, 3)


def test_d6_transfers_arrive_once_and_in_order() -> None:
    """RULES D6, D7: repeats are dropped, a gap is refused, each source counts for itself."""
    driver = Driver()
    driver.create(1)
    driver.lead(encode_transfer(5, 1, 1, [content("a"), content("b")]))
    assert driver.shard.received_up_to(1, 5) == 2
    driver.lead(encode_transfer(5, 1, 1, [content("a"), content("b")]))
    driver.lead(encode_transfer(5, 1, 4, [content("d")]))
    driver.lead(encode_transfer(5, 1, 2, [content("b"), content("c")]))
    driver.lead(encode_transfer(6, 1, 1, [content("x")]))
    driver.shard.restore(driver.shard.snapshot())
    driver.lead(encode_transfer(5, 1, 1, [content("a"), content("b"), content("c"), content("d")]))
    driver.lead(encode_transfer(6, 1, 3, [content("z")]))
    assert (driver.shard.received_up_to(1, 5), driver.shard.received_up_to(1, 6)) == (4, 1)
    assert driver.shard.received_up_to(1, 7) == 0
    assert driver.shard.received_up_to(2, 5) == -1
    assert driver.drain(1) == ["a", "b", "c", "x", "d"]
    statistics = statistics_of(driver.shard)
    assert (statistics.duplicates, statistics.refused_transfers) == (6, 2)
    assert list(driver.shard.live_entries()) == []


@pytest.mark.parametrize("settings", [
    {}, {"message_ttl_ms": 500}, {"key_index": True}, {"honours_ttls": True}, {"max_length_bytes": 3},
])  # fmt: skip
def test_d6_what_comes_to_a_stream_together_is_as_one_after_the_other(settings: dict[str, Any]) -> None:
    """Repeats among it, which leave nothing behind, and a TTL that the stream may honour (RULES J2)."""
    ends = []
    said = ContentHeader(0, 1, Basic.Properties(headers={"x-ttl": 300})).marshal()
    contents = [content(str(number), said if number % 2 else b"") for number in range(6)]
    for batches in ([(1, 4), (3, 6), (1, 6)], [(number, number) for number in (1, 2, 3, 4, 4, 5, 6, 1)]):
        driver = Driver()
        driver.create(1, is_stream=True, ttl_retroactive=True, **settings)
        entries = []
        for first, last in batches:
            driver.lead(encode_transfer(5, 1, first, contents[first - 1 : last]))
            entries.append(driver.index)
        queue = driver.shard.queue(1)
        assert queue is not None and queue.stream is not None
        messages = queue.ready.live()
        assert set(driver.shard.live_entries()) == {message.index for message in messages}
        assert entries[-1] not in driver.shard.live_entries()
        rows = [
            (driver.content(each), each.enqueued_ms, each.deadline_ms, each.ttl_ms, each.stream_offset, each.priority)
            for each in messages
        ]
        twin = Shard(3, 1)
        twin.restore(driver.shard.snapshot())
        assert twin.snapshot() == driver.shard.snapshot()
        ends.append((rows, queue.stream.next_offset, queue.ready_bytes, queue.enqueued, queue.next_due_ms()))
    assert ends[0] == ends[1]
    assert ends[0][1] == 6


def test_d9_the_targets_own_ttl_applies() -> None:
    """RULES D9, T8: to moved and to transferred ones; the old deadline does not count any more."""
    driver = with_deaths(2, message_ttl_ms=700)
    driver.lead(encode_route([routed(1, "n0", [2, 3], [])]), encode_transfer(5, 2, 1, [content("t")]))
    queue = driver.shard.queue(2)
    assert queue is not None
    assert [message.deadline_ms for message in queue.ready.live()] == [driver.time_ms + 700] * 2
    assert driver.get_message(3).deadline_ms == -1  # type: ignore[union-attr]
    driver.create(4, message_ttl_ms=0, dead_letter_exchange="next")
    driver.lead(encode_route([routed(2, "n1", [4], [])]))
    assert driver.ready(4) == 0
    assert [(d.queue_id, driver.body(d.message)) for d in driver.shard.unrouted(9)] == [(4, "n1")]


def test_d9_a_dead_letter_reaches_a_waiting_consumer_in_the_same_entry() -> None:
    """RULES D9, T8: also one with TTL 0."""
    driver = with_deaths(1, message_ttl_ms=0)
    driver.run(attach(2, 5))
    driver.lead(encode_route([routed(1, "n0", [2], [])]))
    driver.lead(encode_transfer(5, 2, 1, [content("t")]))
    assert driver.delivered(5) == ["n0", "t"]


def test_d_targets_that_are_gone_are_counted() -> None:
    """A queue may be deleted between the decision and its entry."""
    driver = with_deaths(1)
    driver.lead(encode_route([routed(1, "n0", [55, 2], [])]), encode_transfer(5, 56, 1, [content("t")] * 3))
    assert driver.drain(2) == ["n0"]
    statistics = statistics_of(driver.shard)
    assert (statistics.lost, statistics.transfers_lost) == (1, 3)
    assert list(driver.shard.live_entries()) == []


def test_d7_order_from_queue_to_queue_across_shards_with_repeats_everywhere() -> None:
    """RULES D6, D7: the whole way, every step repeated, with restarts in between."""
    source = with_deaths(50)
    target = Driver()
    target.create(70)
    while statistics_of(source.shard).outbox:
        deaths = source.shard.unrouted(7)
        decisions = [routed(d.sequence, source.body(d.message), [], [(9, 70)]) for d in deaths]
        route = encode_route(decisions)
        source.lead(route)
        source.lead(route)
        lane = source.shard.lane(70)
        assert lane is not None
        items = [content(source.body(item)) for item in lane.items]
        transfer = encode_transfer(3, 70, lane.first_sequence, items[:5])
        target.lead(transfer)
        target.lead(transfer)
        source.shard.restore(source.shard.snapshot())
        target.shard.restore(target.shard.snapshot())
        settled = commands.encode_settled(70, target.shard.received_up_to(70, 3))
        source.lead(settled)
        source.lead(settled)
    assert target.drain(70) == [f"m{i}" for i in range(50)]
    assert list(source.shard.live_entries()) == []


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_cut_off_route_or_transfer_is_an_error_and_what_was_whole_counts(cut: int) -> None:
    """Defect guard: no loop, no half decision."""
    driver = with_deaths(1)
    route = encode_route([routed(1, "n0", [2], [(7, 70)])])
    before = driver.shard.digest()
    shard = driver.shard
    for data in (route[:-cut], encode_transfer(5, 2, 1, [content("t"), content("u")])[:-cut]):
        shard.begin(driver.index + 1, driver.time_ms, driver.led_ms, data)
        if data:
            with pytest.raises(ShardError):
                shard.apply(None, 0, len(data))
        shard.finish()
        assert shard.digest() == before


def test_a_route_without_content_is_refused_by_the_encoder() -> None:
    with pytest.raises(ValueError):
        encode_route([RouteDecision(1, ROUTED, [2])])
    assert Shard(1, 1).unrouted(5) == []
