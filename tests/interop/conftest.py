"""Three nodes for all tests of clients, and which of these tests are due.

A quick part is in every run; `make interop` runs all of it (INTEROP=all).
"""

import os
from collections.abc import Iterator

import pytest

from tests.integration.nodes import Nodes


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the long ones out of ordinary runs."""
    if os.environ.get("INTEROP") == "all":
        return
    long = [item for item in items if item.get_closest_marker("interop_long")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.fixture(scope="package")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Three nodes that serve. At the end their logs must be clean."""
    running = Nodes(tmp_path_factory.mktemp("interop"))
    try:
        running.serve()
        yield running
    except BaseException:
        running.stop()
        raise
    running.close()


@pytest.fixture
def whole(nodes: Nodes) -> Nodes:
    """All nodes running and well, whatever the test before did to them."""
    nodes.heal()
    return nodes
