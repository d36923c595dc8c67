"""`mayfly snapshot`: a copy of a running node's data."""

from pathlib import Path
from typing import Final

import click

from mayfly.node.command_line.operator_client import as_administrator, request

_PATIENCE_S: Final = 3600.0


@click.command("snapshot")
@click.argument("folder", type=click.Path(path_type=Path))
@as_administrator
def command(folder: Path, address: str, user: str, password: str) -> None:
    """Copy the data of the node that is asked to FOLDER on the node's machine, as it is at one moment.

    FOLDER must not be there yet. All that the cluster had confirmed when the command began is in it. A node that was a
    cluster by itself starts from it, as its data_dir; a cluster of several nodes is begun anew with mayfly restore. See
    docs/operations/backup.md.
    """
    content = {"folder": str(folder.absolute())}
    status, answer = request("POST", address, "/node/snapshot", content, user, password, timeout_s=_PATIENCE_S)
    if status != 200 or not isinstance(answer, dict):
        raise click.ClickException(answer.get("error", "") if isinstance(answer, dict) else f"HTTP status {status}")
    click.echo(f"{answer['bytes']} bytes in {answer['folder']}")
    if not answer.get("current", True):
        click.echo(f"this copy may lack what was confirmed lately: {answer.get('reason', '')}", err=True)


