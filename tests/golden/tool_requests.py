"""What tools for RabbitMQ's management API ask for, and in what shape it is answered.

    python -m tests.golden.tool_requests AMQP_PORT HTTP_PORT            what a broker answers, on standard output
    python -m tests.golden.tool_requests AMQP_PORT HTTP_PORT --write    the same, into the recording

Ports of 127.0.0.1, user guest, of a broker with nothing in it. Of an answer that refuses something all is recorded; of
others the names of fields and the types of their values. RabbitMQ shows clients and counts as they were up to 5 s ago,
so it gets some seconds before it is asked.
"""

from __future__ import annotations

import argparse
import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import pika
from pika.exceptions import AMQPError

from tests.golden.one_answer_a_line import keep
from tests.interop.test_management_tools import RECORDED as ADMIN_REQUESTS
from tests.node.http.test_requests_of_tools import OPERATOR_STEPS, STEPS
from tests.waiting import BOUND_S

RECORDING: Final = Path(__file__).parent / "tool-requests-rabbitmq-4.3.6.json"
SETTLE_S: Final = 12.0
_OWN_NAME: Final = "of a tool"

SETUP: Final[list[tuple[str, str, object]]] = [
    *(("PUT", f"queues/%2F/{name}", {"durable": True}) for name in ("celery", "celery.two", "other")),
    ("PUT", "queues/%2F/nsb", {"durable": True, "arguments": {"x-queue-type": "quorum"}}),
    ("PUT", "policies/%2F/nsb.nsb.delivery-limit", {
        "name": "nsb.nsb.delivery-limit", "vhost": "/", "pattern": "nsb", "apply-to": "quorum_queues",
        "definition": {"delivery-limit": -1}, "priority": 100,
    }),
    ("PUT", "policies/%2F/typed", {"pattern": "^typed", "definition": {"max-length": 5}, "priority": 3}),
    ("PUT", "vhost-limits/%2F/max-queues", {"value": 1000}),
    ("PUT", "global-parameters/cluster_tags", {"value": {"zone": "a"}}),
    *(("POST", "exchanges/%2F/amq.default/publish", {
        "properties": {}, "routing_key": "celery", "payload": str(number), "payload_encoding": "string",
    }) for number in range(3)),
]  # fmt: skip

PAGES: Final = [
    "overview", "whoami", "cluster-name", "vhosts", "vhosts/%2F", "users", "users/guest",
    "permissions", "policies", "operator-policies", "vhost-limits", "user-limits", "topic-permissions",
    "parameters", "parameters/federation-upstream/%2F", "global-parameters", "feature-flags", "exchanges",
    "bindings", "consumers", "connections", "channels", "queues",
    "queues/detailed", "queues/%2F/celery", "queues/%2F/celery/bindings",
    "queues/%2F/nsb", "queues/%2F/nsb/bindings", "queues/%2F?page=1&page_size=500", "queues/%2F/none", "nodes",
    "nodes/NODE", "nodes/NODE/memory", "nodes/none", "aliveness-test/%2F", "aliveness-test/none",
    "definitions", "health/checks/alarms", "health/checks/local-alarms", "health/checks/node-is-quorum-critical",
    "deprecated-features/used", "auth/attempts/NODE", "auth/attempts/NODE/source", "auth/hash_password/pw",
    "vhosts/%2F/deletion/protection", "vhosts/%2F/permissions", "users/guest/permissions",
    *(f"queues/%2F?page=1&use_regex=true&pagination=false&name=%5Ecelery&page_size=100&sort={sort}" for sort in (
        "name", "messages", "state", "message_stats.publish_details.rate",
    )),
]  # fmt: skip
"""NODE stands for the name of the node."""


class Request(NamedTuple):
    """Under `key` its answer is recorded."""

    key: str
    method: str
    path: str
    content: object = None


