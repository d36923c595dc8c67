"""The sockets of AMQP clients: a thin asyncio shell around `node.broker`.

Octets go in as they come; what the broker has to say is gathered and written once
per turn of the loop.  Nothing is decided here but when to read, when to write, and
when to give up on a client that does not read, write or leave in time.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import itertools
import logging
import random
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final, cast

from mayfly.node.broker.broker import Broker
from mayfly.node.broker.client_socket import ClientSocket
from mayfly.node.broker.cluster_facade import OnDone
from mayfly.node.broker.connection import ClientConnection
from mayfly.node.catalog.passwords import SALT_BYTES, check_and_renew
from mayfly.node.engine.drain import TEXT_OF_STOP
from mayfly.node.limits import (
    CLOSE_OK_SECONDS,
    CONNECTIONS,
    FAREWELL_BYTES,
    FAREWELL_SILENCE_SECONDS,
    HANDSHAKE_SECONDS,
    KEEPALIVE_IDLE_SECONDS,
    KEEPALIVE_INTERVAL_SECONDS,
    KEEPALIVE_PROBES,
    OUTPUT_FULL_BYTES,
    OUTPUT_HIGH_WATER_BYTES,
    OUTPUT_LOW_WATER_BYTES,
    OUTPUT_STALL_SECONDS,
    SURPLUS_CONNECTIONS,
)
from mayfly.node.shell.acceptor import Acceptor

logger = logging.getLogger(__name__)

_TICK_SECONDS: Final = 0.5
_TICKED_AT_ONCE: Final = 100
"""Connections, before the loop may do something else."""
_PASSWORD_THREADS: Final = 2
_TCP_INFO: Final[int | None] = getattr(socket, "TCP_INFO", None) if sys.platform == "linux" else None
_TCP_ESTABLISHED: Final = 1
# tcp_info of linux/tcp.h: consecutive timeouts (tcpi_retransmits), ms since anything was acknowledged
# (tcpi_last_ack_recv).
_TCP_SILENCE: Final = Struct("=2xB53xI")


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """Where clients are listened for, how many there may be, and when they are given up."""

    host: str
    port: int = 0
    """0 takes a free one."""
    tls: ssl.SSLContext | None = None
    tls_address: tuple[str, int] | None = None
    """For TLS alone, and `port` is plain then; without it `port` is for TLS, if there is `tls`."""
    reuse_port: bool = False
    """Whether other processes may listen there as well."""
    user_of: Callable[[Mapping[str, Any]], str | None] | None = None
    """Whom the certificate of a client names, where clients have to show one."""
    connection_limit: int = CONNECTIONS
    first_kept_file: int | None = None
    """The first descriptor that no client gets, however few there are."""
    stall_seconds: float = OUTPUT_STALL_SECONDS
    keepalive_idle_seconds: int = KEEPALIVE_IDLE_SECONDS
    keepalive_interval_seconds: int = KEEPALIVE_INTERVAL_SECONDS


class AmqpListener:
    """Accepts AMQP connections: on one address, or plain ones there and TLS on another."""

    def __init__(self, broker: Broker, schedule: Callable[[], None], settings: ListenerSettings) -> None:
        """`schedule()` must lead to a call of `flush` soon, after the cluster was given the chance to do what the
        clients asked for."""
        self.broker: Broker = broker
        self.schedule: Callable[[], None] = schedule
        self.port: int = settings.port
        self.tls_port: int = 0 if settings.tls_address is None else settings.tls_address[1]
        self._host = settings.host
        self._tls_host = None if settings.tls_address is None else settings.tls_address[0]
        self._reuse_port = settings.reuse_port
        self._tls = settings.tls
        self.connection_limit: int = settings.connection_limit
        self._user_of = settings.user_of
        self.stall_ms: int = int(settings.stall_seconds * 1000)
        self.keepalive_idle_seconds: int = settings.keepalive_idle_seconds
        self.keepalive_interval_seconds: int = settings.keepalive_interval_seconds
        self._acceptor = Acceptor(
            lambda: ClientProtocol(self, asyncio.get_running_loop()), lambda: len(self._protocols),
            settings.connection_limit + SURPLUS_CONNECTIONS, settings.first_kept_file, self._count_refused,
            HANDSHAKE_SECONDS,
        )  # fmt: skip
        self._protocols: set[ClientProtocol] = set()
        self._dirty: list[ClientProtocol] = []
        self._ticker: asyncio.Handle | None = None
        """While there are clients."""
        self._passwords = ThreadPoolExecutor(_PASSWORD_THREADS, thread_name_prefix="password")
        self._refused = 0
        self._emptied: asyncio.Event | None = None

    async def start_listening(self) -> None:
        """Take clients (again).  Raises OSError, and takes none, if an address cannot be had."""
        beside = self._tls_host
        try:
            self.port = await self._acceptor.open(
                self._host, self.port, self._reuse_port, self._tls if beside is None else None
            )
            if beside is not None:
                self.tls_port = await self._acceptor.open(beside, self.tls_port, self._reuse_port, self._tls)
        except OSError:
            self.stop_listening()
            raise

    def stop_listening(self) -> None:
        """Take no more clients; those that are connected stay."""
        self._acceptor.close()

    async def stop(self, text: str = TEXT_OF_STOP) -> None:
        """Stop listening and close the connections, waiting for their close-ok for a bounded time."""
        self.stop_listening()
        self.broker.close_all(text)
        self.flush()
        if self._protocols:
            self._emptied = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), CLOSE_OK_SECONDS)
        await self._acceptor.give_up_handshakes()
        for protocol in list(self._protocols):
            protocol.abort()
        if self._ticker is not None:
            self._ticker.cancel()
        self._passwords.shutdown(wait=False, cancel_futures=True)

    def flush(self) -> None:
        """Write what there is to write, for all connections."""
        dirty, self._dirty = self._dirty, []
        # A turn gives confirms before deliveries, so whoever was woken last goes first: consumers hear no later than
        # publishers, and acknowledge before those publish the next. Else publishers are ahead, and queues grow.
        for protocol in reversed(dirty):
            try:
                protocol.flush()
            except Exception:
                protocol.failed()

    @property
    def connection_count(self) -> int:
        """Open sockets."""
        return len(self._protocols)

    def certificate_user(self, transport: asyncio.BaseTransport) -> str | None:
        """Whom the verified certificate of a client names."""
        secured = transport.get_extra_info("ssl_object")
        if self._user_of is None or secured is None:
            return None
        certificate = secured.getpeercert()
        return self._user_of(certificate) if certificate else None

    # -- for the protocols ----------------------------------------------------------

    def opened(self, protocol: ClientProtocol) -> None:
        """A client has come in."""
        if self.is_full:
            self._count_refused(False)
        self._acceptor.came_in(protocol)
        self._protocols.add(protocol)
        if self._ticker is None:
            loop = asyncio.get_running_loop()
            self._ticker = loop.call_later(_TICK_SECONDS, self._tick, loop)

    @property
    def is_full(self) -> bool:
        """Whether there are as many connections as there may be."""
        return len(self._protocols) >= self.connection_limit

    def _count_refused(self, few_files: bool) -> None:
        self._refused += 1
        if self._refused & (self._refused - 1) == 0:
            why = "the process may open few more files" if few_files else f"the limit is {self.connection_limit}"
            logger.warning("%d connections are open, %s: %d refused so far", len(self._protocols), why, self._refused)

    def closed(self, protocol: ClientProtocol) -> None:
        """A socket is gone."""
        self._protocols.discard(protocol)
        if self._emptied is not None and not self._protocols:
            self._emptied.set()

    def wake(self, protocol: ClientProtocol) -> None:
        """The connection has something to write."""
        self._dirty.append(protocol)
        self.schedule()

    @property
    def gone_ms(self) -> int:
        """After so long without a sign of life from the other side's system a client is gone."""
        return (self.keepalive_idle_seconds + KEEPALIVE_PROBES * self.keepalive_interval_seconds) * 1000

    def verify(self, loop: asyncio.AbstractEventLoop, stored_hash: str, password: str, done: OnDone) -> None:
        """Check a password in a thread; see `ConnectionHost.verify_password`."""
        salt = random.SystemRandom().randbytes(SALT_BYTES)
        future = loop.run_in_executor(self._passwords, check_and_renew, stored_hash, password, salt)

        def finished(future: asyncio.Future[tuple[bool, str]]) -> None:
            if not future.cancelled():
                right, better = (False, "") if future.exception() is not None else future.result()
                done(better or right)
                self.schedule()

        future.add_done_callback(finished)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._tick_some(loop, iter(list(self._protocols)))

    def _tick_some(self, loop: asyncio.AbstractEventLoop, protocols: Iterator[ClientProtocol]) -> None:
        now_ms = time.monotonic_ns() // 1_000_000
        ticked = 0
        for protocol in itertools.islice(protocols, _TICKED_AT_ONCE):
            ticked += 1
            try:
                protocol.tick(now_ms)
            except Exception:
                protocol.failed()
        if ticked == _TICKED_AT_ONCE:
            self._ticker = loop.call_soon(self._tick_some, loop, protocols)
        elif self._protocols:
            self._ticker = loop.call_later(_TICK_SECONDS, self._tick, loop)
        else:
            self._ticker = None


