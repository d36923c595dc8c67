"""Certificates that are replaced while the node runs: what is watched, and what is done about it."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from mayfly.cluster.transport.tls import SwitchedContext
from mayfly.node.settings import NodeSettings, TlsFiles

LOOK_S: Final = 1.0
"""A replaced file is noticed after at most twice this: it has to look the same two times, so that nothing half written
is read."""

log = logging.getLogger("mayfly.tls")

Look = tuple[tuple[int, int, int], ...]


def check_files(settings: NodeSettings) -> None:
    """Raises OSError, with file and setting, when a certificate or a key of this node can't be read or used."""
    if settings.peer_tls is not None:
        _check(settings.peer_tls, "peer")
    if settings.amqp_tls is not None:
        _check(settings.amqp_tls, "amqp")
    if settings.http_tls is not None:
        _check(settings.http_tls, "http")
    if settings.oauth2_key_file is not None:
        # Loads `cryptography`, 8 MB, as a node does that takes tokens.
        from mayfly.node.shell.node_tokens import keys_in_file

        keys_in_file(settings.oauth2_key_file)


def _check(files: TlsFiles, whose: str) -> None:
    settings = tuple(f"{whose}_tls_{what}" for what in ("cert", "key", "ca"))
    named = dict(zip(settings, files, strict=True))
    for setting, file in named.items():
        try:
            if file is not None:
                file.read_bytes()
        except OSError as error:
            raise OSError(f"{setting} = {file} can't be read: {error.strerror}") from None
    certificate, key, authority = (f"{setting} = {file}" for setting, file in named.items())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(files.certificate, files.key)
    except ssl.SSLError as error:
        raise OSError(f"{certificate} and {key} are not a certificate and its key: {error}") from None
    try:
        if files.authority is not None:
            context.load_verify_locations(files.authority)
    except ssl.SSLError as error:
        raise OSError(f"{authority} is not a certificate: {error}") from None


def client_tls(files: TlsFiles | None, whose: str = "amqp") -> SwitchedContext | None:
    """TLS towards clients; with an authority, clients have to show a certificate. Raises OSError, with file and
    setting, as its `reload` does. `whose` is how the settings begin."""
    return None if files is None else SwitchedContext(lambda: _client_context(files, whose))


def _client_context(files: TlsFiles, whose: str) -> ssl.SSLContext:
    _check(files, whose)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    if files.authority is not None:
        context.load_verify_locations(files.authority)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class Certificates:
    """The certificates of one node, by what has them."""

    def __init__(self, files: Iterable[Path | None], reloads: dict[str, Callable[[], None]]) -> None:
        """`reloads`: by name, what reads its files again or raises OSError and keeps what it has."""
        self._files = [file for file in files if file is not None]
        self._reloads = reloads

    def reload(self, why: str) -> None:
        """Read all files again; for connections from here on. What can't be used is logged, and not used."""
        for name, read in self._reloads.items():
            try:
                read()
            except OSError as error:
                log.error("certificates %s can't be used (%s); those from before stay in use: %s", name, why, error)
            else:
                log.info("certificates %s were read again (%s)", name, why)

    async def watch(self) -> None:
        """Reload when files have changed and have stopped changing; for ever."""
        loop = asyncio.get_running_loop()
        used = seen = await loop.run_in_executor(None, look_at, self._files)
        while self._files:
            await asyncio.sleep(LOOK_S)
            now = await loop.run_in_executor(None, look_at, self._files)
            if now == seen and now != used:
                used = now
                self.reload("files changed")
            seen = now


def look_at(files: Iterable[Path]) -> Look:
    """What tells that a file was changed or replaced; zeros for one that is not there."""
    found = []
    for file in files:
        try:
            status = file.stat()
            found.append((status.st_ino, status.st_mtime_ns, status.st_size))
        except OSError:
            found.append((0, 0, 0))
    return tuple(found)
