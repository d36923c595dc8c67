"""`mayfly binding`: which exchanges lead where."""

from typing import Any, Final
from urllib.parse import quote

import click

from mayfly.node.command_line.arguments import arguments_option, in_a_vhost, parsed_arguments
from mayfly.node.command_line.operator_client import as_administrator, as_observer, manage
from mayfly.node.command_line.row_tables import Columns, as_text, at, lists_rows, show_rows

COLUMNS: Final[Columns] = {
    "vhost": at("vhost"),
    "source": lambda row: row["source"] or "(default)",
    "destination": at("destination"),
    "kind": at("destination_type"),
    "key": at("routing_key"),
    "arguments": as_text("arguments"),
}
_to_exchange = click.option("--to-exchange", is_flag=True, help="DESTINATION is an exchange; else a queue.")
_key = click.option("--key", default="", help="The routing key. [default: empty]")


@click.group("binding")
def command() -> None:
    """Make, list and undo bindings."""


@command.command("list")
@click.option("--vhost", help="Those of this vhost. [default: all]")
@lists_rows
@as_observer
def list_bindings(
    vhost: str | None, limit: int, wanted: str | None, as_json: bool, address: str, user: str, password: str
) -> None:
    """List bindings, also those of every queue to the default exchange."""
    path = "/api/bindings" if vhost is None else f"/api/bindings/{quote(vhost, safe='')}"
    show_rows(path, (address, user, password), COLUMNS, (limit, wanted, as_json))


@command.command("add")
@click.argument("source")
@click.argument("destination")
@_key
@in_a_vhost
@_to_exchange
@arguments_option
@as_administrator
def add(
    source: str, destination: str, key: str, vhost: str, to_exchange: bool, arguments: str, address: str, user: str,
    password: str,
) -> None:  # fmt: skip
    """Bind DESTINATION to exchange SOURCE; nothing happens if it is so."""
    content = {"routing_key": key, "arguments": parsed_arguments(arguments)}
    path = _path(vhost, source, destination, to_exchange)
    manage("POST", address, path, content, user, password, "such exchange or queue")
    click.echo(f"'{destination}' is bound to exchange '{source}' in vhost '{vhost}'")


@command.command("delete")
@click.argument("source")
@click.argument("destination")
@_key
@in_a_vhost
@_to_exchange
@arguments_option
@as_administrator
def delete(
    source: str, destination: str, key: str, vhost: str, to_exchange: bool, arguments: str, address: str, user: str,
    password: str,
) -> None:  # fmt: skip
    """Undo the binding of DESTINATION to exchange SOURCE with this key and these arguments."""
    path = _path(vhost, source, destination, to_exchange)
    wanted = parsed_arguments(arguments)
    rows: list[dict[str, Any]] = manage("GET", address, path, None, user, password, "such exchange or queue")
    found = [row for row in rows if row["routing_key"] == key and row["arguments"] == wanted]
    if not found:
        raise click.ClickException(f"'{destination}' is not bound to exchange '{source}' with key '{key}'")
    place = quote(found[0]["properties_key"], safe="")
    manage("DELETE", address, f"{path}/{place}", None, user, password, "such binding")
    click.echo(f"'{destination}' is no longer bound to exchange '{source}' in vhost '{vhost}'")


def _path(vhost: str, source: str, destination: str, to_exchange: bool) -> str:
    ends = [quote(each, safe="") for each in (vhost, source, destination)]
    return f"/api/bindings/{ends[0]}/e/{ends[1]}/{'e' if to_exchange else 'q'}/{ends[2]}"
