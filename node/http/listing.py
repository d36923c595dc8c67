"""Lists that may be long, whole or in pages, as RabbitMQ has them."""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final, TypeAlias

import msgspec
from aiohttp import web

from node.http.operating import answer, answer_in_json

MOST_ROWS: Final = 10_000
"""How many are listed without pages."""
USUAL_PAGE: Final = 100
MOST_OF_A_PAGE: Final = 500
"""As RabbitMQ has it."""
_WRITTEN_AT_ONCE: Final = 500
"""Rows that become JSON before other work gets its turn."""

Count: TypeAlias = Callable[[], Awaitable[int]]
"""How many rows there are, which is told sooner than they are."""
Some: TypeAlias = Callable[[int, int], Awaitable[tuple[int, list[dict[str, Any]]]]]
"""Takes a place and a number: how many rows there are, and so many of them from there on."""


async def listed(request: web.Request, what: str, count: Count, some: Some) -> web.Response:
    """All rows, or with `page` and, if wanted, `page_size` those of one page. `what` they are, for whoever asks for
    too many: nobody has to find them first."""
    if "page" in request.query:
        return await _page(request, some)
    total = await count()
    rows: list[dict[str, Any]] = []
    if total <= MOST_ROWS:
        total, rows = await some(0, MOST_ROWS)
    if total > MOST_ROWS:
        pages = f"?page=1&page_size={MOST_OF_A_PAGE}"
        return _bad_request(f"there are {total} {what}: ask for pages, with {pages}")
    return await _written(rows)


async def _written(rows: list[dict[str, Any]]) -> web.Response:
    """The rows as JSON. Nothing is done with all of them at once, not even letting them go: that takes time, too."""
    content = bytearray(b"[")
    while rows:
        content += msgspec.json.encode(rows[:_WRITTEN_AT_ONCE])[1:-1]
        del rows[:_WRITTEN_AT_ONCE]
        content += b"," if rows else b""
        await asyncio.sleep(0)
    content += b"]\n"
    return answer_in_json(content)


async def _page(request: web.Request, some: Some) -> web.Response:
    try:
        page = _number(request, "page", 1, 1_000_000)
        size = _number(request, "page_size", USUAL_PAGE, MOST_OF_A_PAGE)
    except ValueError as error:
        return _bad_request(str(error), "invalid_pagination_parameters")
    total, rows = await some((page - 1) * size, size)
    pages = max(1, -(-total // size))
    content: dict[str, Any] = {
        "filtered_count": total, "item_count": len(rows), "items": rows, "page": page, "page_count": pages,
        "page_size": size, "total_count": total,
    }  # fmt: skip
    return answer(content)


def _number(request: web.Request, name: str, usual: int, most: int) -> int:
    text = request.query.get(name, str(usual))
    if text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= most:
        return int(text)
    raise ValueError(f"{name} is '{text}', it should be a number from 1 to {most}")


def _bad_request(reason: str, error: str = "bad_request") -> web.Response:
    return answer({"error": error, "reason": reason}, HTTPStatus.BAD_REQUEST)
