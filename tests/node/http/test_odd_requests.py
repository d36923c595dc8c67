"""Requests that two servers would read differently, and paths that would lead elsewhere: nobody's request is taken for
another's, and no page is seen that its own path does not open."""

import re
from typing import Any

import pytest

from mayfly.node.http import HttpServer
from tests.node.http.some_node import SomeNode
from tests.node.http.test_http_connections import GET, answered, connect, serve, status_of
from tests.node.http.test_management import Api

WITHIN = b"GET /queues/%2F/smuggled HTTP/1.1\r\nHost: here\r\n\r\n"
"""What whoever is in front takes for a body, or for the request after it."""
CHUNKS = b"0\r\n\r\n"


class Node(SomeNode):
    """Tells which queues were asked for."""

    async def queue_info(self, vhost: str, name: str) -> dict[str, Any] | None:
        self.asked.append(name)
        return await super().queue_info(vhost, name)


def posted(headers: bytes, body: bytes, path: bytes = b"/health/live", method: bytes = b"POST") -> bytes:
    return b"%s %s HTTP/1.1\r\nHost: here\r\n%s\r\n\r\n%s" % (method, path, headers, body)


def both(encoding: bytes) -> list[bytes]:
    """Transfer-Encoding and Content-Length, in either order."""
    said, long = b"Transfer-Encoding: " + encoding, len(CHUNKS + WITHIN)
    return [
        posted(b"Content-Length: %d\r\n%s" % (len(CHUNKS), said), CHUNKS + WITHIN),
        posted(b"%s\r\nContent-Length: %d" % (said, long), CHUNKS + WITHIN),
    ]


NOT_CHUNKED = (
    b"xchunked", b"chunked, identity", b"identity", b"\x0bchunked", b'"chunked"', b"chunked;q=1", b"\r\n chunked",
    b"chunked\r\nTransfer-Encoding: identity", b"chunked\r\nTransfer-Encoding: chunked",
)  # fmt: skip
NO_LENGTHS = (b"+5", b"5, 5", b"0x5", b"5 5", b"-1", b"", b"5\0", b"\xd9\xa5", b"5_0", b"9" * 30)
NO_CHUNKS = (b"5;a\nb", b"0x5", b"+5", b"-1", b"5 ", b" 5", b"f" * 17, b"5\n", b"5_", b"")
AMBIGUOUS = [
    *(each for encoding in (b"chunked", b"Chunked", *NOT_CHUNKED) for each in both(encoding)),
    *(posted(b"Transfer-Encoding: " + encoding, CHUNKS + WITHIN) for encoding in NOT_CHUNKED),
    posted(b"Transfer-Encoding : chunked\r\nContent-Length: 5", CHUNKS + WITHIN),
    *(
        posted(b"Content-Length: %d\r\nContent-Length: %d" % lengths, b"hello" + WITHIN)
        for lengths in ((0, 5), (5, 0), (5, 5))
    ),
    *(posted(b"Content-Length: " + length, b"hello" + WITHIN) for length in NO_LENGTHS),
    *(posted(b"Transfer-Encoding: chunked", size + b"\r\nhello\r\n0\r\n\r\n" + WITHIN) for size in NO_CHUNKS),
    posted(b"Transfer-Encoding: chunked", b"5\r\nhelloXX0\r\n\r\n" + WITHIN),
    posted(b"Transfer-Encoding: chunked", b"5\nhello\n0\n\n" + WITHIN),
    posted(b"Transfer-Encoding: chunked", b"0\r\nContent-Length: 5\r\n\r\n" + WITHIN),
    *(posted(odd + b"Content-Length: 5", b"hello" + WITHIN) for odd in (b"X: y\n", b"X: y\r", b"X: \0\r\n", b" ")),
]


def test_a_request_that_can_be_read_in_two_ways_is_refused_with_all_that_follows() -> None:
    """The connection is closed after at most one answer, which is a refusal; what comes behind is never asked."""
    node = Node()

    async def work(server: HttpServer) -> None:
        for request in AMBIGUOUS:
            reader, writer = await connect(server, request)
            got = b""
            try:
                while read := await reader.read(10_000):
                    got += read
            except ConnectionError:
                pass
            writer.close()
            statuses = re.findall(rb"HTTP/1\.[01] (\d+)", got)
            assert len(statuses) < 2 and all(status.startswith(b"4") for status in statuses), (request, got)
        assert node.asked == []
        assert await status_of(server) == 200

    serve(work, node)


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/health/live", 200), ("POST", "/health/live", 405), ("POST", "/nowhere", 404), ("PUT", "/", 405)],
)
def test_a_body_that_nobody_reads_is_not_the_next_request(method: str, path: str, status: int, chunked: bool) -> None:
    node = Node()
    if chunked:
        headers, body = b"Transfer-Encoding: chunked", b"%x\r\n%s\r\n0\r\n\r\n" % (len(WITHIN), WITHIN)
    else:
        headers, body = b"Content-Length: %d" % len(WITHIN), WITHIN
    request = posted(headers, body, path.encode(), method.encode())

    async def work(server: HttpServer) -> None:
        streams = await connect(server, request + GET.replace(b"/health/live", b"/queues/%2F/own"))
        assert b" %d " % status in await answered(streams)
        assert await answered(streams) == b"HTTP/1.1 200 OK"
        assert node.asked == ["own"]
        streams[1].close()

    serve(work, node)


ODD_PATHS = [
    "/api/..%2f", "/api/%2e%2e/metrics", "/api/..%2fmetrics", "/health/../metrics", "/health/live/..%2f..%2fmetrics",
    "//metrics", "/metrics/", "/%6detrics", "/metrics%00", "/%00", "/api/policies%00", "/api/policies/%00",
    "/api/%252e%252e/policies", "/api/policies%2f", "/api%2fpolicies", "/api/policies;x", "/api/./policies",
    "/api/policies", "//api/policies", "/API/policies", "http://elsewhere/api/policies", "http://elsewhere/metrics",
    "http://user:pw@here/api/policies", "*", "api/policies", "javascript:x", "/api/policies#x", "/api/%ff", "/api/%zz",
    "/queues/%2F/%00", "/queues/%2F/..%2f..", "/\\..\\metrics", "/page/..%2f..%2fserver.py", "/page/../server.py",
    "/page/%2e%2e/%2e%2e/server.py", "/page/%00", "/page//etc/passwd", "/page/%252e%252e%252fserver.py",
]  # fmt: skip


def test_no_way_of_writing_a_path_leads_past_the_login_or_to_a_file() -> None:
    """Also not with another address before the path, which is read as the path alone."""
    api = Api()

    async def work(server: HttpServer) -> None:
        for path in ODD_PATHS:
            reader, writer = await connect(
                server, b"GET %s HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n" % path.encode()
            )
            found = re.match(rb"HTTP/1\.[01] (\d+)", await reader.read())
            assert found and found[1] in (b"400", b"401", b"404"), (path, found)
            writer.close()
        assert await status_of(server) == 200

    try:
        serve(work, management=api.management, open_pages="none")
    finally:
        api.logins.close()
