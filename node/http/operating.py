"""The pages for operators, with whom each is for:

    a listing of dead letters          tag administrator or monitoring: keys come from messages
    whatever changes something         tag administrator, and JSON

Names and passwords are given by basic authentication. From the node's own machine its own token, as a bearer's, does
as well for two things: to drain this node, and to take out this node or a member that is down
(`node.operating.own_token`).
"""

import base64
import binascii
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final

import msgspec
from aiohttp import web

from mayfly.node.http.origins import is_from_here
from mayfly.node.http.routes import Routes
from mayfly.node.operating.ports.operator import OperatorPort
from mayfly.node.operating.ports.parked_selection import Selection
from mayfly.node.shard.outbox import REASONS

PAGES: Final = {
    "/node/drain": "POST: clients and leaders go to other nodes; POST /node/revive ends that",
    "/node/snapshot": "POST: a copy of the node's data in a folder of its machine",
    "/deadletters": "dead letters that wait; POST /deadletters/release and /deadletters/drop settle them",
}

JSON: Final = "application/json"
ADMINISTRATOR: Final = "administrator"
MONITORING: Final = "monitoring"
REALM: Final = "RabbitMQ Management"


class _Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """`{}`."""


class _Remove(msgspec.Struct, forbid_unknown_fields=True):
    name: str


class _Snapshot(msgspec.Struct, forbid_unknown_fields=True):
    folder: str


class _Move(msgspec.Struct, forbid_unknown_fields=True):
    voters: tuple[str, ...]


class _Transfer(msgspec.Struct, forbid_unknown_fields=True):
    leader: str


class _Letters(msgspec.Struct, forbid_unknown_fields=True):
    """Which parked dead letters; all of them takes `all`, so that nobody does that by leaving something out."""

    vhost: str | None = None
    queue: str | None = None
    reason: str | None = None
    shard: int | None = None
    all: bool = False

    def selection(self) -> Selection:
        if self.reason is not None and self.reason not in REASONS:
            raise ValueError(f"'{self.reason}' is no reason, one of {', '.join(REASONS)} is expected")
        return Selection(self.vhost, self.queue, self.reason, self.shard)


