"""Virtual time, connections, disks, clocks and machines behave as documented, with a stand-in for a node."""

from __future__ import annotations

import subprocess
import sys
from random import Random

import pytest

from mayfly.cluster.log.batch import StoredSnapshot, WriteBatch
from mayfly.cluster.raft import SnapshotMetadata
from simulation.cluster import faults
from simulation.cluster.clocks import EPOCH_MS, MachineClock, SimulatedProcessClock
from simulation.cluster.cluster import SimulatedCluster
from simulation.cluster.events import MILLISECOND_US, SECOND_US, EndlessRun, EventQueue
from simulation.cluster.machine import Machine
from simulation.cluster.memory_store import SimulatedDisk
from simulation.cluster.network import LinkProfile, StreamNetwork
from simulation.cluster.randomness import exponential_us, stream
from simulation.cluster.trace import LINES_HASHED_AT_ONCE, Trace


class TestEventQueue:
    def test_events_run_in_order_of_time_and_then_of_scheduling(self) -> None:
        queue, seen = EventQueue(), list[str]()
        queue.at(20, lambda: seen.append("late"))
        queue.at(10, lambda: seen.append("first"))
        queue.at(10, lambda: seen.append("second"))
        queue.at(10, lambda: seen.append("cancelled")).cancel()
        queue.run_until(15)
        assert seen == ["first", "second"]
        assert queue.now_us == 15
        queue.run_until(30)
        assert seen == ["first", "second", "late"]

    def test_what_is_due_in_the_past_runs_next(self) -> None:
        queue, seen = EventQueue(), list[int]()
        queue.run_until(100)
        queue.at(5, lambda: seen.append(queue.now_us))
        assert queue.step()
        assert seen == [100]
        assert not queue.step()


class TestTrace:
    def test_the_sink_gets_each_line_at_once_and_the_hash_covers_all(self) -> None:
        queue, lines = EventQueue(), list[str]()
        printed, silent = Trace(queue, lines.append), Trace(queue)
        digests: dict[str, None] = {}
        for number in range(3 * LINES_HASHED_AT_ONCE):
            for trace in (printed, silent):
                trace.add("line", number)
            assert lines[-1] == f"0 line {number}"
            if number % 100 == 0:
                digests[printed.digest()] = None
        assert printed.digest() == silent.digest()
        assert len(digests) == 8
        assert printed.lines == len(lines) == 3 * LINES_HASHED_AT_ONCE

    def test_a_run_of_events_without_end_is_ended(self) -> None:
        queue = EventQueue(most_events=1_000)

        def again() -> None:
            queue.after(0, again)

        queue.after(0, again)
        with pytest.raises(EndlessRun, match="1001 events by 0 us"):
            queue.run_until(SECOND_US)

    def test_a_run_without_end_is_ended(self) -> None:
        trace = Trace(EventQueue(), most_lines=1_000)

        def answer_each_other() -> None:
            while True:
                trace.add("again")

        with pytest.raises(EndlessRun, match="who answers whom"):
            answer_each_other()


class TestRandomness:
    def test_streams_draw_what_pythons_generator_draws(self) -> None:
        """So a seed means the same as when it was drawn with `random.Random` itself."""
        ours, pythons = stream(7, "x"), Random("mayfly/7/x")
        for number in range(2_000):
            assert ours.randint(-number, number * number) == pythons.randint(-number, number * number)
            mean_us = 1 + number * 10
            expected = min(50 * mean_us, int(pythons.expovariate(1.0 / mean_us)))
            assert exponential_us(ours, mean_us, 50 * mean_us) == expected
        assert ours.random() == pythons.random()
        with pytest.raises(ValueError, match=r"\[3, 2\]"):
            ours.randint(3, 2)


class TestClocks:
    def test_a_step_reaches_a_process_only_by_a_restart(self) -> None:
        machine = MachineClock(offset_us=5_000)
        before = SimulatedProcessClock(machine, 0)
        machine.step(-3_600 * SECOND_US)
        after = SimulatedProcessClock(machine, SECOND_US)
        assert before.now_ms(2 * SECOND_US) == EPOCH_MS + 2_005
        assert after.now_ms(2 * SECOND_US) == EPOCH_MS + 2_005 - 3_600_000

    def test_drift(self) -> None:
        fast = SimulatedProcessClock(MachineClock(drift_ppm=200), 0)
        assert fast.error_ms(1_000 * SECOND_US) == 200


