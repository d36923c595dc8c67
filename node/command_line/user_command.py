"""`mayfly user`: who may log in."""

import json
import sys
from typing import Any, Final
from urllib.parse import quote

import click
from rich.text import Text

from mayfly.node.command_line.operator_client import as_administrator, change_limit, console, manage, table_of

NEW_PASSWORD_VARIABLE: Final = "MAYFLY_NEW_PASSWORD"
LIMITS: Final = ("max-connections", "max-channels")

_new_password = click.option(
    "--new-password",
    envvar=NEW_PASSWORD_VARIABLE,
    help=f"The user's password; better in {NEW_PASSWORD_VARIABLE}, typed when it is asked for, or a line of standard "
    "input.",
)


@click.group("user")
def command() -> None:
    """Add, change, list and delete users.

    What a user may do says `mayfly permission`. Tags are for HTTP and `mayfly`: administrator, monitoring, policymaker,
    management; and impersonator, who may publish in other users' names.
    """


@command.command("add")
@click.argument("name")
@_new_password
@click.option("--no-password", is_flag=True, help="Nobody logs in with a password: for client certificates.")
@click.option("--tag", "tags", multiple=True, help="A tag; may be repeated.")
@as_administrator
def add(
    name: str,
    new_password: str | None,
    no_password: bool,
    tags: tuple[str, ...],
    address: str,
    user: str,
    password: str,
) -> None:
    """Add user NAME."""
    if _find(name, address, user, password):
        raise click.ClickException(f"user '{name}' is there already; see `mayfly user password` and `mayfly user tags`")
    secret = {"password_hash": ""} if no_password else {"password": _asked(new_password)}
    manage("PUT", address, _path(name), {**secret, "tags": list(tags)}, user, password)
    click.echo(f"user '{name}' is added; `mayfly permission set {name} ...` says what it may do")


@command.command("password")
@click.argument("name")
@_new_password
@as_administrator
def set_password(name: str, new_password: str | None, address: str, user: str, password: str) -> None:
    """Give user NAME another password. Connections that are open stay."""
    known = _get(name, address, user, password)
    content = {"password": _asked(new_password), "tags": known["tags"]}
    manage("PUT", address, _path(name), content, user, password)
    click.echo(f"user '{name}' has another password")


@command.command("tags")
@click.argument("name")
@click.argument("tags", nargs=-1)
@as_administrator
def set_tags(name: str, tags: tuple[str, ...], address: str, user: str, password: str) -> None:
    """Give user NAME these TAGS in place of those it has; without any, none."""
    known = _get(name, address, user, password)
    content = {key: known[key] for key in ("password_hash", "hashing_algorithm")} | {"tags": list(tags)}
    manage("PUT", address, _path(name), content, user, password)
    click.echo(f"user '{name}' has " + (f"the tags {', '.join(tags)}" if tags else "no tags"))


@command.command("limits")
@click.argument("name")
@click.argument("limit", type=click.Choice(LIMITS))
@click.argument("value")
@as_administrator
def set_limit(name: str, limit: str, value: str, address: str, user: str, password: str) -> None:
    """Let user NAME have no more than VALUE connections or channels, over all nodes; none: as many as there are."""
    change_limit("user", name, limit, value, address, user, password)


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="As JSON, for scripts; without password hashes.")
@as_administrator
def list_users(as_json: bool, address: str, user: str, password: str) -> None:
    """List the users."""
    rows: list[dict[str, Any]] = manage("GET", address, "/api/users", None, user, password)
    if as_json:
        hidden = ("password_hash", "hashing_algorithm")
        shown = [{key: value for key, value in row.items() if key not in hidden} for row in rows]
        click.echo(json.dumps(shown, indent=2))
        return
    table = table_of("name", "tags", "password", "limits")
    for row in rows:
        limits = ", ".join(f"{key} {value}" for key, value in row["limits"].items())
        cells = (
            row["name"],
            ", ".join(row["tags"]),
            row["hashing_algorithm"] if row["password_hash"] else "none",
            limits,
        )
        table.add_row(*map(Text, cells))
    console().print(table)


@command.command("delete")
@click.argument("name")
@as_administrator
def delete(name: str, address: str, user: str, password: str) -> None:
    """Delete user NAME with its permissions; its connections are closed."""
    manage("DELETE", address, _path(name), None, user, password, f"user '{name}'")
    click.echo(f"user '{name}' is deleted")


def _asked(new_password: str | None) -> str:
    if new_password:
        return new_password
    if not sys.stdin.isatty():
        # Nobody can be asked, and nothing can be hidden.
        line = sys.stdin.readline().removesuffix("\n").removesuffix("\r")
        if not line:
            raise click.ClickException(
                f"no password: give it in {NEW_PASSWORD_VARIABLE}, as a line of standard input, or at a terminal"
            )
        return line
    prompted: str = click.prompt("New password", hide_input=True, confirmation_prompt=True, err=True)
    return prompted


def _get(name: str, address: str, user: str, password: str) -> dict[str, Any]:
    known: dict[str, Any] = manage("GET", address, _path(name), None, user, password, f"user '{name}'")
    return known


def _find(name: str, address: str, user: str, password: str) -> bool:
    rows = manage("GET", address, "/api/users", None, user, password)
    return any(row["name"] == name for row in rows)


def _path(name: str) -> str:
    return f"/api/users/{quote(name, safe='')}"
