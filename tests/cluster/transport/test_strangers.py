"""What strangers may take of a node before they have said who they are: connections, time, octets."""

import asyncio
import socket
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import grpc
import grpc.aio
import pytest

from mayfly.cluster import limits
from mayfly.cluster.transport import options
from mayfly.cluster.transport.complaints import Complaints
from mayfly.cluster.transport.joining import JoinAnswer, JoinRefused, JoinRequest, ask_to_join
from mayfly.cluster.transport.peer_port import PeerPort, PortConnection
from mayfly.cluster.transport.strangers import Strangers, origin_of
from tests.cluster.transport.many_strangers import let_come, members_find_room
from tests.cluster.transport.members import Member, members, run

FLOOD = 970
"""As many silent connections as once held all descriptors of a node."""


def flood(strangers: Strangers[int], numbers: range, host: Callable[[int], str]) -> set[int]:
    """Who is left of these connections."""
    left = set(numbers)
    for number in numbers:
        turned_away = strangers.came(number, host(number))
        if turned_away is not None:
            strangers.gone(turned_away)
            left.discard(turned_away)
    return left


def test_one_address_has_few_strangers_the_newest() -> None:
    strangers: Strangers[int] = Strangers()
    most = limits.MAX_STRANGERS_OF_ADDRESS
    assert flood(strangers, range(1000), lambda _: "10.0.0.1") == set(range(1000 - most, 1000))
    assert len(strangers) == most


def test_a_flood_from_some_addresses_is_in_its_own_way_alone() -> None:
    strangers: Strangers[int] = Strangers()
    flood(strangers, range(1000), lambda number: f"10.0.0.{number % 3}")
    assert strangers.came(-1, "10.9.9.9") is not None
    left = flood(strangers, range(1000, 3000), lambda number: f"10.0.0.{number % 3}")
    assert -1 in strangers, "a member was crowded out"
    assert len(left) <= limits.MAX_STRANGERS


def test_who_is_no_stranger_any_more_takes_no_room() -> None:
    strangers: Strangers[int] = Strangers()
    for number in range(1000):
        assert strangers.came(number, "10.0.0.1") is None
        assert strangers.gone(number)
        assert not strangers.gone(number)
    assert len(strangers) == 0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("", "", True),
    ],
)
def test_of_ipv6_a_network_is_one_origin(one: str, other: str, same: bool) -> None:
    assert (origin_of(one) == origin_of(other)) is same


@pytest.mark.parametrize("port", ["peers", "frames"])
def test_silent_connections_take_few_descriptors_and_keep_no_member_out(
    port: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HELLO_TIMEOUT_SECONDS", 3600.0)  # They go for their number, not for their silence.

    async def scenario() -> None:
        async with members() as group:
            one, two = await group.add(1), await group.add(2)
            at = one.transport.port if port == "peers" else one.transport.frames_port
            with ExitStack() as open_here:
                await let_come(open_here, at, FLOOD, b"", limits.MAX_STRANGERS)
                await members_find_room(group, one, two)

    run(scenario())


def test_who_says_nothing_at_the_peer_port_has_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HELLO_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(limits, "STOP_GRACE_SECONDS", 0.05)

    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1)
            for said in (b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"):
                reader, writer = await asyncio.open_connection("127.0.0.1", one.transport.port)
                writer.write(said)
                while await reader.read(1000):
                    pass
                writer.close()
            assert len(port_of(one)._all) == 0

    run(scenario())


def port_of(member: Member) -> PeerPort:
    return member.transport._peer_port


class Asked:
    """A gate that counts who asks for a place."""

    def __init__(self, wait_s: float = 0.0) -> None:
        self.requests: list[JoinRequest] = []
        self._wait_s = wait_s

    async def join(self, request: JoinRequest) -> JoinAnswer:
        self.requests.append(request)
        await asyncio.sleep(self._wait_s)
        return JoinAnswer(node_id=7, node_name="seven", cluster_id="blue", shards=1, replication_factor=1)


def listens_to_questions(member: Member, asked: Asked) -> None:
    member.transport._admission.join = asked.join  # type: ignore[method-assign]


def test_large_questions_for_a_place_are_cut_off_and_not_read() -> None:
    async def scenario() -> None:
        async with members() as group:
            one, asked = await group.add(1), Asked()
            listens_to_questions(one, asked)
            async with grpc.aio.insecure_channel(one.address, options.channel_options("")) as channel:
                with pytest.raises(grpc.aio.AioRpcError) as failed:
                    await channel.unary_unary(options.JOIN)(bytes(100 * limits.MIB))
            assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
            assert asked.requests == []
            largest = JoinRequest("n" * 255, "h" * 250 + ":1", "d" * 255, cluster="c" * 255)
            assert (await ask_to_join(one.address, largest, None)).node_id == 7

    run(scenario())


def test_one_that_waits_for_a_place_may_stay_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STOP_GRACE_SECONDS", 0.0)

    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1)
            for patience_s in (0.1, 0.4, 1.6, 4.0):  # On a starved machine the question may come later than that.
                monkeypatch.setattr(limits, "HELLO_TIMEOUT_SECONDS", patience_s)
                listens_to_questions(one, Asked(2 * patience_s))
                try:
                    answer = await ask_to_join(one.address, JoinRequest("seven", "h:7", "data"), None)
                except JoinRefused:
                    continue
                assert answer.node_id == 7
                return
            raise AssertionError("it was never let wait")

    run(scenario())