class OperatorPages:
    """Handlers for the application of a node."""

    def __init__(self, operator: OperatorPort) -> None:
        self._operator = operator

    def add_to(self, router: Routes) -> None:
        """Put the pages where clients find them; those that monitors may see as well are in `node.http.observing`."""
        router.add_get("/deadletters", self._dead_letters)
        router.add_post("/deadletters/release", self._for_administrators(self._release))
        router.add_post("/deadletters/drop", self._for_administrators(self._drop))
        router.add_post("/node/drain", self._for_administrators(self._drain_node, lambda _: ""))
        router.add_post("/node/snapshot", self._for_administrators(self._snapshot))
        router.add_post("/node/revive", self._for_administrators(self._revive))
        router.add_post("/cluster/remove", self._for_administrators(self._remove, self._more_than_the_token_opens))
        router.add_post("/shards/{group}/move", self._for_administrators(self._move))
        router.add_post("/shards/{group}/transfer", self._for_administrators(self._transfer))

    async def _dead_letters(self, request: web.Request) -> web.Response:
        refusal = await self._refusal(request, {ADMINISTRATOR, MONITORING})
        if refusal is not None:
            return refusal
        try:
            asked = msgspec.convert(dict(request.query), _Letters, strict=False)
            return answer(self._operator.dead_letters(asked.selection()))
        except (msgspec.ValidationError, ValueError) as error:
            return answer({"error": f"the request can't be read: {error}"}, HTTPStatus.BAD_REQUEST)

    async def _release(self, request: web.Request, body: bytes) -> web.Response:
        return await self._settle(True, body)

    async def _drop(self, request: web.Request, body: bytes) -> web.Response:
        return await self._settle(False, body)

    async def _settle(self, release: bool, body: bytes) -> web.Response:
        asked = msgspec.json.decode(body, type=_Letters)
        selection = asked.selection()
        given = (asked.vhost, asked.queue, asked.reason, asked.shard)
        if asked.all == (given != (None,) * len(given)):
            raise ValueError("say which by vhost, queue, reason or shard, or say all")
        status, content = await self._operator.settle_dead_letters(release, selection)
        return answer(content, status)

    async def _drain_node(self, request: web.Request, body: bytes) -> web.Response:
        msgspec.json.decode(body, type=_Nothing)
        status, content = self._operator.drain()
        return answer(content, status)

    async def _snapshot(self, request: web.Request, body: bytes) -> web.Response:
        status, content = await self._operator.snapshot(msgspec.json.decode(body, type=_Snapshot).folder)
        return answer(content, status)

    async def _revive(self, request: web.Request, body: bytes) -> web.Response:
        msgspec.json.decode(body, type=_Nothing)
        status, content = await self._operator.revive()
        return answer(content, status)

    async def _remove(self, request: web.Request, body: bytes) -> web.Response:
        status, content = await self._operator.remove_member(msgspec.json.decode(body, type=_Remove).name)
        return answer(content, status)

    def _more_than_the_token_opens(self, body: bytes) -> str:
        name = msgspec.json.decode(body, type=_Remove).name
        if self._operator.may_be_removed_by_token(name):
            return ""
        return f"the node's own token takes out this node and members that are down, not '{name}'"

    async def _move(self, request: web.Request, body: bytes) -> web.Response:
        voters = msgspec.json.decode(body, type=_Move).voters
        status, content = await self._operator.move_group(_group(request), voters)
        return answer(content, status)

    async def _transfer(self, request: web.Request, body: bytes) -> web.Response:
        leader = msgspec.json.decode(body, type=_Transfer).leader
        status, content = await self._operator.transfer_group(_group(request), leader)
        return answer(content, status)

    def _for_administrators(
        self,
        handler: Callable[[web.Request, bytes], Awaitable[web.Response]],
        beyond_token: Callable[[bytes], str] | None = None,
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """`beyond_token`: why the node's own token is not enough for such a body, "" if it is; None: it never is."""

        async def handle(request: web.Request) -> web.Response:
            if request.content_type != JSON:  # a form of another site can't say so, and browsers remember passwords
                text = f"Content-Type is {request.content_type}; {JSON} is expected"
                return answer({"error": text}, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
            by_token = beyond_token is not None and self._shows_own_token(request)
            refusal = None if by_token else await self._refusal(request, {ADMINISTRATOR})
            if refusal is not None:
                return refusal
            try:
                body = await request.read()
                if by_token and beyond_token is not None:
                    reason = beyond_token(body)
                    if reason:
                        return answer({"error": reason}, HTTPStatus.FORBIDDEN)
                return await handler(request, body)
            except (msgspec.DecodeError, ValueError) as error:
                return answer({"error": f"the request can't be read: {error}"}, HTTPStatus.BAD_REQUEST)

        return handle

    def _shows_own_token(self, request: web.Request) -> bool:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not is_from_here(request):
            return False
        return self._operator.is_own_token(token.strip())

    async def _refusal(self, request: web.Request, tags: set[str]) -> web.Response | None:
        """The answer to whoever has not logged in as a user with one of these tags; None for who has."""
        given = credentials(request.headers.get("Authorization", ""))
        if given is not None and tags & set(await self._operator.tags(*given, is_from_here(request))):
            return None
        text = f"name and password of a user with the tag {' or '.join(sorted(tags))} are needed"
        return unauthorized({"error": text})


def answer(content: dict[str, Any] | list[dict[str, Any]], status: int = HTTPStatus.OK) -> web.Response:
    """JSON that nobody keeps: a page of one moment is never the right answer later."""
    return answer_in_json(json_of(content), status)


def json_of(content: dict[str, Any] | list[dict[str, Any]]) -> bytes:
    """A page in JSON."""
    return msgspec.json.encode(content) + b"\n"


def answer_in_json(content: bytes | bytearray, status: int = HTTPStatus.OK) -> web.Response:
    """`answer` with what is JSON already."""
    headers = {"Cache-Control": "no-store"}
    return web.Response(body=content, status=status, content_type=JSON, headers=headers)


def not_authorised(reason: str) -> web.Response:
    """401: no login, or not as somebody who may."""
    return unauthorized({"error": "not_authorised", "reason": reason})


def unauthorized(content: dict[str, Any]) -> web.Response:
    """401 in the realm that RabbitMQ's has: there are checks that look for it."""
    response = answer(content, HTTPStatus.UNAUTHORIZED)
    response.headers["WWW-Authenticate"] = f'Basic realm="{REALM}"'
    return response


def _group(request: web.Request) -> int:
    text = request.match_info["group"]
    if not (text.isascii() and text.isdigit()) or len(text) > 6:
        raise ValueError(f"'{text}' is no number of a group")
    return int(text)


def credentials(header: str) -> tuple[str, str] | None:
    """User and password in an Authorization header of the basic kind; None if it is none."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (user, password) if colon else None
