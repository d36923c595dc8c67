"""`mayfly snapshot`: a copy of a running node's data, or of a running cluster's."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import click

from mayfly.node.command_line.operator_client import as_administrator, request

COPIED_IN_PART: Final = 3
"""The exit code where shards of the cluster are in no copy that was made."""

_PATIENCE_S: Final = 3600.0


@click.command("snapshot")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--whole", is_flag=True,
    help="Of as many nodes as it takes to have all shards, each in FOLDER/nodeID of its own machine.",
)  # fmt: skip
@as_administrator
def command(folder: Path, whole: bool, address: str, user: str, password: str) -> None:
    """Copy the data of the node that is asked to FOLDER on the node's machine, as it is at one moment.

    FOLDER must not be there yet. All that the cluster had confirmed when the command began is in it, of the shards that
    the node has replicas of; the exit code is 3 if it has not got all, and --whole is what gets them. A node that was a
    cluster by itself starts from its copy, as its data_dir; a cluster of several nodes is begun anew with mayfly
    restore. See docs/operations/backup.md.
    """
    content: dict[str, object] = {"folder": str(folder.absolute())}
    if whole:
        content["whole"] = True
    status, answer = request("POST", address, "/node/snapshot", content, user, password, timeout_s=_PATIENCE_S)
    if status != 200 or not isinstance(answer, dict):
        raise click.ClickException(answer.get("error", "") if isinstance(answer, dict) else f"HTTP status {status}")
    for each in answer.get("copies", [answer]):
        _tell(each)
    lacks = answer.get("lacks", [])
    if lacks:
        how = "no node that has them could be copied" if whole else "other nodes have them, see --whole"
        click.echo(f"not copied: {_list(lacks)}; {how}", err=True)
        sys.exit(COPIED_IN_PART)


def _tell(copy: dict[str, Any]) -> None:
    who = f" of the machine of {copy['name']}" if "name" in copy else ""
    if copy.get("error"):
        click.echo(f"{copy['folder']}{who}: not made: {copy['error']}", err=True)
        return
    click.echo(f"{copy['bytes']} bytes in {copy['folder']}{who}")
    if not copy.get("current", True):
        click.echo(f"this copy may lack what was confirmed lately: {copy.get('reason', '')}", err=True)


def _list(groups: Iterable[int]) -> str:
    return ", ".join("the catalog" if group == 0 else f"shard {group}" for group in groups)
