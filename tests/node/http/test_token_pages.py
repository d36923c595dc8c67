"""Tokens of a provider at a node as in the product: over HTTP, by a client, with keys from a file and an address."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pika
import pytest
from aiohttp import web
from yarl import URL

from mayfly.node.settings import NodeSettings
from mayfly.node.shell import node_tokens as node_tokens_module
from mayfly.node.shell.node_tokens import NodeTokens, keys_in_file
from tests.node.http.real_node import Node
from tests.node.oauth import provider
from tests.node.oauth.provider import CLUSTER, EVERYTHING, claims, jwk, jwks, token
from tests.waiting import BOUND_S, until_judged, wait_for

LEEWAY_S = 10
SETTINGS: dict[str, Any] = {"auth_backends": "internal,oauth2", "oauth2_resource_server_id": CLUSTER}


def fresh(*scopes: str, **more: Any) -> str:
    """A token of now."""
    return token(claims(*scopes, now_s=int(time.time()), **more))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("tokens")
    (folder / "keys.json").write_bytes(jwks())
    node = Node(folder / "data", oauth2_key_file=folder / "keys.json", **SETTINGS)
    yield node
    node.stop()


def ask(node: Node, method: str, path: str, authorization: str, content: object = None) -> tuple[int, Any]:
    async def request() -> tuple[int, Any]:
        headers = {"Authorization": authorization, "Content-Type": "application/json"}
        data = None if content is None else json.dumps(content)
        url = URL(f"http://{node.address}{path}", encoded=True)
        async with (
            aiohttp.ClientSession(headers=headers, max_field_size=100_000) as session,
            session.request(method, url, data=data) as found,
        ):
            return found.status, await found.json() if found.content_length else None

    answer: tuple[int, Any] = node.run(request())
    return answer


def basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def connected(node: Node, password: str) -> Any:
    login = pika.PlainCredentials("", password)
    port = node.parts.listener.port
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, heartbeat=0, credentials=login))


def test_a_bearer_is_whom_the_token_names(node: Node) -> None:
    text = fresh("tag:management", "tag:unheard-of")
    me = (200, {"name": "ada", "tags": ["management", "unheard-of"]})
    assert ask(node, "GET", "/api/whoami", f"Bearer {text}") == me
    assert ask(node, "GET", "/api/whoami", f"bearer  {text} ") == me
    assert ask(node, "GET", "/api/whoami", basic("guest", text)) == me
    assert node.ask("GET", "/api/whoami") == (200, {"name": "guest", "tags": ["administrator"]})
    assert ask(node, "GET", "/api/auth", "")[1]["oauth_enabled"] is True


def test_tags_and_scopes_decide_over_http(node: Node) -> None:
    assert ask(node, "GET", "/api/whoami", f"Bearer {fresh('read:*/*')}")[0] == 401
    manager = f"Bearer {fresh('tag:management', 'configure:%2F/mine', 'read:%2F/mine')}"
    assert ask(node, "PUT", "/api/queues/%2F/mine", manager, {"durable": True})[0] == 201
    assert ask(node, "PUT", "/api/queues/%2F/other", manager, {"durable": True})[0] == 401
    assert ask(node, "GET", "/api/queues/%2F/mine", manager)[0] == 200
    assert ask(node, "DELETE", "/api/queues/%2F/mine/contents", manager)[0] == 204
    assert [row["name"] for row in ask(node, "GET", "/api/vhosts", manager)[1]] == ["/"]
    elsewhere = f"Bearer {fresh('tag:management', 'read:other/*')}"
    assert ask(node, "GET", "/api/queues/%2F/mine", elsewhere)[0] == 401
    assert ask(node, "GET", "/api/vhosts", elsewhere)[1] == []
    for path in ("/api/users", "/api/permissions"):
        assert ask(node, "GET", path, manager)[0] == 401
        assert ask(node, "GET", path, f"Bearer {fresh('tag:administrator')}")[0] == 200


def test_an_administrator_by_a_token_makes_a_vhost_and_sees_all(node: Node) -> None:
    administrator = f"Bearer {fresh('tag:administrator')}"
    assert ask(node, "PUT", "/api/vhosts/new", administrator, {})[0] == 201
    assert "new" in [row["name"] for row in ask(node, "GET", "/api/vhosts", administrator)[1]]
    assert ask(node, "GET", "/api/permissions", administrator)[1][0]["user"] == "guest"
    policy = {"pattern": "^none$", "definition": {"message-ttl": 1000}}
    assert ask(node, "PUT", "/api/policies/%2F/p", administrator, policy)[0] == 201
    assert ask(node, "POST", "/node/revive", administrator, {})[0] in (200, 202)
    assert ask(node, "POST", "/node/revive", f"Bearer {fresh('tag:management')}", {})[0] == 401


def test_tokens_that_do_not_count_are_refused_over_http(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    said = claims("tag:administrator", now_s=int(time.time()))
    for bad in (
        fresh("tag:administrator", aud="other"), fresh("tag:administrator", exp=int(time.time()) - LEEWAY_S - 1),
        provider.unsigned(said), provider.signed_with_secret(said, provider.pem()), "x", "",
        token(said, key=provider.key_for("RS256", "another")), token(said, kid="nobody's"),
    ):  # fmt: skip
        for way in (f"Bearer {bad}", basic("guest", bad)):
            assert ask(node, "GET", "/api/whoami", way)[0] == 401
        if len(bad) > 1:
            assert not [part for part in bad.split(".") if part and part in caplog.text]


def test_a_large_token_fits(node: Node) -> None:
    scopes = [f"read:*/{'q' * 100}{number}" for number in range(150)]
    text = fresh("tag:management", *scopes, *EVERYTHING)
    assert 20_000 < len(text) < 32_768
    assert ask(node, "GET", "/api/whoami", basic("", text))[0] == 200
    connected(node, text).close()


def test_a_client_shows_a_token_and_another_before_it_ends(node: Node) -> None:
    until_judged(lambda round: is_renewed(node, 3 * 2**round), "another token before the first one ended", rounds=5)


def is_renewed(node: Node, lasts_s: int) -> bool:
    """False if this machine was so busy that the first token had ended before another was shown."""
    soon = int(time.time()) - LEEWAY_S + lasts_s
    try:
        first, second = (connected(node, fresh(*EVERYTHING, exp=soon)) for _ in range(2))
        first.channel().queue_declare("by-token", durable=True)
        second.update_secret(fresh(*EVERYTHING), "it ends")
    except pika.exceptions.AMQPError:
        if time.time() < soon + LEEWAY_S:
            raise
        return False
    channel = second.channel()
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as raised:
        first.process_data_events(BOUND_S)
    assert (raised.value.reply_code, "has expired" in raised.value.reply_text) == (320, True)
    channel.basic_publish("", "by-token", b"still here")
    assert channel.basic_get("by-token", auto_ack=True)[2] == b"still here"
    rows = node.ask("GET", "/api/connections")[1]
    assert "ada" in [row["user"] for row in rows]
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as raised:
        second.update_secret(fresh(*EVERYTHING, name="eve"), "another user")
    assert raised.value.reply_code == 530
    return True


def test_a_client_with_a_token_that_does_not_count(node: Node) -> None:
    for bad in (fresh(*EVERYTHING, aud="other"), token(claims(*EVERYTHING))):
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            connected(node, bad)


REDRIVE = "/api/mayfly/queues/%2F/letters/redrive"


@pytest.fixture
def letters(node: Node) -> Iterator[None]:
    node.channel.queue_declare("letters", durable=True)
    yield
    node.channel.queue_delete("letters")


@pytest.mark.usefixtures("letters")
def test_r1_a_name_that_the_catalog_knows_redrives_nothing(node: Node) -> None:
    """The catalog's guest may do anything: a token of that name does what its scopes allow."""
    stranger = f"Bearer {fresh('tag:management', 'read:%2F/none', name='guest')}"
    assert ask(node, "GET", "/api/whoami", stranger)[1]["name"] == "guest"
    for method, path, content in (
        ("GET", REDRIVE, None), ("POST", REDRIVE, {}), ("POST", REDRIVE + "/preview", {}),
        ("PUT", REDRIVE, {"state": "paused"}), ("DELETE", REDRIVE, None),
    ):  # fmt: skip
        status, told = ask(node, method, path, stranger, content)
        assert (status, "refused for user 'guest'" in told["reason"]) == (401, True)
    assert node.ask("GET", REDRIVE)[1]["state"] == "none"


