"""RabbitMQ's `/api/definitions`: all that clients and operators have declared, out and in. Takes an administrator."""

from http import HTTPStatus
from typing import Final

from aiohttp import web

from mayfly.node.http.answers import JSON, answer, answered
from mayfly.node.http.gate import Handler
from mayfly.node.operating.ports.answers import bad_request
from mayfly.node.operating.ports.definitions import DefinitionsPort
from mayfly.node.operating.ports.users import User

_LARGEST_FILE_BYTES: Final = 64 * 1024 * 1024


class DefinitionsPages:
    """Handlers for the routes that begin with definitions."""

    def __init__(self, definitions: DefinitionsPort) -> None:
        self._definitions = definitions

    def handlers(self) -> dict[str, Handler]:
        """By their names in `api_routes`."""
        return {"definitions.export": self._export, "definitions.import": self._import}

    async def _export(self, request: web.Request, _user: User) -> web.Response:
        return answer(await self._definitions.export(request.match_info.get("vhost")))

    async def _import(self, request: web.Request, _user: User) -> web.Response:
        if request.content_type != JSON:  # as on the pages for operators
            reason = f"Content-Type is {request.content_type}; {JSON} is expected"
            return answer({"error": "bad_request", "reason": reason}, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        strict = request.query.get("strict", "false")
        if strict not in ("true", "false"):
            return answered(*bad_request(f"strict is '{strict}', it should be true or false"))
        data = bytearray()
        async for chunk in request.content.iter_any():
            data += chunk
            if len(data) > _LARGEST_FILE_BYTES:
                reason = f"the file has more than {_LARGEST_FILE_BYTES} bytes"
                return answer({"error": "bad_request", "reason": reason}, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        vhost = request.match_info.get("vhost")
        status, content = await self._definitions.import_(bytes(data), strict == "true", vhost)
        return answer(content, status)
