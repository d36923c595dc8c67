"""What a seed decides about a run of hosts: their settings, members, clocks, disks and faults."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from mayfly.cluster.group.pieces import PIECE_BYTES
from mayfly.cluster.group.settings import GroupSettings
from simulation.cluster import faults
from simulation.cluster.disk import DiskProfile
from simulation.cluster.events import MILLISECOND_US, SECOND_US
from simulation.cluster.faults import Fault
from simulation.cluster.membership_change import MembershipChange, draw_changes
from simulation.cluster.network import LinkProfile
from simulation.cluster.randomness import stream

CHAOS_US = 12 * SECOND_US
USUAL_OFFSET_MS = 50


@dataclass(frozen=True, slots=True)
class HostProfile:
    """The settings of all hosts of a run; ticks are coarse, because they cost the most."""

    groups: int = 1
    replication_factor: int = 3
    tick_ms: int = 250
    heartbeat_ms: int = 500
    election_timeout_ms: int = 1_500
    session_timeout_ms: int = 4_000
    clock_bound_ms: int = 2_000
    session_window: int = 4
    batch_bytes: int = 1 << 14
    entry_bytes: int = 1 << 15
    compact_entries: int = 10_000
    cache_bytes: int = 1 << 20
    inflight_bytes: int = 1 << 20
    refusal_ms: int = 1_500
    everywhere: bool = True
    """Whether every node has a replica of every group, and not of the first alone (`LEVEL_FEEDS`)."""
    piece_bytes: int = 0
    """Of commands that go in pieces; 0: none do."""
    nodes_per_domain: int = 1
    """So many nodes, in the order of their ids, are in one failure domain, and the directory knows it."""

    def domain(self, node: int) -> str:
        """The failure domain of a node."""
        return f"domain {(node - 1) // self.nodes_per_domain}"

    def group(self) -> GroupSettings:
        """The part that is the groups'."""
        return GroupSettings(
            election_ticks=self.election_timeout_ms // self.tick_ms,
            heartbeat_ticks=self.heartbeat_ms // self.tick_ms,
            session_window=self.session_window,
            batch_bytes=self.batch_bytes,
            entry_bytes=self.entry_bytes,
            repeat_after_ms=2 * self.election_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            compact_bytes=1 << 30,
            compact_entries=self.compact_entries,
            inflight_bytes=self.inflight_bytes,
            refusal_ms=self.refusal_ms,
            piece_bytes=self.piece_bytes or PIECE_BYTES,
        )


@dataclass(frozen=True, slots=True)
class HostScenario:
    """What a seed says."""

    seed: int
    founders: tuple[int, ...]
    profile: HostProfile
    links: LinkProfile
    disk: DiskProfile
    plan: tuple[Fault, ...]
    changes: tuple[MembershipChange, ...]
    offsets_us: tuple[int, ...]
    """How far the clocks of the founders are ahead. One of three or more may be wrong by hours (RULES C3)."""
    gap_us: int
    repeated: float
    """How many frames arrive a second time, late and behind others: more than a gRPC stream does."""
    damaged: float
    """How many snapshots are damaged before they are sent: their digest is right, and they can't be read."""
    snapshot_takes_us: int
    """How long a snapshot is read from its sender's log before it is on the network whole; 0: that is so at once."""

    def describe(self) -> str:
        """The scenario in a few lines, for a failing seed."""
        return "\n".join([
            f"seed {self.seed}: {len(self.founders)} hosts; {self.profile}",
            f"frame loss {self.links.frame_loss}, repeated {self.repeated}, snapshots damaged {self.damaged} "
            f"and read for {self.snapshot_takes_us} us",
            f"a command every {self.gap_us} us",
            "faults:",
            faults.describe(self.plan),
            "members: " + (", ".join(f"{it.kind} at {it.at_us / SECOND_US:.3f}s" for it in self.changes) or "as ever"),
        ])  # fmt: skip


def draw_scenario(seed: int) -> HostScenario:
    """The scenario of a seed."""
    random = stream(seed, "host scenario")
    size = random.choice((1, 2, 3, 3, 3, 3, 3, 4, 5))
    founders = tuple(range(1, size + 1))
    appetite = faults.draw_appetite(random, (*faults.KINDS, *faults.DISK_KINDS))
    more = random.sample(faults.DISK_KINDS, random.choice((0, 0, 1, 2)))
    appetite = replace(appetite, kinds=(*appetite.kinds, *more))
    groups, factor = random.choice((1, 1, 2)), random.choice((3, 3, 5))
    placing = stream(seed, "host placing")
    everywhere = placing.random() < 0.5
    if not everywhere:
        groups, factor = placing.choice((2, 3, 4)), placing.choice((1, 2, 3, 3, 3))
    return HostScenario(
        seed=seed,
        founders=founders,
        profile=HostProfile(
            groups=groups,
            replication_factor=factor,
            session_window=random.choice((1, 4)),
            entry_bytes=random.choice((200, 1 << 15)),
            compact_entries=random.choice((8, 8, 20, 10_000)),
            cache_bytes=random.choice((0, 3_000, 1 << 20)),
            everywhere=everywhere,
            piece_bytes=stream(seed, "host pieces").choice((0, 7, 40, 149)),
        ),
        links=LinkProfile(
            base_us=random.choice((500, 5_000)),
            jitter_us=random.choice((500, 5_000)),
            frame_loss=random.choice((0.0, 0.0, 0.01, 0.1)),
        ),
        disk=DiskProfile(base_us=random.choice((500, 3_000, 20_000, 80_000)), jitter_us=random.choice((500, 10_000))),
        plan=(
            *faults.draw_plan(random, appetite, founders, SECOND_US, CHAOS_US),
            *faults.draw_drains(stream(seed, "host drains"), founders, SECOND_US, CHAOS_US),
        ),
        changes=draw_changes(random, SECOND_US, CHAOS_US),
        offsets_us=_draw_offsets(random, size, faults.CLOCK_STEP in appetite.kinds),
        gap_us=random.choice((60, 120, 250)) * MILLISECOND_US,
        repeated=random.choice((0.0, 0.0, 0.05, 0.3)),
        damaged=stream(seed, "host damage").choice((0.0, 0.0, 0.0, 0.4, 0.9)),
        snapshot_takes_us=stream(seed, "host slow snapshots").choice((0, 0, 500, 1_500, 5_000)) * MILLISECOND_US,
    )


def _draw_offsets(random: Random, size: int, another_is_stepped: bool) -> tuple[int, ...]:
    offsets = [random.randint(-USUAL_OFFSET_MS, USUAL_OFFSET_MS) * MILLISECOND_US for _ in range(size)]
    if size >= 3 and random.random() < 0.2 and not another_is_stepped:
        offsets[random.randrange(size)] = random.randint(-6 * 3_600, 6 * 3_600) * SECOND_US
    return tuple(offsets)
