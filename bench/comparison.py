"""What is compared, what is aimed at, and whether it is met: pure.

Figures are named "load.figure", such as "a1k.confirmed_s".
"""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

MAYFLY: Final = "MayflyMQ"
RABBITMQ: Final = "RabbitMQ"
JETSTREAM: Final = "JetStream, sync always"
"""`sync_interval: always`: on disk before it answers, as the other two."""
JETSTREAM_LATE: Final = "JetStream, by default"
"""It answers before, and syncs every two minutes."""
PEERS: Final = (RABBITMQ, JETSTREAM, JETSTREAM_LATE)


# ---------------------------------------------------------------------- aims


@dataclass(frozen=True)
class AtLeastTimes:
    """So many times a peer's figure, or more."""

    times: float
    peer: str = RABBITMQ

    def met(self, ours: float, theirs: float | None) -> bool | None:
        """None: nobody knows, the peer was not measured."""
        return None if theirs is None else ours >= self.times * theirs

    def __str__(self) -> str:
        return f">= {self.times:g}x {self.peer}"


@dataclass(frozen=True)
class AtMostTimes:
    """So many times a peer's figure, or less."""

    times: float
    peer: str = RABBITMQ

    def met(self, ours: float, theirs: float | None) -> bool | None:
        """None: nobody knows, the peer was not measured."""
        return None if theirs is None else ours <= self.times * theirs

    def __str__(self) -> str:
        return f"<= {self.times:g}x {self.peer}"


@dataclass(frozen=True)
class AtMost:
    """A figure that does not depend on a peer's."""

    most: float
    unit: str
    peer: str = ""

    def met(self, ours: float, theirs: float | None) -> bool | None:
        """Always known."""
        return ours <= self.most

    def __str__(self) -> str:
        return f"<= {self.most:g} {self.unit}"


Aim = AtLeastTimes | AtMostTimes | AtMost


# ---------------------------------------------------------------------- rows


@dataclass(frozen=True)
class Row:
    """One figure of all brokers."""

    figure: str
    title: str
    aims: tuple[Aim, ...] = ()
    decimals: int = 0
    reference: str = ""
    """RabbitMQ's figure from ../shared/bench/README.md, for when it is not measured."""


_AS_QUICK: Final = (AtMostTimes(1), AtMostTimes(1.2, JETSTREAM_LATE))

