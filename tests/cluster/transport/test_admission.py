"""Who is let in and who is sent away for good, and how a node asks for a place."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import grpc
import pytest

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.transport.admission import Objection, OpenAdmission
from mayfly.cluster.transport.joining import JoinAnswer, JoinRefused, JoinRequest, ask_to_join
from mayfly.cluster.transport.local_peer import LocalPeer
from mayfly.cluster.transport.peer_events import PeerEvents
from mayfly.cluster.transport.peer_transport import PeerTransport, TransportSettings
from tests.cluster.transport.members import own_folder, run, until


class StrictAdmission(OpenAdmission):
    """A node that knows who was removed, which data is whose, and how far ids have come."""

    def __init__(self) -> None:
        self.removed: set[int] = set()
        self.stores: dict[int, str] = {}
        self.newest = 2
        self.sent_away: list[str] = []
        self.asked: list[JoinRequest] = []

    def objection(self, node_id: int, store: str, starts: int, earlier_starts: Sequence[int]) -> Objection | None:
        if node_id in self.removed:
            return Objection(grpc.StatusCode.NOT_FOUND, "removed")
        if store and self.stores.setdefault(node_id, store) != store:
            return Objection(grpc.StatusCode.DATA_LOSS, "other data")
        return None

    def is_newcomer(self, node_id: int) -> bool:
        return node_id > self.newest

    def refused(self, peer: int, text: str, removed: bool) -> None:
        self.sent_away.append(text)

    async def join(self, request: JoinRequest) -> JoinAnswer:
        self.asked.append(request)
        if request.name == "unwanted":
            return JoinAnswer.refused("unwanted", again=False)
        return JoinAnswer("", False, 7, request.name, "blue", 16, 3, 5, {1: ("one", "h:1"), 7: (request.name, "h:7")})


class Member:
    """A transport that does not let everybody in."""

    def __init__(self, id: int, store: str = "", address: str = "") -> None:
        self.admission = StrictAdmission()
        self.frames: list[int] = []
        self.up: set[int] = set()
        self.transport = PeerTransport(
            LocalPeer(id, f"n{id}", "blue", store, 1, address), {},
            PeerEvents(lambda peer, frame: self.frames.append(peer), self.up.add, self.up.discard),
            TransportSettings("127.0.0.1:0", own_folder()), self.admission,
        )  # fmt: skip

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.transport.port}"


async def _two(first: Member, second: Member) -> None:
    await first.transport.start()
    await second.transport.start()


async def _stop(*members: Member) -> None:
    """Streams first, then servers."""
    for member in members:
        await member.transport.set_peers({})
    for member in members:
        await member.transport.stop()


def _only_goodbyes(capfd: pytest.CaptureFixture[str]) -> None:
    """gRPC writes to stderr when a server ends under a stream that was just refused; nothing else may be there."""
    assert [line for line in capfd.readouterr().err.splitlines() if "Got goaway" not in line] == []


def test_a_removed_peer_is_sent_away_even_from_an_open_stream(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def test() -> None:
        one, two = Member(1), Member(2)
        await _two(one, two)
        await one.transport.set_peers({2: two.address})
        await two.transport.set_peers({1: one.address})
        await until(lambda: 1 in two.up, "a stream")
        one.admission.removed.add(2)
        await one.transport.set_peers({})
        while not two.admission.sent_away:
            two.transport.send(1, Frame(1))
            await asyncio.sleep(0.01)
        assert two.admission.sent_away[0] == "removed"
        await _stop(one, two)

    run(test())
    _only_goodbyes(capfd)


def test_other_data_under_the_same_id_is_sent_away(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def test() -> None:
        one, two = Member(1), Member(2, "fresh")
        one.admission.stores[2] = "what it had"
        await _two(one, two)
        await one.transport.set_peers({2: two.address})
        await two.transport.set_peers({1: one.address})
        await until(lambda: bool(two.admission.sent_away), "a refusal")
        assert two.admission.sent_away[0] == "other data"
        assert 1 not in two.up
        await _stop(one, two)

    run(test())
    _only_goodbyes(capfd)


def test_a_newcomer_is_let_in_and_answered_and_an_unknown_lower_id_is_not(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def test() -> None:
        one, three, two = Member(1), Member(3), Member(2)
        await _two(one, three)
        await two.transport.start()
        for member in (two, three):
            member.transport._local = replace(member.transport._local, address=member.address)
            await member.transport.set_peers({1: one.address})
        await three.transport.set_peers({1: one.address})
        await until(lambda: 1 in three.up and 3 in one.up, "streams both ways")
        three.transport.send(1, Frame(1))
        await until(lambda: one.frames == [3], "a frame")
        assert 1 not in two.up and 2 not in one.transport.peers()
        await _stop(one, two, three)

    run(test())
    _only_goodbyes(capfd)


def test_joining() -> None:
    async def test() -> None:
        one = Member(1)
        await one.transport.start()
        answer = await ask_to_join(one.address, JoinRequest("seven", "h:7", "data"), None)
        assert (answer.node_id, answer.node_name, answer.cluster_id, answer.shards) == (7, "seven", "blue", 16)
        assert answer.members == {1: ("one", "h:1"), 7: ("seven", "h:7")}
        wrong = {
            "unwanted": JoinRequest("unwanted", "h:7", "data"),
            "address": JoinRequest("x", "", "d"),
            "too long": JoinRequest("x" * 300, "h:1", "d"),
        }
        for text, request in wrong.items():
            with pytest.raises(JoinRefused, match=text) as refused:
                await ask_to_join(one.address, request, None)
            assert not refused.value.again
        assert len(one.admission.asked) == 2
        await one.transport.stop()
        with pytest.raises(JoinRefused) as nobody:
            await ask_to_join(one.address, JoinRequest("x", "h:1", "d"), None)
        assert nobody.value.again

    run(test())


def test_who_means_another_node_is_turned_away(caplog: pytest.LogCaptureFixture) -> None:
    """A node has taken the place of another, at its address: what is for that one must not reach it."""

    async def test() -> None:
        mistaken, right, successor = Member(1), Member(2), Member(4)
        await _two(mistaken, right)
        await successor.transport.start()
        await successor.transport.set_peers({1: mistaken.address, 2: right.address})
        await mistaken.transport.set_peers({3: successor.address})
        await right.transport.set_peers({4: successor.address})
        await until(lambda: 4 in right.up, "the stream of who means it")
        await until(lambda: "node 1 means node 3, this is 4" in caplog.text, "a refusal")
        assert 3 not in mistaken.up and not mistaken.admission.sent_away
        await _stop(mistaken, right, successor)

    run(test())