class ClientProtocol(asyncio.Protocol):
    """One client's socket.  Implements `ConnectionHost`."""

    def __init__(self, listener: AmqpListener, loop: asyncio.AbstractEventLoop) -> None:
        self._listener = listener
        self._loop = loop
        self._transport: asyncio.Transport
        self._connection: ClientConnection | None = None
        self._reading = True
        self._writing_paused = False
        self._given_bytes = 0
        self._taken_bytes = 0
        self._taken_ms = -1
        self._closing_ms = -1
        self._looked_ms = 0
        self._farewell_bytes = -1
        """What came behind the client's close; -1 while there was none."""

    # -- asyncio ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if peer is None:
            # It was reset. What it sent can be read all the same, but not where it came from, and so what it may do.
            self._transport.abort()
            return
        limit_reached = self._listener.connection_limit if self._listener.is_full else None
        self._listener.opened(self)
        own_socket = transport.get_extra_info("socket")
        if own_socket is not None and own_socket.family in (socket.AF_INET, socket.AF_INET6):
            own_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._keep_alive(own_socket)
        self._transport.set_write_buffer_limits(OUTPUT_HIGH_WATER_BYTES, OUTPUT_LOW_WATER_BYTES)
        named = self._listener.certificate_user(transport)
        accepted = ClientSocket(
            _host_and_port(peer), _host_and_port(transport.get_extra_info("sockname")),
            transport.get_extra_info("ssl_object") is not None, time.time_ns() // 1_000_000, limit_reached,
        )  # fmt: skip
        self._connection = self._listener.broker.connect(self, _name_of(peer), _is_loopback(peer), named, accepted)

    def data_received(self, data: bytes) -> None:
        """Octets from the client."""
        connection = self._connection
        if connection is None:
            return
        if self._farewell_bytes >= 0:
            self._farewell_bytes += len(data)
            if self._farewell_bytes > FAREWELL_BYTES:
                self.abort()
            return
        try:
            connection.receive(data)
        except Exception:
            self.failed()
        if not connection.pressure.wants_reading:
            self.reading_changed()
        self._listener.schedule()

    def eof_received(self) -> bool:
        """The client has closed its side: so do we."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is gone."""
        self._listener.closed(self)
        connection = self._connection
        if connection is not None:
            self._connection = None
            connection.lost()
            self._listener.schedule()

    def pause_writing(self) -> None:
        """The client does not read as fast as it is written to."""
        self._writing_paused = True
        if self._connection is not None:
            self._connection.pressure.set_output_blocked(True)
            self._listener.schedule()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._writing_paused = False
        connection = self._connection
        if connection is not None:
            if connection.amqp.output.has_large:
                # Its next part goes first.
                connection.mark()
            else:
                self._caught_up(connection)

    def _caught_up(self, connection: ClientConnection) -> None:
        connection.pressure.set_output_blocked(False)
        connection.pressure.set_output_full(False)
        self._listener.schedule()

    def _keep_alive(self, own_socket: Any) -> None:
        """Have TCP find out when the other side is gone without a word."""
        own_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (
            ("TCP_KEEPIDLE", self._listener.keepalive_idle_seconds),
            ("TCP_KEEPINTVL", self._listener.keepalive_interval_seconds),
            ("TCP_KEEPCNT", KEEPALIVE_PROBES),
        ):
            if hasattr(socket, name):
                own_socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    # -- ConnectionHost ---------------------------------------------------------------

    def wake(self) -> None:
        """See `ConnectionHost.wake`."""
        self._listener.wake(self)

    def verify_password(self, stored_hash: str, password: str, done: OnDone) -> None:
        """See `ConnectionHost.verify_password`."""
        self._listener.verify(self._loop, stored_hash, password, done)

    def reading_changed(self) -> None:
        """See `ConnectionHost.reading_changed`."""
        connection = self._connection
        if connection is None or self._transport.is_closing() or self._farewell_bytes >= 0:
            return
        wanted = connection.pressure.wants_reading
        if wanted != self._reading:
            self._reading = wanted
            connection.amqp.reading_paused = not wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    # -- for the listener ---------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Heartbeats and time limits."""
        connection = self._connection
        if connection is None:
            return
        # Its close-ok may still wait for this turn's flush, which closes the socket.
        was_over = connection.amqp.should_close
        connection.tick(now_ms)
        if connection.amqp.should_close and not was_over and not self._transport.is_closing():
            # It is silent, or took too long: what waits for it is for nobody.
            self.abort()
        elif self._transport.is_closing() or self._farewell_bytes >= 0 or connection.amqp.should_close:
            # What is left to write may be for nobody.
            self._closing_ms = now_ms if self._closing_ms < 0 else self._closing_ms
            if now_ms - self._closing_ms > CLOSE_OK_SECONDS * 1000:
                self.abort()
        elif self._is_stalled(now_ms):
            seconds = self._listener.stall_ms // 1000
            logger.warning("connection %s has taken nothing for %d s: given up", connection.name, seconds)
            self.abort()
        elif not self._reading and _is_left(self._transport.get_extra_info("socket")):
            self.abort()
        elif connection.amqp.heartbeat_seconds == 0 and now_ms - self._looked_ms >= self._listener.gone_ms // 4:
            self._looked_ms = now_ms
            if _is_gone(self._transport.get_extra_info("socket"), self._listener.gone_ms):
                logger.warning("connection %s: nothing is heard of its host: given up", connection.name)
                self.abort()

    def _is_stalled(self, now_ms: int) -> bool:
        """Whether something has been waiting to be sent for too long, and nothing of it was."""
        waiting_bytes = self._transport.get_write_buffer_size()
        taken_bytes = self._given_bytes - waiting_bytes
        if waiting_bytes == 0 or taken_bytes != self._taken_bytes or self._taken_ms < 0:
            self._taken_bytes, self._taken_ms = taken_bytes, now_ms
        return now_ms - self._taken_ms > self._listener.stall_ms

    def flush(self) -> None:
        """Write what there is to write."""
        connection = self._connection
        if connection is None or self._transport.is_closing():
            return
        output = connection.flush(takes_large=not self._writing_paused)
        if output and self._farewell_bytes < 0:
            octets = output[0] if len(output) == 1 else b"".join(output)
            self._given_bytes += len(octets)
            self._transport.write(octets)
            left_bytes = connection.amqp.output.size_bytes
            if self._writing_paused or left_bytes:
                if self._transport.get_write_buffer_size() + left_bytes > OUTPUT_FULL_BYTES:
                    connection.pressure.set_output_full(True)
            elif connection.pressure.output_blocked or connection.pressure.output_full:
                self._caught_up(connection)
        if connection.amqp.should_close and not connection.amqp.output.size_bytes:
            self._end(connection)
        elif not self._reading:
            self.reading_changed()

    def _end(self, connection: ClientConnection) -> None:
        """All is said: close the socket, or, if the client may have sent more behind its close, see it out."""
        if self._farewell_bytes >= 0 or self._transport.is_closing():
            return
        if not connection.amqp.closed_by_client:
            self._transport.close()
            return
        self._farewell_bytes = 0
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._close_when_silent(-1)
        if not self._reading:
            self._reading = True
            self._transport.resume_reading()

    def _close_when_silent(self, before_bytes: int) -> None:
        """Close the socket if no more has come since there were so many bytes, else look again a moment later."""
        if self._farewell_bytes == before_bytes:
            self._transport.close()
        elif not self._transport.is_closing():
            self._loop.call_later(FAREWELL_SILENCE_SECONDS, self._close_when_silent, self._farewell_bytes)

    def failed(self) -> None:
        """A defect of ours has raised an exception: this client is lost, the others are not."""
        logger.exception("connection %s failed", "" if self._connection is None else self._connection.name)
        self.abort()

    def abort(self) -> None:
        """Drop the socket."""
        self._transport.abort()


