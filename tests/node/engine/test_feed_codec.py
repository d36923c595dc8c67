"""How what a shard tells a node without a replica travels: all it says arrives, in parts that are not too large."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mayfly.cluster.group.fed_entry import FedEntry, MalformedFeed
from mayfly.cluster.group.sessions import ENDED
from mayfly.node.dead_letter.publisher_headers import as_shown
from mayfly.node.dead_letter.stream_content import header_of
from mayfly.node.engine.feed_codec import ShardFeedCodec
from mayfly.node.shard.effects import ConsumerCancelled, ConsumerMoved, Deliver
from mayfly.node.shard.message import MAX_AGE, Message, mark_of
from mayfly.node.shard.results import (
    Applied,
    Attached,
    Crossed,
    Deleted,
    Detached,
    GetResult,
    Gone,
    Moved,
    Published,
    Purged,
    PurgedKey,
    QueueCounts,
    RedriveState,
    Refused,
)
from tests.node.entry_payloads import EntryPayloads

SESSION = (7, 5 << 20)
LOG = {index: bytes([index]) * 64 for index in range(1, 20)}
SMALL = 40


def message(index: int, body: int = 10) -> Message:
    return Message(index, 3, 4, 5, body, 1_000, 2_000, 2, 500, 0, 3)


def fields(it: Message, payload: bytes) -> tuple[object, ...]:
    content = payload[it.offset : it.offset + it.content_length]
    return (
        content, it.key_length, it.header_length, it.body_length, it.enqueued_ms, it.deadline_ms, it.delivery_count,
        it.ttl_ms, it.acquired_count,
    )  # fmt: skip


def said_by(it: object, but: str = "") -> list[tuple[str, object]]:
    """Every field of an answer or effect; a compiled class has them without saying so in ``__slots__``."""
    names = [name for name in dir(type(it)) if not name.startswith("_") and name != but]
    return [(name, getattr(it, name)) for name in names if not callable(getattr(it, name))]


def told(entries: list[FedEntry], payloads: dict[int, bytes]) -> list[object]:
    """What entries say, with the contents that they refer to; runs of deliveries to one consumer are one."""
    said: list[object] = []
    for entry in entries:
        answers: list[object] = []
        for sequence, results in entry.answers:
            for result in results or [None]:
                content = None
                if isinstance(result, GetResult) and result.message is not None:
                    content = fields(result.message, payloads[result.message.index])
                parts = [] if result is None else said_by(result, but="message")
                answers.append((sequence, results is None, type(result), parts, content))
        deliveries: list[object] = []
        for effect in entry.effects:
            assert isinstance(effect, (Deliver, ConsumerCancelled, ConsumerMoved))
            assert effect.session == SESSION
            if isinstance(effect, Deliver):
                for place, it in enumerate(effect.messages):
                    content = fields(it, payloads[it.index])
                    deliveries.append((effect.consumer_id, effect.first_delivery_id + place, content))
            elif isinstance(effect, ConsumerMoved):
                deliveries.append(said_by(effect))
            else:
                deliveries.append((effect.consumer_id, effect.queue_id))
        said.append((entry.index, answers, deliveries, entry.ended))
    return said


def there_and_back(entries: list[FedEntry], most_bytes: int, log: dict[int, bytes] = LOG) -> list[object]:
    codec = ShardFeedCodec(lambda: True)
    gathered: list[bytes] = []
    read: list[object] = []
    for completes, part in codec.encode(entries, EntryPayloads(log), most_bytes):
        gathered.append(b"".join(part))
        if completes:
            decoded, payloads = codec.decode(gathered, SESSION)
            assert len(decoded) == completes
            read += told(decoded, dict(payloads))
            gathered = []
    assert not gathered, "the last part ends an entry"
    return read


RESULTS = st.sampled_from(
    [
        None, Gone(4, "expired"), QueueCounts(3, 2, True), Published([0, 2]), Published([], [1]), Attached(2),
        Detached(), Refused("full"), Purged(9), Deleted(8), Applied(), Applied([0, 70_000]),
        GetResult(None, 0, 3, True), GetResult(message(2), 6, 1, False),
        GetResult(message(3, 30), 7, 0, False), Moved(4, 2), Crossed(7, True), Crossed(0, False),
        PurgedKey(3, 4), RedriveState(8, 1),
    ]
)  # fmt: skip
EFFECTS = st.one_of(
    st.builds(
        lambda first, indices: Deliver(9, first, [message(index) for index in indices], SESSION),
        st.integers(1, 50), st.lists(st.integers(1, 19), min_size=1, max_size=8),
    ),
    st.just(ConsumerCancelled(9, 4, SESSION)),
    st.just(ConsumerMoved(9, 4, SESSION, 3, 20, True, -1)),
)  # fmt: skip


@st.composite
def fed_entries(draw: st.DrawFn) -> list[FedEntry]:
    entries: list[FedEntry] = []
    for number in range(1, draw(st.integers(1, 5)) + 1):
        entry = FedEntry(number * 10)
        entry.answers = [
            (sequence, draw(st.one_of(st.none(), st.lists(RESULTS, max_size=3))))
            for sequence in range(1, draw(st.integers(0, 3)) + 1)
        ]
        entry.effects = draw(st.lists(EFFECTS, max_size=3))
        entry.ended = draw(st.sampled_from([None, (*SESSION, 3, ENDED)]))
        entries.append(entry)
    return entries


@settings(max_examples=200, deadline=None)
@given(fed_entries(), st.sampled_from([SMALL, 100, 1 << 20]))
def test_everything_arrives_however_it_is_divided(entries: list[FedEntry], most_bytes: int) -> None:
    assert there_and_back(entries, most_bytes) == told(entries, LOG)


def test_what_is_large_is_divided_and_a_single_larger_message_goes_alone() -> None:
    entry = FedEntry(10)
    entry.effects = [Deliver(9, 1, [message(index) for index in range(1, 10)], SESSION)]
    parts = ShardFeedCodec(lambda: True).encode([entry], EntryPayloads(LOG), SMALL)
    assert len(parts) > 3
    assert [completes for completes, _ in parts] == [0] * (len(parts) - 1) + [1]


@pytest.mark.parametrize(
    "part",
    [
        b"", b"\xff\xff\xff\xff", b"\x02\x00\x00\x00\x91\xc0", b"\x04\x00\x00\x00\x91\x92\x09\x01",
        b"\x05\x00\x00\x00\x91\x92\x00\xa17",
    ],
)  # fmt: skip
def test_octets_that_nobody_wrote_are_refused(part: bytes) -> None:
    with pytest.raises(MalformedFeed):
        ShardFeedCodec(lambda: True).decode([part], SESSION)


@given(st.binary(max_size=60))
def test_no_octets_do_anything_else(part: bytes) -> None:
    try:
        ShardFeedCodec(lambda: True).decode([part], SESSION)
    except MalformedFeed:
        return


@pytest.mark.parametrize("tells_marks", [False, True])
def test_j3_a_marker_comes_with_its_header(tells_marks: bool) -> None:
    """In the log it has none; a node without a replica does not know that it is a marker, or knows it from the mark."""
    data = b"....\x00\x03key...."
    marker = Message(7, 4, 5, 0, 0, 1_000, 61_000, 3, 60_000, mark_of(1, MAX_AGE))
    entry = FedEntry(7)
    entry.effects = [Deliver(1, 1, [marker, marker], SESSION)]
    codec = ShardFeedCodec(lambda: tells_marks)
    parts = [b"".join(part) for _, part in codec.encode([entry], EntryPayloads({7: data}), 1 << 20)]
    (decoded,), payloads = codec.decode(parts, SESSION)
    (effect,) = decoded.effects
    assert isinstance(effect, Deliver)
    for message in effect.messages:
        payload = payloads[message.index]
        assert as_shown(header_of(message, payload)) == as_shown(header_of(marker, data))
        assert payload[message.offset : message.offset + message.key_length] == data[4:9]
        assert message.marker_reason == (MAX_AGE if tells_marks else 0)
        assert message.stream_offset == marker.stream_offset
