"""Redrives over HTTP: previewed, started, paused, resumed, cancelled, followed (RULES R1)."""

from typing import Annotated, Literal

import msgspec
from aiohttp import web

from mayfly.node.http.answers import answered
from mayfly.node.http.gate import Handler
from mayfly.node.operating.ports.answers import bad_request
from mayfly.node.operating.ports.management import ManagementPort
from mayfly.node.operating.ports.redrives import LONGEST_PREVIEW_MS, MOST_SHOWN, PREVIEW_MS, RedrivePort, RedriveWish
from mayfly.node.operating.ports.users import User
from mayfly.node.shard.outbox import REASONS
from mayfly.node.shard.redrive import MOST_PER_SECOND
from mayfly.node.shard.settings import MAX_NUMBER

_NAME_OCTETS = 255
_MOST_HEADERS = 32

_Ms = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
_Rate = Annotated[int, msgspec.Meta(ge=0, le=MOST_PER_SECOND)]
_Text = Annotated[str, msgspec.Meta(max_length=_NAME_OCTETS)]


class _Wish(msgspec.Struct, forbid_unknown_fields=True):
    """What is asked for; ``count`` is how many messages a preview shows, and ``within_ms`` how long it may take."""

    target_queue: _Text | None = None
    target_exchange: _Text | None = None
    target_routing_key: _Text | None = None
    reason: _Text | None = None
    from_queue: _Text | None = None
    routing_key: _Text | None = None
    headers: dict[_Text, _Text] = {}
    min_age_ms: _Ms | None = None
    max_age_ms: _Ms | None = None
    rate: _Rate = 0
    count: Annotated[int, msgspec.Meta(ge=0, le=MOST_SHOWN)] = 10
    within_ms: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_PREVIEW_MS)] = PREVIEW_MS

    def wish(self) -> RedriveWish:
        """Raises ValueError with a text for the client."""
        if self.target_queue is not None and self.target_exchange is not None:
            raise ValueError("a redrive goes to a target_queue or to a target_exchange, not to both")
        if self.target_routing_key is not None and self.target_exchange is None:
            raise ValueError("target_routing_key goes with a target_exchange")
        if self.reason is not None and self.reason not in REASONS:
            raise ValueError(f"reason = '{self.reason}': one of {', '.join(REASONS)} is expected")
        if len(self.headers) > _MOST_HEADERS:
            raise ValueError(f"headers has {len(self.headers)} names, at most {_MOST_HEADERS} are expected")
        for name in ("target_queue", "target_exchange", "target_routing_key", "from_queue", "routing_key"):
            _check_octets(name, getattr(self, name))
        return RedriveWish(
            self.target_queue, self.target_exchange, self.target_routing_key, self.reason, self.from_queue,
            self.routing_key, tuple(self.headers.items()), self.min_age_ms, self.max_age_ms, self.rate,
        )  # fmt: skip


class _Change(msgspec.Struct, forbid_unknown_fields=True):
    state: Literal["paused", "running"] | None = None
    rate: _Rate | None = None

    def check(self) -> None:
        """Raises ValueError."""
        if self.state is None and self.rate is None:
            raise ValueError("state (paused or running) or rate is expected, or both")


class RedrivePages:
    """Handlers for the routes of redrives."""

    def __init__(self, port: RedrivePort, management: ManagementPort) -> None:
        self._port = port
        self._management = management

    def handlers(self) -> dict[str, Handler]:
        """By their names in `api_routes`."""
        return {
            "redrives.list": self._list, "redrives.get": self._get, "redrives.start": self._start,
            "redrives.preview": self._preview, "redrives.change": self._change, "redrives.cancel": self._cancel,
        }  # fmt: skip

    async def _list(self, request: web.Request, user: User) -> web.Response:
        vhost = request.match_info.get("vhost")
        if vhost is not None:
            return answered(*await self._port.listed([vhost]))
        sees_all = self._management.sees_all(user.who)
        return answered(*await self._port.listed(None if sees_all else self._management.vhosts_seen(user.who)))

    async def _get(self, request: web.Request, user: User) -> web.Response:
        at = request.match_info
        return answered(*await self._port.progress(user.who, at["vhost"], at["name"]))

    async def _preview(self, request: web.Request, user: User) -> web.Response:
        at = request.match_info
        try:
            asked = await _asked(request)
            wish = asked.wish()
        except (msgspec.DecodeError, ValueError) as error:
            return answered(*bad_request(f"the request can't be read: {error}"))
        found = await self._port.preview(user.who, at["vhost"], at["name"], wish, asked.count, asked.within_ms)
        return answered(*found)

    async def _start(self, request: web.Request, user: User) -> web.Response:
        at = request.match_info
        try:
            wish = (await _asked(request)).wish()
        except (msgspec.DecodeError, ValueError) as error:
            return answered(*bad_request(f"the request can't be read: {error}"))
        return answered(*await self._port.start(user.who, at["vhost"], at["name"], wish))

    async def _change(self, request: web.Request, user: User) -> web.Response:
        at = request.match_info
        try:
            asked = msgspec.json.decode(await request.read(), type=_Change)
            asked.check()
        except (msgspec.DecodeError, ValueError) as error:
            return answered(*bad_request(f"the request can't be read: {error}"))
        return answered(*await self._port.change(user.who, at["vhost"], at["name"], asked.state, asked.rate))

    async def _cancel(self, request: web.Request, user: User) -> web.Response:
        at = request.match_info
        return answered(*await self._port.cancel(user.who, at["vhost"], at["name"]))


async def _asked(request: web.Request) -> _Wish:
    """What a request wants; nothing is a plain redrive."""
    return msgspec.json.decode(await request.read() or b"{}", type=_Wish)


def _check_octets(name: str, text: str | None) -> None:
    if text is not None and len(text.encode("utf-8", "surrogateescape")) > _NAME_OCTETS:
        raise ValueError(f"{name} has more than {_NAME_OCTETS} octets")
