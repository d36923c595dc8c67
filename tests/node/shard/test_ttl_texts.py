"""How TTLs of messages in streams are read and written (RULES J2)."""

from typing import Any

import pytest

from mayfly.node.shard.dialect import NEVER_TTL
from mayfly.node.shard.message import NO_TTL
from mayfly.node.shard.stream_ttls import MOST_MS, duration_ms, duration_text, marker_ttl_ms, message_ttl_ms


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (5, 5_000), ("5", 5_000), ("007", 7_000), ("1h30m", 5_400_000), ("1h", 3_600_000), ("1.5h", 5_400_000),
        (".5m", 30_000), ("1.m", 60_000), ("1500ms", 1_500), ("1s1ms", 1_001), ("1000000us", 1_000),
        ("1000000\u00b5s", 1_000), ("1000000\u03bcs", 1_000), ("1000000000ns", 1_000), ("1m1m", 120_000),
        ("0", 0), ("", None), (".s", None), ("h", None), ("1", 1_000), ("1.5", None), ("-1s", None), ("+1s", None),
        ("1 s", None), ("1d", None), ("1S", None), ("\u0661s", None), ("never", None), (True, None), (1.5, None),
        (None, None), (b"5", None), ("1" * 101, None), ("1s\x00", None), (-1, None),
    ],
)  # fmt: skip
def test_j2_durations(value: Any, ms: int | None) -> None:
    assert duration_ms(value) == ms


@pytest.mark.parametrize(
    ("value", "ttl_ms"),
    [
        ("never", NEVER_TTL), ("Never", NEVER_TTL), (0, NO_TTL), ("0s", NO_TTL), ("1ns", None), ("999ms", None),
        ("1s", 1000), (MOST_MS // 1000, MOST_MS), (MOST_MS // 1000 + 1, None), ("9" * 100, None), (10**30, None),
    ],
)  # fmt: skip
def test_j2_what_a_publish_may_ask_for(value: Any, ttl_ms: int | None) -> None:
    assert message_ttl_ms(value) == ttl_ms


@pytest.mark.parametrize("value", ["never", 0, "999ms", MOST_MS, None])
def test_j3_what_markers_may_not_have(value: Any) -> None:
    assert marker_ttl_ms(value) is None


@pytest.mark.parametrize(
    ("ttl_ms", "text"),
    [(1_000, "1s"), (60_000, "1m0s"), (90_500, "1m30.5s"), (3_600_000, "1h0m0s"), (360_061_001, "100h1m1.001s")],
)
def test_j3_written_as_go_writes_them(ttl_ms: int, text: str) -> None:
    assert duration_text(ttl_ms) == text
    assert duration_ms(text) == ttl_ms