class Broker:
    """One with nothing in it."""

    def __init__(self, amqp_port: int, http_port: int, settle_s: float) -> None:
        self._http = f"http://127.0.0.1:{http_port}/api/"
        self._settle_s = settle_s
        parameters = pika.ConnectionParameters(
            "127.0.0.1", amqp_port, heartbeat=0, client_properties={"connection_name": _OWN_NAME}
        )
        self._client = pika.BlockingConnection(parameters)

    def play(self) -> dict[str, list[Any]]:
        """Status and shape of each answer. The client is gone then."""
        answers: dict[str, list[Any]] = {}
        node = self.ask("GET", "nodes")[1][0]["name"]
        for request in self._requests(node):
            status, content = self.ask(request.method, request.path, request.content)
            shown = json.dumps(content if status >= 400 else shape(content)).replace(node, "NODE")
            answers[request.key] = [status, json.loads(shown)]
        # One of the requests is that its connection be closed.
        with suppress(AMQPError):
            self._client.close()
        return answers

    def ask(self, method: str, path: str, content: object = None) -> tuple[int, Any]:
        """Status and JSON, None for none."""
        login = base64.b64encode(b"guest:guest").decode()
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        body = None if content is None else json.dumps(content).encode()
        try:
            with urllib.request.urlopen(
                urllib.request.Request(self._http + path, body, headers, method=method), timeout=BOUND_S
            ) as answer:
                status, octets = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, octets = error.code, error.read()
        try:
            return status, json.loads(octets) if octets else None
        except ValueError:
            return status, octets.decode()

    def _requests(self, node: str) -> Iterator[Request]:
        for number, (method, path, content) in enumerate(SETUP):
            yield Request(f"{number} {method} {path}", method, path, content)
        self._client.channel().basic_consume("celery.two", lambda *_: None, consumer_tag="tool")
        self._client.process_data_events(self._settle_s)
        for path in PAGES:
            yield Request(f"GET {path}", "GET", path.replace("NODE", node))
        for number, (method, path, content, _) in enumerate(STEPS):
            yield Request(f"terraform {number} {method} {path}", method, path, content)
        for number, (method, path, content, _) in enumerate(OPERATOR_STEPS):
            yield Request(f"operator {number} {method} {path}", method, path, content)
            if (method, path) == ("GET", "bindings/top/e/x/q/q"):
                rows = self.ask("GET", path)[1]
                (key,) = [row["properties_key"] for row in rows if row["arguments"] == {"a": "b"}]
                yield Request(f"operator {number} DELETE by its key", "DELETE", f"{path}/{quote(key, safe='')}")
        yield from self._admin_requests()

    def _own_connection(self) -> str:
        """Its name over HTTP. One that was closed just now may still be in the list."""
        rows = self.ask("GET", "connections")[1]
        (name,) = [row["name"] for row in rows if row.get("client_properties", {}).get("connection_name") == _OWN_NAME]
        return str(name)

    def _admin_requests(self) -> Iterator[Request]:
        exported: dict[str, Any] = {}
        connection = quote(self._own_connection(), safe="")
        for number, (method, full, body, _) in enumerate(json.loads(ADMIN_REQUESTS.read_text())):
            path = full.removeprefix("/api/")
            content = exported[path] if body == "EXPORTED" else None if body is None else json.loads(body)
            asked = path.replace("CONNECTION", connection)
            yield Request(f"rabbitmqadmin {number} {method} {path}", method, asked, content)
            if path.startswith("definitions") and method == "GET":
                exported[path] = self.ask("GET", path)[1]


def shape(value: Any) -> Any:
    """Names of fields and the types of values; rows of a list are one, which has the fields of all."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        merged: Any = None
        for each in value:
            merged = both(merged, shape(each))
        return [] if merged is None else [merged]
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, int | float) else "null" if value is None else "text"


def both(one: Any, other: Any) -> Any:
    """A shape of what is of either; of two types both are named."""
    if one is None or one == other:
        return other
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: both(one.get(key), other[key]) if key in other else one[key] for key in one | other}
    if isinstance(one, list) and isinstance(other, list):
        return one if not other else other if not one else [both(one[0], other[0])]
    if isinstance(one, str) and isinstance(other, str):
        return " or ".join(sorted({*one.split(" or "), *other.split(" or ")}))
    return other if isinstance(one, str) else one


def main() -> None:
    """Record."""
    parser = argparse.ArgumentParser()
    parser.add_argument("amqp_port", type=int)
    parser.add_argument("http_port", type=int)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    keep(Broker(options.amqp_port, options.http_port, SETTLE_S).play(), RECORDING, options.write)


if __name__ == "__main__":
    main()