class Wire:
    """A network whose events are written down."""

    def __init__(self, profile: LinkProfile | None = None, ends: int = 2) -> None:
        self.queue = EventQueue()
        self.seen: list[object] = []
        self.network: StreamNetwork[str] = StreamNetwork(
            self.queue,
            Random(1),
            profile or LinkProfile(),
            lambda target, source, payload: self.seen.append((source, target, payload)),
            lambda end, other: self.seen.append(("up", end, other)),
            lambda end, other: self.seen.append(("down", end, other)),
        )
        for end in range(1, ends + 1):
            self.network.add(end)
        for end in range(1, ends + 1):
            self.network.start(end)
        self.run(0.2)
        assert sorted(map(str, self.seen)) == ["('up', 1, 2)", "('up', 2, 1)"]
        self.seen.clear()

    def run(self, seconds: float) -> None:
        self.queue.run_until(self.queue.now_us + int(seconds * SECOND_US))


class TestNetwork:
    def test_frames_stay_in_order_whatever_their_delays(self) -> None:
        wire = Wire(LinkProfile(jitter_us=100 * MILLISECOND_US))
        for number in range(50):
            wire.network.send(1, 2, str(number))
        wire.run(60)
        assert wire.seen == [(1, 2, str(number)) for number in range(50)]

    def test_a_break_loses_what_is_in_flight_and_both_ends_learn_of_it(self) -> None:
        wire = Wire()
        wire.network.send(1, 2, "lost")
        wire.network.reset(1, 2)
        wire.network.send(1, 2, "dropped")
        wire.run(0.04)
        assert sorted(map(str, wire.seen)) == ["('down', 1, 2)", "('down', 2, 1)"]
        wire.run(2)
        assert wire.seen[2:] == [("up", 1, 2), ("up", 2, 1)] or wire.seen[2:] == [
            ("up", 2, 1),
            ("up", 1, 2),
        ]
        wire.network.send(1, 2, "again")
        wire.run(1)
        assert wire.seen[-1] == (1, 2, "again")

    def test_a_short_blockage_holds_frames_back(self) -> None:
        wire = Wire()
        wire.network.block(1, 2)
        wire.network.send(1, 2, "held")
        wire.network.send(2, 1, "passes")
        wire.run(0.5)
        assert wire.seen == [(2, 1, "passes")]
        wire.network.unblock(1, 2)
        wire.run(0.5)
        assert wire.seen[-1] == (1, 2, "held")

    def test_a_long_blockage_breaks_the_connection_until_it_heals(self) -> None:
        wire = Wire()
        wire.network.block(1, 2)
        wire.network.send(1, 2, "lost")
        wire.run(10)
        assert ("down", 1, 2) in wire.seen
        assert ("down", 2, 1) in wire.seen
        assert not wire.network.connected(1, 2)
        wire.network.heal()
        wire.run(1)
        assert wire.network.connected(1, 2)
        assert (1, 2, "lost") not in wire.seen

    def test_what_was_sent_over_slow_links_does_not_hold_up_a_healed_network(self) -> None:
        """On either stream: it arrives at the pace that links have then, in its order and once."""
        wire = Wire()
        fast, results = wire.network.profile, list[bool]()
        wire.network.profile = LinkProfile(base_us=30 * SECOND_US)
        for number in range(3):
            wire.network.send(1, 2, f"slow {number}")
            wire.network.send(1, 2, f"slow bulk {number}", bulk=True, result=results.append)
        wire.network.profile = fast
        wire.network.block(1, 2)
        wire.network.send(1, 2, "held")
        wire.network.send(1, 2, "held bulk", bulk=True)
        wire.network.heal()
        wire.network.send(1, 2, "fast")
        wire.network.send(1, 2, "fast bulk", bulk=True)
        wire.run(1)
        payloads = [seen[2] for seen in wire.seen if isinstance(seen, tuple)]
        for bulk in ("", " bulk"):
            sent = [f"slow{bulk} 0", f"slow{bulk} 1", f"slow{bulk} 2", f"held{bulk}", f"fast{bulk}"]
            assert [payload for payload in payloads if payload in sent] == sent
        assert results == [True, True, True]
        wire.run(400)
        assert len(wire.seen) == len(payloads) == 10

    def test_what_a_break_took_is_not_brought_back_by_healing(self) -> None:
        wire = Wire(LinkProfile(base_us=30 * SECOND_US))
        wire.network.send(1, 2, "lost")
        wire.network.reset(1, 2)
        wire.run(2)
        assert wire.network.connected(1, 2)
        wire.network.heal()
        wire.run(100)
        assert (1, 2, "lost") not in wire.seen

    def test_the_sender_learns_what_became_of_a_bulk_frame(self) -> None:
        wire, results = Wire(), list[bool]()
        wire.network.send(1, 2, "snapshot", bulk=True, result=results.append)
        wire.network.send(1, 2, "overtakes it")
        wire.run(1)
        assert wire.seen == [(1, 2, "overtakes it"), (1, 2, "snapshot")]
        assert results == [True]
        wire.network.send(1, 2, "lost", bulk=True, result=results.append)
        wire.network.reset(1, 2)
        wire.run(1)
        assert results == [True, False]

    def test_a_dead_process_hears_nothing_and_its_peer_hears_of_its_death(self) -> None:
        wire = Wire()
        wire.network.stop(1)
        wire.run(5)
        assert wire.seen == [("down", 2, 1)]
        wire.network.start(1)
        wire.run(5)
        assert wire.seen[1:] == [("up", 1, 2), ("up", 2, 1)] or wire.seen[1:] == [
            ("up", 2, 1),
            ("up", 1, 2),
        ]


