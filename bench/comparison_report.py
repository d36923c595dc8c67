"""The comparison as Markdown: the table of aims, every run, how it was measured, and an excerpt for the README."""

from collections.abc import Sequence
from typing import Final

from bench.comparison import JETSTREAM, MAYFLY, PEERS, RABBITMQ, ROWS, Compared, Results, Row, compare, ratio

LAVINMQ_RATE: Final = 179_000
LAVINMQ_CPU_US: Final = 5.4
"""Both from ../shared/bench/README.md: LavinMQ 1.0.1, the load a1k."""
EXCERPT: Final = (
    "a1k.confirmed_s", "b1k.confirmed_s", "a1k.cpu_us", "window1.confirm_p50_ms", "steady.latency_p99_ms",
    "single.confirmed_s", "memory.resident_mb", "kill.gap_s", "freeze.gap_s",
)


def page(results: Results) -> list[str]:
    """Everything, for docs/measurements/benchmarks.md."""
    return [
        *about(results), "", *aims_table(results), "", *lavinmq(results), *failures(results), "",
        "### Every run", "", *runs_table(results), "",
        "### Commands", "", "```", *results.about["commands"].splitlines(), "```",
    ]


def excerpt(results: Results) -> list[str]:
    """A few rows, for the README."""
    about = results.about
    rows = [each for each in compare(results) if each.row.figure in EXCERPT]
    lines = [f"| load | MayflyMQ | {RABBITMQ} | {JETSTREAM} |", "|---|---|---|---|"]
    lines += [
        f"| {each.row.title} | {_ours(each)} | {_theirs(each, RABBITMQ)} | {_theirs(each, JETSTREAM)} |"
        for each in rows
    ]
    return [
        f"{about['date'][:10]}, {about['machine']}: MayflyMQ {about[MAYFLY]}, {_versions(results)}. "
        "Medians, and how many times the peer's figure ours is; all rows, every run and the commands are in "
        "[docs/measurements/benchmarks.md](docs/measurements/benchmarks.md). "
        f"{verdict(results)}",
        "", *lines, "", *lavinmq(results),
    ]


def verdict(results: Results, rows: Sequence[Row] = ROWS) -> str:
    """Which aims are not met, or not known to be, and whether anything failed."""
    aims = [(f"{each.row.title} ({aim})", each.met(aim)) for each in compare(results, rows) for aim in each.row.aims]
    unmet = [title for title, met in aims if met is False]
    unknown = [title for title, met in aims if met is None]
    words = "Of the aims there these are not met: " + "; ".join(unmet) if unmet else "All the aims there are met"
    if unknown:
        words += ", but for those not known: " + "; ".join(unknown)
    if results.failures:
        words += f". {len(results.failures)} runs or faults failed; figures are of the others"
    return words + "."


def about(results: Results) -> list[str]:
    """Where, when and how."""
    about = results.about
    lines = [
        f"`{about['command']}`, {about['date']}, commit {about['commit']}.",
        f"Machine: {about['machine']}; load average {about['load_before']} before, {about['load_after']} after; "
        f"{about['took']}.",
        f"MayflyMQ {about[MAYFLY]}; {_versions(results)}. Everything on this machine, over loopback.",
        f"Figures are medians. {about['plan']}",
    ]
    return [f"- {line}" for line in lines]


def aims_table(results: Results, rows: Sequence[Row] = ROWS) -> list[str]:
    """All brokers, with how many times a peer's figure ours is, the aims, and whether they are met."""
    lines = [
        f"| load | MayflyMQ | {' | '.join(PEERS)} | aims | met | cores used by others, at most, in the same order |",
        "|---" * (len(PEERS) + 5) + "|",
    ]
    shown = {None: "?", True: "yes", False: "**no**"}
    for each in compare(results, rows):
        peers = " | ".join(_theirs(each, peer) for peer in PEERS)
        aims = "; ".join(str(aim) for aim in each.row.aims)
        met = "; ".join(shown[each.met(aim)] for aim in each.row.aims)
        lines.append(f"| {each.row.title} | {_ours(each)} | {peers} | {aims} | {met} | {_others(results, each)} |")
    return lines


def lavinmq(results: Results) -> list[str]:
    """How far it is to a broker in native code that neither replicates nor syncs."""
    cpu_us, single_us = (results.median(MAYFLY, figure) for figure in ("a1k.cpu_us", "single.cpu_us"))
    if cpu_us is None:
        return []
    single = "" if single_us is None else f", a single node {ratio(single_us, LAVINMQ_CPU_US)}"
    return [
        f"LavinMQ 1.0.1, one node, native code, no fsync before a confirm (../shared/bench/README.md, not run here): "
        f"{_number(LAVINMQ_RATE, 0)} msg/s of 1 KB at {LAVINMQ_CPU_US} us of CPU each. Three nodes of MayflyMQ, "
        f"replicated and synced, use {ratio(cpu_us, LAVINMQ_CPU_US)} that{single}."
    ]


def failures(results: Results) -> list[str]:
    """What failed, with its text."""
    if not results.failures:
        return []
    return ["", "### Failed", "", "```", *results.failures, "```"]


def runs_table(results: Results, rows: Sequence[Row] = ROWS) -> list[str]:
    """The figures of every run."""
    brokers = (MAYFLY, *PEERS)
    lines = [f"| figure | {' | '.join(brokers)} |", "|---" * (len(brokers) + 1) + "|"]
    for each in compare(results, rows):
        figure, decimals = each.row.figure, each.row.decimals
        cells = [
            ", ".join(_number(value, decimals) for value in results.values(broker, figure)) for broker in brokers
        ]
        lines.append(f"| {each.row.title} | {' | '.join(cells)} |")
    return lines


def _versions(results: Results) -> str:
    return ", ".join(f"{peer} {results.about[peer]}" for peer in PEERS)


def _ours(each: Compared) -> str:
    return "failed" if each.ours is None else _number(each.ours, each.row.decimals)


def _theirs(each: Compared, peer: str) -> str:
    theirs = each.theirs.get(peer)
    if theirs is not None:
        of_ours = "" if each.ours is None or not theirs else f" ({ratio(each.ours, theirs)})"
        return _number(theirs, each.row.decimals) + of_ours
    return f"{each.row.reference} (reference)" if each.row.reference and peer == RABBITMQ else "-"


def _number(value: float, decimals: int) -> str:
    return f"{value:,.{decimals}f}".replace(",", " ")


def _others(results: Results, each: Compared) -> str:
    figure = each.row.figure.partition(".")[0] + ".other_cores"
    measured = (results.values(broker, figure) for broker in (MAYFLY, *PEERS))
    return ", ".join(f"{max(values):.2f}" if values else "-" for values in measured)
