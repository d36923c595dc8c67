"""Connections, channels and consumers in RabbitMQ's management API: listed, shown; connections also closed. It has no
way to close a channel or to cancel a consumer: those are ours.

With the tag administrator or monitoring a user sees all, with management or policymaker the own ones. To close others'
takes an administrator.
"""

from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

from mayfly.node.http.answers import answer, not_authorised
from mayfly.node.http.gate import Handler
from mayfly.node.http.listing import MOST_ROWS, listed, one
from mayfly.node.operating.ports.answers import NOT_FOUND
from mayfly.node.operating.ports.client_selection import ClientSelection, Kind
from mayfly.node.operating.ports.clients import ClientsPort
from mayfly.node.operating.ports.users import User

REASON: Final = "Closed via management plugin"
"""RabbitMQ's, where the request gives none in X-Reason."""
UNTOLD: Final = "its client takes no cancel notices, and would wait for ever: close its channel"

_CLOSING_ROUNDS: Final = 10


class ClientPages:
    """Handlers for the routes that begin with connections, channels and consumers."""

    def __init__(self, port: ClientsPort) -> None:
        self._port = port

    def handlers(self) -> dict[str, Handler]:
        """By their names in `api_routes`."""

        def listed_of(kind: Kind) -> Handler:
            return lambda request, user: self._listed(request, user, kind)

        def shown_of(kind: Kind) -> Handler:
            return lambda request, user: self._shown(request, user, kind)

        return {
            "connections.list": listed_of("connections"),
            "connections.get": shown_of("connections"),
            "connections.close": self._close,
            "connections.of_user": self._of_user,
            "connections.close_of_user": self._close_of_user,
            "connections.channels": self._channels_of_connection,
            "channels.list": listed_of("channels"),
            "channels.get": shown_of("channels"),
            "channels.close": self._close_channel,
            "consumers.list": listed_of("consumers"),
            "consumers.cancel": self._cancel,
        }

    async def _channels_of_connection(self, request: web.Request, user: User) -> web.Response:
        found = await self._found(request, user, "connections", self._port.sees_all(user.who))
        if isinstance(found, web.Response):
            return found
        return await self._listed(request, user, "channels", found["name"])

    async def _close(self, request: web.Request, user: User) -> web.Response:
        found = await self._found(request, user, "connections", self._port.may_close_all(user.who))
        if isinstance(found, web.Response):
            return found
        if await self._port.close_connection(found["name"], _reason(request)):
            return web.Response(status=HTTPStatus.NO_CONTENT)
        return answer(NOT_FOUND, HTTPStatus.NOT_FOUND)

    async def _close_channel(self, request: web.Request, user: User) -> web.Response:
        found = await self._found(request, user, "channels", self._port.may_close_all(user.who))
        if isinstance(found, web.Response):
            return found
        if await self._port.close_channel(found["name"], _reason(request)):
            return web.Response(status=HTTPStatus.NO_CONTENT)
        return answer(NOT_FOUND, HTTPStatus.NOT_FOUND)

    async def _cancel(self, request: web.Request, user: User) -> web.Response:
        found = await self._found(request, user, "channels", self._port.may_close_all(user.who))
        if isinstance(found, web.Response):
            return found
        cancelled = await self._port.cancel_consumer(found["name"], request.match_info["tag"])
        if cancelled == "untold":
            return answer({"error": "bad_request", "reason": UNTOLD}, HTTPStatus.BAD_REQUEST)
        if cancelled == "unknown":
            return answer(NOT_FOUND, HTTPStatus.NOT_FOUND)
        return web.Response(status=HTTPStatus.NO_CONTENT)

    async def _of_user(self, request: web.Request, user: User) -> web.Response:
        name = request.match_info["username"]
        if name != user.name and not self._port.sees_all(user.who):
            return answer([])
        return await self._listed(request, user, "connections", whose=name)

    async def _close_of_user(self, request: web.Request, user: User) -> web.Response:
        name = request.match_info["username"]
        if name != user.name and not self._port.may_close_all(user.who):
            return not_authorised("User not authorised to access object")
        for _ in range(_CLOSING_ROUNDS):
            _, rows = await self._port.clients("connections", ClientSelection(name), 0, MOST_ROWS)
            for row in rows:
                await self._port.close_connection(row["name"], _reason(request))
            if len(rows) < MOST_ROWS:
                break
        return web.Response(status=HTTPStatus.NO_CONTENT)

    async def _listed(
        self, request: web.Request, user: User, kind: Kind, connection: str | None = None, whose: str | None = None
    ) -> web.Response:
        """`whose`: of that user, who may be seen."""
        own = whose if whose is not None or self._port.sees_all(user.who) else user.name
        selection = ClientSelection(own, request.match_info.get("vhost"), connection)

        async def count() -> int:
            return await self._port.count_clients(kind, selection)

        async def some(start: int, most: int) -> tuple[int, list[dict[str, Any]]]:
            return await self._port.clients(kind, selection, start, most)

        return await listed(request, kind, count, some)

    async def _shown(self, request: web.Request, user: User, kind: Kind) -> web.Response:
        found = await self._found(request, user, kind, self._port.sees_all(user.who))
        return found if isinstance(found, web.Response) else one(request, found)

    async def _found(
        self, request: web.Request, user: User, kind: Kind, others: bool
    ) -> dict[str, Any] | web.Response:
        """What is meant, or why not. `others`: what is others' as well as the own."""
        name = request.match_info["name"]
        row = await self._port.client(kind, name)
        if row is None and "+->+" in name:
            # As clients write spaces that take them for a form's.
            row = await self._port.client(kind, name.replace("+->+", " -> ").replace("+(", " ("))
        if row is None:
            return answer(NOT_FOUND, HTTPStatus.NOT_FOUND)
        if row["user"] != user.name and not others:
            return not_authorised("User not authorised to access object")
        return row


def _reason(request: web.Request) -> str:
    """What the client is told."""
    return request.headers.get("X-Reason", "").encode("utf-8", "replace").decode("utf-8") or REASON
