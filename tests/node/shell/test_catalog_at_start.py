"""What a node does with its file of definitions before it serves: also with one that is wrong, or needs a level."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any, cast

import pytest

from mayfly.cluster.versions import LEVEL_LEADER_LOCATORS
from mayfly.node.broker.cluster_facade import SESSION_LOST
from mayfly.node.catalog import Catalog, CatalogCommand, FoundCluster, NodeStarted, RaiseLevel
from mayfly.node.operating.import_and_export import Definitions
from mayfly.node.settings import NodeSettings
from mayfly.node.shell import catalog_at_start
from mayfly.node.shell.arrival import NodeRefused
from mayfly.node.shell.catalog_at_start import CatalogAtStart
from mayfly.node.shell.ending import Ending

SPREAD = {"vhost": "/", "name": "spread", "pattern": "^s", "definition": {"queue-master-locator": "min-masters"}}
BOUND_S = 30


class Engine:
    """A node that is all of a cluster, as far as its catalog goes."""

    def __init__(self) -> None:
        self.catalog = Catalog(2)
        self.barriers: list[object] = []
        """What barriers are answered with before they are reached."""

    def catalog_barrier(self, done: Any) -> None:
        done(self.barriers.pop(0) if self.barriers else None)

    def submit_catalog(self, command: CatalogCommand, done: Any) -> None:
        done(self.catalog.apply(command))

    async def catch_up(self) -> None:
        """It is up to date."""

    async def command(self, command: CatalogCommand) -> object:
        return self.catalog.apply(command)

    def found(self, level: int) -> None:
        self.catalog.apply(NodeStarted(1, 1 << 20, "a", levels=(1, LEVEL_LEADER_LOCATORS)))
        self.catalog.apply(FoundCluster(((1, "a", "a:1"),), 1, level))

    @property
    def policies(self) -> list[str]:
        return [policy.name for policy in self.catalog.policies("/", False)]


def at_start(engine: Engine, folder: Path, *policies: object) -> CatalogAtStart:
    file = folder / "definitions.json"
    file.write_text(json.dumps({"policies": policies}))
    definitions = Definitions(cast(Any, engine), cast(Any, engine))
    settings = NodeSettings(data_dir=folder, load_definitions=file)
    return CatalogAtStart(cast(Any, engine), settings, definitions, lambda: None, Ending(folder))


def test_a_new_cluster_is_waited_for(tmp_path: Path) -> None:
    """Before it is founded it has no level."""

    async def scenario() -> None:
        engine = Engine()
        waiting = asyncio.ensure_future(at_start(engine, tmp_path, SPREAD).wait())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        engine.found(LEVEL_LEADER_LOCATORS)
        await asyncio.wait_for(waiting, BOUND_S)
        assert engine.policies == ["spread"]

    asyncio.run(scenario())


def test_a_barrier_that_was_given_up_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog here is not current yet: it may lack the definitions that were loaded before."""
    monkeypatch.setattr(catalog_at_start, "CURRENT_AGAIN_S", 0.001)

    async def scenario() -> None:
        engine = Engine()
        engine.found(LEVEL_LEADER_LOCATORS)
        engine.barriers = [SESSION_LOST, SESSION_LOST]
        await asyncio.wait_for(at_start(engine, tmp_path, SPREAD).wait(), BOUND_S)
        assert engine.barriers == []
        assert engine.policies == ["spread"]

    asyncio.run(scenario())


def test_what_needs_a_higher_level_keeps_no_node_from_serving_and_is_loaded_when_it_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(catalog_at_start, "LEVEL_LOOK_S", 0.001)

    async def scenario() -> None:
        engine = Engine()
        engine.found(1)
        start = at_start(engine, tmp_path, SPREAD)
        await asyncio.wait_for(start.wait(), BOUND_S)
        assert engine.policies == []
        assert f"needs feature level {LEVEL_LEADER_LOCATORS}, the cluster is at 1" in caplog.text
        later = asyncio.ensure_future(start.load_when_raised())
        for level in range(2, LEVEL_LEADER_LOCATORS + 1):
            for _ in range(10):
                await asyncio.sleep(0)
            assert not later.done()
            engine.catalog.apply(RaiseLevel(level, ((1, 1 << 20),)))
        await asyncio.wait_for(later, BOUND_S)
        assert engine.policies == ["spread"]
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]

    asyncio.run(scenario())


def test_a_file_that_is_wrong_at_any_level_is_final(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = Engine()
        engine.found(LEVEL_LEADER_LOCATORS)
        wrong = SPREAD | {"definition": {"queue-master-locator": "here"}}
        with pytest.raises(NodeRefused, match=r"load_definitions = .*policies\[0\]"):
            await asyncio.wait_for(at_start(engine, tmp_path, wrong).wait(), BOUND_S)

    asyncio.run(scenario())
