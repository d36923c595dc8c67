"""What the leader of a stream's shard sends to copies of it (RULES J4): look by look, without a cluster."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from pamqp import commands as amqp
from pamqp.header import ContentHeader

from mayfly.cluster.versions import LEVEL_HIGHEST
from mayfly.node.catalog import Catalog, DeclareQueue, QueueRecord, RemoveQueues
from mayfly.node.catalog.shard_settings import shard_settings
from mayfly.node.content_header import HEADERS
from mayfly.node.duties.progress import AGAIN_MS
from mayfly.node.duties.stream_copies import StreamCopies
from mayfly.node.numbers import stream_source
from mayfly.node.shard import commands
from mayfly.node.shard.room import ANY_ROOM, Room
from mayfly.node.shard.shard import Shard
from tests.node.shard.driver import Driver

STREAM: dict[str, Any] = {"x-queue-type": "stream"}


class Origin:
    """A stream with copies, which stand in this shard as well and get nothing but what a test gives them."""

    def __init__(self, *copies: str) -> None:
        self.catalog = Catalog(1)
        self.catalog._state.level = LEVEL_HIGHEST
        self.driver = Driver()
        self.driver.shard = Shard(1, 1, messages_per_piece=4)
        self.sent: list[tuple[int, bytes]] = []
        self.read: list[int] = []
        self.received: dict[int, int] = {}
        self.now_ms = 0
        self.stream = self.declare("s")
        self.copies = [self.declare(name, {"x-mirror": "s"}) for name in copies]
        self.duty = StreamCopies(self.driver.shard, self, self.entry, lambda now_ms: self.driver.time_ms)

    def declare(self, name: str, arguments: dict[str, Any] | None = None) -> QueueRecord:
        self.catalog.apply(DeclareQueue("/", name, durable=True, arguments={**STREAM, **(arguments or {})}))
        record = self.catalog.queue("/", name)
        assert record is not None
        self.driver.run(commands.encode_create_queue(record.id, shard_settings(self.catalog, record)))
        return record

    def publish(self, count: int, header: bytes = b"") -> None:
        """Messages in entries of their own."""
        header = header or ContentHeader(0, 1, amqp.Basic.Properties()).marshal()
        for _ in range(count):
            parts: list[bytes] = []
            commands.encode_publish(parts, (self.stream.id,), -1, b"\x01e\x01k", header, b"m")
            self.driver.run(*parts)

    def look(self, after_ms: int = 0) -> list[int]:
        """The copies to which something was sent, by their ids, for each command."""
        self.now_ms += after_ms
        self.sent.clear()
        self.read.clear()
        self.duty.perform(self.now_ms)
        return [commands.TRANSFER_COPIES_HEAD.unpack_from(command)[3] for _, command in self.sent]

    def entry(self, index: int) -> bytes:
        self.read.append(index)
        return self.driver.log[index].data

    def transfer(self, target_shard: int, command: bytes) -> None:
        self.sent.append((target_shard, command))

    def received_up_to(self, target_shard: int, queue: int, source: int) -> int:
        return self.received.get(queue) or self.driver.shard.received_up_to(queue, source)

    def ask_again(self, target_shard: int, queue: int, source: int) -> None: ...

    def room(self, target_shard: int, queue: int, source: int, next_bytes: int) -> Room:
        return ANY_ROOM

    def has_leader(self, shard: int) -> bool:
        return True

    def queue_moved(self, queue: int, source: int, target: int, number: int) -> None:
        raise AssertionError("no queue moves here")

    def remove_queues(self, ids: tuple[int, ...], done: Callable[[bool], None]) -> None:
        raise AssertionError("no queue goes")

    @property
    def is_waited_for(self) -> bool:
        return False

    def barrier(self, done: Callable[[], None]) -> None:
        done()


def test_j4_entries_of_what_has_left_a_stream_are_read_no_more() -> None:
    """They are released: the log of this replica may have them no longer."""
    origin = Origin("m")
    origin.publish(40)
    origin.look()
    assert origin.read
    origin.driver.run(commands.encode_delete_offset(origin.stream.id, 30))
    assert origin.driver.released
    origin.received[origin.copies[0].id] = 30
    origin.look(after_ms=AGAIN_MS)
    assert origin.look(after_ms=AGAIN_MS), "nothing has moved: it goes again"
    assert origin.read
    assert not set(origin.read) & set(origin.driver.released)


def test_j4_a_mirror_of_a_stream_that_is_declared_anew_is_offered_nothing() -> None:
    """It keeps what it has of the old one, for ever."""
    origin = Origin("m")
    before, mirror = origin.stream, origin.copies[0]
    origin.publish(3)
    origin.look()
    for _, command in origin.sent:
        origin.driver.lead(command)
    assert origin.driver.shard.received_up_to(mirror.id, stream_source(before.id)) == 3
    origin.catalog.apply(RemoveQueues((before.id,)))
    origin.stream = origin.declare("s")
    assert origin.stream.id != before.id
    origin.publish(3)
    for _ in range(3):
        assert origin.look(after_ms=AGAIN_MS) == []


def test_j4_a_look_sends_a_bounded_number_of_commands_and_every_copy_has_its_turn() -> None:
    origin = Origin(*[f"m{number}" for number in range(50)])
    origin.publish(3)
    looks = [origin.look() for _ in range(4)]
    assert [len(look) for look in looks] == [16, 16, 16, 2]
    assert sorted(copy for look in looks for copy in look) == sorted(copy.id for copy in origin.copies)


@pytest.mark.parametrize("table", [b"\x02a", b"\x01a"])
def test_headers_that_cannot_be_read_do_not_stop_a_copy(table: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing stores such any more. Its leader would end for them, and the next one as well."""
    origin = Origin()
    copy = origin.declare("c", {"x-sources": ["s"]})
    cut_off = struct.pack(">HHQHI", 60, 0, 1, HEADERS, 2) + table
    origin.publish(1)
    origin.publish(1, cut_off)
    origin.publish(1)
    assert origin.look() == [copy.id]
    [(_, command)] = origin.sent
    assert commands.TRANSFER_COPIES_HEAD.unpack_from(command)[1] == 3 and cut_off in command
    assert "headers at offset 1 of stream 's'" in caplog.text
