"""The part of RabbitMQ's management API that there is here: policies, operator policies, queues, overview and nodes.

Paths, fields and status codes are RabbitMQ's; errors are `{"error": ..., "reason": ...}`. Everything takes a user's
name and password (basic authentication):

    policies            tag administrator, or policymaker with permissions in the vhost
    operator policies   tag administrator
    queues              tag administrator or monitoring, or policymaker or management with permissions in the vhost;
                        to delete one, the permission to configure it as well
    overview            the same tags; management and policymaker see what is in their vhosts
    connections,        the same tags; management and policymaker see their own; to close others' connections takes an
    channels, consumers administrator
    nodes               tag administrator or monitoring
    feature flags       tag administrator
"""

from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from http import HTTPStatus
from typing import Final

from aiohttp import web

from mayfly.node.http.answers import answer, answered, not_authorised
from mayfly.node.http.bodies import object_in
from mayfly.node.http.clients import ClientPages
from mayfly.node.http.listing import listed_by_name, listed_rows, one
from mayfly.node.http.logins import login_in
from mayfly.node.http.routes import Routes
from mayfly.node.operating.ports.answers import NOT_FOUND, bad_request
from mayfly.node.operating.ports.management import ManagementPort, PolicyWish
from mayfly.node.operating.ports.spelling import check_spelling
from mayfly.node.operating.ports.users import ADMINISTRATOR, MANAGEMENT_TAGS, POLICYMAKER, SEE_ALL

PAGES: Final = {
    "/api/policies/{vhost}/{name}": "a policy; GET, PUT and DELETE, as in RabbitMQ; /api/policies[/{vhost}] lists",
    "/api/operator-policies/{vhost}/{name}": "the same for operator policies",
    "/api/queues/{vhost}/{name}": "a queue; GET and DELETE, as in RabbitMQ; /api/queues[/{vhost}] lists",
    "/api/overview": "the cluster, its listeners and totals, as in RabbitMQ",
    "/api/connections/{name}": "a connection; GET and DELETE; /api/connections lists, ?page= ?page_size=",
    "/api/channels/{name}": "a channel; /api/channels lists, and /api/connections/{name}/channels",
    "/api/consumers": "consumers of all queues; /api/consumers/{vhost} those in a vhost",
    "/api/feature-flags": "RabbitMQ's, those that go with its version",
    "/api/nodes": "its nodes, as in RabbitMQ; /api/nodes/{name} is one of them",
}

_FIELDS: Final = ("pattern", "definition", "priority", "apply-to")

Handler = Callable[[web.Request, str], Awaitable[web.Response]]
"""Takes the request and the name of the user."""


