"""The commands of `mayfly queue` that declare, empty and delete queues, and put messages in and take them out."""

import json
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

import click

from mayfly.node.command_line.arguments import arguments_option, in_a_vhost, parsed_arguments
from mayfly.node.command_line.operator_client import as_administrator, manage

Login = tuple[str, str, str]

_MOST_MESSAGES: Final = 1000
_SHOWN_OCTETS: Final = 50_000


def _shows_messages(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `get` and `peek`."""
    command = click.option("--json", "as_json", is_flag=True, help="As JSON, with all properties.")(command)
    limit = click.IntRange(1, _MOST_MESSAGES)
    return click.option("--count", type=limit, default=1, show_default=True, help="At most so many.")(command)


@click.command("declare")
@click.argument("name")
@in_a_vhost
@click.option("--type", "kind", type=click.Choice(("classic", "quorum")), help="[default: that of the vhost]")
@click.option("--transient", is_flag=True, help="Not durable: in the memory of one node.")
@click.option("--auto-delete", is_flag=True, help="Goes with its last consumer.")
@arguments_option
@as_administrator
def declare(
    name: str, vhost: str, kind: str | None, transient: bool, auto_delete: bool, arguments: str, address: str,
    user: str, password: str,
) -> None:  # fmt: skip
    """Declare queue NAME; nothing but a use of it happens if it is there as it is asked for."""
    given = parsed_arguments(arguments) | ({} if kind is None else {"x-queue-type": kind})
    content = {"durable": not transient, "auto_delete": auto_delete, "arguments": given}
    manage("PUT", address, _path(vhost, name), content, user, password)
    click.echo(f"queue '{name}' is there in vhost '{vhost}'")


@click.command("delete")
@click.argument("name")
@in_a_vhost
@click.option("--if-empty", is_flag=True, help="Only if no message is ready in it.")
@click.option("--if-unused", is_flag=True, help="Only if nobody consumes from it.")
@as_administrator
def delete(
    name: str, vhost: str, if_empty: bool, if_unused: bool, address: str, user: str, password: str
) -> None:
    """Delete queue NAME with its messages."""
    given = {"if-empty": if_empty, "if-unused": if_unused}
    query = urlencode({key: "true" for key, value in given.items() if value})
    _asked("DELETE", vhost, name, f"?{query}" if query else "", None, (address, user, password))
    click.echo(f"queue '{name}' in vhost '{vhost}' is deleted")


@click.command("purge")
@click.argument("name")
@in_a_vhost
@as_administrator
def purge(name: str, vhost: str, address: str, user: str, password: str) -> None:
    """Drop all messages that are ready in queue NAME; none is dead-lettered."""
    _asked("DELETE", vhost, name, "/contents", None, (address, user, password))
    click.echo(f"queue '{name}' in vhost '{vhost}' is purged")


@click.command("publish")
@click.argument("name")
@click.argument("body")
@in_a_vhost
@click.option("--exchange", default="", help="To this exchange, with NAME as routing key. [default: to queue NAME]")
@click.option("--properties", default="{}", metavar="JSON", help="Such as '{\"expiration\": \"1000\"}'.")
@click.option("--transient", is_flag=True, help="delivery_mode 1; else 2.")
@as_administrator
def publish(
    name: str, body: str, vhost: str, exchange: str, properties: str, transient: bool, address: str, user: str,
    password: str,
) -> None:  # fmt: skip
    """Publish BODY to queue NAME; exit code 1 if it reaches no queue. '-' takes the body from standard input."""
    octets = sys.stdin.buffer.read() if body == "-" else body.encode("utf-8", "surrogateescape")
    given = {"delivery_mode": 1 if transient else 2} | parsed_arguments(properties, "--properties")
    payload, encoding = _payload(octets)
    content = {"properties": given, "routing_key": name, "payload": payload, "payload_encoding": encoding}
    path = f"/api/exchanges/{quote(vhost, safe='')}/{quote(exchange or 'amq.default', safe='')}/publish"
    done = manage("POST", address, path, content, user, password, f"exchange '{exchange}' in vhost '{vhost}'")
    if not done["routed"]:
        raise click.ClickException(f"the message reached no queue: key '{name}' leads nowhere")
    click.echo("published")


@click.command("get")
@click.argument("name")
@in_a_vhost
@_shows_messages
@as_administrator
def get_messages(
    name: str, vhost: str, count: int, as_json: bool, address: str, user: str, password: str
) -> None:
    """Take messages from the head of queue NAME: they are gone when they are shown. A use of it (lease)."""
    _show_messages(_got(vhost, name, count, "ack_requeue_false", (address, user, password)), as_json)


@click.command("peek")
@click.argument("name")
@in_a_vhost
@_shows_messages
@as_administrator
def peek(name: str, vhost: str, count: int, as_json: bool, address: str, user: str, password: str) -> None:
    """Show messages at the head of queue NAME and put them back.

    They are redelivered after that, and their x-acquired-count grows; a use of the queue, so its lease is renewed.
    """
    _show_messages(_got(vhost, name, count, "ack_requeue_true", (address, user, password)), as_json)


def _path(vhost: str, name: str) -> str:
    return f"/api/queues/{quote(vhost, safe='')}/{quote(name, safe='')}"


def _asked(method: str, vhost: str, name: str, rest: str, content: object, login: Login) -> Any:
    address, user, password = login
    thing = f"queue '{name}' in vhost '{vhost}'"
    return manage(method, address, _path(vhost, name) + rest, content, user, password, thing)


def _got(vhost: str, name: str, count: int, mode: str, login: Login) -> list[dict[str, Any]]:
    wish = {"count": count, "ackmode": mode, "encoding": "auto"}
    found: list[dict[str, Any]] = _asked("POST", vhost, name, "/get", wish, login)
    return found


def _payload(octets: bytes) -> tuple[str, str]:
    try:
        return octets.decode("utf-8"), "string"
    except UnicodeDecodeError:
        return b64encode(octets).decode("ascii"), "base64"


def _show_messages(messages: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(messages, indent=2))
        return
    for number, message in enumerate(messages, 1):
        click.echo(f"-- {number}: {_described(message)}")
        body = message["payload"]
        click.echo(body if len(body) <= _SHOWN_OCTETS else f"{body[:_SHOWN_OCTETS]}... (--json has all)")
    if not messages:
        click.echo("no message is ready")


def _described(message: Mapping[str, Any]) -> str:
    parts = [f"key '{message['routing_key']}'", f"{message['payload_bytes']} bytes"]
    parts += [f"exchange '{message['exchange']}'"] if message["exchange"] else []
    parts += ["in base64"] if message["payload_encoding"] == "base64" else []
    parts += ["redelivered"] if message["redelivered"] else []
    properties = {key: value for key, value in dict(message["properties"] or {}).items() if key != "delivery_mode"}
    return ", ".join([*parts, *([json.dumps(properties)] if properties else [])])
