"""What a stream takes over from another one (RULES J4): TRANSFER_COPIES, again, late, with gaps, from snapshots."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands as amqp
from pamqp.header import ContentHeader

from mayfly.node.numbers import stream_source
from mayfly.node.shard import commands
from mayfly.node.shard.commands import LetterContent, encode_transfer_copies
from mayfly.node.shard.dialect import NEVER_TTL
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.message import MAX_AGE, NO_TTL, Message, mark_of
from mayfly.node.shard.stream import FIRST, TIME, Start
from tests.node.readings import statistics_of
from tests.node.shard.driver import Driver
from tests.node.shard.test_stream_ttls import STREAM, offsets, one_stream, plain, queue_of, reader, there
from tests.node.shard.test_stream_ttls import given as delivered

ORIGIN = stream_source(40)
OTHER = stream_source(41)


def header(**headers: Any) -> bytes:
    return ContentHeader(0, 1, amqp.Basic.Properties(headers=headers or None)).marshal()


def copies(
    first: int, last: int, at: dict[int, str], source: int = ORIGIN, ages_ms: int = 0, now_ms: int = 500_000,
    reason: int = 0, head: bytes = b"", queue: int = STREAM,
) -> bytes:
    """The offsets from the first on, up to the last one, of which these have messages."""
    items = [
        (
            Message(9, 0, 4, 4, len(body), now_ms - ages_ms, -1, offset, -1, mark_of(1, reason)),
            LetterContent(b"\x01e\x01k", head or header(), body.encode()),
        )
        for offset, body in sorted(at.items())
    ]
    return encode_transfer_copies(source, queue, first + 1, last + 1, now_ms, items)


def a_mirror(**settings: Any) -> Driver:
    return one_stream(piece=4, is_mirror=True, **settings)


def bodies(driver: Driver, start: Start | None = None) -> list[tuple[int, str]]:
    driver.run(reader(5, start or Start(FIRST), 10_000))
    found = [(message.stream_offset, driver.body(message)) for message in delivered(driver, 5)]
    driver.run(commands.encode_detach(STREAM, 5, 1))
    return found


def received(driver: Driver, source: int = ORIGIN) -> int:
    return driver.shard.received_up_to(STREAM, source)


def test_j4_a_mirror_keeps_the_offsets_gaps_among_them() -> None:
    driver = a_mirror()
    driver.lead(copies(0, 6, {2: "c", 3: "d", 5: "f"}))
    assert bodies(driver) == [(2, "c"), (3, "d"), (5, "f")]
    _, stream = queue_of(driver.shard)
    assert (stream.next_offset, received(driver)) == (7, 7)
    driver.lead(copies(7, 9, {}))
    assert (stream.next_offset, received(driver)) == (10, 10)
    driver.lead(copies(10, 10, {10: "k"}))
    assert bodies(driver)[-1] == (10, "k")


def test_j4_a_source_adds_to_what_is_published_there() -> None:
    driver = one_stream(piece=4)
    driver.run(plain("own"))
    driver.lead(copies(0, 6, {2: "c", 5: "f"}), copies(0, 0, {0: "x"}, OTHER))
    driver.run(plain("own too"))
    assert bodies(driver) == [(0, "own"), (1, "c"), (2, "f"), (3, "x"), (4, "own too")]
    assert (received(driver), received(driver, OTHER)) == (7, 1)


@pytest.mark.parametrize("is_mirror", [True, False])
def test_j4_what_comes_again_is_dropped_and_what_comes_too_early_refused(is_mirror: bool) -> None:
    driver = one_stream(piece=4, is_mirror=is_mirror)
    first = copies(0, 3, {0: "a", 1: "b", 3: "d"})
    driver.lead(copies(4, 4, {4: "e"}))
    assert (received(driver), statistics_of(driver.shard).refused_transfers, there(driver)) == (0, 1, [])
    driver.lead(first)
    driver.lead(first)
    driver.lead(copies(2, 5, {3: "d", 4: "e"}))
    assert [body for _, body in bodies(driver)] == ["a", "b", "d", "e"]
    assert statistics_of(driver.shard).duplicates == 4
    assert received(driver) == 6


def test_j4_nothing_of_a_refused_command_stays_in_the_log() -> None:
    driver = a_mirror()
    driver.lead(copies(4, 4, {4: "e"}), copies(0, 0, {0: "a"}, queue=99))
    assert not list(driver.shard.live_entries())
    assert statistics_of(driver.shard).transfers_lost == 1


def test_j4_a_mirror_has_one_stream_alone() -> None:
    """One that was declared anew under the name begins at 0 again: it is another, and is told to offer nothing."""
    driver = a_mirror()
    driver.lead(copies(0, 3, {3: "d"}))
    driver.lead(copies(0, 8, {5: "other"}, OTHER))
    assert bodies(driver) == [(3, "d")]
    assert (received(driver, OTHER), statistics_of(driver.shard).refused_transfers) == (-1, 1)


@pytest.mark.parametrize("honours", [True, False])
def test_j4_a_ttl_counts_where_the_copy_honours_it(honours: bool) -> None:
    """ADR-43: with the setting messages are removed after the TTL, without it they are just stored."""
    driver = a_mirror(honours_ttls=honours)
    driver.lead(copies(0, 0, {0: "goes"}, head=header(**{"Nats-TTL": "5s"})), copies(1, 1, {1: "stays"}))
    driver.pass_ms(5_000)
    driver.tick()
    assert there(driver) == ([1] if honours else [0, 1])
    queue, _ = queue_of(driver.shard)
    assert queue.expired == (1 if honours else 0)


def test_j4_a_mirror_counts_from_when_it_came_to_the_origin_a_source_from_now() -> None:
    for is_mirror, left_ms in ((True, 2_000), (False, 5_000)):
        driver = one_stream(honours_ttls=True, is_mirror=is_mirror)
        driver.lead(copies(0, 0, {0: "a"}, ages_ms=3_000, head=header(**{"x-ttl": 5})))
        driver.pass_ms(left_ms - 1)
        driver.tick()
        assert there(driver) == [0]
        driver.pass_ms(1)
        driver.tick()
        assert there(driver) == []


def test_j4_times_in_a_mirror_never_fall() -> None:
    """By two clocks that differ; who asks for a time finds what came from then on."""
    driver = a_mirror()
    for offset, ages_ms in enumerate((0, 5_000, 90, -700, 10)):
        driver.lead(copies(offset, offset, {offset: "m"}, ages_ms=ages_ms))
        driver.pass_ms(20)
    queue, _ = queue_of(driver.shard)
    driver.run(reader(6, Start(FIRST), 100))
    times = [message.enqueued_ms for message in delivered(driver, 6)]
    assert times == sorted(times) and times[-1] <= driver.time_ms
    assert bodies(driver, Start(TIME, times[2]))[0][0] == times.index(times[2])
    assert queue.ready_count() == 5


def test_j4_a_marker_comes_as_a_marker() -> None:
    """With its headers, and for the index of keys; it leaves none where it goes."""
    driver = one_stream(honours_ttls=True, marker_ttl_ms=60_000)
    head = header(**{"Nats-Marker-Reason": "MaxAge", "Nats-TTL": "2m0s"})
    driver.lead(copies(0, 0, {0: ""}, reason=MAX_AGE, head=head))
    driver.run(reader(7, Start(FIRST)))
    (marker,) = delivered(driver, 7)
    assert (marker.marker_reason, marker.ttl_ms, marker.header_length) == (MAX_AGE, 120_000, len(head))
    driver.pass_ms(120_000)
    driver.tick()
    assert there(driver) == []


def test_j4_a_marker_stays_one_in_a_mirror_without_keys() -> None:
    """For whoever copies that."""
    driver = a_mirror()
    driver.lead(copies(0, 1, {0: "", 1: "m"}, reason=MAX_AGE), copies(2, 2, {2: "plain"}))
    driver.shard.restore(driver.shard.snapshot())
    driver.run(reader(7, Start(FIRST)))
    assert [each.marker_reason for each in delivered(driver, 7)] == [MAX_AGE, MAX_AGE, 0]


def test_j4_a_source_leaves_markers_of_its_own() -> None:
    """ADR-43: sources may set a TTL of markers, and then have them."""
    driver = one_stream(honours_ttls=True, marker_ttl_ms=60_000)
    driver.lead(copies(0, 0, {0: "a"}, head=header(**{"Nats-TTL": 90})))
    driver.pass_ms(90_000)
    driver.tick()
    driver.run(reader(7, Start(FIRST)))
    (marker,) = delivered(driver, 7)
    assert (marker.stream_offset, marker.marker_reason, marker.body_length) == (1, MAX_AGE, 0)


def test_j4_a_reader_at_the_end_of_a_mirror_sees_what_comes_behind_a_gap() -> None:
    driver = a_mirror()
    driver.run(reader(8, Start(FIRST)))
    driver.lead(copies(0, 4, {}))
    driver.lead(copies(5, 9, {7: "h"}))
    assert offsets(driver, 8) == [7]


@pytest.mark.parametrize(
    "broken",
    [
        encode_transfer_copies(ORIGIN, STREAM, 0, 5, 0, []), encode_transfer_copies(ORIGIN, STREAM, 5, 4, 0, []),
        encode_transfer_copies(ORIGIN, STREAM, 1, 1 << 62, 0, []), copies(3, 4, {9: "too far"}),
        copies(3, 4, {1: "too early"}), copies(0, 1, {0: "a"})[:-1], copies(0, 1, {0: "a"})[:50],
    ],
)  # fmt: skip
def test_j4_what_is_no_such_command_is_refused_and_changes_nothing(broken: bytes) -> None:
    driver = a_mirror()
    before = driver.shard.digest()
    with pytest.raises(ShardError):
        driver.lead(broken)
    driver.shard.finish()
    driver.index += 1
    assert (received(driver), there(driver)) == (0, [])
    assert before


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8), st.booleans()), max_size=25), st.booleans())
def test_j4_c1_each_comes_once_and_in_order_whatever_is_sent_again(
    sent: list[tuple[int, int, bool]], is_mirror: bool
) -> None:
    """From anywhere, any part of it, any time; with a replica that comes from a snapshot in between."""
    standing = {offset: f"m{offset}" for offset in range(40) if offset % 3}
    driver = one_stream(piece=4, is_mirror=is_mirror, honours_ttls=True)
    looked_at = 0
    for first, count, restores in sent:
        last = first + count
        part = {offset: body for offset, body in standing.items() if first <= offset <= last}
        driver.lead(copies(first, last, part))
        if first <= looked_at:
            looked_at = max(looked_at, last + 1)
        if restores:
            driver.shard.restore(driver.shard.snapshot())
        assert received(driver) == looked_at
    expected = [(offset, body) for offset, body in standing.items() if offset < looked_at]
    found = bodies(driver)
    assert [body for _, body in found] == [body for _, body in expected]
    assert [offset for offset, _ in found] == (
        [offset for offset, _ in expected] if is_mirror else list(range(len(expected)))
    )


def test_j4_what_is_to_stay_stays() -> None:
    driver = a_mirror(honours_ttls=True, message_ttl_ms=5_000)
    driver.lead(copies(0, 1, {0: "never", 1: "too"}, head=header(**{"Nats-TTL": "never"})), copies(2, 2, {2: "old"}))
    driver.pass_ms(5_000)
    driver.tick()
    driver.run(reader(9, Start(FIRST)))
    assert [(each.stream_offset, each.ttl_ms) for each in delivered(driver, 9)] == [(0, NEVER_TTL), (1, NEVER_TTL)]
    assert NO_TTL < NEVER_TTL
