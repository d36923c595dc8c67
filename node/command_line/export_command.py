"""`mayfly export`: vhosts, users, permissions, policies, exchanges, queues and bindings into a file."""

import json
import sys
from pathlib import Path

import click

from mayfly.node.command_line.operator_client import as_administrator, get_as
from mayfly.node.shell.private_files import write_private


@click.command("export")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@as_administrator
def command(file: str, address: str, user: str, password: str) -> None:
    """Write the definitions of the cluster to FILE, - for standard output, as RabbitMQ's management does.

    Messages are not in it, nor queues that go with their clients. It has password hashes: only you may read FILE.
    """
    text = json.dumps(get_as(address, "/api/definitions", user, password), indent=2) + "\n"
    if file == "-":
        sys.stdout.write(text)
        return
    try:
        write_private(Path(file), text)
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}") from None
    click.echo(f"written to {file}")
