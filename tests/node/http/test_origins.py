"""Which requests count as this machine's: not those that a page of the web has a browser on it make."""

import asyncio
import socket
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from mayfly.node.http.origins import is_from_here, is_loopback


def request(remote: str, **headers: str) -> Any:
    class Transport:
        def get_extra_info(self, name: str, default: object = None) -> object:
            return (remote, 50_000) if name == "peername" else default

    return make_mocked_request("GET", "/", headers=headers, transport=Transport())


@pytest.mark.parametrize(
    ("headers", "is_here"),
    [
        ({"Host": "127.0.0.1:15672"}, True),
        ({"Host": "localhost:15672"}, True),
        ({"Host": "LocalHost."}, True),
        ({"Host": "mq.localhost:15672"}, True),
        ({"Host": "[::1]:15672"}, True),
        ({"Host": "10.1.2.3"}, True),
        ({"Host": "rabbit"}, True),
        ({"Host": socket.gethostname()}, True),
        ({}, True),
        ({"Host": "evil.example:15672"}, False),
        ({"Host": "127.0.0.1.evil.example"}, False),
        ({"Host": "localhost.evil.example"}, False),
        ({"Host": "127.0.0.1@evil.example"}, False),
        ({"Host": "[::1"}, False),
        ({"Host": ""}, False),
        ({"Host": "127.0.0.1:15672", "Origin": "http://evil.example"}, False),
        ({"Host": "0.0.0.0:15672", "Origin": "https://evil.example"}, False),
        ({"Host": "127.0.0.1:15672", "Origin": "null"}, False),
        ({"Host": "127.0.0.1:15672", "Origin": "http://127.0.0.1:15672"}, True),
        ({"Host": "localhost", "Origin": "http://localhost:3000"}, True),
    ],
)
def test_a_name_that_somebody_on_the_web_can_have_is_not_this_machine(headers: dict[str, str], is_here: bool) -> None:
    async def asked() -> None:
        assert is_from_here(request("127.0.0.1", **headers)) is is_here
        assert is_from_here(request("::1", **headers)) is is_here
        assert not is_from_here(request("10.1.2.3", **headers)), "whatever it says"

    asyncio.run(asked())


def test_loopback_is_told_from_others() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1")))
    assert not any(map(is_loopback, (None, "", "10.0.0.1", "::2", "::ffff:10.0.0.1", "localhost", "127.0.0.1x")))
