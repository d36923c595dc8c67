"""Transports on loopback: frames and snapshots in order, peers up and down."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from mayfly.cluster import limits
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.raft import ConfState, Entry, MessageType, RaftMessage, Snapshot, SnapshotMetadata
from mayfly.cluster.rpc import peer_pb2
from mayfly.cluster.transport import codec
from mayfly.cluster.transport.outgoing import PeerLink
from mayfly.cluster.versions import PROTOCOLS, VersionRange
from tests.cluster.transport.members import Member, members, own_folder, run, until
from tests.waiting import BOUND_S, until_judged


def frame(number: int, size_bytes: int = 100) -> Frame:
    made = Frame(number)
    made.proposals.append((number % 16, bytes(size_bytes)))
    return made


def snapshot_message(sender: int, receiver: int, data: bytes) -> RaftMessage:
    metadata = SnapshotMetadata(77, 5, ConfState([1, 2], [3]))
    return RaftMessage(MessageType.SNAP, receiver, sender, term=6, snapshot=Snapshot(metadata, data))


def newest_is(member: Member, sender: int, clock_ms: int) -> bool:
    """Whether the last frame of a sender has this clock, or a later one."""
    return bool(member.clocks(sender)) and member.clocks(sender)[-1] >= clock_ms


def snapshots_of(member: Member) -> list[tuple[int, RaftMessage]]:
    return [
        (group, message)
        for _, received in member.frames
        for group, message in received.raft
        if message.type == MessageType.SNAP
    ]


def test_frames_arrive_in_order_between_three() -> None:
    async def scenario() -> None:
        async with members() as group:
            mesh = await group.full_mesh(3)
            for number in range(1, 301):
                for member in mesh:
                    for peer in member.up:
                        member.transport.send(peer, frame(number))
                if number % 10 == 0:
                    await asyncio.sleep(0)
            for member in mesh:
                for sender in (1, 2, 3):
                    if sender == member.node_id:
                        continue
                    await until(partial(newest_is, member, sender, 300), "last frame")
                    proposals = [g for s, f in member.frames if s == sender for g, _ in f.proposals]
                    assert proposals == [number % 16 for number in range(1, 301)]
                    assert member.clocks(sender) == sorted(member.clocks(sender))

    run(scenario())


def test_everything_in_a_frame_arrives() -> None:
    async def scenario() -> None:
        async with members() as group:
            one, two = await group.full_mesh(2)
            sent = Frame(12345)
            entries = [Entry(3, 8, 0, b"eight"), Entry(4, 9, 2, b"")]
            sent.raft.append((0, RaftMessage(MessageType.APP, 2, 1, 4, 3, 7, 6, entries=entries)))
            sent.raft.append((7, RaftMessage(MessageType.HEARTBEAT, 2, 1, 4, commit=3, context=b"read")))
            sent.raft.append((8, RaftMessage(MessageType.APP_RESP, 2, 1, 4, 2, 7, reject=True, reject_hint=5)))
            sent.group_clocks.append((3, 1_700_000_000_000, 42))
            sent.proposals.append((5, b"envelope" * 20_000))
            sent.notices.append((9, b"notice"))
            copy = Frame(12345)
            copy.merge(sent)
            one.transport.send(2, sent)
            await until(lambda: len(two.frames) == 1, "frame")
            assert two.frames[0] == (1, copy)
            counters = two.transport.counters[1]
            assert counters.frames_received == 1
            assert counters.bytes_received == one.transport.counters[2].bytes_sent

    run(scenario())


def test_a_snapshot_passes_in_pieces_while_heartbeats_go_by() -> None:
    async def scenario() -> None:
        async with members() as group:
            one, two = await group.full_mesh(2)
            data = os.urandom(1 << 16) * 1024
            one.transport.send(2, frame(1))
            await until(lambda: bool(two.frames), "a first frame")
            sent = Frame(2)
            sent.raft.append((4, snapshot_message(1, 2, data)))
            one.transport.send(2, sent)
            number = 2
            while not snapshots_of(two):
                number += 1
                one.transport.send(2, frame(number))
                await until(partial(newest_is, two, 1, number), "heartbeat")
            assert number > 7, "no heartbeat got past the snapshot"
            ((received_group, message),) = snapshots_of(two)
            assert received_group == 4
            assert (message.from_, message.to, message.term) == (1, 2, 6)
            assert message.snapshot == Snapshot(SnapshotMetadata(77, 5, ConfState([1, 2], [3])), data)
            await until(lambda: one.snapshots == [(2, 4, True)], "report")
            # The frame that brings the snapshot shows the sender's clock, carried forward.
            assert min(two.clocks(1)) >= 1

    run(scenario())


def test_an_empty_snapshot_and_several_at_once() -> None:
    async def scenario() -> None:
        async with members() as group:
            mesh = await group.full_mesh(3)
            three = mesh[2]
            for sender in (1, 2):
                mesh[sender - 1].transport.send(3, frame(1))
            await until(lambda: {sender for sender, _ in three.frames} == {1, 2}, "first frames")
            for sender in (1, 2):
                for number in range(6):
                    sent = Frame(2)
                    sent.raft.append((10 * sender + number, snapshot_message(sender, 3, bytes(number * 300_000))))
                    mesh[sender - 1].transport.send(3, sent)
            await until(lambda: len(snapshots_of(three)) == 12, "snapshots")
            for sender in (1, 2):
                await until(lambda: all(len(member.snapshots) == 6 for member in mesh[:2]), "reports")
                assert sorted(mesh[sender - 1].snapshots) == [(3, 10 * sender + number, True) for number in range(6)]

    run(scenario())


def test_a_snapshot_for_a_peer_that_is_away_is_reported_as_failed() -> None:
    async def scenario() -> None:
        async with members() as group:
            one, two = await group.full_mesh(2)
            group.all.remove(two)
            await two.transport.stop()
            await until(lambda: ("down", 2) in one.events, "down")
            sent = Frame(2)
            sent.raft.append((4, snapshot_message(1, 2, b"data")))
            one.transport.send(2, sent)
            assert one.snapshots == []
            await until(lambda: one.snapshots == [(2, 4, False)], "report")

    run(scenario())


def test_a_snapshot_is_reported_as_failed_when_the_peer_goes_in_its_middle() -> None:
    async def scenario() -> None:
        async with members() as group:
            one, two = await group.full_mesh(2)
            one.transport.send(2, frame(1))
            await until(lambda: bool(two.frames), "a first frame")
            sent = Frame(2)
            sent.raft.append((4, snapshot_message(1, 2, bytes(256 << 20))))
            one.transport.send(2, sent)
            await until(lambda: two.transport.counters[1].bytes_received > 10 << 20, "the first pieces")
            group.all.remove(two)
            await two.transport.stop()
            await until(lambda: one.snapshots == [(2, 4, False)], "report")

    run(scenario())


PEER = """
import asyncio, sys
from pathlib import Path
from tests.cluster.transport.members import Member

