"""Silent connections to the HTTP port: so many, for so long, and others are served all the while."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import astuple
from typing import Any

import aiohttp

from mayfly.node.http import HttpServer
from tests.node.http.served import address_of, http_server
from tests.node.http.some_node import SomeNode
from tests.waiting import BOUND_S

MOST = 5
DEADLINE_S = 1.0
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
GET = b"GET /health/live HTTP/1.1\r\nHost: here\r\n\r\n"


def serve(work: Callable[[HttpServer], Awaitable[None]], node: SomeNode | None = None, **limits: Any) -> None:
    """Do something with a server that has these limits."""

    async def serving() -> None:
        server = http_server(node or SomeNode(), **limits)
        await server.start()
        try:
            await asyncio.wait_for(work(server), 2 * BOUND_S)
        finally:
            await server.stop()

    asyncio.run(serving())


async def connect(server: HttpServer, octets: bytes = b"") -> Streams:
    reader, writer = await asyncio.open_connection(*astuple(address_of(server)))
    writer.write(octets)
    return reader, writer


async def status_of(server: HttpServer, path: str = "/health/live") -> int:
    async with aiohttp.ClientSession() as session, session.get(f"http://{address_of(server)}{path}") as response:
        return response.status


async def is_closed(streams: Streams) -> bool:
    """Whether the node closed it without a word, in time."""
    try:
        return await streams[0].read(1) == b""
    except ConnectionError:
        return True


async def answered(streams: Streams) -> bytes:
    """The first line of an answer; the rest is read as well."""
    head = await streams[0].readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
    await streams[0].readexactly(int(length.split(b":")[1]))
    return head.split(b"\r\n")[0]


def test_silent_sockets_make_room_for_who_asks() -> None:
    async def work(server: HttpServer) -> None:
        silent = [await connect(server) for _ in range(4 * MOST)]
        for _ in range(3):
            assert await status_of(server) == 200
        for each in silent[: 3 * MOST]:
            assert await is_closed(each)
        assert len(server._runner.server.connections) <= MOST  # type: ignore[union-attr]

    serve(work, most_connections=MOST, first_request_seconds=3600)


def test_who_asked_stays_and_who_has_not_goes_at_the_deadline() -> None:
    """Half a header is none, however it comes."""

    async def work(server: HttpServer) -> None:
        asking = await connect(server, GET)
        assert await answered(asking) == b"HTTP/1.1 200 OK"
        silent, half = await connect(server), await connect(server, GET[:-2])
        dripping = await connect(server, b"GET / HTTP/1.1\r\n")
        gone = asyncio.ensure_future(is_closed(dripping))
        while not gone.done():
            dripping[1].write(b"x: y\r\n")
            await asyncio.sleep(DEADLINE_S / 20)
        assert gone.result() and await is_closed(silent) and await is_closed(half)
        asking[1].write(GET)
        assert await answered(asking) == b"HTTP/1.1 200 OK"

    serve(work, first_request_seconds=DEADLINE_S)


def test_who_asks_no_more_goes_after_a_while() -> None:
    async def work(server: HttpServer) -> None:
        asking = await connect(server, GET)
        await answered(asking)
        assert await is_closed(asking)

    serve(work, keepalive_seconds=DEADLINE_S)


def test_a_request_under_way_keeps_its_place() -> None:
    """Where each has one, the next connection is refused; afterwards there is room again."""
    node = SomeNode()
    all_asked, go_on = asyncio.Event(), asyncio.Event()

    async def freshness(vhost: str | None = None, name: str | None = None) -> dict[str, Any]:
        node.asked.append(name)
        if len(node.asked) == MOST:
            all_asked.set()
        await go_on.wait()
        return {"current": True}

    node.freshness = freshness  # type: ignore[method-assign]

    async def work(server: HttpServer) -> None:
        slow = b"GET /queues/%2F/q?fresh=true HTTP/1.1\r\nHost: here\r\n\r\n"
        waiting = [await connect(server, slow) for _ in range(MOST)]
        await all_asked.wait()
        assert await is_closed(await connect(server, GET))
        go_on.set()
        for each in waiting:
            assert await answered(each) == b"HTTP/1.1 200 OK"
        assert await status_of(server) == 200

    serve(work, node, most_connections=MOST)
