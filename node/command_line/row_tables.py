"""Lists of the management API as commands show them: fetched page by page, as a table or as JSON."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

import click
from rich import box
from rich.table import Table
from rich.text import Text

from mayfly.node.command_line.operator_client import console, manage

Row = Mapping[str, Any]
Columns = Mapping[str, Callable[[Row], object]]
"""By heading: what it shows of a row; None shows as '-'."""

_PAGE_ROWS: Final = 500
_MOST_ROWS: Final = 1_000_000


def lists_rows(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options `--limit`, `--columns` and `--json`."""
    command = click.option("--json", "as_json", is_flag=True, help="As JSON, for scripts; all that is known.")(command)
    command = click.option(
        "--columns", "wanted", metavar="A,B,...", help="Which columns; a wrong one has them listed."
    )(command)
    limit = click.IntRange(1, _MOST_ROWS)
    return click.option("--limit", type=limit, default=1000, show_default=True, help="At most so many.")(command)


def show_rows(path: str, login: tuple[str, str, str], columns: Columns, shown: tuple[int, str | None, bool]) -> None:
    """Fetch a list and print it. `login` is node, user and password, `shown` the options of `lists_rows`. Raises
    ClickException, BadParameter."""
    limit, wanted, as_json = shown
    chosen = _chosen(columns, wanted)
    rows, total = _rows(path, login, limit)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    table = Table(box=box.SIMPLE)
    for heading in chosen:
        table.add_column(heading.replace("_", " "))
    for row in rows:
        values = (columns[heading](row) for heading in chosen)
        table.add_row(*(Text("-" if value is None or value == "" else str(value)) for value in values))
    console().print(table)
    if total > len(rows):
        click.echo(f"{total - len(rows)} more; --limit says how many are shown")


def _chosen(columns: Columns, wanted: str | None) -> list[str]:
    names = list(columns) if wanted is None else [name.strip() for name in wanted.split(",")]
    unknown = [name for name in names if name not in columns]
    if unknown:
        text = f"there is no column '{unknown[0]}'; there are {', '.join(columns)}"
        raise click.BadParameter(text, param_hint="--columns")
    return names


def _rows(path: str, login: tuple[str, str, str], limit: int) -> tuple[Sequence[Row], int]:
    """So many rows, and how many there are."""
    address, user, password = login
    rows: list[Row] = []
    page, total = 1, 1
    size = min(limit, _PAGE_ROWS)
    while len(rows) < min(limit, total):
        query = urlencode({"page": page, "page_size": size})
        found = manage("GET", address, f"{path}?{query}", None, user, password)
        if isinstance(found, list):  # a list without pages
            return found[:limit], len(found)
        rows += found["items"]
        total = found["filtered_count"]
        if not found["items"]:
            break
        page += 1
    return rows[:limit], total


def at(*keys: str) -> Callable[[Row], object]:
    """What a row has in this field; with several keys, in fields of fields. None if there is none."""

    def value(row: Row) -> object:
        found: Any = row
        for key in keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        return found

    return value


def yes_or_no(*keys: str) -> Callable[[Row], object]:
    """The same of what is true or false."""
    value = at(*keys)
    return lambda row: None if value(row) is None else "yes" if value(row) else "no"


def as_text(*keys: str) -> Callable[[Row], object]:
    """The same of a table, as JSON; nothing of an empty one."""
    value = at(*keys)
    return lambda row: json.dumps(value(row)) if value(row) else None
