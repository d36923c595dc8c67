"""The HTTP pages of a node: what they answer for a node that is well, one that is not, and nonsense."""

import asyncio
import json
import logging
import socket
from dataclasses import astuple
from typing import Any

import aiohttp
import pytest

from mayfly.node.http import HttpServer, HttpSettings, PagePorts
from mayfly.node.settings.kinds import Address
from tests.node.http.served import address_of, http_server
from tests.node.http.some_node import SomeNode
from tests.waiting import BOUND_S


class Answer:
    """Status, headers and text of an answer."""

    def __init__(self, status: int, headers: dict[str, str], text: str) -> None:
        self.status = status
        self.headers = headers
        self.text = text

    @property
    def json(self) -> Any:
        assert self.headers["Content-Type"].startswith("application/json")
        return json.loads(self.text)


def ask(path: str, node: SomeNode | None = None, method: str = "GET") -> Answer:
    async def serve_and_ask() -> Answer:
        server = http_server(node or SomeNode())
        await server.start()
        try:
            from yarl import URL

            url = URL(f"http://{address_of(server)}{path}", encoded=True)
            async with aiohttp.ClientSession() as session, session.request(method, url) as response:
                return Answer(response.status, dict(response.headers), await response.text())
        finally:
            await server.stop()

    return asyncio.run(serve_and_ask())


def test_health_follows_the_node() -> None:
    node = SomeNode()
    assert ask("/health/live", node).status == 200
    assert ask("/health/ready", node).json == {"status": "ready", "alarms": []}
    node.alarm_texts = ["5 bytes free"]
    answer = ask("/health/ready", node)
    assert (answer.status, answer.json) == (200, {"status": "ready", "alarms": ["5 bytes free"]})
    node.live = False
    node.not_ready_because = "shard 3 has no leader"
    assert ask("/health/live", node).status == 503
    answer = ask("/health/ready", node)
    assert answer.status == 503
    assert answer.json["reason"] == "shard 3 has no leader"
    assert answer.json["alarms"] == ["5 bytes free"]


def test_status_and_index_are_json() -> None:
    assert ask("/status").json["node"]["name"] == "node1"
    assert "/metrics" in ask("/").json["pages"]


@pytest.mark.parametrize(
    ("path", "vhost", "name"),
    [
        ("/queues/%2F/orders", "/", "orders"),
        ("/queues/%2F/a%2Fb%20c", "/", "a/b c"),
        ("/queues/tenant/%C3%A9t%C3%A9", "tenant", "été"),
    ],
)
def test_queues_are_found_by_vhost_and_name(path: str, vhost: str, name: str) -> None:
    assert ask(path).json == {"vhost": vhost, "name": name, "shard": 3}


def test_what_is_not_there_is_told_in_json() -> None:
    answer = ask("/queues/%2F/absent")
    assert answer.status == 404
    assert answer.json["error"] == "this node knows no queue 'absent' in vhost '/'"
    answer = ask("/nowhere")
    assert answer.status == 404
    assert answer.json["error"] == "there is no page /nowhere; / lists those that there are"
    assert ask("/api/nowhere").json == {"error": "Object Not Found", "reason": "Not Found"}
    answer = ask("/status", method="POST")
    assert answer.status == 405
    assert "POST is not possible here" in answer.json["error"]
    assert "GET" in answer.headers["Allow"]


def test_a_failure_inside_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    node = SomeNode()
    node.broken = True
    with caplog.at_level(logging.ERROR):
        answer = ask("/status", node)
    assert answer.status == 500
    assert "secret" not in answer.text
    assert "secret inner detail" in caplog.text


def test_metrics_are_in_the_text_format_of_prometheus() -> None:
    from prometheus_client.parser import text_string_to_metric_families

    answer = ask("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    assert samples["mayfly_queue_messages", (("queue", 'a"b\n'), ("vhost", "/"))] == 3
    assert samples["mayfly_published_total", ()] == 12
    assert samples["mayfly_expired_total", ()] == 5
    ends = ("0.01", "0.5", "10.0")
    buckets = {end: samples["mayfly_lag_seconds_bucket", (("le", end), ("shard", "1"))] for end in ends}
    assert buckets == {"0.01": 2, "0.5": 2, "10.0": 5}
    assert samples["mayfly_lag_seconds_bucket", (("le", "+Inf"), ("shard", "1"))] == 6
    assert samples["mayfly_lag_seconds_count", (("shard", "1"),)] == 6
    assert samples["mayfly_lag_seconds_sum", (("shard", "1"),)] == 9.5
    assert samples["process_resident_memory_bytes", ()] > 0


def test_garbage_at_the_port_leaves_no_traceback_and_serves_on(caplog: pytest.LogCaptureFixture) -> None:
    async def throw_garbage() -> int:
        server = http_server(SomeNode())
        await server.start()
        try:
            for garbage in (
                b"\0\xff" * 100,
                b"AMQP\0\0\x09\1",
                b"GET / HTTP/9.9\r\n\r\n",
                b"GET " + b"a" * 99999,
            ):
                reader, writer = await asyncio.open_connection(*astuple(address_of(server)))
                writer.write(garbage)
                await asyncio.wait_for(reader.read(1000), BOUND_S)
                writer.close()
            url = f"http://{address_of(server)}/health/live"
            async with aiohttp.ClientSession() as session, session.get(url) as response:
                return response.status
        finally:
            await server.stop()

    with caplog.at_level(logging.INFO):
        assert asyncio.run(throw_garbage()) == 200
    assert not [record for record in caplog.records if record.exc_info]


def test_a_taken_port_is_an_error_at_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = HttpServer(PagePorts(SomeNode()), HttpSettings(Address("127.0.0.1", taken.getsockname()[1])))
        with pytest.raises(OSError, match="address already in use"):
            asyncio.run(server.start())
