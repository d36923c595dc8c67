"""Mutual TLS between nodes, with an authority made for the test."""

import asyncio
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import uvloop

from mayfly.cluster import limits
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.transport.complaints import Complaints
from mayfly.cluster.transport.frame_stream import FrameListener, StreamHolder
from mayfly.cluster.transport.framing import TICKET_BYTES, NotFrames, encode_greeting
from mayfly.cluster.transport.tls import PeerTlsFiles
from mayfly.cluster.versions import PROTOCOL_LOWEST, PROTOCOLS
from tests.cluster.transport.many_strangers import let_come, members_find_room
from tests.cluster.transport.members import members, run, until
from tests.cluster.transport.test_strangers import port_of
from tests.waiting import BOUND_S

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=BOUND_S)


def make_authority(folder: Path, name: str) -> Path:
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    openssl(
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", f"/CN={name}",
    )  # fmt: skip
    return certificate


def make_node(folder: Path, authority: Path, name: str, subject_names: str) -> tuple[Path, Path]:
    key, request, certificate = (folder / f"{name}.{end}" for end in ("key", "csr", "pem"))
    openssl(
        "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-keyout", str(key), "-out", str(request), "-subj", f"/CN={name}",
    )  # fmt: skip
    extensions = folder / f"{name}.ext"
    extensions.write_text(f"subjectAltName={subject_names}\n")
    openssl(
        "x509", "-req", "-in", str(request), "-CA", str(authority),
        "-CAkey", str(authority.with_suffix(".key")), "-CAcreateserial",
        "-out", str(certificate), "-days", "2", "-extfile", str(extensions),
    )  # fmt: skip
    return certificate, key


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PeerTlsFiles]:
    folder = tmp_path_factory.mktemp("tls")
    ours, theirs = make_authority(folder, "ours"), make_authority(folder, "theirs")
    by_address = "IP:127.0.0.1"
    return {
        "one": PeerTlsFiles(*make_node(folder, ours, "one", by_address), ours),
        "two": PeerTlsFiles(*make_node(folder, ours, "two", by_address), ours),
        "by name": PeerTlsFiles(*make_node(folder, ours, "named", "DNS:peer.mayfly"), ours, "peer.mayfly"),
        "also by name": PeerTlsFiles(*make_node(folder, ours, "also", "DNS:peer.mayfly"), ours, "peer.mayfly"),
        "stranger": PeerTlsFiles(*make_node(folder, theirs, "stranger", by_address), theirs),
        "impostor": PeerTlsFiles(*make_node(folder, theirs, "impostor", by_address), ours),
    }


@pytest.mark.parametrize("pair", [("one", "two"), ("by name", "also by name")])
def test_nodes_of_one_authority_talk(files: dict[str, PeerTlsFiles], pair: tuple[str, str]) -> None:
    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1, tls=files[pair[0]])
            two = await group.add(2, tls=files[pair[1]])
            await group.introduce()
            await until(lambda: one.events == [("up", 2)] and two.events == [("up", 1)], "both up")
            sent = Frame(5)
            sent.proposals.append((1, bytes(300_000)))
            one.transport.send(2, sent)
            await until(lambda: [frame.clock_ms for _, frame in two.frames] == [5], "frame")

    run(scenario())


@pytest.mark.parametrize("other", ["stranger", "impostor", "", "by name"])
def test_others_are_kept_out(files: dict[str, PeerTlsFiles], other: str, caplog: pytest.LogCaptureFixture) -> None:
    def reasons() -> list[str]:
        return [text for text in caplog.messages if text.startswith("can't reach node")]

    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1, tls=files["one"])
            two = await group.add(2, tls=files.get(other))
            await group.introduce()
            await until(lambda: len(reasons()) == 2, "reasons")
            links = [one.transport._links[2], two.transport._links[1]]
            tries = max(link._attempts.count for link in links)
            await until(lambda: all(link._attempts.count > tries + 2 for link in links), "tries")
            assert one.events == two.events == []
            assert one.frames == two.frames == []
            # Said once each, however often it is tried.
            assert len(reasons()) == 2

    run(scenario())


class MisnamedFrames(PeerTlsFiles):
    """Files of a peer with a certificate for another name at its port for frames; at that of gRPC all is right."""

    def __init__(self, right: PeerTlsFiles, elsewhere: PeerTlsFiles) -> None:
        super().__init__(right.certificate, right.key, right.authority)
        self.elsewhere = elsewhere

    def server_context(self) -> ssl.SSLContext:
        return self.elsewhere.server_context()


