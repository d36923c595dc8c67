"""Readiness of a node that has replicas of some groups: it speaks for those."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from mayfly.node.engine.drain import NOT_DRAINING
from mayfly.node.shell.catching_up import CatchingUp
from mayfly.node.shell.node_view import NodeView


def a_group(id: int, leader: int, is_fed: bool = False) -> SimpleNamespace:
    """A replica that knows its leader, or 0; `is_fed`: this node's clients are not served by it yet."""
    return SimpleNamespace(id=id, leader=leader, session=SimpleNamespace(is_fed=is_fed))


class Host:
    """Groups with their leaders; reads wait until a test answers them."""

    def __init__(self, leaders: dict[int, int]) -> None:
        self.groups = {id: a_group(id, leader) for id, leader in leaders.items()}
        self.reads: list[tuple[int, Any]] = []
        self.damaged: dict[int, list[int]] = {}

    def beyond_repair(self, now_ms: int) -> dict[int, list[int]]:
        return self.damaged

    def read_index(self, group: int, done: Any) -> None:
        assert group in self.groups, "there is nobody to ask"
        self.reads.append((group, done))


def a_node(leaders: dict[int, int]) -> tuple[Host, CatchingUp, NodeView]:
    host = Host(leaders)
    ending: Any = SimpleNamespace(stopped=SimpleNamespace(is_set=lambda: False))
    catching_up = CatchingUp(host, lambda: None, ending)  # type: ignore[arg-type]
    node: Any = SimpleNamespace(
        engine=SimpleNamespace(host=host, no_room=None), catching_up=catching_up,
        now_ms=lambda: 0, control=SimpleNamespace(drain=SimpleNamespace(step=NOT_DRAINING)),
    )  # fmt: skip
    catching_up.serving = True
    not_asked: Any = None
    return host, catching_up, NodeView(node, not_asked, not_asked, not_asked, not_asked)


def test_a_node_is_ready_when_it_knows_who_leads_what_it_has() -> None:
    """Also while replicas come and go."""
    host, _, view = a_node({0: 1, 3: 2})
    assert view.readiness() == (True, "ready")
    host.groups[5] = a_group(5, 0, is_fed=True)
    assert view.readiness()[0], "its clients are served as they were before it had a replica"
    host.groups[5].session.is_fed = False
    assert view.readiness() == (False, "no leader known for groups 5")
    del host.groups[5]
    assert view.readiness()[0]
    host.groups[0].leader = 0
    assert view.readiness() == (False, "no leader known for groups 0")


def test_a_group_that_nobody_can_rebuild_is_told_with_what_to_do() -> None:
    """Before all else: it may be the catalog that a start waits for."""
    host, catching_up, view = a_node({0: 0, 3: 2})
    catching_up.serving = False
    host.damaged = {0: [1, 2]}
    ready, why = view.readiness()
    assert not ready and why.startswith("group 0 is damaged on nodes 1, 2, its other voters are no majority: ")
    assert "`mayfly restore`" in why


def test_a_replica_that_has_gone_keeps_nobody_waiting() -> None:
    host, catching_up, view = a_node({0: 1, 3: 2, 4: 2})
    catching_up.begin()
    (_, catalog), (_, third), (_, fourth) = host.reads
    catalog(None)
    assert view.readiness() == (False, "starting: groups 3, 4 are not up to date yet")
    del host.groups[3]
    assert view.readiness() == (False, "starting: groups 4 are not up to date yet")
    catching_up._ask(3)
    assert catching_up.behind == {4}
    fourth(None)
    assert view.readiness() == (True, "ready")
    assert third is not None
