"""`mayfly trace`: what clients do, for a while."""

import json
import time
from collections.abc import Mapping
from typing import Any, Final

import click
from rich import box
from rich.table import Table
from rich.text import Text

from mayfly.node.command_line.arguments import in_a_vhost
from mayfly.node.command_line.operator_client import answer_of, as_administrator, console, request
from mayfly.node.operating.ports.trace_wish import LONGEST_TRACE_S, MOST_EVENTS
from mayfly.node.shard.commands import ACK, REJECT

_ANSWER_S: Final = 15.0
_MS_PER_S: Final = 1000


@click.command("trace")
@click.option("--queue", default="", help="What is published to this queue, delivered from it and settled.")
@in_a_vhost
@click.option("--of", "of_user", default="", metavar="USER", help="What this user does.")
@click.option("--seconds", type=click.FloatRange(0.1, LONGEST_TRACE_S), default=10.0, show_default=True)
@click.option("--limit", type=click.IntRange(1, MOST_EVENTS), default=1000, show_default=True, help="At most so many.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, for scripts.")
@as_administrator
def command(
    queue: str, vhost: str, of_user: str, seconds: float, limit: int, as_json: bool, address: str, user: str,
    password: str,
) -> None:  # fmt: skip
    """Look at what the clients of one node do with a queue, or what one user does, and show it when the time is over.

    Of messages there are exchange, key and size; no bodies. Clients of other nodes are seen by asking those.
    """
    if not (queue or of_user):
        raise click.UsageError("say --queue, --of, or both")
    wish = {"vhost": vhost, "queue": queue, "user": of_user, "seconds": seconds, "most": limit}
    answer = request("POST", address, "/node/trace", wish, user, password, timeout_s=seconds + _ANSWER_S)
    found = answer_of(address, *answer)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    table = Table(box=box.SIMPLE)
    for heading in ("time", "what", "queues", "details", "user", "connection"):
        table.add_column(heading)
    for event in found["events"]:
        queues = ", ".join(event["queues"])
        cells = (_time(event), event["what"], queues, _details(event), event["user"], event["connection"])
        table.add_row(*map(Text, cells))
    console().print(table)
    click.echo(f"{len(found['events'])} events" + (f", {found['left_out']} more" if found["left_out"] else ""))


def _time(event: Mapping[str, Any]) -> str:
    seconds, milliseconds = divmod(event["time_ms"], _MS_PER_S)
    return f"{time.strftime('%H:%M:%S', time.gmtime(seconds))}.{milliseconds:03d}"


def _details(event: Mapping[str, Any]) -> str:
    if event["what"] == "published":
        return f"exchange '{event['exchange']}', key '{event['key']}', {event['bytes']} bytes"
    if event["what"] == "delivered":
        return f"{event['count']}" + (f", {event['redelivered']} of them again" if event["redelivered"] else "")
    outcomes = {ACK: "acknowledged", REJECT: "rejected"}
    return f"{event['count']} {outcomes.get(event['outcome'], 'given back')}"
