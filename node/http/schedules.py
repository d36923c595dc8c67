"""What waits for its time in a queue, over HTTP: listed, cancelled, rescheduled (RULES S4, S6)."""

from typing import Annotated

import msgspec
from aiohttp import web

from mayfly.node.http.answers import answered
from mayfly.node.http.gate import Handler
from mayfly.node.operating.ports.answers import bad_request
from mayfly.node.operating.ports.schedules import MOST_LISTED, ScheduledWish, SchedulePort
from mayfly.node.operating.ports.users import User
from mayfly.node.shard.settings import MAX_NUMBER

_Ms = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]


class _Which(msgspec.Struct, forbid_unknown_fields=True):
    message_id: Annotated[str, msgspec.Meta(max_length=255)] = ""
    from_ms: _Ms | None = None
    until_ms: _Ms | None = None
    after: str = ""
    count: Annotated[int, msgspec.Meta(ge=1, le=MOST_LISTED)] = 100

    def wish(self) -> ScheduledWish:
        from_ms = -1 if self.from_ms is None else self.from_ms
        until_ms = -1 if self.until_ms is None else self.until_ms
        return ScheduledWish(self.message_id, from_ms, until_ms, self.after, self.count)


class _Due(msgspec.Struct, forbid_unknown_fields=True):
    """One of the two."""

    delay_ms: _Ms | None = None
    deliver_at_ms: _Ms | None = None

    def header(self) -> tuple[str, int]:
        if self.delay_ms is not None and self.deliver_at_ms is None:
            return "x-delay", self.delay_ms
        if self.deliver_at_ms is not None and self.delay_ms is None:
            return "x-deliver-at", self.deliver_at_ms
        raise ValueError("say when it is due: delay_ms (from now) or deliver_at_ms (since 1970), one of them")


class SchedulePages:
    """Handlers for the routes of what is scheduled."""

    def __init__(self, port: SchedulePort) -> None:
        self._port = port

    def handlers(self) -> dict[str, Handler]:
        """By their names in `api_routes`."""
        return {
            "schedules.list": self._list, "schedules.cancel": self._cancel, "schedules.reschedule": self._reschedule
        }  # fmt: skip

    async def _list(self, request: web.Request, user: User) -> web.Response:
        at = request.match_info
        try:
            wish = msgspec.convert(dict(request.query), _Which, strict=False).wish()
            return answered(*await self._port.scheduled(user.who, at["vhost"], at["name"], wish))
        except (msgspec.ValidationError, ValueError) as error:
            return answered(*bad_request(f"the request can't be read: {error}"))

    async def _cancel(self, request: web.Request, user: User) -> web.Response:
        at = request.match_info
        return answered(*await self._port.change(user.who, at["vhost"], at["name"], at["message_id"], None))

    async def _reschedule(self, request: web.Request, user: User) -> web.Response:
        at = request.match_info
        try:
            due = msgspec.json.decode(await request.read(), type=_Due).header()
        except (msgspec.DecodeError, ValueError) as error:
            return answered(*bad_request(f"the request can't be read: {error}"))
        return answered(*await self._port.change(user.who, at["vhost"], at["name"], at["message_id"], due))
