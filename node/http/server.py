"""The HTTP listener of a node, on aiohttp. Every answer but `/metrics` is JSON, errors too."""

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from node.http.access import PAGES as ACCESS_PAGES
from node.http.access import AccessPages
from node.http.management import PAGES as MANAGEMENT_PAGES
from node.http.management import ManagementPages
from node.http.metrics import CONTENT_TYPE, MetricsPage
from node.http.observing import PAGES as OBSERVING_PAGES
from node.http.observing import ObservingPages
from node.http.operating import PAGES as OPERATOR_PAGES
from node.http.operating import OperatorPages, answer
from node.http.provider import AccessPort, ManagementPort, OperatorPort, StatusProvider
from node.settings.kinds import Address
from node.version import VERSION

_LOG: Final = logging.getLogger(__name__)
_CONNECTION_LOG: Final = logging.getLogger(f"{__name__}.connections")
_SHUTDOWN_TIMEOUT_S: Final = 1.0
_LARGEST_REQUEST_BYTES: Final = 64 * 1024
_PAGES: Final = {
    "/health/live": "200 while the process works",
    "/health/ready": "200 while clients are served, else 503 with the reason",
    "/metrics": "metrics for Prometheus",
    "/status": "nodes, shards, leaders, queue counts, expiry lag, as this node has them",
    **OBSERVING_PAGES,
    **OPERATOR_PAGES,
    **MANAGEMENT_PAGES,
    **ACCESS_PAGES,
}


class HttpServer:
    """Serves what a StatusProvider tells."""

    def __init__(
        self,
        provider: StatusProvider,
        host: str,
        port: int,
        operator: OperatorPort | None = None,
        management: ManagementPort | None = None,
        access: AccessPort | None = None,
    ) -> None:
        """Without the port for them there are no pages for operators, and none of RabbitMQ's management API."""
        self._provider = provider
        self._operator = operator
        self._management = management
        self._access = access
        self._address = Address(host, port)
        self._metrics = MetricsPage(provider)
        self._runner: web.AppRunner | None = None

    @property
    def address(self) -> Address:
        """Where it listens; with the port the system chose, once started, if 0 was asked for."""
        if self._address.port == 0 and self._runner is not None and self._runner.addresses:
            return Address(self._address.host, self._runner.addresses[0][1])
        return self._address

    async def start(self) -> None:
        """Listen; raises OSError if the address cannot be had."""
        runner = web.AppRunner(
            self._application(),
            access_log=None,
            handle_signals=False,
            logger=_CONNECTION_LOG,
            shutdown_timeout=_SHUTDOWN_TIMEOUT_S,
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, self._address.host, self._address.port).start()
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner

    async def stop(self) -> None:
        """Close the listener and its connections."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _application(self) -> web.Application:
        application = web.Application(
            middlewares=[_errors_as_json], client_max_size=_LARGEST_REQUEST_BYTES, logger=_LOG
        )
        handlers: dict[str, Callable[[web.Request], Awaitable[web.Response]]] = {
            "/": self._index,
            "/health/live": self._live,
            "/health/ready": self._ready,
            "/metrics": self._metrics_page,
            "/status": self._status,
        }
        for path, handler in handlers.items():
            application.router.add_get(path, handler)
        ObservingPages(self._provider).add_to(application.router)
        if self._operator is not None:
            OperatorPages(self._operator).add_to(application.router)
        if self._management is not None:
            ManagementPages(self._management).add_to(application.router)
        if self._access is not None:
            AccessPages(self._access).add_to(application.router)
        return application

    async def _index(self, request: web.Request) -> web.Response:
        return answer({"mayfly": VERSION, "pages": _PAGES})

    async def _live(self, request: web.Request) -> web.Response:
        if self._provider.is_live():
            return answer({"status": "live"})
        return answer({"status": "not live"}, HTTPStatus.SERVICE_UNAVAILABLE)

    async def _ready(self, request: web.Request) -> web.Response:
        ready, reason = self._provider.readiness()
        if ready:
            return answer({"status": "ready"})
        return answer({"status": "not ready", "reason": reason}, HTTPStatus.SERVICE_UNAVAILABLE)

    async def _metrics_page(self, request: web.Request) -> web.Response:
        return web.Response(body=self._metrics.render(), headers={"Content-Type": CONTENT_TYPE})

    async def _status(self, request: web.Request) -> web.Response:
        return answer(self._provider.status())


def _without_traceback(record: logging.LogRecord) -> bool:
    """Nonsense from a client is one line in the log, not the traceback that aiohttp logs it with."""
    if record.exc_info and isinstance(record.exc_info[1], HttpProcessingError):
        reason = " ".join(str(record.exc_info[1]).split())[:200]
        record.msg = f"{record.getMessage()}: {reason}"
        record.args = ()
        record.exc_info = None
        record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
    return True


_CONNECTION_LOG.addFilter(_without_traceback)


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        response = _error(
            HTTPStatus.METHOD_NOT_ALLOWED, f"{request.method} is not possible here, only {allowed}"
        )
        response.headers["Allow"] = allowed
        return response
    except web.HTTPNotFound:
        known = ", ".join(_PAGES)
        return _error(HTTPStatus.NOT_FOUND, f"there is no page {request.path}; there are {known}")
    except web.HTTPException as error:
        return _error(HTTPStatus(error.status), error.reason)
    except Exception:
        _LOG.exception("answering %s %s failed", request.method, request.path)
        return _error(HTTPStatus.INTERNAL_SERVER_ERROR, "the node could not answer; its log has the details")


def _error(status: HTTPStatus, text: str) -> web.Response:
    return answer({"error": text}, status)
