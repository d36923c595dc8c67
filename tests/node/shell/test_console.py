"""The console of a running node: its tables, asked for through the telnet of aiomonitor, and its names."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Final

import pytest

from mayfly.node.operating.views import console_tables
from mayfly.node.operating.views.console_tables import TABLES, table_rows
from mayfly.node.shell import console as console_module
from mayfly.node.shell.console import Console, as_text
from tests.integration.nodes import Ports
from tests.node.http.real_node import Node
from tests.waiting import BOUND_S


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node"))
    node.channel.queue_declare("leased", durable=True, arguments={"x-expires": 3_600_000})
    yield node
    node.stop()


def test_each_table_has_what_the_node_has(node: Node) -> None:
    async def rows() -> dict[str, list[list[object]]]:
        return {name: table_rows(node.parts.engine, name, node.parts.view.now_ms())[0] for name in TABLES}

    found = node.run(rows())
    for name, table in TABLES.items():
        assert all(len(row) == len(table.headings) for row in found[name]), name
    assert [row[:2] for row in found["shards"]] == [["catalog", "leader"], [1, "leader"], [2, "leader"]]
    (lease,) = found["leases"]
    assert lease[1:4] == ["/", "leased", 3_600_000] and 0 < lease[4] <= 3_600_000
    assert {row[0] for row in found["lag"]} >= {1, 2} and found["lanes"] == []
    assert {row[1] for row in found["sessions"]} == {1} and {row[4] for row in found["sessions"]} <= {"open", "fed"}


def test_long_tables_end(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_tables, "MOST_ROWS", 2)

    async def rows() -> tuple[list[list[object]], bool]:
        return table_rows(node.parts.engine, "shards", 0)

    found, more = node.run(rows())
    assert (len(found), more) == (2, True)


def test_columns_are_below_each_other() -> None:
    assert as_text([["a", "long"], [10, "b"]]) == "a   long\n10  b"


@pytest.fixture
def port() -> Iterator[int]:
    """The first of three neighbours that no other test takes, nor the system for an outgoing connection."""
    ports = Ports(3)
    yield ports.base
    ports.release()


def test_the_console_answers_over_telnet_and_has_the_node(
    node: Node, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_module, "_ANSWER_S", BOUND_S)
    console = Console()
    assert console.names["__name__"] == "__console__" and "node" not in console.names

    async def opened() -> contextlib.ExitStack:
        stack = contextlib.ExitStack()
        stack.enter_context(console.opened(port))
        return stack

    stack = node.run(opened())
    try:
        with socket.create_connection(("127.0.0.1", port), BOUND_S) as telnet:
            telnet.settimeout(BOUND_S)
            telnet.sendall(A_TERMINAL)
            heard = until(telnet, b"monitor >>>")
            telnet.sendall(b"lag\r\n")
            assert b"the node has not started yet" in until(telnet, b"started yet")
            console.use(node._process)
            console.serves(node.parts)
            assert console.names["node"] is node.parts and console.names["engine"] is node.parts.engine
            telnet.sendall(b"leases\r\n")
            heard = until(telnet, b"leased")
            assert b"period ms" in heard
    finally:
        node.run(closed(stack))


A_TERMINAL: Final = b"\xff\xfa\x18\x00dumb\xff\xf0" + b"\xff\xfa\x1f\x00\xf0\x00\x18\xff\xf0"
"""What a client of telnet says of itself unasked: its terminal's type, and 240 columns, 24 lines (RFC 1091, 1073)."""


async def closed(stack: contextlib.ExitStack) -> None:
    await asyncio.get_running_loop().run_in_executor(None, stack.close)


def until(telnet: socket.socket, wanted: bytes) -> bytes:
    heard = b""
    while wanted not in heard:
        more = telnet.recv(4096)
        assert more, heard
        heard += more
    return heard
