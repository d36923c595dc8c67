"""`mayfly cluster`: the members of the cluster, who comes and who goes."""

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
from rich import box
from rich.table import Table

from mayfly.node.command_line.operator_client import (
    as_administrator_or_hook,
    asks_a_node,
    console,
    get,
    post,
    warn_if_old,
)
from mayfly.node.command_line.ready_command import tell_when

_POLL_S: Final = 0.25


@click.group("cluster")
def command() -> None:
    """Show the members, add one, remove one."""


@command.command("members")
@asks_a_node
@click.option("--json", "as_json", is_flag=True, help="As JSON, for scripts.")
def members(address: str, as_json: bool) -> None:
    """Show every node that is or was a member, and what it holds."""
    page = get(address, "/cluster/members")
    rows = page["members"]
    warn_if_old(page)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    table = Table(box=box.SIMPLE)
    headings = ("id", "name", "peer address", "failure domain", "state", "up", "votes", "planned", "leads", "levels")
    for heading in headings:
        table.add_column(heading)
    for row in rows:
        up = "-" if row["state"] == "removed" else "yes" if row["up"] else "no"
        cells = (row["id"], row["name"], row["address"], row.get("failure_domain") or "-", state_of(row), up)
        levels = " to ".join(map(str, dict.fromkeys(row.get("levels", ())))) or "-"
        table.add_row(*map(str, (*cells, row["votes"], row["votes_planned"], row["leads"], levels)))
    console().print(table)
    if page.get("unknown_shards"):
        shards = ", ".join(map(str, page["unknown_shards"]))
        console().print(f"Votes and leads without shards {shards}: no node with a replica has answered in time")
    if "level" in page:
        console().print(f"feature level {page['level']}")


@command.command("add", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("seed", metavar="HOST:PORT")
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def add(context: click.Context, seed: str, options: tuple[str, ...]) -> None:
    """Run a new node here that joins through the member whose peer address is HOST:PORT.

    It is `mayfly node --join HOST:PORT` with the OPTIONS of `mayfly node`; it gets the shards' data, then votes.
    """
    from mayfly.node.command_line.node_command import command as node_command

    with node_command.make_context("node", ["--join", seed, *options], parent=context) as node_context:
        node_command.invoke(node_context)


@command.command("remove")
@click.argument("name")
@as_administrator_or_hook
@click.option("--no-wait", is_flag=True, help="Return when it has begun.")
@click.option("--timeout", "timeout_s", type=float, default=600.0, show_default=True, help="Seconds to wait.")
def remove(
    name: str, address: str, user: str, password: str, token_file: Path | None, no_wait: bool, timeout_s: float
) -> None:
    """Take the member NAME (or with that id) out, dead or alive.

    What it holds is rebuilt on the other members first; then it is sent away for good. Ask a node that stays; with
    --token-file the node that goes, or for one that is down any node of this machine.
    """
    wanted = _find(address, name)
    post(address, "/cluster/remove", {"name": str(wanted["id"])}, user, password, token_file)
    deadline_s = time.monotonic() + timeout_s
    shown = ""
    while not no_wait:
        row = _find(address, str(wanted["id"]))
        if row["state"] == "removed":
            break
        votes = max(row["votes"], row.get("replicas_to_move", 0))
        text = f"{row['name']} is {row['state']}, it still votes in {votes} groups"
        if text != shown:
            shown = text
            click.echo(text)
        if time.monotonic() > deadline_s:
            raise click.ClickException(f"not done after {timeout_s:.0f} s; it goes on by itself")
        time.sleep(_POLL_S)
    click.echo(f"{wanted['name']} (node {wanted['id']}) " + ("is leaving" if no_wait else "is removed"))


@command.command("await")
@asks_a_node
@click.option("--members", type=click.IntRange(1), help="So many members, none on its way in or out, votes as planned.")
@click.option("--quorum-plus-one", is_flag=True, help="Every group could lose one of its voters, and still serve.")
@click.option("--timeout", "timeout_s", type=float, default=600.0, show_default=True, help="Seconds to wait.")
def await_(address: str, members: int | None, quorum_plus_one: bool, timeout_s: float) -> None:
    """Wait until the cluster is as it should be: exit code 0, or 1 at the timeout with what is in the way."""
    if members is None and not quorum_plus_one:
        raise click.UsageError("say what to wait for: --members N, --quorum-plus-one, or both")
    sys.exit(tell_when(address, quorum_plus_one, members, timeout_s, serves=False))


def state_of(row: Mapping[str, Any]) -> str:
    """What a member is, and how many of its replicas are still to be moved to others."""
    state = "away" if row.get("away") else str(row["state"])
    left = row.get("replicas_to_move", 0)
    return f"{state}, {left} to move" if left else state


def _find(address: str, name: str) -> dict[str, Any]:
    rows: list[dict[str, Any]] = get(address, "/cluster/members")["members"]
    present = [row for row in rows if row["name"] == name and row["state"] != "removed"]
    found = present or [row for row in rows if str(row["id"]) == name]
    if not found:
        known = ", ".join(row["name"] for row in rows if row["state"] != "removed")
        raise click.ClickException(f"no member '{name}'; there are {known}")
    return found[0]
