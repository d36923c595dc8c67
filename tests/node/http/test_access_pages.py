"""Users, vhosts, permissions and limits over HTTP and by `mayfly`; statuses and shapes as RabbitMQ 3.10.8 gave them,
where the table in docs/deviations.md says nothing else."""

import json
import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mayfly.cluster.versions import LEVEL_HIGHEST
from mayfly.node.catalog import DeleteVhost, Refusal
from mayfly.node.catalog.passwords import verify_password
from mayfly.node.command_line import main
from mayfly.node.http import HttpServer
from mayfly.node.local_nodes.local_cluster import this_mayfly
from mayfly.node.operating.access import Access
from tests.node.http.served import Served, http_server
from tests.node.http.some_node import SomeNode
from tests.node.http.test_management import Api as PolicyApi
from tests.waiting import BOUND_S

ROOT = Path(__file__).resolve().parents[3]
NONE = {"error": "Object Not Found", "reason": "Not Found"}
HASHED = {
    "password_hash": "YWJjZCUocPu+lAjLXU4Se7RFyins8lJaz+A5gv/b19IpfqUF",
    "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": "",
}  # fmt: skip
NO_MESSAGES: dict[str, object] = {"message_stats": {}, "messages": 0, "messages_ready": 0, "messages_unacknowledged": 0}
ALL = {"configure": ".*", "write": ".*", "read": ".*"}


def described(description: str, tags: list[str] | None = None, kind: str = "classic") -> dict[str, object]:
    """What every vhost is shown with."""
    metadata = {"description": description, "tags": tags or [], "default_queue_type": kind}
    return {**metadata, "metadata": metadata, "protected_from_deletion": False, "tracing": False}


class Api(PolicyApi):
    """The users of the tests of policies, with these pages beside."""

    def server(self) -> HttpServer:
        engine: Any = type("Engine", (), {"catalog": self.catalog})()
        cluster: Any = self.cluster
        access = Access(engine, cluster, self.logins.threads)
        return http_server(SomeNode(), management=self.management, access=access)


@pytest.fixture
def api() -> Iterator[Api]:
    api = Api()
    yield api
    api.logins.close()


def test_a_hash_of_a_password_can_be_asked_for_and_put(api: Api) -> None:
    status, answer = api.ask("GET", "/api/auth/hash_password/p%20w%C3%A4")
    assert status == 200 and answer.keys() == {"ok"}
    assert api.ask("GET", "/api/auth/hash_password/p%20w%C3%A4")[1] != answer, "each has a salt of its own"
    assert api.ask("PUT", "/api/users/hashed", {"password_hash": answer["ok"], "tags": "management"}) == (201, None)
    assert api.ask("GET", "/api/whoami", user="hashed", password="p wä")[0] == 200
    assert api.ask("GET", "/api/auth/hash_password/pw", user="monitor")[0] == 401


def test_of_a_password_the_catalog_keeps_a_hash_and_of_the_one_before_nothing(api: Api) -> None:
    """The same is in snapshots, and so in backups. Whoever knows the one before is nobody from then on."""
    for password in ("first secret", "second secret"):
        assert api.ask("PUT", "/api/users/ada", {"password": password, "tags": "management"})[0] in (201, 204)
        user, kept = api.catalog.user("ada"), api.catalog.snapshot()
        assert user is not None and user.password_hash.startswith("scrypt$")
        assert kept.count(b"scrypt$") == len(list(api.catalog.users())) and user.password_hash.encode() in kept
        assert b"secret" not in kept
        assert api.ask("GET", "/api/whoami", user="ada", password=password)[0] == 200
    assert api.ask("GET", "/api/whoami", user="ada", password="first secret")[0] == 401


def test_what_is_said_of_a_vhost_stays_until_something_else_is_said(api: Api) -> None:
    api.catalog._state.level = LEVEL_HIGHEST
    body = {"description": "words", "tags": "a, b", "default_queue_type": "stream"}
    assert api.ask("PUT", "/api/vhosts/v", body) == (201, None)
    shown = {"name": "v", **described("words", ["a", "b"], "stream"), **NO_MESSAGES}
    assert api.ask("GET", "/api/vhosts/v") == (200, shown)
    assert api.ask("PUT", "/api/vhosts/v", {"default_queue_type": "undefined"}) == (204, None)
    assert api.ask("GET", "/api/vhosts/v") == (200, shown)
    assert api.ask("PUT", "/api/vhosts/v", {"tags": [], "default_queue_type": "quorum"}) == (204, None)
    assert api.ask("GET", "/api/vhosts/v") == (200, {**shown, **described("words", [], "quorum")})