@pytest.mark.usefixtures("letters")
def test_r1_scopes_decide_what_a_redrive_may_write(node: Node) -> None:
    reader = f"Bearer {fresh('tag:management', 'read:%2F/letters')}"
    assert ask(node, "GET", REDRIVE, reader)[0] == 200
    assert ask(node, "POST", REDRIVE, reader, {})[0] == 401
    scopes = ("read:%2F/letters", "write:%2F/amq.default", "write:%2F/amq.topic/only.*")
    writer = f"Bearer {fresh('tag:management', *scopes)}"
    topic = {"target_exchange": "amq.topic"}
    status, told = ask(node, "POST", REDRIVE, writer, topic)
    assert (status, "target_routing_key has to say with which key" in told["reason"]) == (401, True)
    assert ask(node, "POST", REDRIVE, writer, topic | {"target_routing_key": "other"})[0] == 401
    for wish in ({}, topic | {"target_routing_key": "only.this"}):
        assert ask(node, "POST", REDRIVE, writer, wish)[0] == 201
        wait_for(lambda: node.ask("GET", REDRIVE)[1]["state"] == "done", "the end of the redrive")
    shown = ask(node, "GET", "/api/mayfly/redrives", writer)[1]["redrives"]
    assert [row["queue"] for row in shown] == ["letters"]
    elsewhere = f"Bearer {fresh('tag:management', 'read:other/*', name='guest')}"
    assert ask(node, "GET", "/api/mayfly/redrives", elsewhere)[1]["redrives"] == []
    assert ask(node, "GET", "/api/mayfly/redrives/%2F", elsewhere)[0] == 401


