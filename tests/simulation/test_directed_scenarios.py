"""Scenarios made by hand: what once went wrong, or goes wrong too rarely by chance, in clusters drawn from seeds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mayfly.cluster.group.pieces import BORROWS, WHOLE
from mayfly.cluster.group.sessions import BATCH_HEADER, ENTRY_HEADER
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.raft import Entry, EntryType, MessageType
from mayfly.cluster.versions import LEVELS
from mayfly.node.shard.commands import TRANSFER, TRANSFER_MARKED, TRANSFER_MOVED
from simulation.cluster import faults
from simulation.cluster.clocks import EPOCH_MS
from simulation.cluster.events import SECOND_US
from simulation.node.history import Read
from simulation.node.nodes import most_unsent_bytes
from simulation.node.scenario import with_limits, with_reluctant, with_schedules, with_transactions
from simulation.node.topology import MIRROR, QueuePlan
from simulation.node.world import content_of
from tests.simulation.scenarios import at, run, three_nodes

LATE_CLOCK_MS = 60_000
"""A shard's clock is that of its last entry, some seconds ago; an hour shows."""


@pytest.mark.parametrize("hours", [-3, 3])
def test_c3_two_nodes_of_three_serve_though_one_clock_is_wrong_and_its_log_is_behind(hours: int) -> None:
    """Two clocks that differ do not say which is wrong; the node whose log is needed must not hold back."""
    plan = (
        at(0.3, faults.CLOCK_STEP, 3, amount=hours * 3_600 * SECOND_US),
        at(0.5, faults.CRASH, 3, lasts=6.4),
        at(6.6, faults.CRASH, 1, 2, lasts=0.8),
    )
    run(replace(three_nodes(1), plan=plan, absent=2))


@pytest.mark.parametrize("hours", [-3, 3])
def test_l8_t5_everything_restarts_with_one_clock_set_wrong(hours: int) -> None:
    """No lease ends early, no clock stands still (RULES C2, L8, T14)."""
    plan = (
        at(1.0, faults.CLOCK_STEP, 1, amount=hours * 3_600 * SECOND_US),
        at(1.5, faults.CRASH, 1, 2, 3, lasts=0.4),
        at(4.0, faults.CRASH, 1, 2, 3, lasts=0.4),
    )
    run(replace(three_nodes(20), plan=plan))


def test_t14_an_outage_is_as_long_as_it_was_though_all_clocks_are_set_forward() -> None:
    """All processes die, wall clocks are an hour ahead then, no machine starts anew: shard clocks, by which everything
    expires, show true time to the end (RULES T5, T7, T14)."""
    scenario = three_nodes(20)
    plan = (
        at(1.5, faults.KILL, 1, 2, 3, lasts=0.9),
        at(2.0, faults.CLOCK_STEP, 1, 2, 3, amount=3_600 * SECOND_US),
        at(4.0, faults.KILL, 1, 2, 3, lasts=0.4),
    )
    simulation = run(replace(scenario, plan=plan))
    clocks_ms = simulation.world.probe.shard_clocks_ms
    now_ms = EPOCH_MS + simulation.queue.now_us // 1_000
    assert clocks_ms and all(abs(now_ms - clock_ms) < LATE_CLOCK_MS for clock_ms in clocks_ms.values())


def test_t14_an_outage_is_as_long_as_it_was_though_shard_clocks_are_ahead_of_the_nodes() -> None:
    """All wall clocks are an hour ahead at first, and right when the machines have started anew: shard clocks stay
    ahead. An outage of all processes on that boot counts all the same (RULES T5, T14)."""
    hour_us = 3_600 * SECOND_US
    scenario = replace(three_nodes(20), clock_offsets_us=(hour_us,) * 3, changes=(), growth=())
    anew_s, outage_s = 0.4, 3.0
    plan = (
        at(1.0, faults.CLOCK_STEP, 1, 2, 3, amount=-hour_us),
        at(1.2, faults.CRASH, 1, 2, 3, lasts=anew_s),
        at(5.0, faults.KILL, 1, 2, 3, lasts=outage_s),
    )
    simulation = run(replace(scenario, plan=plan))
    hurried_ms = EPOCH_MS + (simulation.queue.now_us + hour_us) // 1_000
    behind_ms = [hurried_ms - clock_ms for clock_ms in simulation.group_clocks_ms()]
    assert min(behind_ms) >= -10, "ahead of the clocks that it began with"
    assert max(behind_ms) < 1_000 * (anew_s + outage_s / 2), behind_ms


def test_d6_nothing_is_lost_or_doubled_while_leaders_come_and_go() -> None:
    """Leaders of all groups are asked to hand over ten times a second, and the power fails twice."""
    scenario = three_nodes(40)
    plan = [at(0.3 + 0.1 * n, faults.TRANSFER, n % 3 + 1, amount=n) for n in range(60)]
    plan += [at(2.2, faults.CRASH, 1, 2, 3, lasts=0.3), at(5.1, faults.CRASH, 1, 2, 3, lasts=0.3)]
    simulation = run(replace(scenario, plan=tuple(plan)))
    assert simulation.history.counts()["dead"] > 0


