"""`mayfly status`: the cluster as one of its nodes sees it."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import click
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from mayfly.node.command_line.operator_client import asks_a_node, console, get

_GROUP_NUMBERS: Final = {
    "term": "term",
    "commit": "commit",
    "applied": "applied",
    "queues": "queues",
    "ready": "ready",
    "scheduled": "scheduled",
    "next_due_in_ms": "due in ms",
    "unacknowledged": "unacked",
    "expiry_lag_ms": "lag ms",
    "outbox": "outbox",
}
_OF_SCHEDULES: Final = ("scheduled", "due in ms")
"""Columns that are there where something is scheduled."""
_FIRST_TO_GO: Final = ("applied", "commit", "term", "due in ms", "outbox", "voters", "scheduled", "lag ms")
_FIRST_TO_GO_OF_NODES: Final = ("clock offset ms", "failure domain")
"""Columns that a narrow terminal is not shown, the least wanted first."""
_ANY_WIDTH: Final = 10_000
_MOST_COPIES: Final = 20
_FEWEST_FOLDED: Final = 4
"""Fewer idle shards have a line each."""


@click.command("status")
@asks_a_node
@click.option("--json", "as_json", is_flag=True, help="As JSON, for scripts.")
@click.option("--all", "all_shards", is_flag=True, help="A line for each shard, also where nothing is.")
def command(address: str, as_json: bool, all_shards: bool) -> None:
    """Show nodes, shards, leaders, terms, queue counts and expiry lag. Shards that are idle are one line together."""
    status = get(address, "/status")
    if as_json:
        click.echo(json.dumps(status, indent=2))
    else:
        show_status(status, console(), all_shards)


def show_status(status: Mapping[str, Any], console: Console, all_shards: bool = False) -> None:
    """Tables of what a node's `/status` says; what it does not say shows as '-'."""
    if status.get("waits"):
        console.print(Text(f"In no cluster yet: {_text(status['waits'])}"))
    left_out = _print_fitting(console, lambda without: _nodes(status, without), _FIRST_TO_GO_OF_NODES)
    idle = [] if all_shards else [group for group in status.get("groups", ()) if _is_idle(group)]
    if len(idle) < _FEWEST_FOLDED:
        idle = []
    shown = [group for group in status.get("groups", ()) if group not in idle]
    empty = () if any(group.get("scheduled") for group in shown) else _OF_SCHEDULES
    first_to_go = [heading for heading in _FIRST_TO_GO if heading not in empty]
    left_out += _print_fitting(console, lambda without: _groups(shown, (*without, *empty)), first_to_go)
    if idle:
        console.print(Text(_folded(idle), style="dim"))
    copies = _copies(status)
    if copies.row_count:
        console.print(copies)
    if left_out:
        console.print(Text(f"Not shown at this width: {', '.join(left_out)} (--json has all)", style="dim"))
    queues = status.get("queues")
    if isinstance(queues, Mapping):
        count = f"shards {status['shards']}, " if "shards" in status else ""
        totals = [f"{name} {_text(value)}" for name, value in queues.items() if value != 0 or name != "scheduled"]
        console.print(Text(f"Totals: {count}" + ", ".join(totals)))
    if status.get("unknown_shards"):
        shards = ", ".join(map(_text, status["unknown_shards"]))
        text = f"Without shards {shards}: no node with a replica has answered in time"
        console.print(Text(text, style="bold yellow"))
    for off in status.get("switched_off", ()):
        where = "in the cluster" if off["vhost"] is None else f"in vhost '{off['vhost']}'"
        console.print(Text(f"Switched off {where}: {_text(off['feature'])}", style="bold yellow"))
    for alarm in status.get("alarms", ()):
        console.print(Text(f"ALARM: {_text(alarm)}", style="bold red"))
    alone = status.get("groups_left_alone")
    if alone:
        text = f"groups {', '.join(map(str, alone))} are left alone: most of their voters are away"
        console.print(Text(f"WARNING: {text}", style="bold yellow"))
    for warning in status.get("warnings", ()):
        console.print(Text(f"WARNING: {_text(warning)}", style="bold yellow"))


def _print_fitting(console: Console, make: Callable[[Collection[str]], Table], first_to_go: Sequence[str]) -> list[str]:
    """Print the table with as many columns as there is room for without a line being broken; those that were left out,
    the least wanted first."""
    left_out: list[str] = []
    for heading in ("", *first_to_go):
        left_out += [heading] if heading else []
        table = make(left_out)
        if Measurement.get(console, console.options.update(max_width=_ANY_WIDTH), table).maximum <= console.width:
            break
    console.print(table)
    return left_out


