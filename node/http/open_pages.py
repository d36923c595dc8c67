"""Who sees the pages with names and counts: monitors by their login, others as the setting `http_open_pages` says."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from mayfly.node.http.answers import unauthorized
from mayfly.node.http.logins import login_in
from mayfly.node.http.origins import is_from_here
from mayfly.node.operating.ports.users import SEE_ALL
from mayfly.node.settings.node_settings import OPEN_PAGES

NONE, LOOPBACK, METRICS, ALL = OPEN_PAGES

TagsOf = Callable[[str, str, bool], Awaitable[tuple[str, ...]]]
"""Takes user, password, and whether that one is on this machine; the tags, none for a wrong login."""


class OpenPages:
    """For one node."""

    def __init__(self, opened: str, tags_of: TagsOf | None) -> None:
        """`opened` is one of OPEN_PAGES. `tags_of` is None for a node without users so far."""
        self._opened = opened
        self._tags_of = tags_of

    def for_monitors(
        self, handler: Callable[[web.Request], Awaitable[web.Response]], is_metrics: bool = False
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """The handler, for those who may see that page."""

        async def handle(request: web.Request) -> web.Response:
            if self._is_open(request, is_metrics) or await self._is_monitor(request):
                return await handler(request)
            text = (
                "name and password of a user with the tag administrator or monitoring are needed, or the setting "
                "http_open_pages"
            )
            return unauthorized({"error": text})

        return handle

    def _is_open(self, request: web.Request, is_metrics: bool) -> bool:
        if self._opened == ALL or (self._opened == METRICS and is_metrics):
            return True
        return self._opened != NONE and is_from_here(request)

    async def _is_monitor(self, request: web.Request) -> bool:
        given = login_in(request)
        if given is None or self._tags_of is None:
            return False
        return not SEE_ALL.isdisjoint(await self._tags_of(*given))
