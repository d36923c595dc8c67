"""`mayfly shards`: who votes and who leads in which shard, and how many there are."""

import json

import click
from rich import box
from rich.table import Table

from mayfly.node.command_line.operator_client import (
    as_administrator,
    asks_a_node,
    console,
    get,
    get_as,
    post,
    warn_if_old,
)


@click.group("shards")
def command() -> None:
    """Show where shards live, move them, add some."""


@command.command("status")
@asks_a_node
@click.option("--json", "as_json", is_flag=True, help="As JSON, for scripts.")
def status(address: str, as_json: bool) -> None:
    """Show leader, voters and learners of every shard, and what they shall be."""
    page = get(address, "/shards")
    rows = page["shards"]
    warn_if_old(page)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    names = {row["id"]: row["name"] for row in get(address, "/cluster/members")["members"]}
    table = Table(box=box.SIMPLE)
    for heading in ("group", "leader", "voters", "learners", "planned voters, leader first"):
        table.add_column(heading)
    table.add_column("queues", justify="right")
    table.add_column("")
    for row in rows:
        planned = set(row["plan"])
        reached = set(row["voters"]) == planned and not row["changing"]
        state = "unknown: no answer" if "unknown" in row else "" if reached or not planned else "changing"
        notes = [*(["chosen"] if row["pinned"] else []), *([state] if state else [])]
        lists = (", ".join(names.get(id, str(id)) for id in row[key]) for key in ("voters", "learners", "plan"))
        group = "catalog" if row["group"] == 0 else f"shard {row['group']}"
        queues = "-" if row["group"] == 0 else str(row.get("queues", "-"))
        table.add_row(group, names.get(row["leader"], "none"), *lists, queues, ", ".join(notes))
    console().print(table)


@command.command("add")
@click.argument("number", metavar="N", type=click.IntRange(min=1))
@as_administrator
def add(number: int, address: str, user: str, password: str) -> None:
    """Add N shards, for good; new queues go there until they have as many as the others.

    Each takes memory and a share of the time of all nodes. Queues that are there stay where they are.
    """
    page = get_as(address, "/shards", user, password)
    present = page.get("count")
    if present is None:
        raise click.ClickException(f"the node at {address} can't add shards: it needs a newer MayflyMQ")
    warn_if_old(page)
    total = present + number
    click.echo(f"{present} shards, there are to be {total}")
    # Whoever asks for that at the same time, or for want of an answer once more, adds none to these.
    changed = post(address, "/shards/add", {"total": total}, user, password)["changed"]
    click.echo(f"{number} shards added" if changed else f"there are {total} already")


@command.command("move")
@click.argument("shard", type=int)
@click.argument("nodes", nargs=-1)
@as_administrator
def move(shard: int, nodes: tuple[str, ...], address: str, user: str, password: str) -> None:
    """Have SHARD (0: the catalog) vote on NODES, names or ids, the first of which leads it.

    Without NODES its place is worked out by the cluster again.
    """
    post(address, f"/shards/{shard}/move", {"voters": nodes}, user, password)
    click.echo(f"shard {shard} moves to {', '.join(nodes)}" if nodes else f"shard {shard} is placed by the cluster")


@command.command("transfer")
@click.argument("shard", type=int)
@click.argument("node")
@as_administrator
def transfer(shard: int, node: str, address: str, user: str, password: str) -> None:
    """Have NODE, one of its voters, lead SHARD (0: the catalog) from now on."""
    post(address, f"/shards/{shard}/transfer", {"leader": node}, user, password)
    click.echo(f"{node} shall lead shard {shard}")
