"""Pages, orders and columns of RabbitMQ's lists, and looking for names; answers as RabbitMQ 4.3.6 gave them."""

import asyncio
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from mayfly.node.http.listing import MOST_ROWS, ROWS_AT_ONCE, listed, listed_by_name, listed_rows
from mayfly.node.http.name_search import NameSearch

INVALID = "invalid_pagination_parameters"
NAMES = [("/", f"q{number}") for number in (3, 1, 2, 8, 7, 6, 5, 4)] + [("a", "tq2")]


async def rows_of(names: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    return [row(*name) for name in names]


def row(vhost: str, name: str) -> dict[str, Any]:
    digits = int(name[-1])
    return {
        "vhost": vhost, "name": name, "durable": True, "messages": digits % 3, "arguments": {"x-queue-type": "quorum"}
    }  # fmt: skip


def ask(query: str, names: Sequence[tuple[str, str]] = NAMES, how: str = "by name") -> tuple[int, Any]:
    """The list of queues by each of the ways in which there are lists: they answer the same."""
    request = make_mocked_request("GET", f"/api/queues?{query}")
    rows = [row(*name) for name in sorted(names)]

    async def count() -> int:
        return len(rows)

    async def some(start: int, most: int) -> tuple[int, list[dict[str, Any]]]:
        return len(rows), rows[start : start + most]

    async def get() -> web.Response:
        if how == "rows":
            return await listed_rows(request, rows)
        if how == "some":
            return await listed(request, "queues", count, some)
        return await listed_by_name(request, names, rows_of)

    response = asyncio.run(get())
    assert isinstance(response.body, bytes | bytearray)
    return response.status, msgspec.json.decode(response.body)


WAYS = pytest.mark.parametrize("how", ["by name", "rows", "some"])


@WAYS
def test_a_page_comes_in_rabbitmqs_envelope(how: str) -> None:
    status, found = ask("page=2&page_size=4&columns=name", how=how)
    names = [{"name": name} for name in ("q5", "q6", "q7", "q8")]
    assert status == 200
    assert found == {
        "filtered_count": 9, "item_count": 4, "items": names, "page": 2, "page_count": 3, "page_size": 4,
        "total_count": 9,
    }  # fmt: skip
    assert ask("page=1", [], how) == (
        200,
        {
            "filtered_count": 0, "item_count": 0, "items": [], "page": 1, "page_count": 0, "page_size": 100,
            "total_count": 0,
        },
    )  # fmt: skip


@WAYS
@pytest.mark.parametrize(
    ("query", "error", "reason"),
    [
        ("page=0", INVALID, "Invalid pagination parameters: page number 0, page size undefined"),
        ("page=-1&page_size=3", INVALID, "Invalid pagination parameters: page number -1, page size 3"),
        ("page=1&page_size=501", INVALID, "Invalid pagination parameters: page number 1, page size 501"),
        ("page=1&page_size=0", INVALID, "Invalid pagination parameters: page number 1, page size 0"),
        ("page=x", "bad_request", "Pagination parameters are invalid"),
        ("page=", "bad_request", "Pagination parameters are invalid"),
        ("page=1&page_size=x", "bad_request", "Pagination parameters are invalid"),
        ("page_size=x", "bad_request", "Pagination parameters are invalid"),
        ("page=%D9%A1", "bad_request", "Pagination parameters are invalid"),
        ("page=99999999999999999999", "bad_request", "Pagination parameters are invalid"),
        ("page=4&page_size=4", "page_out_of_range", "Page out of range, page: 4 page size: 4, len: 9"),
        ("page=2&name=zzz", "page_out_of_range", "Page out of range, page: 2 page size: 100, len: 0"),
    ],
)  # fmt: skip
def test_pages_that_can_not_be_are_told_as_rabbitmq_does(query: str, error: str, reason: str, how: str) -> None:
    assert ask(query, how=how) == (400, {"error": error, "reason": reason})


@WAYS
def test_a_page_right_behind_the_last_full_one_is_empty(how: str) -> None:
    """As in RabbitMQ: the one behind that is out of range."""
    status, found = ask("page=3&page_size=4", NAMES[:8], how)
    assert (status, found["item_count"], found["page_count"], found["items"]) == (200, 0, 2, [])
    assert ask("page=4&page_size=4", NAMES[:8], how)[0] == 400


@WAYS
@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("page=1&name=Q1", "q1"),
        ("page=1&name=q[12]&use_regex=true", "q1 q2 tq2"),
        ("page=1&name=^Q[12]$&use_regex=true", "q1 q2"),
        ("page=1&name=q[12]", ""),
        ("page=1&page_size=3&sort=name&sort_reverse=true", "tq2 q8 q7"),
        ("page=1&page_size=3&sort_reverse=true", "tq2 q8 q7"),
        ("page=1&page_size=4&sort=messages", "q3 q6 q1 q4"),
        ("page=1&page_size=4&sort=nothing.there", "q1 q2 q3 q4"),
        ("page=1&page_size=2&sort=messages&name=t", "tq2"),
        ("page=1&name=", "q1 q2 q3 q4 q5 q6 q7 q8 tq2"),
    ],
)
def test_a_page_is_of_what_is_looked_for_in_the_order_that_is_asked_for(query: str, names: str, how: str) -> None:
    status, found = ask(query, how=how)
    assert status == 200, found
    assert [each["name"] for each in found["items"]] == names.split()
    assert found["total_count"] == 9
    assert found["item_count"] == len(names.split())
    if "name=" in query:
        assert found["filtered_count"] == len(names.split())


