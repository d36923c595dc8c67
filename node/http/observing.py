"""The pages about queues, for whoever watches them: what a node has, and on request only what the cluster has now."""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from aiohttp import web

from node.http.metrics import CONTENT_TYPE, rendered
from node.http.operating import answer
from node.http.provider import StatusProvider
from node.queue_selection import MOST_QUEUES, USUAL_QUEUES, QueueSelection

PAGES: Final = {
    "/queues": f"queues by name; ?vhost= ?name=part of it ?limit={USUAL_QUEUES} ?fresh=true",
    "/queues/{vhost}/{name}": "one queue as this node has it, the default vhost is %2F; ?fresh=true waits for news",
    "/metrics/per-queue": f"metrics of queues; ?vhost= ?queue=name (may be repeated) ?limit={USUAL_QUEUES}",
}
COUNT_WITHIN_S: Final = 0.5
"""So long a page goes on looking at the messages of a long queue; other work comes in between."""


class _BadRequest(ValueError):
    """What is wrong with the query."""


class ObservingPages:
    """Handlers for the application of a node."""

    def __init__(self, provider: StatusProvider) -> None:
        self._provider = provider

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Put the pages where clients find them."""
        router.add_get("/queues", _told(self._queues))
        router.add_get("/queues/{vhost}/{name}", _told(self._queue))
        router.add_get("/metrics/per-queue", _told(self._metrics))

    async def _queue(self, request: web.Request) -> web.Response:
        vhost, name = request.match_info["vhost"], request.match_info["name"]
        _check(request, {"fresh"})
        freshness = await self._provider.freshness(vhost, name) if _fresh(request) else {}
        info = self._provider.queue_info(vhost, name)
        until_s = _now_s() + COUNT_WITHIN_S
        while info is not None and not info.get("exact", True) and _now_s() < until_s:
            await asyncio.sleep(0)
            info = self._provider.queue_info(vhost, name)
        if info is None:
            reason = freshness.get("reason")
            text = f"this node knows no queue '{name}' in vhost '{vhost}'"
            return answer({"error": f"{text} ({reason})" if reason else text}, HTTPStatus.NOT_FOUND)
        return answer({**info, **freshness})

    async def _queues(self, request: web.Request) -> web.Response:
        _check(request, {"vhost", "name", "limit", "fresh"})
        selection = QueueSelection(
            request.query.get("vhost"), part=request.query.get("name", ""), limit=_limit(request)
        )
        freshness = await self._provider.freshness() if _fresh(request) else {}
        rows, left_out = self._provider.queues(selection)
        return answer({"queues": rows, "left_out": left_out, **freshness})

    async def _metrics(self, request: web.Request) -> web.Response:
        _check(request, {"vhost", "queue", "limit"})
        names = frozenset(request.query.getall("queue", []))
        selection = QueueSelection(request.query.get("vhost"), names, limit=_limit(request))
        rows, left_out = self._provider.queues(selection)
        until_s = _now_s() + COUNT_WITHIN_S
        while names and not all(row.get("exact", True) for row in rows) and _now_s() < until_s:
            await asyncio.sleep(0)
            rows, left_out = self._provider.queues(selection)
        # That takes 0.1 ms a queue; the rows are nobody else's.
        page = await asyncio.to_thread(lambda: rendered(self._provider.queue_metrics(rows, left_out)))
        return web.Response(body=page, headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})


def _told(
    handler: Callable[[web.Request], Awaitable[web.Response]],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """The handler; what is wrong with a query is told."""

    async def handle(request: web.Request) -> web.Response:
        try:
            return await handler(request)
        except _BadRequest as error:
            return answer({"error": str(error)}, HTTPStatus.BAD_REQUEST)

    return handle


def _check(request: web.Request, known: set[str]) -> None:
    for key in request.query:
        if key not in known:
            raise _BadRequest(f"'{key}' is not known here, only {', '.join(sorted(known))}")


def _limit(request: web.Request) -> int:
    text = request.query.get("limit", str(USUAL_QUEUES))
    if text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= MOST_QUEUES:
        return int(text)
    raise _BadRequest(f"limit is '{text}', it should be a number from 1 to {MOST_QUEUES}")


def _fresh(request: web.Request) -> bool:
    text = request.query.get("fresh", "false")
    if text not in ("true", "false"):
        raise _BadRequest(f"fresh is '{text}', it should be true or false")
    return text == "true"


def _now_s() -> float:
    return asyncio.get_running_loop().time()