def test_a_protected_vhost_is_not_deleted(api: Api) -> None:
    path, protection = "/api/vhosts/a%2Fb", "/api/vhosts/a%2Fb/deletion/protection"
    assert api.ask("POST", protection)[0] == 400, "not all members know it yet"
    api.catalog._state.level = LEVEL_HIGHEST
    assert api.ask("POST", protection, user="monitor")[0] == 401
    assert api.ask("POST", protection) == (204, None)
    assert api.ask("GET", protection) == (200, {"name": "a/b", "protected_from_deletion": True})
    assert api.ask("GET", path)[1]["metadata"]["protected_from_deletion"] is True
    reason = "Refusing to delete virtual host 'a/b' because it is protected from deletion"
    assert api.ask("DELETE", path) == (412, {"error": "precondition_failed", "reason": reason})
    assert isinstance(api.catalog.apply(DeleteVhost("a/b")), Refusal) and api.catalog.has_vhost("a/b")
    assert api.ask("DELETE", protection) == (204, None)
    assert api.ask("DELETE", path) == (204, None)
    assert api.ask("POST", protection) == api.ask("GET", protection) == (404, NONE)


def test_global_parameters_are_kept_and_one_names_the_cluster(api: Api) -> None:
    api.catalog._state.level = LEVEL_HIGHEST
    for path in ("/api/global-parameters/x", "/api/cluster-name"):
        assert api.ask("PUT", path, {"value": 1, "name": "n"}, user="monitor")[0] == 401
    assert api.ask("PUT", "/api/global-parameters/x", {"name": "x", "value": {"a": [1, None]}}) == (201, None)
    assert api.ask("PUT", "/api/global-parameters/x", {"value": {"a": [2]}}) == (204, None)
    assert api.ask("GET", "/api/global-parameters/x") == (200, {"name": "x", "value": {"a": [2]}})
    assert api.ask("DELETE", "/api/global-parameters/x") == (204, None)
    assert api.ask("DELETE", "/api/global-parameters/x")[0] == 404
    assert api.catalog.cluster_name == "mayfly"
    assert api.ask("PUT", "/api/cluster-name", {"name": "mine"}) == (201, None)
    assert api.catalog.cluster_name == "mine"
    shown = {"name": "cluster_name", "value": "mine"}
    assert api.ask("GET", "/api/global-parameters/cluster_name") == (200, shown)
    assert api.ask("PUT", "/api/global-parameters/cluster_name", {"value": "other"}) == (204, None)
    assert api.ask("DELETE", "/api/global-parameters/cluster_name") == (204, None)
    assert api.catalog.cluster_name == "mayfly"


def test_who_am_i(api: Api) -> None:
    assert api.ask("GET", "/api/whoami") == (200, {"name": "guest", "tags": ["administrator"]})
    assert api.ask("GET", "/api/whoami", user="manager") == (200, {"name": "manager", "tags": ["management"]})
    refused = {"error": "not_authorised", "reason": "Not management user"}
    assert api.ask("GET", "/api/whoami", user="nobody") == (401, refused)
    assert api.ask("GET", "/api/whoami", user="guest", password="x")[1]["reason"] == "Login failed"


