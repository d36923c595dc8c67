"""The cluster, its nodes, policies and operator policies in RabbitMQ's management API."""

from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

from mayfly.node.catalog.records import CLUSTER_NAME_PARAMETER
from mayfly.node.http.answers import answer, answered
from mayfly.node.http.bodies import object_in
from mayfly.node.http.gate import Handler
from mayfly.node.http.listing import listed_rows, one
from mayfly.node.operating.ports.answers import NOT_FOUND, bad_request
from mayfly.node.operating.ports.management import ManagementPort, PolicyWish
from mayfly.node.operating.ports.spelling import check_spelling
from mayfly.node.operating.ports.users import User

_FIELDS: Final = ("pattern", "definition", "priority", "apply-to")

_PARTS_OF_MEMORY: Final = (
    "connection_readers", "connection_writers", "connection_channels", "connection_other", "queue_procs",
    "quorum_queue_procs", "stream_queue_procs", "stream_queue_replica_reader_procs", "stream_queue_coordinator_procs",
    "plugins", "metadata_store", "other_proc", "metrics", "mgmt_db", "mnesia", "quorum_ets", "metadata_store_ets",
    "other_ets", "binary", "msg_index", "code", "atom", "allocated_unused", "reserved_unallocated",
)  # fmt: skip
"""What RabbitMQ tells apart, beside `other_system`. Clients with types want all of them, as numbers."""


class ManagementPages:
    """Handlers for the routes of the cluster, its nodes and policies."""

    def __init__(self, port: ManagementPort) -> None:
        self._port = port

    def handlers(self) -> dict[str, Handler]:
        """By their names in `api_routes`."""
        return {
            "overview.get": self._overview,
            "nodes.list": self._nodes,
            "nodes.get": self._node,
            "nodes.memory": self._memory,
            "feature-flags.list": self._feature_flags,
            "feature-flags.enable": self._enable,
            "nothing.list": _nothing,
            "extensions.list": _extensions,
            "auth.get": self._auth,
            "auth.attempts": self._attempts,
            "auth.sources": self._attempts_by_source,
            "auth.forget": self._forget_attempts,
            "global-parameters.list": self._global_parameters,
            "global-parameters.get": self._global_parameter,
            "global-parameters.put": self._put_global_parameter,
            "global-parameters.delete": self._delete_global_parameter,
            "cluster-name.get": self._cluster_name,
            "cluster-name.put": self._put_cluster_name,
            "queues.rebalance": _rebalance,
            **_PolicyPages(self._port, False).handlers("policies"),
            **_PolicyPages(self._port, True).handlers("operator-policies"),
        }

    async def _overview(self, request: web.Request, user: User) -> web.Response:
        with_stats = request.query.get("disable_stats") != "true"
        return one(request, await self._port.overview(user.who, with_stats))

    async def _feature_flags(self, request: web.Request, _user: User) -> web.Response:
        return await listed_rows(request, self._port.feature_flags(), has_pages=False)

    async def _enable(self, request: web.Request, _user: User) -> web.Response:
        """All that there are are enabled."""
        if any(row["name"] == request.match_info["name"] for row in self._port.feature_flags()):
            return answered(HTTPStatus.NO_CONTENT, {})
        return answered(*bad_request("unsupported"))

    async def _nodes(self, request: web.Request, _user: User) -> web.Response:
        return await listed_rows(request, await self._port.nodes(), has_pages=False)

    async def _node(self, request: web.Request, _user: User) -> web.Response:
        found = await self._node_row(request)
        return answer(NOT_FOUND, HTTPStatus.NOT_FOUND) if found is None else one(request, found)

    async def _memory(self, request: web.Request, _user: User) -> web.Response:
        """See `_memory_of`."""
        found = await self._node_row(request)
        if found is None:
            return answer(NOT_FOUND, HTTPStatus.NOT_FOUND)
        if "mem_used" not in found:
            return answer({"memory": "not_available"})
        return answer({"memory": _memory_of(found["mem_used"])})

    async def _node_row(self, request: web.Request) -> dict[str, Any] | None:
        name = request.match_info["name"]
        return next((row for row in await self._port.nodes() if row["name"] == name), None)

    async def _attempts(self, request: web.Request, _user: User) -> web.Response:
        rows = self._port.login_attempts(request.match_info["name"])
        if rows is None:
            return answer(NOT_FOUND, HTTPStatus.NOT_FOUND)
        return await listed_rows(request, rows, has_pages=False)

    async def _attempts_by_source(self, request: web.Request, _user: User) -> web.Response:
        """As of a RabbitMQ that does not keep where logins came from."""
        known = self._port.login_attempts(request.match_info["name"]) is not None
        return answer([]) if known else answer(NOT_FOUND, HTTPStatus.NOT_FOUND)

    async def _forget_attempts(self, request: web.Request, _user: User) -> web.Response:
        if self._port.login_attempts(request.match_info["name"]) is None:
            return answer(NOT_FOUND, HTTPStatus.NOT_FOUND)
        self._port.forget_login_attempts()
        return answered(HTTPStatus.NO_CONTENT, {})

    async def _global_parameters(self, request: web.Request, _user: User) -> web.Response:
        return await listed_rows(request, self._port.global_parameters(), has_pages=False)

    async def _global_parameter(self, request: web.Request, _user: User) -> web.Response:
        name = request.match_info["name"]
        found = next((row for row in self._port.global_parameters() if row["name"] == name), None)
        return answer(NOT_FOUND, HTTPStatus.NOT_FOUND) if found is None else one(request, found)

    async def _put_global_parameter(self, request: web.Request, _user: User) -> web.Response:
        content = object_in(await request.read())
        if "value" not in content:
            raise ValueError("key_missing: value is missing in the body")
        return answered(*await self._port.set_global_parameter(request.match_info["name"], content["value"]))

    async def _delete_global_parameter(self, request: web.Request, _user: User) -> web.Response:
        return answered(*await self._port.clear_global_parameter(request.match_info["name"]))

    async def _put_cluster_name(self, request: web.Request, _user: User) -> web.Response:
        content = object_in(await request.read())
        if "name" not in content:
            raise ValueError("key_missing: name is missing in the body")
        return answered(*await self._port.set_global_parameter(CLUSTER_NAME_PARAMETER, content["name"]))

    async def _cluster_name(self, request: web.Request, user: User) -> web.Response:
        return one(request, {"name": (await self._port.overview(user.who, False))["cluster_name"]})

    async def _auth(self, _request: web.Request, _user: User) -> web.Response:
        """Whoever is going to log in asks how."""
        return answer(self._port.auth())


