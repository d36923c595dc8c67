"""The way in for clients: accepts connections, as far as the process may open files.

The event loops' own servers accept all that wait in one go, also when that takes the last descriptor: from the log, and
from other nodes. This one accepts a few in a turn, counts those whose TLS handshake is not over as well, and closes at
once whoever is too many.
"""

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

logger = logging.getLogger(__name__)

_ACCEPTED_AT_ONCE: Final = 32
"""Connections, before the loop may do something else."""
_BACKLOG: Final = 1024
_LACKING: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
"""Errors of accept() after which the connection goes on waiting."""
AGAIN_SECONDS: Final = 1.0
"""Where the system gives no descriptor, it is asked again after this."""


class Acceptor:
    """Makes a protocol for each connection."""

    def __init__(
        self,
        make: Callable[[], asyncio.Protocol],
        inside: Callable[[], int],
        most: int,
        first_kept_file: int | None,
        shut_out: Callable[[bool], None],
        handshake_seconds: float,
    ) -> None:
        """`inside()`: how many have come in (see `came_in`) and not left; they and those who are about to are `most`.
        `first_kept_file`: the first descriptor that no client gets; None: they get any.
        `shut_out(few_files)` is called for each connection that was closed for one of these."""
        self._make = make
        self._inside = inside
        self._most = most
        self._first_kept_file = first_kept_file
        self._shut_out = shut_out
        self._handshake_seconds = handshake_seconds
        self._listening: list[socket.socket] = []
        self._again: dict[socket.socket, asyncio.TimerHandle] = {}
        """Those that are not accepted from for a while."""
        self._beginning: set[asyncio.Task[None]] = set()
        self._outside: set[asyncio.Protocol] = set()
        """Of those who have been accepted and are not in."""

    async def open(self, host: str, port: int, reuse_port: bool, tls: ssl.SSLContext | None = None) -> int:
        """Listen there (as well); the port. Raises OSError if the address cannot be had."""
        loop = asyncio.get_running_loop()
        opened = await _listen(loop, host, port, reuse_port)
        self._listening += opened
        for listening in opened:
            loop.add_reader(listening.fileno(), self._accept, loop, listening, tls)
        bound: int = opened[0].getsockname()[1]
        return bound

    def close(self) -> None:
        """Listen no more; who has been accepted stays."""
        loop = asyncio.get_running_loop()
        for handle in self._again.values():
            handle.cancel()
        self._again.clear()
        for listening in self._listening:
            loop.remove_reader(listening.fileno())
            listening.close()
        self._listening = []

    def came_in(self, protocol: asyncio.Protocol) -> None:
        """Its connection is made: from here on it is one of those `inside`."""
        self._outside.discard(protocol)

    async def give_up_handshakes(self) -> None:
        """Drop those who have been accepted and whose TLS handshake is not over."""
        beginning = list(self._beginning)
        for task in beginning:
            task.cancel()
        await asyncio.gather(*beginning, return_exceptions=True)

    def _accept(
        self, loop: asyncio.AbstractEventLoop, listening: socket.socket, tls: ssl.SSLContext | None
    ) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, _address = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _LACKING:
                    self._pause(loop, listening, tls, error)
                    return
                # Linux tells so what has become of one connection, which waits no longer.
                logger.debug("a connection was gone before it was accepted: %s", error)
                continue
            # The system gives the lowest number that is free: with this one all below are taken.
            few_files = self._first_kept_file is not None and accepted.fileno() >= self._first_kept_file
            if few_files or self._inside() + len(self._outside) >= self._most:
                accepted.close()
                self._shut_out(few_files)
                continue
            accepted.setblocking(False)
            self._begin(loop, accepted, tls)

    def _begin(self, loop: asyncio.AbstractEventLoop, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        protocol = self._make()
        self._outside.add(protocol)

        def ended(task: asyncio.Task[None]) -> None:
            self._beginning.discard(task)
            self._outside.discard(protocol)
            if task.cancelled():  # maybe before it began
                accepted.close()

        task = loop.create_task(self._let_in(loop, protocol, accepted, tls))
        self._beginning.add(task)
        task.add_done_callback(ended)

    def _pause(
        self, loop: asyncio.AbstractEventLoop, listening: socket.socket, tls: ssl.SSLContext | None, error: OSError
    ) -> None:
        """The connection goes on waiting, and would call again at once."""
        logger.warning("no connection can be accepted, tried again in %g s: %s", AGAIN_SECONDS, error)
        loop.remove_reader(listening.fileno())

        def again() -> None:
            del self._again[listening]
            loop.add_reader(listening.fileno(), self._accept, loop, listening, tls)

        self._again[listening] = loop.call_later(AGAIN_SECONDS, again)

    async def _let_in(
        self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol, accepted: socket.socket,
        tls: ssl.SSLContext | None,
    ) -> None:  # fmt: skip
        handshake_seconds = None if tls is None else self._handshake_seconds
        try:
            await loop.connect_accepted_socket(
                lambda: protocol, accepted, ssl=tls, ssl_handshake_timeout=handshake_seconds
            )
        except OSError as error:
            # It has gone already, or spoke no TLS, or not in time.
            accepted.close()
            logger.debug("a connection came to nothing: %s", error)
        except Exception:  # A defect: raised, but the socket has no other owner who would close it.
            accepted.close()
            raise


async def _listen(
    loop: asyncio.AbstractEventLoop, host: str, port: int, reuse_port: bool
) -> list[socket.socket]:
    """A socket for each address of a host; all addresses for "". Port 0: the same free one for all.

    Those of a kind that this machine lacks are left out. Raises OSError if one of the others can't be had, or there is
    none.
    """
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listening: list[socket.socket] = []
    missing: OSError | None = None
    with contextlib.ExitStack() as opened:
        for family, kind, protocol, _, (name, _port, *rest) in dict.fromkeys(found):
            try:
                own = _bound(socket.socket(family, kind, protocol), (name, port, *rest), reuse_port)
            except OSError as error:
                fault = OSError(error.errno, f"can't listen on {name}:{port}: {error.strerror}")
                if not _is_missing(family, error):
                    raise fault from None
                logger.info("left out: %s", fault.strerror)
                missing = fault
                continue
            listening.append(opened.enter_context(own))
            port = own.getsockname()[1]
        if missing is not None and not listening:
            raise missing
        for own in listening:
            own.listen(_BACKLOG)
        opened.pop_all()
    return listening


def _bound(own: socket.socket, address: tuple[str | int, ...], reuse_port: bool) -> socket.socket:
    try:
        own.setblocking(False)
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if own.family == socket.AF_INET6:
            own.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        own.bind(address)
    except BaseException:
        own.close()
        raise
    return own


def _is_missing(family: int, error: OSError) -> bool:
    """Whether this machine lacks such addresses, or may: the same error says that another machine has the address."""
    if error.errno == errno.EADDRNOTAVAIL:
        return family == socket.AF_INET6
    return error.errno == errno.EAFNOSUPPORT
