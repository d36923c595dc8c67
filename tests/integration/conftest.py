"""Clusters for whole test modules."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.nodes import Nodes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the module's cluster keeps its data and logs."""
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def settings() -> dict[str, object]:
    """Settings of the module's nodes other than the defaults; modules override this."""
    return {}


@pytest.fixture(scope="module")
def cluster(folder: Path, settings: dict[str, object]) -> Iterator[Nodes]:
    """Three nodes that serve. At the end their logs must be clean."""
    with Nodes(folder, 3, settings) as nodes:
        nodes.serve()
        yield nodes


@pytest.fixture
def whole(cluster: Nodes) -> Nodes:
    """The module's cluster, all of it running and well, whatever the test before did to it."""
    cluster.heal()
    return cluster
