"""Queues with their ages, deadlines and leases, for which RabbitMQ's management API has no words: `/api/mayfly`."""

from http import HTTPStatus

from aiohttp import web

from mayfly.node.http.answers import answer
from mayfly.node.http.gate import Handler
from mayfly.node.http.listing import one
from mayfly.node.http.queue_lists import listed_queues
from mayfly.node.operating.ports.answers import NOT_FOUND
from mayfly.node.operating.ports.management import ManagementPort
from mayfly.node.operating.ports.users import User


class TimePages:
    """Handlers for the routes of times."""

    def __init__(self, port: ManagementPort) -> None:
        self._port = port

    def handlers(self) -> dict[str, Handler]:
        """By their names in `api_routes`."""
        return {"times.list": self._queues, "times.get": self._queue}

    async def _queues(self, request: web.Request, user: User) -> web.Response:
        return await listed_queues(request, self._port, user, self._port.timed_queues)

    async def _queue(self, request: web.Request, _user: User) -> web.Response:
        found = await self._port.timed_queue(request.match_info["vhost"], request.match_info["name"])
        return answer(NOT_FOUND, HTTPStatus.NOT_FOUND) if found is None else one(request, found)
