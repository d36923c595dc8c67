"""RabbitMQ's management API as far as it is here, and `mayfly policy`: over HTTP, with a real catalog behind it."""

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner, Result
from yarl import URL

from mayfly.node.catalog import AddVhost, Catalog, CatalogCommand, DeleteUser, PutUser, SetPermissions
from mayfly.node.catalog.passwords import NOBODYS_HASH, check_and_renew, make_password_hash
from mayfly.node.command_line import main
from mayfly.node.http import HttpServer
from mayfly.node.limits import LOGIN_DELAY_FIRST_MS, LOGIN_FAILURES_FREE, LOGINS_WAITING, PASSWORD_CHECKS_OF_ORIGIN
from mayfly.node.operating import operator_login
from mayfly.node.operating.management import Management, ToldByOthers
from mayfly.node.operating.operator_login import THREADS_NAME, Logins
from mayfly.node.operating.ports.users import ORIGIN
from tests.node.http.served import Served, address_of, http_server
from tests.node.http.some_node import SomeNode
from tests.node.readings import policy_of
from tests.waiting import BOUND_S, until

POLICY = {"pattern": "^q", "definition": {"message-ttl": 5}}
USERS = {
    "guest": ("administrator",),
    "maker": ("policymaker",),
    "manager": ("management",),
    "monitor": ("monitoring",),
    "both": ("monitoring", "policymaker"),
    "nobody": (),
}


class Control:
    """Applies commands to the catalog at once."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.cluster_id = "c"
        self.answers = True

    async def catch_up(self) -> None:
        """It is up to date."""

    async def command(self, command: CatalogCommand) -> object:
        return self.catalog.apply(command) if self.answers else None

    async def spread(self) -> None:
        """There are no other nodes."""


class Engine:
    """The part of an engine that policies need."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog


class Waits:
    """A clock that stands still, and sleeps that do not end by themselves."""

    def __init__(self) -> None:
        self.asked_s: list[float] = []
        self._never = asyncio.Event()

    def now_ms(self) -> int:
        return 1_000_000

    async def sleep(self, seconds: float) -> None:
        self.asked_s.append(seconds)
        await self._never.wait()


class NoQueues:
    """What `Queues`, `Groups` and `MessageTotals` tell where there are none."""

    async def managed(self, names: object, figures: str) -> list[object]:
        return []

    async def of_vhosts(self, names: list[str]) -> dict[str, dict[str, object]]:
        return {name: {} for name in names}

    async def counts(self, records: object) -> tuple[dict[object, object], list[int]]:
        return {}, []

    async def totals(self) -> tuple[list[object], list[int]]:
        return [], []


class Api:
    """A catalog with some users, and how to ask for it. All users have the password of their name."""

    def __init__(self, waits: Waits | None = None) -> None:
        self.catalog = Catalog(1)
        for name, tags in USERS.items():
            self.catalog.apply(PutUser(name, make_password_hash(name, b"saltsalt", n=16), tags))
        self.catalog.apply(AddVhost("a/b"))
        self.catalog.apply(SetPermissions("maker", "/", "", "", ""))
        self.cluster = Control(self.catalog)
        engine: Any = Engine(self.catalog)
        cluster: Any = self.cluster
        timing: dict[str, Any] = {} if waits is None else {"now_ms": waits.now_ms, "sleep": waits.sleep}
        self.logins = Logins(self.catalog, **timing)
        none: Any = None
        nothing: Any = NoQueues()
        told = ToldByOthers(none, nothing, nothing, none, nothing)
        self.management = Management(engine, cluster, self.logins, none, told)

    def server(self) -> HttpServer:
        return http_server(SomeNode(), management=self.management)

    def ask(
        self, method: str, path: str, content: object = None, user: str = "guest", password: str | None = None,
        body: bytes | None = None,
    ) -> tuple[int, Any]:  # fmt: skip
        """Status and JSON (None: empty) of an answer."""

        async def serve_and_ask() -> tuple[int, Any]:
            server = self.server()
            await server.start()
            encoded = base64.b64encode(f"{user}:{user if password is None else password}".encode()).decode()
            headers = {"Authorization": f"Basic {encoded}"} if user else {}
            data = body if body is not None or content is None else json.dumps(content).encode()
            url = URL(f"http://{address_of(server)}{path}", encoded=True)
            try:
                async with (
                    aiohttp.ClientSession(headers=headers) as session,
                    session.request(method, url, data=data) as found,
                ):
                    text = await found.text()
                    return found.status, json.loads(text) if text else None
            finally:
                await server.stop()

        return asyncio.run(serve_and_ask())


