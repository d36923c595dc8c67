"""Paths as RabbitMQ's clients write them: each page is there with a slash at its end, too."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from aiohttp import web

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.Response]]


class Routes:
    """Adds pages to the router of an application."""

    def __init__(self, router: web.UrlDispatcher) -> None:
        self._router = router

    def add_get(self, path: str, handler: Handler) -> None:
        """GET, and HEAD."""
        for each in _paths(path):
            self._router.add_get(each, handler)

    def add_put(self, path: str, handler: Handler) -> None:
        """PUT."""
        for each in _paths(path):
            self._router.add_put(each, handler)

    def add_post(self, path: str, handler: Handler) -> None:
        """POST."""
        for each in _paths(path):
            self._router.add_post(each, handler)

    def add_delete(self, path: str, handler: Handler) -> None:
        """DELETE."""
        for each in _paths(path):
            self._router.add_delete(each, handler)


def _paths(path: str) -> tuple[str, ...]:
    return (path,) if path.endswith("/") else (path, f"{path}/")
