"""The loads of the comparison: what the load generator is told for each, and the figures that come of it."""

from dataclasses import dataclass
from typing import Final

from bench.clusters import Cluster
from bench.load_generator import LoadGenerator, figures

THROUGH: Final = 200_000
"""Messages that go through the broker before its memory is measured, and that are published and then consumed."""
STEADY_RATE: Final = 1000
DUE_RATE: Final = 8000
_KILOBYTE: Final = ("--size", "1024")
_FOUR: Final = ("--producers", "4", "--consumers", "4", "--queues", "4")
_CLEAN: Final = ("--delete-start", "--delete-end")
_SHAPES: Final = {
    "a1k": _KILOBYTE,
    "a12": ("--size", "12"),
    "b1k": (*_KILOBYTE, *_FOUR),
    "b12": ("--size", "12", *_FOUR),
    "single": _KILOBYTE,
    "steady": (*_KILOBYTE, "--rate", str(STEADY_RATE)),
    "due8000": (*_KILOBYTE, "--rate", str(DUE_RATE)),
    "half": _KILOBYTE,
    "window1": (*_KILOBYTE, "--publish-only", "--window", "1"),
}
_MEGABYTE: Final = 1 << 20

CLUSTER_LOADS: Final = ("memory", "a1k", "b1k", "a12", "b12", "through", "window1", "half", "steady", "due8000")
"""In the order in which they run on three nodes that have just started: memory first."""


@dataclass(frozen=True)
class Timing:
    """How long a run of a load takes, and how much of that is left out at its start."""

    seconds: int
    warmup_s: int


def stages(name: str, timing: Timing, rate: str = "HALF") -> dict[str, list[str]]:
    """The runs of the load generator that make up a load, by the name of their figures. `rate` is for "half" alone."""
    if name == "memory":
        return {"memory": [*_KILOBYTE, "--count", str(THROUGH), "--delete-start"]}
    if name == "through":
        return {
            "publish": [*_KILOBYTE, "--publish-only", "--count", str(THROUGH), "--delete-start"],
            "consume": [*_KILOBYTE, "--consume-only", "--count", str(THROUGH), "--delete-end"],
        }
    given = ["--rate", rate] if name == "half" else []
    timed = ["--seconds", str(timing.seconds), "--warmup", str(timing.warmup_s), *_CLEAN]
    return {name: [*_SHAPES[name], *given, *timed]}


def measure_load(
    generator: LoadGenerator, cluster: Cluster, name: str, timing: Timing, half_rate: float | None
) -> dict[str, float]:
    """One run of a load; its figures, as "load.figure"."""
    if name == "half" and not half_rate:
        raise ValueError("half of the maximum is not known: the load a1k has not run")
    measured = {}
    for stage, options in stages(name, timing, f"{half_rate or 0:.0f}").items():
        for key, value in figures(generator.run(cluster, options)).items():
            measured[f"{stage}.{key}"] = value
        if stage == "half" and half_rate:
            measured["half.rate"] = half_rate
        if stage == "memory":
            measured["memory.resident_mb"] = cluster.resident_bytes() / _MEGABYTE
            measured["memory.anonymous_mb"] = cluster.memory_bytes() / _MEGABYTE
    return measured