async def main() -> None:
    member = Member(2, int(sys.argv[1]), folder=Path(sys.argv[3]))
    await member.transport.start()
    await member.transport.set_peers({1: sys.argv[2]})
    print(member.transport.port, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def start_peer(port: int, address: str, folder: Path) -> tuple["subprocess.Popen[str]", int]:
    root = Path(__file__).resolve().parents[3]
    process = subprocess.Popen(
        [sys.executable, "-c", PEER, str(port), address, str(folder)], stdout=subprocess.PIPE, text=True, cwd=root
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


@pytest.mark.usefixtures("nobody_asks_for_a_sign_of_life")
def test_a_killed_peer_is_down_at_once_and_up_again_after_its_restart() -> None:
    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1)
            await one.transport.set_peers({2: "127.0.0.1:9"})
            process, port = await asyncio.to_thread(start_peer, 0, one.address, own_folder())
            try:
                await one.transport.set_peers({2: f"127.0.0.1:{port}"})
                await until(lambda: one.events == [("up", 2)], "up")
                process.kill()
                await until(lambda: ("down", 2) in one.events, "down")
                one.transport.send(2, frame(1))
                assert one.transport.counters[2].frames_dropped == 1
                await asyncio.to_thread(process.wait)
                process, port = await asyncio.to_thread(start_peer, port, one.address, own_folder())
                await until(lambda: one.events[-1] == ("up", 2), "up again")
                assert [event for event, _ in one.events if event != "gone"] == ["up", "down", "up"]
            finally:
                process.kill()
                await asyncio.to_thread(process.communicate)

    run(scenario())


def test_a_frozen_peer_stays_up_and_costs_bounded_memory() -> None:
    until_judged(lambda round: froze_briefly(), "a peer that is frozen for a moment", rounds=10)


def froze_briefly() -> bool:
    """Whether it was frozen for less than the time after which its silence would be noticed; then it stays up."""
    frozen_s = 0.0

    async def scenario() -> None:
        nonlocal frozen_s
        async with members() as group:
            one = await group.add(1)
            await one.transport.set_peers({2: "127.0.0.1:9"})
            process, port = await asyncio.to_thread(start_peer, 0, one.address, own_folder())
            try:
                await one.transport.set_peers({2: f"127.0.0.1:{port}"})
                await until(lambda: one.events == [("up", 2)], "up")
                began_s = time.monotonic()
                process.send_signal(signal.SIGSTOP)
                counters = one.transport.counters[2]
                number = 0
                while counters.frames_dropped < 100:
                    number += 1
                    assert number < 20_000
                    one.transport.send(2, frame(number, 200_000))
                    await asyncio.sleep(0)
                most = limits.MAX_PEER_QUEUE_BYTES + 64 * limits.MIB
                assert (number - counters.frames_dropped) * 200_000 < most
                process.send_signal(signal.SIGCONT)
                sent = counters.bytes_sent
                await until(lambda: counters.bytes_sent > sent or one.events != [("up", 2)], "frames flow again")
                frozen_s = time.monotonic() - began_s
                if frozen_s < limits.KEEPALIVE_TIMEOUT_MS / 1000:
                    assert one.events == [("up", 2)]
            finally:
                process.kill()
                await asyncio.to_thread(process.communicate)

    run(scenario())
    return frozen_s < limits.KEEPALIVE_TIMEOUT_MS / 1000


def test_a_killed_peer_is_known_to_be_gone_and_is_so_once() -> None:
    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1)
            await one.transport.set_peers({2: "127.0.0.1:9"})
            process, port = await asyncio.to_thread(start_peer, 0, one.address, own_folder())
            await one.transport.set_peers({2: f"127.0.0.1:{port}"})
            await until(lambda: one.events == [("up", 2)], "up")
            process.kill()
            await asyncio.to_thread(process.communicate)
            await until(lambda: one.events == [("up", 2), ("down", 2), ("gone", 2)], "gone")
            link = one.transport._links[2]
            attempts = link._attempts.count
            await until(lambda: link._attempts.count > attempts + 1, "more attempts")
            assert one.events == [("up", 2), ("down", 2), ("gone", 2)]

    run(scenario())


