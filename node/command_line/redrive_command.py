"""`mayfly redrive`: messages of a dead-letter queue go back to where they died, or elsewhere (RULES R1)."""

import json
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

import click

from mayfly.node.command_line.arguments import in_a_vhost
from mayfly.node.command_line.operator_client import answer_of, as_administrator, console, manage, request, table_of

_REASONS: Final = ("expired", "rejected", "delivery_limit", "maxlen", "queue_expired")
_MS_PER_S: Final = 1000
_ANSWERED_S: Final = 30.0
"""So much longer than it may look a node may take to answer."""


@click.group("redrive")
def command() -> None:
    """Send messages of a dead-letter queue back to where they died, or to a target."""


def _which(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options for what is to go, and where to."""
    for option in reversed((
        click.option("--to-queue", "target_queue", help="To this queue instead of where each message died."),
        click.option("--to-exchange", "target_exchange", help="Publish to this exchange instead."),
        click.option("--to-key", "target_routing_key", help="With this routing key; with --to-exchange."),
        click.option("--reason", type=click.Choice(_REASONS), help="Those that died of this."),
        click.option("--from-queue", help="Those that died in this queue."),
        click.option("--routing-key", help="Those that were published with this key."),
        click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Those with this header."),
        click.option("--min-age", "min_age_s", type=click.FloatRange(0), help="In this queue for so many seconds."),
        click.option("--max-age", "max_age_s", type=click.FloatRange(0), help="For not more than so many."),
    )):  # fmt: skip
        function = option(function)
    return function


@command.command("preview")
@click.argument("queue")
@in_a_vhost
@_which
@click.option("--count", type=click.IntRange(0, 100), default=10, show_default=True, help="Show the first so many.")
@click.option(
    "--within", "within_s", type=click.FloatRange(0.001, 600), default=10, show_default=True,
    help="Look for so many seconds at most: a queue with a million messages takes longer.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON, for scripts.")
@as_administrator
def preview(
    queue: str, vhost: str, count: int, within_s: float, as_json: bool, address: str, user: str, password: str,
    **which: Any,
) -> None:
    """Show what a redrive of QUEUE would move now, and move nothing."""
    wish = {**_wish(which), "count": count, "within_ms": round(within_s * _MS_PER_S)}
    path = f"{_path(vhost, queue)}/preview"
    asked = request("POST", address, path, wish, user, password, timeout_s=within_s + _ANSWERED_S)
    found = answer_of(address, *asked, _thing(vhost, queue))
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    if found["messages"]:
        table = table_of("to", "from", "reason", "exchange", "routing key", "bytes", "body")
        for row in found["messages"]:
            table.add_row(
                ", ".join(row["targets"]), row["from_queue"] or "-", row["reason"] or "-",
                row["exchange"] or "(default)", row["routing_key"], str(row["payload_bytes"]), row["payload"],
            )  # fmt: skip
        console().print(table)
    click.echo(f"{_least(found)}{found['moves']} messages would move, {found['stays']} would stay")
    for target in found["targets"]:
        click.echo(f"  {target['messages']} to {target['queue']}")
    if found["no_route"]:
        click.echo(f"  {found['no_route']} of those that stay have no queue to go to")


@command.command("start")
@click.argument("queue")
@in_a_vhost
@_which
@click.option("--rate", type=click.IntRange(0), default=0, help="Messages a second. [default: as fast as it goes]")
@as_administrator
def start(queue: str, vhost: str, rate: int, address: str, user: str, password: str, **which: Any) -> None:
    """Begin to redrive what is in QUEUE now. What comes later stays."""
    wish = {**_wish(which), "rate": rate}
    manage("POST", address, _path(vhost, queue), wish, user, password, _thing(vhost, queue))
    click.echo(f"'{queue}' is being redriven; mayfly redrive list shows how far")


@command.command("pause")
@click.argument("queue")
@in_a_vhost
@as_administrator
def pause(queue: str, vhost: str, address: str, user: str, password: str) -> None:
    """Stop the redrive of QUEUE for now."""
    _change(vhost, queue, {"state": "paused"}, address, user, password)
    click.echo(f"the redrive of '{queue}' is paused")


@command.command("resume")
@click.argument("queue")
@in_a_vhost
@as_administrator
def resume(queue: str, vhost: str, address: str, user: str, password: str) -> None:
    """Have a paused redrive of QUEUE go on."""
    _change(vhost, queue, {"state": "running"}, address, user, password)
    click.echo(f"the redrive of '{queue}' goes on")


@command.command("rate")
@click.argument("queue")
@click.argument("rate", type=click.IntRange(0))
@in_a_vhost
@as_administrator
def rate_(queue: str, rate: int, vhost: str, address: str, user: str, password: str) -> None:
    """Give the redrive of QUEUE another RATE: messages a second, 0 for as fast as it goes."""
    _change(vhost, queue, {"rate": rate}, address, user, password)
    click.echo(f"the redrive of '{queue}' has the rate {rate or 'unlimited'}")


@command.command("cancel")
@click.argument("queue")
@in_a_vhost
@as_administrator
def cancel(queue: str, vhost: str, address: str, user: str, password: str) -> None:
    """End the redrive of QUEUE; what has not moved stays."""
    manage("DELETE", address, _path(vhost, queue), None, user, password, _thing(vhost, queue))
    click.echo(f"the redrive of '{queue}' is cancelled")


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="As JSON, for scripts.")
@as_administrator
def list_(as_json: bool, address: str, user: str, password: str) -> None:
    """List redrives under way, and the last one of each queue that had one."""
    found = manage("GET", address, "/api/mayfly/redrives", None, user, password)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    table = table_of("queue", "vhost", "state", "to", "moved", "stayed", "of", "a second", "seconds")
    for row in found["redrives"]:
        target = row.get("target_queue", row.get("target_exchange"))
        table.add_row(
            row["queue"], row["vhost"], row["state"],
            "where they died" if target is None else target or "(default)",
            str(row["moved"]), str(row["stayed"]), str(row["waiting_at_start"]), str(row["rate"] or "-"),
            f"{row['took_ms'] / _MS_PER_S:.1f}",
        )  # fmt: skip
    console().print(table)
    for shard in found["unknown_shards"]:
        click.echo(f"of shard {shard} nothing is known", err=True)


def _change(vhost: str, queue: str, what: dict[str, Any], address: str, user: str, password: str) -> None:
    manage("PUT", address, _path(vhost, queue), what, user, password, _thing(vhost, queue))


def _wish(which: dict[str, Any]) -> dict[str, Any]:
    wish = {name: value for name, value in which.items() if value is not None and not name.endswith("_s")}
    headers: dict[str, str] = {}
    for text in wish.pop("headers"):
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"'{text}' is no NAME=VALUE", param_hint="--header")
        headers[name] = value
    if headers:
        wish["headers"] = headers
    for name in ("min_age", "max_age"):
        if which[f"{name}_s"] is not None:
            wish[f"{name}_ms"] = round(which[f"{name}_s"] * _MS_PER_S)
    return wish


def _least(found: dict[str, Any]) -> str:
    return "" if found["complete"] else "of the messages that could be looked at in time "


def _path(vhost: str, queue: str) -> str:
    return f"/api/mayfly/queues/{quote(vhost, safe='')}/{quote(queue, safe='')}/redrive"


def _thing(vhost: str, queue: str) -> str:
    return f"queue '{queue}' in vhost '{vhost}'"
