"""Snapshots over a wire that breaks: what came is kept, checked, and gone on with."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import grpc
import grpc.aio
import pytest

from mayfly.cluster import limits
from mayfly.cluster.transport import codec, options
from tests.cluster.transport.members import Member, Members, members, run, until
from tests.cluster.transport.snapshots import (
    GROUP,
    MadeSnapshot,
    connected_by_wire,
    heard,
    kept_bytes,
    receiving,
    send,
    tiny,
)
from tests.cluster.transport.wire import Wire

MB = 1 << 20


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


async def half_sent(group: Members, folder: Path, made: MadeSnapshot) -> tuple[Member, Member, Wire]:
    """Sender and receiver, some megabytes of the snapshot at the receiver, and a broken wire that works again."""
    receiver = await group.add(2, folder=folder)
    sender, wire = await connected_by_wire(group, receiver)
    wire.stops_at_bytes = wire.bytes_there + made.body.total_bytes // 2
    sending = asyncio.ensure_future(send(sender, made))
    # What gRPC has, and the receiver did not come to yet, is lost with the wire.
    await until(lambda: kept_bytes(receiver, GROUP) > MB, "the first megabyte")
    wire.stops_at_bytes = 0
    wire.cut()
    wire.takes.set()
    assert not await sending
    await until(lambda: not receiving(receiver), "the end of the broken stream")
    assert 1 * MB < files(folder)[0].stat().st_size < made.body.total_bytes
    return sender, receiver, wire


def test_a_transfer_that_breaks_goes_on_where_it_stopped(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with members() as group:
            made = MadeSnapshot(1000)
            receiver = await group.add(2, folder=tmp_path)
            sender, wire = await connected_by_wire(group, receiver)
            before = wire.bytes_there
            # A cut loses what is under way: up to a window of 8 MB. None comes when all is there, and only the answer
            # is missing: then all would be sent once more.
            wire.most_cuts, wire.cut_every_bytes = 2, 24 * MB
            while not await send(sender, made):
                assert len(sender.snapshots) < 10
            assert made.arrived(receiver) == 1
            assert wire.cuts == 2
            assert sender.transport.counters[2].snapshots_resumed >= 2
            assert made.body.total_bytes <= wire.bytes_there - before < 1.5 * made.body.total_bytes
            # One success, and nothing is left.
            assert sender.snapshots.count((2, GROUP, True)) == 1
            assert files(tmp_path) == []
            await wire.stop()

    run(scenario())


def test_another_snapshot_starts_anew_and_takes_the_place_of_the_partial_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with members() as group:
            made, newer = MadeSnapshot(150), MadeSnapshot(160, index=2000)
            sender, receiver, wire = await half_sent(group, tmp_path, made)
            before = wire.bytes_there
            assert await send(sender, newer)
            assert wire.bytes_there - before > newer.body.total_bytes
            assert sender.transport.counters[2].snapshots_resumed == 0
            assert (made.arrived(receiver), newer.arrived(receiver)) == (0, 1)
            assert files(tmp_path) == []
            await wire.stop()

    run(scenario())


@pytest.mark.parametrize("change", ["none", "truncated", "damaged", "longer"])
def test_what_a_restarted_receiver_finds_is_gone_on_with_or_refused(tmp_path: Path, change: str) -> None:
    async def scenario() -> None:
        async with members() as group:
            made = MadeSnapshot(150)
            sender, receiver, wire = await half_sent(group, tmp_path, made)
            group.all.remove(receiver)
            await receiver.transport.stop()
            (file,) = files(tmp_path)
            kept = file.stat().st_size
            with file.open("r+b") as opened:
                if change == "truncated":
                    kept = MB
                    opened.truncate(MB)
                elif change == "damaged":
                    opened.seek(kept // 2)
                    opened.write(b"damage")
                elif change == "longer":
                    kept = 0
                    opened.truncate(made.body.total_bytes + 1)
            (tmp_path / "something else").write_bytes(b"?")
            again = await group.add(2, receiver.transport.port, folder=tmp_path)
            await again.transport.set_peers({1: sender.address})
            await heard(sender, again)
            before = wire.bytes_there
            if change == "damaged":
                assert not await send(sender, made)
                assert files(tmp_path) == [], "what does not match its digest is not kept"
                before, kept = wire.bytes_there, 0
            assert await send(sender, made)
            sent = wire.bytes_there - before
            assert made.body.total_bytes - kept <= sent < 1.2 * (made.body.total_bytes - kept)
            assert made.arrived(again) == 1
            assert files(tmp_path) == []
            await wire.stop()

    run(scenario())


def test_what_nobody_goes_on_with_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with members() as group:
            made = MadeSnapshot(150)
            sender, receiver, wire = await half_sent(group, tmp_path, made)
            monkeypatch.setattr(limits, "SNAPSHOT_KEPT_SECONDS", 0.3)
            wire.cut_every_bytes = MB
            assert not await send(sender, made)
            wire.cut_every_bytes = 0
            await until(lambda: files(tmp_path) == [], "an empty folder")
            assert await send(sender, made)
            assert made.arrived(receiver) == 1
            await wire.stop()

    run(scenario())


def test_an_entry_that_can_not_be_read_any_more_is_a_failure_and_nothing_hangs(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with members() as group:
            made = MadeSnapshot(150)
            sender, receiver, wire = await half_sent(group, tmp_path, made)
            del made.entries[150]
            assert not await send(sender, made)
            assert made.body.failed == f"entry 150 of group {GROUP} is not stored"
            newer = MadeSnapshot(3, index=2000)
            assert await send(sender, newer)
            assert newer.arrived(receiver) == 1
            await wire.stop()

    run(scenario())


# --- what no honest peer sends --------------------------------------------------------------------------


class Answer:
    """How a call ended, and from where on the receiver wanted the snapshot."""

    def __init__(self, code: grpc.StatusCode, text: str, offset: int | None) -> None:
        self.code, self.text, self.offset = code, text, offset


async def call(member: Member, *messages: bytes) -> Answer:
    """Send these messages as a snapshot."""
    async with grpc.aio.insecure_channel(member.address) as channel:
        stream = channel.stream_unary(options.SEND_SNAPSHOT)()
        try:
            await stream.write(messages[0])
            # To write to a call that was refused hides why.
            if options.CONSENT in tuple(await stream.initial_metadata()):
                for message in messages[1:]:
                    await stream.write(message)
                await stream.done_writing()
            await stream
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass
        answer = dict(tuple(await stream.initial_metadata()))
        offset = answer.get(options.SNAPSHOT_OFFSET)
        return Answer(await stream.code(), await stream.details(), None if offset is None else int(offset))


async def strangers_target(group: Members, folder: Path) -> Member:
    one = await group.add(1, folder=folder)
    await one.transport.set_peers({2: "127.0.0.1:9"})
    return one


def test_pieces_that_do_not_follow_are_refused_and_what_came_before_is_kept(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with members() as group:
            one = await strangers_target(group, tmp_path)
            made = MadeSnapshot(1)
            pieces = made.pieces(10_000)
            invalid = grpc.StatusCode.INVALID_ARGUMENT
            length = made.body.total_bytes
            beyond = codec.encode_snapshot_data(length + 1, b"x")
            repeated = pieces[0]
            damaged = pieces[1].replace(b"\x00", b"\x01", 1) if b"\x00" in pieces[1] else pieces[1][:-1] + b"\x00"
            longer = codec.encode_snapshot_data(10_000, bytes(length))
            for messages, text, offset in (
                ([b"\xff"], "not a message of this protocol", None),
                ([repeated], "the first piece of a snapshot is not its header", None),
                ([made.header(), beyond], f"a piece of a snapshot for offset {length + 1} where 0 was due", 0),
                ([made.header()], f"snapshot ended {length} bytes early", 0),
                ([made.header(), b""], "a piece of a snapshot without data", 0),
                ([made.header(), made.header()], "a piece of a snapshot without data", 0),
                ([made.header(), pieces[0], repeated], "a piece of a snapshot for offset 0 where 10000 was due", 0),
                ([made.header(), repeated], "a piece of a snapshot for offset 0 where 10000 was due", 10_000),
                ([made.header(), longer], "snapshot is longer than its header says", 10_000),
            ):
                ended = await call(one, *messages)
                assert (ended.code, ended.text, ended.offset) == (invalid, text, offset)
            ended = await call(one, made.header(), damaged)
            assert ended.code == grpc.StatusCode.UNAVAILABLE
            # All of it, but nothing was heard of the sender: it is kept.
            ended = await call(one, made.header(), *pieces[1:])
            assert (ended.code, ended.offset) == (grpc.StatusCode.UNAVAILABLE, 10_000)
            ended = await call(one, made.header())
            assert (ended.code, ended.offset) == (grpc.StatusCode.UNAVAILABLE, length)
            assert one.frames == []

    run(scenario())


def test_a_wrong_digest_is_told_and_nothing_is_kept(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with members() as group:
            one = await strangers_target(group, tmp_path)
            header, piece = tiny(7)
            more = codec.encode_snapshot_data(100, b"y")
            ended = await call(one, header, piece, more)
            assert ended.code == grpc.StatusCode.DATA_LOSS
            assert ended.text.startswith("snapshot doesn't match its digest")
            assert files(tmp_path) == []
            # The digest is right, what it is of is no snapshot.
            ended = await call(one, header, piece, codec.encode_snapshot_data(100, b"x"))
            assert ended.code == grpc.StatusCode.DATA_LOSS
            assert ended.text.startswith("not a snapshot, or one of another version")
            assert files(tmp_path) == []

    run(scenario())


def test_snapshots_of_many_groups_are_kept_up_to_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_SNAPSHOTS_KEPT", 5)

    async def scenario() -> None:
        async with members() as group:
            one = await strangers_target(group, tmp_path)
            for number in range(20):
                ended = await call(one, *tiny(number))
                assert ended.text == "snapshot ended 1 bytes early"
                assert len(files(tmp_path)) <= 5
            kept = sorted(int(file.name.split("-")[0]) for file in files(tmp_path))
            assert kept == [15, 16, 17, 18, 19], "the one that rested longest goes first"

    run(scenario())


def test_streams_that_say_a_header_and_no_more_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_SNAPSHOTS_KEPT", 3)

    async def scenario() -> None:
        async with members() as group:
            one = await strangers_target(group, tmp_path)
            async with grpc.aio.insecure_channel(one.address) as channel:
                streams = []
                for number in range(3):
                    stream = channel.stream_unary(options.SEND_SNAPSHOT)()
                    await stream.write(tiny(number)[0])
                    streams.append(stream)
                await until(lambda: len(receiving(one)) == 3, "three streams")
                ended = await call(one, *tiny(3))
                assert ended.code == grpc.StatusCode.RESOURCE_EXHAUSTED
                assert ended.text == "3 other snapshots are on their way"
                assert files(tmp_path) == []
                for stream in streams:
                    stream.cancel()
            await until(lambda: not receiving(one), "the end of the streams")
            assert (await call(one, *tiny(3))).code == grpc.StatusCode.INVALID_ARGUMENT

    run(scenario())


def test_a_total_that_the_disk_has_no_room_for_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SNAPSHOT_DISK_RESERVE_BYTES", 1 << 62)

    async def scenario() -> None:
        async with members() as group:
            one = await strangers_target(group, tmp_path)
            ended = await call(one, *tiny(7))
            assert ended.code == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert ended.text == "101 bytes of a snapshot are to come, node 1 has room for 0"
            assert ended.offset is None

    run(scenario())


def test_a_newer_stream_of_a_group_takes_the_place_of_one_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SNAPSHOT_STALL_SECONDS", 1e6)

    async def scenario() -> None:
        async with members() as group:
            one = await strangers_target(group, tmp_path)
            made = MadeSnapshot(1)
            pieces = made.pieces(10_000)
            async with grpc.aio.insecure_channel(one.address) as channel:
                hanging = channel.stream_unary(options.SEND_SNAPSHOT)()
                await hanging.write(made.header())
                await hanging.write(pieces[0])
                await until(lambda: kept_bytes(one, GROUP) == 10_000, "a first piece")
                ended = await call(one, made.header(), *pieces[1:])
                assert (ended.code, ended.offset) == (grpc.StatusCode.UNAVAILABLE, 10_000)
                assert await hanging.code() == grpc.StatusCode.ABORTED
                assert "a newer stream brings a snapshot of group 4" in await hanging.details()

    run(scenario())


def test_of_two_nodes_with_a_snapshot_of_one_group_the_one_of_the_later_term_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with members() as group:
            one = await strangers_target(group, tmp_path)
            await one.transport.set_peers({2: "127.0.0.1:9", 3: "127.0.0.1:9"})
            made = MadeSnapshot(1)
            pieces = made.pieces(10_000)
            async with grpc.aio.insecure_channel(one.address) as channel:
                earlier = channel.stream_unary(options.SEND_SNAPSHOT)()
                await earlier.write(made.header())
                await earlier.write(pieces[0])
                await until(lambda: kept_bytes(one, GROUP) == 10_000, "a first piece")
                ended = await call(one, made.header(sender=3), pieces[0])
                assert ended.code == grpc.StatusCode.RESOURCE_EXHAUSTED
                assert ended.text == "node 2 is bringing a snapshot of group 4"
                # It is the same snapshot: there is nothing to begin anew.
                ended = await call(one, made.header(sender=3, term=7), *pieces[1:])
                assert (ended.code, ended.offset) == (grpc.StatusCode.UNAVAILABLE, 10_000)
                assert await earlier.code() == grpc.StatusCode.ABORTED

    run(scenario())


def test_two_snapshots_at_a_time_do_not_count_on_the_same_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SNAPSHOT_DISK_RESERVE_BYTES", 0)

    async def scenario() -> None:
        async with members() as group:
            one = await strangers_target(group, tmp_path)
            disk = SimpleNamespace(f_bavail=150, f_frsize=1)
            monkeypatch.setattr("mayfly.cluster.transport.spool.os.statvfs", lambda _: disk)
            async with grpc.aio.insecure_channel(one.address) as channel:
                stream = channel.stream_unary(options.SEND_SNAPSHOT)()
                await stream.write(tiny(1)[0])
                assert options.CONSENT in tuple(await stream.initial_metadata())
                ended = await call(one, *tiny(2))
                assert ended.code == grpc.StatusCode.RESOURCE_EXHAUSTED
                assert ended.text == "101 bytes of a snapshot are to come, node 1 has room for 49"
                stream.cancel()
            await until(lambda: not receiving(one), "the end of the first")
            ended = await call(one, *tiny(2))
            assert (ended.code, ended.text) == (grpc.StatusCode.INVALID_ARGUMENT, "snapshot ended 1 bytes early")
            # What came of the second is on the disk; only the rest of it counts.
            ended = await call(one, *tiny(1))
            assert ended.text == "snapshot ended 1 bytes early"

    run(scenario())
