"""A publish, or a letter, whose body stands in other entries (`cluster.group.pieces`): applied without it, and nothing
else is."""

from __future__ import annotations

import pytest

from mayfly.node.shard import commands
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.message import Message
from mayfly.node.shard.outbox import LETTER, PUBLISHED, as_item
from tests.node.readings import statistics_of
from tests.node.shard.driver import A, Driver, content_header, encode_transfer

KEY = b"\0\1q"
BODY = bytes(100)


def published(body: bytes = BODY, queue_id: int = 1) -> bytes:
    parts: list[bytes] = []
    commands.encode_publish(parts, [queue_id], commands.NO_TTL, KEY, content_header(body), body)
    return b"".join(parts)


def apply_without(driver: Driver, batch: bytes, missing: int, beyond: int) -> list[object]:
    """Apply a batch of which so many octets are not in its entry; its end is said to be so many octets beyond that."""
    data = b"entry" + batch[: len(batch) - missing]
    driver.index += 1
    driver.shard.begin(driver.index, driver.time_ms, driver.time_ms, data)
    try:
        return driver.shard.apply(A, 5, len(data) + beyond)
    finally:
        driver.shard.finish()


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.create(1)
    return driver


def test_a_message_counts_with_the_body_that_is_elsewhere(driver: Driver) -> None:
    batch = published()
    assert apply_without(driver, batch, len(BODY), len(BODY)) == []
    assert driver.ready(1) == 1 and statistics_of(driver.shard).ready_bytes == len(BODY)
    apply_without(driver, commands.encode_guard(1) + batch, 30, 30)
    assert driver.ready(1) == 2 and statistics_of(driver.shard).ready_bytes == 2 * len(BODY)


def test_j2_so_does_one_with_a_ttl_in_streams(driver: Driver) -> None:
    driver.create(2, is_stream=True, ttl_retroactive=True)
    parts: list[bytes] = []
    commands.encode_publish_kept(parts, [2, 1], commands.NO_TTL, KEY, content_header(BODY), BODY, None, 5_000)
    apply_without(driver, b"".join(parts), len(BODY), len(BODY))
    assert driver.ready(1) == driver.ready(2) == 1
    driver.pass_ms(5_000)
    driver.tick()
    assert driver.ready(1) == 1 and driver.ready(2) == 0


def letter(body: bytes = BODY, redelivered: bool = False) -> commands.LetterContent:
    return commands.LetterContent(KEY, content_header(body), body, redelivered)


def route(*targets: int, count: int = 1) -> bytes:
    """The decision about the first death: to queues of this shard, and to queue 9 of shard 4."""
    decision = commands.RouteDecision(1, commands.ROUTED, targets, [(4, 9)], letter())
    return commands.encode_route([decision] * count)


def moved(kind: int = PUBLISHED) -> bytes:
    item = as_item(Message(1, 0, len(KEY), len(content_header(BODY)), len(BODY), 5, -1, 0), kind)
    return commands.encode_transfer_moved(4, 1, 1, 5, [(item, letter())])


@pytest.mark.parametrize(
    "batch",
    [
        encode_transfer(4, 1, 1, [letter()]),
        encode_transfer(4, 1, 1, [letter(redelivered=True)]),
        moved(),
        moved(LETTER),
    ],
    ids=["transfer", "redelivered", "moved", "due"],
)
def test_d6_a_letter_of_another_shard_counts_once_with_the_body_that_is_elsewhere(driver: Driver, batch: bytes) -> None:
    for _ in range(2):
        apply_without(driver, batch, len(BODY), len(BODY))
    assert driver.ready(1) == 1 and statistics_of(driver.shard).ready_bytes == len(BODY)
    assert driver.shard.received_up_to(1, 4) == 1


def test_d6_a_letter_is_routed_with_the_body_that_is_elsewhere(driver: Driver) -> None:
    driver.create(2, dead_letter_exchange="", message_ttl_ms=10)
    driver.run(published(queue_id=2))
    driver.pass_ms(10)
    driver.tick()
    assert len(driver.shard.unrouted(5)) == 1
    for _ in range(2):
        apply_without(driver, route(1), len(BODY), len(BODY))
    lane = driver.shard.lane(9)
    assert driver.ready(1) == 1 and statistics_of(driver.shard).ready_bytes == len(BODY)
    assert lane is not None and [item.body_length for item in lane.items] == [len(BODY)]


def test_a_route_says_how_long_a_body_is_that_is_elsewhere() -> None:
    content = commands.LetterContent(KEY, content_header(BODY), b"", body_elsewhere=len(BODY))
    decision = commands.RouteDecision(1, commands.ROUTED, [1], [(4, 9)], content)
    assert commands.encode_route([decision]) + BODY == route(1)


@pytest.mark.parametrize(
    ("batch", "missing", "beyond"),
    [
        (published(), len(BODY), len(BODY) + 1),
        (published(), len(BODY), len(BODY) - 1),
        (published(), len(BODY) + 1, len(BODY) + 1),
        (published(), len(published()) - 5, len(published()) - 5),
        (published(), len(published()), 1),
        (commands.encode_guard(2) + published() + published(), len(BODY), len(BODY)),
        (published() + published(), len(BODY), len(BODY)),
        (commands.encode_get(1, 2, False), 3, 3),
        (b"\xff" * 20, 0, 5),
        (route(1), len(BODY), len(BODY) - 1),
        (route(1), len(BODY), len(BODY) + 1),
        (route(1), len(BODY) + 1, len(BODY) + 1),
        (route(1), len(route(1)) - 8, len(route(1)) - 8),
        (route(1, count=2), len(BODY), len(BODY)),
        (route(1) + route(1), len(BODY), len(BODY)),
        (commands.encode_guard(1) + route(1), len(BODY), len(BODY)),
        (encode_transfer(4, 1, 1, [letter(), letter()]), len(BODY), len(BODY)),
        (encode_transfer(4, 1, 1, [letter()]), len(BODY), len(BODY) + 1),
        (encode_transfer(4, 1, 1, []), 0, 1),
        (moved(), len(BODY), len(BODY) - 1),
        (moved(), len(BODY) + 1, len(BODY) + 1),
    ],
)
def test_what_is_no_publish_or_letter_without_its_body_is_refused(
    driver: Driver, batch: bytes, missing: int, beyond: int
) -> None:
    with pytest.raises(ShardError):
        apply_without(driver, batch, missing, beyond)
    assert driver.ready(1) == 0 and not list(driver.shard.live_entries())