def _table(
    title: str, columns: Mapping[str, bool], rows: Iterable[Sequence[Text | str]], without: Collection[str]
) -> Table:
    """`columns` are headings, and whether they are of numbers; cells of those in `without` are left out."""
    table = Table(title=title, box=box.SIMPLE, title_justify="left", padding=(0, 1, 0, 0))
    for heading, right in columns.items():
        if heading not in without:
            table.add_column(heading, justify="right" if right else "left")
    for row in rows:
        table.add_row(*(cell for heading, cell in zip(columns, row, strict=True) if heading not in without))
    return table


def _nodes(status: Mapping[str, Any], without: Collection[str]) -> Table:
    columns = {"id": True, "name": False, "failure domain": False, "up": False, "clock offset ms": True}
    rows = [
        (
            _text(node.get("id")),
            Text(_text(node.get("name"))),
            Text(_text(node.get("failure_domain") or None)),
            _up(node),
            _text(node.get("clock_offset_ms")),
        )
        for node in status.get("nodes", ())
    ]
    return _table(f"Nodes, as {_text(status.get('name'))} sees them", columns, rows, without)


def _up(node: Mapping[str, Any]) -> Text:
    """Whether it is up; of one that others are to replace, how many replicas are still to be moved."""
    up = "yes" if node.get("up") else "away" if node.get("away") else "no"
    left = node.get("replicas_to_move")
    return Text(f"{up}, {left} to move" if left else up, style="green" if node.get("up") else "bold red")


def _groups(groups: Iterable[Mapping[str, Any]], without: Collection[str]) -> Table:
    columns = {"group": False, "leader": False, **dict.fromkeys(_GROUP_NUMBERS.values(), True), "voters": False}
    rows: list[Sequence[Text | str]] = []
    for group in groups:
        leader = group.get("leader_name") or group.get("leader") or None
        rows.append((
            "catalog" if group.get("group") == 0 else f"shard {group.get('group')}",
            Text(_text(leader)) if leader else Text("none", style="bold red"),
            *(_text(group.get(key)) for key in _GROUP_NUMBERS),
            _members(group),
        ))
    return _table("Groups", columns, rows, without)


def _copies(status: Mapping[str, Any]) -> Table:
    """Streams that are copied, from this cluster and from others, those furthest behind first, as far as the node that
    was asked leads their shards; what is not known of one in another cluster is most of all."""
    groups: Sequence[Mapping[str, Any]] = status.get("groups", ())
    found = [(row["lag"], row["vhost"], row["copy"], row["stream"]) for row in _of_all(groups, "stream_copies")]
    for row in _of_all(groups, "upstreams"):
        state = "" if row["reading"] else ", which cannot be read"
        found.append((row["lag"], row["vhost"], row["mirror"], f"cluster {row['cluster']}{state}"))
    found.sort(key=lambda row: (row[0] is not None, -(row[0] or 0), *row[1:]))
    rows = [(Text(vhost), Text(copy), Text(of), _text(lag)) for lag, vhost, copy, of in found[:_MOST_COPIES]]
    more = f", {_MOST_COPIES} of {len(found)}" if len(found) > _MOST_COPIES else ""
    columns = {"vhost": False, "copy": False, "of": False, "behind": True}
    return _table(f"Copies of streams led here{more}", columns, rows, ())


def _of_all(groups: Sequence[Mapping[str, Any]], key: str) -> Iterable[Mapping[str, Any]]:
    return [row for group in groups for row in group.get(key) or ()]


def _is_idle(group: Mapping[str, Any]) -> bool:
    """A shard that is led, and in which nothing waits and nothing is late."""
    waits = ("ready", "scheduled", "unacknowledged", "outbox", "parked", "braked", "expiry_lag_ms")
    known = "ready" in group and "unknown" not in group and bool(group.get("leader"))
    return known and not group.get("learners") and not any(group.get(key) for key in waits)


def _folded(idle: Sequence[Mapping[str, Any]]) -> str:
    leaders = Counter(str(group.get("leader_name") or group.get("leader")) for group in idle)
    led = ", ".join(f"{name} {count}" for name, count in sorted(leaders.items()))
    queues = sum(group.get("queues") or 0 for group in idle)
    numbers = _ranges(sorted(group["group"] for group in idle))
    return f"Idle: shards {numbers} with {queues} queues, led by {led} (--all shows them)"


def _ranges(numbers: Sequence[int]) -> str:
    """1-3, 7."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def _members(group: Mapping[str, Any]) -> str:
    learners: Sequence[object] = group.get("learners") or ()
    text = ", ".join(map(str, group.get("voters") or ()))
    return text + (f" (learners {', '.join(map(str, learners))})" if learners else "")


def _text(value: object) -> str:
    return "-" if value is None else str(value)
