"""Channels and consumers over HTTP: what `tests.golden.client_pages` recorded of RabbitMQ 3.10.8, ours is the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.golden.client_pages import PAGES, RECORDING, pages, without
from tests.node.http.real_node import Node
from tests.node.http.served import address_of

LEFT_OUT: Final = frozenset({"deliveries", "pending_raft_commands", "publishes"})
"""Fields that there are not here, beside `client_pages.VARYING`."""

NEWER: Final = frozenset({"consumer_timeout"})
"""Fields that RabbitMQ has shown since this was recorded."""

OTHER_STATUS: Final = {
    # Fails there.
    "guest connections/none/channels": 404,
    # The tag monitoring opens vhosts of others in other pages; there as well.
    "watch vhosts/%2F/channels": 200,
    "watch vhosts/other/channels": 200,
}

LIMITED_ALONE: Final = ("alone", 4)
"""The consumer behind the scene's basic.qos with global, and its limit: for each consumer since RabbitMQ 4."""

KEYS: Final = [f"{user} {path}" for _, path, user in PAGES]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Any]]]:
    node = Node(tmp_path_factory.mktemp("node"))
    try:
        node.connection.close()
        yield pages(node.parts.listener.port, address_of(node.parts.http).port, 0.0)
    finally:
        node.stop()


def recorded() -> dict[str, list[Any]]:
    content: dict[str, list[Any]] = json.loads(RECORDING.read_text(encoding="utf-8"))
    shown: dict[str, list[Any]] = since_4(content)
    return shown


def since_4(content: Any) -> Any:
    """The same with limits as RabbitMQ 4 has them: none is for all consumers of a channel."""
    if isinstance(content, list):
        return [since_4(each) for each in content]
    if not isinstance(content, dict):
        return content
    changed = {key: since_4(value) for key, value in content.items()}
    if limit := changed.get("global_prefetch_count"):
        changed |= {"prefetch_count": limit, "global_prefetch_count": 0}
    if changed.get("consumer_tag") == LIMITED_ALONE[0]:
        changed["prefetch_count"] = LIMITED_ALONE[1]
    return changed


def test_every_page_is_recorded() -> None:
    assert list(recorded()) == KEYS


@pytest.mark.parametrize("page", KEYS)
def test_pages(shown: dict[str, list[Any]], page: str) -> None:
    status, content = shown[page]
    expected_status, expected = recorded()[page]
    if page in OTHER_STATUS:
        assert (status, status != expected_status) == (OTHER_STATUS[page], True)
    elif status == 200:
        assert (expected_status, without(expected, LEFT_OUT)) == (200, without(content, NEWER))
    else:
        assert (expected_status, expected["error"]) == (status, content["error"])
