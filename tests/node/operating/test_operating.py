"""The pages that change something: only for administrators, and nonsense is told in JSON."""

import asyncio
import base64
import errno
import json
import stat
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from click.testing import CliRunner, Result
from yarl import URL

from mayfly.node.command_line.deadletters_command import command as deadletters_command
from mayfly.node.command_line.operator_client import post
from mayfly.node.local_nodes.local_cluster import fetch
from mayfly.node.operating.own_token import OwnToken
from mayfly.node.operating.ports.management import ManagementPort
from mayfly.node.operating.ports.parked_selection import Selection
from mayfly.node.operating.ports.trace_wish import TraceWish
from mayfly.node.settings.kinds import Address
from mayfly.node.shell.data_folder import DataFolder
from tests.node.http.served import Served, address_of, http_server
from tests.node.http.some_node import SomeNode

Answer = tuple[HTTPStatus, dict[str, Any]]


class SomeOperator:
    """Takes ann's password, and notes what she asks for."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.fresh: dict[str, Any] | None = None

    def is_own_token(self, text: str) -> bool:
        return text == "t0ken"

    def may_be_removed_by_token(self, name: str) -> bool:
        return name in ("own", "dead")

    async def freshness(self) -> dict[str, Any]:
        self.fresh = {"current": False, "reason": "no leader"}
        return self.fresh

    async def tags(self, user: str, password: str, loopback: bool) -> tuple[str, ...]:
        known = {"s:ecret": "administrator", "watch": "monitoring", "use": "management"}
        return (known[password],) if loopback and user == "ann" and password in known else ()

    async def monitor_tags(self, user: str, password: str, loopback: bool) -> tuple[str, ...]:
        return await self.tags(user, password, loopback)

    async def members(self) -> dict[str, Any]:
        assert self.fresh is not None, "shown before it is known whether it is current"
        return {"members": [{"id": 1}], "unknown_shards": []}

    def cluster(self) -> str:
        return "c1"

    def level(self) -> int:
        return 2

    async def groups(self) -> list[dict[str, Any]]:
        assert self.fresh is not None, "shown before it is known whether it is current"
        return [{"group": 0}]

    async def replicas(self) -> list[dict[str, Any]]:
        return [{"group": 0, "replicas": []}]

    async def dead_letters(self, selection: Selection) -> dict[str, Any]:
        self.asked.append(asked_for(selection))
        return {"parked": [], "more": False, "lanes": []}

    async def settle_dead_letters(self, release: bool, selection: Selection) -> Answer:
        self.asked.append((release, asked_for(selection)))
        return HTTPStatus.OK, {"released" if release else "dropped": 3}

    async def remove_member(self, name: str) -> Answer:
        self.asked.append(name)
        return (HTTPStatus.CONFLICT, {"error": "last"}) if name == "last" else (HTTPStatus.OK, {"changed": True})

    def drain(self) -> Answer:
        self.asked.append("drain")
        return HTTPStatus.OK, {"drain": {}}

    async def snapshot(self, folder: str, whole: bool) -> Answer:
        self.asked.append((folder, whole))
        return HTTPStatus.OK, {"bytes": 1}

    async def revive(self) -> Answer:
        self.asked.append("revive")
        return HTTPStatus.OK, {"drain": {}}

    def log_levels(self) -> dict[str, Any]:
        return {"levels": {"": "info"}}

    def set_log_level(self, part: str, level: str) -> Answer:
        self.asked.append((part, level))
        return HTTPStatus.OK, self.log_levels()

    async def trace(self, wish: TraceWish) -> Answer:
        self.asked.append(wish)
        return HTTPStatus.OK, {"events": [], "left_out": 0}

    async def move_group(self, group: int, voters: tuple[str, ...]) -> Answer:
        self.asked.append((group, voters))
        return HTTPStatus.OK, {}

    async def move_queue(self, vhost: str, name: str, shard: int) -> Answer:
        self.asked.append((vhost, name, shard))
        return HTTPStatus.OK, {"changed": True}

    def shard_count(self) -> int:
        return 4

    async def add_shards(self, total: int) -> Answer:
        self.asked.append(total)
        return (HTTPStatus.OK, {"changed": True}) if total > 4 else (HTTPStatus.CONFLICT, {"error": "fewer"})

    async def switch(self, vhost: str | None, feature: str, on: bool) -> Answer:
        self.asked.append((vhost, feature, on))
        return HTTPStatus.OK, {"changed": True}

    async def transfer_group(self, group: int, leader: str) -> Answer:
        self.asked.append((group, leader))
        return HTTPStatus.OK, {}


class SomeManagement:
    """As much of a `ManagementPort` as it takes to refuse everybody."""

    def may_see(self, user: str, vhost: str) -> bool:
        raise AssertionError("nobody has logged in")

    may_have_policies = may_see


def asked_for(selection: Selection) -> tuple[object, ...]:
    return (selection.vhost, selection.queue, selection.reason, selection.shard)


def ask(
    method: str,
    path: str,
    body: object = None,
    operator: SomeOperator | None = None,
    password: str | None = "s:ecret",
    management: ManagementPort | None = None,
    token: str | None = None,
) -> tuple[int, Any]:
    async def serve_and_ask() -> tuple[int, Any]:
        server = http_server(SomeNode(), operator or SomeOperator(), management)
        await server.start()
        encoded = base64.b64encode(f"ann:{password}".encode()).decode()
        headers = {} if password is None else {"Authorization": f"Basic {encoded}"}
        if token is not None:
            headers = {"Authorization": f"Bearer {token}"}
        try:
            url = f"http://{address_of(server)}{path}"
            async with (
                aiohttp.ClientSession(headers=headers) as session,
                session.request(method, url, json=body) as found,
            ):
                return found.status, await found.json() if found.content_type == "application/json" else None
        finally:
            await server.stop()

    return asyncio.run(serve_and_ask())


def test_reading_takes_no_password_and_says_whether_it_is_current() -> None:
    old = {"current": False, "reason": "no leader"}
    members = {"members": [{"id": 1}], "unknown_shards": [], "cluster": "c1", "level": 2, **old}
    assert ask("GET", "/cluster/members", password=None) == (200, members)
    of_nodes = {"shards": [{"group": 0, "replicas": []}]}
    assert ask("GET", "/shards/replicas", password=None) == (200, of_nodes), "whether a leader answers or not"
    assert ask("GET", "/shards", password=None) == (200, {"shards": [{"group": 0}], "count": 4, **old})


@pytest.mark.parametrize("password", [None, "", "wrong", "watch", "use"])
def test_changing_takes_an_administrator(password: str | None) -> None:
    operator = SomeOperator()
    for path, body in (
        ("/cluster/remove", {"name": "a"}),
        ("/node/drain", {}),
        ("/node/revive", {}),
        ("/node/snapshot", {"folder": "/x"}),
        ("/shards/1/move", {"voters": []}),
        ("/shards/add", {"total": 6}),
        ("/switches", {"feature": "message-ttl", "on": True, "cluster": True}),
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
    assert ask("POST", "/queues/%2F/a%20b/move", {"shard": 3}, operator)[0] == 200
    assert ask("POST", "/node/drain", {}, operator)[0] == ask("POST", "/node/revive", {}, operator)[0] == 200
    assert operator.asked == ["a", "last", (3, ("a", "b")), (0, "a"), ("/", "a b", 3), "drain", "revive"]
    assert ask("POST", "/shards/add", {"total": 6}, operator) == (200, {"changed": True})
    assert ask("POST", "/shards/add", {"total": 3}, operator) == (409, {"error": "fewer"})
    assert operator.asked[7:] == [6, 3]


def test_x3_switches_are_turned_over_http() -> None:
    """RULES X3: where is always said; by administrators alone."""
    operator = SomeOperator()
    off = {"feature": "message-ttl", "on": False}
    assert ask("POST", "/switches", off | {"vhost": "/"}, operator) == (200, {"changed": True})
    assert ask("POST", "/switches", off | {"cluster": True}, operator) == (200, {"changed": True})
    assert operator.asked == [("/", "message-ttl", False), (None, "message-ttl", False)]
    for wrong in (off, off | {"cluster": False}, off | {"cluster": True, "vhost": "/"}, {"on": True, "vhost": "/"}):
        assert ask("POST", "/switches", wrong, operator)[0] == 400, wrong
    assert ask("POST", "/switches", off | {"cluster": True}, operator, token="t0ken")[0] == 401
    assert len(operator.asked) == 2


def test_the_own_token_drains_and_removes_this_node_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = SomeOperator()
    assert ask("POST", "/node/drain", {}, operator, token="t0ken")[0] == 200
    assert ask("POST", "/cluster/remove", {"name": "own"}, operator, token="t0ken")[0] == 200
    assert ask("POST", "/cluster/remove", {"name": "dead"}, operator, token="t0ken")[0] == 200
    assert operator.asked == ["drain", "own", "dead"]
    status, told = ask("POST", "/cluster/remove", {"name": "other"}, operator, token="t0ken")
    assert (status, "not 'other'" in told["error"]) == (403, True)
    for path, body in (
        ("/node/log", {"part": "mayfly", "level": "debug"}), ("/node/trace", {"queue": "q"}),
        ("/node/revive", {}), ("/node/snapshot", {"folder": "/x"}), ("/shards/1/move", {"voters": []}),
        ("/shards/1/transfer", {"leader": "own"}), ("/deadletters/release", {"all": True}),
        ("/deadletters/drop", {"all": True}), ("/shards/add", {"total": 6}),
    ):  # fmt: skip
        assert ask("POST", path, body, operator, token="t0ken")[0] == 401, path
    for path in ("/deadletters", "/api/users", "/api/definitions"):
        assert ask("GET", path, operator=operator, token="t0ken")[0] in (401, 404), path
    for wrong in ("", "t0keN", "t0ken0", "\u00fc"):
        assert ask("POST", "/node/drain", {}, operator, token=wrong)[0] == 401
    assert ask("POST", "/cluster/remove", {"name": 1}, operator, token="t0ken")[0] == 400
    monkeypatch.setattr("mayfly.node.http.operating.is_from_here", lambda request: False)
    assert ask("POST", "/node/drain", {}, operator, token="t0ken")[0] == 401
    assert operator.asked == ["drain", "own", "dead"]


def test_the_own_token_is_for_its_owner_and_another_one_each_time(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    first = OwnToken(folder.write_own_token())
    shown = folder.own_token.read_text().strip()
    assert stat.S_IMODE(folder.own_token.stat().st_mode) == 0o600
    assert len(shown) >= 43 and first.is_shown(shown)
    assert not first.is_shown(shown[:-1]) and not first.is_shown("")
    assert shown not in repr(first) and list(tmp_path.iterdir()) == [folder.own_token]
    second = OwnToken(folder.write_own_token())
    assert not second.is_shown(shown) and second.is_shown(folder.own_token.read_text().strip())


def test_where_no_token_can_be_written_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the one of the start before, which would be refused."""
    folder = DataFolder(tmp_path)
    folder.write_own_token()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("mayfly.node.shell.data_folder.os.open", full)
    with pytest.raises(OSError, match="No space"):
        folder.write_own_token()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/cluster/remove", {}), ("/cluster/remove", {"name": 1}), ("/cluster/remove", []),
        ("/node/log", {"part": "mayfly"}), ("/node/trace", {"seconds": 1}),
        ("/node/trace", {"user": "u", "seconds": 61}),
        ("/cluster/remove", {"name": "a", "force": True}), ("/node/drain", {"now": 1}), ("/node/revive", []),
        ("/node/snapshot", {}),
        ("/shards/x/move", {"voters": []}),
        ("/deadletters/drop", {}), ("/deadletters/drop", {"all": True, "queue": "q"}),
        ("/deadletters/release", {"reason": "old age"}), ("/deadletters/release", {"shard": "1"}),
        ("/deadletters/release", {"queues": ["q"]}),
        ("/shards/1/move", {"voters": "a"}), ("/shards/-1/transfer", {"leader": "a"}),
        ("/queues/%2F/q/move", {"shard": "3"}), ("/queues/%2F/q/move", {"shard": 3, "node": 1}),
        ("/shards/add", {}), ("/shards/add", {"total": "6"}), ("/shards/add", {"total": 0}),
        ("/shards/add", {"total": 1025}), ("/shards/add", {"total": 1 << 80}),
    ],
)  # fmt: skip
def test_nonsense_is_told(path: str, body: object) -> None:
    status, answer = ask("POST", path, body)
    assert status == 400
    assert "can't be read" in answer["error"]


