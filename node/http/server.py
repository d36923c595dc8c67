"""The HTTP listener of a node, on aiohttp. Every answer but `/metrics` is JSON, errors too."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from mayfly.node.broker.failed_logins import origin_of
from mayfly.node.http.access import PAGES as ACCESS_PAGES
from mayfly.node.http.access import AccessPages
from mayfly.node.http.definitions import PAGES as DEFINITIONS_PAGES
from mayfly.node.http.definitions import DefinitionsPages
from mayfly.node.http.desk import Desk
from mayfly.node.http.doors import LOOPBACK, Doors
from mayfly.node.http.management import PAGES as MANAGEMENT_PAGES
from mayfly.node.http.management import ManagementPages
from mayfly.node.http.observing import PAGES as OBSERVING_PAGES
from mayfly.node.http.observing import ObservingPages
from mayfly.node.http.operating import PAGES as OPERATOR_PAGES
from mayfly.node.http.operating import OperatorPages, answer
from mayfly.node.http.routes import Routes
from mayfly.node.http.sockets import HttpConnections
from mayfly.node.limits import HTTP_CONNECTIONS, HTTP_FIRST_REQUEST_SECONDS, HTTP_KEEPALIVE_SECONDS
from mayfly.node.operating.ports.access import AccessPort
from mayfly.node.operating.ports.definitions import DefinitionsPort
from mayfly.node.operating.ports.management import ManagementPort
from mayfly.node.operating.ports.operator import OperatorPort
from mayfly.node.operating.ports.status import StatusProvider
from mayfly.node.operating.ports.users import ORIGIN
from mayfly.node.settings.kinds import Address
from mayfly.node.version import VERSION

_LOG: Final = logging.getLogger(__name__)
_CONNECTION_LOG: Final = logging.getLogger(f"{__name__}.connections")
_SHUTDOWN_TIMEOUT_S: Final = 1.0
_BACKLOG: Final = 128
_LARGEST_REQUEST_BYTES: Final = 64 * 1024
_PAGES: Final = {
    "/health/live": "200 while the process works",
    "/health/ready": "200 while clients are served, else 503 with the reason; tells of alarms, which block publishers",
    **OBSERVING_PAGES,
    **OPERATOR_PAGES,
    **MANAGEMENT_PAGES,
    **DEFINITIONS_PAGES,
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
        definitions: DefinitionsPort | None = None,
        most_connections: int = HTTP_CONNECTIONS,
        first_request_seconds: float = HTTP_FIRST_REQUEST_SECONDS,
        keepalive_seconds: float = HTTP_KEEPALIVE_SECONDS,
        open_pages: str = LOOPBACK,
    ) -> None:
        """Without the port for them there are no pages for operators, and none of RabbitMQ's management API.
        `open_pages` is the setting `http_open_pages`."""
        self._provider = provider
        self._operator = operator
        self._management = management
        self._definitions = definitions
        self._access = access
        self._address = Address(host, port)
        self._doors = Doors(open_pages, None if operator is None else operator.monitor_tags)
        self._desk = Desk(max(1, most_connections // 2))
        """Half of the connections are for all else."""
        self._most_connections = most_connections
        self._first_request_seconds = first_request_seconds
        self._keepalive_seconds = keepalive_seconds
        self._runner: web.AppRunner | None = None
        self._listening: asyncio.Server | None = None
        self._connections: HttpConnections | None = None

    @property
    def address(self) -> Address:
        """Where it listens; with the port the system chose, once started, if 0 was asked for."""
        if self._address.port == 0 and self._listening is not None and self._listening.sockets:
            return Address(self._address.host, self._listening.sockets[0].getsockname()[1])
        return self._address

    async def start(self) -> None:
        """Listen; raises OSError if the address cannot be had."""
        runner = web.AppRunner(
            self._application(),
            access_log=None,
            handle_signals=False,
            logger=_CONNECTION_LOG,
            shutdown_timeout=_SHUTDOWN_TIMEOUT_S,
            keepalive_timeout=self._keepalive_seconds,
        )
        await runner.setup()
        assert runner.server is not None
        self._connections = HttpConnections(runner.server, self._most_connections, self._first_request_seconds)
        loop = asyncio.get_running_loop()
        try:
            self._listening = await loop.create_server(
                self._connections, self._address.host, self._address.port, backlog=_BACKLOG
            )
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner

    async def stop(self) -> None:
        """Close the listener and its connections."""
        self._desk.close()
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _application(self) -> web.Application:
        application = web.Application(
            middlewares=[self._counted, _errors_as_json], client_max_size=_LARGEST_REQUEST_BYTES, logger=_LOG
        )
        handlers: dict[str, Callable[[web.Request], Awaitable[web.Response]]] = {
            "/": self._index,
            "/health/live": self._live,
            "/health/ready": self._ready,
        }
        routes = Routes(application.router)
        for path, handler in handlers.items():
            routes.add_get(path, handler)
        ObservingPages(self._provider, self._operator, self._doors, self._desk).add_to(routes)
        if self._operator is not None:
            OperatorPages(self._operator).add_to(routes)
        if self._management is not None:
            ManagementPages(self._management).add_to(routes)
        if self._definitions is not None and self._operator is not None:
            DefinitionsPages(self._definitions, self._operator).add_to(routes)
        if self._access is not None:
            AccessPages(self._access).add_to(routes)
        return application

    @web.middleware
    async def _counted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        connections, transport = self._connections, request.transport
        if connections is None or transport is None:
            return await handler(request)
        connections.request_came(transport)
        try:
            return await handler(request)
        finally:
            connections.request_done(transport)

    async def _index(self, request: web.Request) -> web.Response:
        return answer({"mayfly": VERSION, "pages": _PAGES})

    async def _live(self, request: web.Request) -> web.Response:
        if self._provider.is_live():
            return answer({"status": "live"})
        return answer({"status": "not live"}, HTTPStatus.SERVICE_UNAVAILABLE)

    async def _ready(self, request: web.Request) -> web.Response:
        ready, reason = self._provider.readiness()
        alarms = self._provider.alarms()
        if ready:
            return answer({"status": "ready", "alarms": alarms})
        return answer({"status": "not ready", "reason": reason, "alarms": alarms}, HTTPStatus.SERVICE_UNAVAILABLE)


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
    ORIGIN.set(origin_of(f"{request.remote}:0"))
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
