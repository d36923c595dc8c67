"""Which headers of a publish mean something, whatever else stands in its content header."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp.commands import Basic

from mayfly.node.broker.meanings import (
    CHANGE,
    COPIES,
    DELAYED,
    KEPT_APART,
    MOMENT,
    RECURRENCE,
    STREAM_TTL,
    meanings_of,
)
from tests.node.amqp.headers import build_header


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, 0),
        ({"message_id": "\x02CC", "content_type": "x-delay"}, 0),
        ({"headers": {}}, 0),
        ({"headers": {"a": "x-delay", "b": {"x-delay": 1}, "c": ["CC", {"CC": "k"}]}}, 0),
        ({"headers": {"CC": ["a"]}}, COPIES),
        ({"headers": {"a": {"b": [1, "x"]}, "BCC": ["a"], "z": 1}, "content_encoding": "e"}, COPIES | KEPT_APART),
        ({"headers": {"x-death": []}}, KEPT_APART),
        ({"headers": {"x-delay": "soon", "x-deliver-at": None}}, DELAYED | MOMENT),
        ({"headers": {"x-schedule": "@every 5m"}}, RECURRENCE),
        ({"headers": {"x-schedule-cancel": "id"}}, CHANGE),
        ({"headers": {"x-delayed": 1, "-delay": 2, "X-Delay": 3, "x-schedule-time-zone": "UTC"}}, 0),
        ({"headers": {"Nats-TTL": "1h"}}, STREAM_TTL),
        ({"headers": {"x-ttl": 5, "CC": []}}, STREAM_TTL | COPIES),
    ],
)
def test_headers_are_known_by_their_names_alone(properties: dict[str, Any], expected: int) -> None:
    assert meanings_of(build_header(Basic.Properties(**properties), 1)) == expected
