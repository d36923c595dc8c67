"""What a shard's leader does for a redrive, after lost commands and new leaders (RULES R1)."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands as amqp
from pamqp.header import ContentHeader

from mayfly.node.amqp.content import Content
from mayfly.node.catalog import Bind, Catalog, DeclareExchange, DeclareQueue, QueueDeclared, QueueRecord
from mayfly.node.catalog.shard_settings import shard_settings
from mayfly.node.dead_letter import DeathWriter, RedriveTerms
from mayfly.node.duties.contents import content_of
from mayfly.node.duties.redrives import AGAIN_MS, RedriveDuty
from mayfly.node.limits import ROUTING_STEPS_PER_TURN
from mayfly.node.shard import commands
from mayfly.node.shard.message import Message
from mayfly.node.shard.redrive import DONE, RUNNING, Redrive
from mayfly.node.shard.redrive_commands import CANCEL, PAUSE, RESUME, encode_change_redrive, encode_start_redrive
from mayfly.node.shard.room import ANY_ROOM, Room
from mayfly.node.shard.settings import encode_terms
from mayfly.node.shard.shard import Shard
from tests.node.amqp.contents import make_exchange_and_key
from tests.node.shard.driver import Driver


def plain(headers: dict[str, Any] | None = None) -> bytes:
    return ContentHeader(0, 1, amqp.Basic.Properties(headers=headers)).marshal()


class Leader:
    """A shard with a dead-letter queue, and the duty; what it gives waits until a test applies it."""

    is_waited_for = True

    def __init__(self) -> None:
        self.catalog = Catalog(1)
        self.catalog._state.level = 8
        self.given: list[bytes] = []
        self.driver = Driver()
        self.driver.create(900)
        self.now_ms = 5_000
        self.barriers: list[Any] = []
        self.holds_barriers = False
        self.looks = 0
        self.writer = DeathWriter()
        self.dead = self.declare("dead")
        self.work = self.declare("work")
        self.lead(self.driver.shard)

    def declare(self, name: str) -> QueueRecord:
        result = self.catalog.apply(DeclareQueue("/", name, durable=True))
        assert isinstance(result, QueueDeclared)
        self.driver.run(commands.encode_create_queue(result.queue.id, shard_settings(self.catalog, result.queue)))
        return result.queue

    def lead(self, shard: Shard) -> None:
        """A new leader, with this replica."""
        # The queues are in shard 1 of the catalog; the driver's is called 3.
        shard.shard_id = 1
        self.driver.shard = shard
        self.given.clear()
        self.duty = RedriveDuty(shard, self, self.given.append, self.data, lambda now_ms: self.driver.time_ms)
        if self.looks:
            self.duty.looks = self.looks

    def bury(
        self, number: int, queue: str = "work", reason: str = "expired", key: str = "k",
        headers: dict[str, Any] | None = None,
    ) -> None:
        """A message that died, in the dead-letter queue."""
        published = Content(make_exchange_and_key("orders", key), plain(headers), b"")
        letter = self.writer.write(published, queue, reason, 1, "", "dead")
        self.put(number, letter.exchange_and_key, letter.header)

    def put(self, number: int, exchange_and_key: bytes, header: bytes) -> None:
        parts: list[bytes] = []
        commands.encode_publish(parts, (self.dead.id,), -1, exchange_and_key, header, b"%d" % number)
        self.driver.run(*parts)

    def start(self, per_second: int = 0, **terms: Any) -> None:
        self.driver.run(encode_start_redrive(self.dead.id, RedriveTerms(**terms).encoded(), per_second))

    @property
    def redrive(self) -> Redrive:
        queue = self.driver.shard.queue(self.dead.id)
        assert queue is not None
        assert queue.redrive is not None
        return queue.redrive

    def look(self) -> None:
        self.duty.perform(self.now_ms)

    def run(self) -> None:
        """To the end."""
        self.look()
        while self.given:
            self.driver.lead(self.given.pop(0))
            self.look()

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms
        self.driver.pass_ms(ms)

    def messages(self, record: QueueRecord) -> list[Message]:
        queue = self.driver.shard.queue(record.id)
        assert queue is not None
        return [message for line in queue.lines() for message in line.live()]

    def bodies(self, record: QueueRecord) -> list[int]:
        return [int(self.driver.body(message)) for message in self.messages(record)]

    def contents(self, record: QueueRecord) -> list[Content]:
        found = [content_of(self.data(message.index), message) for message in self.messages(record)]
        return [Content(each.exchange_and_key, each.header, each.body) for each in found]

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
        if self.holds_barriers:
            self.barriers.append(done)
        else:
            done()


@pytest.fixture
def leader() -> Leader:
    return Leader()


def test_r1_messages_go_back_to_the_queue_in_which_they_died(leader: Leader) -> None:
    other = leader.declare("other")
    for number in range(6):
        leader.bury(number, "work" if number % 2 else "other", key=f"k{number}")
    leader.start()
    leader.run()
    assert leader.bodies(leader.work) == [1, 3, 5]
    assert leader.bodies(other) == [0, 2, 4]
    assert leader.redrive.state == DONE
    first = leader.contents(leader.work)[0]
    assert (first.exchange, first.routing_key) == ("orders", "k1"), "as it was when it died"


def test_r1_x_death_is_kept_and_the_redrive_is_in_the_headers(leader: Leader) -> None:
    leader.bury(1, headers={"mine": "yes"})
    before = leader.contents(leader.dead)[0].headers_table()
    leader.start()
    leader.run()
    after = leader.contents(leader.work)[0].headers_table()
    assert before is not None
    assert after is not None
    assert after.get("x-death") == before.get("x-death")
    assert after.get("mine") == before.get("mine")
    said = after.python()
    assert (said["x-redrive-count"], said["x-redriven-from"], said["x-redrive-deaths"]) == (1, "dead", 1)


def test_r1_what_has_no_route_or_never_died_stays(leader: Leader) -> None:
    leader.bury(0, "gone")
    leader.put(1, make_exchange_and_key("", "dead"), plain())
    leader.bury(2)
    leader.start()
    leader.run()
    assert leader.bodies(leader.dead) == [0, 1]
    assert leader.bodies(leader.work) == [2]
    assert (leader.redrive.moved, leader.redrive.stayed) == (1, 2)


@pytest.mark.parametrize(
    ("terms", "moved"),
    [
        ({}, [0, 1, 2, 3]),
        ({"reason": "rejected"}, [1]),
        ({"origin": "other"}, [2]),
        ({"key": "k3"}, [3]),
        ({"headers": (("n", "1"),)}, [1]),
        ({"headers": (("flag", "true"), ("n", "2"))}, [2]),
        ({"headers": (("n", "4"),)}, []),
        ({"min_age_ms": 150}, [0, 1]),
        ({"max_age_ms": 150}, [2, 3]),
    ],
)
def test_r1_filters(leader: Leader, terms: dict[str, Any], moved: list[int]) -> None:
    target = leader.declare("target")
    leader.declare("other")
    for number in range(4):
        leader.bury(
            number, "other" if number == 2 else "work", "rejected" if number == 1 else "expired", f"k{number}",
            {"n": number, "flag": True},
        )
        leader.pass_ms(100 if number == 1 else 1)
    leader.pass_ms(100)
    leader.start(queue="target", **terms)
    leader.run()
    assert leader.bodies(target) == moved
    assert leader.bodies(leader.dead) == [number for number in range(4) if number not in moved]


def test_r1_to_a_named_exchange(leader: Leader) -> None:
    target = leader.declare("target")
    leader.catalog.apply(DeclareExchange("/", "again", "direct"))
    leader.catalog.apply(Bind("/", "again", "queue", "target", "k"))
    leader.catalog.apply(Bind("/", "again", "queue", "work", "special"))
    leader.bury(0)
    leader.bury(1, key="nowhere")
    leader.put(2, make_exchange_and_key("", "k"), plain())
    leader.start(exchange="again")
    leader.run()
    assert leader.bodies(target) == [0, 2]
    assert [content.exchange for content in leader.contents(target)] == ["again", "again"]
    leader.start(exchange="again", routing_key="special")
    leader.run()
    assert leader.bodies(leader.work) == [1]
    assert leader.contents(leader.work)[0].routing_key == "special"


def test_r1_a_lost_command_is_given_again_and_a_late_one_moves_nothing(leader: Leader) -> None:
    for number in range(20):
        leader.bury(number)
    leader.start()
    leader.look()
    (late,) = leader.given
    leader.given.clear()
    leader.look()
    assert not leader.given, "one is under way"
    leader.now_ms += AGAIN_MS
    leader.run()
    leader.driver.lead(late)
    assert leader.bodies(leader.work) == list(range(20))


def test_r1_a_command_that_comes_late_may_be_the_step_of_its_repeat(leader: Leader) -> None:
    """The repeat had more in it, and counts for nothing then: what it had besides is not left behind."""
    for number in range(20):
        leader.bury(number)
    leader.start()
    leader.duty.looks = 5
    leader.look()
    (late,) = leader.given
    leader.given.clear()
    leader.duty.looks = 12
    leader.now_ms += AGAIN_MS
    leader.look()
    leader.driver.lead(late)
    leader.run()
    assert leader.bodies(leader.work) == list(range(20))
    assert leader.redrive.state == DONE


def test_r1_the_next_leader_goes_on(leader: Leader) -> None:
    leader.looks = leader.duty.looks = 3
    for number in range(20):
        leader.bury(number, reason="rejected" if number % 2 else "expired")
    leader.start(reason="rejected")
    for _ in range(20):
        leader.look()
        if leader.given:
            leader.driver.lead(leader.given.pop(0))
        copy = Shard(1, 1)
        copy.restore(leader.driver.shard.snapshot())
        leader.lead(copy)
    assert leader.redrive.state == DONE
    assert leader.bodies(leader.work) == list(range(1, 20, 2))
    assert leader.bodies(leader.dead) == list(range(0, 20, 2))
    assert (leader.redrive.moved, leader.redrive.stayed) == (10, 10)


def test_r1_nothing_moves_before_the_catalog_is_as_new_as_the_lead(leader: Leader) -> None:
    leader.bury(0)
    leader.holds_barriers = True
    leader.start()
    leader.look()
    assert not leader.given
    leader.barriers.pop()()
    leader.run()
    assert leader.bodies(leader.work) == [0]


def test_r1_the_rate_is_that_of_the_shards_clock(leader: Leader) -> None:
    for number in range(300):
        leader.bury(number)
    leader.start(per_second=100)
    for _ in range(40):
        leader.run()
        leader.pass_ms(50)
    assert len(leader.bodies(leader.work)) == pytest.approx(200, rel=0.05)
    leader.driver.run(encode_change_redrive(leader.dead.id, PAUSE))
    leader.pass_ms(10_000)
    leader.run()
    moved = leader.redrive.moved
    leader.driver.run(encode_change_redrive(leader.dead.id, RESUME))
    leader.run()
    assert leader.redrive.moved <= moved + 1, "what it may not move while it is paused it does not make up for"


def test_r1_it_takes_turns_with_whatever_else_routes(leader: Leader) -> None:
    turns = leader.catalog.routing_turns
    leader.catalog.apply(DeclareExchange("/", "again", "fanout"))
    leader.catalog.apply(Bind("/", "again", "queue", "work", ""))
    for number in range(3):
        leader.bury(number)
    leader.start(exchange="again")
    turns.steps.taken += ROUTING_STEPS_PER_TURN
    leader.look()
    leader.look()
    assert not leader.given
    turns.begin()
    assert len(leader.given) == 1, "it goes on by itself"
    assert not turns.has_waiting, "it stood in line once"
    leader.run()
    assert leader.bodies(leader.work) == [0, 1, 2]


def test_r1_it_waits_for_lanes_that_do_not_move(leader: Leader) -> None:
    leader.duty.most_in_lanes = leader.duty.looks = 1
    full = leader.declare("full")
    settings = shard_settings(leader.catalog, full)
    settings.max_length, settings.overflow = 0, "reject-publish"
    leader.driver.lead(commands.encode_update_queues(encode_terms(settings), [full.id]))
    for number in range(3):
        leader.bury(number)
    leader.start(queue="full")
    leader.run()
    assert leader.bodies(leader.dead) == [1, 2]
    assert leader.redrive.state == RUNNING


def test_r1_what_waits_for_others_does_not_hold_it_up(leader: Leader) -> None:
    """Such as records for a journal that stands still."""
    leader.duty.most_in_lanes = leader.duty.looks = 1
    full = leader.declare("full")
    settings = shard_settings(leader.catalog, full)
    settings.max_length, settings.overflow = 0, "reject-publish"
    leader.driver.lead(commands.encode_update_queues(encode_terms(settings), [full.id]))
    for number in range(3):
        leader.bury(number)
    leader.start(queue="full")
    leader.run()
    leader.driver.run(encode_change_redrive(leader.dead.id, CANCEL))
    leader.start(queue="work")
    leader.run()
    assert leader.bodies(leader.work) == [1, 2]
    assert leader.driver.shard.in_lanes == 1


def test_r1_terms_that_cannot_be_read_are_cancelled(leader: Leader) -> None:
    leader.bury(0)
    leader.driver.run(encode_start_redrive(leader.dead.id, b"\xff", 0))
    leader.look()
    leader.driver.run(*leader.given)
    assert leader.redrive.state not in (RUNNING, DONE)
