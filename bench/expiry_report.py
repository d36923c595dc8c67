"""The tables of `bench/expiry.py`."""

import datetime
import sys

from bench.comparison import ratio
from bench.machine import describe_machine, load_average


def dead_table(count: int, ours: dict[str, dict[str, float]], theirs: dict[str, dict[str, float]]) -> list[str]:
    """Dead letters, as rows of Markdown."""
    rows = [
        f"### {count:,} dead letters", "",
        "| broker | strategy | publishing s | first deadline to last arrival s | CPU s, 3 nodes | out of order |",
        "|---|---|---|---|---|---|",
    ]
    for broker, results in (("MayflyMQ", ours), ("RabbitMQ", theirs)):
        for strategy, row in results.items():
            rows.append(
                f"| {broker} | {strategy} | {row['publish_s']:.1f} | {row['from_first_deadline_s']:.1f} "
                f"| {row['cpu_s']:.1f} | {row['out_of_order']:.0f} |"
            )
    mine = ours["at-least-once"]
    for strategy, row in theirs.items():
        field = "from_first_deadline_s"
        rows.append(
            f"| ratio | exactly once to {strategy} | {ratio(mine['publish_s'], row['publish_s'])} "
            f"| {ratio(mine[field], row[field])} | {ratio(mine['cpu_s'], row['cpu_s'])} | |"
        )
    return rows


def waiting_table(count: int, due_count: int, row: dict[str, float]) -> list[str]:
    """Waiting messages, as rows of Markdown."""
    return [
        f"### {count:,} messages wait", "",
        "| what | MayflyMQ |", "|---|---|",
        f"| memory per message and node, bytes | {row['bytes_per_message_node']:.0f} |",
        f"| with the log entries that are cached | {row['bytes_per_message_node_with_cache']:.0f} |",
        f"| idle CPU of three nodes, % of a core, before and while they wait | {row['idle_cpu_empty']:.1f}, "
        f"{row['idle_cpu']:.1f} |",
        f"| publishing all of them | {row['publish_s']:.0f} s, {row['publish_cpu_us']:.0f} us of CPU each |",
        f"| longest silence of a node meanwhile | {row['silence_ms']:.0f} ms |",
        f"| lag of {due_count:,} deadlines in other queues, p50 / p99 / longest | {row['lag_p50_ms']:.0f} / "
        f"{row['lag_p99_ms']:.0f} / {row['lag_max_ms']:.0f} ms |",
    ]


def scheduled_table(
    sizes: tuple[int, int, int], waits: dict[str, float], publishing: dict[str, float], deaths: list[dict[str, float]]
) -> list[str]:
    """Messages that wait for their time, and deaths at the head and anywhere, as rows of Markdown."""
    waiting, due, burst = sizes
    head, anywhere = deaths
    return [
        f"### {waiting:,} messages wait for their time", "",
        "| what | MayflyMQ |", "|---|---|",
        f"| memory per message and node, bytes; with ids | {waits['bytes_per_message_node']:.0f}; "
        f"{waits['bytes_per_named_message_node']:.0f} |",
        f"| with the log entries that are cached | {waits['bytes_per_message_node_with_cache']:.0f} |",
        f"| idle CPU of three nodes, % of a core, before and while they wait | {waits['idle_cpu_empty']:.1f}, "
        f"{waits['idle_cpu']:.1f} |",
        f"| publishing all of them | {waits['publish_s']:.0f} s, {waits['publish_cpu_us']:.0f} us of CPU each |",
        f"| in turn with the same messages that are ready at once: CPU of each, us | {publishing['scheduled_us']:.1f} "
        f"to {publishing['plain_us']:.1f}, {publishing['scheduled_ratio']:.2f}x |",
        f"| with ids, by which they can be cancelled | {publishing['scheduled_with_id_us']:.1f}, "
        f"{publishing['scheduled_with_id_ratio']:.2f}x |",
        f"| lag of {due:,} that are due in the same queues within 20 s, p50 / p99 / shortest / longest | "
        f"{waits['lag_p50_ms']:.0f} / {waits['lag_p99_ms']:.0f} / {waits['lag_min_ms']:.0f} / "
        f"{waits['lag_max_ms']:.0f} ms |",
        f"| {burst:,} due in one second there, from its begin until the last is delivered | {waits['burst_s']:.2f} s |",
        f"| {burst:,} due in one second for a delayed exchange, alike | {waits['burst_exchange_s']:.2f} s |",
        f"| {waiting:,} deadlines within a minute, anywhere in queues: late p50 / p99, at most | "
        f"{anywhere['late_p50_ms']:.0f} / {anywhere['late_p99_ms']:.0f} ms |",
        f"| at the head, alike | {head['late_p50_ms']:.0f} / {head['late_p99_ms']:.0f} ms |",
        f"| CPU of a death on each node, anywhere to at the head, us | {anywhere['cpu_us_node']:.1f} to "
        f"{head['cpu_us_node']:.1f} |",
        "",
        *_scheduled_aims(waits, publishing, head, anywhere),
    ]


