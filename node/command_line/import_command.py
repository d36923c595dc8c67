"""`mayfly import`: what a file of definitions says, such as one that RabbitMQ's management has exported."""

import json
import sys
from typing import BinaryIO, Final

import click

from mayfly.node.command_line.operator_client import as_administrator, manage

IMPORTED_IN_PART: Final = 3
"""The exit code for a file of which something was left out."""


@click.command("import")
@click.argument("file", type=click.File("rb"))
@as_administrator
def command(file: BinaryIO, address: str, user: str, password: str) -> None:
    """Declare what FILE (- for standard input) has: vhosts, users, permissions, policies, exchanges, queues, bindings.

    The whole file is checked before anything is done. What is there stays; users and policies of the same name are
    replaced. To import a file again does no harm. What RabbitMQ has and MayflyMQ has not, such as ha-mode in a policy,
    is left out with a note on standard error; the exit code is 3 then.
    """
    try:
        content = json.loads(file.read())
    except (ValueError, RecursionError) as error:
        raise click.ClickException(f"{file.name}: not JSON: {error}") from None
    done = manage("POST", address, "/api/definitions", content, user, password)
    for note in done["notes"]:
        click.echo(f"note: {note}", err=True)
    click.echo(f"{done['imported']} definitions imported")
    if done["notes"]:
        sys.exit(IMPORTED_IN_PART)
