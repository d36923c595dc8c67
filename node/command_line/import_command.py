"""`mayfly import`: what a file of definitions says, such as one that RabbitMQ's management has exported."""

import json
from typing import BinaryIO

import click

from node.command_line.operator_client import as_administrator, manage


@click.command("import")
@click.argument("file", type=click.File("rb"))
@as_administrator
def command(file: BinaryIO, address: str, user: str, password: str) -> None:
    """Declare what FILE (- for standard input) has: vhosts, users, permissions, policies, exchanges, queues, bindings.

    The whole file is checked before anything is done. What is there stays; users and policies of the same name are
    replaced. To import a file again does no harm.
    """
    try:
        content = json.loads(file.read())
    except (ValueError, RecursionError) as error:
        raise click.ClickException(f"{file.name}: not JSON: {error}") from None
    done = manage("POST", address, "/api/definitions", content, user, password)
    for note in done["notes"]:
        click.echo(f"note: {note}", err=True)
    click.echo(f"{done['imported']} definitions imported")
