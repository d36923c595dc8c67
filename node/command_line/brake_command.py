"""`mayfly brake`: queues that deliver nothing because too much has failed in them (RULES R5)."""

import json
from typing import Final
from urllib.parse import quote

import click

from mayfly.node.command_line.arguments import in_a_vhost
from mayfly.node.command_line.operator_client import as_administrator, console, manage, table_of

_MS_PER_S: Final = 1000


@click.group("brake")
def command() -> None:
    """List queues that are on brake for their dead letters, and release them."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="As JSON, for scripts.")
@as_administrator
def list_(as_json: bool, address: str, user: str, password: str) -> None:
    """List queues on brake: they deliver nothing, because too much of what they delivered has died."""
    found = manage("GET", address, "/api/mayfly/brakes", None, user, password)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    table = table_of("queue", "vhost", "failed", "allowed", "within s", "on brake for s", "ends in s")
    for row in found["brakes"]:
        table.add_row(
            row["queue"], row["vhost"], str(row["failed"]), str(row["limit"]),
            *(f"{row[key] / _MS_PER_S:.1f}" for key in ("window_ms", "on_for_ms", "ends_in_ms")),
        )  # fmt: skip
    console().print(table)
    for shard in found["unknown_shards"]:
        click.echo(f"of shard {shard} nothing is known", err=True)


@command.command("release")
@click.argument("queue")
@in_a_vhost
@as_administrator
def release(queue: str, vhost: str, address: str, user: str, password: str) -> None:
    """Have QUEUE deliver again at once. What has failed up to now counts no more."""
    path = f"/api/mayfly/queues/{quote(vhost, safe='')}/{quote(queue, safe='')}/brake/release"
    manage("POST", address, path, {}, user, password, f"queue '{queue}' in vhost '{vhost}'")
    click.echo(f"'{queue}' delivers again")
