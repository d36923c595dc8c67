"""Pages of other sites that may use the API from browsers (CORS): what the browser is told.

Without that it lets no page of another site read an answer, and asks before it sends anything but plain reads and forms
(`node.http.origins.is_forgeable`).
"""

from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

_ANY: Final = "*"
_HEADERS: Final = {
    "Access-Control-Allow-Methods": "GET, HEAD, PUT, POST, DELETE, OPTIONS",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, X-Reason",
    "Access-Control-Max-Age": "1800",
}


class Cors:
    """A middleware."""

    def __init__(self, origins: str) -> None:
        """The setting `http_cors_origins`: `*`, origins with commas between, or nothing."""
        self._origins = frozenset(each for each in origins.split(",") if each)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The answer, and that the page of the other site may have it."""
        origin = request.headers.get("Origin")
        if origin is None or not (_ANY in self._origins or origin in self._origins):
            return await handler(request)
        if request.method == "OPTIONS":
            response: web.StreamResponse = web.Response(status=204, headers=_HEADERS)
        else:
            response = await handler(request)
        response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Access-Control-Allow-Credentials"] = "true"
        response.headers.add("Vary", "Origin")
        return response
