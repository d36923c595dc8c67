"""Forecasts and policies on trial (RULES R2, R3), on a node as in the product: what they say is what happens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from click.testing import CliRunner

from mayfly.node.command_line import main
from tests.node.http.real_node import Node
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node"))
    node.add_user("mine", "management", ".*")
    node.add_user("nobody", "management", None)
    node.add_user("maker", "policymaker", ".*")
    yield node
    node.stop()


def command(node: Node, *words: str) -> str:
    login = ["--node", node.address, "--user", "guest", "--password", "guest"]
    result = CliRunner().invoke(main, [*words, *login])
    assert result.exit_code == 0, result.output
    return result.output


def row_of(answer: dict[str, Any], name: str) -> dict[str, Any]:
    (row,) = [row for row in answer["queues"] if row["name"] == name]
    return row  # type: ignore[no-any-return]


def counts(node: Node, name: str) -> dict[str, Any]:
    status, row = node.ask("GET", f"/api/mayfly/queues/%2F/{name}")
    assert status == 200
    return row  # type: ignore[no-any-return]


def test_r2_a_forecast_tells_by_queue_what_happens_in_each_window(node: Node) -> None:
    """R2: as JSON, for who sees the vhost; as a command, and as metrics."""
    channel = node.channel
    channel.confirm_delivery()
    channel.queue_declare("ahead", durable=True, arguments={"x-allow-schedule": True, "x-expires": 7_200_000})
    for ttl_ms in ("30000", "1800000"):
        channel.basic_publish("", "ahead", b"m", pika.BasicProperties(expiration=ttl_ms))
    channel.basic_publish("", "ahead", b"m", pika.BasicProperties(headers={"x-delay": 40_000}))
    status, answer = node.ask("GET", "/api/mayfly/forecast", "mine")
    assert status == 200 and answer["windows_ms"] == [60_000, 3_600_000, 86_400_000]
    row = row_of(answer, "ahead")
    assert [(it["expire"], it["due"], it["retried"], it["lease_ends"]) for it in row["windows"]] == [
        (1, 1, 0, False), (2, 1, 0, False), (2, 1, 0, True),
    ]  # fmt: skip
    assert answer["totals"][2] == {"within_ms": 86_400_000, "expire": 2, "due": 1, "retried": 0, "leases": 1}
    assert node.ask("GET", "/api/mayfly/forecast", "nobody")[1]["queues"] == []
    assert node.ask("GET", "/api/mayfly/forecast/%2F", "nobody")[0] == 401
    some = node.ask("GET", "/api/mayfly/forecast/%2F?within_ms=35000&limit=1")[1]
    assert [(it["within_ms"], it["expire"], it["due"]) for it in some["queues"][0]["windows"]] == [(35_000, 1, 0)]
    shown = command(node, "forecast", "--within", "60", "--vhost", "/")
    assert "ahead" in shown and "60 s" in shown
    assert json.loads(command(node, "forecast", "--json"))["totals"] == answer["totals"]
    metrics = node.text("/metrics/forecast?within_ms=60000")
    assert 'mayfly_forecast_messages{event="expire",queue="ahead",vhost="/",within="60s"} 1.0' in metrics
    assert 'mayfly_forecast_all_messages{event="due",within="60s"} 1.0' in metrics


@pytest.mark.parametrize("query", ["within_ms=0", "within_ms=1.5", "limit=0", "within_ms=1&" * 5 + "within_ms=6"])
def test_r2_nonsense_is_told(node: Node, query: str) -> None:
    windows = "&".join(f"within_ms={n}" for n in range(1, 7)) if query.endswith("6") else query
    status, answer = node.ask("GET", f"/api/mayfly/forecast?{windows}")
    assert (status == 400 and "expected" in answer["reason"]) or "should be" in answer["reason"]


def test_r3_what_a_policy_on_trial_says_is_what_happens_when_it_is_set(node: Node) -> None:
    """R3: nothing is set by the trial; by HTTP and as a command."""
    channel = node.channel
    channel.confirm_delivery()
    for name in ("try.long", "try.leased", "other"):
        channel.queue_declare(name, durable=True)
    for body in (b"a", b"b", b"c"):
        channel.basic_publish("", "try.long", body)
    channel.basic_publish("", "other", b"m")
    policy = {"pattern": "^try", "definition": {"message-ttl": 1, "ttl-applies": "retroactive", "expires": 900_000}}
    path = "/api/policies/%2F/trial"

    def aged() -> bool:
        return bool((counts(node, "try.long")["oldest_ready_age_ms"] or 0) > 10)

    wait_for(aged, "the messages are older than the TTL")
    status, answer = node.ask("POST", f"{path}/try", "maker", policy)
    assert status == 200, answer
    assert [row["name"] for row in answer["queues"]] == ["try.long", "try.leased"]
    row = row_of(answer, "try.long")
    assert (row["expire"], row["behind"], row["drop"], row["policy"]) == (3, 0, 0, [None, "trial"])
    assert row["changes"] == {
        "message_ttl_ms": [None, 1], "expires_ms": [None, 900_000], "ttl_retroactive": [False, True],
    }
    assert row["lease"] == {"ends_in_ms": None, "would_end_in_ms": 900_000, "begins_anew": True}
    assert answer["totals"] == {
        "queues": 2, "expire": 3, "behind": 0, "drop": 0, "leases_begin_anew": 2, "first_lease_ends_in_ms": 900_000,
    }  # fmt: skip
    shown = command(node, "policy", "try", "trial", "^try", json.dumps(policy["definition"]))
    assert "2 queues would have other settings; at once 3 messages would expire" in shown
    assert node.ask("GET", path)[0] == 404 and counts(node, "try.long")["ready"] == 3
    assert node.ask("PUT", path, "maker", policy)[0] == 201
    wait_for(lambda: counts(node, "try.long")["expired"] == 3, "what was foretold has expired")
    assert (counts(node, "try.leased")["lease"]["period_ms"], counts(node, "other")["ready"]) == (900_000, 1)
    answer = node.ask("POST", f"{path}/try", "maker", policy)[1]
    assert (answer["queues"], answer["totals"]["queues"]) == ([], 0)
    assert node.ask("DELETE", path)[0] == 204


def test_r3_an_operator_policy_on_trial_takes_an_administrator(node: Node) -> None:
    node.channel.queue_declare("capped", durable=True)
    for _ in range(3):
        node.channel.basic_publish("", "capped", b"m")
    body = {"pattern": "^capped$", "definition": {"max-length": 1}, "apply-to": "queues"}
    path = "/api/operator-policies/%2F/cap/try"
    assert node.ask("POST", path, "maker", body)[0] == 401
    status, answer = node.ask("POST", path, "guest", body)
    assert (status, answer["totals"]["drop"], answer["queues"][0]["operator_policy"]) == (200, 2, [None, "cap"])


def test_r3_what_would_be_refused_is_refused_on_trial(node: Node) -> None:
    path = "/api/policies/%2F/bad"
    for bad in ({"message-ttl": -1}, {"nonsense": 1}, {}):
        body = {"pattern": ".*", "definition": bad}
        refusal = node.ask("PUT", path, "guest", body)
        assert refusal[0] == 400 and node.ask("POST", f"{path}/try", "guest", body) == refusal
    assert node.ask("POST", "/api/policies/none/bad/try", "guest", body)[0] == 404
    assert node.ask("POST", f"{path}/try", "mine", {"pattern": ".*", "definition": {"expires": 1}})[0] == 401
