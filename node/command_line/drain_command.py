"""`mayfly drain`: have a node send its clients and its leaders to the others."""

import time
from pathlib import Path
from typing import Any, Final

import click

from mayfly.node.command_line.operator_client import as_administrator_or_hook, get, post

_POLL_S: Final = 0.1


@click.command("drain")
@as_administrator_or_hook
@click.option("--no-wait", is_flag=True, help="Return when it has begun.")
@click.option("--timeout", "timeout_s", type=float, default=60.0, show_default=True, help="Seconds to wait.")
def command(
    address: str, user: str, password: str, token_file: Path | None, no_wait: bool, timeout_s: float
) -> None:
    """Drain the node that is asked: before its machine is stopped, or to have it idle.

    It says that it is not ready, takes no new clients and hands over what it leads. Deliveries stop, and when clients
    have acknowledged what they have, or do not any more, they are told to connect elsewhere. It stays a member and goes
    on storing what is its to store, and leads nothing until `mayfly revive` or its next start.
    """
    shown = told(post(address, "/node/drain", {}, user, password, token_file)["drain"])
    click.echo(shown)
    deadline_s = time.monotonic() + timeout_s
    while not no_wait:
        progress = get(address, "/status")["drain"]
        if told(progress) != shown:
            shown = told(progress)
            click.echo(shown)
        if progress["state"] == "drained":
            break
        if progress["state"] == "serving":
            raise click.ClickException("it was revived")
        if time.monotonic() > deadline_s:
            raise click.ClickException(f"not done after {timeout_s:.0f} s; it goes on by itself")
        time.sleep(_POLL_S)


def told(progress: dict[str, Any]) -> str:
    """How far it is, in one line."""
    return (
        f"{progress['state']}: leads {progress['leads']} groups, has {progress['connections']} connections with "
        f"{progress['unacknowledged']} unacknowledged deliveries"
    )
