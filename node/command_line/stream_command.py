"""`mayfly stream`: what a stream has, the latest of a routing key, and what is to go (RULES J3, J5)."""

import json
from typing import Any
from urllib.parse import quote, urlencode

import click

from mayfly.node.command_line.arguments import in_a_vhost
from mayfly.node.command_line.operator_client import as_administrator, manage


@click.group("stream")
def command() -> None:
    """Look at a stream, and remove messages from it."""


@command.command("show")
@click.argument("stream")
@in_a_vhost
@click.option("--json", "as_json", is_flag=True, help="As JSON, for scripts.")
@as_administrator
def show(stream: str, vhost: str, as_json: bool, address: str, user: str, password: str) -> None:
    """Show the offsets, sizes and keys of STREAM, what expires next, its markers, where its consumers are, and how far
    behind copies are."""
    found = manage("GET", address, _path(vhost, stream), None, user, password, _thing(vhost, stream))
    _tell(found, as_json)


@command.command("latest")
@click.argument("stream")
@click.argument("key")
@in_a_vhost
@click.option("--json", "as_json", is_flag=True, help="As JSON, for scripts.")
@as_administrator
def latest(stream: str, key: str, vhost: str, as_json: bool, address: str, user: str, password: str) -> None:
    """Show the latest message of STREAM with the routing key KEY. Exit code 1 if there is none."""
    path = f"{_path(vhost, stream)}/latest?{urlencode({'key': key})}"
    found = manage("GET", address, path, None, user, password, f"a message with the key '{key}'")
    _tell(found, as_json)


@command.command("delete-message")
@click.argument("stream")
@click.argument("offset", type=click.IntRange(0))
@in_a_vhost
@as_administrator
def delete_message(stream: str, offset: int, vhost: str, address: str, user: str, password: str) -> None:
    """Delete the message of STREAM at OFFSET. Exit code 1 if there is none."""
    manage("DELETE", address, f"{_path(vhost, stream)}/messages/{offset}", None, user, password)
    click.echo(f"the message at offset {offset} is deleted")


@command.command("purge-key")
@click.argument("stream")
@click.argument("key")
@in_a_vhost
@as_administrator
def purge_key(stream: str, key: str, vhost: str, address: str, user: str, password: str) -> None:
    """Delete all messages of STREAM with the routing key KEY."""
    path = f"{_path(vhost, stream)}/keys?{urlencode({'key': key})}"
    done = manage("DELETE", address, path, None, user, password)
    click.echo(f"{done['purged']} messages with the key '{key}' are deleted")


def _tell(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        if name == "consumers":
            for each in value:
                click.echo(
                    f"consumer {each['consumer_tag'] or 'unknown'} on {each['node'] or 'unknown'}: next offset "
                    f"{each['next_offset']}, {each['lag']} behind, {each['unacknowledged']} unacknowledged"
                )
            continue
        if name == "consumer_tags":
            for each in value:
                click.echo(
                    f"consumer tag {each['consumer_tag'] or 'unknown'}: {each['consumers']} of these, next offset "
                    f"{each['next_offset']}, {each['lag']} behind"
                )
            continue
        if name == "upstream":
            if value is None:
                continue
            lag = "-" if value["lag"] is None else value["lag"]
            reason = f": {value['reason']}" if value["reason"] else ""
            whose = f"{value['stream']} of cluster {value['cluster']}"
            click.echo(f"copies {whose}: {lag} behind, {value['state']}{reason}")
            continue
        if isinstance(value, list):
            for each in value:
                lag = "-" if each["lag"] is None else each["lag"]
                click.echo(f"{'copies' if name == 'origins' else 'copied by'} {each['name']}: {lag} behind")
            continue
        click.echo(f"{name.replace('_', ' ')}: {'-' if value is None else value}")


def _path(vhost: str, stream: str) -> str:
    return f"/api/mayfly/queues/{quote(vhost, safe='')}/{quote(stream, safe='')}/stream"


def _thing(vhost: str, stream: str) -> str:
    return f"stream '{stream}' in vhost '{vhost}'"