def test_a_peer_whose_stream_breaks_but_who_takes_connections_is_not_gone() -> None:
    async def scenario() -> None:
        async with members() as group:
            one, _ = await group.full_mesh(2)
            link = one.transport._links[2]
            assert link._frames is not None
            link._frames.fail("cut")
            await until(lambda: one.events[-2:] == [("down", 2), ("up", 2)], "up again")
            assert ("gone", 2) not in one.events

    run(scenario())


def test_a_peer_that_is_refused_but_heard_is_not_gone() -> None:
    """A firewall's rule refuses what is sent to it, and what it sends comes."""
    until_judged(lambda round: heard_often_enough(), "a node that goes on hearing its peer", rounds=40)


def heard_often_enough() -> bool:
    """Whether this machine let frames through all the while; then their sender is not gone."""
    heard_s: list[float] = []

    async def scenario() -> None:
        async with members() as group:
            one, two = await group.full_mesh(2)
            link = one.transport._links[2]
            assert link._frames is not None
            link._dialer.address = "127.0.0.1:9"
            link._frames.fail("cut")
            heard_s.append(time.monotonic())
            while heard_s[-1] - heard_s[0] < 3 * limits.GONE_AFTER_MS / 1000 or link._attempts.count < 4:
                number = len(heard_s)
                two.transport.send(1, frame(number))
                await until(partial(newest_is, one, 2, number), "heard")
                heard_s.append(time.monotonic())
            if longest_s() < limits.GONE_AFTER_MS / 1000:
                assert one.events[-1] == ("down", 2)
            await until(lambda: one.events[-1] == ("gone", 2), "gone when it is silent")

    def longest_s() -> float:
        """In which no frame may have come: one comes between two of these moments, early or late."""
        return max(later - earlier for earlier, later in zip(heard_s, [*heard_s[2:], heard_s[-1]], strict=False))

    run(scenario())
    return longest_s() < limits.GONE_AFTER_MS / 1000


