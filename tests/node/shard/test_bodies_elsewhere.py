"""A publish whose body stands in other entries (`cluster.group.pieces`): applied without it, and nothing else is."""

from __future__ import annotations

import pytest

from mayfly.node.shard import commands
from mayfly.node.shard.errors import ShardError
from tests.node.readings import statistics_of
from tests.node.shard.driver import A, Driver, content_header

KEY = b"\0\1q"
BODY = bytes(100)


def published(body: bytes = BODY) -> bytes:
    parts: list[bytes] = []
    commands.encode_publish(parts, [1], commands.NO_TTL, KEY, content_header(body), body)
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
    ],
)
def test_what_is_no_publish_without_its_body_is_refused(
    driver: Driver, batch: bytes, missing: int, beyond: int
) -> None:
    with pytest.raises(ShardError):
        apply_without(driver, batch, missing, beyond)
    assert driver.ready(1) == 0 and not list(driver.shard.live_entries())
