"""Health checks, parameters, and what RabbitMQ's clients ask of a cluster besides."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus

from aiohttp import web

from mayfly.node.http.answers import answer, answered
from mayfly.node.http.bodies import object_in
from mayfly.node.http.gate import Handler
from mayfly.node.http.listing import listed_rows, one
from mayfly.node.operating.ports.answers import NOT_FOUND, Answer
from mayfly.node.operating.ports.checks import ChecksPort
from mayfly.node.operating.ports.parameters import ParametersPort
from mayfly.node.operating.ports.users import User


class CheckPages:
    """Handlers for the routes that begin with checks."""

    def __init__(self, port: ChecksPort) -> None:
        self._port = port

    def handlers(self) -> dict[str, Handler]:
        """By their names in `api_routes`."""
        port = self._port
        return {
            "checks.alarms": _check(lambda _: port.alarms()),
            "checks.local_alarms": _check(lambda _: port.local_alarms()),
            "checks.certificates": _waiting_check(lambda at: port.certificates(at["within"], at["unit"])),
            "checks.port": _check(lambda at: port.port_listener(at["port"])),
            "checks.protocol": _check(lambda at: port.protocol_listener(at["protocol"])),
            "checks.quorum": _check(lambda _: port.quorum_critical()),
            "checks.leaders": _waiting_check(lambda at: port.leaders(at.get("vhost"), at.get("pattern", ""))),
            "checks.ready": _check(lambda _: port.ready()),
            "checks.ready_there": _check(lambda at: port.ready_there(at["name"])),
            "checks.connections": _check(lambda _: port.below_connection_limit()),
            "checks.stored": _check(lambda _: port.stored()),
            "checks.nothing": _check(lambda _: port.nothing_to_check()),
        }


def _check(ask: Callable[[dict[str, str]], Answer]) -> Handler:
    async def handle(request: web.Request, _user: User) -> web.Response:
        return answered(*ask(dict(request.match_info)))

    return handle


def _waiting_check(ask: Callable[[dict[str, str]], Awaitable[Answer]]) -> Handler:
    async def handle(request: web.Request, _user: User) -> web.Response:
        return answered(*await ask(dict(request.match_info)))

    return handle


class ParameterPages:
    """Handlers for the routes that begin with parameters."""

    def __init__(self, port: ParametersPort) -> None:
        self._port = port

    def handlers(self) -> dict[str, Handler]:
        """By their names in `api_routes`."""
        return {
            "parameters.list": self._list,
            "parameters.get": self._one,
            "parameters.put": self._put,
            "parameters.delete": self._delete,
        }

    async def _list(self, request: web.Request, _user: User) -> web.Response:
        rows = self._port.parameters(dict(request.match_info))
        if rows is None:
            return answer(NOT_FOUND, HTTPStatus.NOT_FOUND)
        return await listed_rows(request, rows, has_pages=False)

    async def _one(self, request: web.Request, _user: User) -> web.Response:
        rows = self._port.parameters(dict(request.match_info))
        return one(request, rows[0]) if rows else answer(NOT_FOUND, HTTPStatus.NOT_FOUND)

    async def _put(self, request: web.Request, _user: User) -> web.Response:
        content = object_in(await request.read())
        return answered(*await self._port.put_parameter(dict(request.match_info), content))

    async def _delete(self, request: web.Request, _user: User) -> web.Response:
        return answered(*await self._port.delete_parameter(dict(request.match_info)))
