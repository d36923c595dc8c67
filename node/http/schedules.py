"""What waits for its time in a queue or for a delayed exchange: listed, cancelled, rescheduled over HTTP (RULES S4,
S6).
"""

from functools import partial
from typing import Annotated, Any, Final, Literal

import msgspec
from aiohttp import web

from mayfly.node.http.answers import answered
from mayfly.node.http.gate import Handler
from mayfly.node.operating.ports.answers import bad_request
from mayfly.node.operating.ports.schedules import MOST_LISTED, ScheduledWish, SchedulePort, WaitingPlace
from mayfly.node.operating.ports.users import User
from mayfly.node.shard.settings import MAX_NUMBER

_Kind = Literal["queue", "exchange"]
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


_HEADERS: Final = {"delay_ms": "x-delay", "deliver_at_ms": "x-deliver-at"}
_SHOWN_CHARACTERS: Final = 100


def _due_in(content: Any) -> tuple[str, int]:
    """The header by which a publisher says it, and its ms. Raises ValueError."""
    if not isinstance(content, dict) or len(content) != 1 or not content.keys() <= _HEADERS.keys():
        shown = repr(content)[:_SHOWN_CHARACTERS]
        raise ValueError(
            f"{shown}: an object is expected that says when it is due: delay_ms (from now) or deliver_at_ms (since "
            "1970), one of them"
        )
    ((name, ms),) = content.items()
    if type(ms) is not int or not 0 <= ms <= MAX_NUMBER:
        shown = repr(ms)[:_SHOWN_CHARACTERS]
        raise ValueError(f"{name} = {shown}: an integer of ms is expected, from 0 to {MAX_NUMBER}")
    return _HEADERS[name], ms


class SchedulePages:
    """Handlers for the routes of what is scheduled."""

    def __init__(self, port: SchedulePort) -> None:
        self._port = port

    def handlers(self) -> dict[str, Handler]:
        """By their names in `api_routes`."""
        return {
            "schedules.list": partial(self._list, "queue"),
            "schedules.cancel": partial(self._cancel, "queue"),
            "schedules.reschedule": partial(self._reschedule, "queue"),
            "schedules.list_delayed": partial(self._list, "exchange"),
            "schedules.cancel_delayed": partial(self._cancel, "exchange"),
            "schedules.reschedule_delayed": partial(self._reschedule, "exchange"),
        }

    async def _list(self, kind: _Kind, request: web.Request, user: User) -> web.Response:
        try:
            wish = msgspec.convert(dict(request.query), _Which, strict=False).wish()
            return answered(*await self._port.scheduled(user.who, _where(kind, request), wish))
        except (msgspec.ValidationError, ValueError) as error:
            return answered(*bad_request(f"the request can't be read: {error}"))

    async def _cancel(self, kind: _Kind, request: web.Request, user: User) -> web.Response:
        message_id = request.match_info["message_id"]
        return answered(*await self._port.change(user.who, _where(kind, request), message_id, None))

    async def _reschedule(self, kind: _Kind, request: web.Request, user: User) -> web.Response:
        try:
            due = _due_in(msgspec.json.decode(await request.read()))
        except (msgspec.DecodeError, ValueError) as error:
            return answered(*bad_request(f"the request can't be read: {error}"))
        message_id = request.match_info["message_id"]
        return answered(*await self._port.change(user.who, _where(kind, request), message_id, due))


def _where(kind: _Kind, request: web.Request) -> WaitingPlace:
    return WaitingPlace(kind, request.match_info["vhost"], request.match_info["name"])