def test_names_that_would_forge_a_line_of_the_log_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    forged = "x\n2026-11-23T00:00:00.000Z INFO all is well"

    async def scenario() -> None:
        async with members() as group:
            one, asked = await group.add(1), Asked()
            listens_to_questions(one, asked)
            for request in (
                JoinRequest(forged, "h:7", "data"),
                JoinRequest("seven", f"h:7{forged}", "data"),
                JoinRequest("seven", "h:7", forged),
                JoinRequest("seven", "h:7", "data", cluster=forged),
                JoinRequest("\x1b[2J", "h:7", "data"),
            ):
                with pytest.raises(JoinRefused, match=r"is taken|are taken"):
                    await ask_to_join(one.address, request, None)
            assert asked.requests == []

    run(scenario())
    assert len(caplog.records) > 3
    for record in caplog.records:
        assert record.getMessage().isprintable()


def test_folders_that_killed_processes_have_left_are_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the folder for such things is a volume, which lasts."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    kept = {"mayfly-peers-alive", "mayfly-peers-being-made"}

    def there() -> set[str]:
        return {path.name for path in tmp_path.glob("mayfly-peers-*")}

    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1)
            listens_to_questions(one, Asked())
            assert (await ask_to_join(one.address, JoinRequest("seven", "h:7", "data"), None)).node_id == 7
            assert len(there() - kept) == 1, "its own"
            assert "mayfly-peers-dead" not in there()

    with socket.socket(socket.AF_UNIX) as dead, socket.socket(socket.AF_UNIX) as alive:
        for listening, name in ((dead, "mayfly-peers-dead"), (alive, "mayfly-peers-alive")):
            Path(name).mkdir()
            listening.bind(f"{name}/grpc")
            listening.listen()
        Path("mayfly-peers-being-made").mkdir()
        dead.close()
        run(scenario())
        assert there() == kept


def test_a_folder_whose_socket_is_not_listened_at_yet_is_left_to_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two nodes start on one machine, and one looks for what was left between the other's `bind` and `listen`: without
    its folder that one could pass on no connection, and its peers would never reach it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def scenario() -> None:
        starting, other = PeerPort("127.0.0.1:0", Complaints()), PeerPort("127.0.0.1:0", Complaints())
        await starting.open()
        try:
            with socket.socket(socket.AF_UNIX) as grpc_listener:
                grpc_listener.bind(starting._path)
                await other.open()
                await other.close()
                grpc_listener.listen()
                with socket.socket(socket.AF_UNIX) as passed_on:
                    passed_on.connect(starting._path)
                grpc_listener.accept()[0].close()
        finally:
            await starting.close()

    run(scenario())
    assert not list(tmp_path.iterdir())


def test_a_full_backlog_behind_the_port_is_waited_for_and_not_taken_for_a_connection() -> None:
    """A socket of this kind says at once that it would block; a loop that waits for it breaks, or ends the process."""

    async def scenario() -> None:
        port = PeerPort("127.0.0.1:0", Complaints())
        await port.open()
        try:
            with socket.socket(socket.AF_UNIX) as listening, ExitStack() as sockets:
                listening.bind(port._path)
                listening.listen(0)
                full = False
                while not full:
                    one = sockets.enter_context(socket.socket(socket.AF_UNIX))
                    one.setblocking(False)
                    try:
                        one.connect(port._path)
                    except BlockingIOError:
                        full = True
                inside = sockets.enter_context(socket.socket(socket.AF_UNIX))
                inside.setblocking(False)
                waiting = asyncio.create_task(port._connect(inside))
                await asyncio.sleep(0)
                assert not waiting.done()
                with pytest.raises(OSError, match="not connected"):
                    inside.getpeername()
                sockets.enter_context(listening.accept()[0])
                await waiting
                assert inside.getpeername() == port._path
        finally:
            await port.close()

    run(scenario())


def test_a_connection_that_would_go_on_when_the_port_has_closed_is_refused() -> None:
    """It had said something just before: its turn comes when the socket behind the port is no longer there."""

    async def closed_meanwhile() -> None:
        port = PeerPort("127.0.0.1:0", Complaints())
        await port.open()
        mine, accepted = socket.socketpair()
        connection = PortConnection(port, accepted, "127.0.0.1")
        await port.close()
        with pytest.raises(OSError, match="the port is closed"):
            await port.connect(connection)
        connection.abort()
        mine.close()

    run(closed_meanwhile())
