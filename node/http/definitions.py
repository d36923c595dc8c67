"""RabbitMQ's `/api/definitions`: all that clients and operators have declared, out and in. Takes an administrator."""

from http import HTTPStatus
from typing import Final

from aiohttp import web

from mayfly.node.http.answers import JSON, answer, not_authorised
from mayfly.node.http.logins import login_in
from mayfly.node.http.routes import Routes
from mayfly.node.operating.ports.definitions import DefinitionsPort
from mayfly.node.operating.ports.operator import OperatorPort
from mayfly.node.operating.ports.users import ADMINISTRATOR

PAGES: Final = {"/api/definitions": "what is declared, in RabbitMQ's JSON; POST imports such a file"}
_LARGEST_FILE_BYTES: Final = 64 * 1024 * 1024


class DefinitionsPages:
    """Handlers for the application of a node."""

    def __init__(self, definitions: DefinitionsPort, operator: OperatorPort) -> None:
        self._definitions = definitions
        self._operator = operator

    def add_to(self, router: Routes) -> None:
        """Put the pages where RabbitMQ's clients look for them."""
        router.add_get("/api/definitions", self._export)
        router.add_post("/api/definitions", self._import)

    async def _export(self, request: web.Request) -> web.Response:
        if not await self._may(request):
            return not_authorised("Not administrator user")
        return answer(await self._definitions.export())

    async def _import(self, request: web.Request) -> web.Response:
        if request.content_type != JSON:  # as on the pages for operators
            reason = f"Content-Type is {request.content_type}; {JSON} is expected"
            return answer({"error": "bad_request", "reason": reason}, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        if not await self._may(request):
            return not_authorised("Not administrator user")
        data = bytearray()
        async for chunk in request.content.iter_any():
            data += chunk
            if len(data) > _LARGEST_FILE_BYTES:
                reason = f"the file has more than {_LARGEST_FILE_BYTES} bytes"
                return answer({"error": "bad_request", "reason": reason}, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        status, content = await self._definitions.import_(bytes(data))
        return answer(content, status)

    async def _may(self, request: web.Request) -> bool:
        given = login_in(request)
        return given is not None and ADMINISTRATOR in await self._operator.tags(*given)

