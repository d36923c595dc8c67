"""`mayfly revive`: the end of `mayfly drain`."""

import click

from mayfly.node.command_line.drain_command import told
from mayfly.node.command_line.operator_client import as_administrator, post


@click.command("revive")
@as_administrator
def command(address: str, user: str, password: str) -> None:
    """Have a drained node take clients again; it gets its leaders back within seconds. A restart does the same."""
    click.echo(told(post(address, "/node/revive", {}, user, password)["drain"]))
