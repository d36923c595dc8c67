"""`mayfly schedule`: what waits for its time in a queue or for a delayed exchange (RULES S4)."""

import json
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

import click

from mayfly.node.command_line.arguments import in_a_vhost
from mayfly.node.command_line.operator_client import as_administrator, console, manage, table_of

_MOST: Final = 1000
_MS_PER_S: Final = 1000


@click.group("schedule")
def command() -> None:
    """List, cancel and reschedule messages that wait for their time in a queue or for a delayed exchange."""


_of_exchange = click.option("--exchange", is_flag=True, help="NAME is that of a delayed exchange, not of a queue.")


@command.command("list")
@click.argument("name")
@in_a_vhost
@_of_exchange
@click.option("--id", "message_id", default="", help="Those with this message id.")
@click.option("--from", "from_ms", type=click.IntRange(0), help="Due at this time or later: ms since 1970.")
@click.option("--until", "until_ms", type=click.IntRange(0), help="Due up to this time: ms since 1970.")
@click.option("--after", default="", help="Behind this place: 'next' of the listing before.")
@click.option("--count", type=click.IntRange(1, _MOST), default=100, show_default=True, help="At most so many.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, for scripts.")
@as_administrator
def list_(
    name: str, vhost: str, exchange: bool, as_json: bool, address: str, user: str, password: str, **wish: Any
) -> None:
    """List what waits in the queue NAME, in order of due times; what waits to be retried, too, and what recurs."""
    query = urlencode({key: value for key, value in wish.items() if value not in (None, "")})
    path, thing = _path(vhost, name, exchange), f"{_kind(exchange)} '{name}' in vhost '{vhost}'"
    found = manage("GET", address, f"{path}?{query}", None, user, password, thing)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    table = table_of("due (UTC)", "in ms", "message id", "exchange", "routing key", "bytes", "retries", "schedule")
    for row in found["messages"]:
        due, left = "being decided", ""
        if row["due_ms"] is not None:
            moment = datetime.fromtimestamp(row["due_ms"] / _MS_PER_S, UTC)
            due, left = moment.isoformat(" ", "milliseconds").removesuffix("+00:00"), str(row["due_in_ms"])
        schedule = f"{row['schedule']} {row['time_zone']}".strip()
        names = (row["message_id"], row["exchange"] or "(default)", row["routing_key"])
        table.add_row(due, left, *names, str(row["body_bytes"]), str(row["retries"]), schedule)
    console().print(table)
    if "next" in found:
        click.echo(f"there may be more: --after {found['next']}")
    if found.get("moving"):
        click.echo("it is on its way between shards: not all of it is listed")


@command.command("cancel")
@click.argument("name")
@click.argument("message-id")
@in_a_vhost
@_of_exchange
@as_administrator
def cancel(
    name: str, message_id: str, vhost: str, exchange: bool, address: str, user: str, password: str
) -> None:
    """Cancel what waits in the queue NAME under MESSAGE-ID: it is never delivered. Exit code 1 if nothing waits."""
    manage("DELETE", address, f"{_path(vhost, name, exchange)}/{quote(message_id, safe='')}", None, user, password)
    click.echo(f"'{message_id}' is cancelled")


@command.command("reschedule")
@click.argument("name")
@click.argument("message-id")
@in_a_vhost
@_of_exchange
@click.option("--in", "delay_ms", type=click.IntRange(0), help="Due so many ms from now.")
@click.option("--at", "deliver_at_ms", type=click.IntRange(0), help="Due at this time: ms since 1970.")
@as_administrator
def reschedule(
    name: str, message_id: str, vhost: str, exchange: bool, delay_ms: int | None, deliver_at_ms: int | None,
    address: str, user: str, password: str,
) -> None:  # fmt: skip
    """Have what waits in the queue NAME under MESSAGE-ID due at another time. Exit code 1 if nothing waits."""
    if (delay_ms is None) == (deliver_at_ms is None):
        raise click.UsageError("say when it is due: --in or --at, one of them")
    due = {"delay_ms": delay_ms} if delay_ms is not None else {"deliver_at_ms": deliver_at_ms}
    manage("PUT", address, f"{_path(vhost, name, exchange)}/{quote(message_id, safe='')}", due, user, password)
    click.echo(f"'{message_id}' is rescheduled")


def _kind(exchange: bool) -> str:
    return "exchange" if exchange else "queue"


def _path(vhost: str, name: str, exchange: bool) -> str:
    return f"/api/mayfly/{_kind(exchange)}s/{quote(vhost, safe='')}/{quote(name, safe='')}/scheduled"
