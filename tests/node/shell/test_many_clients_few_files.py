"""More clients than a node takes: those beyond its limit hear why, and no client gets a descriptor that it keeps."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import resource
import socket
import ssl
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, cast

import pika
import pytest
import uvloop
from pika.exceptions import ProbableAccessDeniedError

from mayfly.node.limits import SURPLUS_CONNECTIONS
from mayfly.node.shell import acceptor as acceptor_module
from mayfly.node.shell.acceptor import Acceptor
from tests.node.broker.direct_node import DirectNode
from tests.waiting import BOUND_S, wait_for

LIMIT = 3


@pytest.fixture
def node() -> Iterator[DirectNode]:
    with DirectNode(connection_limit=LIMIT) as running:
        yield running


def connect(node: DirectNode) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port))


def silent(node: DirectNode) -> socket.socket:
    return socket.create_connection(("127.0.0.1", node.port), BOUND_S)


def test_a_client_beyond_the_limit_is_told_why_and_the_others_stay(node: DirectNode) -> None:
    clients = [connect(node) for _ in range(LIMIT)]
    for _ in range(3):
        with pytest.raises(ProbableAccessDeniedError) as refused:
            connect(node)
        text = f"(530) 'NOT_ALLOWED - connection refused: node connection limit ({LIMIT}) is reached'"
        assert str(refused.value).endswith(text)
    for client in clients:
        client.channel().queue_declare("q")
    clients.pop().close()
    wait_for(lambda: node.listener.connection_count == LIMIT - 1, "the place of the one that left")
    clients.append(connect(node))
    for client in clients:
        client.close()


def test_those_who_wait_to_be_told_are_few(node: DirectNode) -> None:
    """They log in, or do not, and have a place while they try."""
    with contextlib.ExitStack() as stack:
        for _ in range(LIMIT + SURPLUS_CONNECTIONS):
            stack.enter_context(silent(node))
        wait_for(lambda: node.listener.connection_count == LIMIT + SURPLUS_CONNECTIONS, "all of them")
        beyond = stack.enter_context(silent(node))
        with contextlib.suppress(ConnectionResetError):
            assert beyond.recv(1) == b""
        assert node.listener.connection_count == LIMIT + SURPLUS_CONNECTIONS


class OpenAcceptor:
    """An acceptor in a loop, and who has come in through it."""

    def __init__(
        self, most: int = 1000, first_kept_file: int | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.inside: list[asyncio.Transport] = []
        self.shut_out: list[bool] = []
        self.tls = tls
        self.acceptor = Acceptor(
            lambda: Visitor(self), lambda: len(self.inside), most, first_kept_file, self.shut_out.append, 10
        )

    async def open(self) -> tuple[str, int]:
        return "127.0.0.1", await self.acceptor.open("127.0.0.1", 0, False, self.tls)

    def close(self) -> None:
        self.acceptor.close()
        for transport in self.inside:
            transport.abort()


class Visitor(asyncio.Protocol):
    def __init__(self, accepting: OpenAcceptor) -> None:
        self._accepting = accepting

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._accepting.acceptor.came_in(self)
        self._accepting.inside.append(cast(asyncio.Transport, transport))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(BOUND_S):
        # Of what the kernel and other threads have done there is no event to wait for.
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Both loops that a node may run in."""
    return uvloop.run if request.param == "uvloop" else asyncio.run


def open_files() -> set[int]:
    """The descriptors that are taken."""
    found = map(int, os.listdir("/proc/self/fd"))
    return {number for number in found if Path(f"/proc/self/fd/{number}").is_symlink()}


def connect_all(stack: contextlib.ExitStack, address: tuple[str, int], clients: int) -> None:
    """All of them wait before the loop looks at one."""
    for _ in range(clients):
        client = stack.enter_context(socket.socket())
        client.setblocking(False)
        client.connect_ex(address)


