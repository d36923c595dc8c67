"""`mayfly vhost`: name spaces of queues and exchanges."""

import json
from typing import Any, Final
from urllib.parse import quote

import click
from rich.text import Text

from mayfly.node.command_line.operator_client import as_administrator, change_limit, console, manage, table_of

QUEUE_TYPES: Final = ("classic", "quorum", "stream")
LIMITS: Final = ("max-connections", "max-queues")


@click.group("vhost")
def command() -> None:
    """Add, list, limit and delete vhosts."""


@command.command("add")
@click.argument("name")
@click.option("--description", help="What it is for.")
@click.option("--tags", help="Words with commas between.")
@click.option("--default-queue-type", type=click.Choice(QUEUE_TYPES), help="Of durable queues declared without one.")
@as_administrator
def add(
    name: str, description: str | None, tags: str | None, default_queue_type: str | None, address: str, user: str,
    password: str,
) -> None:  # fmt: skip
    """Add vhost NAME, or change what is said of it; whoever adds it may do everything in it."""
    said = {"description": description, "tags": tags, "default_queue_type": default_queue_type}
    content = {key: value for key, value in said.items() if value is not None}
    manage("PUT", address, _path(name), content, user, password)
    click.echo(f"vhost '{name}' is there")


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="As JSON, for scripts.")
@as_administrator
def list_vhosts(as_json: bool, address: str, user: str, password: str) -> None:
    """List the vhosts with their limits."""
    rows: list[dict[str, Any]] = manage("GET", address, "/api/vhosts", None, user, password)
    limits = {row["vhost"]: row["value"] for row in manage("GET", address, "/api/vhost-limits", None, user, password)}
    rows = [{**row, "limits": limits.get(row["name"], {})} for row in rows]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    table = table_of("name", "description", "tags", "queues", "limits")
    for row in rows:
        shown = ", ".join(f"{key} {value}" for key, value in row["limits"].items())
        if row.get("protected_from_deletion"):
            shown = ", ".join(filter(None, (shown, "protected")))
        kind, tags = row.get("default_queue_type", ""), ", ".join(row.get("tags", []))
        table.add_row(*map(Text, (row["name"], row["description"], tags, kind, shown)))
    console().print(table)


@command.command("limits")
@click.argument("name")
@click.argument("limit", type=click.Choice(LIMITS))
@click.argument("value")
@as_administrator
def set_limit(name: str, limit: str, value: str, address: str, user: str, password: str) -> None:
    """Let vhost NAME have no more than VALUE connections (over all nodes) or queues; none: as many as there are."""
    change_limit("vhost", name, limit, value, address, user, password)


@command.command("protect")
@click.argument("name")
@click.option("--off", is_flag=True, help="Let it be deleted again.")
@as_administrator
def protect(name: str, off: bool, address: str, user: str, password: str) -> None:
    """Keep vhost NAME from being deleted."""
    manage("DELETE" if off else "POST", address, f"{_path(name)}/deletion/protection", None, user, password)
    click.echo(f"vhost '{name}' {'may be deleted' if off else 'is protected from deletion'}")


@command.command("delete")
@click.argument("name")
@as_administrator
def delete(name: str, address: str, user: str, password: str) -> None:
    """Delete vhost NAME with its queues, messages, exchanges, policies and permissions; its connections are closed."""
    manage("DELETE", address, _path(name), None, user, password, f"vhost '{name}'")
    click.echo(f"vhost '{name}' is deleted")


def _path(name: str) -> str:
    return f"/api/vhosts/{quote(name, safe='')}"