class ToyOutput:
    """What `ToyNode.pump` returns."""

    def __init__(self, frames: dict[int, str], write: WriteBatch | None) -> None:
        self.frames = frames
        self.write = write
        self.due_ms = -1


class ToyNode:
    """Counts: every tick it wants the next number on its disk, and tells its peers once it is there."""

    def __init__(self, machine: Machine[str, WriteBatch], peers: list[int]) -> None:
        stored = machine.disk.load().get(1)  # type: ignore[attr-defined]
        self.durable = stored.snapshot.metadata.index if stored is not None else 0
        self.wanted = self.durable
        self.writing = False
        self.peers = peers
        self.heard: dict[int, int] = {}
        self.up: list[int] = []
        self.full = 0
        self.frames: dict[int, str] = {}

    def tick(self, now_ms: int) -> None:
        self.wanted = self.durable + 1

    def receive(self, peer_id: int, frame: str, now_ms: int) -> None:
        assert int(frame) > self.heard.get(peer_id, 0), "what was told as durable was lost, or overtaken"
        self.heard[peer_id] = int(frame)

    def peer_up(self, peer_id: int, now_ms: int) -> None:
        assert peer_id not in self.up
        self.up.append(peer_id)

    def peer_gone(self, peer_id: int) -> None:
        pass

    def peer_down(self, peer_id: int, now_ms: int) -> None:
        self.up.remove(peer_id)

    def pump(self, now_ms: int) -> ToyOutput:
        frames, self.frames = self.frames, {}
        if self.writing or self.wanted == self.durable:
            return ToyOutput(frames, None)
        self.writing = True
        batch = WriteBatch()
        batch.group(1).install = True
        batch.group(1).snapshot = StoredSnapshot(SnapshotMetadata(self.wanted, 1), b"")
        return ToyOutput(frames, batch)

    def persisted(self, now_ms: int) -> None:
        assert self.writing
        self.writing = False
        self.durable = self.wanted
        self.frames = {peer: str(self.durable) for peer in self.peers}

    @property
    def busy(self) -> bool:
        return False

    def disk_full(self, text: str) -> None:
        self.full += 1


def toy_cluster(seed: int) -> tuple[SimulatedCluster[str, WriteBatch], list[ToyNode]]:
    """Three toy nodes; the list collects every program that was ever booted."""
    queue = EventQueue()
    cluster: SimulatedCluster[str, WriteBatch] = SimulatedCluster(
        queue, stream(seed, "network"), LinkProfile(), Trace(queue)
    )
    cluster.frame_text = str
    booted: list[ToyNode] = []

    def boot(machine: Machine[str, WriteBatch]) -> tuple[ToyNode, None]:
        booted.append(ToyNode(machine, [node for node in (1, 2, 3) if node != machine.id]))
        return booted[-1], None

    for node in (1, 2, 3):
        random = stream(seed, f"machine {node}")
        cluster.add(Machine(node, queue, random, cluster.network, SimulatedDisk(), boot))
    return cluster, booted


