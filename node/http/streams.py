"""Streams over HTTP: what they have, the latest message of a routing key, what is to go (RULES J3, J5),
and what is noted in a journal (R4)."""

from aiohttp import web

from mayfly.node.http.answers import answered
from mayfly.node.http.gate import Handler
from mayfly.node.operating.ports.answers import bad_request
from mayfly.node.operating.ports.streams import StreamPort
from mayfly.node.operating.ports.users import User
from mayfly.node.shard.settings import MAX_NUMBER

JOURNAL_ROWS = 100
"""Records of a journal in one answer."""
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
            "streams.purge_key": self._purge_key, "streams.journal": self._journal,
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

    async def _journal(self, request: web.Request, user: User) -> web.Response:
        at = request.match_info
        try:
            queue = _queue(request)
            before = _number(request, "before", -1, 0, MAX_NUMBER)
            limit = _number(request, "limit", JOURNAL_ROWS, 1, JOURNAL_ROWS)
        except ValueError as error:
            return answered(*bad_request(str(error)))
        return answered(*await self._port.journal(user.who, at["vhost"], at["name"], queue, before, limit))

    async def _delete_message(self, request: web.Request, user: User) -> web.Response:
        at = request.match_info
        try:
            offset = _checked("offset", at["offset"], 0, MAX_NUMBER)
        except ValueError as error:
            return answered(*bad_request(str(error)))
        return answered(*await self._port.delete_message(user.who, at["vhost"], at["name"], offset))

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


def _queue(request: web.Request) -> str | None:
    """The queue whose records are wanted, None for all."""
    names = request.query.getall("queue", [])
    if len(names) > 1 or any(len(name.encode("utf-8", "surrogateescape")) > _KEY_OCTETS for name in names):
        raise ValueError(f"the name of one queue, of at most {_KEY_OCTETS} octets, is expected: ?queue=...")
    return names[0] if names else None


def _number(request: web.Request, name: str, usual: int, least: int, most: int) -> int:
    """A number in the query, the usual one where it is not there."""
    values = request.query.getall(name, [])
    if len(values) > 1:
        raise ValueError(f"{name} = {', '.join(map(repr, values))}: one number is expected")
    return _checked(name, values[0], least, most) if values else usual


def _checked(name: str, text: str, least: int, most: int) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) <= _OFFSET_DIGITS
    if not is_number or not least <= int(text) <= most:
        raise ValueError(f"{name} = '{text}': a number from {least} to {most} is expected")
    return int(text)
