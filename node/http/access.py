"""Users, vhosts, permissions and limits in RabbitMQ's management API."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from aiohttp import web

from mayfly.node.catalog.token_user import AnyUser
from mayfly.node.http.answers import answer, answered
from mayfly.node.http.bodies import object_in
from mayfly.node.http.gate import Handler
from mayfly.node.http.listing import listed_rows, one
from mayfly.node.operating.ports.access import AccessPort
from mayfly.node.operating.ports.answers import NOT_FOUND, Answer
from mayfly.node.operating.ports.management import ManagementPort
from mayfly.node.operating.ports.users import User

Path = dict[str, str]


class AccessPages:
    """Handlers for the routes that begin with whoami, users, vhosts, permissions and limits."""

    def __init__(self, port: AccessPort, management: ManagementPort) -> None:
        self._port = port
        self._management = management

    def handlers(self) -> dict[str, Handler]:
        """By their names in `api_routes`."""
        port = self._port
        return {
            "whoami.get": _who_am_i,
            "users.list": _listing(lambda _: port.users(), has_pages=True),
            "users.get": _showing(lambda at: port.users(at["user"])),
            "users.without_permissions": _listing(lambda _: port.users_without_permissions(), has_pages=True),
            "users.bulk_delete": self._bulk_delete,
            "users.put": _putting(port.put_user),
            "users.delete": _deleting(port.delete_user),
            "auth.hash": self._hash,
            "vhosts.list": self._vhosts,
            "vhosts.get": self._vhost,
            "vhosts.start": self._start_vhost,
            "vhosts.protection": self._protection,
            "vhosts.protect": self._protecting(True),
            "vhosts.unprotect": self._protecting(False),
            "vhosts.put": _putting(port.put_vhost),
            "vhosts.delete": _deleting(port.delete_vhost),
            "permissions.list": _listing(_of(port.permissions)),
            "permissions.get": _showing(_of(port.permissions)),
            "permissions.put": _putting(port.put_permissions),
            "permissions.delete": _deleting(port.delete_permissions),
            "topic-permissions.list": _listing(_of(port.topic_permissions)),
            "topic-permissions.get": _listing(lambda at: _of(port.topic_permissions)(at) or None),
            "topic-permissions.put": _putting(port.put_topic_permissions),
            "topic-permissions.delete": _deleting(port.delete_topic_permissions),
            **self._limits("vhost"),
            **self._limits("user"),
        }

    def _limits(self, kind: str) -> dict[str, Handler]:
        port = self._port
        return {
            f"{kind}-limits.list": _listing(lambda at: port.limits(kind, at.get(kind))),
            f"{kind}-limits.put": _putting(port.put_limit),
            f"{kind}-limits.delete": _deleting(port.delete_limit),
        }

    async def _vhosts(self, request: web.Request, user: User) -> web.Response:
        seen = [row for row in self._port.vhosts() if self._port.may_see(user.who, row["name"])]
        return await listed_rows(request, await self._with_totals(request, seen))

    async def _vhost(self, request: web.Request, _user: User) -> web.Response:
        rows = await self._with_totals(request, self._port.vhosts(request.match_info["vhost"]))
        return one(request, rows[0]) if rows else answer(NOT_FOUND, HTTPStatus.NOT_FOUND)

    async def _with_totals(self, request: web.Request, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if request.query.get("disable_stats") == "true":
            return rows
        totals = await self._management.vhost_totals([row["name"] for row in rows])
        return [{**row, **totals.get(row["name"], {})} for row in rows]

    async def _start_vhost(self, request: web.Request, _user: User) -> web.Response:
        """A vhost runs on all nodes."""
        rows = self._port.vhosts(request.match_info["vhost"])
        return answered(HTTPStatus.NO_CONTENT, {}) if rows else answer(NOT_FOUND, HTTPStatus.NOT_FOUND)

    async def _protection(self, request: web.Request, _user: User) -> web.Response:
        rows = self._port.vhosts(request.match_info["vhost"])
        if not rows:
            return answer(NOT_FOUND, HTTPStatus.NOT_FOUND)
        return answer({key: rows[0][key] for key in ("name", "protected_from_deletion")})

    def _protecting(self, protected: bool) -> Handler:
        async def handle(request: web.Request, _user: User) -> web.Response:
            return answered(*await self._port.protect_vhost(request.match_info["vhost"], protected))

        return handle

    async def _hash(self, request: web.Request, _user: User) -> web.Response:
        return answer(self._port.hash_password(request.match_info["password"]))

    async def _bulk_delete(self, request: web.Request, _user: User) -> web.Response:
        return answered(*await self._port.delete_users(object_in(await request.read())))


async def _who_am_i(_request: web.Request, user: User) -> web.Response:
    return answer({"name": user.name, "tags": list(user.tags)})


def _of(
    list_of: Callable[[str | None, str | None], list[dict[str, Any]] | None],
) -> Callable[[Path], list[dict[str, Any]] | None]:
    """The rows for the vhost and user in the path, those that are there."""
    return lambda at: list_of(at.get("vhost"), at.get("user"))


def _listing(rows_of: Callable[[Path], list[dict[str, Any]] | None], has_pages: bool = False) -> Handler:
    """`rows_of` answers None where there is no such page."""

    async def handle(request: web.Request, _user: User) -> web.Response:
        rows = rows_of(dict(request.match_info))
        if rows is None:
            return answer(NOT_FOUND, HTTPStatus.NOT_FOUND)
        return await listed_rows(request, rows, has_pages=has_pages)

    return handle


def _showing(rows_of: Callable[[Path], list[dict[str, Any]] | None]) -> Handler:
    """The only row."""

    async def handle(request: web.Request, _user: User) -> web.Response:
        rows = rows_of(dict(request.match_info))
        return one(request, rows[0]) if rows else answer(NOT_FOUND, HTTPStatus.NOT_FOUND)

    return handle


def _putting(put: Callable[[Path, dict[str, Any], AnyUser], Awaitable[Answer]]) -> Handler:
    """`put` gets the names in the path, the body, and who asks."""

    async def handle(request: web.Request, user: User) -> web.Response:
        return answered(*await put(dict(request.match_info), object_in(await request.read()), user.who))

    return handle


def _deleting(delete: Callable[[Path], Awaitable[Answer]]) -> Handler:
    async def handle(request: web.Request, _user: User) -> web.Response:
        return answered(*await delete(dict(request.match_info)))

    return handle
