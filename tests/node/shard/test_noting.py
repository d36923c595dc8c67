"""ROUTE_NOTED does what ROUTE does with the same decisions, byte for byte (RULES R4, D6-D8, C1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from mayfly.node.shard.commands import PARKED, ROUTED, LetterContent, RouteDecision, encode_route
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.message import Message
from mayfly.node.shard.noted_commands import MOST_JOURNALS, NotedRoute
from mayfly.node.shard.outbox import RECORDS
from mayfly.node.shard.stream import Stream
from tests.node.readings import statistics_of
from tests.node.shard.driver import Driver, publish

NOTED, DEAD, HERE, ELSEWHERE = 1, 2, 3, 90
OTHER_SHARD = 9
KEY = b"\x00\x01q"


class Route(NamedTuple):
    """How the next deaths are decided about."""

    targets: Sequence[tuple[int, int]]
    """Journals for the records in turn, of shard 0 for the own one."""
    parks: Sequence[int] = ()
    """Those of the deaths, counted from 0, that are parked."""
    most: int = 1000
    """Of the deaths so many are decided about."""

    def decisions(self, driver: Driver) -> list[RouteDecision]:
        """As a ROUTE has them."""
        made = []
        for number, death in enumerate(driver.shard.unrouted(self.most)):
            content = LetterContent(KEY, b"header %d" % number, b"")
            if number in self.parks:
                made.append(RouteDecision(death.sequence, PARKED))
            elif death.reason not in RECORDS:
                content.body = b"letter"
                made.append(RouteDecision(death.sequence, ROUTED, [DEAD], (), content))
            else:
                shard, journal = self.targets[number % len(self.targets)]
                local, remote = ([], [(shard, journal)]) if shard else ([journal], [])
                made.append(RouteDecision(death.sequence, ROUTED, local, remote, content))
        return made

    def plain(self, driver: Driver) -> bytes:
        """As ROUTE."""
        return encode_route(self.decisions(driver))

    def noted(self, driver: Driver) -> bytes:
        """As ROUTE_NOTED."""
        reasons = {death.sequence: death.reason for death in driver.shard.unrouted(1000)}
        decisions = self.decisions(driver)
        route = NotedRoute(decisions[0].sequence)
        for each in decisions:
            if reasons[each.sequence] not in RECORDS or each.content is None:
                route.add(each)
                continue
            journal = each.remote_targets[0] if each.remote_targets else (0, each.local_targets[0])
            assert route.add_record(journal, each.content.exchange_and_key, each.content.header)
        return route.encoded()


def dying(mirror: bool = False, at_most_once: bool = False) -> Driver:
    """Six messages have expired: each is a dead letter, and noted."""
    driver = Driver()
    driver.create(
        NOTED, message_ttl_ms=100, journal="j", dead_letter_exchange="dlx", dead_letter_at_most_once=at_most_once
    )
    driver.create(DEAD)
    driver.create(HERE, is_stream=True, is_mirror=mirror, ttl_retroactive=True)
    driver.run(*(publish(body) for body in "abcdef"))
    driver.pass_ms(100)
    driver.tick()
    assert len(driver.shard.unrouted(1000)) == 12
    return driver


def state(driver: Driver) -> object:
    """All that tells whether both came to the same. (Where contents stand in the entry differs.)"""
    shard = driver.shard
    lane = shard.lane(ELSEWHERE)
    stream = shard.queue(HERE)
    assert stream is not None and isinstance(stream.stream, Stream)
    items: list[Message] = [] if lane is None else list(lane.items)
    texts = [driver.content(item) for item in items], [driver.content(item) for item in stream.ready.live()]
    rows = [
        (each.header_length, each.body_length, each.enqueued_ms, each.deadline_ms, each.delivery_count, each.ttl_ms)
        for each in (*items, *stream.ready.live())
    ]
    counts = statistics_of(shard)
    return (
        texts, rows, driver.ready(DEAD), [death.sequence for death in shard.parked()], sorted(shard.live_entries()),
        shard.unrouted(1000), counts.journaled, counts.routed, counts.refused_routes, counts.lost,
        counts.dropped_unroutable,
    )


@pytest.mark.parametrize("route", [
    Route([(0, HERE)]), Route([(OTHER_SHARD, ELSEWHERE)]), Route([(0, HERE), (OTHER_SHARD, ELSEWHERE)]),
    Route([(0, HERE)], parks=(2, 3, 11)), Route([(0, 77)]), Route([(0, HERE)], parks=range(12)),
])  # fmt: skip
@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("at_most_once", [False, True])
def test_r4_both_do_the_same(route: Route, mirror: bool, at_most_once: bool) -> None:
    """In a row; again, which does nothing; and behind a gap, which is refused."""
    ends = []
    for encode in (Route.plain, Route.noted):
        driver = dying(mirror, at_most_once)
        command = encode(route, driver)
        driver.lead(command)
        driver.lead(command)
        ends.append(state(driver))
    assert ends[0] == ends[1]


@pytest.mark.parametrize("encode", [Route.plain, Route.noted])
def test_r4_records_wait_behind_those_that_came_before_their_journal_was_made_here(
    encode: Callable[[Route, Driver], bytes]
) -> None:
    driver = dying()
    driver.lead(encode(Route([(3, ELSEWHERE)], most=4), driver))
    driver.create(ELSEWHERE, is_stream=True, ttl_retroactive=True)
    driver.lead(encode(Route([(0, ELSEWHERE)]), driver))
    lane = driver.shard.lane(ELSEWHERE)
    assert lane is not None and driver.ready(ELSEWHERE) == 0
    waiting = [driver.content(item).removeprefix(KEY) for item in lane.items]
    assert waiting == [b"header %d" % number for number in (1, 3, 1, 3, 5, 7)]


@pytest.mark.parametrize("encode", [Route.plain, Route.noted])
def test_r4_behind_a_gap_it_is_refused(encode: Callable[[Route, Driver], bytes]) -> None:
    driver = dying()
    driver.shard.unrouted(1)
    route = Route([(0, HERE)])
    command = encode(route, driver)
    later = dying()
    later.lead(encode_route([RouteDecision(1, PARKED)]))
    behind = encode(route, later)
    driver.lead(behind)
    assert (len(driver.shard.unrouted(1000)), statistics_of(driver.shard).refused_routes) == (12, 11)
    driver.lead(command)
    assert driver.shard.unrouted(1000) == []


def test_r4_a_record_is_never_redelivered() -> None:
    driver = dying()
    driver.lead(Route([(OTHER_SHARD, ELSEWHERE)]).noted(driver))
    lane = driver.shard.lane(ELSEWHERE)
    assert lane is not None
    assert not any(item.redelivered for item in lane.items)


def test_r4_records_come_behind_the_letters_of_their_command_and_in_order() -> None:
    driver = dying()
    route = NotedRoute(1)
    for number, death in enumerate(driver.shard.unrouted(1000)):
        content = LetterContent(KEY, b"%d" % number, b"")
        if death.reason in RECORDS:
            route.add_record((0, HERE), KEY, content.header)
        else:
            route.add(RouteDecision(death.sequence, ROUTED, [HERE], (), content))
    driver.lead(route.encoded())
    stream = driver.shard.queue(HERE)
    assert stream is not None
    come = [int(driver.content(message).removeprefix(KEY)) for message in stream.ready.live()]
    assert come == [*range(0, 12, 2), *range(1, 12, 2)]


def test_what_is_cut_off_is_refused_and_what_stood_before_it_counts() -> None:
    whole = Route([(0, HERE), (OTHER_SHARD, ELSEWHERE)])
    length = len(whole.noted(dying()))
    for cut in (1, 5, length // 2, length - 30):
        driver = dying()
        before = len(driver.shard.unrouted(1000))
        with pytest.raises(ShardError):
            driver.lead(whole.noted(driver)[:-cut])
        left = len(driver.shard.unrouted(1000))
        assert left <= before
        stream, lane = driver.shard.queue(HERE), driver.shard.lane(ELSEWHERE)
        assert stream is not None
        noted = stream.ready_count() + (0 if lane is None else len(lane.items))
        assert noted + driver.ready(DEAD) == before - left
        assert statistics_of(driver.shard).journaled == noted


def test_a_journal_that_is_not_among_those_named_is_refused() -> None:
    driver = dying()
    route = NotedRoute(1)
    assert route.add_record((0, HERE), KEY, b"h")
    command = bytearray(route.encoded())
    command[-len(KEY) - 1 - 7] = 2
    with pytest.raises(ShardError, match="record for journal 2 of 1"):
        driver.lead(bytes(command))


def test_so_many_journals_and_no_more() -> None:
    route = NotedRoute(1)
    assert all(route.add_record((0, number), KEY, b"h") for number in range(MOST_JOURNALS))
    assert not route.add_record((0, MOST_JOURNALS), KEY, b"h")
    assert route.add_record((0, 3), KEY, b"h")
