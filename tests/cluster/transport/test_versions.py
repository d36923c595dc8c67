"""Nodes of different releases on one network: a connection uses the highest protocol version that both ends speak."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.transport import codec, options
from mayfly.cluster.transport.admission import OpenAdmission
from mayfly.cluster.transport.joining import JoinRefused, JoinRequest, ask_to_join
from mayfly.cluster.transport.local_peer import LocalPeer
from mayfly.cluster.transport.peer_events import PeerEvents
from mayfly.cluster.transport.peer_transport import PeerTransport, TransportSettings
from mayfly.cluster.versions import LEVELS, PROTOCOL_LOWEST, VersionRange
from mayfly.node.catalog import Catalog, FoundCluster
from mayfly.node.membership.identity import KnownMembers
from mayfly.node.shell.membership import MembershipShell
from tests.cluster.transport.members import Member, members, own_folder, run, until
from tests.cluster.transport.raw_peer import RawPeer

OLD = VersionRange(PROTOCOL_LOWEST, PROTOCOL_LOWEST)
NEW = VersionRange(PROTOCOL_LOWEST, PROTOCOL_LOWEST + 1)
NEWEST = VersionRange(PROTOCOL_LOWEST + 1, PROTOCOL_LOWEST + 2)


class Node:
    """A transport of a release that speaks these versions and knows these levels."""

    def __init__(
        self, id: int, protocols: VersionRange, levels: VersionRange = LEVELS, admission: OpenAdmission | None = None
    ) -> None:
        self.frames: list[tuple[int, Frame]] = []
        self.up: set[int] = set()
        self.transport = PeerTransport(
            LocalPeer(id, f"n{id}", "blue", protocols=protocols, levels=levels), {},
            PeerEvents(lambda peer, frame: self.frames.append((peer, frame)), self.up.add, self.up.discard),
            TransportSettings("127.0.0.1:0", own_folder()), admission,
        )  # fmt: skip

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.transport.port}"


async def acquainted(*nodes: Node) -> None:
    for node in nodes:
        await node.transport.start()
    for node in nodes:
        await node.transport.set_peers({other.transport._local.node_id: other.address for other in nodes})


@pytest.mark.parametrize(("ours", "theirs"), [(OLD, OLD), (OLD, NEW), (NEW, NEW), (NEW, NEWEST)])
def test_a_connection_uses_the_highest_common_version_both_ways(
    ours: VersionRange, theirs: VersionRange, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        one, two = Node(1, ours), Node(2, theirs)
        await acquainted(one, two)
        await until(lambda: 2 in one.up and 1 in two.up, "streams both ways")
        agreed = f"protocol version {ours.common(theirs)}"
        connected = [text for text in caplog.messages if text.startswith("connected to node")]
        assert len(connected) == 2 and all(text.endswith(agreed) for text in connected)
        one.transport.send(2, Frame(7))
        two.transport.send(1, Frame(8))
        await until(lambda: bool(one.frames and two.frames), "frames both ways")
        assert (one.frames[0][1].clock_ms, two.frames[0][1].clock_ms) == (8, 7)
        for node in (one, two):
            await node.transport.stop()

    run(scenario())


def test_nodes_without_a_common_version_refuse_each_other_and_say_why(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        one, two = Node(1, OLD), Node(2, NEWEST)
        await acquainted(one, two)
        told = f"node 1 speaks protocol version {OLD!r}, node 2 version {NEWEST!r}"
        await until(lambda: any(told in record.getMessage() for record in caplog.records), "a refusal")
        assert 2 not in one.up and 1 not in two.up
        with pytest.raises(JoinRefused, match=f"protocol version {NEWEST!r}, {OLD!r} is spoken here") as refused:
            await ask_to_join(one.address, JoinRequest("x", "h:1", "d"), None, NEWEST)
        assert not refused.value.again
        for node in (one, two):
            await node.transport.stop()

    run(scenario())


def test_a_node_from_before_there_were_ranges_is_spoken_to_as_it_speaks() -> None:
    """It says one version, and no levels; and what it does not know in an answer it passes over."""

    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1)
            await one.transport.set_peers({2: "127.0.0.1:1"})
            peer = RawPeer(one, 2)
            hello = LocalPeer(2, "node-2", "blue").hello()
            for later in ("highest_protocol_version", "lowest_level", "highest_level"):
                hello.ClearField(cast(Any, later))
            await peer.call.write(codec.encode_hello(hello))
            answer = dict(tuple(await peer.call.initial_metadata()))
            assert answer[options.PROTOCOL] == str(PROTOCOL_LOWEST)
            peer.port, peer.ticket = int(answer[options.FRAMES_PORT]), bytes.fromhex(answer[options.TICKET])
            assert await peer.show(peer.ticket)
            peer.send(Frame(9))
            await until(lambda: one.clocks(2) == [9], "a frame")
            await peer.close()

    run(scenario())


def test_a_ticket_is_good_for_the_version_agreed_upon() -> None:
    async def scenario() -> None:
        one = Node(1, NEW)
        await one.transport.start()
        await one.transport.set_peers({2: "127.0.0.1:1"})
        peer = RawPeer(cast(Member, one), 2)
        await peer.call.write(codec.encode_hello(LocalPeer(2, "n2", "blue", protocols=NEW).hello()))
        answer = dict(tuple(await peer.call.initial_metadata()))
        assert answer[options.PROTOCOL] == str(NEW.highest)
        peer.port, peer.ticket = int(answer[options.FRAMES_PORT]), bytes.fromhex(answer[options.TICKET])
        assert await peer.show(peer.ticket) == b"", "the greeting says the lower one"
        await peer.close()
        await one.transport.stop()

    run(scenario())


def shell_of_a_cluster_at(level: int) -> MembershipShell:
    """The gate of a node whose catalog is at this feature level."""
    catalog = Catalog(1)
    catalog.apply(FoundCluster(((1, "a", "a:1"), (2, "b", "b:1")), 2, level))
    engine = cast(Any, SimpleNamespace(catalog=catalog, host=SimpleNamespace(read_index=None)))
    none = cast(Any, None)
    return MembershipShell(engine, none, none, lambda text, removed: None, KnownMembers(0, {}), lambda: False)


class AdmissionAtLevel(OpenAdmission):
    def __init__(self, level: int) -> None:
        self.level_fault = shell_of_a_cluster_at(level).level_fault  # type: ignore[method-assign]


def test_a_node_that_lacks_the_clusters_level_is_refused_and_told_why(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        one = Node(1, OLD, VersionRange(1, 3), AdmissionAtLevel(3))
        two = Node(2, OLD, VersionRange(1, 2))
        three = Node(3, OLD, VersionRange(2, 3))
        await acquainted(one, two, three)
        told = "node 2 (n2) can't be let in: it knows feature levels up to 2, the cluster is at 3: it needs a newer"
        await until(lambda: sum(told in record.getMessage() for record in caplog.records) > 1, "a refusal at both ends")
        await until(lambda: 1 in three.up, "the stream of who knows it")
        assert 1 not in two.up
        for node in (one, two, three):
            await node.transport.stop()

    run(scenario())


def test_a_join_is_refused_by_what_the_request_says_of_levels() -> None:
    shell = shell_of_a_cluster_at(3)
    shell._engine = cast(
        Any, SimpleNamespace(catalog=shell._engine.catalog, host=SimpleNamespace(groups=[SimpleNamespace(leader=1)]))
    )
    for levels, text in (((1, 2), "up to 2, the cluster is at 3"), ((4, 5), "from 4 on, the cluster is at 3")):
        request = JoinRequest("x", "h:1", "d", VersionRange(*levels))
        answer = asyncio.run(shell.join(request))
        assert text in answer.refusal
        assert not answer.again