def _scheduled_aims(
    waits: dict[str, float], publishing: dict[str, float], head: dict[str, float], anywhere: dict[str, float]
) -> list[str]:
    """What was aimed at, and what has come of it."""
    aims = (
        ("memory per message and node, bytes", waits["bytes_per_message_node"], 120.0),
        ("of one with an id, bytes", waits["bytes_per_named_message_node"], 120.0),
        ("CPU of publishing to wait, times that of plain publishing", publishing["scheduled_ratio"], 1.3),
        ("with ids", publishing["scheduled_with_id_ratio"], 1.3),
        ("lag of what is due, p50, ms", waits["lag_p50_ms"], 150.0),
        ("p99, ms", waits["lag_p99_ms"], 260.0),
        ("all delivered that is due in one second, s", waits["burst_s"], 3.0),
        ("the same of a delayed exchange, s", waits["burst_exchange_s"], 3.0),
        ("deadlines anywhere: gone after the deadline, p99, ms", anywhere["late_p99_ms"], 300.0),
        ("a death anywhere: more CPU than at the head, us", anywhere["cpu_us_node"] - head["cpu_us_node"], 2.0),
    )
    rows = ["| aim | at most | measured | |", "|---|---|---|---|"]
    for name, measured, most in aims:
        rows.append(f"| {name} | {most:g} | {measured:.2f} | {'met' if measured <= most else '**missed**'} |")
    return rows


def lease_table(ours: dict[str, float], theirs: dict[str, float]) -> list[str]:
    """Leased queues, as rows of Markdown."""
    rows = [
        f"### {ours['queues']:,.0f} queues with a lease", "",
        "| what | MayflyMQ | RabbitMQ | ratio |", "|---|---|---|---|",
    ]

    def row(name: str, field: str, form: str) -> None:
        if field in ours:
            mine, other = ours[field], theirs.get(field)
            compared = "" if other is None else ratio(mine, other) if other else "-"
            rows.append(f"| {name} | {mine:{form}} | {'-' if other is None else f'{other:{form}}'} | {compared} |")

    row("queues", "queues", ",.0f")
    row("declared per second", "declares_per_s", ",.0f")
    row("CPU per declare, us, 3 nodes", "declare_cpu_us", ",.0f")
    row("longest silence of a node meanwhile, ms", "silence_ms", ".0f")
    row("memory per queue, bytes, 3 nodes", "bytes_per_queue", ",.0f")
    row("memory per queue and node, bytes", "bytes_per_queue_node", ",.0f")
    row("idle CPU before, % of a core, 3 nodes", "idle_cpu_empty", ".1f")
    row("idle CPU with all queues", "idle_cpu", ".1f")
    row("lease, s", "lease_s", ".0f")
    row("all gone after the end of the last lease, s", "gone_after_last_lease_s", ".1f")
    row("CPU to be rid of all, s, 3 nodes", "gone_cpu_s", ".1f")
    row("longest silence of a node meanwhile, ms", "gone_silence_ms", ".0f")
    return rows


def retry_table(count: int, version: str, ours: dict[str, float], theirs: dict[str, float]) -> list[str]:
    """Retries that wait, as rows of Markdown. `version`: RabbitMQ's."""
    rows = [
        f"### {count:,} messages that are given back three times each", "",
        f"| what | MayflyMQ | RabbitMQ {version} | ratio |", "|---|---|---|---|",
    ]
    for name, field, form in (
        ("CPU of a retry, us, 3 nodes", "retry_us", ",.0f"),
        ("CPU of a message that is taken and acknowledged at once, us, 3 nodes", "plain_us", ",.0f"),
        ("memory of a message that waits for its retry, bytes, each node", "waiting_bytes_node", ",.0f"),
        ("of one that is ready, bytes, each node", "ready_bytes_node", ",.0f"),
        ("retry later than its delay, median, ms", "lag_p50_ms", ",.0f"),
        ("p99, ms", "lag_p99_ms", ",.0f"),
    ):
        other = theirs.get(field)
        compared = "" if other is None else ratio(ours[field], other) if other > 0 else "-"
        rows.append(f"| {name} | {ours[field]:{form}} | {'-' if other is None else f'{other:{form}}'} | {compared} |")
    return rows


def policy_table(row: dict[str, float]) -> list[str]:
    """Policies that come and go, as rows of Markdown."""
    return [
        f"### A policy for {row['queues']:,.0f} queues", "",
        "| what | MayflyMQ |", "|---|---|",
        f"| effective on all nodes, s: shortest / median / longest of {row['changes']:.0f} | "
        f"{row['effective_first_s']:.2f} / {row['effective_s']:.2f} / {row['effective_last_s']:.2f} |",
        f"| answered, median | {row['answered_s']:.2f} s |",
        f"| CPU per queue, 3 nodes, asking included | {row['cpu_us_per_queue']:.0f} us |",
        f"| longest silence of a node meanwhile | {row['silence_ms']:.0f} ms |",
    ]


def journal_table(count: int, rounds: int, row: dict[str, float]) -> list[str]:
    """What a journal adds, as rows of Markdown."""
    return [
        f"### {count:,} dead letters without a journal, and with one", "",
        "| CPU of a message from its publish to its dead letter, 3 nodes | MayflyMQ |", "|---|---|",
        f"| without a journal, us, median of {rounds} | {row['without_us']:.1f} |",
        f"| with one | {row['with_us']:.1f} |",
        f"| more, median of {rounds} pairs in turns | {row['more_percent']:.1f} % |",
        f"| the same without a journal from one turn to the next, at most | {row['spread_percent']:.1f} % |",
    ]


def heading() -> list[str]:
    """Where and how this was measured."""
    command = "python bench/expiry.py " + " ".join(sys.argv[1:])
    return [
        f"`{command.strip()}` on {datetime.datetime.now(datetime.UTC):%Y-%m-%d}: {describe_machine()}, everything on "
        f"one machine, load average {load_average()} at the end.", "",
    ]
