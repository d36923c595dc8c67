"""The console into a running node: aiomonitor, with tables of the node's own and the node among its names.

Commands run in aiomonitor's thread; what they show is made in the node's loop.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

import click

from mayfly.node.operating.views.console_tables import MOST_ROWS, TABLES, table_rows
from mayfly.node.shell.assembly import Node
from mayfly.node.shell.process import NodeProcess

log = logging.getLogger("mayfly.node")

_ANSWER_S: Final = 5.0
_NOT_YET: Final = "the node has not started yet"

Ask = Callable[[str], tuple[list[list[Any]], bool]]
"""Takes the name of a table; its rows, and whether there are more. Raises TimeoutError, LookupError."""


class Console:
    """For whatever process of this node runs: `use` says which."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__console__", "__doc__": None}
        """What the console's Python has: `process`, and `node` once it serves, `engine` and `broker` of it."""
        self._process: NodeProcess | None = None

    def use(self, process: NodeProcess) -> None:
        """It runs now."""
        self._process = process
        self.names["process"] = process

    def serves(self, node: Node) -> None:
        """This is its node."""
        self.names |= {"node": node, "engine": node.engine, "broker": node.broker}

    @contextlib.contextmanager
    def opened(self, port: int) -> Iterator[None]:
        """Listen on loopback, on this port and the next two."""
        import aiomonitor
        from aiomonitor.termui.commands import auto_command_done, monitor_cli

        loop = asyncio.get_running_loop()

        def ask(name: str) -> tuple[list[list[Any]], bool]:
            return asyncio.run_coroutine_threadsafe(self._rows(name), loop).result(_ANSWER_S)

        for name in TABLES:
            monitor_cli.command(name=name, help=TABLES[name].help)(auto_command_done(_show(name, ask)))
        log.info("aiomonitor: telnet 127.0.0.1 %d, and http://127.0.0.1:%d", port, port + 2)
        with aiomonitor.start_monitor(
            loop, host="127.0.0.1", port=port, console_port=port + 1, webui_port=port + 2, locals=self.names
        ):
            yield

    async def _rows(self, name: str) -> tuple[list[list[Any]], bool]:
        node = None if self._process is None else self._process.node
        if node is None:
            raise LookupError(_NOT_YET)
        return table_rows(node.engine, name, node.view.now_ms())


def _show(name: str, ask: Ask) -> Callable[..., None]:
    def show(_context: click.Context) -> None:
        try:
            rows, more = ask(name)
        except (LookupError, TimeoutError) as error:
            click.echo(f"{name}: {str(error) or 'no answer in time'}")
            return
        click.echo(as_text([list(TABLES[name].headings), *rows]))
        if more:
            click.echo(f"... only the first {MOST_ROWS}")

    show.__name__ = name
    return show


def as_text(rows: list[list[Any]]) -> str:
    """In columns."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )
