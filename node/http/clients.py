"""Connections, channels and consumers in RabbitMQ's management API: listed, shown; connections also closed.

With the tag administrator or monitoring a user sees all, with management or policymaker the own ones. To close others'
takes an administrator.
"""

from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

from mayfly.node.http.answers import answer, not_authorised
from mayfly.node.http.listing import listed, one
from mayfly.node.operating.ports.answers import NOT_FOUND
from mayfly.node.operating.ports.client_selection import ClientSelection, Kind
from mayfly.node.operating.ports.clients import ClientsPort

REASON: Final = "Closed via management plugin"
"""RabbitMQ's, where the request gives none in X-Reason."""


class ClientPages:
    """Handlers; the user has one of the tags."""

    def __init__(self, port: ClientsPort) -> None:
        self._port = port

    async def connections(self, request: web.Request, user: str) -> web.Response:
        """`/api/connections`, `/api/vhosts/{vhost}/connections`."""
        return await self._listed(request, user, "connections")

    async def channels(self, request: web.Request, user: str) -> web.Response:
        """`/api/channels`, `/api/vhosts/{vhost}/channels`."""
        return await self._listed(request, user, "channels")

    async def consumers(self, request: web.Request, user: str) -> web.Response:
        """`/api/consumers`, `/api/consumers/{vhost}`."""
        return await self._listed(request, user, "consumers")

    async def connection(self, request: web.Request, user: str) -> web.Response:
        """`/api/connections/{name}`."""
        return await self._shown(request, user, "connections")

    async def channel(self, request: web.Request, user: str) -> web.Response:
        """`/api/channels/{name}`."""
        return await self._shown(request, user, "channels")

    async def channels_of_connection(self, request: web.Request, user: str) -> web.Response:
        """`/api/connections/{name}/channels`."""
        found = await self._found(request, user, "connections", self._port.sees_all(user))
        if isinstance(found, web.Response):
            return found
        return await self._listed(request, user, "channels", found["name"])

    async def close(self, request: web.Request, user: str) -> web.Response:
        """DELETE of a connection."""
        found = await self._found(request, user, "connections", self._port.may_close_all(user))
        if isinstance(found, web.Response):
            return found
        reason = request.headers.get("X-Reason", "").encode("utf-8", "replace").decode("utf-8")
        if await self._port.close_connection(found["name"], reason or REASON):
            return web.Response(status=HTTPStatus.NO_CONTENT)
        return answer(NOT_FOUND, HTTPStatus.NOT_FOUND)

    async def _listed(
        self, request: web.Request, user: str, kind: Kind, connection: str | None = None
    ) -> web.Response:
        own = None if self._port.sees_all(user) else user
        selection = ClientSelection(own, request.match_info.get("vhost"), connection)

        async def count() -> int:
            return await self._port.count_clients(kind, selection)

        async def some(start: int, most: int) -> tuple[int, list[dict[str, Any]]]:
            return await self._port.clients(kind, selection, start, most)

        return await listed(request, kind, count, some)

    async def _shown(self, request: web.Request, user: str, kind: Kind) -> web.Response:
        found = await self._found(request, user, kind, self._port.sees_all(user))
        return found if isinstance(found, web.Response) else one(request, found)

    async def _found(
        self, request: web.Request, user: str, kind: Kind, others: bool
    ) -> dict[str, Any] | web.Response:
        """What is meant, or why not. `others`: what is others' as well as the own."""
        row = await self._port.client(kind, request.match_info["name"])
        if row is None:
            return answer(NOT_FOUND, HTTPStatus.NOT_FOUND)
        if row["user"] != user and not others:
            return not_authorised("User not authorised to access object")
        return row
