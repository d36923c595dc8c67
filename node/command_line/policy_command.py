"""`mayfly policy`: policies and operator policies."""

import json
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

import click
from rich import box
from rich.table import Table
from rich.text import Text

from mayfly.node.command_line.arguments import in_a_vhost
from mayfly.node.command_line.operator_client import as_administrator, console, manage

APPLY_TO: Final = ("all", "queues", "classic_queues", "quorum_queues", "streams", "exchanges")


@click.group("policy")
def command() -> None:
    """Set, list and delete policies: settings for all queues whose names match a pattern.

    A queue follows at most one policy, the matching one with the highest priority, and one operator policy, which caps
    its numbers.
    """


def _of_a_kind(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options `--vhost` and `--operator`."""
    command = click.option("--operator", is_flag=True, help="An operator policy instead of a policy.")(command)
    return in_a_vhost(command)


@command.command("set")
@click.argument("name")
@click.argument("pattern")
@click.argument("definition", metavar="DEFINITION-JSON")
@_of_a_kind
@click.option("--priority", type=int, default=0, show_default=True, help="The highest of those that match counts.")
@click.option("--apply-to", type=click.Choice(APPLY_TO), default="all", show_default=True, help="What it is for.")
@as_administrator
def set_policy(
    name: str, pattern: str, definition: str, vhost: str, operator: bool, priority: int, apply_to: str,
    address: str, user: str, password: str,
) -> None:  # fmt: skip
    """Set policy NAME for what has names in which the regular expression PATTERN is found.

    DEFINITION-JSON is an object such as '{"message-ttl": 60000}'. Keys: message-ttl, expires, dead-letter-exchange,
    dead-letter-routing-key, dead-letter-strategy, max-length, max-length-bytes, overflow, delivery-limit, ttl-applies,
    queue-leader-locator, queue-master-locator; for exchanges alternate-exchange.
    """
    content = {"pattern": pattern, "definition": _parsed(definition), "priority": priority, "apply-to": apply_to}
    manage("PUT", address, _path(operator, vhost, name), content, user, password)
    click.echo(f"{_kind(operator)} '{name}' is set in vhost '{vhost}'")


@command.command("try")
@click.argument("name")
@click.argument("pattern")
@click.argument("definition", metavar="DEFINITION-JSON")
@_of_a_kind
@click.option("--priority", type=int, default=0, show_default=True, help="The highest of those that match counts.")
@click.option("--apply-to", type=click.Choice(APPLY_TO), default="all", show_default=True, help="What it is for.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="At most so many queues.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, for scripts.")
@as_administrator
def try_policy(
    name: str, pattern: str, definition: str, vhost: str, operator: bool, priority: int, apply_to: str, limit: int,
    as_json: bool, address: str, user: str, password: str,
) -> None:  # fmt: skip
    """Say what setting policy NAME would change at once, and set nothing.

    Which queues, how many of their messages would expire or be dropped, and which leases would begin anew; as long as
    no client does anything. Arguments as for set.
    """
    content = {"pattern": pattern, "definition": _parsed(definition), "priority": priority, "apply-to": apply_to}
    path = f"{_path(operator, vhost, name)}/try?limit={limit}"
    found = manage("POST", address, path, content, user, password)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    table = Table(box=box.SIMPLE)
    for heading in ("queue", "changes", "expire", "stay behind", "drop", "lease"):
        table.add_column(heading)
    for row in found["queues"]:
        table.add_row(*map(Text, _tried_cells(row)))
    totals = found["totals"]
    if totals["queues"]:
        console().print(table)
    click.echo(
        f"{totals['queues']} queues would have other settings; at once {totals['expire']} messages would expire, "
        f"{totals['behind']} more would stay behind live ones, delivered to nobody, {totals['drop']} would be dropped, "
        f"and {totals['leases_begin_anew']} leases would begin anew"
    )
    if found["left_out"]:
        click.echo(f"{found['left_out']} more queues; --limit says how many are shown")
    for shard in found["unknown_shards"]:
        click.echo(f"not in these numbers: no node with a replica of shard {shard} has answered", err=True)


def _tried_cells(row: dict[str, Any]) -> tuple[str, ...]:
    changes = ", ".join(f"{name} {json.dumps(was)} -> {json.dumps(new)}" for name, (was, new) in row["changes"].items())
    if "unknown" in row:
        return row["name"], changes, "?", "?", "?", row["unknown"]
    lease = row["lease"]
    text = "-" if lease is None else f"{_lease_end(lease['ends_in_ms'])} -> {_lease_end(lease['would_end_in_ms'])}"
    return row["name"], changes, str(row["expire"]), str(row["behind"]), str(row["drop"]), text


def _lease_end(milliseconds: int | None) -> str:
    return "no end" if milliseconds is None else f"{milliseconds / 1000:g} s"


@command.command("list")
@_of_a_kind
@click.option("--json", "as_json", is_flag=True, help="As JSON, for scripts.")
@as_administrator
def list_policies(vhost: str, operator: bool, as_json: bool, address: str, user: str, password: str) -> None:
    """List the policies of a vhost, the one that counts before the others first."""
    rows: list[dict[str, Any]] = manage("GET", address, _path(operator, vhost), None, user, password)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    table = Table(box=box.SIMPLE)
    for heading in ("name", "pattern", "apply to", "priority", "definition"):
        table.add_column(heading)
    for row in rows:
        pattern = row["pattern"] + (f"\nmatches nothing: {row['fault']}" if "fault" in row else "")
        cells = (row["name"], pattern, row["apply-to"], str(row["priority"]), json.dumps(row["definition"]))
        table.add_row(*map(Text, cells))
    console().print(table)


@command.command("delete")
@click.argument("name")
@_of_a_kind
@as_administrator
def delete(name: str, vhost: str, operator: bool, address: str, user: str, password: str) -> None:
    """Delete policy NAME."""
    thing = f"{_kind(operator)} '{name}' in vhost '{vhost}'"
    manage("DELETE", address, _path(operator, vhost, name), None, user, password, thing)
    click.echo(f"{thing} is deleted")


def _parsed(definition: str) -> object:
    try:
        return json.loads(definition)
    except (ValueError, RecursionError) as error:
        text = f"it is not JSON ({error}); expected an object such as '{{\"message-ttl\": 60000}}', got '{definition}'"
        raise click.BadParameter(text, param_hint="DEFINITION-JSON") from None


def _path(operator: bool, *parts: str) -> str:
    kind = "operator-policies" if operator else "policies"
    return "/".join([f"/api/{kind}", *(quote(part, safe="") for part in parts)])


def _kind(operator: bool) -> str:
    return "operator policy" if operator else "policy"
