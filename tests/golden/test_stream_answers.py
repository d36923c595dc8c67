"""RULES J1: what `tests.golden.stream_answers` recorded of RabbitMQ 4.3.6; our answers are the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.golden import stream_answers
from tests.golden.stream_answers import QUIET_S, RECORDING, SCENES, play
from tests.node.broker.direct_node import DirectNode

RECORDED: Final[dict[str, Any]] = json.loads(RECORDING.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def node() -> Iterator[DirectNode]:
    with DirectNode() as node:
        yield node


def test_every_scene_is_recorded() -> None:
    assert list(RECORDED) == list(SCENES)


@pytest.mark.parametrize("name", SCENES)
def test_answers(node: DirectNode, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """RULES J1. A busy machine may need longer until all has come that is to come."""
    for quiet_s in (QUIET_S, 4 * QUIET_S, 16 * QUIET_S):
        monkeypatch.setattr(stream_answers, "QUIET_S", quiet_s)
        answers = json.loads(json.dumps(play(node.port, name)))
        if answers == RECORDED[name]:
            return
    assert answers == RECORDED[name]
