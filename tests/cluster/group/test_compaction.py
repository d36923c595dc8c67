"""Compaction of a large state: in steps, between which the group goes on, and as often as the state is worth it."""

from functools import partial

import pytest

from mayfly.cluster.group.compaction import times_too_long
from mayfly.cluster.group.log_upkeep import TIMES_TOO_LONG
from mayfly.cluster.group.snapshot_offer import OFFER_KEPT_MS
from mayfly.cluster.log.batch import MissingEntry
from tests.cluster.host.three_hosts import TICK_MS, Cluster, Node, Recorder

COMPACT_ENTRIES = 20
KEEP = 5
STEPS = 60


def has_commands(machine: Recorder, commands: list[bytes]) -> bool:
    return machine.commands == commands


def submit(cluster: Cluster, count: int, tag: bytes = b"w") -> None:
    for number in range(count):
        cluster.nodes[cluster.leader()].host.submit(0, [tag + b"%04d" % number], 5, False, None)
        cluster.step()


def slow_cluster() -> Cluster:
    """Three nodes that take their time to make a snapshot."""
    cluster = Cluster(3, compact_entries=COMPACT_ENTRIES, keep=KEEP)
    for node in cluster.nodes.values():
        node.machines[0].snapshot_takes = STEPS
    cluster.run_until(lambda: cluster.leader() != 0)
    return cluster


def compacted_once() -> tuple[Cluster, Node]:
    """A slow cluster whose leader has just compacted its log for the first time, and the leader."""
    cluster = slow_cluster()
    node = cluster.nodes[cluster.leader()]
    group = node.host.groups[0]
    first = group.log.first_index()
    while group.log.first_index() == first:
        submit(cluster, 1)
    return cluster, node


def stored(node: Node, index: int) -> bool:
    try:
        node.store.read_entry(0, index)
    except MissingEntry:
        return False
    return True


def test_a_snapshot_is_made_over_many_ticks_while_entries_are_applied() -> None:
    """It is of the moment at which it was begun; what is applied meanwhile is still in the log after it."""
    _, node = compacted_once()
    group = node.host.groups[0]
    index = group.log.snapshot_metadata.index
    assert group.applied >= index + STEPS - 5, "it was made in one go"
    assert group.log.term(group.applied) == group.term


def test_what_dies_while_a_snapshot_is_made_is_deleted_with_the_rest() -> None:
    cluster, node = compacted_once()
    group = node.host.groups[0]
    submit(cluster, 3)
    alive = set(node.machines[0].kept)
    index = group.log.snapshot_metadata.index
    assert index > KEEP and not alive & set(range(index + 1)), "what was alive at its beginning was to be dead"
    assert not any(stored(node, dead) for dead in range(1, index + 1))


def test_a_node_that_starts_from_such_a_snapshot_is_the_same() -> None:
    cluster = slow_cluster()
    submit(cluster, 4 * (STEPS + COMPACT_ENTRIES))
    for id in cluster.ids:
        before = list(cluster.nodes[id].machines[0].commands)
        assert cluster.nodes[id].host.groups[0].log.first_index() > STEPS
        cluster.kill(id)
        cluster.start(id)
        machine = cluster.nodes[id].machines[0]
        cluster.run_until(partial(has_commands, machine, before))
        assert all(stored(cluster.nodes[id], index) for index in machine.kept)


def test_a_snapshot_of_the_leader_puts_an_end_to_one_that_is_being_made() -> None:
    """What it would describe is gone, and the log that it would shorten too."""
    cluster = slow_cluster()
    away = next(id for id in cluster.ids if id != cluster.leader())
    lagging = cluster.nodes[away].host.groups[0]
    # A follower compacts by itself; it is cut off in the middle of that.
    while lagging.upkeep._compacting is None:
        submit(cluster, 1)
    began = lagging.applied
    cluster.cut = {away}
    for node in cluster.nodes.values():
        node.machines[0].snapshot_takes = 1
    lagging.upkeep._compacting._steps._steps.left = 1 << 30  # type: ignore[attr-defined]
    submit(cluster, 10 * COMPACT_ENTRIES, b"x")
    assert lagging.applied <= began + 5
    cluster.cut = set()
    leader = cluster.nodes[cluster.leader()]
    machine = cluster.nodes[away].machines[0]
    cluster.run_until(lambda: machine.commands == leader.machines[0].commands)
    cluster.run_until(lambda: lagging.upkeep._compacting is None)
    submit(cluster, 3 * COMPACT_ENTRIES, b"y")
    assert lagging.log.first_index() > began + 10 * COMPACT_ENTRIES


