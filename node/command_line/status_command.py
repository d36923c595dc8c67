"""`mayfly status`: the cluster as one of its nodes sees it."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from node.command_line.local_cluster import fetch
from node.settings import NodeSettings
from node.settings.kinds import Address

_WIDTH_IN_PIPES: Final = 160
_GROUP_NUMBERS: Final = {
    "term": "term",
    "commit": "commit",
    "applied": "applied",
    "queues": "queues",
    "ready": "ready",
    "unacknowledged": "unacked",
    "expiry_lag_ms": "lag ms",
    "outbox": "outbox",
}


@click.command("status")
@click.option(
    "--node",
    "address",
    metavar="HOST:PORT",
    default=lambda: str(NodeSettings().http_address),
    help="HTTP address of any node. [default: 127.0.0.1:15672]",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON, for scripts.")
def command(address: str, as_json: bool) -> None:
    """Show nodes, shards, leaders, terms, queue counts and expiry lag."""
    try:
        where = Address.parse(address)
    except ValueError as error:
        raise click.BadParameter(f"expected {error}", param_hint="--node") from None
    try:
        code, status = fetch(where, "/status")
    except OSError as error:
        raise click.ClickException(f"no status from {where}: {error}") from None
    if code != 200:
        raise click.ClickException(f"no status from {where}: {status.get('error', f'HTTP status {code}')}")
    if as_json:
        click.echo(json.dumps(status, indent=2))
    else:
        # In a pipe there is no width to keep to.
        show_status(status, Console() if sys.stdout.isatty() else Console(width=_WIDTH_IN_PIPES))


def show_status(status: Mapping[str, Any], console: Console) -> None:
    """Tables of what a node's `/status` says; what it does not say shows as '-'."""
    if status.get("waits"):
        console.print(Text(f"In no cluster yet: {_text(status['waits'])}"))
    console.print(_nodes(status))
    console.print(_groups(status))
    queues = status.get("queues")
    if isinstance(queues, Mapping):
        console.print(Text("Totals: " + ", ".join(f"{name} {_text(value)}" for name, value in queues.items())))
    for alarm in status.get("alarms", ()):
        console.print(Text(f"ALARM: {_text(alarm)}", style="bold red"))


def _nodes(status: Mapping[str, Any]) -> Table:
    name = _text(status.get("name"))
    table = Table(title=f"Nodes, as {name} sees them", box=box.SIMPLE, title_justify="left")
    headings = (("id", True), ("name", False), ("failure domain", False), ("up", False), ("clock offset ms", True))
    for heading, right in headings:
        table.add_column(heading, justify="right" if right else "left")
    for node in status.get("nodes", ()):
        up = Text("yes", style="green") if node.get("up") else Text("no", style="bold red")
        called, domain = Text(_text(node.get("name"))), Text(_text(node.get("failure_domain") or None))
        table.add_row(_text(node.get("id")), called, domain, up, _text(node.get("clock_offset_ms")))
    return table


def _groups(status: Mapping[str, Any]) -> Table:
    table = Table(title="Groups", box=box.SIMPLE, title_justify="left")
    table.add_column("group", no_wrap=True)
    table.add_column("leader", no_wrap=True)
    for key in _GROUP_NUMBERS:
        table.add_column(_GROUP_NUMBERS[key], justify="right")
    table.add_column("voters")
    for group in status.get("groups", ()):
        leader = group.get("leader_name") or group.get("leader") or None
        table.add_row(
            "catalog" if group.get("group") == 0 else f"shard {group.get('group')}",
            Text(_text(leader)) if leader else Text("none", style="bold red"),
            *(_text(group.get(key)) for key in _GROUP_NUMBERS),
            _members(group),
        )
    return table


def _members(group: Mapping[str, Any]) -> str:
    learners: Sequence[object] = group.get("learners") or ()
    text = ", ".join(map(str, group.get("voters") or ()))
    return text + (f" (learners {', '.join(map(str, learners))})" if learners else "")


def _text(value: object) -> str:
    return "-" if value is None else str(value)
