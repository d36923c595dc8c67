"""Conversations whose answers `tests.golden.method_answers` recorded of RabbitMQ 3.10.8, and of 4.3.6 where that is
what we do: ours are the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.golden.method_answers import QUIET_S, RECORDING, SCENES, SINCE_4, USERS, play
from tests.node.broker.direct_node import DirectNode, add_user


@pytest.fixture(scope="module")
def node() -> Iterator[DirectNode]:
    with DirectNode() as node:
        for name, permissions in USERS.items():
            add_user(node.cluster, name, name, *permissions)
        yield node


def recorded() -> dict[str, list[Any]]:
    before: dict[str, list[Any]] = json.loads(RECORDING.read_text(encoding="utf-8"))
    # Which access is refused is said since 4.0, not yet here.
    since_4 = re.sub(r"(configure|write|read) access to", "access to", SINCE_4.read_text(encoding="utf-8"))
    return {**before, **json.loads(since_4)}


def test_every_conversation_is_recorded() -> None:
    assert list(recorded()) == list(SCENES)


@pytest.mark.parametrize("name", SCENES)
def test_answers(node: DirectNode, name: str) -> None:
    """Where deliveries are counted, a busy machine may need longer until all have come."""
    for quiet_s in (QUIET_S, 4 * QUIET_S, 16 * QUIET_S):
        answers = play(node.port, SCENES[name], quiet_s)
        if answers == recorded()[name]:
            return
    assert answers == recorded()[name]