def _memory_of(used_bytes: int) -> dict[str, Any]:
    """What is known is the process as a whole: all of it stands in one part, nothing in the others, and so they come to
    the total, as they do in RabbitMQ."""
    parts: dict[str, Any] = dict.fromkeys(_PARTS_OF_MEMORY, 0)
    total = dict.fromkeys(("rss", "erlang", "allocated"), used_bytes)
    return parts | {"other_system": used_bytes, "strategy": "rss", "total": total}


async def _nothing(_request: web.Request, _user: User) -> web.Response:
    """What there is none of."""
    return answer([])


async def _extensions(_request: web.Request, _user: User) -> web.Response:
    """Tools look for those of plugins beside the one of the page itself."""
    return answer([{"javascript": "dispatcher.js"}])


async def _rebalance(_request: web.Request, _user: User) -> web.Response:
    """Leaders are spread evenly all the time."""
    return answered(HTTPStatus.NO_CONTENT, {})


class _PolicyPages:
    """Policies, or operator policies."""

    def __init__(self, port: ManagementPort, operator: bool) -> None:
        self._port = port
        self._operator = operator

    def handlers(self, name: str) -> dict[str, Handler]:
        """By their names in `api_routes`."""
        return {
            f"{name}.all": self._all,
            f"{name}.of_vhost": self._of_vhost,
            f"{name}.get": self._one,
            f"{name}.put": self._put,
            f"{name}.delete": self._delete,
        }

    async def _all(self, request: web.Request, user: User) -> web.Response:
        rows = self._port.policies(None, self._operator)
        seen = [row for row in rows if self._port.may_have_policies(user.who, row["vhost"])]
        return await listed_rows(request, seen, has_pages=False)

    async def _of_vhost(self, request: web.Request, _user: User) -> web.Response:
        rows = self._port.policies(request.match_info["vhost"], self._operator)
        return await listed_rows(request, rows, has_pages=False)

    async def _one(self, request: web.Request, _user: User) -> web.Response:
        name = request.match_info["name"]
        rows = self._port.policies(request.match_info["vhost"], self._operator)
        found = next((row for row in rows if row["name"] == name), None)
        return answer(NOT_FOUND, HTTPStatus.NOT_FOUND) if found is None else one(request, found)

    async def _put(self, request: web.Request, _user: User) -> web.Response:
        vhost, name = request.match_info["vhost"], request.match_info["name"]
        wish = policy_wish(await request.read(), vhost, name, self._operator)
        return answered(*await self._port.set_policy(wish))

    async def _delete(self, request: web.Request, _user: User) -> web.Response:
        vhost, name = request.match_info["vhost"], request.match_info["name"]
        return answered(*await self._port.clear_policy(vhost, name, self._operator))


def policy_wish(body: bytes, vhost: str, name: str, operator: bool) -> PolicyWish:
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