def test_l6_leases_outlive_their_leaders() -> None:
    """Each node crashes in turn, again and again: no lease ends early, and none lingers."""
    scenario = three_nodes(60)
    plan = [at(0.4 + 0.8 * n, faults.CRASH, n % 3 + 1, lasts=0.5) for n in range(8)]
    simulation = run(replace(scenario, plan=tuple(plan), leaseholders=2))
    assert any(gone.reason == "expired" for gone in simulation.history.disappearances)


def test_a_full_disk_loses_nothing_and_service_resumes() -> None:
    """All disks are full for two seconds in the middle of everything."""
    run(replace(three_nodes(80), plan=(at(2.0, faults.FULL_DISK, 1, 2, 3, lasts=2.0),)))


def test_d8_dead_letters_wait_for_a_full_queue_while_leaders_come_and_go() -> None:
    """Queues with limits under crashes and handovers (RULES D2, D6-D9): what was refused is not there, what was dropped
    is dead-lettered, what waits for room arrives once and in order."""
    scenario = with_limits(three_nodes(101))
    plan = [at(0.3 + 0.2 * n, faults.TRANSFER, n % 3 + 1, amount=n) for n in range(30)]
    plan += [at(1.4, faults.CRASH, 1, 2, 3, lasts=0.3), at(3.1, faults.CRASH, 2, lasts=0.8)]
    simulation = run(replace(scenario, plan=tuple(plan), gap_us=70_000))
    assert simulation.history.counts()["refused"] > 0
    reasons = {death.reason for delivery in simulation.history.deliveries for death in delivery.deaths}
    assert {"maxlen", "delivery_limit", "expired"} <= reasons
    narrow = [delivery for delivery in simulation.history.deliveries if delivery.queue == "narrow"]
    assert len({delivery.message_id for delivery in narrow}) > 3


class LargeLetters:
    """Which of them travel, by the entries in which they do: as commands that borrow a body, and in pieces."""

    def __init__(self) -> None:
        self.borrowed: set[tuple[int, int]] = set()
        self.sent: set[tuple[int, int]] = set()

    def look(self, frame: Frame, sender: int, receiver: int) -> Frame:
        for group, message in frame.raft:
            for entry in message.entries if message.type == MessageType.APP else ():
                if entry.type == EntryType.NORMAL and entry.data:
                    self._look_at(group, entry)
        return frame

    def _look_at(self, group: int, entry: Entry) -> None:
        position = ENTRY_HEADER.size
        while position < len(entry.data):
            kind, _, _, _, length = BATCH_HEADER.unpack_from(entry.data, position)
            position += BATCH_HEADER.size
            if kind & BORROWS:
                self.borrowed.add((group, entry.index))
            elif kind & WHOLE and length and entry.data[position] in (TRANSFER, TRANSFER_MARKED, TRANSFER_MOVED):
                self.sent.add((group, entry.index))
            position += length


@pytest.mark.parametrize("seed", [20, 40, 101])
def test_d6_d7_large_dead_letters_come_once_and_in_order_while_leaders_come_and_go(seed: int) -> None:
    """What is routed borrows its body, and goes to other shards in pieces, under crashes, handovers and snapshots."""
    scenario = with_limits(three_nodes(seed)) if seed == 101 else three_nodes(seed)
    profile = replace(
        scenario.node_profile, shards=3, level=LEVELS.highest, large_body_bytes=100, piece_bytes=700,
        session_window=4, compact_bytes=1 << 16,
    )
    plan = [at(0.3 + 0.15 * n, faults.TRANSFER, n % 3 + 1, amount=n) for n in range(40)]
    plan += [at(1.4 + 1.1 * n, faults.CRASH, n % 3 + 1, lasts=0.4) for n in range(4)]
    plan += [at(5.9, faults.CRASH, 1, 2, 3, lasts=0.3)]
    letters = LargeLetters()
    simulation = run(replace(scenario, plan=tuple(plan), node_profile=profile), letters.look)
    assert simulation.history.counts()["dead"] > 0
    assert len(letters.borrowed) > 20 and len(letters.sent) > 20


def test_s2_s3_s4_s5_what_waits_comes_when_it_is_due_while_leaders_come_and_go() -> None:
    """RULES S2-S5, X2: also what was rescheduled, and what is to be retried, under crashes and handovers."""
    scenario = three_nodes(20)
    if not scenario.schedules:
        scenario = with_schedules(scenario)
    profile = replace(scenario.node_profile, shards=3, level=LEVELS.highest)
    plan = [at(0.4 + 0.4 * n, faults.TRANSFER, n % 3 + 1, amount=n) for n in range(12)]
    plan += [at(1.3 + 1.2 * n, faults.CRASH, n % 3 + 1, lasts=0.4) for n in range(3)]
    scenario = replace(scenario, plan=tuple(plan), node_profile=profile, publishers=0, leaseholders=0, gap_us=40_000)
    simulation = run(replace(scenario, streams=False, recurring=False, transactions=False, limits=False))
    counts = simulation.history.counts()
    assert counts["rescheduled"] > 5 and counts["cancels"] > 5


