"""`mayfly exchange`: where messages are published to."""

from typing import Final
from urllib.parse import quote

import click

from mayfly.node.command_line.arguments import arguments_option, in_a_vhost, parsed_arguments
from mayfly.node.command_line.operator_client import as_administrator, as_observer, manage
from mayfly.node.command_line.row_tables import Columns, as_text, at, lists_rows, show_rows, yes_or_no

COLUMNS: Final[Columns] = {
    "vhost": at("vhost"),
    "name": lambda row: row["name"] or "(default)",
    "type": at("type"),
    "durable": yes_or_no("durable"),
    "auto_delete": yes_or_no("auto_delete"),
    "internal": yes_or_no("internal"),
    "delayed": at("messages_delayed"),
    "policy": at("policy"),
    "arguments": as_text("arguments"),
}


@click.group("exchange")
def command() -> None:
    """Declare, list and delete exchanges."""


@command.command("list")
@click.option("--vhost", help="Those of this vhost. [default: all]")
@lists_rows
@as_observer
def list_exchanges(
    vhost: str | None, limit: int, wanted: str | None, as_json: bool, address: str, user: str, password: str
) -> None:
    """List exchanges."""
    path = "/api/exchanges" if vhost is None else f"/api/exchanges/{quote(vhost, safe='')}"
    show_rows(path, (address, user, password), COLUMNS, (limit, wanted, as_json))


@command.command("declare")
@click.argument("name")
@in_a_vhost
@click.option(
    "--type", "kind", default="direct", show_default=True, help="direct, fanout, topic, headers, x-delayed-message."
)
@click.option("--transient", is_flag=True, help="Not durable.")
@click.option("--auto-delete", is_flag=True, help="Goes with the last binding from it.")
@click.option("--internal", is_flag=True, help="Clients can't publish to it, exchanges can.")
@arguments_option
@as_administrator
def declare(
    name: str, vhost: str, kind: str, transient: bool, auto_delete: bool, internal: bool, arguments: str,
    address: str, user: str, password: str,
) -> None:  # fmt: skip
    """Declare exchange NAME; nothing happens if it is there as it is asked for."""
    content = {
        "type": kind, "durable": not transient, "auto_delete": auto_delete, "internal": internal,
        "arguments": parsed_arguments(arguments),
    }  # fmt: skip
    manage("PUT", address, _path(vhost, name), content, user, password)
    click.echo(f"exchange '{name}' is there in vhost '{vhost}'")


@command.command("delete")
@click.argument("name")
@in_a_vhost
@click.option("--if-unused", is_flag=True, help="Only if nothing is bound to it.")
@as_administrator
def delete(name: str, vhost: str, if_unused: bool, address: str, user: str, password: str) -> None:
    """Delete exchange NAME with its bindings."""
    query = "?if-unused=true" if if_unused else ""
    manage("DELETE", address, _path(vhost, name) + query, None, user, password, f"exchange '{name}' in vhost '{vhost}'")
    click.echo(f"exchange '{name}' in vhost '{vhost}' is deleted")


def _path(vhost: str, name: str) -> str:
    return f"/api/exchanges/{quote(vhost, safe='')}/{quote(name, safe='')}"
