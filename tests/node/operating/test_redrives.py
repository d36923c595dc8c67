"""Questions about redrives, and their answers, on their way between nodes (RULES R1)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from pamqp.commands import Basic

from mayfly.node.amqp.content import Content
from mayfly.node.catalog import Catalog
from mayfly.node.dead_letter import DeathWriter, RedriveRouter, RedriveTerms
from mayfly.node.operating.ports.redrives import RedriveWish
from mayfly.node.operating.redrives import _Preview, _Redrives
from mayfly.node.operating.views.redrive_views import (
    PreviewPart,
    RedrivePlace,
    RedriveRow,
    _row,
    encoded_terms,
    shown_terms,
)
from mayfly.node.shard.message import Message
from tests.node.amqp.headers import build_header

PLACE = RedrivePlace(9, 1_000, True, 3, 7, 5, 900, 1)
ROW = {"targets": ["q"], "exchange": "", "properties": {"headers": {"n": 1, "x": [True, None]}}, "payload": "p"}


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ({3: PreviewPart(2, 1, 1, {"q": 2}, [ROW], PLACE)}, dict[int, PreviewPart]),
        ({3: PreviewPart(0, 0, 0, {}, [], None)}, dict[int, PreviewPart]),
        ({3: [RedriveRow(1, 2, "running", b"\x90", 5, 6, 7, 8, 9, 10, 11)], 4: []}, dict[int, list[RedriveRow]]),
        (_Preview({3: 8}, b"\x90", PLACE, 10), _Preview | _Redrives),
        (_Preview({3: 8}, b"\x90", None, 10), _Preview | _Redrives),
        (_Redrives({3: [1], 4: None}), _Preview | _Redrives),
    ],
)  # fmt: skip
def test_r1_what_nodes_say_of_redrives_is_read_as_it_was_meant(told: Any, kind: Any) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(told), type=kind) == told


def test_r1_what_no_utf_8_can_say_is_shown_nevertheless() -> None:
    header = build_header(Basic.Properties(), 1)
    died = DeathWriter().write(Content(b"\2e\xff\1\xff", header, b"m"), "work", "expired", 1, "", None).content(b"m")
    decision = RedriveRouter(Catalog(1)).decide("/", "dead", RedriveTerms(queue="work"), died)
    row = _row(Message(1, 0, 5, len(header), 1, 0, -1, 0), decision, 0)
    assert msgspec.json.decode(msgspec.json.encode(row))["routing_key"] == row["routing_key"]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(row)) == row


def test_r1_what_was_asked_for_is_shown_again() -> None:
    wish = RedriveWish(target_exchange="", target_key="k", headers=(("a", "1"),), min_age_ms=0)
    assert shown_terms(encoded_terms(wish)) == {
        "target_exchange": "", "target_routing_key": "k", "headers": {"a": "1"}, "min_age_ms": 0,
    }  # fmt: skip
    assert shown_terms(encoded_terms(RedriveWish())) == {}
    assert shown_terms(b"\xff") == {}