def test_the_name_is_checked_at_the_port_for_frames(
    files: dict[str, PeerTlsFiles], caplog: pytest.LogCaptureFixture
) -> None:
    """Of a certificate of the right authority: whoever has got hold of one node's is not taken for another."""

    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1, tls=files["one"])
            two = await group.add(2, tls=MisnamedFrames(files["two"], files["by name"]))
            await group.introduce()
            complaint = "no frame stream to 127.0.0.1"
            await until(lambda: any(complaint in text for text in caplog.messages), "a complaint")
            await until(lambda: two.events == [("up", 1)], "the other way, which is right")
            link = one.transport._links[2]
            tries = link._attempts.count
            await until(lambda: link._attempts.count > tries + 2, "tries")
            assert one.events == []
            assert any(complaint in text and "certificate" in text.lower() for text in caplog.messages)

    run(scenario())


def copied(to: Path, files: PeerTlsFiles) -> PeerTlsFiles:
    """The files under names of their own, in place of what was there."""
    copy = PeerTlsFiles(to / "own.pem", to / "own.key", to / "ca.pem")
    for source, target in zip(
        (files.certificate, files.key, files.authority), (copy.certificate, copy.key, copy.authority), strict=True
    ):
        shutil.copy(source, target)
    return copy


def test_files_are_replaced_without_a_restart(files: dict[str, PeerTlsFiles], tmp_path: Path) -> None:
    """Two nodes go over to another authority; who comes with the old one after that gets nowhere, at neither port."""
    folders = [tmp_path / name for name in ("one", "two", "late")]
    for folder in folders:
        folder.mkdir()

    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1, tls=copied(folders[0], files["one"]))
            two = await group.add(2, tls=copied(folders[1], files["two"]))
            await group.introduce()
            await until(lambda: one.events == [("up", 2)] and two.events == [("up", 1)], "both up")
            garbage = folders[0] / "own.pem"
            garbage.write_text("garbage")
            with pytest.raises(OSError, match=r"own\.pem"):
                one.transport.reload_tls()
            for member, folder in ((one, folders[0]), (two, folders[1])):
                copied(folder, files["stranger"])
                member.transport.reload_tls()
            assert one.events == [("up", 2)], "what is open stays"
            late = await group.add(3, tls=copied(folders[2], files["two"]))
            await group.introduce()
            await until(lambda: late.transport._links[1]._attempts.count > 3, "tries with the old certificate")
            assert late.events == []
            assert ("up", 3) not in one.events
            copied(folders[2], files["stranger"])
            late.transport.reload_tls()
            await until(lambda: sorted(late.events) == [("up", 1), ("up", 2)], "up with the new one")
            await until(lambda: ("up", 3) in one.events and ("up", 3) in two.events, "both ways")

    run(scenario())