def test_as_many_clients_come_in_as_there_are_places(run: Run) -> None:
    """Not one more, and not one less, also when they all come at once."""
    most = 75

    async def test() -> None:
        with contextlib.ExitStack() as stack:
            accepting = OpenAcceptor(most)
            address = await accepting.open()
            connect_all(stack, address, most + 10)
            await until(lambda: len(accepting.shut_out) + len(accepting.inside) == most + 10)
            assert accepting.shut_out == [False] * 10
            accepting.close()

    run(test())


def test_files_that_others_open_meanwhile_take_no_place_of_clients(run: Run) -> None:
    most = 40

    async def test() -> None:
        with contextlib.ExitStack() as stack:
            accepting = OpenAcceptor(most)
            address = await accepting.open()
            for _ in range(most):
                stack.enter_context(socket.socket())
            connect_all(stack, address, most)
            await until(lambda: len(accepting.shut_out) + len(accepting.inside) == most)
            assert accepting.shut_out == []
            accepting.close()

    run(test())


def test_no_client_gets_a_descriptor_that_is_kept_for_others(run: Run) -> None:
    """Not one of those that all wait already when the loop looks at them."""
    most = 40

    async def test() -> None:
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(socket.socket()) for _ in range(most + 10)]
            gc.collect()  # What other tests have left open is not closed in the middle of this.
            with socket.socket() as probe:
                first_kept = probe.fileno() + most
            accepting = OpenAcceptor(first_kept_file=first_kept)
            address = await accepting.open()
            free = set(range(first_kept)) - open_files()
            for client in clients:
                client.setblocking(False)
                client.connect_ex(address)
            await until(lambda: len(accepting.shut_out) + len(accepting.inside) == len(clients))
            numbers = [each.get_extra_info("socket").fileno() for each in accepting.inside]
            assert max(numbers) == max(free)
            assert len(accepting.shut_out) >= 10 and all(accepting.shut_out)
            accepting.close()

    run(test())


