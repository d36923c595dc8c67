"""New clusters begin at the feature level of their founders: definitions that need it are loaded at the start."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mayfly.cluster.versions import LEVEL_LEADER_LOCATORS, LEVELS
from tests.integration.clients import channel
from tests.integration.nodes import Nodes
from tests.integration.operators import ask, put_policy
from tests.waiting import wait_for

pytestmark = [pytest.mark.processes]

DEFINITIONS = {
    "vhosts": [{"name": "/"}],
    "policies": [
        {
            "vhost": "/", "name": "spread", "pattern": "^spread", "apply-to": "queues",
            "definition": {"queue-master-locator": "min-masters"},
        },
    ],
}  # fmt: skip


@pytest.fixture
def founders(tmp_path: Path) -> Iterator[Nodes]:
    """Three that have not been started."""
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(DEFINITIONS))
    nodes = Nodes(tmp_path / "cluster", 3, {"load_definitions": file})
    with nodes:
        yield nodes


def is_as_defined(nodes: Nodes, id: int) -> bool:
    """What the node says as soon as it serves."""
    code, found = ask(nodes, id, "GET", "policies/%2F")
    assert code == 200
    level = nodes.page(id, "/cluster/members")[1]["level"]
    return level == LEVELS.highest and [(it["name"], it["definition"]) for it in found] == [
        ("spread", {"queue-master-locator": "min-masters"})
    ]


def test_three_founders_start_with_a_policy_for_queue_leaders(founders: Nodes) -> None:
    founders.start()
    founders.until_serving()
    assert all(is_as_defined(founders, id) for id in founders.ids)


def test_two_of_three_serve_with_it_before_the_third_has_started(founders: Nodes) -> None:
    """And take another such policy, by which queues go then."""
    founders.start(1, 2)
    founders.until_serving()
    assert is_as_defined(founders, 1) and is_as_defined(founders, 2)
    put_policy(founders, 1, "near", "^near", {"queue-leader-locator": "client-local"})
    with channel(founders, 2) as declaring:
        for number in range(6):
            declaring.queue_declare(f"near-{number}", durable=True)
    assert {founders.planned_leader(f"near-{number}", witness=2) for number in range(6)} == {2}
    founders.start(3)
    founders.until_serving()
    code, found = ask(founders, 3, "GET", "policies/%2F")
    assert code == 200 and {it["name"] for it in found} == {"near", "spread"}


@pytest.mark.slow
def test_a_limit_holds_the_level_until_all_have_been_started_without(founders: Nodes) -> None:
    """What needs the level waits for it; then definitions come as at any raise."""
    for id in founders.ids:
        founders.configure(id, feature_level_limit=LEVEL_LEADER_LOCATORS - 1)
    founders.start()
    founders.until_serving()
    assert {level_of(founders, id) for id in founders.ids} == {LEVEL_LEADER_LOCATORS - 1}
    wait_for(lambda: "keeps it from" in founders.log_text(1), "the reason in a log")
    for id in founders.ids:
        founders.kill(id)
        founders.configure(id, feature_level_limit=0)
        founders.start(id)
        founders.until_serving()
    wait_for(lambda: all(is_as_defined(founders, id) for id in founders.ids), "the level and what needs it")


def level_of(nodes: Nodes, id: int) -> int:
    """The cluster's feature level."""
    return int(nodes.page(id, "/cluster/members")[1]["level"])
