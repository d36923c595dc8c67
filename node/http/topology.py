"""Exchanges, queues, bindings and messages in RabbitMQ's management API."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from aiohttp import web

from mayfly.node.http.answers import answer, answered
from mayfly.node.http.bodies import object_in
from mayfly.node.http.gate import Handler
from mayfly.node.http.listing import Name, Row, listed_rows, one
from mayfly.node.http.queue_lists import listed_queues
from mayfly.node.operating.ports.answers import NOT_FOUND, bad_request
from mayfly.node.operating.ports.management import ManagementPort
from mayfly.node.operating.ports.queue_selection import Figures
from mayfly.node.operating.ports.topology import Body, TopologyPort
from mayfly.node.operating.ports.users import User


class TopologyPages:
    """Handlers for the routes that begin with exchanges, queues, bindings and aliveness."""

    def __init__(self, port: TopologyPort, management: ManagementPort) -> None:
        self._port = port
        self._management = management

    def handlers(self) -> dict[str, Handler]:
        """By their names in `api_routes`."""
        return {
            "exchanges.list": self._exchanges,
            "exchanges.get": self._exchange,
            "exchanges.put": self._put_exchange,
            "exchanges.delete": self._delete_exchange,
            "exchanges.publish": self._publish,
            "exchanges.bindings_from": self._bindings_from,
            "exchanges.bindings_to": self._bindings_to,
            "queues.list": self._queues,
            "queues.get": self._queue,
            "queues.put": self._put_queue,
            "queues.delete": self._delete_queue,
            "queues.bindings": self._bindings_of_queue,
            "queues.purge": self._purge,
            "queues.get_messages": self._get,
            "queues.act": self._act,
            "bindings.list": self._bindings,
            "bindings.between": self._bindings_between,
            "bindings.bind": self._bind,
            "bindings.get": self._binding,
            "bindings.unbind": self._unbind,
            "aliveness.test": self._is_alive,
        }

    # -- exchanges --------------------------------------------------------------------

    async def _exchanges(self, request: web.Request, user: User) -> web.Response:
        rows = await self._with_stats(request, self._port.exchanges(self._vhosts(request, user)))
        return await listed_rows(request, rows)

    async def _exchange(self, request: web.Request, _user: User) -> web.Response:
        row = self._port.exchange(request.match_info["vhost"], request.match_info["name"])
        return _one_or_none(request, None if row is None else (await self._with_stats(request, [row]))[0])

    async def _with_stats(self, request: web.Request, rows: list[Row]) -> list[Row]:
        if _is_asked(request, "disable_stats"):
            return rows
        names = [(row["vhost"], row["name"]) for row in rows]
        stats = await self._management.exchange_stats(names)
        delayed = await self._management.delayed(names)
        return [
            {**row, "message_stats": stats[name], **delayed.get(name, {})}
            for name, row in zip(names, rows, strict=True)
        ]

    async def _put_exchange(self, request: web.Request, user: User) -> web.Response:
        return answered(*await self._port.put_exchange(user.who, _at(request), await _content(request)))

    async def _delete_exchange(self, request: web.Request, user: User) -> web.Response:
        return answered(*await self._port.delete_exchange(user.who, _at(request), _is_asked(request, "if-unused")))

    async def _publish(self, request: web.Request, user: User) -> web.Response:
        return answered(*await self._port.publish(user.who, _at(request), await _content(request)))

    async def _bindings_from(self, request: web.Request, _user: User) -> web.Response:
        at = request.match_info
        return await _listed_or_none(request, self._port.bindings_of_exchange(at["vhost"], at["name"], True))

    async def _bindings_to(self, request: web.Request, _user: User) -> web.Response:
        at = request.match_info
        return await _listed_or_none(request, self._port.bindings_of_exchange(at["vhost"], at["name"], False))

    # -- queues -----------------------------------------------------------------------

    async def _queues(self, request: web.Request, user: User) -> web.Response:
        figures = _figures(request)

        async def rows_of(some: Sequence[Name]) -> list[Row]:
            return await self._management.queues(some, figures)

        return await listed_queues(request, self._management, user, rows_of)

    async def _queue(self, request: web.Request, _user: User) -> web.Response:
        names = [(request.match_info["vhost"], request.match_info["name"])]
        found = await self._management.queues(names, _figures(request))
        return _one_or_none(request, found[0] if found else None)

    async def _put_queue(self, request: web.Request, user: User) -> web.Response:
        return answered(*await self._port.put_queue(user.who, _at(request), await _content(request)))

    async def _delete_queue(self, request: web.Request, user: User) -> web.Response:
        conditions = [_is_asked(request, condition) for condition in ("if-unused", "if-empty")]
        return answered(*await self._port.delete_queue(user.who, _at(request), *conditions))

    async def _bindings_of_queue(self, request: web.Request, _user: User) -> web.Response:
        at = request.match_info
        return await _listed_or_none(request, self._port.bindings_of_queue(at["vhost"], at["name"]))

    async def _purge(self, request: web.Request, user: User) -> web.Response:
        return answered(*await self._port.purge(user.who, _at(request)))

    async def _get(self, request: web.Request, user: User) -> web.Response:
        return answered(*await self._port.get(user.who, _at(request), await _content(request)))

    async def _act(self, request: web.Request, _user: User) -> web.Response:
        """Those that there were are of mirrored queues."""
        action = (await _content(request)).get("action")
        return answered(*bad_request(f"Unknown action: {action}"))

    # -- bindings ---------------------------------------------------------------------

    async def _bindings(self, request: web.Request, user: User) -> web.Response:
        return await listed_rows(request, self._port.bindings(self._vhosts(request, user)), has_pages=False)

    async def _bindings_between(self, request: web.Request, _user: User) -> web.Response:
        return await _listed_or_none(request, self._port.bindings_between(_at(request)))

    async def _bind(self, request: web.Request, user: User) -> web.Response:
        status, content = await self._port.bind(user.who, _at(request), await _content(request))
        if status != HTTPStatus.CREATED:
            return answered(status, content)
        key = content["properties_key"]
        location = f"{quote(request.path.rstrip('/').rpartition('/')[2], safe='')}/{quote(key, safe='')}"
        return web.Response(status=status, headers={"Location": location})

    async def _binding(self, request: web.Request, _user: User) -> web.Response:
        return _one_or_none(request, self._port.binding(_at(request)))

    async def _unbind(self, request: web.Request, user: User) -> web.Response:
        return answered(*await self._port.unbind(user.who, _at(request)))

    # -- others -----------------------------------------------------------------------

    async def _is_alive(self, request: web.Request, user: User) -> web.Response:
        return answered(*await self._port.is_alive(user.who, request.match_info["vhost"]))

    def _vhosts(self, request: web.Request, user: User) -> list[str]:
        """The one in the path, or those that the user may see."""
        vhost = request.match_info.get("vhost")
        return self._management.vhosts_seen(user.who) if vhost is None else [vhost]


def _at(request: web.Request) -> dict[str, str]:
    return dict(request.match_info)


def _figures(request: web.Request) -> Figures:
    if not _is_asked(request, "disable_stats"):
        return "all"
    return "totals" if _is_asked(request, "enable_queue_totals") else "none"


def _is_asked(request: web.Request, condition: str) -> bool:
    return request.query.get(condition) == "true"


async def _content(request: web.Request) -> Body:
    return object_in(await request.read())


def _one_or_none(request: web.Request, row: dict[str, Any] | None) -> web.Response:
    return answer(NOT_FOUND, HTTPStatus.NOT_FOUND) if row is None else one(request, row)


async def _listed_or_none(request: web.Request, rows: list[dict[str, Any]] | None) -> web.Response:
    if rows is None:
        return answer(NOT_FOUND, HTTPStatus.NOT_FOUND)
    return await listed_rows(request, rows, has_pages=False)
