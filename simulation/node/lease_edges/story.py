"""What happened in a run, for its judge: true times in microseconds."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulation.node.history import History

OK = "ok"
NOT_FOUND = "404"
BROKEN = "broken"


@dataclass(slots=True)
class Use:
    """A client's request that bears on a lease. `answer` is `OK`, `NOT_FOUND`, `BROKEN` (the connection went first),
    the text of another refusal, or "" while none has come."""

    queue: str
    kind: str
    invoked_us: int
    completed_us: int = -1
    answer: str = ""


@dataclass(slots=True)
class Sent:
    """A message that a client published to a queue whose existence it had just been told of."""

    queue: str
    after: Use
    completed_us: int = -1
    returned: bool = False
    consumed: bool = False


@dataclass(slots=True)
class Life:
    """One incarnation of a queue: from its first appearance in any catalog to its end at the first replica."""

    queue: str
    queue_id: int
    shard: int
    born_us: int
    gone_us: int | None = None
    reason: str = ""


@dataclass(slots=True)
class Story:
    """Everything of one run."""

    expires_ms: int
    history: History = field(default_factory=History)
    uses: list[Use] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    lives: dict[int, Life] = field(default_factory=dict)
    cancelled: list[tuple[int, str, str]] = field(default_factory=list)
    """When, of which queue and whose consumer the broker cancelled."""
    leading: list[tuple[int, int, int, bool]] = field(default_factory=list)
    """When, of which shard, who began or ceased to lead; a process that dies ceases."""
    established: list[tuple[int, int, int, bool]] = field(default_factory=list)
    """The same for leaders that may decide, and can (not frozen, not cut off)."""
    fault_us: tuple[int, int] = (-1, -1)
    """When something went wrong, and until when."""
    final: dict[str, str] = field(default_factory=dict)
    """What clients were told at the end, when all was to be gone."""
    left_behind: list[str] = field(default_factory=list)
    """What replicas still had at the end."""
    ended_us: int = 0

    def shard_of(self, queue: str) -> int:
        """Where the latest queue of that name is, or was."""
        return max((life for life in self.lives.values() if life.queue == queue), key=lambda life: life.queue_id).shard


def without(events: list[tuple[int, int, int, bool]], shard: int, start_us: int, end_us: int) -> int:
    """For how long in between no node was known to lead the shard."""
    leading: set[int] = set()
    total = 0
    at_us = start_us
    for when_us, of_shard, node, begins in events:
        if of_shard != shard:
            continue
        if when_us >= end_us:
            break
        if when_us > at_us:
            total += 0 if leading else when_us - at_us
            at_us = when_us
        if begins:
            leading.add(node)
        else:
            leading.discard(node)
    return total + (0 if leading else max(0, end_us - at_us))


def changes(events: list[tuple[int, int, int, bool]], shard: int, start_us: int, end_us: int) -> int:
    """How often in between a node began to lead the shard."""
    return sum(1 for at_us, of, _, begins in events if of == shard and begins and start_us <= at_us <= end_us)
