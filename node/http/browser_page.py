"""The page for browsers: files of this package, as they are. It asks for all else over the API, as other clients do.

What a file may do is in its headers: scripts, styles and requests are this node's alone, none stand within the text,
and no page of others has it in a frame.
"""

import hashlib
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Final, NamedTuple

from aiohttp import web

BROWSER_FILES: Final = "/page"
"""Below this path they are; what they are called there changes with no release, so that a link stays."""
_FOLDER: Final = Path(__file__).parent / "page"
_ROOT: Final = "index.html"
_KINDS: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS: Final = {
    "Cache-Control": "no-cache",  # kept, and asked about each time: a node of another release has others
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class _File(NamedTuple):
    content: bytes
    kind: str
    tag: str


class BrowserPage:
    """Handlers for the application of a node; the files are read once."""

    def __init__(self) -> None:
        self._files = dict(_read())

    def root(self, request: web.Request) -> web.Response:
        """The page itself."""
        return _answer(request, self._files[_ROOT])

    async def file(self, request: web.Request) -> web.Response:
        """A script, a style, a picture."""
        found = self._files.get(request.match_info["file"])
        if found is None:
            raise web.HTTPNotFound
        return _answer(request, found)


def is_browser(request: web.Request) -> bool:
    """Whether a person is to read the answer: browsers ask for HTML, tools for JSON or anything at all."""
    return "text/html" in request.headers.get("Accept", "")


def _read() -> Iterator[tuple[str, _File]]:
    for path in sorted(_FOLDER.rglob("*")):
        kind = _KINDS.get(path.suffix)
        if kind is not None:
            content = path.read_bytes()
            yield path.relative_to(_FOLDER).as_posix(), _File(content, kind, hashlib.sha256(content).hexdigest()[:32])


def _answer(request: web.Request, file: _File) -> web.Response:
    """The file, or that it is the one which the browser has."""
    known = any(each.value in (file.tag, "*") for each in request.if_none_match or ())
    headers = {**_HEADERS, "ETag": f'"{file.tag}"'}
    if known:
        return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
    return web.Response(body=file.content, content_type=file.kind, charset="utf-8", headers=headers)
