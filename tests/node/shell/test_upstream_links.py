"""Sockets of mirrors in other clusters: what is read in threads, what is told of one that can't be had, and what is
not (RULES J4)."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mayfly.node.duties.upstream_mirrors import CONNECTING, READING, REFUSED, WAITING
from mayfly.node.settings.upstreams import Upstream, UpstreamAddress
from mayfly.node.shell.upstream_links import CONNECTS_AT_ONCE, UpstreamLinks
from mayfly.node.upstream.reader import UpstreamLogin
from tests.waiting import BOUND_S


class _Link:
    """As an UpstreamLink, for its shell."""

    def __init__(self, name: str = "m") -> None:
        self.record = SimpleNamespace(name=name, vhost="/")
        self.upstream, self.stream = "east", "s"
        self.state, self.fault, self.detail, self.told = WAITING, "", "", ""
        self.attempts = 0
        self.ended = self.is_full = False
        self.heard = asyncio.Event()

    def wants_connection(self, now_ms: int) -> bool:
        return self.state == WAITING and not self.ended and not self.attempts

    def is_open(self, attempt: int) -> bool:
        return self.state == READING and not self.ended and attempt == self.attempts

    def connecting(self) -> int:
        self.state = CONNECTING
        self.attempts += 1
        return self.attempts

    def connected(self, attempt: int, login: UpstreamLogin, now_ms: int) -> None:
        self.state = READING

    def take_output(self, attempt: int) -> bytes:
        return b""

    def receive(self, attempt: int, octets: bytes, now_ms: int) -> None:
        self.heard.set()

    def lost(self, attempt: int, why: str, now_ms: int, detail: str = "") -> None:
        self.state, self.fault, self.detail = WAITING, why, detail or why


class _Shell:
    """Links to one cluster at one address."""

    def __init__(self, upstream: Upstream, *links: _Link) -> None:
        self.mirrors = SimpleNamespace(links=dict(enumerate(links)), allowed={})
        self.tasks: list[asyncio.Task[None]] = []
        self.links = UpstreamLinks(cast("Any", self.mirrors), {"east": upstream}, self._feed, self._begin, lambda: 0)

    def _feed(self, take_in: Callable[[int], None]) -> None:
        take_in(0)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    async def run(self) -> None:
        """Until all connections have ended."""
        self.links.ticked()
        await asyncio.wait_for(asyncio.gather(*self.tasks), BOUND_S)


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    """At a port where nobody listens."""
    password = tmp_path / "password"
    password.write_text("secret")
    return Upstream((UpstreamAddress("127.0.0.1", 1, False),), "u", password, "/", None, frozenset({"/"}))


def test_what_whoever_reads_the_mirror_sees_has_neither_files_nor_addresses(
    upstream: Upstream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls = (UpstreamAddress("127.0.0.1", 1, True),)
    cases = [
        (upstream._replace(password_file=tmp_path / "absent"), "the password file can't be read", str(tmp_path)),
        (upstream._replace(addresses=tls, ca_file=tmp_path / "absent.pem"), "the ca_file can't be read", "absent.pem"),
        (upstream, "the other side can't be reached: Connection refused", "127.0.0.1:1"),
    ]
    for each, fault, logged in cases:
        link = _Link()
        caplog.clear()
        asyncio.run(_Shell(each, link).run())
        assert (link.state, link.fault) == (WAITING, fault)
        assert logged in caplog.text


def test_a_connection_that_fails_in_no_known_way_is_lost(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("what nobody thought of")

    monkeypatch.setattr(asyncio, "open_connection", fails)
    link = _Link()
    asyncio.run(_Shell(upstream, link).run())
    assert (link.state, link.fault) == (WAITING, "the connection has failed: see the log")
    assert "what nobody thought of" in caplog.text


def test_tls_is_made_in_a_thread_and_kept_until_its_file_changes(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authorities = tmp_path / "ca.pem"
    authorities.write_text("one")
    made: list[bool] = []

    def make(cafile: Path | None = None) -> ssl.SSLContext:
        made.append(threading.current_thread() is threading.main_thread())
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    monkeypatch.setattr(ssl, "create_default_context", make)
    link = _Link()
    shell = _Shell(
        upstream._replace(addresses=(UpstreamAddress("127.0.0.1", 1, True),), ca_file=authorities), link
    )

    async def connect() -> None:
        link.attempts = 0
        await shell.run()

    async def all_of_it() -> None:
        await connect()
        await connect()
        assert made == [False]
        os.utime(authorities, ns=(0, 0))
        await connect()
        assert made == [False, False]

    asyncio.run(all_of_it())


def test_few_connect_at_once(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    now, most = 0, 0

    async def connect(*_: Any, **__: Any) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1
        raise ConnectionRefusedError

    monkeypatch.setattr(asyncio, "open_connection", connect)
    links = [_Link(f"m{number}") for number in range(3 * CONNECTS_AT_ONCE)]
    asyncio.run(_Shell(upstream, *links).run())
    assert most == CONNECTS_AT_ONCE
    assert all(link.fault for link in links)


def test_a_mirror_that_is_read_for_elsewhere_by_now_is_no_warning(
    upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def go() -> None:
        server = await asyncio.start_server(lambda reader, writer: writer.write(b"x"), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        link = _Link()
        shell = _Shell(upstream._replace(addresses=(UpstreamAddress("127.0.0.1", port, False),)), link)
        shell.links.ticked()
        await link.heard.wait()
        shell.mirrors.links.clear()
        link.ended = True
        await shell.run()
        server.close()

    asyncio.run(asyncio.wait_for(go(), BOUND_S))
    assert [each.levelname for each in caplog.records if each.name == "mayfly.upstreams"] == ["INFO"]


def test_a_mirror_that_the_settings_do_not_allow_is_told_once(
    upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    link = _Link()
    link.state, link.fault, link.detail = REFUSED, "not allowed", "not allowed"

    async def go() -> None:
        shell = _Shell(upstream, link)
        for _ in range(3):
            await shell.run()

    asyncio.run(go())
    assert [each.getMessage().endswith("now: not allowed") for each in caplog.records] == [True]
