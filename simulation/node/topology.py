"""The queues of a run and what they promise, in the checker's words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """A queue as its declare describes it, and where its dead letters go.

    `dead_letter_targets` are the queues that the dead-letter exchange and key lead to. Durations in
    milliseconds.
    """

    name: str
    message_ttl_ms: int | None = None
    expires_ms: int | None = None
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    dead_letter_targets: tuple[str, ...] = ()
    max_length: int | None = None
    refuses: bool = False
    """What is too much is refused; without it the oldest messages are dropped."""
    delivery_limit: int | None = None
    max_priority: int | None = None
    allow_schedule: bool = False
    expires_anywhere: bool = False
    """What is due leaves from wherever it is in the queue, in order of deadlines."""
    retry_ms: int | None = None
    """What comes back waits at least so long."""
    delayed_by: str | None = None
    """The delayed exchange through which all messages come that are published to it."""

    @property
    def drops(self) -> bool:
        """Whether messages die of the queue's length."""
        return self.max_length is not None and not self.refuses


STREAM = "streamed"
MIRROR = "mirrored"
"""A mirror of that stream."""
GATHERED = "gathered"
"""A stream whose sources are those two."""


@dataclass(frozen=True, slots=True)
class ExchangePlan:
    """A fanout exchange and the queues bound to it; if it `delays`, a delayed one."""

    name: str
    queues: tuple[str, ...]
    delays: bool = False


def delay_queue(exchange: str) -> str:
    """What the queue of a delayed exchange is called here; it has no name of its own."""
    return f"waiting for exchange {exchange}"


@dataclass(slots=True)
class RunTopology:
    """All queues of a run by name, and the exchanges between them. Queues `apart`, streams, the one in which messages
    recur and those of a redrive, have clients and judges of their own; the clients declare them."""

    queues: dict[str, QueuePlan] = field(default_factory=dict)
    exchanges: dict[str, ExchangePlan] = field(default_factory=dict)
    streams: tuple[str, ...] = (STREAM, MIRROR, GATHERED)
    apart: tuple[str, ...] = (
        STREAM, MIRROR, GATHERED, "recurrent", "redriven.work", "redriven.dead", "redriven.journal",
        "braked", "braked.dead",
    )

    @classmethod
    def of(cls, queues: Iterable[QueuePlan], exchanges: Iterable[ExchangePlan] = ()) -> RunTopology:
        """A topology of these queues and exchanges."""
        return cls(
            {queue.name: queue for queue in queues}, {exchange.name: exchange for exchange in exchanges}
        )

    def paths(self, queue: str) -> Iterator[tuple[str, ...]]:
        """Every way a message that was published to `queue` may go: the queues it died in, then where it is.

        A queue occurs once in a way: what would come back to a queue it died in is dropped (RULES D5).
        """
        pending: list[tuple[str, ...]] = [(queue,)]
        while pending:
            path = pending.pop()
            yield path
            targets = self.queues[path[-1]].dead_letter_targets
            pending.extend((*path, target) for target in targets if target not in path)