@pytest.fixture
def api() -> Iterator[Api]:
    api = Api()
    yield api
    api.logins.close()


@pytest.mark.parametrize(("kind", "operator"), [("policies", False), ("operator-policies", True)])
def test_put_get_list_delete(api: Api, kind: str, operator: bool) -> None:
    """201 for a new one, 204 for one in its place, 404 for none; a vhost and names that have to be quoted."""
    path = f"/api/{kind}/a%2Fb/my%20%2F%C3%BC"
    assert api.ask("GET", path) == (404, {"error": "Object Not Found", "reason": "Not Found"})
    assert api.ask("DELETE", path) == (404, {"error": "Object Not Found", "reason": "Not Found"})
    assert api.ask("PUT", path, POLICY) == (201, None)
    shown = {
        "vhost": "a/b", "name": "my /ü", "pattern": "^q", "apply-to": "all", "definition": {"message-ttl": 5},
        "priority": 0,
    }  # fmt: skip
    assert api.ask("GET", path) == (200, shown)
    assert api.ask("PUT", path, {**shown, "priority": -3, "apply-to": "queues"}) == (204, None)
    shown |= {"priority": -3, "apply-to": "queues"}
    assert api.ask("GET", f"/api/{kind}") == api.ask("GET", f"/api/{kind}/a%2Fb") == (200, [shown])
    assert api.ask("GET", f"/api/{kind}/%2F") == (200, [])
    other = "policies" if operator else "operator-policies"
    assert api.ask("GET", f"/api/{other}") == (200, [])
    assert policy_of(api.catalog, "a/b", "my /ü", operator) is not None
    assert api.ask("DELETE", path) == (204, None)
    assert api.ask("GET", f"/api/{kind}") == (200, [])


def test_priority_and_apply_to_can_be_left_out_or_null(api: Api) -> None:
    assert api.ask("PUT", "/api/policies/%2F/p", {**POLICY, "priority": None, "apply-to": None})[0] == 201
    record = policy_of(api.catalog, "/", "p")
    assert record is not None
    assert (record.priority, record.apply_to) == (0, "all")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"pattern": "^q"}, "definition is missing in the body"),
        ({"definition": {"expires": 1}}, "pattern is missing in the body"),
        ([], "the body is a JSON object"),
        ({**POLICY, "apply_to": "queues"}, "the body has the field 'apply_to', which means nothing here; did "),
        ({**POLICY, "Priority": 1}, "the body has the field 'Priority', which means nothing here; did "),
        ({**POLICY, "pattern": 1}, "pattern should be a binary but was 1"),
        ({**POLICY, "pattern": "("}, "pattern should be regular expression but is invalid: "),
        ({**POLICY, "pattern": "(a)\\1"}, "pattern should be regular expression but is invalid: "),
        ({**POLICY, "definition": 5}, "definition must be a dictionary: 5"),
        ({**POLICY, "definition": [["expires", 1]]}, 'definition must be a dictionary: [[<<"expires">>,1]]'),
        ({**POLICY, "definition": {}}, "no policy provided"),
        ({**POLICY, "definition": {"message-ttl": -1}}, "-1 is not a valid message TTL"),
        ({**POLICY, "definition": {"message-ttl": 1.5}}, "1.5 is not a valid message TTL"),
        ({**POLICY, "definition": {"message-ttl": 10**40}}, f"{10**40} is not a valid message TTL"),
        ({**POLICY, "definition": {"expires": {"a": None}}}, '#{<<"a">> => null} is not a valid queue expiry'),
        ({**POLICY, "priority": "5"}, 'priority should be a number, actually was <<"5">>'),
        ({**POLICY, "priority": 1.5}, "priority should be a number, actually was 1.5"),
        ({**POLICY, "priority": True}, "priority should be a number, actually was true"),
        ({**POLICY, "priority": 10**30}, f"priority should be a number, actually was {10**30}"),
        ({**POLICY, "apply-to": "topics"}, "apply-to 'topics' unrecognised; should be one of: "),
        ({**POLICY, "apply-to": ["queues"]}, "apply-to '[<<\"queues\">>]' unrecognised; should be one of: "),
        ({**POLICY, "definition": {"dead-letter-routing-key": "k"}}, "dead-letter-routing-key takes a dead-letter-ex"),
    ],
)
def test_t1_l1_d1_bad_values_are_refused_and_change_nothing(api: Api, content: object, reason: str) -> None:
    """400 bad_request; the last line says what RabbitMQ says where that is known."""
    status, answer = api.ask("PUT", "/api/policies/%2F/p", content)
    assert (status, answer["error"]) == (400, "bad_request")
    assert answer["reason"].strip().split("\n")[-1].startswith(reason)
    assert list(api.catalog.policies()) == []


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b'{"pattern": "\\ud800", "definition": {}}', b"[" * 60_000])
def test_what_is_no_json_is_refused(api: Api, body: bytes) -> None:
    status, answer = api.ask("PUT", "/api/policies/%2F/p", body=body)
    assert (status, answer["error"]) == (400, "bad_request")
    assert answer["reason"].startswith("the body is not JSON (")