@WAYS
def test_a_whole_list_is_sorted_and_has_columns_and_no_name_is_looked_for(how: str) -> None:
    status, found = ask("name=q1&columns=name,arguments.x-queue-type&sort=name&sort_reverse=true", how=how)
    assert status == 200
    assert [each["name"] for each in found] == ["tq2", "q8", "q7", "q6", "q5", "q4", "q3", "q2", "q1"]
    assert found[0] == {"name": "tq2", "arguments": {"x-queue-type": "quorum"}}
    assert ask("columns=name,message_stats.publish", NAMES[:1], how) == (200, [{"name": "q3"}])


def test_only_the_rows_of_the_page_are_made_and_few_at_a_time() -> None:
    """A page of many queues costs what its rows cost, and no more than so many of them at a time."""
    names = [("/", f"q{number:06}") for number in range(30_000)]
    made: list[str] = []
    in_turn: list[int] = []

    async def counted(some: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        made.extend(name for _, name in some)
        in_turn[-1] += len(some)
        return [{"vhost": vhost, "name": name} for vhost, name in some]

    async def ask_for(query: str) -> int:
        asking = asyncio.ensure_future(listed_by_name(make_mocked_request("GET", f"/?{query}"), names, counted))
        while not asking.done():
            in_turn.append(0)
            await asyncio.sleep(0)
        return asking.result().status

    assert asyncio.run(ask_for("page=300&page_size=50&name=0&sort_reverse=true")) == 200
    assert len(made) == 50
    made.clear()
    assert asyncio.run(ask_for("page=1&sort=messages")) == 400, f"more than {MOST_ROWS} rows are not sorted"
    assert not made
    assert asyncio.run(ask_for("")) == 200
    assert len(made) == 30_000
    assert max(in_turn) <= ROWS_AT_ONCE


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a)\1", "((a{99}){99}){99}", "^.{30}x", "[", "a**", "(", ")", "*", r"\1", "a" * 1025,
    ],
)  # fmt: skip
def test_patterns_that_cannot_be_searched_are_refused(pattern: str) -> None:
    status, found = ask(f"page=1&use_regex=true&name={quote(pattern)}")
    assert status == 400, pattern
    assert found["reason"].startswith("name = '"), found


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        ("^orders", "orders.new", True), ("orders$", "orders.new", False), (".*new.*", "orders.new", True),
        ("a.*z", "AbcZ", True), ("^a.*b.*c", "axbxc", True), (r"\.new", "orders-new", False), ("^q[^1-3]$", "q4", True),
        ("one|^two$", "twofold", False), ("one|^two$", "TWO", True), (r"\d+", "x12", True), (r"a\.*", "b", False),
        ("", "anything", True), ("colou?r", "color", True), (r"[\]]", "a]", True), ("(a+)*B", "AAB", True),
        ("^(?!orders)", "ORDERS", False), ("(?=x)one|two", "TWO", True),
    ],
)  # fmt: skip
def test_ordinary_patterns_find_what_they_say(pattern: str, name: str, found: bool) -> None:
    assert NameSearch(pattern, True).finds(name) is found
