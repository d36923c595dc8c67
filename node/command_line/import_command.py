"""`mayfly import`: what a file of definitions says, such as one that RabbitMQ's management has exported."""

import json
import sys
from typing import BinaryIO, Final

import click

from mayfly.node.command_line.operator_client import answer_of, as_administrator, request

IMPORTED_IN_PART: Final = 3
"""The exit code for a file of which something was left out."""


@click.command("import")
@click.argument("file", type=click.File("rb"))
@click.option("--strict", is_flag=True, help="Refuse a file of which something would be left out.")
@as_administrator
def command(file: BinaryIO, strict: bool, address: str, user: str, password: str) -> None:
    """Declare what FILE (- for standard input) has: vhosts, users, permissions, policies, exchanges, queues, bindings.

    The whole file is checked before anything is done. What is there stays; users and policies of the same name are
    replaced. To import a file again does no harm. What RabbitMQ has and MayflyMQ has not, such as ha-mode in a policy,
    is left out with a note on standard error; the exit code is 3 then, with --strict as well.
    """
    try:
        content = json.loads(file.read())
    except (ValueError, RecursionError) as error:
        raise click.ClickException(f"{file.name}: not JSON: {error}") from None
    status, done = request("POST", address, f"/api/definitions?strict={str(strict).lower()}", content, user, password)
    notes = done.get("notes", []) if isinstance(done, dict) else []
    for note in notes:
        click.echo(f"note: {note}", err=True)
    if strict and notes:
        click.echo(f"nothing is imported: {len(notes)} would be left out", err=True)
        sys.exit(IMPORTED_IN_PART)
    done = answer_of(address, status, done)
    click.echo(f"{done['imported']} definitions imported")
    if done["notes"]:
        sys.exit(IMPORTED_IN_PART)