def test_what_tools_send_beside_a_policy_is_taken(api: Api) -> None:
    """rabbitmqadmin, Terraform and others say again what the path says, or more. No body, or null, is an empty one."""
    content = {**POLICY, "vhost": "elsewhere", "name": "other", "value": {}, "tags": ["x"], "node": None}
    assert api.ask("PUT", "/api/policies/%2F/p", content) == (201, None)
    assert [(each.vhost, each.name) for each in api.catalog.policies()] == [("/", "p")]
    for body in (b"", b"null"):
        status, answer = api.ask("PUT", "/api/policies/%2F/p", body=body)
        assert (status, answer["reason"]) == (400, "pattern is missing in the body")


def test_paths_may_end_in_a_slash(api: Api) -> None:
    """Flower and Vault write them so."""
    assert api.ask("PUT", "/api/policies/%2F/p/", POLICY) == (201, None)
    for path in ("/api/policies", "/api/policies/%2F"):
        assert api.ask("GET", f"{path}/") == api.ask("GET", path) != (200, [])
    assert api.ask("GET", "/api/overview/", user="")[0] == 401
    assert api.ask("DELETE", "/api/policies/%2F/p/") == (204, None)
    assert api.ask("POST", "/api/policies/%2F/p/", POLICY)[0] == 405
    assert api.ask("GET", "/api/policies//")[0] == 404


def test_a_name_that_is_too_long_is_refused(api: Api) -> None:
    status, answer = api.ask("PUT", f"/api/policies/%2F/{'n' * 256}", POLICY)
    assert status == 400
    assert "1 to 255 octets, this one has 256" in answer["reason"]


def test_no_such_vhost(api: Api) -> None:
    for method in ("GET", "PUT", "DELETE"):
        status, answer = api.ask(method, "/api/policies/none/p", POLICY if method == "PUT" else None)
        assert (status, answer["reason"]) == (404, "no vhost 'none'")


def test_who_is_let_in(api: Api) -> None:
    """Policies are for administrators and, in vhosts they have permissions in, policymakers; operators' for
    administrators."""
    path, operators = "/api/policies/%2F/p", "/api/operator-policies/%2F/p"
    for user, password in (("", None), ("guest", "wrong"), ("guest", ""), ("unknown", None)):
        status, answer = api.ask("PUT", path, POLICY, user, password)
        assert (status, answer) == (401, {"error": "not_authorised", "reason": "Login failed"})
    for user in ("nobody", "manager", "monitor"):
        status, answer = api.ask("PUT", path, POLICY, user)
        assert (status, answer["reason"]) == (401, "Not administrator or policymaker user")
    for user in ("nobody", "maker", "manager", "monitor"):
        for method in ("GET", "PUT", "DELETE"):
            status, answer = api.ask(method, operators, POLICY if method == "PUT" else None, user)
            assert (status, answer["reason"]) == (401, "Not administrator user")
    assert list(api.catalog.policies()) == []
    assert api.ask("PUT", path, POLICY, "maker") == (201, None)
    assert api.ask("PUT", "/api/policies/a%2Fb/p", POLICY, "maker")[0] == 401
    assert api.ask("PUT", "/api/policies/a%2Fb/p", POLICY) == (201, None)
    assert [row["vhost"] for row in api.ask("GET", "/api/policies", user="maker")[1]] == ["/"]
    assert [row["vhost"] for row in api.ask("GET", "/api/policies")[1]] == ["/", "a/b"]
    assert api.ask("DELETE", path, user="maker") == (204, None)


def test_monitoring_opens_no_policies(api: Api) -> None:
    """Of those who may come to policies only administrators do so without permissions in the vhost; monitoring shows
    queues of all vhosts."""
    path = "/api/policies/a%2Fb/p"
    assert api.ask("PUT", path, POLICY) == (201, None)
    for method, at in (("GET", path), ("PUT", path), ("DELETE", path), ("GET", "/api/policies/a%2Fb")):
        status, answer = api.ask(method, at, POLICY if method == "PUT" else None, "both")
        assert (status, answer["reason"]) == (401, "User not authorised to access virtual host 'a/b'")
    assert api.ask("GET", "/api/policies", user="both") == (200, [])
    assert api.management.may_see("both", "a/b")
    api.catalog.apply(SetPermissions("both", "a/b", "", "", ""))
    assert api.ask("DELETE", path, user="both") == (204, None)