def test_a_snapshot_for_a_member_that_lags_is_made_over_many_ticks_too() -> None:
    """The group goes on meanwhile, and nothing that the snapshot refers to leaves the log."""
    cluster = Cluster(3, compact_entries=COMPACT_ENTRIES, keep=KEEP)
    cluster.run_until(lambda: cluster.leader() != 0)
    away = next(id for id in cluster.ids if id != cluster.leader())
    cluster.kill(away)
    submit(cluster, 10 * COMPACT_ENTRIES)
    leader = cluster.nodes[cluster.leader()]
    group = leader.host.groups[0]
    leader.machines[0].snapshot_takes = STEPS
    cluster.start(away)
    while group.upkeep._offer.metadata is None:
        submit(cluster, 1, b"x")
    index, alive = group.applied, set(leader.machines[0].kept)
    machine = cluster.nodes[away].machines[0]
    submit(cluster, STEPS // 2, b"y")
    assert not machine.commands, "it was made in one go"
    assert group.applied > index + STEPS // 3 and not alive & set(leader.machines[0].kept)
    assert all(stored(leader, entry) for entry in alive)
    cluster.run_until(lambda: machine.commands == leader.machines[0].commands)


def test_a_snapshot_that_nobody_waits_for_any_more_holds_nothing_back() -> None:
    cluster = Cluster(3, compact_entries=COMPACT_ENTRIES, keep=KEEP)
    cluster.run_until(lambda: cluster.leader() != 0)
    away = next(id for id in cluster.ids if id != cluster.leader())
    cluster.kill(away)
    submit(cluster, 10 * COMPACT_ENTRIES)
    leader = cluster.nodes[cluster.leader()]
    offer = leader.host.groups[0].upkeep._offer
    leader.machines[0].snapshot_takes = STEPS
    cluster.start(away)
    cluster.run_until(lambda: offer.metadata is not None)
    cluster.kill(away)
    alive = set(leader.machines[0].kept)
    submit(cluster, 3 * COMPACT_ENTRIES, b"x")
    assert all(stored(leader, entry) for entry in alive)
    cluster.run_until(lambda: offer.metadata is None, OFFER_KEPT_MS // TICK_MS + 2 * STEPS)
    submit(cluster, TIMES_TOO_LONG * COMPACT_ENTRIES + STEPS, b"x")
    assert not any(stored(leader, entry) for entry in alive)


def written_bytes(count: int) -> int:
    """Bytes of snapshots that a single node writes while its state grows by so many commands."""
    cluster = Cluster(1, compact_entries=COMPACT_ENTRIES, compact_bytes=1000)
    cluster.run_until(lambda: cluster.leader() != 0)
    group = cluster.nodes[1].host.groups[0]
    total, last = 0, group.log.snapshot_metadata.index
    for _ in range(count):
        submit(cluster, 1)
        if group.log.snapshot_metadata.index != last:
            last = group.log.snapshot_metadata.index
            total += group.upkeep._state_bytes
    assert total
    return total


def test_a_growing_state_is_written_a_bounded_number_of_times() -> None:
    """Were it written each time that the same was added, four times the state would cost sixteen times as much."""
    assert written_bytes(3200) < 6 * written_bytes(800)


@pytest.mark.parametrize("state_bytes", [0, 999, 1000])
def test_a_small_state_changes_nothing(state_bytes: int) -> None:
    assert times_too_long(1999, 19, 1000, 20, state_bytes) == 1
    assert times_too_long(0, 45, 1000, 20, state_bytes) == 2
    assert times_too_long(999, 19, 1000, 20, state_bytes) == 0
