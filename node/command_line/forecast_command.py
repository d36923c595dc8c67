"""`mayfly forecast`: what time will do to queues."""

import json
from typing import Any
from urllib.parse import quote, urlencode

import click
from rich import box
from rich.table import Table
from rich.text import Text

from mayfly.node.command_line.operator_client import as_observer, console, manage


@click.command("forecast")
@click.option("--vhost", default=None, help="Of this vhost alone.")
@click.option(
    "--within", "windows_s", type=click.FloatRange(0.001, 315_360_000), multiple=True, metavar="SECONDS",
    help="From now on; up to five times. [default: the next minute, hour and day]",
)
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="At most so many queues.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, for scripts.")
@as_observer
def command(
    vhost: str | None, windows_s: tuple[float, ...], limit: int, as_json: bool, address: str, user: str, password: str
) -> None:
    """Say what will expire, become due or be retried, and which leases will end, by queue.

    As it will be if no client does anything.
    """
    query = [("limit", limit), *(("within_ms", round(seconds * 1000)) for seconds in windows_s)]
    place = "" if vhost is None else f"/{quote(vhost, safe='')}"
    found = manage("GET", address, f"/api/mayfly/forecast{place}?{urlencode(query)}", None, user, password)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    table = Table(box=box.SIMPLE)
    for heading in ("vhost", "queue", "within", "expire", "due", "retried", "lease"):
        table.add_column(heading)
    for row in found["queues"]:
        for number, window in enumerate(row["windows"]):
            names = ("", "") if number else (row["vhost"], row["name"])
            table.add_row(*map(Text, (*names, *_cells(window), "ends" if window["lease_ends"] else "-")))
    for number, window in enumerate(found["totals"]):
        table.add_row(*map(Text, ("", "" if number else "all queues", *_cells(window), str(window["leases"]))))
    console().print(table)
    if found["left_out"]:
        click.echo(f"{found['left_out']} more queues; --limit says how many are shown")
    for shard in found["unknown_shards"]:
        click.echo(f"not in these numbers: no node with a replica of shard {shard} has answered", err=True)


def _cells(window: dict[str, Any]) -> tuple[str, ...]:
    return (f"{window['within_ms'] / 1000:g} s", *(str(window[event]) for event in ("expire", "due", "retried")))
