"""What the operators' commands share: which node they ask, as whom, and how they show its answer."""

import base64
import http.client
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click
from rich import box
from rich.console import Console
from rich.table import Table

from mayfly.node.local_nodes.local_cluster import fetch
from mayfly.node.local_nodes.node_url import NodeUrl, no_page
from mayfly.node.settings import NodeSettings
from mayfly.node.settings.sources import variable_of

USER_VARIABLE: Final = "MAYFLY_USER"
PASSWORD_VARIABLE: Final = "MAYFLY_PASSWORD"
_TIMEOUT_S: Final = 15.0
_WIDTH_IN_PIPES: Final = 160


def asks_a_node(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option `--node`."""
    return click.option(
        "--node",
        "address",
        metavar="HOST:PORT|URL",
        default=lambda: str(NodeSettings().http_address),
        help="HTTP address of any node, also as http://... or https://... [default: 127.0.0.1:15672]",
    )(command)


def as_administrator(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options `--node`, `--user` and `--password`."""
    return _as_user("A user with tag administrator.", command)


def as_observer(command: Callable[..., None]) -> Callable[..., None]:
    """The same for what whoever watches may see."""
    return _as_user("A user with tag administrator or monitoring.", command)


def as_administrator_or_hook(command: Callable[..., None]) -> Callable[..., None]:
    """The same, and the option `--token-file` for hooks beside the node that is asked."""
    command = click.option(
        "--token-file",
        type=click.Path(path_type=Path),
        help="Instead of a login, on the node's own machine: the file own-token in its data_dir.",
    )(command)
    return as_administrator(command)


def _as_user(who: str, command: Callable[..., None]) -> Callable[..., None]:
    command = click.option(
        "--password",
        default=lambda: _first_of(PASSWORD_VARIABLE, variable_of("default_pass")),
        help=f"That user's password; better in {PASSWORD_VARIABLE}. [default: the node's default_pass, as far as the "
        "environment has it, else guest]",
    )(command)
    command = click.option(
        "--user",
        default=lambda: _first_of(USER_VARIABLE, variable_of("default_user")),
        help=f"{who} Or in {USER_VARIABLE}. [default: the node's default_user, likewise, else guest]",
    )(command)
    return asks_a_node(command)


def _first_of(*variables: str) -> str:
    return next((os.environ[name] for name in variables if os.environ.get(name)), "guest")


def get(address: str, path: str) -> dict[str, Any]:
    """A page of a node that needs no login. Raises ClickException."""
    where = parsed(address)
    try:
        code, content = fetch(where, path, _TIMEOUT_S)
    except OSError as error:
        raise click.ClickException(f"no answer from {where}: {error}") from None
    if code != http.client.OK:
        raise click.ClickException(f"{where}: {content.get('error', f'HTTP status {code}')}")
    return content


def warn_if_old(page: dict[str, Any]) -> None:
    """Say so, on standard error, if a page shows what its node has and not what the cluster has now."""
    if not page.get("current", True):
        click.echo(f"not current: {page.get('reason')}", err=True)


def get_as(address: str, path: str, user: str, password: str) -> dict[str, Any]:
    """A page of a node, for that user. Raises ClickException."""
    return _page(address, *request("GET", address, path, None, user, password))


def post(
    address: str, path: str, content: object, user: str, password: str, token_file: Path | None = None
) -> dict[str, Any]:
    """Have a node do something; with `token_file` by its own token, without a login. Raises ClickException."""
    if token_file is None:
        return _page(address, *request("POST", address, path, content, user, password))
    try:
        token = token_file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"--token-file {token_file} can't be read: {error}") from None
    if not re.fullmatch(r"[\w-]+", token, re.ASCII):
        raise click.ClickException(f"--token-file {token_file} holds no token")
    return _page(address, *_asked("POST", address, path, content, f"Bearer {token}", _TIMEOUT_S))


def _page(address: str, status: int, answer: Any) -> dict[str, Any]:
    if status != http.client.OK or not isinstance(answer, dict):
        text = answer.get("error") if isinstance(answer, dict) else None
        raise click.ClickException(f"{parsed(address)}: {text or f'HTTP status {status}'}")
    return answer


