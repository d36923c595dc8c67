"""What long lists of clients cost the nodes that are asked, counted; and that they are whole and in order still."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from mayfly.node.broker.peer_questions import Respond
from mayfly.node.http import listing
from mayfly.node.http.clients import ClientPages
from mayfly.node.operating import clients
from mayfly.node.operating.ports.client_selection import ClientSelection, Kind
from mayfly.node.operating.ports.clients import ClientsPort
from mayfly.node.operating.ports.rabbitmq_metrics import MetricsSelection
from mayfly.node.operating.ports.users import User
from mayfly.node.operating.views import client_views
from mayfly.node.operating.views.client_views import AT_ONCE, LOOKED_AT
from mayfly.node.operating.views.rabbitmq_client_metrics import client_steps
from tests.node.operating.views.many_stubs import StubNode, stub_nodes

ALL = ClientSelection()
KINDS: tuple[Kind, ...] = ("connections", "channels", "consumers")


def asked(node: StubNode, path: str, kind: Kind) -> tuple[int, Any]:
    """Status and content of a page at that node."""
    own = node.clients
    port = SimpleNamespace(sees_all=lambda user: True, clients=own.some, count_clients=own.count, client=own.one)
    handle = ClientPages(cast(ClientsPort, port)).handlers()[f"{kind}.list"]
    user = cast(User, SimpleNamespace(name="guest", who="guest"))

    async def answered() -> web.Response:
        return await handle(make_mocked_request("GET", path), user)

    response = asyncio.run(answered())
    return response.status, json.loads(cast(bytes, response.body))


def some(node: StubNode, kind: Kind, start: int = 0, most: int = 10_000) -> tuple[int, list[dict[str, Any]]]:
    return asyncio.run(node.clients.some(kind, ALL, start, most))


def did(nodes: dict[int, StubNode]) -> Counter[str]:
    return sum((node.did for node in nodes.values()), Counter[str]())


def name_of(kind: Kind, row: dict[str, Any]) -> tuple[str, ...]:
    if kind == "consumers":
        return row["channel_details"]["name"], row["consumer_tag"]
    return (row["name"],)


def expected(node: StubNode, kind: Kind) -> list[tuple[str, ...]]:
    """All names of a node in order."""
    names: list[tuple[str, ...]] = []
    for connection in sorted(node.connections.values(), key=lambda each: each.socket.name):
        name = connection.socket.name
        if kind == "connections":
            names.append((name,))
            continue
        for number, channel in sorted(connection.channels.items()):
            if kind == "channels":
                names.append((f"{name} ({number})",))
            else:
                names += [(f"{name} ({number})", tag) for tag in channel.consumers]
    return names


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_too_long_is_refused_by_its_count(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MOST_ROWS", 2999)
    nodes = stub_nodes(3)
    for node in nodes.values():
        node.add(1000, [1])
    status, content = asked(nodes[1], f"/api/{kind}", kind)
    assert (status, content["reason"]) == (
        400, f"there are 3000 {kind}: ask for pages, with ?page=1&page_size=500"
    )  # fmt: skip
    assert did(nodes) == {"looked at": 3000}
    monkeypatch.setattr(listing, "MOST_ROWS", 3000)
    status, content = asked(nodes[1], f"/api/{kind}", kind)
    assert (status, [name_of(kind, row) for row in content]) == (
        200, [name for node in nodes.values() for name in expected(node, kind)]
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_list_is_found_by_looking_at_each_a_few_times(kind: Kind) -> None:
    """Not once for each question; and no question has more than its part of it."""
    nodes = stub_nodes(2)
    nodes[2].add(2500, [1])
    total, rows = some(nodes[1], kind)
    assert total == len(rows) == 2500
    done = nodes[2].did
    assert done["row"] == 2500 and done["queue"] == (2500 if kind == "consumers" else 0)
    assert done["looked at"] <= 3 * 2500
    assert done["name"] <= 4 * 2500, "one to put them in order, those in rows, nothing for each other"
    most = nodes[2].most_of_a_question
    assert most["looked at"] <= LOOKED_AT and most["row"] <= AT_ONCE and most["name"] <= LOOKED_AT


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_shows_its_rows_alone(kind: Kind) -> None:
    nodes = stub_nodes(2)
    nodes[1].add(150, [1])
    nodes[2].add(2500, [1])
    names = expected(nodes[1], kind) + expected(nodes[2], kind)
    for node in nodes.values():
        node.did.clear()
    status, page = asked(nodes[1], f"/api/{kind}?page=13&page_size=100", kind)
    assert status == 200 and [name_of(kind, row) for row in page["items"]] == names[1200:1300]
    assert (page["total_count"], page["page_count"], page["item_count"]) == (2650, 27, 100)
    assert (nodes[1].did["row"], nodes[1].did["name"], nodes[1].did["looked at"]) == (0, 0, 150)
    assert nodes[2].did["row"] == 100 and nodes[2].did["looked at"] <= 2 * 2500 + 100
    status, page = asked(nodes[1], f"/api/{kind}?page=1000000&page_size=500", kind)
    assert (status, page["error"]) == (400, "page_out_of_range"), "as RabbitMQ answers"


@pytest.mark.parametrize("kind", KINDS)
def test_any_part_is_what_it_is_of_the_whole(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """However little one question may cost and one answer have."""
    for module in (client_views, clients):
        monkeypatch.setattr(module, "AT_ONCE", 4)
    monkeypatch.setattr(client_views, "LOOKED_AT", 3)
    monkeypatch.setattr(clients, "_MERGED_AT_ONCE", 2)
    nodes = stub_nodes(3)
    for number, consumers in enumerate(([0], [2, 0, 1], [], [9], [1, 1, 1, 1, 1, 1, 1], [3])):
        for node in nodes.values():
            node.add(2, consumers, number + 10 * node.node_id)
    names = [name for node in nodes.values() for name in expected(node, kind)]
    for bytes_at_once in (128 * 1024, 1):
        monkeypatch.setattr(client_views, "_BYTES_AT_ONCE", bytes_at_once)
        for start in range(len(names) + 2):
            for most in (0, 1, 3, 10, 1000):
                total, rows = some(nodes[2], kind, start, most)
                assert total == len(names)
                assert [name_of(kind, row) for row in rows] == names[start : start + most]


def test_many_channels_and_consumers_of_one_connection() -> None:
    nodes = stub_nodes(2)
    nodes[2].add(3, [1] * 2047)
    nodes[2].add(1, [5000])
    assert some(nodes[1], "consumers", 0, 0) == (3 * 2047 + 5000, [])
    _, rows = some(nodes[1], "consumers", 7000, 200)
    assert [name_of("consumers", row) for row in rows] == expected(nodes[2], "consumers")[7000:7200]
    assert nodes[2].did["queue"] == 200 and nodes[2].most_of_a_question["looked at"] <= 1


def test_a_consumer_whose_queue_is_gone_has_its_place_and_is_not_shown() -> None:
    nodes = stub_nodes(2)
    nodes[2].add(3, [100])
    second = sorted(nodes[2].connections.values(), key=lambda each: each.socket.name)[1]
    for consumer in second.channels[1].consumers.values():
        consumer.holder.queue_id = 2
    total, rows = some(nodes[1], "consumers")
    names = expected(nodes[2], "consumers")
    assert (total, [name_of("consumers", row) for row in rows]) == (300, names[:100] + names[200:])
    assert some(nodes[1], "consumers", 100, 100) == (300, [])


def test_who_comes_and_goes_meanwhile_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_views, "LOOKED_AT", 10)
    goes = random.Random(1)
    gone: set[str] = set()

    def one_goes(question: bytes) -> bool:
        there = list(nodes[2].connections)
        left = there[goes.randrange(len(there))]
        gone.add(nodes[2].connections.pop(left).socket.name)
        return False

    nodes = stub_nodes(2, one_goes)
    nodes[2].add(200, [1])
    names = nodes[2].names()
    shown = [row["name"] for row in some(nodes[1], "connections")[1]]
    assert len(gone) > 20 and shown == sorted(shown)
    assert set(names) - gone <= set(shown) <= set(names) and len(set(shown)) == len(shown)


def test_metrics_of_clients_are_made_in_steps() -> None:
    """Rows one by one, and none for those that are left out."""
    node = stub_nodes(1)[1]
    node.add(2500, [1, 1])
    wanted = MetricsSelection("detailed", frozenset({"channel_metrics", "connection_metrics"}), frozenset(), 10)
    before = node.did.copy()
    told = []
    for step in client_steps(node.views, wanted):
        cost, before = node.did - before, node.did.copy()
        assert cost["row"] <= 1 and cost["looked at"] <= LOOKED_AT
        told += [] if step is None else [step]
    counts = {metric[0]: len(list(metric[3])) for metric in told}
    assert counts["rabbitmq_detailed_channel_consumers"] == counts["rabbitmq_detailed_connection_channels"] == 10
    assert told[-1][3] == [({}, 2500 + 2 * 2500 - 20)]
    assert node.did["row"] == 20


def test_one_is_found_and_closed_in_parts() -> None:
    nodes = stub_nodes(3)
    nodes[1].add(10, [1])
    nodes[3].add(2500, [1])
    last = list(nodes[3].connections.values())[-1]
    closed: list[str] = []
    cast(Any, last).force_close = closed.append
    name = last.socket.name
    found = asyncio.run(nodes[2].clients.one("channels", f"{name} (1)"))
    assert found is not None and len(found["consumer_details"]) == 1
    assert asyncio.run(nodes[2].clients.close(name, "why"))
    assert closed == ["why"]
    assert nodes[3].most_of_a_question["looked at"] <= LOOKED_AT
    assert nodes[3].did["looked at"] <= 2 * 2500 + 2 and nodes[3].did["row"] <= 2
    assert asyncio.run(nodes[2].clients.one("connections", "none")) is None
    assert not asyncio.run(nodes[2].clients.close("none", "why"))


def test_a_node_that_falls_silent_shows_what_it_had_told() -> None:
    arrives: list[bool] = []
    nodes = stub_nodes(2, lambda question: not (arrives and arrives.pop()))
    nodes[1].add(10, [1])
    nodes[2].add(1200, [1])
    for answers in range(8):
        arrives[:] = [True] * answers
        total, rows = some(nodes[1], "connections")
        assert total == 10 + (0, 1000, 1200)[min(answers, 2)]
        # Two questions for the count, two for who has them, then a hundred rows with each.
        assert len(rows) == 10 + 100 * max(0, answers - 4)


OLD_QUESTION = {"type": "SomeClients", "kind": "connections", "selection": [None, None, None], "start": 0, "most": 100}


def test_questions_that_are_wrong_have_an_empty_answer() -> None:
    (node,) = stub_nodes(1).values()
    node.add(3, [1])
    key = next(iter(node.connections))
    whole: dict[str, Any] = {"kind": "consumers", "selection": [None, None, None]}
    rows = {"type": "ClientRows", **whole, "parts": [[key, 0, 1]]}
    for right in ({"type": "CountClients", **whole}, {"type": "ClientHolders", **whole, "after": 2**48}, rows):
        assert node.answer(msgspec.msgpack.encode(right))
        changes: list[dict[str, Any]] = [
            {"type": "Unknown"}, {"type": 1}, {"kind": "queues"}, {"kind": None}, {"selection": [1]}, {"selection": {}},
            {"after": -1, "parts": [[key, -1, 1]]}, {"after": 2**48 + 1, "parts": [[key, 0, 2**63]]},
            {"after": "x", "parts": [key]}, {"after": None, "parts": 7},
        ]  # fmt: skip
        for change in changes:
            assert node.answer(msgspec.msgpack.encode({**right, **change})) == b""
    assert node.answer(msgspec.msgpack.encode(OLD_QUESTION)) == b""
    assert node.answer(msgspec.msgpack.encode({"type": "OneClient", "kind": "connections", "name": "x"})) == b""
    large = {**rows, "parts": [[key, 2**48, 2**48], ["none", 0, 1], [key, 0, 2**48]]}
    found, left = msgspec.msgpack.decode(node.answer(msgspec.msgpack.encode(large)))
    assert (len(found), left) == (1, [])
    many = {**rows, "parts": [["none", 0, 1]] * 100_000}
    found, left = msgspec.msgpack.decode(node.answer(msgspec.msgpack.encode(many)))
    assert (found, len(left)) == ([], 100_000 - LOOKED_AT)


def test_answers_that_are_wrong_are_none() -> None:
    nodes = stub_nodes(2)
    nodes[1].add(2, [1])
    right = msgspec.msgpack.encode
    for answer in (
        b"", b"\xc1", right(None), right([0, []]), right([-1, None]), right([[1, 2], None]), right([["x"], 7]),
        right({"a": 1}), right(True),
    ):  # fmt: skip
        nodes[2].questions.answer = lambda question, respond, answer=answer: respond(answer)
        for kind in KINDS:
            assert len(some(nodes[1], kind)[1]) == 2
        assert asyncio.run(nodes[1].clients.one("connections", "none")) is None
        asyncio.run(nodes[1].clients.close("none", "why"))


def test_an_answer_that_goes_nowhere_is_the_last() -> None:
    """A node that never comes to an end is not asked for ever."""
    nodes = stub_nodes(2)
    asked = 0

    def answer(question: bytes, respond: Respond) -> None:
        nonlocal asked
        asked += 1
        content = msgspec.msgpack.decode(question)
        if content["type"] == "ClientRows":
            respond(msgspec.msgpack.encode([[], content["parts"]]))
            return
        told: Any = 5 if content["type"] == "CountClients" else [["name", "key", 5]]
        respond(msgspec.msgpack.encode([told, content["after"]]))

    nodes[2].questions.answer = answer
    assert some(nodes[1], "channels") == (5, []) and asked == 3