@pytest.mark.usefixtures("nobody_asks_for_a_sign_of_life")
def test_a_stop_is_quick_and_tells_the_others() -> None:
    async def scenario() -> None:
        async with members() as group:
            one, two, three = await group.full_mesh(3)
            for member in (one, two, three):
                for peer in member.up:
                    member.transport.send(peer, frame(1, 1_000_000))
            group.all.remove(three)
            async with asyncio.timeout(BOUND_S):
                await three.transport.stop()
            await until(lambda: ("down", 3) in one.events and ("down", 3) in two.events, "down")
            assert ("down", 1) not in three.events, "no callback comes after stop"
            again = await group.add(3, three.transport.port)
            await again.transport.set_peers({1: one.address, 2: two.address})
            await until(lambda: one.events[-1] == ("up", 3) and two.events[-1] == ("up", 3), "up")

    run(scenario())


def test_peers_that_change_while_streams_close_have_one_stream_each(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with members() as group:
            one, two, three = await group.full_mesh(3)
            real, held, stopped = PeerLink.stop, asyncio.Event(), list[PeerLink]()

            async def stop(self: PeerLink) -> None:
                stopped.append(self)
                await held.wait()
                await real(self)

            links = one.transport._links
            first = dict(links)
            monkeypatch.setattr(PeerLink, "stop", stop)
            changes = [
                asyncio.ensure_future(one.transport.set_peers(peers))
                for peers in ({}, {}, {2: two.address, 3: three.address})
            ]
            await until(lambda: len(stopped) > 0, "a stream is closed")
            for _ in range(3):
                await asyncio.sleep(0)
            held.set()
            await asyncio.gather(*changes)
            monkeypatch.undo()
            assert sorted(links) == [2, 3]
            # Every stream there was is open for a peer, or was closed, once.
            assert len(stopped) == len(set(stopped))
            assert all(first[peer] in stopped or links[peer] is first[peer] for peer in first)
            assert not set(stopped) & set(links.values())
            await until(lambda: sorted(one.up) == [2, 3], "connected")

    run(scenario())


def test_a_taken_address_is_an_error() -> None:
    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1)
            with pytest.raises(OSError, match=r"can't listen on 127\.0\.0\.1:"):
                await Member(2, one.transport.port).transport.start()

    run(scenario())


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_a_node_of_another_cluster_is_refused_with_a_reason(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REFUSED_RETRY_MS", 20)

    attempts = 0
    encode_hello = codec.encode_hello

    def counted(hello: peer_pb2.Hello) -> bytes:
        nonlocal attempts
        attempts += 1
        return encode_hello(hello)

    monkeypatch.setattr(codec, "encode_hello", counted)

    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1)
            two = await group.add(2, cluster_id="green")
            await group.introduce()
            await until(lambda: len(refusals(caplog)) >= 4, "refusals")
            # Further attempts are made, and not logged.
            so_far = attempts
            await until(lambda: attempts >= so_far + 10, "attempts")
            assert one.events == two.events == []
            assert one.frames == two.frames == []

    run(scenario())
    texts = refusals(caplog)
    assert len(texts) == len(set(texts)) == 4
    assert any("node 1 belongs to cluster 'blue', node 2 to 'green'" in text for text in texts)
    assert any("refuses this node" in text for text in texts)


def test_an_unknown_node_and_another_version_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with members() as group:
            one = await group.add(1)
            nine = await group.add(9)
            await nine.transport.set_peers({1: one.address})
            await until(lambda: len(refusals(caplog)) == 2, "refusal")
            assert nine.events == []
            two = await group.add(2)
            two.transport._local = replace(two.transport._local, protocols=VersionRange(99, 99))
            await one.transport.set_peers({2: two.address})
            await two.transport.set_peers({1: one.address})
            await until(lambda: len(refusals(caplog)) >= 4, "refusal")

    run(scenario())
    assert any("node 1 knows no node 9 ('node-9')" in text for text in refusals(caplog))
    assert any(f"version {PROTOCOLS!r}, node 2 version 99" in text for text in refusals(caplog))