class ManagementPages:
    """Handlers for the application of a node."""

    def __init__(self, port: ManagementPort) -> None:
        self._port = port

    def add_to(self, router: Routes) -> None:
        """Put the pages where RabbitMQ's clients look for them."""
        may = self._port.may_have_policies
        for path, operator in (("/api/policies", False), ("/api/operator-policies", True)):
            policies = _PolicyPages(self._port, operator)
            users = {ADMINISTRATOR} if operator else {ADMINISTRATOR, POLICYMAKER}
            router.add_get(path, self._for(users, policies.all, may))
            router.add_get(f"{path}/{{vhost}}", self._for(users, policies.of_vhost, may))
            router.add_get(f"{path}/{{vhost}}/{{name}}", self._for(users, policies.one, may))
            router.add_put(f"{path}/{{vhost}}/{{name}}", self._for(users, policies.put, may))
            router.add_delete(f"{path}/{{vhost}}/{{name}}", self._for(users, policies.delete, may))
        readers, may_see = MANAGEMENT_TAGS, self._port.may_see
        router.add_get("/api/queues", self._for(readers, self._queues, may_see))
        router.add_get("/api/queues/{vhost}", self._for(readers, self._queues, may_see))
        router.add_get("/api/queues/{vhost}/{name}", self._for(readers, self._queue, may_see))
        router.add_delete("/api/queues/{vhost}/{name}", self._for(readers, self._delete_queue, may_see))
        router.add_get("/api/feature-flags", self._for({ADMINISTRATOR}, self._feature_flags, may_see))
        router.add_get("/api/overview", self._for(readers, self._overview, may_see))
        clients = ClientPages(self._port)
        router.add_get("/api/connections", self._for(readers, clients.connections, may_see))
        router.add_get("/api/connections/{name}", self._for(readers, clients.connection, may_see))
        router.add_delete("/api/connections/{name}", self._for(readers, clients.close, may_see))
        router.add_get("/api/connections/{name}/channels", self._for(readers, clients.channels_of_connection, may_see))
        router.add_get("/api/vhosts/{vhost}/connections", self._for(readers, clients.connections, may_see))
        router.add_get("/api/channels", self._for(readers, clients.channels, may_see))
        router.add_get("/api/channels/{name}", self._for(readers, clients.channel, may_see))
        router.add_get("/api/vhosts/{vhost}/channels", self._for(readers, clients.channels, may_see))
        router.add_get("/api/consumers", self._for(readers, clients.consumers, may_see))
        router.add_get("/api/consumers/{vhost}", self._for(readers, clients.consumers, _anybody_may))
        router.add_get("/api/nodes", self._for(SEE_ALL, self._nodes, may_see))
        router.add_get("/api/nodes/{name}", self._for(SEE_ALL, self._node, may_see))

    def _for(
        self, tags: AbstractSet[str], handler: Handler, may: Callable[[str, str], bool]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """The handler for users with one of these tags, in vhosts in which the user `may`."""

        async def handle(request: web.Request) -> web.Response:
            given = login_in(request)
            user = None if given is None else await self._port.login(*given)
            if user is None:
                return not_authorised("Login failed")
            if not tags & set(user.tags):
                return not_authorised(f"Not {' or '.join(sorted(tags))} user")
            vhost = request.match_info.get("vhost")
            if vhost is not None and not self._port.has_vhost(vhost):
                return answer({"error": "Object Not Found", "reason": f"no vhost '{vhost}'"}, HTTPStatus.NOT_FOUND)
            if vhost is not None and not may(user.name, vhost):
                return not_authorised(f"User not authorised to access virtual host '{vhost}'")
            return await handler(request, user.name)

        return handle

    async def _queues(self, request: web.Request, user: str) -> web.Response:
        vhost = request.match_info.get("vhost")
        names = await self._port.queue_names(self._port.vhosts_seen(user) if vhost is None else [vhost])
        return await listed_by_name(request, names, self._port.queues)

    async def _delete_queue(self, request: web.Request, user: str) -> web.Response:
        conditions = [request.query.get(key, "false") for key in ("if-unused", "if-empty")]
        vhost, name = request.match_info["vhost"], request.match_info["name"]
        return answered(*await self._port.delete_queue(user, vhost, name, *[each == "true" for each in conditions]))

    async def _queue(self, request: web.Request, _user: str) -> web.Response:
        found = await self._port.queues([(request.match_info["vhost"], request.match_info["name"])])
        return one(request, found[0]) if found else answer(NOT_FOUND, HTTPStatus.NOT_FOUND)

    async def _overview(self, request: web.Request, user: str) -> web.Response:
        return one(request, await self._port.overview(user))

    async def _feature_flags(self, request: web.Request, _user: str) -> web.Response:
        return await listed_rows(request, self._port.feature_flags(), has_pages=False)

    async def _nodes(self, request: web.Request, _user: str) -> web.Response:
        return await listed_rows(request, self._port.nodes(), has_pages=False)

    async def _node(self, request: web.Request, _user: str) -> web.Response:
        name = request.match_info["name"]
        found = next((row for row in self._port.nodes() if row["name"] == name), None)
        return answer(NOT_FOUND, HTTPStatus.NOT_FOUND) if found is None else one(request, found)


def _anybody_may(_user: str, _vhost: str) -> bool:
    """For pages that show nothing but what the user may see."""
    return True


class _PolicyPages:
    """Policies, or operator policies."""

    def __init__(self, port: ManagementPort, operator: bool) -> None:
        self._port = port
        self._operator = operator

    async def all(self, request: web.Request, user: str) -> web.Response:
        rows = self._port.policies(None, self._operator)
        seen = [row for row in rows if self._port.may_have_policies(user, row["vhost"])]
        return await listed_rows(request, seen, has_pages=False)

    async def of_vhost(self, request: web.Request, _user: str) -> web.Response:
        rows = self._port.policies(request.match_info["vhost"], self._operator)
        return await listed_rows(request, rows, has_pages=False)

    async def one(self, request: web.Request, _user: str) -> web.Response:
        name = request.match_info["name"]
        rows = self._port.policies(request.match_info["vhost"], self._operator)
        found = next((row for row in rows if row["name"] == name), None)
        return answer(NOT_FOUND, HTTPStatus.NOT_FOUND) if found is None else one(request, found)

    async def put(self, request: web.Request, _user: str) -> web.Response:
        try:
            wish = _wish(await request.read(), request.match_info["vhost"], request.match_info["name"], self._operator)
        except ValueError as error:
            return answered(*bad_request(str(error)))
        return answered(*await self._port.set_policy(wish))

    async def delete(self, request: web.Request, _user: str) -> web.Response:
        vhost, name = request.match_info["vhost"], request.match_info["name"]
        return answered(*await self._port.clear_policy(vhost, name, self._operator))


def _wish(body: bytes, vhost: str, name: str, operator: bool) -> PolicyWish:
    """The policy in the body of a PUT, its values unchecked. Raises ValueError with a text for the client."""
    content = object_in(body)
    check_spelling(content, *_FIELDS)
    for field in ("pattern", "definition"):
        if field not in content:
            raise ValueError(f"{field} is missing in the body")
    return PolicyWish(
        vhost, name, content["pattern"], content["definition"], content.get("priority"), content.get("apply-to"),
        operator,
    )
