"""`mayfly journal`: what time has removed, as a journal has it (RULES R4)."""

import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

import click
from rich import box
from rich.table import Table
from rich.text import Text

from mayfly.node.command_line.arguments import in_a_vhost
from mayfly.node.command_line.operator_client import as_administrator, console, manage

_MOST = 10_000
_ROWS_OF_ANSWER = 100
_MS_PER_S = 1000


@click.command("journal")
@click.argument("stream")
@in_a_vhost
@click.option("--queue", default=None, help="What went from this queue, or with it.")
@click.option("--last", type=click.IntRange(1, _MOST), default=20, show_default=True, help="The newest so many.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, for scripts.")
@as_administrator
def command(
    stream: str, vhost: str, queue: str | None, last: int, as_json: bool, address: str, user: str, password: str
) -> None:
    """Show what is noted in STREAM, the journal of some queues: which messages and queues time has removed.

    The newest is the last.
    """
    records = _records(stream, vhost, queue, last, (address, user, password))
    records.reverse()
    if as_json:
        click.echo(json.dumps(records, indent=2))
        return
    table = Table(box=box.SIMPLE)
    for heading in ("went", "queue", "what", "late", "reason", "to", "trace"):
        table.add_column(heading)
    for record in records:
        table.add_row(*map(Text, _cells(record)))
    console().print(table)


def _records(
    stream: str, vhost: str, queue: str | None, last: int, login: tuple[str, str, str]
) -> list[dict[str, Any]]:
    """The newest, the very newest first: an answer may have fewer than there are."""
    address, user, password = login
    path = f"/api/mayfly/queues/{quote(vhost, safe='')}/{quote(stream, safe='')}/stream/journal"
    records: list[dict[str, Any]] = []
    before: int | None = None
    while len(records) < last:
        query: dict[str, str | int] = {"limit": min(_ROWS_OF_ANSWER, last - len(records))}
        if queue is not None:
            query["queue"] = queue
        if before is not None:
            query["before"] = before
        thing = f"stream '{stream}' in vhost '{vhost}'"
        found = manage("GET", address, f"{path}?{urlencode(query)}", None, user, password, thing)
        records += found["records"]
        before = found["before"]
        if before is None:
            break
    return records


def _cells(record: dict[str, Any]) -> tuple[str, ...]:
    what = record["message_id"] or f"{record['body_bytes']} bytes"
    if record["what"] == "queue":
        what = f"the queue, with {record['messages']} messages"
    to = record["to"]
    if record["dead_letter_exchange"] is not None:
        to = f"'{record['dead_letter_exchange']}' {record['dead_letter_routing_key'] or ''}".rstrip()
    return (
        _time(record["went_ms"]), str(record["queue"]), str(what), _late(record), str(record["reason"]), str(to),
        str(record["traceparent"] or "-"),
    )


def _time(ms: Any) -> str:
    if not isinstance(ms, int):
        return "-"
    try:
        return datetime.fromtimestamp(ms / _MS_PER_S, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (OverflowError, ValueError, OSError):
        return str(ms)


def _late(record: dict[str, Any]) -> str:
    """How long after it was due it went."""
    due_ms, went_ms = record["due_ms"], record["went_ms"]
    return f"{went_ms - due_ms} ms" if isinstance(due_ms, int) and isinstance(went_ms, int) else "-"