def test_users(api: Api) -> None:
    assert api.ask("GET", "/api/users/new") == (404, NONE)
    assert api.ask("DELETE", "/api/users/new") == (404, NONE)
    assert api.ask("PUT", "/api/users/new", {"password": "pw", "tags": "a, b,a"}) == (201, None)
    assert api.ask("PUT", "/api/users/new", {"password": "pw", "tags": ["management"]}) == (204, None)
    assert api.ask("GET", "/api/whoami", user="new", password="pw") == (200, {"name": "new", "tags": ["management"]})
    shown = api.ask("GET", "/api/users/new")[1]
    assert (shown["name"], shown["tags"], shown["limits"]) == ("new", ["management"], {})
    assert shown["hashing_algorithm"] == "scrypt"
    assert "pw" not in json.dumps(shown)
    # What was shown can be put elsewhere.
    other = {key: shown[key] for key in ("password_hash", "hashing_algorithm", "tags")}
    assert api.ask("PUT", "/api/users/other", other) == (201, None)
    assert api.ask("GET", "/api/whoami", user="other", password="pw")[0] == 200
    assert shown["name"] in [row["name"] for row in api.ask("GET", "/api/users")[1]]
    assert api.ask("DELETE", "/api/users/new") == (204, None)
    assert api.ask("GET", "/api/whoami", user="new", password="pw")[0] == 401


def test_hashes_of_rabbitmq_can_be_put_and_log_in(api: Api) -> None:
    assert api.ask("PUT", "/api/users/old", {**HASHED, "tags": "management"}) == (201, None)
    assert api.ask("GET", "/api/users/old")[1]["password_hash"] == HASHED["password_hash"]
    assert api.ask("GET", "/api/whoami", user="old", password="pw")[0] == 200


@pytest.mark.parametrize(
    ("path", "content", "reason"),
    [
        ("users/u", {"password": "pw"}, "tags_not_present"),
        ("users/u", {"password": "", "tags": ""}, "a password has 1 to 1024 octets"),
        ("users/u", {"password": 5, "tags": ""}, "password takes a string"),
        ("users/u", {"password": "x", "tags": 7}, "tags takes words"),
        ("users/u", {"password": "x", "tag": "x"}, "tags_not_present"),
        ("users/u", {"Password": "x", "tags": ""}, "the body has the field 'Password', which means nothing here; did "),
        ("vhosts/v", {"default_queue_type": "jms"}, "jms is not a valid queue type"),
        ("vhosts/v", {"default_queue_type": 5}, "5 is not a valid default_queue_type value"),
        ("vhosts/v", {"tags": 7}, "tags takes words"),
        ("vhosts/v", {"tags": "x"}, "tags and default queue types of vhosts needs feature level 8"),
        ("global-parameters/cluster_name", {"value": 5}, "cluster_name takes a string"),
        ("global-parameters/internal_cluster_id", {"value": "x"}, "internal_cluster_id is the cluster's own"),
        ("global-parameters/x", {"value": [2**64]}, "the value of x takes numbers of 64 bits"),
        ("global-parameters/x", {"value": ["x" * 20_000]}, "the value of x of 20004 octets, where "),
        ("global-parameters/x", {}, "key_missing: value is missing in the body"),
        ("global-parameters/x", {"value": 1}, "setting global parameters needs feature level 8, the cluster is at 1"),
        ("cluster-name", {}, "key_missing: name is missing in the body"),
        ("cluster-name", {"name": ""}, "the value of cluster_name has 1 to 255 octets"),
        ("users/u", {**HASHED, "password_hash": "x!"}, "password_hash is not in base64"),
        ("users/u", {**HASHED, "hashing_algorithm": "x"}, "hashing_algorithm is 'x', one of "),
        (f"users/{'u' * 256}", HASHED, "a user's name has 1 to 255 octets"),
        ("users/u", [], "the body is a JSON object"),
        ("permissions/%2F/none", ALL, "vhost_or_user_not_found: no user 'none'"),
        ("permissions/none/maker", ALL, "vhost_or_user_not_found: vhost none not found"),
        ("permissions/%2F/maker", {"configure": "", "write": ""}, "read is missing in the body"),
        (
            "permissions/%2F/maker",
            {**ALL, "read": "(a)\\1"},
            "read takes a regular expression, and '(a)\\1' can't be used",
        ),
        ("topic-permissions/%2F/maker", {"write": "", "read": ""}, "exchange is missing in the body"),
        (
            "topic-permissions/%2F/maker",
            {"exchange": "x", "write": "(", "read": ""},
            "write takes a regular expression",
        ),
        ("vhost-limits/%2F/nonsense", {"value": 1}, "'nonsense' is no limit of a vhost; there are max-connections, "),
        ("vhost-limits/%2F/max-queues", {"value": "x"}, "value of max-queues is 'x', an integer from 0 to "),
        ("vhost-limits/%2F/max-queues", {"value": True}, "value of max-queues is True, an integer from 0 to "),
        ("user-limits/maker/max-queues", {"value": 1}, "'max-queues' is no limit of a user"),
        ("user-limits/maker/max-channels", {}, "value of max-channels is None"),
    ],
)
def test_bad_values_are_refused_and_change_nothing(api: Api, path: str, content: object, reason: str) -> None:
    before = api.catalog.snapshot()
    status, answer = api.ask("PUT", f"/api/{path}", content)
    assert (status, answer["error"]) == (400, "bad_request")
    assert answer["reason"].startswith(reason)
    assert api.catalog.snapshot() == before


