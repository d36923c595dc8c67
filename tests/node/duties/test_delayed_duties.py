"""What a shard's leader does for delayed exchanges, after lost commands and new leaders (RULES S1, S3)."""

from __future__ import annotations

from typing import Any

from pamqp import commands as amqp
from pamqp.header import ContentHeader

from mayfly.node.catalog import (
    Bind,
    Catalog,
    DeclareExchange,
    DeclareQueue,
    ExchangeDeclared,
    QueueDeclared,
    QueueRecord,
    Unbind,
)
from mayfly.node.catalog.shard_settings import shard_settings
from mayfly.node.duties.progress import AGAIN_MS
from mayfly.node.duties.shard_duties import ShardDuties
from mayfly.node.shard import commands
from mayfly.node.shard.room import ANY_ROOM, Room
from mayfly.node.shard.shard import Shard
from tests.node.readings import statistics_of
from tests.node.shard.driver import Driver

COUNT = 50
HEADER = ContentHeader(0, 1, amqp.Basic.Properties(headers={"x-delay": 1000})).marshal()


class Leader:
    """A shard with messages for a delayed exchange, and its duties; what they give waits until a test applies it."""

    is_waited_for = True

    def __init__(self) -> None:
        self.catalog = Catalog(1)
        self.catalog._state.level = 8
        self.given: list[bytes] = []
        self.driver = Driver()
        self.now_ms = 1_000_000
        arguments: Any = {"x-delayed-type": "fanout"}
        made = self.catalog.apply(DeclareExchange("/", "later", "x-delayed-message", True, False, False, arguments))
        assert isinstance(made, ExchangeDeclared)
        record = self.catalog.delay_queue("/", "later")
        assert record is not None
        self.waiting = self.in_shard(record)
        self.queue = self.declare("q")
        self.catalog.apply(Bind("/", "later", "queue", "q", ""))
        self.publish(range(COUNT), 1000)
        self.lead(self.driver.shard)

    def publish(self, numbers: range, after_ms: int) -> None:
        """Messages whose bodies are these numbers, to be routed later."""
        parts: list[bytes] = []
        for number in numbers:
            due = (commands.AFTER, after_ms)
            body = b"%d" % number
            commands.encode_publish_later(parts, [self.waiting.id], -1, b"\x05later\x00", HEADER, body, due)
        self.driver.run(*parts)

    def lead(self, shard: Shard) -> None:
        """A new leader, with this replica."""
        # The queues are in shard 1 of the catalog; the driver's is called 3.
        shard.shard_id = 1
        self.driver.shard = shard
        self.given.clear()
        self.duties = ShardDuties(shard, 1, self, self.given.append, self.data, lambda now_ms: now_ms)

    def declare(self, name: str) -> QueueRecord:
        result = self.catalog.apply(DeclareQueue("/", name, durable=True))
        assert isinstance(result, QueueDeclared)
        return self.in_shard(result.queue)

    def in_shard(self, record: QueueRecord) -> QueueRecord:
        self.driver.run(commands.encode_create_queue(record.id, shard_settings(self.catalog, record)))
        return record

    def become_due(self) -> None:
        self.driver.pass_ms(1000)
        self.driver.tick()

    def look(self) -> None:
        self.duties.perform(self.now_ms)

    def apply_all(self) -> None:
        while self.given:
            self.driver.lead(self.given.pop(0))
            self.look()

    def arrived(self) -> list[int]:
        return [int(body) for body in self.driver.drain(self.queue.id)]

    # `DutyPort`, as far as it is needed

    def data(self, index: int) -> bytes:
        return self.driver.log[index].data

    def transfer(self, target_shard: int, command: bytes) -> None:
        raise AssertionError("everything is in one shard")

    def received_up_to(self, target_shard: int, queue: int, source: int) -> int:
        return 0

    def ask_again(self, target_shard: int, queue: int, source: int) -> None: ...

    def room(self, target_shard: int, queue: int, source: int, next_bytes: int) -> Room:
        return ANY_ROOM

    def has_leader(self, shard: int) -> bool:
        return True

    def queue_moved(self, queue: int, source: int, target: int, number: int) -> None:
        raise AssertionError("no queue moves here")

    def remove_queues(self, ids: tuple[int, ...], done: Any) -> None:
        raise AssertionError("no queue goes")

    def barrier(self, done: Any) -> None:
        done()


def test_s3_what_is_decided_twice_is_routed_once() -> None:
    leader = Leader()
    leader.become_due()
    leader.look()
    assert leader.given
    first = list(leader.given)
    leader.duties.forget()
    leader.look()
    again = leader.given[len(first) :]
    assert again
    leader.given.clear()
    # More is due by the time that the second decision comes.
    leader.publish(range(COUNT, 2 * COUNT), 10)
    leader.driver.pass_ms(10)
    leader.driver.tick()
    for command in (*first, *again, *first):
        leader.driver.lead(command)
    assert leader.arrived() == list(range(COUNT))
    leader.look()
    leader.apply_all()
    assert leader.arrived() == list(range(COUNT, 2 * COUNT))


def test_s3_what_is_due_goes_on_from_a_snapshot_with_another_leader() -> None:
    leader = Leader()
    leader.become_due()
    leader.look()
    # What the old leader has given is lost with it.
    restored = Shard(3, 1)
    restored.restore(leader.driver.shard.snapshot())
    leader.lead(restored)
    leader.look()
    leader.apply_all()
    first = leader.driver.get_message(leader.queue.id)
    assert first is not None
    content = leader.driver.content(first)
    assert content.endswith(b"0") and b"x-death" not in content, "it was due, not dead"
    assert leader.arrived() == list(range(1, COUNT))


def test_s3_a_lost_route_is_given_again() -> None:
    leader = Leader()
    leader.become_due()
    leader.look()
    leader.given.clear()
    leader.look()
    assert leader.arrived() == []
    leader.now_ms += AGAIN_MS
    leader.look()
    leader.apply_all()
    assert leader.arrived() == list(range(COUNT))


def test_s1_what_has_no_route_when_it_is_decided_is_dropped_and_counted() -> None:
    leader = Leader()
    leader.become_due()
    leader.catalog.apply(Unbind("/", "later", "queue", "q", ""))
    leader.look()
    leader.apply_all()
    assert statistics_of(leader.driver.shard).dropped_due == COUNT
    assert statistics_of(leader.driver.shard).parked == 0
