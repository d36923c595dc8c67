"""The HTTP listener of a node, on aiohttp. Answers are JSON, errors too; not `/metrics` and the page for browsers."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from mayfly.node.broker.failed_logins import origin_of
from mayfly.node.http.access import AccessPages
from mayfly.node.http.answers import answer
from mayfly.node.http.api_routes import ROUTES, index
from mayfly.node.http.brakes import BrakePages
from mayfly.node.http.browser_page import BROWSER_FILES, BrowserPage, is_browser
from mayfly.node.http.clients import ClientPages
from mayfly.node.http.cluster import CheckPages, ParameterPages
from mayfly.node.http.cors import Cors
from mayfly.node.http.definitions import DefinitionsPages
from mayfly.node.http.gate import Gate
from mayfly.node.http.management import ManagementPages
from mayfly.node.http.observing import PAGES as OBSERVING_PAGES
from mayfly.node.http.observing import ObservingPages
from mayfly.node.http.open_pages import LOOPBACK, OpenPages
from mayfly.node.http.operating import PAGES as OPERATOR_PAGES
from mayfly.node.http.operating import OperatorPages
from mayfly.node.http.outlook import OutlookPages
from mayfly.node.http.page_queue import PageQueue
from mayfly.node.http.redrives import RedrivePages
from mayfly.node.http.routes import PageRoutes
from mayfly.node.http.schedules import SchedulePages
from mayfly.node.http.sockets import HttpConnections
from mayfly.node.http.streams import StreamPages
from mayfly.node.http.times import TimePages
from mayfly.node.http.topology import TopologyPages
from mayfly.node.limits import HTTP_CONNECTIONS, HTTP_FIRST_REQUEST_SECONDS, HTTP_KEEPALIVE_SECONDS
from mayfly.node.operating.ports.access import AccessPort
from mayfly.node.operating.ports.answers import NOT_FOUND
from mayfly.node.operating.ports.brakes import BrakePort
from mayfly.node.operating.ports.checks import ChecksPort
from mayfly.node.operating.ports.definitions import DefinitionsPort
from mayfly.node.operating.ports.management import ManagementPort
from mayfly.node.operating.ports.operator import OperatorPort
from mayfly.node.operating.ports.outlook import OutlookPort
from mayfly.node.operating.ports.parameters import ParametersPort
from mayfly.node.operating.ports.redrives import RedrivePort
from mayfly.node.operating.ports.schedules import SchedulePort
from mayfly.node.operating.ports.status import StatusProvider
from mayfly.node.operating.ports.streams import StreamPort
from mayfly.node.operating.ports.topology import TopologyPort
from mayfly.node.operating.ports.users import ORIGIN
from mayfly.node.settings.kinds import Address
from mayfly.node.version import VERSION

_LOG: Final = logging.getLogger(__name__)
_CONNECTION_LOG: Final = logging.getLogger(f"{__name__}.connections")
_SHUTDOWN_TIMEOUT_S: Final = 1.0
_BACKLOG: Final = 128
_LARGEST_REQUEST_BYTES: Final = 64 * 1024
_LARGEST_HEADER_BYTES: Final = 8190
_PAGES: Final = {
    "/health/live": "200 while the process works",
    "/health/ready": "200 while clients are served, else 503 with the reason; tells of alarms, which block publishers",
    **OBSERVING_PAGES,
    **OPERATOR_PAGES,
    **index(),
}


@dataclass(frozen=True, slots=True)
class PagePorts:
    """What the pages ask. Without the port for them there are no pages for operators, and none of RabbitMQ's management
    API."""

    status: StatusProvider
    operator: OperatorPort | None = None
    management: ManagementPort | None = None
    access: AccessPort | None = None
    definitions: DefinitionsPort | None = None
    topology: TopologyPort | None = None
    checks: ChecksPort | None = None
    parameters: ParametersPort | None = None
    schedules: SchedulePort | None = None
    outlook: OutlookPort | None = None
    streams: StreamPort | None = None
    redrives: RedrivePort | None = None
    brakes: BrakePort | None = None


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Where the pages are, who sees them, and how long connections are kept."""

    address: Address
    open_pages: str = LOOPBACK
    """The setting `http_open_pages`."""
    most_connections: int = HTTP_CONNECTIONS
    first_request_seconds: float = HTTP_FIRST_REQUEST_SECONDS
    keepalive_seconds: float = HTTP_KEEPALIVE_SECONDS
    tls_address: Address | None = None
    """Where the same is spoken over TLS."""
    tls: ssl.SSLContext | None = None
    body_bytes: int = _LARGEST_REQUEST_BYTES
    """The setting `http_body_bytes`."""
    header_bytes: int = _LARGEST_HEADER_BYTES
    """Of one header."""
    cors_origins: str = ""
    """The setting `http_cors_origins`."""


