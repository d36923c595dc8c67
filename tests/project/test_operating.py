"""The pages that change something: only for administrators, and nonsense is told in JSON."""

import asyncio
import base64
from http import HTTPStatus
from typing import Any

import aiohttp
import pytest

from node.command_line.operator_client import post
from node.http import HttpServer
from node.operating.parked_selection import Selection
from tests.project.test_http import SomeNode

Answer = tuple[HTTPStatus, dict[str, Any]]


class SomeOperator:
    """Takes ann's password, and notes what she asks for."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.fresh: dict[str, Any] | None = None

    async def freshness(self) -> dict[str, Any]:
        self.fresh = {"current": False, "reason": "no leader"}
        return self.fresh

    async def may_operate(self, user: str, password: str, loopback: bool) -> bool:
        return loopback and (user, password) == ("ann", "s:ecret")

    def members(self) -> list[dict[str, Any]]:
        assert self.fresh is not None, "shown before it is known whether it is current"
        return [{"id": 1}]

    def groups(self) -> list[dict[str, Any]]:
        assert self.fresh is not None, "shown before it is known whether it is current"
        return [{"group": 0}]

    def dead_letters(self, selection: Selection) -> dict[str, Any]:
        self.asked.append(asked_for(selection))
        return {"parked": [], "more": False, "lanes": []}

    async def settle_dead_letters(self, release: bool, selection: Selection) -> Answer:
        self.asked.append((release, asked_for(selection)))
        return HTTPStatus.OK, {"released" if release else "dropped": 3}

    async def remove_member(self, name: str) -> Answer:
        self.asked.append(name)
        return (HTTPStatus.CONFLICT, {"error": "last"}) if name == "last" else (HTTPStatus.OK, {"changed": True})

    async def move_group(self, group: int, voters: tuple[str, ...]) -> Answer:
        self.asked.append((group, voters))
        return HTTPStatus.OK, {}

    async def transfer_group(self, group: int, leader: str) -> Answer:
        self.asked.append((group, leader))
        return HTTPStatus.OK, {}


def asked_for(selection: Selection) -> tuple[object, ...]:
    return (selection.vhost, selection.queue, selection.reason, selection.shard)


def ask(
    method: str, path: str, body: object = None, operator: SomeOperator | None = None, password: str | None = "s:ecret"
) -> tuple[int, Any]:
    async def serve_and_ask() -> tuple[int, Any]:
        server = HttpServer(SomeNode(), "127.0.0.1", 0, operator or SomeOperator())
        await server.start()
        encoded = base64.b64encode(f"ann:{password}".encode()).decode()
        headers = {} if password is None else {"Authorization": f"Basic {encoded}"}
        try:
            url = f"http://{server.address}{path}"
            async with (
                aiohttp.ClientSession(headers=headers) as session,
                session.request(method, url, json=body) as found,
            ):
                return found.status, await found.json()
        finally:
            await server.stop()

    return asyncio.run(serve_and_ask())


def test_reading_takes_no_password_and_says_whether_it_is_current() -> None:
    old = {"current": False, "reason": "no leader"}
    assert ask("GET", "/cluster/members", password=None) == (200, {"members": [{"id": 1}], **old})
    assert ask("GET", "/shards", password=None) == (200, {"shards": [{"group": 0}], **old})


@pytest.mark.parametrize("password", [None, "", "wrong"])
def test_changing_takes_an_administrator(password: str | None) -> None:
    operator = SomeOperator()
    for path, body in (
        ("/cluster/remove", {"name": "a"}),
        ("/shards/1/move", {"voters": []}),
        ("/deadletters/release", {"all": True}),
        ("/deadletters/drop", {"queue": "q"}),
    ):
        assert ask("POST", path, body, operator, password)[0] == 401
    assert operator.asked == []


def test_changes_reach_the_catalog_and_its_answers_the_operator() -> None:
    operator = SomeOperator()
    assert ask("POST", "/cluster/remove", {"name": "a"}, operator) == (200, {"changed": True})
    assert ask("POST", "/cluster/remove", {"name": "last"}, operator) == (409, {"error": "last"})
    assert ask("POST", "/shards/3/move", {"voters": ["a", "b"]}, operator)[0] == 200
    assert ask("POST", "/shards/0/transfer", {"leader": "a"}, operator)[0] == 200
    assert operator.asked == ["a", "last", (3, ("a", "b")), (0, "a")]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/cluster/remove", {}), ("/cluster/remove", {"name": 1}), ("/cluster/remove", []),
        ("/cluster/remove", {"name": "a", "force": True}), ("/shards/x/move", {"voters": []}),
        ("/deadletters/drop", {}), ("/deadletters/drop", {"all": True, "queue": "q"}),
        ("/deadletters/release", {"reason": "old age"}), ("/deadletters/release", {"shard": "1"}),
        ("/deadletters/release", {"queues": ["q"]}),
        ("/shards/1/move", {"voters": "a"}), ("/shards/-1/transfer", {"leader": "a"}),
    ],
)  # fmt: skip
def test_nonsense_is_told(path: str, body: object) -> None:
    status, answer = ask("POST", path, body)
    assert status == 400
    assert "can't be read" in answer["error"]


def test_d8_dead_letters_are_listed_released_and_dropped() -> None:
    """Listing is reading; to settle all of them takes the word."""
    operator = SomeOperator()
    path = "/deadletters?vhost=%2F&queue=q&reason=maxlen&shard=3"
    assert ask("GET", path, operator=operator, password=None) == (200, {"parked": [], "more": False, "lanes": []})
    assert ask("GET", "/deadletters", operator=operator)[0] == 200
    assert ask("POST", "/deadletters/release", {"queue": "q", "vhost": "/"}, operator) == (200, {"released": 3})
    assert ask("POST", "/deadletters/drop", {"all": True}, operator) == (200, {"dropped": 3})
    nothing = (None, None, None, None)
    assert operator.asked == [
        ("/", "q", "maxlen", 3), nothing, (True, ("/", "q", None, None)), (False, nothing),
    ]  # fmt: skip


@pytest.mark.parametrize("query", ["reason=age", "shard=x", "queues=q", "shard="])
def test_d8_a_listing_of_nonsense_is_told(query: str) -> None:
    status, answer = ask("GET", f"/deadletters?{query}")
    assert (status, "can't be read" in answer["error"]) == (400, True)


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None]
)
def test_a_form_of_another_site_changes_nothing(content_type: str | None) -> None:
    """A browser that remembers the password would send it along; JSON it does not send to other sites unasked."""
    operator = SomeOperator()

    async def serve_and_ask() -> tuple[int, Any]:
        server = HttpServer(SomeNode(), "127.0.0.1", 0, operator)
        await server.start()
        headers = {"Authorization": f"Basic {base64.b64encode(b'ann:s:ecret').decode()}"}
        headers |= {"Content-Type": content_type} if content_type else {}
        url = f"http://{server.address}/deadletters/drop"
        try:
            async with (
                aiohttp.ClientSession(skip_auto_headers=["Content-Type"]) as session,
                session.post(url, data=b'{"all": true}', headers=headers) as found,
            ):
                return found.status, await found.json()
        finally:
            await server.stop()

    status, answer = asyncio.run(serve_and_ask())
    assert (status, "application/json is expected" in answer["error"]) == (415, True)
    assert operator.asked == []


def test_the_command_line_says_that_it_sends_json() -> None:
    operator = SomeOperator()

    async def serve_and_post() -> object:
        server = HttpServer(SomeNode(), "127.0.0.1", 0, operator)
        await server.start()
        try:
            return await asyncio.to_thread(
                post, str(server.address), "/cluster/remove", {"name": "a"}, "ann", "s:ecret"
            )
        finally:
            await server.stop()

    assert asyncio.run(serve_and_post()) == {"changed": True}
    assert operator.asked == ["a"]
