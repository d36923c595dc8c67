"""`mayfly deadletters`: dead letters that have no route or cannot go on, and what becomes of them (RULES D8)."""

import json
import urllib.parse
from collections.abc import Callable
from typing import Any

import click
from rich import box
from rich.table import Table

from mayfly.node.command_line.operator_client import as_administrator, as_observer, console, get_as, post
from mayfly.node.shard.outbox import PARKED_REASONS

_MS_PER_S = 1000


@click.group("deadletters")
def command() -> None:
    """Show dead letters that wait, route them again or drop them."""


def selects(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say which dead letters are meant."""
    for option in (
        click.option("--shard", type=click.IntRange(1), help="Those in this shard."),
        click.option("--reason", type=click.Choice(PARKED_REASONS), help="Those that died for this reason."),
        click.option("--queue", help="Those that died in the queue of this name."),
        click.option("--vhost", help="Those that died in this virtual host."),
    ):
        command = option(command)
    return command


@command.command("list")
@selects
@as_observer
@click.option("--json", "as_json", is_flag=True, help="As JSON, for scripts.")
def list_(address: str, user: str, password: str, as_json: bool, **selection: Any) -> None:
    """Show what is parked and which lanes stand still.

    Transient queues (exclusive, auto-delete, not durable) are shown by the node they live on.
    """
    asked = {name: value for name, value in selection.items() if value is not None}
    content = get_as(address, f"/deadletters?{urllib.parse.urlencode(asked)}", user, password)
    if as_json:
        click.echo(json.dumps(content, indent=2))
        return
    table = Table(box=box.SIMPLE, title="parked: no route")
    for heading in ("shard", "vhost", "died in", "reason", "exchange", "routing key", "messages", "oldest"):
        table.add_column(heading)
    for row in content["parked"]:
        key = "(various)" if row["routing_key"] is None else row["routing_key"]
        names = (row["vhost"], row["queue"], row["reason"], row["exchange"] or "(default)", key)
        table.add_row(str(row["shard"]), *names, str(row["messages"]), f"{row['oldest_ms'] // _MS_PER_S} s")
    console().print(table)
    if content["more"]:
        click.echo("There are more than one listing looks at.")
    if content.get("unknown_shards"):
        shards = ", ".join(map(str, content["unknown_shards"]))
        click.echo(f"Without shards {shards}: no node with a replica has answered in time.")
    if content["lanes"]:
        lanes = Table(box=box.SIMPLE, title="on their way")
        for heading in ("shard", "vhost", "to queue", "messages", "waits for"):
            lanes.add_column(heading)
        for row in content["lanes"]:
            lanes.add_row(str(row["shard"]), row["vhost"], row["queue"], str(row["messages"]), row["waits_for"])
        console().print(lanes)


@command.command("release")
@selects
@click.option("--all", "everything", is_flag=True, help="All that is parked.")
@as_administrator
def release(everything: bool, address: str, user: str, password: str, **selection: Any) -> None:
    """Route parked dead letters again, now. What has no route still is parked again.

    A route that appears is noticed without this.
    """
    content = post(address, "/deadletters/release", selection | {"all": everything}, user, password)
    click.echo(f"{content['released']} released")


@command.command("drop")
@selects
@click.option("--all", "everything", is_flag=True, help="All that is parked.")
@as_administrator
def drop(everything: bool, address: str, user: str, password: str, **selection: Any) -> None:
    """Drop parked dead letters: they are gone, and counted."""
    content = post(address, "/deadletters/drop", selection | {"all": everything}, user, password)
    click.echo(f"{content['dropped']} dropped")