class HttpServer:
    """Serves pages."""

    def __init__(self, ports: PagePorts, settings: HttpSettings) -> None:
        self._ports = ports
        self._settings = settings
        self._browser_page = BrowserPage()
        self._open_pages = OpenPages(
            settings.open_pages, None if ports.operator is None else ports.operator.monitor_tags
        )
        self._page_queue = PageQueue(max(1, settings.most_connections // 2))
        """Half of the connections are for all else."""
        self._runner = web.AppRunner(
            self._application(),
            access_log=None,
            handle_signals=False,
            logger=_CONNECTION_LOG,
            shutdown_timeout=_SHUTDOWN_TIMEOUT_S,
            keepalive_timeout=settings.keepalive_seconds,
            max_field_size=settings.header_bytes,
        )
        self._connections = HttpConnections(
            self._new_connection, settings.most_connections, settings.first_request_seconds
        )
        self._listening: list[asyncio.Server] = []

    async def start(self) -> None:
        """Listen; raises OSError if an address cannot be had."""
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        own = self._settings
        addresses = [(own.address, None), *([] if own.tls_address is None else [(own.tls_address, own.tls)])]
        try:
            for address, tls in addresses:
                self._listening.append(
                    await loop.create_server(
                        self._connections, address.host, address.port, backlog=_BACKLOG, ssl=tls
                    )
                )
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Close the listener and its connections. Also for one that was not started."""
        self._page_queue.close()
        while self._listening:
            self._listening.pop().close()
        await self._runner.cleanup()

    def _new_connection(self) -> asyncio.Protocol:
        assert self._runner.server is not None, "nobody connects before it listens"
        return self._runner.server()

    def _application(self) -> web.Application:
        application = web.Application(
            middlewares=[self._counted, Cors(self._settings.cors_origins).middleware, _errors_as_json],
            client_max_size=self._settings.body_bytes, logger=_LOG,
        )  # fmt: skip
        handlers: dict[str, Callable[[web.Request], Awaitable[web.Response]]] = {
            "/": self._root,
            "/health/live": self._live,
            "/health/ready": self._ready,
        }
        application.router.add_get(f"{BROWSER_FILES}/{{file:.+}}", self._browser_page.file)
        routes = PageRoutes(application.router)
        for path, handler in handlers.items():
            routes.add_get(path, handler)
        ports = self._ports
        ObservingPages(ports.status, ports.operator, self._open_pages, self._page_queue).add_to(routes)
        if ports.operator is not None:
            OperatorPages(ports.operator).add_to(routes)
        if ports.management is not None:
            self._add_api(routes, ports.management)
        return application

    def _add_api(self, routes: PageRoutes, management: ManagementPort) -> None:
        """Pages of RabbitMQ's management API, those that there is a port for."""
        ports = self._ports
        handlers = {
            **ManagementPages(management).handlers(), **ClientPages(management).handlers(),
            **TimePages(management).handlers(),
        }  # fmt: skip
        if ports.definitions is not None:
            handlers |= DefinitionsPages(ports.definitions).handlers()
        if ports.access is not None:
            handlers |= AccessPages(ports.access, management).handlers()
        if ports.topology is not None:
            handlers |= TopologyPages(ports.topology, management).handlers()
        if ports.checks is not None:
            handlers |= CheckPages(ports.checks).handlers()
        if ports.parameters is not None:
            handlers |= ParameterPages(ports.parameters).handlers()
        if ports.schedules is not None:
            handlers |= SchedulePages(ports.schedules).handlers()
        if ports.outlook is not None:
            handlers |= OutlookPages(ports.outlook, management).handlers()
        if ports.streams is not None:
            handlers |= StreamPages(ports.streams).handlers()
        if ports.redrives is not None:
            handlers |= RedrivePages(ports.redrives, management).handlers()
        if ports.brakes is not None:
            handlers |= BrakePages(ports.brakes, management).handlers()
        gate = Gate(management)
        for route in ROUTES:
            handler = handlers.get(route.handler)
            if handler is not None:
                routes.add(route.method, route.path, gate.for_users(route.who, handler))

    @web.middleware
    async def _counted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        connections, transport = self._connections, request.transport
        if transport is None:
            return await handler(request)
        connections.request_came(transport)
        try:
            return await handler(request)
        finally:
            connections.request_done(transport)

    async def _root(self, request: web.Request) -> web.Response:
        """The page for browsers, or for all else which pages there are."""
        if is_browser(request):
            shown = self._browser_page.root(request)
        else:
            shown = answer({"mayfly": VERSION, "pages": _PAGES})
        shown.headers["Vary"] = "Accept"
        return shown

    async def _live(self, request: web.Request) -> web.Response:
        if self._ports.status.is_live():
            return answer({"status": "live"})
        return answer({"status": "not live"}, HTTPStatus.SERVICE_UNAVAILABLE)

    async def _ready(self, request: web.Request) -> web.Response:
        ready, reason = self._ports.status.readiness()
        alarms = self._ports.status.alarms()
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
        if request.path.startswith("/api/"):
            return answer(NOT_FOUND, HTTPStatus.NOT_FOUND)
        return _error(HTTPStatus.NOT_FOUND, f"there is no page {request.path}; / lists those that there are")
    except web.HTTPException as error:
        return _error(HTTPStatus(error.status), error.reason)
    except Exception:
        _LOG.exception("answering %s %s failed", request.method, request.path)
        return _error(HTTPStatus.INTERNAL_SERVER_ERROR, "the node could not answer; its log has the details")


def _error(status: HTTPStatus, text: str) -> web.Response:
    return answer({"error": text}, status)