# -- keys -----------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a busy machine takes for an answer."""
    monkeypatch.setattr(node_tokens_module, "_PATIENCE_S", BOUND_S)


class Provider:
    """An address with keys, and what it is to answer."""

    def __init__(self) -> None:
        self.answers = jwks()
        self.status = 200
        self.asked = 0

    async def answer(self, _request: web.Request) -> web.Response:
        self.asked += 1
        headers = {"Location": "/elsewhere"} if self.status == 302 else {}
        return web.Response(status=self.status, body=self.answers, headers=headers)

    async def serve(self) -> tuple[web.AppRunner, str]:
        application = web.Application()
        application.router.add_get("/keys", self.answer)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return runner, f"http://127.0.0.1:{runner.addresses[0][1]}/keys"


async def looked_at(tokens: NodeTokens, text: str) -> Any:
    """What comes of a token, when keys have been looked for if its is not known."""
    found = tokens.look_at(text)
    if found is None:
        renewed = asyncio.Event()
        tokens.renew_keys(renewed.set)
        await asyncio.wait_for(renewed.wait(), BOUND_S)
        found = tokens.look_at(text)
    return found


def node_tokens(url: str, begun: list[Any]) -> NodeTokens:
    settings = NodeSettings(oauth2_jwks_url=url, **SETTINGS)
    return NodeTokens(settings, lambda work: begun.append(asyncio.ensure_future(work)))


def test_keys_of_an_address_are_asked_for_when_one_is_new_and_not_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_tokens_module, "AGAIN_S", 2 * BOUND_S)

    async def scene() -> None:
        shown, begun = Provider(), []  # type: tuple[Provider, list[Any]]
        runner, url = await shown.serve()
        try:
            tokens = node_tokens(url, begun)
            first, second = await asyncio.gather(*(looked_at(tokens, fresh(*EVERYTHING)) for _ in range(2)))
            assert (first.name, second.name, shown.asked) == ("ada", "ada", 1)
            shown.answers = jwks(jwk(kid="new"))
            text = token(claims(*EVERYTHING, now_s=int(time.time())), kid="new")
            assert await looked_at(tokens, text) is None, "asked a moment ago"
            assert shown.asked == 1
            tokens = node_tokens(url, begun)
            assert (await looked_at(tokens, text)).name == "ada"
            assert await looked_at(tokens, fresh(*EVERYTHING)) is None, "the old key is withdrawn"
        finally:
            await runner.cleanup()

    asyncio.run(scene())


def test_a_login_that_fails_leaves_the_others_and_the_watch_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        shown, begun = Provider(), []  # type: tuple[Provider, list[Any]]
        runner, url = await shown.serve()
        try:
            tokens = node_tokens(url, begun)
            watch = asyncio.ensure_future(tokens.watch())
            await asyncio.sleep(0)
            told = asyncio.Event()
            for done in (lambda: [].pop(), told.set):
                tokens.renew_keys(done)
            await asyncio.wait_for(told.wait(), BOUND_S)
            assert (await looked_at(tokens, fresh(*EVERYTHING))).name == "ada"
            assert "a login that waited for keys of tokens failed" in caplog.text
            assert (watch.done(), begun, shown.asked) == (False, [], 1)
            watch.cancel()
        finally:
            await runner.cleanup()

    asyncio.run(scene())


@pytest.mark.parametrize(("status", "answers"), [
    (500, b"{}"), (302, jwks()), (200, b"no keys"), (200, b"x" * 300_000), (200, jwks({"kty": "oct", "k": "AAAA"})),
])  # fmt: skip
def test_an_address_that_does_not_answer_with_keys(
    status: int, answers: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        shown, begun = Provider(), []  # type: tuple[Provider, list[Any]]
        shown.status, shown.answers = status, answers
        runner, url = await shown.serve()
        try:
            assert await looked_at(node_tokens(url, begun), fresh(*EVERYTHING)) is None
            assert "can't be had" in caplog.text
        finally:
            await runner.cleanup()
        assert await looked_at(node_tokens(url, begun), fresh(*EVERYTHING)) is None

    asyncio.run(scene())


def test_a_file_with_keys_that_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "keys.pem"
    file.write_bytes(provider.pem(name="another"))
    tokens = NodeTokens(NodeSettings(oauth2_key_file=file, **SETTINGS), lambda _: None)
    text = fresh(*EVERYTHING)
    assert tokens.look_at(text) is None
    told: list[int] = []
    tokens.renew_keys(lambda: told.append(1))
    assert told == [1], "a file is read again when it has changed"
    file.write_bytes(b"half a ke")
    with pytest.raises(OSError, match=r"oauth2_key_file = .*keys.pem: "):
        tokens.read_file()
    file.write_bytes(provider.pem())
    tokens.read_file()
    assert getattr(tokens.look_at(text), "name", "") == "ada"
    file.write_bytes(b" " * 300_000)
    with pytest.raises(OSError, match="more than"):
        keys_in_file(file)
    with pytest.raises(OSError, match="can't be read"):
        keys_in_file(tmp_path)
