"""What a seed decides about a Raft group alone: its members, their settings, and how bad disks and network are."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulation.cluster.events import MILLISECOND_US
from simulation.cluster.raft_schedules import drawn_schedule, make_schedule
from simulation.cluster.randomness import State, stream


@dataclass(frozen=True, slots=True)
class RaftScenario:
    """What a seed says."""

    seed: int
    schedule: str
    """Which of the aimed troubles there are (see `raft_schedules`)."""
    size: int
    joiners: int
    """Members that do not belong to the group at first."""
    check_quorum: bool
    pre_vote: bool
    step_down_on_removal: bool
    max_message_bytes: int
    max_inflight: int
    compact_every: int
    loss: float
    duplication: float
    write_mean_us: int
    election_tick: int
    proposal_gap_us: int
    reads: float
    trouble_gap_us: int
    outage_us: int
    aim_at_leader: float
    """How many of the troubles hit a leader."""
    rest: State = field(repr=False)
    """The stream behind what was drawn; the run goes on with it."""

    def describe(self) -> str:
        """The scenario in a few lines, for a failing seed."""
        return "\n".join([
            f"seed {self.seed}: {self.size} members, {self.joiners} to come; check quorum {self.check_quorum}, "
            f"pre-vote {self.pre_vote}, step down on removal {self.step_down_on_removal}, elections after "
            f"{self.election_tick} ticks, {self.max_inflight} messages of {self.max_message_bytes} bytes in flight, "
            f"compaction after {self.compact_every} entries",
            f"messages lost {self.loss}, doubled {self.duplication}; writes of {self.write_mean_us} us; a proposal "
            f"every {self.proposal_gap_us} us, of them reads {self.reads}",
            f"faults: one every {self.trouble_gap_us} us for {self.outage_us} us, aimed at leaders "
            f"{self.aim_at_leader}; schedule: {self.schedule}",
        ])  # fmt: skip


def draw_scenario(seed: int, schedule: str | None = None) -> RaftScenario:
    """The scenario of a seed; `schedule` is drawn as well unless it is given."""
    random = stream(seed, "raft group")
    name = drawn_schedule(seed) if schedule is None else schedule
    return RaftScenario(
        seed=seed,
        schedule=name,
        size=make_schedule(name, seed).size(random.choice((1, 2, 3, 3, 3, 4, 5, 5))),
        joiners=random.choice((0, 1, 2)),
        check_quorum=random.random() < 0.5,
        pre_vote=random.random() < 0.6,
        step_down_on_removal=random.random() < 0.7,
        max_message_bytes=random.choice((64, 4_096, 1 << 20)),
        max_inflight=random.choice((1, 4, 256)),
        compact_every=random.choice((4, 12, 10_000)),
        loss=random.choice((0.0, 0.02, 0.15)),
        duplication=random.choice((0.0, 0.05, 0.3)),
        write_mean_us=random.choice((0, 1_000, 20_000, 60_000)),
        election_tick=random.choice((4, 6, 10)),
        proposal_gap_us=random.choice((15, 40, 120)) * MILLISECOND_US,
        reads=random.choice((0.1, 0.4)),
        trouble_gap_us=random.choice((200, 400, 800)) * MILLISECOND_US,
        outage_us=random.choice((150, 600, 2_000)) * MILLISECOND_US,
        aim_at_leader=random.choice((0.0, 0.5)),
        rest=random.getstate(),
    )