def test_passwords_are_checked_in_threads_of_their_own(api: Api) -> None:
    """Two of them, which end; the loop's own executor, which the disk and AMQP logins use, takes no part."""

    def threads() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name.startswith(THREADS_NAME)}

    async def logins() -> list[object]:
        busy = ThreadPoolExecutor(1)
        busy.shutdown()
        asyncio.get_running_loop().set_default_executor(busy)  # whoever gives it something gets a RuntimeError
        asked = [api.logins.login("maker", password, False) for password in ("maker", "wrong") * 4]
        return [None if user is None else user.name for user in await asyncio.gather(*asked)]

    before = threads()
    assert asyncio.run(logins()) == ["maker", None] * 4
    # Those of other tests may end meanwhile.
    assert 1 <= len(threads() - before) <= 2
    api.logins.close()
    assert threads() <= before


def test_a_catalog_that_does_not_answer(api: Api) -> None:
    api.cluster.answers = False
    for method in ("PUT", "DELETE"):
        status, answer = api.ask(method, "/api/policies/%2F/p", POLICY if method == "PUT" else None)
        assert (status, answer["error"]) == (504, "timeout")


def test_other_methods_are_not_possible(api: Api) -> None:
    assert api.ask("POST", "/api/policies/%2F/p", POLICY)[0] == 405
    assert api.ask("PUT", "/api/policies/%2F", POLICY)[0] == 405


# -- the command line


@pytest.fixture
def address(api: Api) -> Iterator[str]:
    with Served(api.server) as address:
        yield address


def mayfly(address: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["policy", *arguments, "--node", address])


def test_set_list_delete(api: Api, address: str) -> None:
    options = ("--vhost", "a/b", "--priority", "-2", "--apply-to", "quorum_queues")
    result = mayfly(address, "set", "my p/1", "^q", '{"message-ttl": 5, "overflow": "drop-head"}', *options)
    assert (result.output, result.exit_code) == ("policy 'my p/1' is set in vhost 'a/b'\n", 0)
    record = policy_of(api.catalog, "a/b", "my p/1")
    assert record is not None
    assert (record.pattern, record.priority, record.apply_to) == ("^q", -2, "quorum_queues")
    assert record.definition == {"message-ttl": 5, "overflow": "drop-head"}
    assert mayfly(address, "set", "o", "", '{"expires": 9}', "--operator").output.startswith("operator policy 'o' is")
    assert policy_of(api.catalog, "/", "o", operator=True) is not None
    listed = mayfly(address, "list", "--vhost", "a/b").output
    assert all(text in listed for text in ("my p/1", "^q", "quorum_queues", "-2", '"message-ttl": 5'))
    assert [row["name"] for row in json.loads(mayfly(address, "list", "--operator", "--json").output)] == ["o"]
    assert mayfly(address, "delete", "my p/1", "--vhost", "a/b").exit_code == 0
    assert policy_of(api.catalog, "a/b", "my p/1") is None
    missing = mayfly(address, "delete", "my p/1", "--vhost", "a/b")
    assert missing.exit_code == 1
    assert "there is no policy 'my p/1' in vhost 'a/b'" in missing.output
    assert mayfly(address, "delete", "o", "--operator").exit_code == 0
    assert list(api.catalog.policies(operator=True)) == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("set", "p", "^q", "{"), "DEFINITION-JSON: it is not JSON"),
        (("set", "p", "^q", "5"), "definition must be a dictionary: 5"),
        (("set", "p", "(", '{"expires": 1}'), "pattern should be regular expression but is invalid"),
        (("set", "p", "^q", '{"expires": 0}'), "expires takes an integer from 1 to 315360000000"),
        (("set", "p", "^q", '{"expires": 1}', "--apply-to", "topics"), "'topics' is not one of 'all'"),
        (("set", "p", "^q", '{"expires": 1}', "--priority", "high"), "'high' is not a valid integer"),
        (("set", "p", "^q", '{"expires": 1}', "--vhost", "none"), "no vhost 'none'"),
        (("list", "--user", "maker", "--password", "wrong"), "Login failed"),
    ],
)  # fmt: skip
def test_bad_values_on_the_command_line(api: Api, address: str, arguments: tuple[str, ...], text: str) -> None:
    result = mayfly(address, *arguments)
    assert result.exit_code != 0
    assert text in result.output
    assert list(api.catalog.policies()) == []


