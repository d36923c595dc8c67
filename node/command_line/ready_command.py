"""`mayfly ready`: the answer for scripts and hooks whether a node serves, or another may be stopped."""

import sys
import time
from typing import Any, Final

import click

from mayfly.node.command_line.operator_client import asks_a_node, parsed
from mayfly.node.local_nodes.local_cluster import fetch

_POLL_S: Final = 0.25
_PAGES_S: Final = 10.0
"""So long a page may take that asks other nodes: each of them has two seconds."""


@click.command("ready")
@asks_a_node
@click.option(
    "--quorum-plus-one", is_flag=True, help="...and every group could lose one of its voters more, and still serve."
)
@click.option("--members", type=click.IntRange(1), help="...and the cluster has so many members, none on its way.")
@click.option("--without", metavar="NAME", help="Instead: the cluster can spare the member NAME now.")
@click.option("--timeout", "timeout_s", type=float, default=0.0, show_default=True, help="Seconds to wait for it.")
def command(address: str, quorum_plus_one: bool, members: int | None, without: str | None, timeout_s: float) -> None:
    """Exit code 0 if the node that is asked serves clients, else 1, with the reason.

    With --quorum-plus-one it says whether one node, whichever, may be stopped: no group would be without a majority.
    With --members N a scale-out or scale-in is over: so many members, all shards voted on as planned.
    With --without NAME it says whether that one may be stopped: every group in which it votes would keep a majority of
    voters that are up and do not drain. What is lost in any case is no reason to wait, and of several that drain the
    one whose name comes last goes first. Whether the node that is asked serves does not matter.
    """
    if without is not None and (quorum_plus_one or members is not None):
        raise click.UsageError("--without stands alone, without --quorum-plus-one and --members")
    sys.exit(tell_when(address, quorum_plus_one, members, timeout_s, serves=without is None, without=without))


def tell_when(
    address: str, quorum_plus_one: bool, members: int | None, timeout_s: float, serves: bool, without: str | None = None
) -> int:
    """Wait until it is so; say how it is; the exit code."""
    deadline_s = time.monotonic() + timeout_s
    shown = ""
    while True:
        reason = why_not(address, quorum_plus_one, members, serves, without)
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


def why_not(
    address: str, quorum_plus_one: bool, members: int | None, serves: bool, without: str | None = None
) -> str:
    """What is in the way of it, "" if it is so."""
    where = parsed(address)
    try:
        if serves:
            code, answer = fetch(where, "/health/ready")
            if code != 200:
                return str(answer.get("reason", f"HTTP status {code}"))
        if not quorum_plus_one and members is None and without is None:
            return ""
        pages = []
        for path in ("/cluster/members", "/shards"):
            code, answer = fetch(where, path, _PAGES_S)
            if code != 200:
                return f"{where}: {answer.get('error', f'HTTP status {code}')}"
            pages.append(answer)
        page, shards = pages[0], pages[1]["shards"]
    except (OSError, KeyError) as error:
        return f"no answer from {where}: {error}"
    present = [row for row in page["members"] if row["state"] != "removed"]
    if without is not None and not _staying(present) - _ids(present, without):
        return ""
    for told in pages:
        if not told.get("current", True):
            return str(told.get("reason"))
    unknown = [str(row["group"]) for row in shards if "unknown" in row]
    if unknown:
        return f"no node has told who votes in groups {', '.join(unknown)}"
    if without is not None:
        return _needed(present, shards, without)
    if members is not None:
        reason = _members_in_the_way(present, shards, members)
        if reason:
            return reason
    return without_quorum_plus_one(present, shards) if quorum_plus_one else ""


def _members_in_the_way(present: list[dict[str, Any]], shards: list[dict[str, Any]], wanted: int) -> str:
    unsettled = [f"{row['name']} is {row['state']}" for row in present if row["state"] != "member"]
    if unsettled:
        return ", ".join(unsettled)
    if len(present) != wanted:
        return f"there are {len(present)} members, {wanted} are wanted"
    moving = [
        str(row["group"])
        for row in shards
        if row["changing"] or row.get("owed") or set(row["voters"]) != set(row["plan"])
    ]
    return f"votes move in groups {', '.join(moving)}" if moving else ""


def without_quorum_plus_one(present: list[dict[str, Any]], shards: list[dict[str, Any]]) -> str:
    """Groups that would lose their majority, or have a leader no more, with one more voter gone."""
    up = _staying(present)
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


def _needed(present: list[dict[str, Any]], shards: list[dict[str, Any]], name: str) -> str:
    """Groups that would lose their majority with this member."""
    leaving = _ids(present, name)
    if not leaving:
        return f"no member '{name}'; there are {', '.join(row['name'] for row in present)}"
    before = {row["id"] for row in present if row["up"] and _order(row["name"]) < _order(name)}
    staying = (_staying(present) | before) - leaving
    tight: dict[str, list[str]] = {}
    for row in shards:
        # While voters change, those before and those after both have to agree.
        halves = [set(half) for half in (row["voters"], row.get("voters_outgoing", ())) if leaving & set(half)]
        if any(len(half - leaving) < len(half) // 2 + 1 for half in halves):
            continue
        for half in halves:
            there, majority = len((half - leaving) & staying), len(half) // 2 + 1
            if there < majority:
                text = f"have {there} other voters that stay, {majority} are needed"
                tight.setdefault(text, []).append(str(row["group"]))
                break
    return "; ".join(f"groups {', '.join(groups)} {text}" for text, groups in tight.items())


def _order(name: str) -> tuple[int, str]:
    """mq-9 comes before mq-10."""
    return len(name), name


def _ids(present: list[dict[str, Any]], name: str) -> set[int]:
    return {row["id"] for row in present if row["name"] == name}


def _staying(present: list[dict[str, Any]]) -> set[int]:
    """Members that are up and not about to stop."""
    return {row["id"] for row in present if row["up"] and not row.get("draining")}