def test_vhosts(api: Api) -> None:
    assert api.ask("PUT", "/api/vhosts/v%2F1", {"description": "words"}) == (201, None)
    assert api.ask("PUT", "/api/vhosts/v%2F1") == (204, None)
    shown = {"name": "v/1", **described("words"), **NO_MESSAGES}
    assert api.ask("GET", "/api/vhosts/v%2F1") == (200, shown)
    assert shown in api.ask("GET", "/api/vhosts")[1]
    # Who adds one may do everything in it.
    assert api.ask("GET", "/api/permissions/v%2F1/guest") == (200, {"user": "guest", "vhost": "v/1", **ALL})
    assert [row["name"] for row in api.ask("GET", "/api/vhosts", user="maker")[1]] == ["/"]
    assert api.ask("GET", "/api/vhosts", user="manager") == (200, [])
    assert len(api.ask("GET", "/api/vhosts", user="monitor")[1]) == 3
    assert api.ask("DELETE", "/api/vhosts/v%2F1") == (204, None)
    assert api.ask("DELETE", "/api/vhosts/v%2F1")[0] == 404
    assert api.ask("GET", "/api/vhosts/v%2F1") == (404, NONE)


def test_permissions(api: Api) -> None:
    path, rights = "/api/permissions/a%2Fb/maker", {"configure": "^c", "write": "", "read": ".*"}
    assert api.ask("GET", path) == (404, NONE)
    assert api.ask("DELETE", path) == (404, NONE)
    assert api.ask("PUT", path, rights) == (201, None)
    assert api.ask("PUT", path, rights) == (204, None)
    row = {"user": "maker", "vhost": "a/b", **rights}
    assert api.ask("GET", path) == (200, row)
    assert api.ask("GET", "/api/vhosts/a%2Fb/permissions") == (200, [row])
    assert row in api.ask("GET", "/api/users/maker/permissions")[1]
    assert row in api.ask("GET", "/api/permissions")[1]
    assert api.ask("GET", "/api/users/none/permissions") == (404, NONE)
    assert api.ask("DELETE", path) == (204, None)


def test_topic_permissions(api: Api) -> None:
    path = "/api/topic-permissions/%2F/maker"
    rights = {"exchange": "amq.topic", "write": "^a", "read": "^{username}"}
    assert api.ask("GET", path) == (404, NONE)
    assert api.ask("PUT", path, rights) == (201, None)
    assert api.ask("PUT", path, rights) == (204, None)
    assert api.ask("PUT", path, {**rights, "exchange": "x"}) == (201, None)
    row = {"user": "maker", "vhost": "/", **rights}
    assert api.ask("GET", path) == (200, [row, {**row, "exchange": "x"}])
    assert row in api.ask("GET", "/api/topic-permissions")[1]
    assert row in api.ask("GET", "/api/users/maker/topic-permissions")[1]
    assert row in api.ask("GET", "/api/vhosts/%2F/topic-permissions")[1]
    assert api.ask("DELETE", f"{path}/amq.topic") == (204, None)
    assert api.ask("DELETE", f"{path}/amq.topic") == (404, NONE)
    assert api.ask("DELETE", path) == (204, None)
    assert api.ask("GET", "/api/topic-permissions") == (200, [])


