"""Lists as RabbitMQ's management API has them: whole or, with `page`, a page in an envelope; `sort`, `sort_reverse` and
`columns` for both, `name` and `use_regex` for pages.

However long a list is, other work gets its turn: what is done with rows or names is done with some of them at a time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from http import HTTPStatus
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from aiohttp import web

from mayfly.node.http.answers import answer, answer_in_json
from mayfly.node.http.name_search import NameSearch

MOST_ROWS: Final = 10_000
"""How many clients are listed without pages, and how many of anything are put in an order that their names do not
tell."""
USUAL_PAGE: Final = 100
MOST_OF_A_PAGE: Final = 500
"""As RabbitMQ has it."""
ROWS_AT_ONCE: Final = 100
"""Rows that are made, or become JSON, before other work gets its turn."""
_MOST_DIGITS: Final = 9
_BY_NAME: Final = ("vhost", "name")

Row: TypeAlias = dict[str, Any]
Name: TypeAlias = tuple[str, str]
"""The vhost of something, "" for what is in none, and its name."""
Count: TypeAlias = Callable[[], Awaitable[int]]
"""How many rows there are, which is told sooner than they are."""
RowsOf: TypeAlias = Callable[[Sequence[Name]], Awaitable[list[Row]]]
"""The rows of some names in their order, without what has gone meanwhile."""
NamesBy: TypeAlias = Callable[[str], Awaitable[Sequence[Name] | None]]
"""All names in the order of a column, "" for that of vhosts and names; None where there is no such order."""
Some: TypeAlias = Callable[[int, int], Awaitable[tuple[int, list[Row]]]]
"""Takes a place and a number: how many rows there are, and so many of them from there on."""


class BadListing(ValueError):
    """A list that can't be had so: RabbitMQ's word for it, and the reason."""

    def __init__(self, error: str, reason: str) -> None:
        super().__init__(reason)
        self.error = error


class _Page(NamedTuple):
    number: int
    size: int


class _Wanted:
    """What a request says of the list it wants. Raises BadListing."""

    def __init__(self, request: web.Request) -> None:
        query = request.query
        self.page = _page(query.get("page"), query.get("page_size"))
        self.sort = query.get("sort", "")
        self.reverse = query.get("sort_reverse") == "true"
        self.search: NameSearch | None = None
        if self.page is not None and query.get("name"):
            try:
                self.search = NameSearch(query["name"], query.get("use_regex") == "true")
            except ValueError as error:
                raise BadListing("bad_request", f"name = '{query['name']}' with use_regex=true: {error}") from None

    @property
    def is_plain(self) -> bool:
        """Whether nothing is left out, and all is in the order that it has."""
        return not self.sort and not self.reverse and self.search is None


def _page(page: str | None, size: str | None) -> _Page | None:
    number, of = (None if text is None else _integer(text) for text in (page, size))
    if number is None:
        return None
    if number < 1 or (of is not None and not 1 <= of <= MOST_OF_A_PAGE):
        given = "undefined" if of is None else of
        raise BadListing(
            "invalid_pagination_parameters",
            f"Invalid pagination parameters: page number {number}, page size {given}",
        )
    return _Page(number, USUAL_PAGE if of is None else of)


def _integer(text: str) -> int:
    digits = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS):
        raise BadListing("bad_request", "Pagination parameters are invalid")
    return int(text)


# -- lists ---------------------------------------------------------------------------------------


async def listed(request: web.Request, what: str, count: Count, some: Some) -> web.Response:
    """All rows, or a page of them. `what` they are, for whoever asks for too many: nobody has to find them first."""
    try:
        wanted = _Wanted(request)
        page = wanted.page
        if page is not None and wanted.is_plain:
            first = (page.number - 1) * page.size
            total, rows = await some(first, page.size)
            return answer(_envelope(page, _chosen(request, rows), total, total))
        total = await count()
        rows = []
        if total <= MOST_ROWS:
            total, rows = await some(0, MOST_ROWS)
        if total > MOST_ROWS:
            pages = f"?page=1&page_size={MOST_OF_A_PAGE}"
            how = f"with {pages}" if page is None else "without name, sort and sort_reverse"
            raise BadListing("bad_request", f"there are {total} {what}: ask for pages, {how}")
        return await _of_rows(request, wanted, rows)
    except BadListing as error:
        return bad_listing(error)


async def listed_rows(request: web.Request, rows: list[Row], has_pages: bool = True) -> web.Response:
    """The same of rows that are there. Where RabbitMQ has no pages (`has_pages` False) `page` means nothing."""
    try:
        wanted = _Wanted(request)
        if not has_pages:
            wanted.page = wanted.search = None
        return await _of_rows(request, wanted, rows)
    except BadListing as error:
        return bad_listing(error)


async def listed_in_order(request: web.Request, names_by: NamesBy, rows_of: RowsOf) -> web.Response:
    """The same of so many that not even their names are put in order for each request."""
    try:
        wanted = _Wanted(request)
        names = await names_by(wanted.sort)
        if names is None:
            raise BadListing("bad_request", f"more than {MOST_ROWS} are not sorted by '{wanted.sort}'")
        found = names if wanted.search is None else await _found(names, wanted.search)
        if wanted.reverse:
            found = found[::-1]
        if wanted.page is None:
            return await _written(request, await _made(found, rows_of))
        first = (wanted.page.number - 1) * wanted.page.size
        rows = await _made(found[first : first + wanted.page.size], rows_of)
        return answer(_envelope(wanted.page, _chosen(request, rows), len(found), len(names)))
    except BadListing as error:
        return bad_listing(error)


async def listed_by_name(
    request: web.Request, names: Sequence[Name], rows_of: RowsOf
) -> web.Response:
    """The same of things whose rows take some work: those that are shown are made, and all of them only to be put in
    the order of something else than their names. Of more than MOST_ROWS see `listed_in_order`."""
    try:
        wanted = _Wanted(request)
        page = wanted.page
        if wanted.sort and wanted.sort not in _BY_NAME:
            if len(names) > MOST_ROWS:
                few = f"at most {MOST_ROWS} are sorted by '{wanted.sort}'"
                raise BadListing("bad_request", f"there are {len(names)}, {few}: sort by name or vhost")
            return await _of_rows(request, wanted, await _made(names, rows_of))
        found = names if wanted.search is None else await _found(names, wanted.search)
        found = sorted(found, key=(lambda name: (name[1], name[0])) if wanted.sort == "name" else None)
        if wanted.reverse:
            found.reverse()
        if page is None:
            return await _written(request, await _made(found, rows_of))
        first = (page.number - 1) * page.size
        rows = await _made(found[first : first + page.size], rows_of)
        return answer(_envelope(page, _chosen(request, rows), len(found), len(names)))
    except BadListing as error:
        return bad_listing(error)


def bad_listing(error: BadListing) -> web.Response:
    """400 with the reason."""
    return answer({"error": error.error, "reason": str(error)}, HTTPStatus.BAD_REQUEST)


async def _of_rows(request: web.Request, wanted: _Wanted, rows: list[Row]) -> web.Response:
    page, total = wanted.page, len(rows)
    if wanted.search is not None:
        # What has no name, as consumers, is not looked for by one.
        named = [row for row in rows if "name" in row]
        if named:
            places = await _found([(str(place), str(row["name"])) for place, row in enumerate(named)], wanted.search)
            rows = [named[int(place)] for place, _ in places]
    if wanted.sort:
        keys = (wanted.sort, *_BY_NAME)
        rows = sorted(rows, key=lambda row: [_order(_at(row, key)) for key in keys])
    if wanted.reverse:
        rows = rows[::-1]
    if page is None:
        return await _written(request, rows)
    first = (page.number - 1) * page.size
    return answer(_envelope(page, _chosen(request, rows[first : first + page.size]), len(rows), total))


def _envelope(page: _Page, rows: Sequence[Row], filtered: int, total: int) -> Row:
    """Raises BadListing for a page behind the last one."""
    if (page.number - 1) * page.size > filtered:
        reason = f"Page out of range, page: {page.number} page size: {page.size}, len: {filtered}"
        raise BadListing("page_out_of_range", reason)
    return {
        "filtered_count": filtered, "item_count": len(rows), "items": rows, "page": page.number,
        "page_count": -(-filtered // page.size), "page_size": page.size, "total_count": total,
    }  # fmt: skip


async def _found(names: Iterable[Name], search: NameSearch) -> list[Name]:
    found: list[Name] = []
    left = iter(names)
    while some := list(islice(left, search.names_at_once)):
        found += [name for name in some if search.finds(name[1])]
        await asyncio.sleep(0)
    return found


async def _made(names: Sequence[Name], rows_of: RowsOf) -> list[Row]:
    rows: list[Row] = []
    for first in range(0, len(names), ROWS_AT_ONCE):
        rows += await rows_of(names[first : first + ROWS_AT_ONCE])
        await asyncio.sleep(0)
    return rows


async def _written(request: web.Request, rows: list[Row]) -> web.Response:
    """The rows as JSON. Nothing is done with all of them at once, not even letting them go: that takes time, too."""
    content = bytearray(b"[")
    rows = list(rows)
    while rows:
        content += msgspec.json.encode(_chosen(request, rows[:ROWS_AT_ONCE]))[1:-1]
        del rows[:ROWS_AT_ONCE]
        content += b"," if rows else b""
        await asyncio.sleep(0)
    content += b"]\n"
    return answer_in_json(content)


# -- what of a row is wanted ---------------------------------------------------------------------


def one(request: web.Request, row: Row) -> web.Response:
    """A single thing, with the columns that are asked for."""
    return answer(_chosen(request, [row])[0])


def _chosen(request: web.Request, rows: list[Row]) -> list[Row]:
    """The rows with `columns` alone: `name,message_stats.publish`."""
    asked = request.query.get("columns")
    if asked is None:
        return rows
    columns = [path.split(".") for path in asked.split(",") if path]
    return [_part(row, columns) for row in rows]


def _part(value: Any, columns: list[list[str]]) -> Any:
    if isinstance(value, list):
        return [_part(each, columns) for each in value]
    if not isinstance(value, dict):
        return value
    part = {}
    for key, inner in value.items():
        below = [path[1:] for path in columns if path and path[0] == key]
        if below:
            part[key] = inner if [] in below else _part(inner, below)
    return part


def _at(row: Row, path: str) -> Any:
    """What is at `message_stats.publish`; 0 where there is nothing, as in RabbitMQ."""
    value: Any = row
    for key in path.split("."):
        value = value.get(key, 0) if isinstance(value, dict) else 0
    return value


def _order(value: Any) -> tuple[int, Any]:
    """Numbers come first, then true, false and null, then all else as text."""
    if isinstance(value, bool) or value is None:
        return 1, str(value)
    return (0, value) if isinstance(value, int | float) else (2, value if isinstance(value, str) else repr(value))