@pytest.mark.parametrize("loop", [None, uvloop.new_event_loop])
@pytest.mark.parametrize(
    "data", [b"", b"GET / HTTP/1.1", b"\x16\x03\x01", encode_greeting(PROTOCOL_LOWEST, 2, bytes(TICKET_BYTES))]
)
def test_strangers_without_tls_are_not_kept_at_the_port_for_frames(
    files: dict[str, PeerTlsFiles],
    data: bytes,
    loop: Callable[[], asyncio.AbstractEventLoop] | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(limits, "HELLO_TIMEOUT_SECONDS", 0.2)

    def nobody(version: int, node_id: int, ticket: bytes) -> StreamHolder:
        raise AssertionError("a ticket was looked at")

    async def scenario() -> None:
        listener = FrameListener(nobody, PROTOCOLS, Complaints(), files["one"].server_context())
        await listener.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(data)
        try:
            answer = await reader.read()
        except ConnectionError:
            answer = b""
        # At most a TLS alert.
        assert answer == b"" or answer[0] == 0x15
        await until(lambda: not listener._connections and not listener._strangers, "nobody there")
        writer.close()
        await listener.stop()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scenario())
    assert any("turned away a peer at 127.0.0.1" in text for text in caplog.messages)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_peer_that_speaks_before_it_is_accepted_is_heard_at_the_port_for_frames(
    files: dict[str, PeerTlsFiles], loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """A busy loop comes to a connection when the first words of the handshake have long been there."""
    redeemed: list[int] = []

    def nobody(version: int, node_id: int, ticket: bytes) -> StreamHolder:
        redeemed.append(node_id)
        raise NotFrames("not known")

    async def scenario() -> None:
        listener = FrameListener(nobody, PROTOCOLS, Complaints(), files["one"].server_context())
        await listener.start("127.0.0.1", 0)
        # All of this in one turn of the loop: the kernel has the words, the listener has seen nothing.
        peer = socket.create_connection(("127.0.0.1", listener.port))
        come, gone = ssl.MemoryBIO(), ssl.MemoryBIO()
        secured = files["two"].client_context().wrap_bio(come, gone, server_hostname="127.0.0.1")
        with pytest.raises(ssl.SSLWantReadError):
            secured.do_handshake()
        peer.sendall(gone.read())
        peer.setblocking(False)
        async with asyncio.timeout(BOUND_S):
            while True:
                come.write(await asyncio.get_running_loop().sock_recv(peer, 65536))
                try:
                    secured.do_handshake()
                except ssl.SSLWantReadError:
                    continue
                break
            secured.write(encode_greeting(PROTOCOL_LOWEST, 2, bytes(TICKET_BYTES)))
            await asyncio.get_running_loop().sock_sendall(peer, gone.read())
            await until(lambda: redeemed == [2], "its greeting")
        await until(lambda: not listener._connections, "nobody there")
        peer.close()
        await listener.stop()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scenario())


FLOOD = 280


def half_a_handshake(files: PeerTlsFiles) -> bytes:
    """The first words of a member's handshake, after which it would wait for an answer."""
    come, gone = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        files.client_context().wrap_bio(come, gone, server_hostname="127.0.0.1").do_handshake()
    return gone.read()


@pytest.mark.parametrize("says_something", [False, True])
@pytest.mark.parametrize("port", ["peers", "frames"])
def test_who_never_ends_its_handshake_takes_few_descriptors_and_keeps_no_member_out(
    files: dict[str, PeerTlsFiles], port: str, says_something: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HELLO_TIMEOUT_SECONDS", 3600.0)  # They go for their number, not for their silence.
    said = half_a_handshake(files["two"]) if says_something else b""
    # Whoever has said something at the peer port has two more, of the connection to gRPC's server.
    most = 3 * limits.MAX_STRANGERS_OF_ADDRESS

    async def scenario() -> None:
        async with members() as group:
            one, two = await group.add(1, tls=files["one"]), await group.add(2, tls=files["two"])
            at = one.transport.port if port == "peers" else one.transport.frames_port
            with ExitStack() as open_here:
                await let_come(open_here, at, FLOOD, said, most)
                await members_find_room(group, one, two)

    run(scenario())


def test_who_never_ends_its_handshake_at_the_peer_port_has_to_go(
    files: dict[str, PeerTlsFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HELLO_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(limits, "STOP_GRACE_SECONDS", 0.05)

    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1, tls=files["one"])
            for said in (b"", b"\x16\x03\x01", half_a_handshake(files["two"])):
                reader, writer = await asyncio.open_connection("127.0.0.1", one.transport.port)
                writer.write(said)
                while await reader.read(1000):
                    pass
                writer.close()
            assert len(port_of(one)._all) == 0

    run(scenario())


def test_missing_files_are_an_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with members() as group:
            missing = tmp_path / "missing.pem"
            with pytest.raises(OSError, match=r"missing\.pem"):
                await group.add(1, tls=PeerTlsFiles(missing, missing, missing))

    run(scenario())


def test_files_that_do_not_fit_are_an_error(files: dict[str, PeerTlsFiles], tmp_path: Path) -> None:
    one, two = files["one"], files["two"]
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("garbage")

    async def scenario() -> None:
        async with members() as group:
            for tls, text in (
                (PeerTlsFiles(one.certificate, two.key, one.authority), "are not a certificate and its key"),
                (PeerTlsFiles(garbage, one.key, one.authority), "are not a certificate and its key"),
                (PeerTlsFiles(one.certificate, one.key, garbage), r"garbage\.pem is not a certificate"),
            ):
                with pytest.raises(OSError, match=text):
                    await group.add(1, tls=tls)

    run(scenario())
