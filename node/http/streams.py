"""Streams over HTTP: what they have, the latest message of a routing key, and what is to go (RULES J3, J5)."""

from aiohttp import web

from mayfly.node.http.answers import answered
from mayfly.node.http.gate import Handler
from mayfly.node.operating.ports.answers import bad_request
from mayfly.node.operating.ports.streams import StreamPort
from mayfly.node.operating.ports.users import User
from mayfly.node.shard.settings import MAX_NUMBER

_KEY_OCTETS = 255
_OFFSET_DIGITS = 20
"""More are refused before they are read: that takes long where there are very many."""


class StreamPages:
    """Handlers for the routes of streams."""

    def __init__(self, port: StreamPort) -> None:
        self._port = port

    def handlers(self) -> dict[str, Handler]:
        """By their names in `api_routes`."""
        return {
            "streams.get": self._stream, "streams.latest": self._latest, "streams.delete_message": self._delete_message,
            "streams.purge_key": self._purge_key,
        }  # fmt: skip

    async def _stream(self, request: web.Request, user: User) -> web.Response:
        at = request.match_info
        return answered(*await self._port.stream(user.who, at["vhost"], at["name"]))

    async def _latest(self, request: web.Request, user: User) -> web.Response:
        at = request.match_info
        try:
            key = _key(request)
        except ValueError as error:
            return answered(*bad_request(str(error)))
        return answered(*await self._port.latest(user.who, at["vhost"], at["name"], key))

    async def _delete_message(self, request: web.Request, user: User) -> web.Response:
        at = request.match_info
        offset = at["offset"]
        if not (offset.isascii() and offset.isdecimal()) or len(offset) > _OFFSET_DIGITS or int(offset) > MAX_NUMBER:
            return answered(*bad_request(f"offset = '{offset}': a number from 0 to {MAX_NUMBER} is expected"))
        return answered(*await self._port.delete_message(user.who, at["vhost"], at["name"], int(offset)))

    async def _purge_key(self, request: web.Request, user: User) -> web.Response:
        at = request.match_info
        try:
            key = _key(request)
        except ValueError as error:
            return answered(*bad_request(str(error)))
        return answered(*await self._port.purge_key(user.who, at["vhost"], at["name"], key))


def _key(request: web.Request) -> str:
    """The routing key, which may be empty: nobody means all keys by leaving it out."""
    keys = request.query.getall("key", [])
    if len(keys) != 1 or len(keys[0].encode("utf-8", "surrogateescape")) > _KEY_OCTETS:
        raise ValueError(f"one routing key of at most {_KEY_OCTETS} octets is expected: ?key=...")
    return keys[0]
