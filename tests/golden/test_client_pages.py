"""Channels and consumers over HTTP: what `tests.golden.client_pages` recorded of RabbitMQ 3.10.8, ours is the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.golden.client_pages import PAGES, RECORDING, pages, without
from tests.project.test_managed_queues import Node

LEFT_OUT: Final = frozenset({"deliveries", "pending_raft_commands", "publishes"})
"""Fields that there are not here, beside `client_pages.VARYING`."""

OTHER_STATUS: Final = {
    # Fails there.
    "guest connections/none/channels": 404,
    # The tag monitoring opens vhosts of others in other pages; there as well.
    "watch vhosts/%2F/channels": 200,
    "watch vhosts/other/channels": 200,
}

KEYS: Final = [f"{user} {path}" for _, path, user in PAGES]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Any]]]:
    node = Node(tmp_path_factory.mktemp("node"))
    try:
        node.connection.close()
        yield pages(node.process._listener.port, node.process._http.address.port, 0.0)
    finally:
        node.stop()


def recorded() -> dict[str, list[Any]]:
    content: dict[str, list[Any]] = json.loads(RECORDING.read_text(encoding="utf-8"))
    return content


def test_every_page_is_recorded() -> None:
    assert list(recorded()) == KEYS


@pytest.mark.parametrize("page", KEYS)
def test_pages(shown: dict[str, list[Any]], page: str) -> None:
    status, content = shown[page]
    expected_status, expected = recorded()[page]
    if page in OTHER_STATUS:
        assert (status, status != expected_status) == (OTHER_STATUS[page], True)
    elif status == 200:
        assert (expected_status, without(expected, LEFT_OUT)) == (200, content)
    else:
        assert (expected_status, expected["error"]) == (status, content["error"])
