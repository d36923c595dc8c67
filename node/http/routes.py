"""Paths as RabbitMQ's clients write them: each page is there with a slash at its end, too."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from aiohttp import web

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.Response]]


class PageRoutes:
    """Adds pages to the router of an application."""

    def __init__(self, router: web.UrlDispatcher) -> None:
        self._router = router

    def add(self, method: str, path: str, handler: Handler) -> None:
        """A method of a page; with GET there is HEAD."""
        for each in _paths(path):
            if method == "GET":
                self._router.add_get(each, handler)
            else:
                self._router.add_route(method, each, handler)

    def add_get(self, path: str, handler: Handler) -> None:
        """GET, and HEAD."""
        self.add("GET", path, handler)

    def add_post(self, path: str, handler: Handler) -> None:
        """POST."""
        self.add("POST", path, handler)


def _paths(path: str) -> tuple[str, ...]:
    return (path,) if path.endswith("/") else (path, f"{path}/")