ROWS: Final = (
    Row("a1k.confirmed_s", "1 queue, 1 KB: confirmed msg/s", (AtLeastTimes(4),)),
    Row("a1k.consumed_s", "1 queue, 1 KB: consumed msg/s", (AtLeastTimes(4),)),
    Row("b1k.confirmed_s", "4 queues, 1 KB: confirmed msg/s", (AtLeastTimes(3),)),
    Row("b1k.consumed_s", "4 queues, 1 KB: consumed msg/s", (AtLeastTimes(3),)),
    Row("a12.confirmed_s", "1 queue, 12 B: confirmed msg/s"),
    Row("b12.confirmed_s", "4 queues, 12 B: confirmed msg/s", (AtLeastTimes(3),)),
    Row("b12.consumed_s", "4 queues, 12 B: consumed msg/s", (AtLeastTimes(3),)),
    Row("publish.confirmed_s", "publish only, 1 KB: confirmed msg/s", (AtLeastTimes(3),)),
    Row("consume.consumed_s", "then consume only: msg/s", (AtLeastTimes(2),)),
    Row("a1k.cpu_us", "1 queue, 1 KB: broker CPU per message, all nodes, us", (AtMostTimes(0.2), AtMost(10, "us")), 1),
    Row("a1k.latency_p50_ms", "1 queue, 1 KB, full speed: end to end p50 ms", (AtMost(50, "ms"),), 1),
    Row("window1.confirmed_s", "confirms at window 1, a second", (AtLeastTimes(0.7, JETSTREAM_LATE),)),
    Row("window1.confirm_p50_ms", "confirm at window 1, idle: p50 ms", (AtMostTimes(1),), 2),
    Row("window1.confirm_p99_ms", "confirm at window 1, idle: p99 ms", (AtMostTimes(1),), 2),
    Row("half.latency_p99_ms", "end to end at half of its own maximum rate: p99 ms", (AtMost(20, "ms"),), 1),
    Row("steady.cpu_us", "1 000 msg/s, 1 KB: broker CPU per message, us", (AtMost(350, "us"),)),
    Row("steady.latency_p50_ms", "1 000 msg/s, 1 KB: latency p50 ms", _AS_QUICK, 2),
    Row("steady.latency_p99_ms", "1 000 msg/s, 1 KB: latency p99 ms", _AS_QUICK, 2),
    Row("due8000.latency_p50_ms", "8 000 msg/s by due time, 1 KB: latency p50 ms", (AtMost(1.3, "ms"),), 2),
    Row("due8000.latency_p99_ms", "8 000 msg/s by due time, 1 KB: latency p99 ms", (AtMost(5, "ms"),), 2),
    Row("single.confirmed_s", "single node, 1 queue, 1 KB: confirmed msg/s", (AtLeastTimes(3),)),
    Row("single.consumed_s", "single node, 1 queue, 1 KB: consumed msg/s", (AtLeastTimes(3),)),
    Row("single.cpu_us", "single node: broker CPU per message, us", (AtMost(5.4, "us"),), 1),
    Row("start.serving_s", "three nodes from their start until they serve, s", (AtMost(1.5, "s"),), 2),
    Row("start.resident_mb", "resident memory of all nodes that have just started, MB", (AtMost(130, "MB"),)),
    Row("start.idle_percent", "idle CPU of all nodes, percent of a core", (AtMost(1.5, "%"),), 2),
    Row("memory.resident_mb", "resident memory of all nodes after 200 000 messages, MB", (AtMost(200, "MB"),)),
    Row("memory.anonymous_mb", "of which anonymous (not mapped files), MB"),
    Row("kill.gap_s", "leader killed: gap in confirms at a surviving node, s", (AtMost(0.3, "s"),), 2, "0.28-0.59"),
    Row("freeze.gap_s", "leader frozen: the same, s", (AtMost(2, "s"),), 2, "8.3-9.9"),
    Row("kill.reconnect_s", "killed node's client: until confirms at the next, s", (AtMost(1, "s"),), 2, "0.65-23"),
)


# ---------------------------------------------------------------------- results


@dataclass
class Results:
    """Every figure of every run, by broker, and what failed."""

    figures: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    about: dict[str, str] = field(default_factory=dict)
    """Where, when and how it was measured."""

    def add(self, broker: str, measured: dict[str, float]) -> None:
        """The figures of one run."""
        for figure, value in measured.items():
            self.figures.setdefault(broker, {}).setdefault(figure, []).append(value)

    def values(self, broker: str, figure: str) -> list[float]:
        """Of all runs, in their order."""
        return self.figures.get(broker, {}).get(figure, [])

    def median(self, broker: str, figure: str) -> float | None:
        """None if it was not measured."""
        values = self.values(broker, figure)
        return statistics.median(values) if values else None

    def latest(self, broker: str, figure: str) -> float | None:
        """Of the last run; None if it was not measured."""
        values = self.values(broker, figure)
        return values[-1] if values else None

    def to_json(self) -> str:
        """All of it."""
        return json.dumps(asdict(self), indent=1)

    @staticmethod
    def from_json(text: str) -> "Results":
        """What `to_json` wrote."""
        return Results(**json.loads(text))


@dataclass(frozen=True)
class Compared:
    """A row with its figures."""

    row: Row
    ours: float | None
    theirs: dict[str, float]
    """Of those peers that were measured."""

    def met(self, aim: Aim) -> bool | None:
        """Whether it is met, which takes a figure of ours; None if nobody knows."""
        return self.ours is not None and aim.met(self.ours, self.theirs.get(aim.peer))


def compare(results: Results, rows: Sequence[Row] = ROWS) -> list[Compared]:
    """The rows of which there is a figure, in their order."""
    compared = []
    for row in rows:
        medians = {peer: results.median(peer, row.figure) for peer in PEERS}
        theirs = {peer: median for peer, median in medians.items() if median is not None}
        compared.append(Compared(row, results.median(MAYFLY, row.figure), theirs))
    return [each for each in compared if each.ours is not None or each.theirs]


def ratio(ours: float, theirs: float) -> str:
    """How many times as much, or as little."""
    return f"{ours / theirs:.2f}x" if ours < theirs else f"{ours / theirs:.1f}x"