def _is_left(own_socket: Any) -> bool:
    """Whether the other side has closed a connection that is not read from, as far as the system tells (Linux)."""
    if own_socket is None or own_socket.family not in (socket.AF_INET, socket.AF_INET6) or _TCP_INFO is None:
        return False
    try:
        state: int = own_socket.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0]
    except OSError:
        return True
    return state != _TCP_ESTABLISHED


def _is_gone(own_socket: Any, gone_ms: int) -> bool:
    """Whether TCP sends again and again and has heard nothing for so long, as far as the system tells (Linux).

    It asks no one by keepalive meanwhile, and gives up after a quarter of an hour only. A client that is there and
    reads nothing is heard of: its system answers.
    """
    if own_socket is None or own_socket.family not in (socket.AF_INET, socket.AF_INET6) or _TCP_INFO is None:
        return False
    try:
        info = own_socket.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _TCP_SILENCE.size)
    except OSError:
        return True
    if len(info) < _TCP_SILENCE.size:
        return False
    repeats, silent_ms = _TCP_SILENCE.unpack(info)
    return bool(repeats) and silent_ms >= gone_ms


def _name_of(peer: Any) -> str:
    if isinstance(peer, tuple) and len(peer) >= 2:
        return f"{peer[0]}:{peer[1]}"
    return str(peer or "unknown")


def _host_and_port(address: Any) -> tuple[str, int]:
    if isinstance(address, tuple) and len(address) >= 2:
        return str(address[0]), int(address[1])
    return str(address or "unknown"), 0


def _is_loopback(peer: Any) -> bool:
    """Whether that is an address of this machine alone. What is no address is not."""
    if not isinstance(peer, tuple) or not peer:
        return False
    try:
        address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
