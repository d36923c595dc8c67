"""What the operators' commands share: which node they ask, as whom, and how they show its answer."""

import base64
import http.client
import json
import os
import sys
from collections.abc import Callable
from typing import Any, Final

import click
from rich.console import Console

from node.command_line.local_cluster import fetch
from node.settings import NodeSettings
from node.settings_kinds import Address

PASSWORD_VARIABLE: Final = "MAYFLY_PASSWORD"
_TIMEOUT_S: Final = 15.0
_WIDTH_IN_PIPES: Final = 160


def asks_a_node(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option `--node`."""
    return click.option(
        "--node",
        "address",
        metavar="HOST:PORT",
        default=lambda: str(NodeSettings().http_address),
        help="HTTP address of any node. [default: 127.0.0.1:15672]",
    )(command)


def as_administrator(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options `--node`, `--user` and `--password`."""
    command = click.option(
        "--password",
        default=lambda: os.environ.get(PASSWORD_VARIABLE, "guest"),
        help=f"That user's password; better in {PASSWORD_VARIABLE}. [default: guest]",
    )(command)
    command = click.option("--user", default="guest", show_default=True, help="A user with tag administrator.")(command)
    return asks_a_node(command)


def get(address: str, path: str) -> dict[str, Any]:
    """A page of a node. Raises ClickException."""
    where = parsed(address)
    try:
        code, content = fetch(where, path)
    except OSError as error:
        raise click.ClickException(f"no answer from {where}: {error}") from None
    if code != http.client.OK:
        raise click.ClickException(f"{where}: {content.get('error', f'HTTP status {code}')}")
    return content


def warn_if_old(page: dict[str, Any]) -> None:
    """Say so, on standard error, if a page shows what its node has and not what the cluster has now."""
    if not page.get("current", True):
        click.echo(f"not current: {page.get('reason')}", err=True)


def post(address: str, path: str, content: object, user: str, password: str) -> dict[str, Any]:
    """Have a node do something. Raises ClickException."""
    where = parsed(address)
    connection = http.client.HTTPConnection(where.host, where.port, timeout=_TIMEOUT_S)
    credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
    try:
        connection.request("POST", path, json.dumps(content), {"Authorization": f"Basic {credentials}"})
        response = connection.getresponse()
        answer = json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise click.ClickException(f"no answer from {where}: {error!r}") from None
    finally:
        connection.close()
    if response.status != http.client.OK or not isinstance(answer, dict):
        text = answer.get("error") if isinstance(answer, dict) else None
        raise click.ClickException(f"{where}: {text or f'HTTP status {response.status}'}")
    return answer


def parsed(address: str) -> Address:
    """The address in the text. Raises BadParameter."""
    try:
        return Address.parse(address)
    except ValueError as error:
        raise click.BadParameter(f"expected {error}", param_hint="--node") from None


def console() -> Console:
    """For tables; in a pipe there is no width to keep to."""
    return Console() if sys.stdout.isatty() else Console(width=_WIDTH_IN_PIPES)
