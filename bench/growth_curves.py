"""What is measured at which points, and how each figure may grow; nothing here needs more than the standard library."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from bench import growth_knobs as knobs
from bench.growth_cluster import Load, Measuring

Figures = Mapping[str, Mapping[str, float]]
"""Point on the axis, as text, to field to value."""

FLAT: Final = 0.0
"""For what one more of the units on the axis costs (a declare, a bind, a publish into a backlog): where it stays the
same, the whole is linear."""
LINEAR: Final = 1.0
"""For what the whole costs, and for a message against something else than messages: its size, queues, bindings."""

NOISE: Final = 1.3
"""Times as much as its exponent allows is taken for noise between neighbouring points..."""
NOISE_OVERALL: Final = 2.0
"""...and between the first and the last."""


@dataclass(frozen=True)
class Series:
    """One line in a panel. `most`: the exponent with which it may grow, None for what may do as it likes."""

    field: str
    label: str
    most: float | None


@dataclass(frozen=True)
class Panel:
    """Lines with a unit in common."""

    unit: str
    series: tuple[Series, ...]


@dataclass(frozen=True)
class Knob:
    """What is turned: its axis, its points (few for a quick run), who measures, and what is drawn."""

    name: str
    title: str
    axis: str
    points: tuple[int, ...]
    quick: tuple[int, ...]
    measure: Callable[[Measuring, Load, Sequence[int]], knobs.Points]
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Step:
    """From one point to another: the exponent, and whether it is worse than allowed, noise taken off."""

    start: int
    end: int
    exponent: float
    too_steep: bool


def series_points(figures: Figures, field: str) -> list[tuple[int, float]]:
    """The points that have this field, in order."""
    return sorted((int(point), values[field]) for point, values in figures.items() if field in values)


def steps(points: Sequence[tuple[int, float]], most: float | None) -> list[Step]:
    """The growth exponent between neighbouring points, and at the end the one from first to last."""
    usable = [(x, y) for x, y in points if x > 0 and y > 0]
    found = [_step(before, after, most, NOISE) for before, after in pairwise(usable)]
    if len(usable) > 2:
        found.append(_step(usable[0], usable[-1], most, NOISE_OVERALL))
    return found


def _step(before: tuple[int, float], after: tuple[int, float], most: float | None, noise: float) -> Step:
    (start, low), (end, high) = before, after
    exponent = math.log(high / low) / math.log(end / start)
    too_steep = most is not None and high / low > noise * (end / start) ** most
    return Step(start, end, exponent, too_steep)


def _cpu_and_rate() -> tuple[Panel, Panel]:
    return (
        Panel("CPU per message, all nodes [us]", (Series("cpu_us", "per message", LINEAR),)),
        Panel("messages per second", (Series("rate", "rate", None),)),
    )


_BINDING_POINTS: Final = (1, 10, 100, 1000, 10_000)

KNOBS: Final = (
    Knob(
        "size", "Message size", "body [bytes]",
        (12, 128, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576), (128, 4096, 65_536),
        knobs.message_size, _cpu_and_rate(),
    ),
    Knob(
        "rate", "Messages of 1 KB a second, one queue", "messages a second", (100, 1000, 3000, 10_000, 30_000, 100_000),
        (100, 1000, 10_000), knobs.rates,
        (
            Panel("CPU per message, all nodes [us]", (
                Series("cpu_us", "all", LINEAR), Series("beyond_rest_us", "beyond what nodes take at rest", LINEAR),
            )),
            Panel("end to end, by due time [ms]", (Series("p50_ms", "p50", None), Series("p99_ms", "p99", None))),
            Panel("messages per second", (Series("rate", "reached", None),)),
        ),
    ),
    Knob(
        "queues", "Queues declared, messages to all in turn", "queues", (1, 10, 100, 1000, 10_000), (1, 30, 1000),
        knobs.queues,
        (
            Panel("CPU, all nodes [us]", (
                Series("cpu_us", "per message", LINEAR), Series("declare_cpu_us", "per declare", FLAT),
            )),
            Panel("memory, all nodes [bytes]", (Series("memory_bytes", "per queue", FLAT),)),
            Panel("time of a page [ms]", (Series("metrics_ms", "/metrics", LINEAR),)),
        ),
    ),
    Knob(
        "idle_connections", "Idle connections beside a load that stays the same", "idle connections",
        (1, 10, 100, 1000, 5000), (1, 30, 300), knobs.idle_connections,
        (
            Panel("CPU, all nodes [us]", (
                Series("cpu_us", "per message", LINEAR), Series("open_cpu_us", "to open a connection", FLAT),
            )),
            Panel("memory [bytes]", (Series("memory_bytes", "per connection", FLAT),)),
            Panel("CPU when idle, all nodes [cores]", (Series("idle_cores", "idle", LINEAR),)),
        ),
    ),
    Knob(
        "active_connections", "Connections that publish, one message under way on each", "connections",
        (1, 10, 100, 1000, 5000), (1, 30, 300), knobs.active_connections, _cpu_and_rate(),
    ),
    Knob(
        "consumers", "Consumers of one queue", "consumers", (1, 10, 100, 1000), (1, 30, 100), knobs.consumers,
        _cpu_and_rate(),
    ),
    Knob(
        "topic_bindings", "Bindings of a topic exchange, a quarter each w.*.x, *.w.#, #.w, w.#.y", "bindings",
        _BINDING_POINTS, (1, 30, 1000), knobs.topic_bindings,
        (
            Panel("CPU, all nodes [us]", (
                Series("same_cpu_us", "per message, same key", LINEAR),
                Series("new_cpu_us", "per message, key that never comes again", LINEAR),
                Series("bind_cpu_us", "per bind", FLAT),
            )),
        ),
    ),
    Knob(
        "direct_bindings", "Bindings of a direct exchange", "bindings", _BINDING_POINTS, (1, 30, 1000),
        knobs.direct_bindings,
        (Panel("CPU, all nodes [us]", (
            Series("same_cpu_us", "per message", LINEAR), Series("bind_cpu_us", "per bind", FLAT),
        )),),
    ),
    Knob(
        "headers_bindings", "Bindings of a headers exchange, each with other arguments", "bindings",
        _BINDING_POINTS, (1, 30, 300), knobs.headers_bindings,
        (Panel("CPU, all nodes [us]", (
            Series("same_cpu_us", "per message", LINEAR), Series("bind_cpu_us", "per bind", FLAT),
        )),),
    ),
    Knob(
        "backlog", "Messages of 100 bytes that wait in one queue", "messages in the queue",
        (100_000, 500_000, 1_000_000, 2_000_000, 5_000_000), (100_000, 200_000), knobs.backlog,
        (
            Panel("CPU, all nodes [us]", (
                Series("publish_cpu_us", "per publish", FLAT), Series("consume_cpu_us", "per message taken", FLAT),
            )),
            Panel("messages per second", (
                Series("publish_rate", "published", None), Series("consume_rate", "taken", None),
            )),
            Panel("memory of a node [MB]", (Series("memory_mb", "grown by", LINEAR),)),
            Panel("longest silence of a node [ms]", (Series("silence_ms", "while publishing", None),)),
        ),
    ),
    Knob(
        "shards", "Shards, three nodes, sixteen queues", "shards", (1, 4, 16, 64), (1, 16), knobs.shards,
        (
            *_cpu_and_rate(),
            Panel("CPU when idle, all nodes [cores]", (Series("idle_cores", "idle", LINEAR),)),
            Panel("memory of a node [MB]", (Series("memory_mb", "memory", LINEAR),)),
        ),
    ),
    Knob(
        "nodes", "Nodes, three replicas of each of sixteen shards", "nodes", (1, 3, 5, 7, 9, 15), (1, 3), knobs.nodes,
        (
            *_cpu_and_rate(),
            Panel("CPU when idle, all nodes [cores]", (Series("idle_cores", "idle", LINEAR),)),
            Panel("memory of a node [MB]", (Series("memory_mb", "memory", LINEAR),)),
        ),
    ),
)
