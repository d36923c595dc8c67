"""Channels and consumers as RabbitMQ's management API shows them, and to whom.

    python -m tests.golden.client_pages AMQP_PORT HTTP_PORT            what a broker shows, on standard output
    python -m tests.golden.client_pages AMQP_PORT HTTP_PORT --write    the same, into the recording ours is held against

Ports of 127.0.0.1, user guest, who makes the other users and a vhost, and takes them away again. RabbitMQ shows
channels as they were up to 5 s ago, so the broker gets some seconds; and consumers for some seconds after their end, so
it gets half a minute between two recordings.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pika

from tests.golden.one_answer_a_line import keep
from tests.waiting import BOUND_S

RECORDING: Final = Path(__file__).parent / "client-pages-rabbitmq-3.10.8.json"
SETTLE_S: Final = 12.0
"""After so long RabbitMQ shows what is."""

USERS: Final = {
    "mine": ("management", True),
    "maker": ("policymaker", True),
    "watch": ("monitoring", False),
    "outsider": ("management", False),
    "nobody": ("", True),
}
"""User (and password) -> tags, and whether there are permissions in the vhost /."""

VARYING: Final = frozenset({"garbage_collection", "idle_since", "message_stats", "reductions", "reductions_details"})
"""Fields of RabbitMQ whose values are others each time: they are not recorded, and there are none of them here."""

PAGES: Final = [
    *(("GET", path, "guest") for path in (
        "channels", "vhosts/%2F/channels", "vhosts/other/channels", "vhosts/none/channels", "channels/CHANNEL 1.1",
        "channels/CHANNEL 1.2", "channels/CHANNEL 1.9", "channels/none", "connections/CLIENT 1/channels",
        "connections/none/channels", "consumers", "consumers/%2F", "consumers/other", "consumers/none",
    )),
    *(("GET", path, user) for user in ("watch", "mine", "maker", "outsider", "nobody") for path in (
        "channels", "vhosts/%2F/channels", "vhosts/other/channels", "channels/CHANNEL 1.3", "channels/CHANNEL 2.1",
        "connections/CLIENT 1/channels", "connections/CLIENT 2/channels", "consumers", "consumers/%2F",
        "consumers/other",
    )),
    ("GET", "channels?page=1&page_size=500", "mine"),
]  # fmt: skip
"""What is asked for, by whom. CLIENT and CHANNEL stand for the names of these."""


class Scene:
    """Clients with channels and consumers of many kinds: 1 is mine's, 2 guest's, 3 guest's in another vhost."""

    def __init__(self, amqp_port: int) -> None:
        self._port = amqp_port
        self.clients = [self._connect("mine", "/"), self._connect("guest", "/"), self._connect("guest", "other")]
        mine, guest, other = self.clients
        self._consume(mine)
        self._wait(mine)
        guest.channel(1)
        channel = other.channel(1)
        channel.queue_declare("theirs", durable=True, arguments={"x-queue-type": "quorum"})
        channel.basic_consume("theirs", _ignore, consumer_tag="elsewhere")

    def _connect(self, user: str, vhost: str) -> Any:
        login = pika.PlainCredentials(user, user)
        return pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", self._port, vhost, credentials=login, heartbeat=0)
        )

    def _consume(self, client: Any) -> None:
        quorum = {"x-queue-type": "quorum"}
        first = client.channel(1)
        first.queue_declare("confirmed", durable=True, arguments=quorum)
        first.confirm_delivery()
        for _ in range(3):
            first.basic_publish("", "confirmed", b"message")
        first.basic_qos(prefetch_count=7)
        arguments = {"x-priority": 5, "text": "long", "list": [1, "two"], "table": {"true": True}}
        self._delivered = 0
        first.basic_consume("confirmed", self._count, consumer_tag="with arguments", arguments=arguments)
        second = client.channel(2)
        second.queue_declare("exclusive", exclusive=True)
        second.tx_select()
        for _ in range(2):
            second.basic_publish("", "exclusive", b"uncommitted")
        second.basic_qos(prefetch_count=4, global_qos=True)
        second.basic_consume("exclusive", _ignore, consumer_tag="alone", auto_ack=True, exclusive=True)
        third = client.channel(3)
        third.basic_consume("amq.rabbitmq.reply-to", _ignore, consumer_tag="replies", auto_ack=True)
        fourth = client.channel(4)
        fourth.queue_declare("single", durable=True, arguments={**quorum, "x-single-active-consumer": True})
        for tag in ("first", "second"):
            fourth.basic_consume("single", _ignore, consumer_tag=tag)

    def _count(self, *_: Any) -> None:
        self._delivered += 1

    def _wait(self, client: Any) -> None:
        until = time.monotonic() + 60.0
        while self._delivered < 3 and time.monotonic() < until:
            client.process_data_events(0.1)
        assert self._delivered == 3, f"{self._delivered} of 3 messages have come"

    def close(self) -> None:
        """The clients go, with what they have declared."""
        for queue, client in (("confirmed", 0), ("single", 0), ("theirs", 2)):
            self.clients[client].channel().queue_delete(queue)
        for each in self.clients:
            each.close()


