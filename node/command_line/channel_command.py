"""`mayfly channel`: the channels of connections to whatever node."""

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
    "consumers": at("consumer_count"),
    "unacked": at("messages_unacknowledged"),
    "unconfirmed": at("messages_unconfirmed"),
    "prefetch": at("prefetch_count"),
    "confirms": yes_or_no("confirm"),
}


@click.group("channel")
def command() -> None:
    """List channels of all nodes, and close them."""


@command.command("list")
@click.option("--vhost", help="Those in this vhost. [default: all]")
@click.option("--connection", help="Those of this connection, by its name in `mayfly connection list`.")
@lists_rows
@as_observer
def list_channels(
    vhost: str | None, connection: str | None, limit: int, wanted: str | None, as_json: bool, address: str, user: str,
    password: str,
) -> None:  # fmt: skip
    """List channels; a user with the tag management sees the own ones."""
    if vhost is not None and connection is not None:
        raise click.UsageError("--vhost and --connection are not for the same list")
    path = "/api/channels" if vhost is None else f"/api/vhosts/{quote(vhost, safe='')}/channels"
    if connection is not None:
        path = f"/api/connections/{quote(connection, safe='')}/channels"
    show_rows(path, (address, user, password), COLUMNS, (limit, wanted, as_json))


@command.command("close")
@click.argument("name")
@click.option("--reason", default="closed by an operator", show_default=True, help="What its client is told.")
@as_administrator
def close(name: str, reason: str, address: str, user: str, password: str) -> None:
    """Close channel NAME, as `mayfly channel list` shows it; its client is told why (406), and its connection stays."""
    path = f"/api/mayfly/channels/{quote(name, safe='')}"
    headers = {"X-Reason": reason}
    answer = request("DELETE", address, path, None, user, password, headers=headers)
    answer_of(address, *answer, thing=f"channel '{name}'")
    click.echo(f"channel '{name}' is closed")