def run_toys(seed: int) -> tuple[SimulatedCluster[str, WriteBatch], list[ToyNode]]:
    cluster, booted = toy_cluster(seed)
    random = stream(seed, "faults")
    appetite = faults.Appetite(faults.KINDS, 300 * MILLISECOND_US)
    cluster.schedule(faults.draw_plan(random, appetite, (1, 2, 3), SECOND_US, 15 * SECOND_US))
    cluster.start_all()
    cluster.queue.run_until(15 * SECOND_US)
    cluster.calm_down()
    cluster.queue.run_until(20 * SECOND_US)
    return cluster, booted


class TestMachine:
    def test_what_was_not_synced_is_lost_and_nothing_else(self) -> None:
        cluster, booted = toy_cluster(1)
        cluster.start_all()
        cluster.queue.run_until(SECOND_US)
        machine, first = cluster.machines[1], booted[0]
        assert 15 < first.durable < 21
        machine.disk_profile.stuck = True
        cluster.queue.run_until(2 * SECOND_US)
        before = first.durable
        assert first.writing
        machine.crash()
        assert not machine.running
        machine.disk_profile.stuck = False
        machine.start()
        assert machine.running
        assert not machine.serving
        cluster.queue.run_until(2 * SECOND_US + 40 * MILLISECOND_US)
        assert booted[-1].durable in (before, before + 1)

    def test_a_frozen_machine_does_nothing_and_then_everything(self) -> None:
        cluster, booted = toy_cluster(1)
        cluster.start_all()
        cluster.queue.run_until(SECOND_US)
        node = booted[0]
        cluster.machines[1].freeze()
        before, heard = node.durable, dict(node.heard)
        cluster.queue.run_until(SECOND_US + 300 * MILLISECOND_US)
        assert (node.durable, node.heard) == (before, heard)
        cluster.machines[1].thaw()
        assert node.heard[2] > heard[2] + 3
        cluster.queue.run_until(2 * SECOND_US)
        assert node.durable > before

    def test_a_full_disk_takes_the_write_once_there_is_room(self) -> None:
        cluster, booted = toy_cluster(1)
        cluster.start_all()
        cluster.queue.run_until(SECOND_US)
        cluster.machines[1].disk_profile.full = True
        before = booted[0].durable
        cluster.queue.run_until(2 * SECOND_US)
        assert booted[0].durable <= before + 1
        assert booted[0].full > 3
        cluster.machines[1].disk_profile.full = False
        cluster.queue.run_until(3 * SECOND_US)
        assert booted[0].durable > before + 5

    def test_all_faults_together_and_everything_runs_again_afterwards(self) -> None:
        for seed in range(20):
            cluster, booted = run_toys(seed)
            assert len(booted) >= 3
            for machine in cluster.machines.values():
                assert machine.serving
                assert isinstance(machine.program, ToyNode)
                assert sorted(machine.program.up) == machine.program.peers


class TestDeterminism:
    def test_a_seed_gives_one_trace_and_another_seed_another(self) -> None:
        assert run_toys(3)[0].trace.digest() == run_toys(3)[0].trace.digest()
        assert run_toys(3)[0].trace.digest() != run_toys(4)[0].trace.digest()

    def test_a_plan_prints_itself(self) -> None:
        plan = faults.draw_plan(
            Random(5), faults.Appetite(faults.KINDS, SECOND_US), (1, 2, 3), 0, 30 * SECOND_US
        )
        assert len(faults.describe(plan).splitlines()) == len(plan) > 10

    def test_streams_do_not_depend_on_the_hash_seed(self) -> None:
        code = "from simulation.cluster.randomness import stream; print(stream(7, 'x').random())"
        results = {
            subprocess.run(
                [sys.executable, "-c", code],
                env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for hash_seed in ("1", "2")
        }
        assert len(results) == 1
