"""Brakes over HTTP: listed, and released (RULES R5)."""

from aiohttp import web

from mayfly.node.http.answers import answered
from mayfly.node.http.gate import Handler
from mayfly.node.operating.ports.brakes import BrakePort
from mayfly.node.operating.ports.management import ManagementPort
from mayfly.node.operating.ports.users import User


class BrakePages:
    """Handlers for the routes of brakes."""

    def __init__(self, port: BrakePort, management: ManagementPort) -> None:
        self._port = port
        self._management = management

    def handlers(self) -> dict[str, Handler]:
        """By their names in `api_routes`."""
        return {"brakes.list": self._list, "brakes.release": self._release}

    async def _list(self, request: web.Request, user: User) -> web.Response:
        vhost = request.match_info.get("vhost")
        if vhost is not None:
            return answered(*await self._port.braked([vhost]))
        sees_all = self._management.sees_all(user.who)
        return answered(*await self._port.braked(None if sees_all else self._management.vhosts_seen(user.who)))

    async def _release(self, request: web.Request, user: User) -> web.Response:
        at = request.match_info
        return answered(*await self._port.release(user.who, at["vhost"], at["name"]))