@pytest.mark.parametrize("password", [None, "", "wrong", "use"])
def test_d8_dead_letters_are_listed_for_who_has_logged_in(password: str | None) -> None:
    """Keys of messages are in the listing."""
    operator = SomeOperator()
    for path in ("/deadletters", "/deadletters?queue=q", "/deadletters?reason=age"):
        status, answer = ask("GET", path, operator=operator, password=password)
        assert (status, list(answer), "administrator or monitoring" in answer["error"]) == (401, ["error"], True)
    assert operator.asked == []
    assert ask("GET", "/deadletters", operator=operator, password="watch")[0] == 200


def test_every_page_that_takes_no_login_is_known() -> None:
    """What these show is said in docs/operations/security.md; a page that shows more belongs among the others."""
    everybody = {"/", "/health/live", "/health/ready", "/api/auth", "/page/main.js"}
    metrics = {
        "/metrics", "/metrics/per-queue", "/metrics/per-object", "/metrics/detailed", "/metrics/forecast",
    }  # fmt: skip
    others = {"/status", "/queues", "/queues/%2F/q", "/cluster/members", "/shards", "/shards/replicas"}
    opened = {
        "none": everybody, "loopback": everybody | metrics | others, "metrics": everybody | metrics | others,
        "all": everybody | metrics | others,
    }  # fmt: skip
    management = cast(ManagementPort, SomeManagement())
    application = http_server(SomeNode(), SomeOperator(), management)._application()
    paths = set()
    for route in application.router.routes():
        assert route.resource is not None
        if route.method == "GET":
            names = {"vhost": "%2F", "name": "q", "group": "1", "username": "u", "file": "main.js"}
            paths.add(route.resource.canonical.format(**names))
    assert {path for path in paths if not path.endswith("/")} | {"/"} >= everybody | metrics | others
    for setting, pages in opened.items():
        answers = ask_for_all(paths, setting, "127.0.0.1", management)
        assert {path for path, status in answers.items() if status != 401} == with_slashes(pages), setting
    opened["loopback"], opened["metrics"] = everybody, everybody | metrics
    for setting, pages in opened.items():
        answers = ask_for_all(paths, setting, "evil.example", management)
        assert {path for path, status in answers.items() if status != 401} == with_slashes(pages), setting


