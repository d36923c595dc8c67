"""Connections to other clusters, for the mirrors that are led here (RULES J4): what `node.duties.upstream_mirrors` asks
for becomes sockets.

Nothing is decided here but that an address does not answer in time. What may wait for a disk, passwords and authorities
of TLS, is read in threads.
"""

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from mayfly.node.duties.upstream_mirrors import READING, REFUSED, UpstreamLink, UpstreamMirrors
from mayfly.node.settings.upstreams import Upstream, UpstreamAddress
from mayfly.node.upstream.reader import UpstreamLogin

CONNECT_S: Final = 10.0
CONNECTS_AT_ONCE: Final = 4
"""To one cluster: after a restart all mirrors want to be connected, and each handshake of TLS takes its time."""
_READ_BYTES: Final = 256 * 1024
_FULL_WAIT_S: Final = 0.05

log = logging.getLogger("mayfly.upstreams")


class _Unreadable(Exception):
    """A file that is needed can't be read, or has not what is needed."""

    def __init__(self, what: str, error: Exception) -> None:
        super().__init__(str(error))
        self.what = what


class _Login:
    """What connections to one cluster need of its files, kept as long as the file with the authorities is the same."""

    def __init__(self, upstream: Upstream) -> None:
        self.turns: asyncio.Semaphore = asyncio.Semaphore(CONNECTS_AT_ONCE)
        self._upstream = upstream
        self._made: tuple[object, ssl.SSLContext] | None = None
        """TLS, behind the state of the file that it was made of."""

    def read(self, with_tls: bool) -> tuple[str, ssl.SSLContext | None]:
        """Password and TLS, in a thread. Raises _Unreadable."""
        try:
            password = self._upstream.password()
        except (OSError, ValueError) as error:
            raise _Unreadable("the password file", error) from error
        try:
            return password, self._tls() if with_tls else None
        except (OSError, ValueError) as error:
            raise _Unreadable("the ca_file", error) from error

    def _tls(self) -> ssl.SSLContext:
        """It checks certificate and name. Raises OSError, as ssl.SSLError is one."""
        file = self._upstream.ca_file
        made_of = _state(file)
        made = self._made
        if made is None or made[0] != made_of:
            made = self._made = (made_of, ssl.create_default_context(cafile=file))
        return made[1]


