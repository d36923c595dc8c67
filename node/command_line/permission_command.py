"""`mayfly permission`: what users may do in vhosts."""

import json
from typing import Any
from urllib.parse import quote

import click
from rich.text import Text

from mayfly.node.command_line.arguments import in_a_vhost
from mayfly.node.command_line.operator_client import as_administrator, console, manage, table_of


@click.group("permission")
def command() -> None:
    """Set, clear and list permissions: regular expressions, searched in the names of queues and exchanges.

    Topic permissions restrict, besides, the routing keys at one topic exchange; {username} and {vhost} stand for those
    names there.
    """


@command.command("set")
@click.argument("name", metavar="USER")
@click.argument("configure")
@click.argument("write")
@click.argument("read")
@in_a_vhost
@as_administrator
def set_permissions(
    name: str, configure: str, write: str, read: str, vhost: str, address: str, user: str, password: str
) -> None:
    """Let USER declare and delete what CONFIGURE is found in, publish and bind to WRITE, consume and bind from READ.

    '.*' is everything, '' nothing. In place of what the user could do; open connections feel it at once.
    """
    content = {"configure": configure, "write": write, "read": read}
    manage("PUT", address, _path("permissions", vhost, name), content, user, password)
    click.echo(f"permissions of user '{name}' in vhost '{vhost}' are set")


@command.command("clear")
@click.argument("name", metavar="USER")
@in_a_vhost
@as_administrator
def clear(name: str, vhost: str, address: str, user: str, password: str) -> None:
    """Let USER do nothing more in the vhost."""
    thing = f"permission of user '{name}' in vhost '{vhost}'"
    manage("DELETE", address, _path("permissions", vhost, name), None, user, password, thing)
    click.echo(f"user '{name}' has no permissions in vhost '{vhost}'")


@command.command("set-topic")
@click.argument("name", metavar="USER")
@click.argument("exchange")
@click.argument("write")
@click.argument("read")
@in_a_vhost
@as_administrator
def set_topic(
    name: str, exchange: str, write: str, read: str, vhost: str, address: str, user: str, password: str
) -> None:
    """Let USER publish to EXCHANGE with routing keys in which WRITE is found, and bind from it with those of READ."""
    content = {"exchange": exchange, "write": write, "read": read}
    manage("PUT", address, _path("topic-permissions", vhost, name), content, user, password)
    click.echo(f"topic permissions of user '{name}' at exchange '{exchange}' in vhost '{vhost}' are set")


@command.command("clear-topic")
@click.argument("name", metavar="USER")
@click.argument("exchange", required=False)
@in_a_vhost
@as_administrator
def clear_topic(name: str, exchange: str | None, vhost: str, address: str, user: str, password: str) -> None:
    """Lift the restrictions of USER at EXCHANGE, or at all exchanges of the vhost."""
    parts = [vhost, name] if exchange is None else [vhost, name, exchange]
    thing = f"topic permission of user '{name}' in vhost '{vhost}'"
    manage("DELETE", address, _path("topic-permissions", *parts), None, user, password, thing)
    click.echo(f"user '{name}' may use all routing keys there")


@command.command("list")
@click.option("--topic", is_flag=True, help="Topic permissions instead.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, for scripts.")
@as_administrator
def list_permissions(topic: bool, as_json: bool, address: str, user: str, password: str) -> None:
    """List the permissions of all users in all vhosts."""
    path = "/api/topic-permissions" if topic else "/api/permissions"
    rows: list[dict[str, Any]] = manage("GET", address, path, None, user, password)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    headings = ("user", "vhost", *(("exchange",) if topic else ("configure",)), "write", "read")
    table = table_of(*headings)
    for row in rows:
        table.add_row(*(Text(row[heading]) for heading in headings))
    console().print(table)


def _path(kind: str, *parts: str) -> str:
    return "/".join([f"/api/{kind}", *(quote(part, safe="") for part in parts)])
