"""`mayfly consumer`: who consumes from which queue."""

from typing import Final
from urllib.parse import quote

import click

from mayfly.node.command_line.operator_client import answer_of, as_administrator, as_observer, request
from mayfly.node.command_line.row_tables import Columns, as_text, at, lists_rows, show_rows, yes_or_no

COLUMNS: Final[Columns] = {
    "vhost": at("queue", "vhost"),
    "queue": at("queue", "name"),
    "tag": at("consumer_tag"),
    "channel": at("channel_details", "name"),
    "acks": yes_or_no("ack_required"),
    "prefetch": at("prefetch_count"),
    "exclusive": yes_or_no("exclusive"),
    "active": yes_or_no("active"),
    "arguments": as_text("arguments"),
}


@click.group("consumer")
def command() -> None:
    """List consumers of all nodes, and cancel them."""


@command.command("list")
@click.option("--vhost", help="Those of this vhost's queues. [default: all]")
@lists_rows
@as_observer
def list_consumers(
    vhost: str | None, limit: int, wanted: str | None, as_json: bool, address: str, user: str, password: str
) -> None:
    """List consumers; a user with the tag management sees the own ones."""
    path = "/api/consumers" if vhost is None else f"/api/consumers/{quote(vhost, safe='')}"
    show_rows(path, (address, user, password), COLUMNS, (limit, wanted, as_json))


@command.command("cancel")
@click.argument("tag")
@click.option("--channel", required=True, help="Its channel, as `mayfly consumer list` shows it.")
@as_administrator
def cancel(tag: str, channel: str, address: str, user: str, password: str) -> None:
    """Cancel the consumer TAG of a channel: its client is told, and gets nothing more; what it holds stays held."""
    path = f"/api/mayfly/channels/{quote(channel, safe='')}/consumers/{quote(tag, safe='')}"
    answer = request("DELETE", address, path, None, user, password)
    answer_of(address, *answer, thing=f"consumer '{tag}' of channel '{channel}'")
    click.echo(f"consumer '{tag}' is cancelled")
