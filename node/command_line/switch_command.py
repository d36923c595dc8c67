"""`mayfly switch`: what is off, in the whole cluster or in a vhost."""

import json
from typing import Final

import click

from mayfly.node.command_line.operator_client import as_administrator, asks_a_node, get, post

FEATURES: Final = ("message-ttl", "dead-lettering")


@click.group("switch")
def command() -> None:
    """Switch message TTL or dead-lettering off and on, and list what is off."""


@command.command("list")
@asks_a_node
@click.option("--json", "as_json", is_flag=True, help="As JSON, for scripts.")
def list_off(address: str, as_json: bool) -> None:
    """List what is off."""
    rows = get(address, "/status")["switched_off"]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        click.echo(f"{row['feature']} is off {_where(row['vhost'])}")
    if not rows:
        click.echo("everything is on")


@command.command("off")
@click.argument("feature", type=click.Choice(FEATURES))
@click.option("--vhost", default=None, help="In this vhost alone; otherwise in the whole cluster.")
@as_administrator
def off(feature: str, vhost: str | None, address: str, user: str, password: str) -> None:
    """Switch FEATURE off: who asks for it is refused, and where it was asked for it does not count."""
    _turn(False, feature, vhost, address, user, password)


@command.command("on")
@click.argument("feature", type=click.Choice(FEATURES))
@click.option("--vhost", default=None, help="In this vhost; otherwise in the whole cluster.")
@as_administrator
def on(feature: str, vhost: str | None, address: str, user: str, password: str) -> None:
    """Switch FEATURE on again. What is off in the whole cluster is off in every vhost."""
    _turn(True, feature, vhost, address, user, password)


def _turn(on: bool, feature: str, vhost: str | None, address: str, user: str, password: str) -> None:
    where = {"cluster": True} if vhost is None else {"vhost": vhost}
    post(address, "/switches", {"feature": feature, "on": on} | where, user, password)
    click.echo(f"{feature} is {'on' if on else 'off'} {_where(vhost)}")


def _where(vhost: str | None) -> str:
    return "in the cluster" if vhost is None else f"in vhost '{vhost}'"
