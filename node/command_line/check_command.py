"""`mayfly check`: whether a cluster is well, in one answer for monitors and for people."""

import json
import socket
import sys
from collections.abc import Callable
from typing import Any, Final

import click

from mayfly.node.command_line.operator_client import as_observer, get_as, parsed
from mayfly.node.command_line.ready_command import without_quorum_plus_one
from mayfly.node.local_nodes.local_cluster import fetch

_CONNECT_S: Final = 3.0
_PAGE_S: Final = 10.0
_TCP_KINDS: Final = ("amqp", "amqps", "http", "peer", "frames")

Check = Callable[[str, str, str], list[str]]
"""Takes node, user and password; what is wrong, nothing if all is well. Raises ClickException."""


@click.command("check")
@click.argument("names", nargs=-1, metavar="[serving|alarms|quorum|ports|dead-letters]...")
@as_observer
@click.option("--json", "as_json", is_flag=True, help="As JSON, for scripts.")
def command(names: tuple[str, ...], address: str, user: str, password: str, as_json: bool) -> None:
    """Look whether all is well; exit code 0, or 1 with what is not.

    \b
    serving       the node that is asked serves clients
    alarms        no node blocks publishers
    quorum        every group has a leader, and could lose a voter more
    ports         every address that a node of the cluster gives is reached from here
    dead-letters  none are parked, no lane stands still, no queue is on brake for them, nothing is overdue by
                  more than a second

    Without a name all of them.
    """
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        raise click.BadParameter(f"there is no check '{unknown[0]}'; there are {', '.join(CHECKS)}")
    found: dict[str, list[str]] = {}
    for name in names or tuple(CHECKS):
        try:
            found[name] = CHECKS[name](address, user, password)
        except click.ClickException as error:
            found[name] = [error.format_message()]
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        width = max(map(len, found))
        for name, faults in found.items():
            click.echo(f"{name:{width}}  {'; '.join(faults) or 'ok'}")
    sys.exit(1 if any(found.values()) else 0)


def _serving(address: str, _user: str, _password: str) -> list[str]:
    where = parsed(address)
    try:
        _, page = fetch(where, "/health/ready", _PAGE_S)
    except OSError as error:
        return [f"no answer from {where}: {error}"]
    return [] if page.get("status") == "ready" else [str(page.get("reason", "not ready"))]


def _status(address: str, user: str, password: str) -> dict[str, Any]:
    return get_as(address, "/status", user, password)


def _alarms(address: str, user: str, password: str) -> list[str]:
    return [str(alarm) for alarm in _status(address, user, password).get("alarms", ())]


def _quorum(address: str, user: str, password: str) -> list[str]:
    members = get_as(address, "/cluster/members", user, password)["members"]
    shards = get_as(address, "/shards", user, password)["shards"]
    present = [row for row in members if row["state"] != "removed"]
    unknown = [row for row in shards if "unknown" in row]
    if unknown:
        return [f"no node has told who votes in groups {', '.join(str(row['group']) for row in unknown)}"]
    if len(present) == 1:
        # There is nobody to lose.
        leaderless = [str(row["group"]) for row in shards if not row["leader"]]
        return [f"groups {', '.join(leaderless)} have no leader"] if leaderless else []
    reason = without_quorum_plus_one(present, shards)
    return [reason] if reason else []


def _ports(address: str, user: str, password: str) -> list[str]:
    faults = []
    for node in _status(address, user, password).get("nodes", ()):
        for kind, place in sorted(node.get("addresses", {}).items()):
            if kind in _TCP_KINDS and (reason := _not_reached(place)):
                faults.append(f"{node['name']}: {kind} {place}: {reason}")
    return faults


def _not_reached(place: str) -> str:
    host, _, port = place.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except (OSError, ValueError) as error:
        return str(error)
    return ""


def _dead_letters(address: str, user: str, password: str) -> list[str]:
    status = _status(address, user, password)
    faults = []
    for row in status.get("groups", ()):
        for key, text in _NONE_OF_THESE.items():
            if row.get(key):
                faults.append(f"shard {row['group']}: {row[key]} {text}")
        if row.get("expiry_lag_ms", 0) > _LAG_MS:
            faults.append(f"shard {row['group']}: expiry is {row['expiry_lag_ms']} ms late")
    return faults


_LAG_MS: Final = 1000
_NONE_OF_THESE: Final = {
    "parked": "parked dead letters", "stalled_lanes": "lanes that stand still", "braked": "queues on brake",
}  # fmt: skip
CHECKS: Final[dict[str, Check]] = {
    "serving": _serving, "alarms": _alarms, "quorum": _quorum, "ports": _ports, "dead-letters": _dead_letters,
}  # fmt: skip