class UpstreamLinks:
    """Of one node."""

    def __init__(
        self, mirrors: UpstreamMirrors, upstreams: Mapping[str, Upstream],
        feed: Callable[[Callable[[int], None]], None], begin: Callable[[Coroutine[Any, Any, None]], None],
        now_ms: Callable[[], int],
    ) -> None:  # fmt: skip
        """`feed(take_in)` gives the engine some input (`node.shell.drive`); `begin` has something done beside all
        else."""
        self._mirrors = mirrors
        self._upstreams = upstreams
        self._feed = feed
        self._begin = begin
        self._now_ms = now_ms
        self._open: dict[tuple[UpstreamLink, int], asyncio.StreamWriter] = {}
        """By link and attempt."""
        self._logins = {name: _Login(upstream) for name, upstream in upstreams.items()}
        mirrors.allowed = {name: upstream.for_vhosts for name, upstream in upstreams.items()}

    def ticked(self) -> None:
        """The engine was given a tick: connections begin, end, and say what there is to be said."""
        for link in self._mirrors.links.values():
            if link.wants_connection(self._now_ms()):
                self._begin(self._run(link, link.connecting()))
            elif link.state == REFUSED:
                self._tell(link)
        for (link, attempt), writer in list(self._open.items()):
            if link.is_open(attempt):
                self._say(link, attempt, writer)
            else:
                writer.transport.abort()

    async def _run(self, link: UpstreamLink, attempt: int) -> None:
        """One connection, from its beginning to its end."""
        try:
            await self._connect(link, attempt)
        except Exception:
            # Without another word the link would wait for it for ever.
            log.exception("the connection of mirror %r to cluster %r has failed", link.record.name, link.upstream)
            self._lost(link, attempt, "the connection has failed: see the log")

    async def _connect(self, link: UpstreamLink, attempt: int) -> None:
        upstream, known = self._upstreams[link.upstream], self._logins[link.upstream]
        address = upstream.addresses[(attempt - 1) % len(upstream.addresses)]
        where = f"{address.host}:{address.port}"
        try:
            async with known.turns:
                if link.ended:
                    return
                async with asyncio.timeout(CONNECT_S):
                    password, tls = await asyncio.to_thread(known.read, address.tls)
                    reader, writer = await asyncio.open_connection(address.host, address.port, ssl=tls)
        except _Unreadable as error:
            self._lost(link, attempt, f"{error.what} can't be read", str(error))
            return
        except TimeoutError:
            why = f"did not answer within {CONNECT_S:.0f} s"
            self._lost(link, attempt, f"the other side {why}", f"{where} {why}")
            return
        except (OSError, ValueError) as error:
            self._lost(link, attempt, _shown(error), f"{where}: {error}")
            return
        try:
            self._open[link, attempt] = writer
            login = UpstreamLogin(upstream.user, password, upstream.vhost)
            self._feed(lambda now_ms: link.connected(attempt, login, now_ms))
            await self._read(link, attempt, reader, writer, address)
        except OSError as error:
            self._lost(link, attempt, _shown(error), f"{where}: {error}")
        finally:
            del self._open[link, attempt]
            writer.transport.abort()
            if not link.is_open(link.attempts) and link.fault:
                self._tell(link)

    async def _read(
        self, link: UpstreamLink, attempt: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
        address: UpstreamAddress,
    ) -> None:  # fmt: skip
        self._say(link, attempt, writer)
        while link.is_open(attempt):
            if link.is_full:
                # What is stored is seen at a tick.
                await asyncio.sleep(_FULL_WAIT_S)
                continue
            octets = await reader.read(_READ_BYTES)
            if not octets:
                why = "has closed the connection"
                self._lost(link, attempt, f"the other side {why}", f"{address.host}:{address.port} {why}")
                return
            self._feed(partial(link.receive, attempt, octets))
            self._say(link, attempt, writer)
            if link.state == READING and link.told != READING:
                link.told = READING
                log.info(
                    "mirror %r in vhost %r reads stream %r of cluster %r at %s:%d", link.record.name,
                    link.record.vhost, link.stream, link.upstream, address.host, address.port,
                )  # fmt: skip
        # What it says last, that it has heard why it ends, is not waited for.
        with contextlib.suppress(OSError):
            self._say(link, attempt, writer)

    def _say(self, link: UpstreamLink, attempt: int, writer: asyncio.StreamWriter) -> None:
        octets = link.take_output(attempt)
        if octets:
            writer.write(octets)

    def _lost(self, link: UpstreamLink, attempt: int, why: str, detail: str = "") -> None:
        self._feed(lambda now_ms: link.lost(attempt, why, now_ms, detail))
        if (link, attempt) not in self._open:
            self._tell(link)

    def _tell(self, link: UpstreamLink) -> None:
        """Why a mirror is not read for, once until it is again. Not of one that is no more read for by this node: that
        its connection has ended is in order."""
        if not link.ended and link.told != link.detail:
            link.told = link.detail
            log.warning(
                "mirror %r in vhost %r can't read stream %r of cluster %r now: %s", link.record.name,
                link.record.vhost, link.stream, link.upstream, link.detail,
            )  # fmt: skip


def _state(file: Path | None) -> object:
    """What changes when the file does. Raises OSError."""
    if file is None:
        return None
    found = file.stat()
    return found.st_mtime_ns, found.st_ino, found.st_size


def _shown(error: Exception) -> str:
    """Why there is no connection, without the addresses that are in an error's own text."""
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or 'the other side does not speak it'}"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return f"the other side can't be reached: {os.strerror(error.errno)}"
    return "the other side can't be reached"
