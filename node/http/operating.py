"""The pages for operators, with whom each is for:

    a listing of dead letters          tag administrator or monitoring: keys come from messages
    whatever changes something         tag administrator, and JSON

Names and passwords are given by basic authentication. From the node's own machine its own token, as a bearer's, does
as well for two things: to drain this node, and to take out this node or a member that is down
(`node.operating.own_token`).
"""

from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from http import HTTPStatus
from typing import Annotated, Final

import msgspec
from aiohttp import web

from mayfly.node.http.answers import JSON, answer, unauthorized
from mayfly.node.http.logins import login_in
from mayfly.node.http.origins import is_from_here
from mayfly.node.http.routes import PageRoutes
from mayfly.node.limits import SHARDS
from mayfly.node.operating.ports.operator import OperatorPort
from mayfly.node.operating.ports.parked_selection import Selection
from mayfly.node.operating.ports.trace_wish import LONGEST_TRACE_S, MOST_EVENTS, TraceWish
from mayfly.node.operating.ports.users import ADMINISTRATOR, SEE_ALL
from mayfly.node.shard.outbox import PARKED_REASONS

PAGES: Final = {
    "/node/drain": "POST: clients and leaders go to other nodes; POST /node/revive ends that",
    "/node/snapshot": "POST: a copy of the node's data in a folder of its machine, or of the whole cluster's data",
    "/switches": "POST: message TTL or dead-lettering on or off, in a vhost or in the cluster; /status has what is off",
    "/node/log": "how much its parts log; POST changes that, until it ends",
    "/node/trace": "POST: what clients of this node do with a queue, or one user does, for some seconds",
    "/deadletters": "dead letters that wait; POST /deadletters/release and /deadletters/drop settle them",
}


class _Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """`{}`."""


class _LogLevel(msgspec.Struct, forbid_unknown_fields=True):
    part: str
    level: str


class _Trace(msgspec.Struct, forbid_unknown_fields=True):
    vhost: str = "/"
    queue: str = ""
    user: str = ""
    seconds: Annotated[float, msgspec.Meta(gt=0, le=LONGEST_TRACE_S)] = 10.0
    most: Annotated[int, msgspec.Meta(ge=1, le=MOST_EVENTS)] = 1000


class _Remove(msgspec.Struct, forbid_unknown_fields=True):
    name: str


class _Snapshot(msgspec.Struct, forbid_unknown_fields=True):
    folder: str
    whole: bool = False


class _Move(msgspec.Struct, forbid_unknown_fields=True):
    voters: tuple[str, ...]


class _MoveQueue(msgspec.Struct, forbid_unknown_fields=True):
    shard: int


class _Transfer(msgspec.Struct, forbid_unknown_fields=True):
    leader: str


class _Add(msgspec.Struct, forbid_unknown_fields=True):
    total: Annotated[int, msgspec.Meta(ge=1, le=SHARDS)]


class _Switch(msgspec.Struct, forbid_unknown_fields=True):
    """For the whole cluster it takes `cluster`, so that nobody does that by leaving something out."""

    feature: str
    on: bool
    vhost: str | None = None
    cluster: bool = False


class _Letters(msgspec.Struct, forbid_unknown_fields=True):
    """Which parked dead letters; all of them takes `all`, so that nobody does that by leaving something out."""

    vhost: str | None = None
    queue: str | None = None
    reason: str | None = None
    shard: int | None = None
    all: bool = False

    def selection(self) -> Selection:
        if self.reason is not None and self.reason not in PARKED_REASONS:
            raise ValueError(f"'{self.reason}' is no reason, one of {', '.join(PARKED_REASONS)} is expected")
        return Selection(self.vhost, self.queue, self.reason, self.shard)