def with_slashes(pages: set[str]) -> set[str]:
    """The pages, each also with a slash at its end."""
    return pages | {f"{path.rstrip('/')}/" for path in pages if not path.startswith("/page/")}


def ask_for_all(paths: set[str], setting: str, host: str, management: ManagementPort) -> dict[str, int]:
    """The status of each page for who has no login and calls the node by that name."""

    async def serve_and_ask() -> dict[str, int]:
        server = http_server(SomeNode(), SomeOperator(), management, open_pages=setting)
        await server.start()
        try:
            async with aiohttp.ClientSession(headers={"Host": host}) as session:
                found = {}
                for path in paths:
                    async with session.get(URL(f"http://{address_of(server)}{path}", encoded=True)) as response:
                        found[path] = response.status
                return found
        finally:
            await server.stop()

    return asyncio.run(serve_and_ask())


@pytest.mark.parametrize(
    ("environment", "status"),
    [
        ({}, 401),
        ({"MAYFLY_USER": "ann", "MAYFLY_PASSWORD": "watch"}, 200),
        ({"MAYFLY_DEFAULT_USER": "ann", "MAYFLY_DEFAULT_PASS": "s:ecret"}, 200),
        ({"MAYFLY_USER": "ann", "MAYFLY_PASSWORD": "use"}, 401),
        ({"MAYFLY_USER": "ann", "MAYFLY_PASSWORD": "wrong"}, 401),
        ({"MAYFLY_PASSWORD": "watch"}, 401),
    ],
)
def test_commands_that_only_look_show_the_login_in_the_environment_where_one_is_wanted(
    environment: dict[str, str], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("MAYFLY_USER", "MAYFLY_PASSWORD", "MAYFLY_DEFAULT_USER", "MAYFLY_DEFAULT_PASS"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    with Served(lambda: http_server(SomeNode(), SomeOperator(), open_pages="none")) as address:
        assert fetch(Address.parse(address), "/status")[0] == status
        assert fetch(Address.parse(address), "/health/ready")[0] == 200


def test_d8_dead_letters_are_listed_released_and_dropped() -> None:
    """To settle all of them takes the word."""
    operator = SomeOperator()
    path = "/deadletters?vhost=%2F&queue=q&reason=maxlen&shard=3"
    assert ask("GET", path, operator=operator) == (200, {"parked": [], "more": False, "lanes": []})
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
        server = http_server(SomeNode(), operator)
        await server.start()
        headers = {"Authorization": f"Basic {base64.b64encode(b'ann:s:ecret').decode()}"}
        headers |= {"Content-Type": content_type} if content_type else {}
        url = f"http://{address_of(server)}/deadletters/drop"
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


def test_d8_the_command_line_logs_in_to_list() -> None:
    operator = SomeOperator()

    async def serve_and_list(password: str) -> Result:
        server = http_server(SomeNode(), operator)
        await server.start()
        words = ["list", "--queue", "q", "--json", "--node", str(address_of(server)), "--user", "ann"]
        try:
            return await asyncio.to_thread(
                CliRunner().invoke, deadletters_command, words, env={"MAYFLY_PASSWORD": password}
            )
        finally:
            await server.stop()

    refused = asyncio.run(serve_and_list("wrong"))
    assert (refused.exit_code, "administrator or monitoring" in refused.output) == (1, True)
    assert json.loads(asyncio.run(serve_and_list("watch")).output) == {"parked": [], "more": False, "lanes": []}
    assert operator.asked == [(None, "q", None, None)]


@pytest.mark.parametrize(
    ("environment", "code"),
    [
        ({"MAYFLY_USER": "ann", "MAYFLY_PASSWORD": "s:ecret"}, 0),
        # As in a container: the first user of the node's own settings, with a password for commands or without.
        ({"MAYFLY_DEFAULT_USER": "ann", "MAYFLY_DEFAULT_PASS": "s:ecret"}, 0),
        ({"MAYFLY_DEFAULT_USER": "ann", "MAYFLY_DEFAULT_PASS": "old", "MAYFLY_PASSWORD": "s:ecret"}, 0),
        ({"MAYFLY_USER": "bob", "MAYFLY_DEFAULT_USER": "ann", "MAYFLY_DEFAULT_PASS": "s:ecret"}, 1),
        ({}, 1),
    ],
)
def test_commands_log_in_as_the_environment_says(environment: dict[str, str], code: int) -> None:
    names = ("MAYFLY_USER", "MAYFLY_PASSWORD", "MAYFLY_DEFAULT_USER", "MAYFLY_DEFAULT_PASS")

    async def serve_and_list() -> Result:
        server = http_server(SomeNode(), SomeOperator())
        await server.start()
        words = ["list", "--json", "--node", str(address_of(server))]
        whole = {name: environment.get(name) for name in names}
        try:
            return await asyncio.to_thread(CliRunner().invoke, deadletters_command, words, env=whole)
        finally:
            await server.stop()

    assert asyncio.run(serve_and_list()).exit_code == code


def test_the_command_line_says_that_it_sends_json() -> None:
    operator = SomeOperator()

    async def serve_and_post() -> object:
        server = http_server(SomeNode(), operator)
        await server.start()
        try:
            return await asyncio.to_thread(
                post, str(address_of(server)), "/cluster/remove", {"name": "a"}, "ann", "s:ecret"
            )
        finally:
            await server.stop()

    assert asyncio.run(serve_and_post()) == {"changed": True}
    assert operator.asked == ["a"]