def test_topologies_know_their_ways() -> None:
    topology = three_nodes(1).topology
    assert isinstance(topology.queues["timed"], QueuePlan)
    assert sorted(topology.paths("timed")) == [
        ("timed",),
        ("timed", "timed.dead"),
        ("timed", "timed.dead", "last.one"),
        ("timed", "timed.dead", "last.two"),
    ]


@pytest.mark.parametrize("kind", [faults.WIPE, faults.ROT_STATE])
def test_a_node_whose_data_is_gone_is_replaced_by_a_new_one(kind: str) -> None:
    """It never comes back under its id; what it had confirmed is still there (RULES D6)."""
    simulation = run(replace(three_nodes(100), plan=(at(2.0, kind, 2),), changes=()))
    assert simulation.cluster.effects[kind] == 1
    assert [program.machine.id for program in simulation.programs()] == [1, 3, 4]


@pytest.mark.parametrize("kind", [faults.ROT_ENTRY, faults.ROT_SNAPSHOT])
def test_a_replica_whose_disk_rots_is_rebuilt(kind: str) -> None:
    scenario = three_nodes(120)
    # Only what is above the snapshot is looked at when a node starts; what one node loses, others must have.
    compact_entries = 15 if kind == faults.ROT_SNAPSHOT else 20_000
    profile = replace(scenario.node_profile, compact_entries=compact_entries, cache_bytes=0, replication_factor=3)
    plan = (at(2.5, kind, 2), at(2.501, faults.CRASH, 2, lasts=0.3))
    simulation = run(replace(scenario, node_profile=profile, plan=plan, changes=()))
    assert simulation.cluster.effects[kind] == 1
    assert simulation.cluster.effects["rebuilt"] >= 1
    assert not simulation.impaired()


def test_a_node_whose_sync_failed_stops_and_starts_again() -> None:
    """Its write may be on the disk or not; both are right, since nobody was told (RULES D6)."""
    plan = tuple(at(1.0 + 0.7 * n, faults.FAILING_SYNC, n % 3 + 1) for n in range(5))
    simulation = run(replace(three_nodes(140), plan=plan, changes=()))
    assert simulation.cluster.effects["sync failed"] >= 4


def test_data_is_lost_on_one_node_at_a_time() -> None:
    """While one is replaced, no other one loses anything: no promise would hold."""
    plan = tuple(at(2.0 + 0.01 * n, faults.WIPE, n % 3 + 1) for n in range(3))
    simulation = run(replace(three_nodes(160), plan=plan, changes=()))
    assert simulation.cluster.effects[faults.WIPE] == 1


def test_a_transaction_counts_once_though_sessions_end_while_it_is_on_its_way() -> None:
    """Each node in turn is cut off for so long that it comes back through snapshots, which ends its sessions. What it
    sends again must not publish for a message that was taken back, and goes to another."""
    scenario = with_transactions(three_nodes(40))
    plan = tuple(at(0.5 + 0.3 * turn, faults.PARTITION, turn % 3 + 1, lasts=0.21) for turn in range(18))
    profile = replace(scenario.node_profile, compact_entries=15, session_timeout_ms=5_000)
    simulation = run(replace(scenario, plan=plan, changes=(), node_profile=profile))
    assert len(simulation.history.exchanges) > 100


def test_j3_keys_that_die_out_leave_markers() -> None:
    """In a calm cluster, as the mirror of the stream has it in the end."""
    drawn = map(three_nodes, range(1, 100))
    scenario = next(each for each in drawn if each.streams and each.tolerance.early_ms is not None)
    simulation = run(replace(scenario, changes=(), growth=()))
    last = max((read for read in simulation.history.reads if read.final and read.stream == MIRROR), key=_offset)
    assert last.marker
    assert simulation.history.ended_us - last.at_us > 3_000 * scenario.tolerance.late_ms, "it is waited for"


def _offset(read: Read) -> int:
    return read.offset


def test_a_client_that_does_not_read_costs_its_node_a_window_though_that_hears_late() -> None:
    """Its node is cut off or frozen again and again while others lead on and publish: what is given to it meanwhile is
    as much as without (the simulated sockets look). What it did not take is with others in the end, or comes to it."""
    scenario = with_reluctant(three_nodes(44))
    profile = replace(scenario.node_profile, window_bytes=2_000)
    kinds = (faults.FREEZE, faults.PARTITION)
    plan = tuple(at(0.4 + 0.4 * turn, kinds[turn % 2], turn % 3 + 1, lasts=0.35) for turn in range(12))
    scenario = replace(scenario, plan=plan, changes=(), gap_us=20_000, node_profile=profile)
    simulation = run(scenario)
    heaped = [delivery for delivery in simulation.history.deliveries if delivery.queue == "heaped"]
    sizes = [len(content_of(each.message_id, 300)) for each in heaped]
    assert sum(sizes) > 5 * most_unsent_bytes(profile.window_bytes)
