"""Connections in RabbitMQ's management API: listed, shown and closed.

With the tag administrator or monitoring a user sees all, with management or policymaker the own ones. To close others'
takes an administrator.
"""

from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

from node.http.operating import answer, not_authorised
from node.http.provider import ConnectionsPort

MOST_CONNECTIONS: Final = 10_000
"""How many are listed without pages."""
USUAL_PAGE: Final = 100
MOST_OF_A_PAGE: Final = 500
"""As RabbitMQ has it."""
REASON: Final = "Closed via management plugin"
"""RabbitMQ's, where the request gives none in X-Reason."""
_NOT_FOUND: Final = {"error": "Object Not Found", "reason": "Not Found"}


class ConnectionPages:
    """Handlers; the user has one of the tags."""

    def __init__(self, port: ConnectionsPort) -> None:
        self._port = port

    async def all(self, request: web.Request, user: str) -> web.Response:
        """`/api/connections`, with `page` and, if wanted, `page_size` in pages."""
        if "page" in request.query:
            return await self._page(request, user)
        total, rows = await self._some(user, 0, MOST_CONNECTIONS)
        if total > MOST_CONNECTIONS:
            pages = f"?page=1&page_size={MOST_OF_A_PAGE}"
            return _bad_request(f"there are {total} connections: ask for pages, with {pages}")
        return answer(rows)

    async def _some(self, user: str, start: int, most: int) -> tuple[int, list[dict[str, Any]]]:
        return await self._port.connections("" if self._port.sees_all(user) else user, start, most)

    async def _page(self, request: web.Request, user: str) -> web.Response:
        try:
            page = _number(request, "page", 1, 1_000_000)
            size = _number(request, "page_size", USUAL_PAGE, MOST_OF_A_PAGE)
        except ValueError as error:
            return _bad_request(str(error), "invalid_pagination_parameters")
        total, rows = await self._some(user, (page - 1) * size, size)
        pages = max(1, -(-total // size))
        content: dict[str, Any] = {
            "filtered_count": total, "item_count": len(rows), "items": rows, "page": page, "page_count": pages,
            "page_size": size, "total_count": total,
        }  # fmt: skip
        return answer(content)

    async def one(self, request: web.Request, user: str) -> web.Response:
        """`/api/connections/{name}`."""
        found = await self._found(request, user, self._port.sees_all(user))
        return found if isinstance(found, web.Response) else answer(found)

    async def close(self, request: web.Request, user: str) -> web.Response:
        """DELETE of one."""
        found = await self._found(request, user, self._port.may_close_all(user))
        if isinstance(found, web.Response):
            return found
        reason = request.headers.get("X-Reason", "").encode("utf-8", "replace").decode("utf-8")
        if await self._port.close_connection(found["name"], reason or REASON):
            return web.Response(status=HTTPStatus.NO_CONTENT)
        return answer(_NOT_FOUND, HTTPStatus.NOT_FOUND)

    async def _found(self, request: web.Request, user: str, may: bool) -> dict[str, Any] | web.Response:
        """The connection that is meant, or why not. `may`: others' as well as the own ones."""
        row = await self._port.connection(request.match_info["name"])
        if row is None:
            return answer(_NOT_FOUND, HTTPStatus.NOT_FOUND)
        if row["user"] != user and not may:
            return not_authorised("User not authorised to access object")
        return row


def _number(request: web.Request, name: str, usual: int, most: int) -> int:
    text = request.query.get(name, str(usual))
    if text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= most:
        return int(text)
    raise ValueError(f"{name} is '{text}', it should be a number from 1 to {most}")


def _bad_request(reason: str, error: str = "bad_request") -> web.Response:
    return answer({"error": error, "reason": reason}, HTTPStatus.BAD_REQUEST)
