"""`mayfly connection`: who is connected, to whatever node."""

from typing import Final
from urllib.parse import quote

import click

from mayfly.node.command_line.operator_client import answer_of, as_administrator, as_observer, request
from mayfly.node.command_line.row_tables import Columns, at, lists_rows, show_rows, yes_or_no

COLUMNS: Final[Columns] = {
    "name": at("name"),
    "user": at("user"),
    "vhost": at("vhost"),
    "state": at("state"),
    "channels": at("channels"),
    "node": at("node"),
    "tls": yes_or_no("ssl"),
    "client": at("client_properties", "product"),
}


@click.group("connection")
def command() -> None:
    """List connections of all nodes, and close them."""


@command.command("list")
@click.option("--vhost", help="Those to this vhost. [default: all]")
@lists_rows
@as_observer
def list_connections(
    vhost: str | None, limit: int, wanted: str | None, as_json: bool, address: str, user: str, password: str
) -> None:
    """List connections; a user with the tag management sees the own ones."""
    path = "/api/connections" if vhost is None else f"/api/vhosts/{quote(vhost, safe='')}/connections"
    show_rows(path, (address, user, password), COLUMNS, (limit, wanted, as_json))


@command.command("close")
@click.argument("name")
@click.option("--reason", default="closed by an operator", show_default=True, help="What its client is told.")
@as_administrator
def close(name: str, reason: str, address: str, user: str, password: str) -> None:
    """Close connection NAME, as `mayfly connection list` shows it; its client is told why (320)."""
    path = f"/api/connections/{quote(name, safe='')}"
    headers = {"X-Reason": reason}
    answer = request("DELETE", address, path, None, user, password, headers=headers)
    answer_of(address, *answer, thing=f"connection '{name}'")
    click.echo(f"connection '{name}' is closed")