def test_those_in_the_middle_of_a_tls_handshake_count(run: Run) -> None:
    """They say nothing, and nobody is told of them before they do. When they are gone there is room again."""
    most = 40

    async def test() -> None:
        with contextlib.ExitStack() as stack:
            accepting = OpenAcceptor(most, tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            address = await accepting.open()
            connect_all(stack, address, most + 10)
            await until(lambda: len(accepting.shut_out) + len(accepting.acceptor._beginning) == most + 10)
            assert accepting.shut_out == [False] * 10 and accepting.inside == []
            await accepting.acceptor.give_up_handshakes()
            assert not accepting.acceptor._beginning
            connect_all(stack, address, most)
            await until(lambda: len(accepting.acceptor._beginning) == most)
            assert accepting.shut_out == [False] * 10
            await accepting.acceptor.give_up_handshakes()
            assert not accepting.acceptor._beginning
            accepting.close()

    run(test())


def test_where_there_is_no_descriptor_left_the_acceptor_waits_and_does_not_spin(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(acceptor_module, "AGAIN_SECONDS", 0.2)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()  # What other tests have left open gives no descriptor back in the middle of this.

    async def test() -> None:
        accepting = OpenAcceptor()
        address = await accepting.open()
        with socket.socket() as client, socket.socket() as probe:
            client.setblocking(False)
            free = probe.fileno()
            probe.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
            try:
                began_s = time.monotonic()
                client.connect_ex(address)
                await until(lambda: caplog.messages)
                for _ in range(50):
                    await asyncio.sleep(0)
                most = 1 + (time.monotonic() - began_s) // 0.2
                assert len(caplog.messages) <= most, "it asks in each turn of the loop"
                assert accepting.inside == []
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            await until(lambda: accepting.inside)
        assert caplog.messages[0].startswith("no connection can be accepted, tried again in 0.2 s: ")
        accepting.close()

    run(test())


def test_one_that_was_closed_while_it_waited_is_not_asked_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor_module, "AGAIN_SECONDS", 0.001)

    async def test() -> None:
        accepting = OpenAcceptor()
        await accepting.open()
        (listening,) = accepting.acceptor._listening
        accepting.acceptor._pause(asyncio.get_running_loop(), listening, None, OSError(24, "Too many open files"))
        accepting.close()
        assert not accepting.acceptor._again
        await asyncio.sleep(0.01)
        _, port = await accepting.open()
        with socket.create_connection(("127.0.0.1", port), 30):
            await until(lambda: accepting.inside)
        accepting.close()

    run(test())


class Faulty:
    """A listening socket: of its calls of accept the first ones fail with these errors."""

    def __init__(self, own: socket.socket, *errors: int) -> None:
        self._own = own
        self._errors = list(errors)
        self.accepted: list[socket.socket] = []
        self.calls = 0

    def fileno(self) -> int:
        return self._own.fileno()

    def close(self) -> None:
        self._own.close()

    def accept(self) -> tuple[socket.socket, object]:
        self.calls += 1
        if self._errors:
            number = self._errors.pop(0)
            raise OSError(number, os.strerror(number))
        accepted, address = self._own.accept()
        self.accepted.append(accepted)
        return accepted, address


async def faulty(accepting: OpenAcceptor, *errors: int) -> tuple[Faulty, tuple[str, int]]:
    """What it listens at, and its address; nothing is accepted unless a test does so."""
    address = await accepting.open()
    (own,) = accepting.acceptor._listening
    asyncio.get_running_loop().remove_reader(own.fileno())
    listening = Faulty(own, *errors)
    accepting.acceptor._listening = [cast(socket.socket, listening)]
    return listening, address


def accept(accepting: OpenAcceptor, listening: Faulty) -> None:
    accepting.acceptor._accept(asyncio.get_running_loop(), cast(socket.socket, listening), None)


OF_ONE = (errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.ENETDOWN, errno.EHOSTUNREACH, errno.ETIMEDOUT)


def test_an_error_of_one_connection_keeps_none_of_the_others_waiting(run: Run) -> None:
    async def test() -> None:
        with contextlib.ExitStack() as stack:
            accepting = OpenAcceptor()
            listening, address = await faulty(accepting, *OF_ONE)
            connect_all(stack, address, 2)
            accept(accepting, listening)
            assert not accepting.acceptor._again
            await until(lambda: len(accepting.inside) == 2)
            accepting.close()

    run(test())


def test_errors_without_end_do_not_hold_the_loop_up(run: Run) -> None:
    async def test() -> None:
        accepting = OpenAcceptor()
        listening, _ = await faulty(accepting, *[errno.ECONNABORTED] * 1000)
        accept(accepting, listening)
        assert listening.calls == 32
        accepting.close()

    run(test())


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_where_the_system_lacks_something_the_acceptor_waits(run: Run, number: int) -> None:
    async def test() -> None:
        accepting = OpenAcceptor()
        listening, _ = await faulty(accepting, number)
        accept(accepting, listening)
        assert listening.calls == 1 and len(accepting.acceptor._again) == 1
        accepting.close()

    run(test())


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_who_is_given_up_before_it_is_in_is_closed(run: Run, steps: int) -> None:
    """Also when nothing was done for it so far."""
    async def test() -> None:
        with contextlib.ExitStack() as stack:
            accepting = OpenAcceptor(tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            listening, address = await faulty(accepting)
            connect_all(stack, address, 1)
            loop = asyncio.get_running_loop()
            accepting.acceptor._accept(loop, cast(socket.socket, listening), accepting.tls)
            for _ in range(steps):
                await asyncio.sleep(0)
            await accepting.acceptor.give_up_handshakes()
            assert not accepting.acceptor._beginning and not accepting.acceptor._outside
            (accepted,) = listening.accepted
            await until(lambda: accepted.fileno() == -1)
            accepting.close()

    run(test())
