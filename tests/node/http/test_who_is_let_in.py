"""Who is let in at which page, for each method of it: a table that names all of them, held against a server."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Callable
from typing import Any, Final, NoReturn

import aiohttp
import pytest
from yarl import URL

from mayfly.node.catalog import PutUser, SetPermissions
from mayfly.node.catalog.passwords import make_password_hash
from mayfly.node.http import HttpServer, HttpSettings, PagePorts
from mayfly.node.settings.kinds import Address
from tests.node.http.served import address_of
from tests.node.http.some_node import SomeNode
from tests.node.http.test_management import Api
from tests.node.operating.test_operating import SomeOperator

NO_LOGIN: Final = ""
HERE: Final = {
    "an administrator": ("administrator",),
    "a monitor": ("monitoring",),
    "a policymaker": ("policymaker",),
    "a manager": ("management",),
    "one without tags": (),
}
"""Users with a tag, and with permissions in the vhost /."""
ELSEWHERE: Final = {
    "a monitor elsewhere": ("monitoring",),
    "a policymaker elsewhere": ("policymaker",),
    "a manager elsewhere": ("management",),
}
"""Users without permissions there."""
ALL: Final = frozenset({NO_LOGIN, *HERE, *ELSEWHERE})
ADMINISTRATORS: Final = frozenset({"an administrator"})
MONITORS: Final = ADMINISTRATORS | {"a monitor", "a monitor elsewhere"}
READERS: Final = MONITORS | {"a policymaker", "a manager"}
"""They see the vhost: by a tag, or by having permissions in it."""
MANAGEMENT: Final = READERS | {*ELSEWHERE}
POLICYMAKERS: Final = ADMINISTRATORS | {"a policymaker", "a policymaker elsewhere"}
POLICYMAKERS_THERE: Final = ADMINISTRATORS | {"a policymaker"}

TABLE: Final = {
    ALL: """
        / GET
        /api/auth GET
        /health/live GET
        /health/ready GET
        /page/{file} GET
    """,
    MANAGEMENT: """
        /api/bindings GET
        /api/channels GET
        /api/channels/{name} GET
        /api/cluster-name GET
        /api/connections GET
        /api/connections/username/{username} GET
        /api/connections/{name} DELETE GET
        /api/connections/{name}/channels GET
        /api/consumers GET
        /api/consumers/{vhost} GET
        /api/exchanges GET
        /api/extensions GET
        /api/health/checks/alarms GET
        /api/health/checks/below-node-connection-limit GET
        /api/health/checks/certificate-expiration/{within}/{unit} GET
        /api/health/checks/is-in-service GET
        /api/health/checks/local-alarms GET
        /api/health/checks/metadata-store/initialized GET
        /api/health/checks/metadata-store/initialized/with-data GET
        /api/health/checks/node-is-mirror-sync-critical GET
        /api/health/checks/node-is-quorum-critical GET
        /api/health/checks/port-listener/{port} GET
        /api/health/checks/protocol-listener/{protocol} GET
        /api/health/checks/ready-to-serve-clients GET
        /api/health/checks/virtual-hosts GET
        /api/healthchecks/node GET
        /api/healthchecks/node/{name} GET
        /api/mayfly/brakes GET
        /api/mayfly/channels/{name} DELETE
        /api/mayfly/channels/{name}/consumers/{tag} DELETE
        /api/mayfly/forecast GET
        /api/mayfly/queues GET
        /api/mayfly/redrives GET
        /api/overview GET
        /api/queues GET
        /api/queues/detailed GET
        /api/vhosts GET
        /api/whoami GET
    """,
    READERS: """
        /api/aliveness-test/{vhost} GET
        /api/bindings/{vhost} GET
        /api/bindings/{vhost}/e/{source}/{kind}/{destination} GET POST
        /api/bindings/{vhost}/e/{source}/{kind}/{destination}/{properties_key} DELETE GET
        /api/exchanges/{vhost} GET
        /api/exchanges/{vhost}/{name} DELETE GET PUT
        /api/exchanges/{vhost}/{name}/bindings/destination GET
        /api/exchanges/{vhost}/{name}/bindings/source GET
        /api/exchanges/{vhost}/{name}/publish POST
        /api/health/checks/quorum-queues-without-elected-leaders/vhost/{vhost} GET
        /api/health/checks/quorum-queues-without-elected-leaders/vhost/{vhost}/pattern/{pattern} GET
        /api/mayfly/brakes/{vhost} GET
        /api/mayfly/exchanges/{vhost}/{name}/scheduled GET
        /api/mayfly/exchanges/{vhost}/{name}/scheduled/{message_id} DELETE PUT
        /api/mayfly/forecast/{vhost} GET
        /api/mayfly/queues/{vhost} GET
        /api/mayfly/queues/{vhost}/{name} GET
        /api/mayfly/queues/{vhost}/{name}/brake/release POST
        /api/mayfly/queues/{vhost}/{name}/redrive DELETE GET POST PUT
        /api/mayfly/queues/{vhost}/{name}/redrive/preview POST
        /api/mayfly/queues/{vhost}/{name}/scheduled GET
        /api/mayfly/queues/{vhost}/{name}/scheduled/{message_id} DELETE PUT
        /api/mayfly/queues/{vhost}/{name}/stream GET
        /api/mayfly/queues/{vhost}/{name}/stream/journal GET
        /api/mayfly/queues/{vhost}/{name}/stream/keys DELETE
        /api/mayfly/queues/{vhost}/{name}/stream/latest GET
        /api/mayfly/queues/{vhost}/{name}/stream/messages/{offset} DELETE
        /api/mayfly/redrives/{vhost} GET
        /api/queues/{vhost} GET
        /api/queues/{vhost}/{name} DELETE GET PUT
        /api/queues/{vhost}/{name}/actions POST
        /api/queues/{vhost}/{name}/bindings GET
        /api/queues/{vhost}/{name}/contents DELETE
        /api/queues/{vhost}/{name}/get POST
        /api/vhosts/{vhost}/channels GET
        /api/vhosts/{vhost}/connections GET
    """,
    MONITORS: """
        /api/auth/attempts/{name} GET
        /api/auth/attempts/{name}/source GET
        /api/health/checks/quorum-queues-without-elected-leaders/all-vhosts GET
        /api/health/checks/quorum-queues-without-elected-leaders/all-vhosts/pattern/{pattern} GET
        /api/nodes GET
        /api/nodes/{name} GET
        /api/nodes/{name}/memory GET
        /cluster/members GET
        /deadletters GET
        /metrics GET
        /metrics/detailed GET
        /metrics/forecast GET
        /metrics/per-object GET
        /metrics/per-queue GET
        /node/log GET
        /queues GET
        /queues/{vhost}/{name} GET
        /shards GET
        /shards/replicas GET
        /status GET
    """,
    POLICYMAKERS: """
        /api/global-parameters GET
        /api/global-parameters/{name} DELETE GET PUT
        /api/parameters GET
        /api/parameters/{component} GET
        /api/policies GET
    """,
    POLICYMAKERS_THERE: """
        /api/parameters/{component}/{vhost} GET
        /api/parameters/{component}/{vhost}/{name} GET
        /api/policies/{vhost} GET
        /api/policies/{vhost}/{name} DELETE GET PUT
        /api/policies/{vhost}/{name}/try POST
    """,
    ADMINISTRATORS: """
        /api/auth/attempts/{name} DELETE
        /api/auth/attempts/{name}/source DELETE
        /api/auth/hash_password/{password} GET
        /api/cluster-name PUT
        /api/connections/username/{username} DELETE
        /api/definitions GET POST
        /api/definitions/{vhost} GET POST
        /api/deprecated-features GET
        /api/deprecated-features/used GET
        /api/feature-flags GET
        /api/feature-flags/{name}/enable PUT
        /api/operator-policies GET
        /api/operator-policies/{vhost} GET
        /api/operator-policies/{vhost}/{name} DELETE GET PUT
        /api/operator-policies/{vhost}/{name}/try POST
        /api/parameters/{component}/{vhost}/{name} DELETE PUT
        /api/permissions GET
        /api/permissions/{vhost}/{user} DELETE GET PUT
        /api/rebalance/queues POST
        /api/topic-permissions GET
        /api/topic-permissions/{vhost}/{user} DELETE GET PUT
        /api/topic-permissions/{vhost}/{user}/{exchange} DELETE
        /api/user-limits GET
        /api/user-limits/{user} GET
        /api/user-limits/{user}/{limit} DELETE PUT
        /api/users GET
        /api/users/bulk-delete POST
        /api/users/without-permissions GET
        /api/users/{user} DELETE GET PUT
        /api/users/{user}/permissions GET
        /api/users/{user}/topic-permissions GET
        /api/vhost-limits GET
        /api/vhost-limits/{vhost} GET
        /api/vhost-limits/{vhost}/{limit} DELETE PUT
        /api/vhosts/{vhost} DELETE GET PUT
        /api/vhosts/{vhost}/deletion/protection DELETE GET POST
        /api/vhosts/{vhost}/permissions GET
        /api/vhosts/{vhost}/start/{node} POST
        /api/vhosts/{vhost}/topic-permissions GET
        /cluster/remove POST
        /deadletters/drop POST
        /deadletters/release POST
        /node/drain POST
        /node/log POST
        /node/revive POST
        /node/snapshot POST
        /node/trace POST
        /queues/{vhost}/{name}/move POST
        /shards/add POST
        /shards/{group}/move POST
        /shards/{group}/transfer POST
        /switches POST
    """,
}
"""Pages and their methods, by whom they let in. What such a user may do there, the permissions say besides."""


class LetIn:
    """A port of pages that is asked for nothing before somebody is let in."""

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        def asked(*_: object, **__: object) -> NoReturn:
            raise ValueError("somebody was let in")

        return asked


class Operator(SomeOperator):
    """Takes the passwords of the catalog's users."""

    def __init__(self, api: Api) -> None:
        super().__init__()
        self._catalog = api.catalog

    async def tags(self, user: str, password: str, loopback: bool) -> tuple[str, ...]:
        record = self._catalog.user(user)
        return () if record is None or password != user else record.tags


