"""The commands of operators, with a node as in the product behind them."""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from click.testing import CliRunner, Result
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

from mayfly.node.command_line import main
from mayfly.node.command_line.check_command import _not_reached
from mayfly.node.command_line.report_command import HIDDEN, without_secrets
from tests.node.http.real_node import Node
from tests.waiting import BOUND_S, until_judged, wait_for

ALTERNATE = '{"alternate-exchange": "amq.fanout"}'


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node"))
    yield node
    node.stop()


def run(node: Node, *words: str, stdin: bytes | None = None, user: str = "guest") -> Result:
    login = ["--node", node.address, "--user", user, "--password", user]
    return CliRunner().invoke(main, [*words, *login], input=stdin)


def done(node: Node, *words: str, stdin: bytes | None = None) -> str:
    result = run(node, *words, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result.output


def refused(node: Node, *words: str) -> str:
    result = run(node, *words)
    assert result.exit_code == 1, result.output
    return result.output


def test_messages_go_in_are_looked_at_and_come_out(node: Node) -> None:
    done(node, "queue", "declare", "jobs", "--type", "quorum", "--arguments", '{"x-max-length": 10}')
    assert node.ask("GET", "/api/queues/%2F/jobs")[1]["arguments"] == {"x-max-length": 10, "x-queue-type": "quorum"}
    done(node, "queue", "publish", "jobs", "first", "--properties", '{"message_id": "m1"}')
    done(node, "queue", "publish", "jobs", "-", stdin=b"\xff\x00")
    assert "key 'none' leads nowhere" in refused(node, "queue", "publish", "none", "x")
    peeked = done(node, "queue", "peek", "jobs", "--count", "5")
    assert "-- 1: key 'jobs', 5 bytes" in peeked and '{"message_id": "m1"}' in peeked and "first" in peeked
    assert "-- 2: key 'jobs', 2 bytes, in base64" in peeked and "/wA=" in peeked
    got = json.loads(done(node, "queue", "get", "jobs", "--json"))
    assert [(row["payload"], row["redelivered"]) for row in got] == [("first", True)]
    assert "purged" in done(node, "queue", "purge", "jobs")
    assert done(node, "queue", "get", "jobs") == "no message is ready\n"
    assert "is deleted" in done(node, "queue", "delete", "jobs", "--if-empty", "--if-unused")
    assert "there is no queue 'jobs' in vhost '/'" in refused(node, "queue", "get", "jobs")
    assert "not JSON" in run(node, "queue", "declare", "q", "--arguments", "{").output
    assert "is not a JSON object" in run(node, "queue", "declare", "q", "--arguments", "[]").output
    assert "x-message-ttl" in refused(node, "queue", "declare", "q", "--arguments", '{"x-message-ttl": "soon"}')


def test_exchanges_and_bindings_are_made_listed_and_undone(node: Node) -> None:
    done(node, "exchange", "declare", "orders", "--type", "topic", "--arguments", ALTERNATE)
    done(node, "exchange", "declare", "later", "--transient", "--internal")
    done(node, "queue", "declare", "bound")
    done(node, "binding", "add", "orders", "bound", "--key", "job.#", "--arguments", '{"n": 1}')
    done(node, "binding", "add", "orders", "later", "--to-exchange")
    exchanges = {row["name"]: row for row in json.loads(done(node, "exchange", "list", "--vhost", "/", "--json"))}
    assert exchanges["orders"]["type"] == "topic" and exchanges["later"]["internal"]
    shown = " ".join(done(node, "binding", "list", "--columns", "source,destination,kind,key,arguments").split())
    assert 'orders bound queue job.# {"n": 1}' in shown and "orders later exchange -" in shown
    assert "is not bound" in refused(node, "binding", "delete", "orders", "bound", "--key", "job.#")
    done(node, "binding", "delete", "orders", "bound", "--key", "job.#", "--arguments", '{"n": 1}')
    done(node, "binding", "delete", "orders", "later", "--to-exchange")
    assert not [row for row in node.ask("GET", "/api/bindings")[1] if row["source"] == "orders"]
    done(node, "exchange", "delete", "orders", "--if-unused")
    assert "there is no exchange 'orders' in vhost '/'" in refused(node, "exchange", "delete", "orders")
    assert "there is no column 'x'; there are vhost, name" in run(node, "exchange", "list", "--columns", "x").output


def test_clients_are_listed_and_connections_closed(node: Node) -> None:
    node.channel.queue_declare("consumed")
    node.channel.basic_consume("consumed", lambda *_: None, consumer_tag="reader")
    (connection,) = json.loads(done(node, "connection", "list", "--json"))
    assert (connection["user"], connection["vhost"]) == ("guest", "/")
    (channel,) = json.loads(done(node, "channel", "list", "--json", "--connection", connection["name"]))
    assert channel["consumer_count"] == 1
    assert "consumed" in done(node, "consumer", "list", "--vhost", "/") and "reader" in done(node, "consumer", "list")
    assert connection["name"] in done(node, "connection", "list", "--columns", "name,user")
    assert "there is no connection 'none'" in refused(node, "connection", "close", "none")
    done(node, "connection", "close", connection["name"], "--reason", "enough")
    wait_for(lambda: json.loads(done(node, "connection", "list", "--json")) == [], "the connection to be gone")
    with pytest.raises(ConnectionClosedByBroker, match="enough"):
        node.connection.process_data_events(BOUND_S)


def test_a_consumer_is_cancelled_and_a_channel_closed(node: Node) -> None:
    node.connect()
    node.channel.queue_declare("left")
    node.channel.basic_consume("left", lambda *_: None, consumer_tag="reader")
    (channel,) = json.loads(done(node, "channel", "list", "--json"))
    assert "there is no consumer 'none'" in refused(node, "consumer", "cancel", "none", "--channel", channel["name"])
    assert "'reader' is cancelled" in done(node, "consumer", "cancel", "reader", "--channel", channel["name"])
    wait_for(lambda: json.loads(done(node, "consumer", "list", "--json")) == [], "the consumer to be gone")
    assert "there is no channel 'none'" in refused(node, "channel", "close", "none")
    assert "is closed" in done(node, "channel", "close", channel["name"], "--reason", "enough")
    with pytest.raises(ChannelClosedByBroker, match="enough"):
        node.channel.queue_declare("left", passive=True)


def test_what_is_wrong_is_found_by_a_check(node: Node) -> None:
    well = ("serving", "alarms", "quorum", "dead-letters")
    assert [line.split() for line in done(node, "check", *well).splitlines()] == [[name, "ok"] for name in well]
    # It was told to take any port, and says so.
    assert re.search(r"^ports +node1: amqp 127.0.0.1:0: .*refused", refused(node, "check"), re.MULTILINE)
    assert _not_reached(node.address) == ""
    assert list(json.loads(run(node, "check", "alarms", "quorum", "--json").output)) == ["alarms", "quorum"]
    result = run(node, "check", "health")
    assert result.exit_code == 2 and "there is no check 'health'; there are serving, alarms" in result.output
    dead = {"x-message-ttl": 1, "x-dead-letter-exchange": "amq.direct", "x-dead-letter-routing-key": "nowhere"}
    done(node, "queue", "declare", "dying", "--arguments", json.dumps({**dead, "x-dead-letter-exchange": "gone"}))
    done(node, "queue", "publish", "dying", "x")
    wait_for(lambda: run(node, "check", "dead-letters").exit_code == 1, "a dead letter to be parked")
    assert "parked dead letters" in run(node, "check", "dead-letters").output
    assert CliRunner().invoke(main, ["check", "serving", "--node", "127.0.0.1:1"]).exit_code == 1


def test_a_report_is_one_file_without_secrets(node: Node, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    before = os.umask(0)
    try:
        assert f"{file}: " in done(node, "report", str(file), "--all-nodes")
    finally:
        os.umask(before)
    text = file.read_text()
    report = json.loads(text)
    assert report["pages"]["/status"]["shards"] == 2 and report["pages"]["/health/ready"]["status"] == "ready"
    assert any(line.startswith("mayfly_raft_term") for line in report["pages"]["/metrics"])
    assert [list(page) for page in report["pages"].values() if isinstance(page, dict) and "failed" in page] == []
    users = node.ask("GET", "/api/users")[1]
    assert all(user["password_hash"] not in text for user in users) and "guest:guest" not in text
    assert "can't be written" in refused(node, "report", str(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600, "names of users and clients are in it, whatever the umask"
    assert list(report["nodes"]) == [] or all("/status" in pages for pages in report["nodes"].values())


def test_what_clients_do_is_seen_for_a_while(node: Node) -> None:
    done(node, "queue", "declare", "seen")
    done(node, "queue", "declare", "unseen")
    until_judged(lambda round: is_seen(node, 3 * 2**round), "what a client did in time for the trace", rounds=5)
    assert "0 events" in done(node, "trace", "--of", "nobody", "--seconds", "0.1")
    assert "there is no queue 'none'" in refused(node, "trace", "--queue", "none", "--seconds", "0.1")
    assert run(node, "trace").exit_code == 2


def is_seen(node: Node, seconds: int) -> bool:
    """False if the trace may have ended before this machine let the client do all of it."""
    watches = node.parts.broker.traffic.watches
    found: list[Result] = []
    words = ["trace", "--queue", "seen", "--of", "guest", "--seconds", str(seconds), "--json"]
    looking = threading.Thread(target=lambda: found.append(run(node, *words)))
    client = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.parts.listener.port, heartbeat=0))
    channel = client.channel()
    channel.confirm_delivery()
    began_s = time.monotonic()
    looking.start()
    wait_for(lambda: watches or not looking.is_alive(), "a trace to begin")
    for name in ("unseen", "seen"):
        channel.basic_publish("", name, b"12345")
        method, _, _ = channel.basic_get(name)
        channel.basic_ack(method.delivery_tag)
    # The node has done what came before that.
    client.close()
    in_time = time.monotonic() - began_s < seconds
    looking.join(BOUND_S)
    if not in_time:
        return False
    events = json.loads(found[0].output)["events"]
    assert [(event["what"], event["queues"]) for event in events] == [
        (what, ["seen"]) for what in ("published", "delivered", "settled")
    ]
    assert (events[0]["bytes"], events[0]["key"], events[1]["count"], events[2]["count"]) == (5, "seen", 1, 1)
    assert not watches
    return True


def test_parts_of_a_running_node_log_more(node: Node) -> None:
    try:
        done(node, "log", "level", "mayfly.cluster.transport", "debug")
        assert "mayfly.cluster.transport" in done(node, "log", "levels")
        assert logging.getLogger("mayfly.cluster.transport.outgoing").isEnabledFor(logging.DEBUG)
        assert "one of mayfly, asyncio" in refused(node, "log", "level", "root", "debug")
        assert run(node, "log", "level", "mayfly", "loud").exit_code == 2
    finally:
        done(node, "log", "level", "mayfly.cluster.transport", "default")
    assert "mayfly.cluster.transport" not in done(node, "log", "levels")


def test_secrets_are_hidden_wherever_they_are() -> None:
    given = {"a": [{"default_pass": "x", "Password": "y", "token": ""}], "password_hash": "z", "n": 1}
    assert without_secrets(given) == {
        "a": [{"default_pass": "x", "Password": HIDDEN, "token": ""}], "password_hash": HIDDEN, "n": 1,
    }  # fmt: skip
