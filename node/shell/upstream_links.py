"""Connections to other clusters, for the mirrors that are led here (RULES J4): what `node.duties.upstream_mirrors` asks
for becomes sockets.

Nothing is decided here but that an address does not answer in time.
"""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final

from mayfly.node.duties.upstream_mirrors import READING, UpstreamLink, UpstreamMirrors
from mayfly.node.settings.upstreams import Upstream, UpstreamAddress
from mayfly.node.upstream.reader import UpstreamLogin

CONNECT_S: Final = 10.0
_READ_BYTES: Final = 256 * 1024
_FULL_WAIT_S: Final = 0.05

log = logging.getLogger("mayfly.upstreams")


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
        self._open: dict[UpstreamLink, asyncio.StreamWriter] = {}
        mirrors.allowed = {name: upstream.for_vhosts for name, upstream in upstreams.items()}

    def ticked(self) -> None:
        """The engine was given a tick: connections begin, end, and say what there is to be said."""
        for link in self._mirrors.links.values():
            if link.wants_connection(self._now_ms()):
                link.connecting()
                self._begin(self._run(link))
        for link, writer in list(self._open.items()):
            if link.is_open:
                self._say(link, writer)
            else:
                writer.transport.abort()

    async def _run(self, link: UpstreamLink) -> None:
        """One connection, from its beginning to its end."""
        upstream = self._upstreams[link.upstream]
        address = upstream.addresses[(link.attempts - 1) % len(upstream.addresses)]
        where = f"{address.host}:{address.port}"
        try:
            password = await asyncio.to_thread(upstream.password)
            tls = _context(upstream) if address.tls else None
            reader, writer = await asyncio.wait_for(
                asyncio.open_connection(address.host, address.port, ssl=tls), CONNECT_S
            )
        except TimeoutError:
            self._lost(link, f"{where} did not answer within {CONNECT_S:.0f} s")
            return
        except (OSError, ValueError) as error:
            self._lost(link, f"{where}: {error}")
            return
        try:
            self._open[link] = writer
            login = UpstreamLogin(upstream.user, password, upstream.vhost)
            self._feed(lambda now_ms: link.connected(login, now_ms))
            await self._read(link, reader, writer, address)
        except OSError as error:
            self._lost(link, f"{where}: {error}")
        finally:
            del self._open[link]
            writer.transport.abort()
            if not link.is_open and link.fault:
                self._tell(link)

    async def _read(
        self, link: UpstreamLink, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: UpstreamAddress
    ) -> None:  # fmt: skip
        self._say(link, writer)
        while link.is_open:
            if link.is_full:
                # What is stored is seen at a tick.
                await asyncio.sleep(_FULL_WAIT_S)
                continue
            octets = await reader.read(_READ_BYTES)
            if not octets:
                self._lost(link, f"{address.host}:{address.port} has closed the connection")
                return
            self._feed(partial(link.receive, octets))
            self._say(link, writer)
            if link.state == READING and link.told != READING:
                link.told = READING
                log.info(
                    "mirror %r in vhost %r reads stream %r of cluster %r at %s:%d", link.record.name,
                    link.record.vhost, link.stream, link.upstream, address.host, address.port,
                )  # fmt: skip
        # What it says last, that it has heard why it ends, is not waited for.
        with contextlib.suppress(OSError):
            self._say(link, writer)

    def _say(self, link: UpstreamLink, writer: asyncio.StreamWriter) -> None:
        octets = link.take_output()
        if octets:
            writer.write(octets)

    def _lost(self, link: UpstreamLink, why: str) -> None:
        self._feed(lambda now_ms: link.lost(why, now_ms))
        if link not in self._open:
            self._tell(link)

    def _tell(self, link: UpstreamLink) -> None:
        """Why a mirror is not read for, once until it is again."""
        if link.told != link.fault:
            link.told = link.fault
            log.warning(
                "mirror %r in vhost %r can't read stream %r of cluster %r now: %s", link.record.name,
                link.record.vhost, link.stream, link.upstream, link.fault,
            )  # fmt: skip


def _context(upstream: Upstream) -> ssl.SSLContext:
    """TLS that checks certificate and name. Raises OSError, as ssl.SSLError is one."""
    return ssl.create_default_context(cafile=upstream.ca_file)
