"""`mayfly queue`: queues and what is in them, as any node has them."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

import click
from rich import box
from rich.table import Table
from rich.text import Text

from mayfly.node.command_line import message_commands
from mayfly.node.command_line.arguments import in_a_vhost
from mayfly.node.command_line.operator_client import (
    as_administrator,
    asks_a_node,
    console,
    get,
    post,
    warn_if_old,
)
from mayfly.node.operating.ports.queue_selection import MOST_QUEUES, USUAL_QUEUES
from mayfly.node.shard.counts import COUNTS

_MS_PER_S: Final = 1000
_SECONDS: Final = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))

Row = Mapping[str, Any]


@click.group("queue")
def command() -> None:
    """Show queues: messages, deadlines, leases. Looking is no use of a queue: no lease is renewed.

    Declare, empty and delete them; publish, get and peek messages.
    """


for _command in (
    message_commands.declare, message_commands.delete, message_commands.purge, message_commands.publish,
    message_commands.get_messages, message_commands.peek,
):  # fmt: skip
    command.add_command(_command)


@command.command("list")
@click.option("--vhost", help="Those of this vhost. [default: all]")
@click.option("--name", "part", default="", help="Those with this text in their name.")
@click.option("--limit", type=click.IntRange(1, MOST_QUEUES), default=USUAL_QUEUES, show_default=True)
@click.option("--columns", "wanted", metavar="A,B,...", help="Which columns; a wrong one has them listed.")
@asks_a_node
@click.option("--json", "as_json", is_flag=True, help="As JSON, for scripts; all that is known.")
def list_queues(
    vhost: str | None, part: str, limit: int, wanted: str | None, address: str, as_json: bool
) -> None:
    """List queues by vhost and name.

    '<=' and '>=' mark numbers of long queues in which not every message was looked at; `mayfly queue show` does.
    """
    columns = _columns(wanted)
    query = {"limit": limit, "fresh": "true"} | ({"vhost": vhost} if vhost is not None else {})
    page = get(address, f"/queues?{urlencode(query | ({'name': part} if part else {}))}")
    warn_if_old(page)
    if as_json:
        click.echo(json.dumps(page, indent=2))
        return
    table = Table(box=box.SIMPLE)
    for column in columns:
        table.add_column(column.replace("_", " "), justify="left" if column in ("vhost", "name", "lease") else "right")
    for row in page["queues"]:
        table.add_row(*(Text(COLUMNS[column](row)) for column in columns))
    console().print(table)
    unknown = sorted({row["shard"] for row in page["queues"] if "unknown" in row})
    if unknown:
        shards = ", ".join(map(str, unknown))
        click.echo(f"'-' in shards {shards}: no node with a replica has answered in time")
    if page["left_out"]:
        click.echo(f"{page['left_out']} more queues; --limit and --name say which are shown")


@command.command("show")
@click.argument("name")
@in_a_vhost
@asks_a_node
@click.option("--json", "as_json", is_flag=True, help="As JSON, for scripts.")
def show(name: str, vhost: str, address: str, as_json: bool) -> None:
    """Show all about queue NAME."""
    row = get(address, f"/queues/{quote(vhost, safe='')}/{quote(name, safe='')}?fresh=true")
    warn_if_old(row)
    if as_json:
        click.echo(json.dumps(row, indent=2))
        return
    title = Text(f"queue '{name}' in vhost '{vhost}'")
    table = Table(box=box.SIMPLE, show_header=False, title=title, title_justify="left")
    for heading, text in _lines(row):
        table.add_row(heading, Text(text))
    console().print(table)


@command.command("move")
@click.argument("vhost")
@click.argument("name")
@click.argument("shard", type=int)
@as_administrator
def move(vhost: str, name: str, shard: int, address: str, user: str, password: str) -> None:
    """Have queue NAME of VHOST move to SHARD, with all that is in it; `mayfly queue show` says how far it is."""
    path = f"/queues/{quote(vhost, safe='')}/{quote(name, safe='')}/move"
    done = post(address, path, {"shard": shard}, user, password)
    text = f"moves to shard {shard}" if done["changed"] else f"is in shard {shard} or on its way there"
    click.echo(f"queue '{name}' in vhost '{vhost}' {text}")


def _lines(row: Row) -> list[tuple[str, str]]:
    """What `show` says, line by line."""
    if "unknown" in row:
        return [("lives in", f"shard {row['shard']}: {row['unknown']}"), *_configuration(row)]
    if "ready" not in row:
        where = f"shard {row['shard']}: the replica that was asked does not have it yet" if "shard" in row else (
            f"the memory of node {row['node']}, which alone knows its messages: ask that one"
        )
        return [("lives in", where), *_configuration(row)]
    where = f"shard {row['shard']}, led by node {row['leader'] or 'none'}, entry {row['applied']} applied" if (
        "shard" in row
    ) else f"the memory of node {row['node']}"
    return [
        ("lives in", where),
        *_move(row),
        ("ready", f"{row['ready']} ({row['ready_bytes']} bytes)"),
        ("ready and live", _live(row)),
        *_scheduled(row),
        ("unacknowledged", f"{row['unacknowledged']} ({row['unacknowledged_bytes']} bytes)"),
        ("consumers", str(row["consumers"])),
        ("oldest ready message", _oldest(row)),
        ("next deadline", _next_deadline(row)),
        ("lease", _lease(row)),
        ("last use", f"{_duration(row['last_use_age_ms'])} ago, {row['last_use']}"),
        (
            "since its creation",
            ", ".join(f"{row[key]} {key.replace('_', '-')}" for key in COUNTS),
        ),
        *_configuration(row),
    ]


def _scheduled(row: Row) -> list[tuple[str, str]]:
    """Nothing where nothing waits for its time, or a node of an earlier release was asked."""
    if not row.get("scheduled"):
        return []
    due_ms = row["next_due_in_ms"]
    when = "next not decided yet" if due_ms is None else (  # what recurs by a calendar has just come
        f"next in {_duration(due_ms)}" if due_ms >= 0 else f"{_duration(-due_ms)} late"
    )
    return [("scheduled", f"{row['scheduled']} ({row['scheduled_bytes']} bytes), {when}")]


def _move(row: Row) -> list[tuple[str, str]]:
    """Nothing of a queue that has never moved, or is there with all it has."""
    behind = [
        f"{row[key]} {text}"
        for key, text in (("left_behind", "messages on their way"), ("held_behind", "held where it was"))
        if row.get(key)
    ]
    if row.get("moving_to"):
        state = "" if row["move"] == "moving" else ", waits for dead letters of its shard or for the shard's leader"
        return [("moves to", ", ".join([f"shard {row['moving_to']}{state}", *behind]))]
    return [("has moved", ", ".join(behind))] if behind else []


def _configuration(row: Row) -> list[tuple[str, str]]:
    settings = row["settings"]
    exchange, key = settings["dead_letter_exchange"], settings["dead_letter_routing_key"]
    target = "none" if exchange is None else f"exchange '{exchange}'" + ("" if key is None else f", key '{key}'")
    limits = [
        f"{label} {settings[field]}" for field, label in _LIMITS.items() if settings[field] is not None
    ]
    ttl_ms = settings["message_ttl_ms"]
    return [
        ("message TTL", "none" if ttl_ms is None else _duration(ttl_ms)),
        ("dead-letter target", target),
        ("limits", ", ".join(limits) or "none"),
        ("policy", str(row["policy"] or "none")),
        ("operator policy", str(row["operator_policy"] or "none")),
        ("arguments", json.dumps(row["arguments"])),
    ]


def _columns(wanted: str | None) -> list[str]:
    names = list(_USUAL_COLUMNS) if wanted is None else [name.strip() for name in wanted.split(",")]
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        text = f"there is no column '{unknown[0]}'; there are {', '.join(COLUMNS)}"
        raise click.BadParameter(text, param_hint="--columns")
    return names


def _live(row: Row) -> str:
    return ("" if row["exact"] or row["ready_live"] == 0 else "<= ") + str(row["ready_live"])


def _oldest(row: Row) -> str:
    age_ms = row["oldest_ready_age_ms"]
    return "-" if age_ms is None else ("" if row["exact"] else ">= ") + _duration(age_ms)


def _next_deadline(row: Row) -> str:
    left_ms = row["next_deadline_in_ms"]
    if left_ms is None:
        return "-"
    return f"in {_duration(left_ms)}" if left_ms >= 0 else f"{_duration(-left_ms)} ago"


def _lease(row: Row) -> str:
    lease = row["lease"]
    if lease is None:
        return "none"
    if lease["suspended"]:
        return f"{_duration(lease['period_ms'])}, suspended by consumers"
    if lease["kept"]:
        return f"{_duration(lease['period_ms'])}, over: the queue is kept until it is empty"
    return f"{_duration(lease['remaining_ms'])} left of {_duration(lease['period_ms'])}"


def _duration(milliseconds: int) -> str:
    """A time for people, two units at most: 1.234 s, 3 min 20 s, 2 d 4 h."""
    if milliseconds < 60 * _MS_PER_S:
        return f"{milliseconds / _MS_PER_S:.3f} s"
    seconds = milliseconds // _MS_PER_S
    parts: list[str] = []
    for unit, size in _SECONDS:
        if seconds >= size or parts:
            parts.append(f"{seconds // size} {unit}")
            seconds %= size
    return " ".join(parts[:2])


def _where(row: Row) -> str:
    return f"shard {row['shard']}" if "shard" in row else f"node {row['node']}"


def _if_known(show: Callable[[Row], str]) -> Callable[[Row], str]:
    """Of another node's transient queue the messages are not known."""
    return lambda row: show(row) if "ready" in row else "-"


def _number(key: str) -> Callable[[Row], str]:
    return lambda row: str(row.get(key, "-"))


_LIMITS: Final = {
    "max_length": "length",
    "max_length_bytes": "bytes",
    "delivery_limit": "deliveries",
}
COLUMNS: Final[Mapping[str, Callable[[Row], str]]] = {
    "vhost": lambda row: str(row["vhost"]),
    "name": lambda row: str(row["name"]),
    "where": _where,
    "ready": _number("ready"),
    "ready_live": _if_known(_live),
    "ready_bytes": _number("ready_bytes"),
    "scheduled": lambda row: str(row.get("scheduled", "-")),
    "unacknowledged": _number("unacknowledged"),
    "consumers": _number("consumers"),
    "oldest": _if_known(_oldest),
    "next_deadline": _if_known(_next_deadline),
    "lease": _if_known(_lease),
    "last_use": _if_known(lambda row: f"{_duration(row['last_use_age_ms'])} ago"),
    **{key: _number(key) for key in COUNTS},
}
_USUAL_COLUMNS: Final = (
    "vhost", "name", "where", "ready", "ready_live", "unacknowledged", "consumers", "oldest", "next_deadline", "lease",
)  # fmt: skip