def _ignore(*_: Any) -> None:
    """A message has come."""


def ask(http_port: int, method: str, path: str, user: str, content: object = None) -> tuple[int, Any]:
    """Status and JSON (None: none) of an answer; `path` without `/api/`."""
    request = urllib.request.Request(f"http://127.0.0.1:{http_port}/api/{path}", method=method)
    request.add_header("Authorization", "Basic " + base64.b64encode(f"{user}:{user}".encode()).decode())
    if content is not None:
        request.data = json.dumps(content).encode()
        request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=BOUND_S) as found:
            status, text = found.status, found.read()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
    return status, json.loads(text) if text else None


def make_users(http_port: int) -> None:
    """And the other vhost."""
    _done(ask(http_port, "PUT", "vhosts/other", "guest", {}))
    every = {"configure": ".*", "write": ".*", "read": ".*"}
    _done(ask(http_port, "PUT", "permissions/other/guest", "guest", every))
    for name, (tags, may) in USERS.items():
        _done(ask(http_port, "PUT", f"users/{name}", "guest", {"password": name, "tags": tags}))
        if may:
            _done(ask(http_port, "PUT", f"permissions/%2F/{name}", "guest", every))


def remove_users(http_port: int) -> None:
    """And the other vhost."""
    for path in ("vhosts/other", *(f"users/{name}" for name in USERS)):
        _done(ask(http_port, "DELETE", path, "guest"))


def _done(answer: tuple[int, Any]) -> None:
    assert answer[0] in (201, 204), answer


def pages(amqp_port: int, http_port: int, settle_s: float) -> dict[str, list[Any]]:
    """Status and content of every page, by user and path. Names and ports of clients and nodes are the same each time;
    rows are in the order of their names."""
    make_users(http_port)
    try:
        scene = Scene(amqp_port)
        try:
            time.sleep(settle_s)
            sockets = [client._impl._transport._sock.getsockname()[1] for client in scene.clients]
            names = [f"127.0.0.1:{port} -> 127.0.0.1:{amqp_port}" for port in sockets]
            found = {}
            for method, path, user in PAGES:
                status, content = ask(http_port, method, _real(path, names), user)
                found[f"{user} {path}"] = [status, _named(content, names, sockets)]
            return found
        finally:
            scene.close()
    finally:
        remove_users(http_port)


def _real(path: str, names: list[str]) -> str:
    path = re.sub(r"CHANNEL (\d)\.(\d)", lambda found: quote(f"{names[int(found[1]) - 1]} ({found[2]})", safe=""), path)
    return re.sub(r"CLIENT (\d)", lambda found: quote(names[int(found[1]) - 1], safe=""), path)


def _named(content: Any, names: list[str], ports: list[int]) -> Any:
    text = json.dumps(content)
    for place, (name, port) in enumerate(zip(names, ports, strict=True), 1):
        text = text.replace(name, f"CLIENT {place}").replace(f'"peer_port": {port}', f'"peer_port": "PORT {place}"')
    text = re.sub(r'"node": "[^"]*"', '"node": "NODE"', text)
    renamed = without(json.loads(text), VARYING)
    if isinstance(renamed, list):
        renamed.sort(key=_sort_key)
    elif isinstance(renamed, dict) and "items" in renamed:
        renamed["items"].sort(key=_sort_key)
    return renamed


def without(content: Any, names: frozenset[str]) -> Any:
    """The content without the fields of these names."""
    if isinstance(content, list):
        return [without(each, names) for each in content]
    if isinstance(content, dict):
        return {name: without(each, names) for name, each in content.items() if name not in names}
    return content


def _sort_key(row: dict[str, Any]) -> str:
    return str(row.get("name") or row["consumer_tag"])


def main() -> None:
    """Print, or write the recording."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("amqp_port", type=int)
    parser.add_argument("http_port", type=int)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    found = pages(options.amqp_port, options.http_port, SETTLE_S)
    keep(found, RECORDING, options.write)


if __name__ == "__main__":
    main()
