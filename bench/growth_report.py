"""Curves and tables of `bench/growth.py`, from the figures it keeps as JSON."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

from bench.growth_curves import KNOBS, Figures, Knob, Panel, series_points, steps
from bench.marked_page import write_figures

_COLOURS: Final = ("#0b6e99", "#c4501b", "#5b7f1f")
_MARKERS: Final = ("o", "s", "^")
_PANEL_INCHES: Final = (4.6, 3.6)
_COLUMNS: Final = 2

Kept = Mapping[str, Mapping[str, Any]]
"""Knob to what was measured: figures under "points", and when, where and by which command."""


# ---------------------------------------------------------------------- curves


def draw(knob: Knob, figures: Figures, path: Path) -> None:
    """All panels of a knob, double logarithmic, as one picture."""
    matplotlib.use("Agg")
    columns = min(_COLUMNS, len(knob.panels))
    rows = -(-len(knob.panels) // columns)
    width = _PANEL_INCHES[0] * max(columns, 1.3)
    figure = Figure(figsize=(width, _PANEL_INCHES[1] * rows + 0.4), layout="constrained")
    figure.suptitle(knob.title, fontsize=12)
    for place, panel in enumerate(knob.panels, 1):
        _draw_panel(figure.add_subplot(rows, columns, place), knob, panel, figures)
    figure.savefig(path, dpi=110)


def _draw_panel(axes: Any, knob: Knob, panel: Panel, figures: Figures) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(knob.axis)
    axes.set_ylabel(panel.unit)
    places: list[int] = []
    values: list[float] = []
    for number, series in enumerate(panel.series):
        points = [(x, y) for x, y in series_points(figures, series.field) if y > 0]
        if not points:
            continue
        places, heights = [x for x, _ in points], [y for _, y in points]
        values += heights
        axes.plot(
            places, heights, marker=_MARKERS[number], color=_COLOURS[number], label=series.label, markersize=5
        )
        for step in steps(points, series.most)[: len(points) - 1]:
            if step.too_steep:
                pair = [point for point in points if point[0] in (step.start, step.end)]
                axes.plot([x for x, _ in pair], [y for _, y in pair], color="red", linewidth=5, alpha=0.35, zorder=0)
    if not values:
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center")
        axes.set_xticks([])
        axes.set_yticks([])
        axes.minorticks_off()
        return
    axes.xaxis.set_major_locator(FixedLocator(places))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", labelsize=8)
    # Flat curves are to look flat: never less than two decades.
    middle = (max(values) * min(values)) ** 0.5
    axes.set_ylim(min(min(values) / 1.8, middle / 10), max(max(values) * 1.8, middle * 10))
    axes.yaxis.set_major_locator(LogLocator(base=10))
    axes.yaxis.set_minor_locator(LogLocator(base=10, subs=(2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.tick_params(axis="y", which="both", labelsize=8)
    axes.grid(True, which="major", alpha=0.4)
    axes.grid(True, which="minor", alpha=0.15)
    if len(panel.series) > 1:
        axes.legend(fontsize=8)


def short(value: float) -> str:
    """1500 as 1.5k, 2048 as 2Ki, 0.02 as it is."""
    if value >= 1024 and value % 1024 == 0:
        return f"{value / 1024:.0f}Ki" if value < 1 << 20 else f"{value / (1 << 20):.3g}Mi"
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


# ---------------------------------------------------------------------- tables


def table(knob: Knob, figures: Figures) -> list[str]:
    """The figures of a knob, with the exponents, as rows of Markdown."""
    every = [(panel, series) for panel in knob.panels for series in panel.series]
    points = sorted({int(point) for point in figures})
    rows = [
        f"| {knob.axis} | " + " | ".join(f"{panel.unit}: {series.label}" for panel, series in every) + " |",
        "|---" * (len(every) + 1) + "|",
    ]
    rows += [
        f"| {short(point)} | "
        + " | ".join(_value(figures[str(point)].get(series.field)) for _, series in every) + " |"
        for point in points
    ]
    told = []
    for _, series in every:
        found = steps(series_points(figures, series.field), series.most)
        told.append(", ".join(f"{step.exponent:.2f}{' **too steep**' if step.too_steep else ''}" for step in found))
    rows.append("| exponents | " + " | ".join(told) + " |")
    rows.append(
        "| at most | " + " | ".join("-" if series.most is None else f"{series.most:.0f}" for _, series in every) + " |"
    )
    return rows


def _value(value: float | None) -> str:
    return "" if value is None else short(value)


def too_steep(knob: Knob, figures: Figures) -> list[str]:
    """What grows faster than it may, one sentence each."""
    found = [
        (panel, series, step)
        for panel in knob.panels
        for series in panel.series
        for step in steps(series_points(figures, series.field), series.most)
        if step.too_steep
    ]
    return [
        f"{knob.name}: {panel.unit}, {series.label}, from {short(step.start)} to {short(step.end)}: "
        f"exponent {step.exponent:.2f}, at most {series.most:.0f}"
        for panel, series, step in found
    ]


def write_all(kept: Kept, folder: Path, document: Path) -> list[str]:
    """Pictures into the folder, tables between their marks in the document; what is too steep."""
    lines: list[str] = []
    steep: list[str] = []
    for knob in KNOBS:
        if knob.name not in kept:
            continue
        figures = kept[knob.name]["points"]
        draw(knob, figures, folder / f"{knob.name}.png")
        steep += too_steep(knob, figures)
        lines += [
            f"### {knob.title}", "", f"![{knob.title}]({folder.name}/{knob.name}.png)", "",
            *table(knob, figures), "",
            f"{kept[knob.name]['when']}: {kept[knob.name]['where']}, `{kept[knob.name]['command']}`, "
            f"{kept[knob.name]['took_s']:.0f} s.", "",
        ]
    verdict = [f"- {sentence}" for sentence in steep] or ["Nothing grew faster than it may."]
    write_figures(document, "bench/growth.py", ["Worse than linear, noise taken off:", "", *verdict, "", *lines])
    return steep
