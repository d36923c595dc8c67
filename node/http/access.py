"""Users, vhosts, permissions and limits over HTTP, with RabbitMQ's paths, fields and status codes.

All pages take the tag administrator, but these take any tag of the management API: `/api/whoami`, and
`GET /api/vhosts`, which shows the vhosts that the user may see. Errors are `{"error": ..., "reason": ...}`.
"""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

from mayfly.node.http.answers import answer, answered, not_authorised
from mayfly.node.http.bodies import object_in
from mayfly.node.http.listing import listed_rows, one
from mayfly.node.http.logins import login_in
from mayfly.node.http.routes import Routes
from mayfly.node.operating.ports.access import AccessPort
from mayfly.node.operating.ports.answers import NOT_FOUND, Answer, bad_request
from mayfly.node.operating.ports.users import ADMINISTRATOR, MANAGEMENT_TAGS, User

PAGES: Final = {
    "/api/whoami": "who is logged in",
    "/api/users/{name}": "a user; GET, PUT and DELETE; /api/users lists",
    "/api/vhosts/{vhost}": "a vhost; GET, PUT and DELETE; /api/vhosts lists",
    "/api/permissions/{vhost}/{user}": "what a user may do in a vhost; /api/permissions lists",
    "/api/topic-permissions/{vhost}/{user}": "with which routing keys; /api/topic-permissions lists",
    "/api/vhost-limits/{vhost}/{limit}": "limits of vhosts; PUT and DELETE; /api/vhost-limits[/{vhost}] lists",
    "/api/user-limits/{user}/{limit}": "limits of users; PUT and DELETE; /api/user-limits[/{user}] lists",
}

Handler = Callable[[web.Request, User], Awaitable[web.Response]]


class AccessPages:
    """Handlers for the application of a node."""

    def __init__(self, port: AccessPort) -> None:
        self._port = port

    def add_to(self, router: Routes) -> None:
        """Put the pages where RabbitMQ's clients look for them."""
        port, everyone = self._port, MANAGEMENT_TAGS
        router.add_get("/api/whoami", self._for(everyone, _who_am_i))
        router.add_get("/api/vhosts", self._for(everyone, self._vhosts))
        self._add(router, "/api/users", lambda _: port.users())
        self._add(router, "/api/users/{user}", lambda at: _one(port.users(at["user"])), port.put_user, port.delete_user)
        self._add(
            router, "/api/vhosts/{vhost}", lambda at: _one(port.vhosts(at["vhost"])), port.put_vhost, port.delete_vhost
        )
        for path, list_of, put, delete in (
            ("permissions", port.permissions, port.put_permissions, port.delete_permissions),
            ("topic-permissions", port.topic_permissions, port.put_topic_permissions, port.delete_topic_permissions),
        ):
            several = path == "topic-permissions"
            self._add(router, f"/api/{path}", _rows(list_of))
            self._add(router, f"/api/users/{{user}}/{path}", _rows(list_of))
            self._add(router, f"/api/vhosts/{{vhost}}/{path}", _rows(list_of))
            self._add(
                router, f"/api/{path}/{{vhost}}/{{user}}", _rows(list_of, one=not several, any_at_all=True), put, delete
            )
        self._add(router, "/api/topic-permissions/{vhost}/{user}/{exchange}", None, None, port.delete_topic_permissions)
        for kind in ("vhost", "user"):
            self._add(router, f"/api/{kind}-limits", _limits(port, kind))
            self._add(router, f"/api/{kind}-limits/{{{kind}}}", _limits(port, kind))
            self._add(router, f"/api/{kind}-limits/{{{kind}}}/{{limit}}", None, port.put_limit, port.delete_limit)

    def _add(
        self,
        router: Routes,
        path: str,
        get: Callable[[dict[str, str]], Any] | None,
        put: Callable[[dict[str, str], dict[str, Any], str], Awaitable[Answer]] | None = None,
        delete: Callable[[dict[str, str]], Awaitable[Answer]] | None = None,
    ) -> None:
        """A path for administrators. The names in it are given to the functions; `put` gets the body as well, and the
        name of who asks."""

        async def read(request: web.Request, _user: User) -> web.Response:
            assert get is not None
            found = get(dict(request.match_info))
            if found is None:
                return answer(NOT_FOUND, HTTPStatus.NOT_FOUND)
            if isinstance(found, dict):
                return one(request, found)
            return await listed_rows(request, found, has_pages=path == "/api/users")

        async def write(request: web.Request, user: User) -> web.Response:
            assert put is not None
            try:
                content = object_in(await request.read())
                return answered(*await put(dict(request.match_info), content, user.name))
            except ValueError as error:
                return answered(*bad_request(str(error)))

        async def remove(request: web.Request, _user: User) -> web.Response:
            assert delete is not None
            return answered(*await delete(dict(request.match_info)))

        administrators = frozenset({ADMINISTRATOR})
        if get is not None:
            router.add_get(path, self._for(administrators, read))
        if put is not None:
            router.add_put(path, self._for(administrators, write))
        if delete is not None:
            router.add_delete(path, self._for(administrators, remove))

    async def _vhosts(self, request: web.Request, user: User) -> web.Response:
        seen = [row for row in self._port.vhosts() if self._port.may_see(user.name, row["name"])]
        return await listed_rows(request, seen)

    def _for(self, tags: frozenset[str], handler: Handler) -> Callable[[web.Request], Awaitable[web.Response]]:
        """The handler for users with one of these tags."""

        async def handle(request: web.Request) -> web.Response:
            given = login_in(request)
            user = None if given is None else await self._port.login(*given)
            if user is None:
                return not_authorised("Login failed")
            if not tags & set(user.tags):
                return not_authorised(f"Not {'management' if len(tags) > 1 else ADMINISTRATOR} user")
            return await handler(request, user)

        return handle


async def _who_am_i(_request: web.Request, user: User) -> web.Response:
    return answer({"name": user.name, "tags": list(user.tags)})


def _one(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    return rows[0] if rows else None


def _rows(
    list_of: Callable[[str | None, str | None], list[dict[str, Any]] | None],
    one: bool = False,
    any_at_all: bool = False,
) -> Callable[[dict[str, str]], Any]:
    """The rows for the vhost and user in the path, those that are there; None: no such page. `one`: the only row."""

    def read(at: dict[str, str]) -> Any:
        rows = list_of(at.get("vhost"), at.get("user"))
        if rows is None or (any_at_all and not rows):
            return None
        return rows[0] if one else rows

    return read


def _limits(port: AccessPort, kind: str) -> Callable[[dict[str, str]], Any]:
    return lambda at: port.limits(kind, at.get(kind))
