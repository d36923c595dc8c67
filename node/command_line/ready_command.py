"""`mayfly ready`: the answer for scripts and hooks whether a node serves, or another may be stopped."""

import sys
import time
from typing import Any, Final

import click

from node.command_line.local_cluster import fetch
from node.command_line.operator_client import asks_a_node, parsed

_POLL_S: Final = 0.25


@click.command("ready")
@asks_a_node
@click.option(
    "--quorum-plus-one", is_flag=True, help="...and every group could lose one of its voters more, and still serve."
)
@click.option("--members", type=click.IntRange(1), help="...and the cluster has so many members, none on its way.")
@click.option("--timeout", "timeout_s", type=float, default=0.0, show_default=True, help="Seconds to wait for it.")
def command(address: str, quorum_plus_one: bool, members: int | None, timeout_s: float) -> None:
    """Exit code 0 if the node that is asked serves clients, else 1, with the reason.

    With --quorum-plus-one it says whether one node, whichever, may be stopped: no group would be without a majority.
    With --members N a scale-out or scale-in is over: so many members, all shards voted on as planned.
    """
    sys.exit(tell_when(address, quorum_plus_one, members, timeout_s, serves=True))


def tell_when(address: str, quorum_plus_one: bool, members: int | None, timeout_s: float, serves: bool) -> int:
    """Wait until it is so; say how it is; the exit code."""
    deadline_s = time.monotonic() + timeout_s
    shown = ""
    while True:
        reason = why_not(address, quorum_plus_one, members, serves)
        if not reason:
            click.echo("ready")
            return 0
        if time.monotonic() >= deadline_s:
            click.echo(reason, err=True)
            return 1
        if reason != shown:
            shown = reason
            click.echo(reason, err=True)
        time.sleep(_POLL_S)


def why_not(address: str, quorum_plus_one: bool, members: int | None, serves: bool) -> str:
    """What is in the way of it, "" if it is so."""
    where = parsed(address)
    try:
        if serves:
            code, answer = fetch(where, "/health/ready")
            if code != 200:
                return str(answer.get("reason", f"HTTP status {code}"))
        if not quorum_plus_one and members is None:
            return ""
        page, shards = fetch(where, "/cluster/members")[1], fetch(where, "/shards")[1]["shards"]
    except (OSError, KeyError) as error:
        return f"no answer from {where}: {error}"
    if not page.get("current", True):
        return str(page.get("reason"))
    present = [row for row in page["members"] if row["state"] != "removed"]
    if members is not None:
        reason = _members_in_the_way(present, shards, members)
        if reason:
            return reason
    return _without_spare(present, shards) if quorum_plus_one else ""


def _members_in_the_way(present: list[dict[str, Any]], shards: list[dict[str, Any]], wanted: int) -> str:
    unsettled = [f"{row['name']} is {row['state']}" for row in present if row["state"] != "member"]
    if unsettled:
        return ", ".join(unsettled)
    if len(present) != wanted:
        return f"there are {len(present)} members, {wanted} are wanted"
    moving = [str(row["group"]) for row in shards if row["changing"] or set(row["voters"]) != set(row["plan"])]
    return f"votes move in groups {', '.join(moving)}" if moving else ""


def _without_spare(present: list[dict[str, Any]], shards: list[dict[str, Any]]) -> str:
    """Groups that would lose their majority, or have a leader no more, with one more voter gone."""
    up = {row["id"] for row in present if row["up"]}
    tight: dict[str, list[str]] = {}
    for row in shards:
        voters = set(row["voters"])
        there = len(voters & up)
        if not row["leader"]:
            tight.setdefault("have no leader", []).append(str(row["group"]))
        elif row["changing"]:
            tight.setdefault("are changing their voters", []).append(str(row["group"]))
        elif there - 1 <= len(voters) // 2:
            text = f"have {there} of {len(voters)} voters up, one less is no majority"
            tight.setdefault(text, []).append(str(row["group"]))
    return "; ".join(f"groups {', '.join(groups)} {text}" for text, groups in tight.items())