def test_nobody_there() -> None:
    result = mayfly("127.0.0.1:1", "list")
    assert result.exit_code == 1
    assert "no answer from 127.0.0.1:1" in result.output


def test_whoever_guesses_waits_and_others_do_not() -> None:
    """After three failures, before a password is looked at; not who is known, and no more than eight at once."""

    async def scenario() -> None:
        waits = Waits()
        api = Api(waits)
        try:
            ORIGIN.set("10.0.0.9")
            assert await api.logins.login("maker", "maker", False) is not None
            for _ in range(3):
                assert await api.logins.login("maker", "wrong", False) is None
                assert await api.logins.login("manager", "wrong", False) is None
            assert await api.logins.login("maker", "maker", False) is not None
            assert waits.asked_s == []
            guesses = [asyncio.create_task(api.logins.login("manager", str(number), False)) for number in range(12)]
            await until(lambda: len(waits.asked_s) + sum(guess.done() for guess in guesses) == 12, "all of them")
            waiting = [guess for guess in guesses if not guess.done()]
            assert len(waiting) == 8 and waits.asked_s == [LOGIN_DELAY_FIRST_MS / 1000] * 8
            for guess in waiting:
                guess.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            assert api.logins.failed.refused == 10
            # Others from there do not wait: behind a load balancer all have one address.
            assert await asyncio.wait_for(api.logins.login("monitor", "monitor", False), BOUND_S) is not None
            ORIGIN.set("10.0.0.10")
            assert await asyncio.wait_for(api.logins.login("manager", "manager", False), BOUND_S) is not None
        finally:
            api.logins.close()

    asyncio.run(scenario())


def test_guesses_at_once_are_bounded_and_cost_the_cluster_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few are looked at, the others stand in line, and only a right one has the catalog brought up to date."""
    checked: list[str] = []

    def counted(stored: str, password: str, salt: bytes) -> tuple[bool, str]:
        checked.append(password)
        return check_and_renew(stored, password, salt)

    monkeypatch.setattr(operator_login, "check_and_renew", counted)
    caught_up: list[bool] = []

    async def catch_up() -> None:
        caught_up.append(True)

    async def scenario() -> None:
        api = Api(Waits())
        try:
            login = api.logins.login
            guesses = [asyncio.create_task(login("maker", str(each), False, catch_up)) for each in range(300)]
            done = 300 - LOGINS_WAITING
            await until(lambda: sum(guess.done() for guess in guesses) == done, "those that need not wait")
            right = [asyncio.create_task(login(each, each, False, catch_up)) for each in ("manager", "monitor") * 3]
            assert all(await asyncio.gather(*right))
            assert sum(map(str.isdigit, checked)) < LOGIN_FAILURES_FREE + PASSWORD_CHECKS_OF_ORIGIN
            assert api.logins.failed.refused == 300 - LOGINS_WAITING
            for guess in guesses:
                guess.cancel()
            await asyncio.gather(*guesses, return_exceptions=True)
            assert len(caught_up) == len(right)
            assert not api.logins._line._under_way and not api.logins._line._lines
        finally:
            api.logins.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("user", ["unknown", "certified", "guest"])
def test_the_time_of_a_refusal_does_not_tell_which_users_there_are(
    api: Api, monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    """Over HTTP: one password is checked whether nobody has that name, whoever has it logs in without a password, or it
    is a wrong one; with a hash of the same cost for who is not there."""
    checked: list[str] = []

    def counted(stored: str, password: str, salt: bytes) -> tuple[bool, str]:
        checked.append(stored)
        return check_and_renew(stored, password, salt)

    monkeypatch.setattr(operator_login, "check_and_renew", counted)
    api.catalog.apply(PutUser("certified", "", ("administrator",)))
    record = api.catalog.user(user)
    stored = NOBODYS_HASH if record is None or not record.password_hash else record.password_hash
    refused = (401, {"error": "not_authorised", "reason": "Login failed"})
    assert api.ask("GET", "/api/policies", user=user, password="wrong") == refused
    assert checked == [stored]


def test_a_user_that_is_deleted_or_changed_before_the_catalog_is_up_to_date_is_not_let_in() -> None:
    async def scenario() -> None:
        api = Api()
        other = make_password_hash("other", b"saltsalt", n=16)

        async def changed() -> None:
            api.catalog.apply(PutUser("maker", other, ()))

        async def deleted() -> None:
            api.catalog.apply(DeleteUser("manager"))

        try:
            assert await api.logins.login("maker", "maker", False, changed) is None
            assert await api.logins.login("manager", "manager", False, deleted) is None
        finally:
            api.logins.close()

    asyncio.run(scenario())