@pytest.mark.parametrize(("kind", "name", "limit"), [("vhost", "a/b", "max-queues"), ("user", "maker", "max-channels")])
def test_limits(api: Api, kind: str, name: str, limit: str) -> None:
    of_it = f"/api/{kind}-limits/{name.replace('/', '%2F')}"
    assert api.ask("GET", of_it) == (200, [])
    assert api.ask("PUT", f"{of_it}/{limit}", {"value": 3}) == (204, None)
    row = {kind: name, "value": {limit: 3}}
    assert api.ask("GET", of_it) == api.ask("GET", f"/api/{kind}-limits") == (200, [row])
    assert api.ask("DELETE", f"{of_it}/{limit}") == api.ask("DELETE", f"{of_it}/{limit}") == (204, None)
    assert api.ask("GET", of_it) == (200, [])
    assert api.ask("GET", f"/api/{kind}-limits/none") == (404, NONE)
    assert api.ask("PUT", f"/api/{kind}-limits/none/{limit}", {"value": 3})[0] == 404


def test_administrators_alone(api: Api) -> None:
    """Every page but whoami and the list of vhosts; who has not logged in gets nowhere, whatever the method."""
    before = api.catalog.snapshot()
    paths = (
        "users", "users/guest", "users/guest/permissions", "vhosts/%2F", "vhosts/%2F/permissions", "permissions",
        "permissions/%2F/guest", "topic-permissions", "topic-permissions/%2F/guest", "vhost-limits", "vhost-limits/%2F",
        "vhost-limits/%2F/max-queues", "user-limits", "user-limits/guest", "user-limits/guest/max-channels",
        "topic-permissions/%2F/guest/x",
    )  # fmt: skip
    for path in paths:
        for method in ("GET", "PUT", "DELETE"):
            content: object = {} if method == "PUT" else None
            for user, reason in (("both", "Not administrator user"), ("", "Login failed")):
                status, answer = api.ask(method, f"/api/{path}", content, user=user)
                assert status == 405 or (status, answer["reason"]) == (401, reason), (method, path)
    assert api.catalog.snapshot() == before


def test_a_catalog_that_does_not_answer(api: Api) -> None:
    api.cluster.answers = False
    assert api.ask("PUT", "/api/users/u", HASHED)[0] == 504
    assert api.ask("DELETE", "/api/users/maker")[0] == 504