@pytest.fixture
def api() -> Any:
    api = Api()
    for name, tags in {**HERE, **ELSEWHERE}.items():
        api.catalog.apply(PutUser(name, make_password_hash(name, b"saltsalt", n=16), tags))
        if name in HERE:
            api.catalog.apply(SetPermissions(name, "/", "", "", ""))
    yield api
    api.logins.close()


def server_of(api: Api) -> HttpServer:
    port: Any = LetIn()
    ports = PagePorts(
        SomeNode(), Operator(api), api.management, port, port, port, port, port, port, port, port, port, port
    )
    return HttpServer(ports, HttpSettings(Address("127.0.0.1", 0), open_pages="none"))


def routes_of(server: HttpServer) -> list[str]:
    """Method and page of all there are, but for those with a slash at the end, which have the same handlers."""
    found = set()
    for route in server._application().router.routes():
        assert route.resource is not None
        path = route.resource.canonical
        if route.method != "HEAD" and (path == "/" or not path.endswith("/")):
            found.add(f"{route.method} {path}")
    return sorted(found)


def path_of(page: str) -> str:
    known = {"vhost": "%2F", "group": "1", "file": "main.js", "kind": "q", "limit": "max-queues", "offset": "0"}
    return re.sub(r"{(\w+)(:.*?)?}", lambda found: known.get(found[1], "x"), page)


def login_of(who: str) -> dict[str, str]:
    encoded = base64.b64encode(f"{who}:{who}".encode()).decode()
    return {"Authorization": f"Basic {encoded}"} if who else {}


async def let_in(server: HttpServer, route: str, sessions: dict[str, aiohttp.ClientSession]) -> set[str]:
    method, page = route.split()
    url = URL(f"http://{address_of(server)}{path_of(page)}", encoded=True)
    found = set()
    for who, session in sessions.items():
        async with session.request(method, url, json={}) as answer:
            if answer.status != 401:
                found.add(who)
    return found


def test_each_page_lets_in_whom_the_table_says(api: Api) -> None:
    async def scenario() -> dict[str, set[str]]:
        server = server_of(api)
        await server.start()
        sessions = {who: aiohttp.ClientSession(headers=login_of(who)) for who in ALL}
        try:
            return {route: await let_in(server, route, sessions) for route in routes_of(server)}
        finally:
            for session in sessions.values():
                await session.close()
            await server.stop()

    table = {
        f"{method} {page}": who
        for who, lines in TABLE.items()
        for page, *methods in map(str.split, lines.strip().splitlines())
        for method in methods
    }
    assert asyncio.run(scenario()) == table