def manage(
    method: str, address: str, path: str, content: object, user: str, password: str, thing: str = "such thing"
) -> Any:
    """Ask a node's management API (RabbitMQ's); its answer, None if it is empty.

    Raises ClickException; where there is nothing of that path it says that there is no `thing`.
    """
    return answer_of(address, *request(method, address, path, content, user, password), thing)


def answer_of(address: str, status: int, answer: Any, thing: str = "such thing") -> Any:
    """What the management API has answered. Raises ClickException for a refusal, see `manage`."""
    if status not in (http.client.OK, http.client.CREATED, http.client.NO_CONTENT):
        reason = answer.get("reason") or answer.get("error") if isinstance(answer, dict) else None
        if reason == "Not Found":
            reason = f"there is no {thing}"
        lines = [line for line in str(reason or f"HTTP status {status}").splitlines() if line]
        raise click.ClickException(f"{parsed(address)}: {'; '.join(lines)}")
    return answer


def request(
    method: str, address: str, path: str, content: object, user: str, password: str, timeout_s: float = _TIMEOUT_S,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, Any]:
    """The status and JSON of a node's answer, None for an empty one; no content is sent for None, `headers` besides.

    Raises ClickException when there is no answer.
    """
    return _asked(method, address, path, content, _basic(user, password), timeout_s, headers)


def get_text_as(address: str, path: str, user: str, password: str) -> str:
    """A page of a node, for that user, whatever it is made of. Raises ClickException."""
    status, data = _octets("GET", address, path, None, {"Authorization": _basic(user, password)}, _TIMEOUT_S)
    text = data.decode("utf-8", "replace")
    if status not in (http.client.OK, http.client.SERVICE_UNAVAILABLE):
        raise click.ClickException(f"{parsed(address)}: HTTP status {status}")
    return text


def _basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def _asked(
    method: str, address: str, path: str, content: object, authorization: str, timeout_s: float,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, Any]:
    body = None if content is None else json.dumps(content)
    given = {"Authorization": authorization, "Content-Type": "application/json", **(headers or {})}
    status, data = _octets(method, address, path, body, given, timeout_s)
    try:
        return status, json.loads(data) if data else None
    except ValueError as error:
        where = parsed(address)
        raise click.ClickException(f"no answer from {where}: {no_page(where, error)}") from None


def _octets(
    method: str, address: str, path: str, body: str | None, headers: Mapping[str, str], timeout_s: float
) -> tuple[int, bytes]:
    where = parsed(address)
    connection = where.connect(timeout_s)
    try:
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        return response.status, response.read()
    except OSError as error:
        raise click.ClickException(f"no answer from {where}: {error!r}") from None
    except (http.client.HTTPException, ValueError) as error:
        raise click.ClickException(f"no answer from {where}: {no_page(where, error)}") from None
    finally:
        connection.close()


def parsed(address: str) -> NodeUrl:
    """The address in the text. Raises BadParameter."""
    try:
        return NodeUrl.parse(address)
    except ValueError as error:
        raise click.BadParameter(f"expected {error}", param_hint="--node") from None


def limit_value(text: str) -> int | None:
    """What a limit is to be; None for no limit. Raises BadParameter."""
    if text == "none":
        return None
    if not (text.isascii() and text.isdigit()):
        raise click.BadParameter(f"'{text}' is neither a number from 0 nor none", param_hint="VALUE")
    return int(text)


def change_limit(kind: str, name: str, limit: str, value: str, address: str, user: str, password: str) -> None:
    """Set a limit of a user or vhost (`kind`), or take it away, and say so. Raises ClickException, BadParameter."""
    path = f"/api/{kind}-limits/{quote(name, safe='')}/{limit}"
    number = limit_value(value)
    if number is None:
        manage("DELETE", address, path, None, user, password, f"{kind} '{name}'")
    else:
        manage("PUT", address, path, {"value": number}, user, password, f"{kind} '{name}'")
    click.echo(f"{limit} of {kind} '{name}' is " + ("not limited" if number is None else value))


def table_of(*headings: str) -> Table:
    """An empty table as the commands show them."""
    table = Table(box=box.SIMPLE)
    for heading in headings:
        table.add_column(heading)
    return table


def console() -> Console:
    """For tables; in a pipe there is no width to keep to."""
    return Console() if sys.stdout.isatty() else Console(width=_WIDTH_IN_PIPES)
