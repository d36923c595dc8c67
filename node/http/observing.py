"""The pages about queues, for whoever watches them: what replicas have, on request only what the cluster has now."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

from mayfly.node.http.answers import JSON, answer, json_of
from mayfly.node.http.open_pages import OpenPages
from mayfly.node.http.outlook import forecast_wish
from mayfly.node.http.page_queue import Made, PageQueue, TooManyWait
from mayfly.node.http.routes import PageRoutes
from mayfly.node.operating.ports.metrics import LEFT_OUT, Metric
from mayfly.node.operating.ports.operator import OperatorPort
from mayfly.node.operating.ports.queue_selection import MOST_QUEUES, USUAL_QUEUES, QueueSelection
from mayfly.node.operating.ports.rabbitmq_metrics import DETAILED, PER_OBJECT, MetricsSelection
from mayfly.node.operating.ports.status import StatusProvider

PAGES: Final = {
    "/metrics": "metrics for Prometheus",
    "/status": "nodes, shards, leaders, queue counts, expiry lag, as this node and those with other shards have them",
    "/cluster/members": "the members; POST /cluster/remove takes one out",
    "/shards": "who votes and leads where; POST /shards/{group}/move and /shards/{group}/transfer change it, POST "
    "/shards/add has more of them",
    "/shards/replicas": "which node has which, who leads, terms, how far each replica is behind",
    "/queues": f"queues by name; ?vhost= ?name=part of it ?limit={USUAL_QUEUES} ?fresh=true",
    "/queues/{vhost}/{name}": "one queue, the default vhost is %2F; ?fresh=true waits for news",
    "/metrics/per-queue": "metrics of the queues whose shards this node leads; ?vhost= ?queue=name (may be repeated) "
    f"?limit={USUAL_QUEUES}",
    "/metrics/forecast": "what will happen by itself to the queues whose shards this node leads; ?vhost= ?within_ms= "
    "(may be repeated) ?limit=",
    "/metrics/per-object": "metrics with RabbitMQ's names, of the same queues one by one; ?vhost= ?queue= ?limit=",
    "/metrics/detailed": "the same of some families, as in RabbitMQ; ?family= may be repeated; ?vhost= ?queue= ?limit=",
}
_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"
COUNT_WITHIN_S: Final = 0.5
"""So long a page goes on looking at the messages of a long queue; other work comes in between."""


class _BadRequest(ValueError):
    """What is wrong with the query."""


class ObservingPages:
    """Handlers for the application of a node: for monitors, and made in their turn."""

    def __init__(
        self, provider: StatusProvider, operator: OperatorPort | None, open_pages: OpenPages, page_queue: PageQueue
    ) -> None:
        """Without `operator` there are no pages on members and shards."""
        self._provider = provider
        self._operator = operator
        self._open_pages = open_pages
        self._page_queue = page_queue

    def add_to(self, router: PageRoutes) -> None:
        """Put the pages where clients find them."""
        for path, handler in (
            ("/metrics", self._metrics), ("/metrics/per-queue", self._queue_metrics),
            ("/metrics/forecast", self._forecast),
            ("/metrics/per-object", self._per_object), ("/metrics/detailed", self._detailed), ("/status", self._status),
            ("/queues", self._queues), ("/queues/{vhost}/{name}", self._queue),
        ):  # fmt: skip
            router.add_get(path, self._open_pages.for_monitors(_told(handler), path.startswith("/metrics")))
        if self._operator is not None:
            operator = self._operator
            for path, show in (("/cluster/members", _members), ("/shards", _shards)):
                router.add_get(path, self._open_pages.for_monitors(_told(self._of_cluster(operator, path, show))))
            router.add_get("/shards/replicas", self._open_pages.for_monitors(_told(self._replicas_of(operator))))

    def _of_cluster(
        self, operator: OperatorPort, path: str, show: Callable[[OperatorPort], Awaitable[dict[str, Any]]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            freshness = await operator.freshness()

            async def make() -> Made:
                return Made(json_of({**await show(operator), **freshness}), JSON)

            return (await self._page_queue.get(f"{path} {freshness}", make, asks_others=True)).response()

        return handle

    def _replicas_of(self, operator: OperatorPort) -> Callable[[web.Request], Awaitable[web.Response]]:
        """Waits for no leader: it is for finding out which are missing."""

        async def make() -> Made:
            return Made(json_of({"shards": await operator.replicas()}), JSON)

        async def handle(request: web.Request) -> web.Response:
            return (await self._page_queue.get("/shards/replicas", make, asks_others=True)).response()

        return handle

    async def _metrics(self, request: web.Request) -> web.Response:
        async def make() -> Made:
            metrics = await self._provider.metrics_snapshot()
            return Made(await asyncio.to_thread(_rendered_with_process, metrics), _METRICS)

        return (await self._page_queue.get("/metrics", make)).response()

    async def _status(self, request: web.Request) -> web.Response:
        async def make() -> Made:
            return Made(json_of(await self._provider.status()), JSON)

        return (await self._page_queue.get("/status", make, asks_others=True)).response()

    async def _queue(self, request: web.Request) -> web.Response:
        vhost, name = request.match_info["vhost"], request.match_info["name"]
        _check(request, {"fresh"})
        freshness = await self._provider.freshness(vhost, name) if _fresh(request) else {}
        info = await self._provider.queue_info(vhost, name)
        until_s = _now_s() + COUNT_WITHIN_S
        while info is not None and not info.get("exact", True) and _now_s() < until_s:
            await asyncio.sleep(0)
            info = await self._provider.queue_info(vhost, name)
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

        async def make() -> Made:
            rows, left_out = await self._provider.queues(selection)
            return Made(json_of({"queues": rows, "left_out": left_out, **freshness}), JSON)

        return (await self._page_queue.get(f"{_name(request)} {freshness}", make, asks_others=True)).response()

    async def _queue_metrics(self, request: web.Request) -> web.Response:
        _check(request, {"vhost", "queue", "limit"})
        names = frozenset(request.query.getall("queue", []))
        selection = QueueSelection(request.query.get("vhost"), names, limit=_limit(request), told_here=True)

        async def make() -> Made:
            rows, left_out = await self._provider.queues(selection)
            until_s = _now_s() + COUNT_WITHIN_S
            while names and not all(row.get("exact", True) for row in rows) and _now_s() < until_s:
                await asyncio.sleep(0)
                rows, left_out = await self._provider.queues(selection)
            # That takes 0.1 ms a queue; the rows are nobody else's.
            page = await asyncio.to_thread(lambda: _rendered(self._provider.queue_metrics(rows, left_out)))
            return Made(page, _METRICS)

        return (await self._page_queue.get(_name(request), make)).response()

    async def _forecast(self, request: web.Request) -> web.Response:
        _check(request, {"vhost", "within_ms", "limit"})
        try:
            wish = forecast_wish(request, request.query.getall("vhost", []) or None, led_here=True)
        except ValueError as error:
            raise _BadRequest(str(error)) from None

        async def make() -> Made:
            metrics = await self._provider.forecast_metrics(wish)
            return Made(await asyncio.to_thread(_rendered, metrics), _METRICS)

        return (await self._page_queue.get(_name(request), make)).response()

    async def _per_object(self, request: web.Request) -> web.Response:
        _check(request, {"vhost", "queue", "limit"})
        vhosts = frozenset(request.query.getall("vhost", []))
        return await self._rabbitmq(request, MetricsSelection(PER_OBJECT, None, vhosts))

    async def _detailed(self, request: web.Request) -> web.Response:
        _check(request, {"family", "vhost", "queue", "limit"})
        families, vhosts = (frozenset(request.query.getall(key, [])) for key in ("family", "vhost"))
        return await self._rabbitmq(request, MetricsSelection(DETAILED, families, vhosts, _limit(request)))

    async def _rabbitmq(self, request: web.Request, wanted: MetricsSelection) -> web.Response:
        names = frozenset(request.query.getall("queue", []))
        most = _limit(request)

        async def make() -> Made:
            metrics = [*await self._provider.rabbitmq_metrics(wanted)]
            if not wanted.tells_of_queues:
                return Made(await asyncio.to_thread(_rendered, metrics), _METRICS)
            rows: list[dict[str, Any]] = []
            left_out = 0
            vhosts: list[str | None] = [*sorted(wanted.vhosts)] or [None]
            for vhost in vhosts:
                # One queue at least, so that the node says how many more there are.
                selection = QueueSelection(vhost, names, limit=max(1, most - len(rows)), told_here=True)
                some, more = await self._provider.queues(selection)
                rows += some
                left_out += more
            metrics.append(("mayfly_queues_left_out", LEFT_OUT, "gauge", [({}, left_out)]))

            def page() -> bytes:
                return _rendered([*metrics, *self._provider.rabbitmq_queue_metrics(rows, wanted)])

            return Made(await asyncio.to_thread(page), _METRICS)

        return (await self._page_queue.get(_name(request), make)).response()


# What pages of metrics are made with takes 1 MB and 10 ms: it is loaded with the first, in the thread that makes it.


def _rendered(metrics: Iterable[Metric]) -> bytes:
    from mayfly.node.http.metrics import rendered

    return rendered(metrics)


def _rendered_with_process(metrics: Iterable[Metric]) -> bytes:
    from mayfly.node.http.metrics import rendered_with_process

    return rendered_with_process(metrics)


async def _members(operator: OperatorPort) -> dict[str, Any]:
    return {**await operator.members(), "cluster": operator.cluster(), "level": operator.level()}


async def _shards(operator: OperatorPort) -> dict[str, Any]:
    return {"shards": await operator.groups(), "count": operator.shard_count()}


def _name(request: web.Request) -> str:
    """Of a page that depends on what is asked for."""
    return str(request.rel_url)


def _told(
    handler: Callable[[web.Request], Awaitable[web.Response]],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """The handler; what is wrong with a query is told."""

    async def handle(request: web.Request) -> web.Response:
        try:
            return await handler(request)
        except _BadRequest as error:
            return answer({"error": str(error)}, HTTPStatus.BAD_REQUEST)
        except TooManyWait:
            response = answer({"error": "too many wait for pages"}, HTTPStatus.SERVICE_UNAVAILABLE)
            response.headers["Retry-After"] = "1"
            return response

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