def test_no_password_is_logged_or_told(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "hush-hush"
    for body in (f'{{"password": "{secret}", "tags": ""}}', f'{{"password": "{secret}', f'{{"password": ["{secret}"]}}',
                 f'{{"password": "{secret}", "tags": 5}}', f'{{"password_hash": "{secret}", "tags": ""}}'):  # fmt: skip
        assert secret not in json.dumps(api.ask("PUT", "/api/users/u", body=body.encode())[1])
    api.ask("GET", "/api/whoami", user="guest", password=secret)
    assert secret not in caplog.text


# -- the command line


@pytest.fixture
def address(api: Api) -> Iterator[str]:
    with Served(api.server) as address:
        yield address


def mayfly(address: str, *arguments: str, environment: dict[str, str] | None = None, line: str = "") -> Result:
    return CliRunner().invoke(main, [*arguments, "--node", address], env=environment, input=line)


def good(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.output


def test_user_commands(api: Api, address: str) -> None:
    assert "user 'u 1' is added" in good(mayfly(address, "user", "add", "u 1", "--new-password", "pw", "--tag", "x"))
    assert "is there already" in mayfly(address, "user", "add", "u 1", "--new-password", "pw").output
    first = api.catalog.user("u 1")
    assert first is not None
    good(mayfly(address, "user", "password", "u 1", environment={"MAYFLY_NEW_PASSWORD": "other"}))
    second = api.catalog.user("u 1")
    assert second is not None
    assert (second.tags, second.password_hash == first.password_hash) == (("x",), False)
    good(mayfly(address, "user", "tags", "u 1", "monitoring", "y"))
    third = api.catalog.user("u 1")
    assert third is not None
    assert (third.tags, third.password_hash) == (("monitoring", "y"), second.password_hash)
    good(mayfly(address, "user", "limits", "u 1", "max-channels", "4"))
    assert "max-channels 4" in good(mayfly(address, "user", "list"))
    good(mayfly(address, "user", "limits", "u 1", "max-channels", "none"))
    assert "neither a number" in mayfly(address, "user", "limits", "u 1", "max-channels", "x").output
    listed = good(mayfly(address, "user", "list", "--json"))
    assert {"name": "u 1", "tags": ["monitoring", "y"], "limits": {}} in json.loads(listed)
    assert "hash" not in listed
    assert "no password: give it in MAYFLY_NEW_PASSWORD" in mayfly(address, "user", "add", "piped").output
    assert api.catalog.user("piped") is None
    good(mayfly(address, "user", "add", "piped", line="se cret\r\n"))
    piped = api.catalog.user("piped")
    assert piped is not None and verify_password(piped.password_hash, "se cret")
    good(mayfly(address, "user", "add", "cert", "--no-password"))
    certified = api.catalog.user("cert")
    assert certified is not None
    assert certified.password_hash == ""
    good(mayfly(address, "user", "delete", "u 1"))
    assert "there is no user 'u 1'" in mayfly(address, "user", "delete", "u 1").output


@pytest.mark.parametrize("line", ["", "se cret\n"])
def test_where_there_is_no_terminal_nobody_is_asked(api: Api, address: str, line: str) -> None:
    """By the real process: it does not say that what is typed would be seen, nor wait for anybody."""
    done = subprocess.run(
        [*this_mayfly(), "user", "add", "piped", "--node", address], cwd=ROOT, input=line, capture_output=True,
        text=True, check=False, timeout=BOUND_S, start_new_session=True,
    )  # fmt: skip
    told = done.stdout + done.stderr
    assert "GetPassWarning" not in told and "New password" not in told
    piped = api.catalog.user("piped")
    if line:
        assert done.returncode == 0 and piped is not None and verify_password(piped.password_hash, "se cret"), told
    else:
        assert done.returncode == 1 and piped is None and "no password: give it in" in told


def test_vhost_commands(api: Api, address: str) -> None:
    good(mayfly(address, "vhost", "add", "v/2", "--description", "words"))
    good(mayfly(address, "vhost", "limits", "v/2", "max-queues", "5"))
    row = {"name": "v/2", **described("words"), **NO_MESSAGES, "limits": {"max-queues": 5}}
    assert row in json.loads(good(mayfly(address, "vhost", "list", "--json")))
    assert "max-queues 5" in good(mayfly(address, "vhost", "list"))
    api.catalog._state.level = LEVEL_HIGHEST
    good(mayfly(address, "vhost", "add", "v/2", "--tags", "a,b", "--default-queue-type", "stream"))
    vhost = api.catalog.vhost("v/2")
    assert vhost is not None and (vhost.tags, vhost.default_queue_type) == (("a", "b"), "stream")
    good(mayfly(address, "vhost", "protect", "v/2"))
    assert "stream" in good(mayfly(address, "vhost", "list"))
    refused = mayfly(address, "vhost", "delete", "v/2")
    assert refused.exit_code == 1 and "protected from deletion" in refused.output
    good(mayfly(address, "vhost", "protect", "v/2", "--off"))
    assert "no vhost" not in good(mayfly(address, "vhost", "delete", "v/2"))
    assert mayfly(address, "vhost", "delete", "v/2").exit_code == 1


def test_permission_commands(api: Api, address: str) -> None:
    good(mayfly(address, "permission", "set", "maker", "^c", "^w", "", "--vhost", "a/b"))
    permission = api.catalog.permission("maker", "a/b")
    assert permission is not None
    assert (permission.configure, permission.write, permission.read) == ("^c", "^w", "")
    assert "^c" in good(mayfly(address, "permission", "list"))
    good(mayfly(address, "permission", "set-topic", "maker", "amq.topic", "^a", "^b"))
    rows = json.loads(good(mayfly(address, "permission", "list", "--topic", "--json")))
    assert rows == [{"user": "maker", "vhost": "/", "exchange": "amq.topic", "write": "^a", "read": "^b"}]
    assert "amq.topic" in good(mayfly(address, "permission", "list", "--topic"))
    good(mayfly(address, "permission", "clear-topic", "maker", "amq.topic"))
    assert mayfly(address, "permission", "clear-topic", "maker").exit_code == 1
    good(mayfly(address, "permission", "clear", "maker", "--vhost", "a/b"))
    assert "can't be used" in mayfly(address, "permission", "set", "maker", "(a)\\1", "", "").output