class OperatorPages:
    """Handlers for the application of a node."""

    def __init__(self, operator: OperatorPort) -> None:
        self._operator = operator

    def add_to(self, router: PageRoutes) -> None:
        """Put the pages where clients find them; those that monitors may see as well are in `node.http.observing`."""
        router.add_get("/deadletters", self._dead_letters)
        router.add_post("/deadletters/release", self._for_administrators(self._release))
        router.add_post("/deadletters/drop", self._for_administrators(self._drop))
        router.add_get("/node/log", self._log_levels)
        router.add_post("/node/log", self._for_administrators(self._set_log_level))
        router.add_post("/node/trace", self._for_administrators(self._trace))
        router.add_post("/node/drain", self._for_administrators(self._drain_node, lambda _: ""))
        router.add_post("/node/snapshot", self._for_administrators(self._snapshot))
        router.add_post("/node/revive", self._for_administrators(self._revive))
        router.add_post("/cluster/remove", self._for_administrators(self._remove, self._more_than_the_token_opens))
        router.add_post("/shards/add", self._for_administrators(self._add_shards))
        router.add_post("/shards/{group}/move", self._for_administrators(self._move))
        router.add_post("/queues/{vhost}/{name}/move", self._for_administrators(self._move_queue))
        router.add_post("/switches", self._for_administrators(self._switch))
        router.add_post("/shards/{group}/transfer", self._for_administrators(self._transfer))

    async def _dead_letters(self, request: web.Request) -> web.Response:
        refusal = await self._refusal(request, SEE_ALL)
        if refusal is not None:
            return refusal
        try:
            asked = msgspec.convert(dict(request.query), _Letters, strict=False)
            return answer(await self._operator.dead_letters(asked.selection()))
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

    async def _log_levels(self, request: web.Request) -> web.Response:
        return await self._refusal(request, SEE_ALL) or answer(self._operator.log_levels())

    async def _set_log_level(self, request: web.Request, body: bytes) -> web.Response:
        asked = msgspec.json.decode(body, type=_LogLevel)
        status, content = self._operator.set_log_level(asked.part, asked.level)
        return answer(content, status)

    async def _trace(self, request: web.Request, body: bytes) -> web.Response:
        asked = msgspec.json.decode(body, type=_Trace)
        if not (asked.queue or asked.user):
            raise ValueError("say of which queue or user")
        wish = TraceWish(asked.vhost, asked.queue, asked.user, asked.seconds, asked.most)
        status, content = await self._operator.trace(wish)
        return answer(content, status)

    async def _snapshot(self, request: web.Request, body: bytes) -> web.Response:
        asked = msgspec.json.decode(body, type=_Snapshot)
        status, content = await self._operator.snapshot(asked.folder, asked.whole)
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

    async def _add_shards(self, request: web.Request, body: bytes) -> web.Response:
        status, content = await self._operator.add_shards(msgspec.json.decode(body, type=_Add).total)
        return answer(content, status)

    async def _move(self, request: web.Request, body: bytes) -> web.Response:
        voters = msgspec.json.decode(body, type=_Move).voters
        status, content = await self._operator.move_group(_group(request), voters)
        return answer(content, status)

    async def _move_queue(self, request: web.Request, body: bytes) -> web.Response:
        shard = msgspec.json.decode(body, type=_MoveQueue).shard
        vhost, name = request.match_info["vhost"], request.match_info["name"]
        status, content = await self._operator.move_queue(vhost, name, shard)
        return answer(content, status)

    async def _switch(self, request: web.Request, body: bytes) -> web.Response:
        asked = msgspec.json.decode(body, type=_Switch)
        if asked.cluster == (asked.vhost is not None):
            raise ValueError("say where: either a vhost, or cluster: true")
        status, content = await self._operator.switch(asked.vhost, asked.feature, asked.on)
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

    async def _refusal(self, request: web.Request, tags: AbstractSet[str]) -> web.Response | None:
        """The answer to whoever has not logged in as a user with one of these tags; None for who has."""
        given = login_in(request)
        if given is not None and tags & set(await self._operator.tags(*given)):
            return None
        text = f"name and password of a user with the tag {' or '.join(sorted(tags))} are needed"
        return unauthorized({"error": text})


def _group(request: web.Request) -> int:
    text = request.match_info["group"]
    if not (text.isascii() and text.isdigit()) or len(text) > 6:
        raise ValueError(f"'{text}' is no number of a group")
    return int(text)
