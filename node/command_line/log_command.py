"""`mayfly log`: how much a running node logs."""

from typing import Final

import click
from rich.text import Text

from mayfly.node.command_line.operator_client import as_administrator, as_observer, console, get_as, post, table_of

DEFAULT: Final = "default"
LEVELS: Final = ("debug", "info", "warning", "error", DEFAULT)


@click.group("log")
def command() -> None:
    """Show and change how much the parts of one node log, until that node ends.

    The settings log_level and log_format say how it is at the start.
    """


@command.command("levels")
@as_observer
def show(address: str, user: str, password: str) -> None:
    """List the parts with a level of their own."""
    table = table_of("part", "level")
    for part, level in get_as(address, "/node/log", user, password)["levels"].items():
        table.add_row(Text(part or "(all)"), Text(level))
    console().print(table)


@command.command("level")
@click.argument("part")
@click.argument("level", type=click.Choice(LEVELS))
@as_administrator
def change(part: str, level: str, address: str, user: str, password: str) -> None:
    """Have PART (mayfly, mayfly.node.broker, mayfly.cluster.transport, aiohttp, ...) log from LEVEL on."""
    wanted = "" if level == DEFAULT else level
    post(address, "/node/log", {"part": part, "level": wanted}, user, password)
    click.echo(f"{part} logs from {level} on" if wanted else f"{part} logs as what it is a part of")
