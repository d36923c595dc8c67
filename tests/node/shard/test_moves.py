"""A queue moves to another shard (docs/decisions/queues.md, 16): with its messages, deadlines, lease and order, exactly
once, whatever gets lost on the way."""

from random import Random

import pytest
from pamqp.commands import Basic

from mayfly.cluster.versions import (
    LEVEL_HIGHEST,
    LEVEL_LETTERS_BEHIND_ARRIVALS,
    LEVEL_LETTERS_NOT_CROSSED,
    LEVEL_NUMBERED_MOVES,
    LEVEL_PLACES_KEPT,
    LEVEL_QUEUE_MOVES,
    LEVEL_RELEASES_GET_THROUGH,
    LEVEL_RETURNS_COUNTED,
)
from mayfly.node.shard import commands
from mayfly.node.shard.commands import ACK, GIVE_BACK, KEPT, REJECT, REQUEUE, LetterContent, RouteDecision
from mayfly.node.shard.departing import take_in_lane
from mayfly.node.shard.message import FAILED
from mayfly.node.shard.outbox import SCHEDULED, item_kind
from mayfly.node.shard.results import (
    Attached,
    Crossed,
    Deleted,
    GetResult,
    Moved,
    Published,
    Purged,
    QueueCounts,
    Refused,
)
from mayfly.node.shard.room import ANY_ROOM, NO_ROOM
from mayfly.node.shard.settings import ShardQueueSettings, encode_terms
from mayfly.node.shard.shard import Shard
from tests.node.amqp.headers import build_header
from tests.node.shard.driver import A, B, Close, Driver, encode_transfer
from tests.node.shard.moving_shards import HEADER, KEY, MovingShards
from tests.node.shard.test_rescheduling import change, later

Q = 40
DLQ = 41


def moved(messages: int = 0, **settings: object) -> MovingShards:
    """A queue with messages m0... that has begun to move from 1 to 2."""
    shards = MovingShards()
    shards.create(Q, 1, **settings)
    if messages:
        shards.publish(1, Q, *[f"m{number}" for number in range(messages)])
    shards.ask_to_move(Q, 2)
    shards.lead_moves(1)
    return shards


def bodies(count: int, first: int = 0) -> list[str]:
    return [f"m{number}" for number in range(first, first + count)]


def test_messages_arrive_in_order_and_what_is_published_in_the_old_shard_goes_behind_them() -> None:
    """D7."""
    shards = moved(20)
    shards.publish(1, Q, *bodies(3, 20))
    shards.finish_moves()
    assert shards.home[Q] == 2
    shards.publish(1, Q, "late")
    shards.finish_moves()
    shards.publish(2, Q, "direct")
    assert shards.ready(Q) == [*bodies(23), "late", "direct"]
    assert not shards.shards[1].shard.live_entries()


def test_no_entry_puts_more_into_the_lane_than_there_is_room_for() -> None:
    """C4."""
    shards = moved(50)
    lane = shards.shards[1].shard.lane(Q)
    assert lane is not None and len(lane.items) == 3
    shards.finish_moves()
    assert shards.ready(Q) == bodies(50)


def test_the_old_shard_says_where_the_queue_is() -> None:
    shards = moved(2)
    asked: list[bytes] = [
        commands.encode_get(Q, 9, False), commands.encode_attach(Q, 5, 0, False, False, 0),
        commands.encode_touch_queue(Q), commands.encode_purge(Q), commands.encode_delete_queue(Q, False, False),
    ]  # fmt: skip
    for command in asked:
        (answer,) = shards.run(1, command)
        assert isinstance(answer, Moved) and (answer.queue_id, answer.shard) == (Q, 2)


def test_while_messages_are_on_their_way_an_empty_queue_is_not_called_empty() -> None:
    shards = moved(4)
    shards.send(None, 1)
    for command in (
        commands.encode_get(Q, 9, False), commands.encode_purge(Q), commands.encode_delete_queue(Q, False, True),
    ):  # fmt: skip
        (answer,) = shards.run(2, command)
        assert isinstance(answer, Moved) and answer.shard == 2
    shards.finish_moves()
    (purged,) = shards.run(2, commands.encode_purge(Q))
    assert isinstance(purged, Purged) and purged.messages == 4
    (empty,) = shards.run(2, commands.encode_get(Q, 9, False))
    assert isinstance(empty, GetResult) and empty.message is None
    (deleted,) = shards.run(2, commands.encode_delete_queue(Q, True, True))
    assert isinstance(deleted, Deleted)


@pytest.mark.parametrize("ttl_ms", [1, 500, 5000])
def test_a_deadline_is_kept_by_what_is_left_of_it_and_is_never_earlier(ttl_ms: int) -> None:
    """T4, T5, C2."""
    shards = MovingShards()
    shards.create(Q, 1, dead_letter_exchange="dlx")
    shards.publish(1, Q, "a", ttl_ms=ttl_ms)
    published_ms = shards.now_ms
    shards.now_ms += ttl_ms // 2
    shards.ask_to_move(Q, 2)
    shards.finish_moves()
    while not shards.shards[2].shard.unrouted(1):
        assert shards.now_ms < published_ms + 2 * ttl_ms
        shards.tick(2)
        if not shards.shards[2].shard.unrouted(1):
            shards.now_ms += 1
    assert shards.now_ms == published_ms + ttl_ms
    (death,) = shards.shards[2].shard.unrouted(2)
    assert (death.reason, shards.shards[2].body(death.message)) == ("expired", "a")


def test_the_way_is_not_charged_to_a_deadline() -> None:
    """T5: what was sent and arrives late has as much left as when it was sent."""
    shards = moved(1, message_ttl_ms=1000)
    shards.send(None, 1)
    (sent,) = shards.transfers(1, next(iter(shards.shards[1].shard.filled_lanes())))
    shards.now_ms += 600
    shards.lead(2, sent[1])
    found = shards.shards[2].shard.queue(Q)
    assert found is not None
    assert found.ready.first().deadline_ms == shards.now_ms - 700_000 + 1000


def test_a_ttl_that_counts_for_what_is_queued_counts_for_what_was_on_its_way() -> None:
    """T12."""
    shards = moved(2, message_ttl_ms=1000, ttl_retroactive=True)
    shards.send(None, 1)
    terms = encode_terms(ShardQueueSettings(message_ttl_ms=5000, ttl_retroactive=True))
    shards.lead(2, commands.encode_update_queues(terms, [Q]))
    shards.finish_moves()
    found = shards.shards[2].shard.queue(Q)
    assert found is not None
    assert [message.deadline_ms for message in found.ready.live()] == [shards.now_ms - 700_000 + 5000] * 2


def test_what_is_held_is_settled_in_the_old_shard_and_comes_back_to_the_front_of_the_new_one() -> None:
    """T4, Q1."""
    shards = MovingShards()
    shards.create(Q, 1)
    shards.publish(1, Q, *bodies(6))
    for _ in range(4):
        shards.run(1, commands.encode_get(Q, 9, False))
    shards.ask_to_move(Q, 2)
    shards.finish_moves()
    assert shards.ready(Q) == ["m4", "m5"]
    shards.run(1, commands.encode_settle(Q, 9, ACK, [1]), commands.encode_settle(Q, 9, REQUEUE, [3, 2]))
    shards.finish_moves()
    assert shards.ready(Q) == ["m2", "m1", "m4", "m5"]
    found = shards.shards[2].shard.queue(Q)
    assert found is not None
    assert [(m.acquired_count, m.delivery_count) for m in found.returned.live()] == [(1, 1), (1, 1)]
    shards.shards[1].entry(shards.now_ms, Close(A))
    shards.finish_moves()
    assert shards.ready(Q) == ["m2", "m1", "m3", "m4", "m5"]


def test_what_is_rejected_in_the_old_shard_dies_there() -> None:
    shards = MovingShards()
    shards.create(Q, 1, dead_letter_exchange="dlx", delivery_limit=0)
    shards.publish(1, Q, *bodies(2))
    shards.run(1, commands.encode_get(Q, 9, False), commands.encode_get(Q, 9, False))
    shards.ask_to_move(Q, 2)
    shards.finish_moves()
    shards.run(1, commands.encode_settle(Q, 9, REJECT, [1]), commands.encode_settle(Q, 9, REQUEUE, [2]))
    deaths = [(shards.shards[1].body(each.message), each.reason) for each in shards.shards[1].shard.unrouted(9)]
    assert deaths == [("m0", "rejected"), ("m1", "delivery_limit")]
    assert shards.ready(Q) == []


def test_priorities_are_kept() -> None:
    """Q2: in the new shard each is where it was, those that came back first."""
    shards = MovingShards()
    shards.create(Q, 1, max_priority=3)
    found = shards.shards[1].shard.queue(Q)
    assert found is not None
    for number, priority in enumerate((0, 2, 0, 3, 2)):
        parts: list[bytes] = []
        header = build_header(Basic.Properties(priority=priority), 2)
        commands.encode_publish(parts, [Q], -1, KEY, header, f"m{number}".encode())
        shards.run(1, *parts)
    shards.run(1, commands.encode_get(Q, 9, False))
    shards.run(1, commands.encode_get(Q, 9, False))
    shards.run(1, commands.encode_settle(Q, 9, GIVE_BACK, [2]))
    shards.ask_to_move(Q, 2)
    shards.finish_moves()
    assert shards.ready(Q) == ["m1", "m4", "m0", "m2"]
    shards.run(1, commands.encode_settle(Q, 9, GIVE_BACK, [1]))
    shards.finish_moves()
    assert shards.ready(Q) == ["m3", "m1", "m4", "m0", "m2"]


def test_a_lease_is_neither_shortened_nor_begun_anew() -> None:
    """L4, L8."""
    shards = MovingShards()
    shards.create(Q, 1, expires_ms=1000)
    shards.now_ms += 400
    shards.ask_to_move(Q, 2)
    shards.finish_moves()
    shards.now_ms += 599
    shards.tick(2)
    assert shards.shards[2].shard.queue(Q) is not None
    shards.now_ms += 1
    shards.tick(1)
    shards.tick(2)
    assert shards.shards[2].shard.queue(Q) is None
    assert shards.shards[1].shard.queue(Q) is not None
    assert shards.shards[2].shard.deleted[Q].reason == "expired"


def test_a_queue_does_not_expire_before_all_of_it_has_come() -> None:
    """L11: what is to be dead-lettered with it must be there."""
    shards = moved(9, expires_ms=10, expires_dead_letter=True, dead_letter_exchange="dlx")
    shards.send(None, 1)
    shards.now_ms += 50
    shards.tick(2)
    assert shards.shards[2].shard.queue(Q) is not None
    shards.finish_moves()
    shards.tick(2)
    assert shards.shards[2].shard.queue(Q) is None
    while shards.shards[2].shard.next_message_due_ms() == 0:
        shards.tick(2)
    assert [shards.shards[2].body(death.message) for death in shards.shards[2].shard.unrouted(20)] == bodies(9)


def test_a_consumer_holds_the_lease_until_it_is_attached_again_and_has_settled_all() -> None:
    """L3, L5."""
    shards = MovingShards()
    shards.create(Q, 1, expires_ms=100)
    shards.run(1, commands.encode_attach(Q, 5, 0, False, False, 0))
    shards.publish(1, Q, "a")
    shards.ask_to_move(Q, 2)
    shards.finish_moves()
    assert shards.moved_consumers(1) == [(5, 2)]
    shards.run(1, commands.encode_settle(Q, 5, ACK, [1]))
    shards.finish_moves()
    shards.now_ms += 5000
    shards.tick(2)
    (attached,) = shards.run(2, commands.encode_attach(Q, 6, 0, False, False, 0, again=True))
    assert isinstance(attached, Attached)
    shards.run(1, commands.encode_detach(Q, 5, KEPT))
    shards.finish_moves()
    shards.now_ms += 5000
    shards.tick(2)
    shards.run(2, commands.encode_detach(Q, 6, KEPT))
    shards.now_ms += 99
    shards.tick(2)
    assert shards.shards[2].shard.queue(Q) is not None
    shards.now_ms += 1
    shards.tick(2)
    assert shards.shards[2].shard.queue(Q) is None


def test_a_consumer_whose_node_is_lost_lets_go_of_the_lease() -> None:
    """L3."""
    shards = MovingShards()
    shards.create(Q, 1, expires_ms=100)
    shards.run(1, commands.encode_attach(Q, 5, 0, False, False, 0))
    shards.publish(1, Q, "a")
    shards.ask_to_move(Q, 2)
    shards.finish_moves()
    shards.shards[1].entry(shards.now_ms, Close(A))
    shards.finish_moves()
    assert shards.ready(Q) == ["a"]
    shards.now_ms += 100
    shards.tick(2)
    assert shards.shards[2].shard.queue(Q) is None


def test_the_place_of_an_exclusive_consumer_is_kept() -> None:
    shards = MovingShards()
    shards.create(Q, 1)
    shards.run(1, commands.encode_attach(Q, 5, 0, False, True, 0))
    shards.ask_to_move(Q, 2)
    shards.finish_moves()
    (refused,) = shards.run(2, commands.encode_attach(Q, 5, 0, False, False, 0), session=B)
    assert isinstance(refused, Refused)
    (attached,) = shards.run(2, commands.encode_attach(Q, 6, 0, False, True, 0, again=True))
    assert isinstance(attached, Attached)
    shards.run(1, commands.encode_detach(Q, 5, KEPT))
    shards.finish_moves()
    (refused,) = shards.run(2, commands.encode_attach(Q, 5, 0, False, False, 0), session=B)
    assert isinstance(refused, Refused)


@pytest.mark.parametrize("level", [LEVEL_PLACES_KEPT - 1, LEVEL_HIGHEST])
def test_no_exclusive_consumer_comes_before_those_that_are_on_their_way(level: int) -> None:
    shards = MovingShards(level=level)
    shards.create(Q, 1)
    shards.run(1, commands.encode_attach(Q, 5, 0, False, False, 0))
    shards.ask_to_move(Q, 2)
    shards.finish_moves()
    exclusive = commands.encode_attach(Q, 7, 0, False, True, 0)
    (answer,) = shards.run(2, exclusive, session=B)
    is_kept = level >= LEVEL_PLACES_KEPT
    assert isinstance(answer, Refused if is_kept else Attached)
    (answer,) = shards.run(2, commands.encode_attach(Q, 6, 0, False, False, 0, again=True))
    assert isinstance(answer, Attached if is_kept else Refused)
    shards.run(2, commands.encode_detach(Q, 6, KEPT), commands.encode_detach(Q, 7, KEPT))
    shards.run(1, commands.encode_detach(Q, 5, KEPT))
    shards.finish_moves()
    (answer,) = shards.run(2, commands.encode_attach(Q, 8, 0, False, True, 0), session=B)
    assert isinstance(answer, Attached if is_kept else Refused)


def test_a_single_active_consumer_gets_nothing_before_what_was_delivered_is_settled() -> None:
    shards = MovingShards()
    shards.create(Q, 1, single_active_consumer=True)
    shards.run(1, commands.encode_attach(Q, 5, 1, False, False, 0))
    shards.publish(1, Q, *bodies(3))
    shards.ask_to_move(Q, 2)
    shards.finish_moves()
    shards.run(2, commands.encode_attach(Q, 6, 1, False, False, 0, again=True), session=B)
    shards.run(1, commands.encode_detach(Q, 5, KEPT))
    assert shards.delivered(2) == []
    assert shards.shards[2].shard.next_message_due_ms() == -1
    shards.run(1, commands.encode_settle(Q, 5, ACK, [1]))
    shards.finish_moves()
    found = shards.shards[2].shard.queue(Q)
    assert found is not None and found.held_count == 1 and found.moving is None


def test_publishes_that_may_be_refused_are_taken_by_the_old_shard_and_count_in_the_new_one() -> None:
    shards = moved(2, max_length=2, overflow="reject-publish")
    parts: list[bytes] = []
    commands.encode_publish(parts, [Q], -1, KEY, HEADER, b"m2")
    (published,) = shards.run(1, commands.encode_guard(1), *parts)
    assert isinstance(published, Published) and not published.refused
    shards.finish_moves()
    assert shards.ready(Q) == bodies(3)
    (published,) = shards.run(2, commands.encode_guard(1), *parts)
    assert isinstance(published, Published) and published.refused == [0]


def test_a_queue_that_drops_its_oldest_messages_goes_on_doing_so() -> None:
    shards = moved(3, max_length=3)
    shards.publish(1, Q, *bodies(3, 3))
    shards.finish_moves()
    assert shards.ready(Q) == bodies(3, 3)


def test_who_has_published_in_the_old_shard_hears_when_that_has_arrived() -> None:
    shards = moved(10)
    (crossed,) = shards.run(1, commands.encode_cross(Q, 0))
    assert isinstance(crossed, Crossed) and (crossed.done, crossed.up_to) == (False, 0)
    shards.finish_moves()
    parts: list[bytes] = []
    commands.encode_publish(parts, [Q], -1, KEY, HEADER, b"late")
    (crossed,) = shards.run(1, *parts, commands.encode_cross(Q, 0))
    assert isinstance(crossed, Crossed) and not crossed.done and crossed.up_to > 0
    shards.finish_moves()
    (crossed,) = shards.run(1, commands.encode_cross(Q, crossed.up_to))
    assert isinstance(crossed, Crossed) and crossed.done
    assert shards.ready(Q)[-1] == "late"


def route(shards: MovingShards, shard: int, *targets: tuple[int, int]) -> None:
    """The oldest death of a shard goes to these (shard, queue)."""
    (death,) = shards.shards[shard].shard.unrouted(1)
    content = LetterContent(KEY, HEADER, shards.shards[shard].body(death.message).encode())
    local = [queue for where, queue in targets if where == shard]
    remote = [(where, queue) for where, queue in targets if where != shard]
    decision = RouteDecision(death.sequence, commands.ROUTED, local, remote, content)
    shards.lead(shard, commands.encode_route([decision]))


@pytest.mark.parametrize("said", [1, 2])
def test_dead_letters_to_a_queue_that_moves_keep_their_order(said: int) -> None:
    """D6, D7: whether or not whoever routes them knows that it has left."""
    shards = MovingShards()
    shards.create(DLQ, 1, message_ttl_ms=1, dead_letter_exchange="dlx")
    shards.create(Q, 1)
    for number in range(8):
        shards.publish(1, DLQ, f"m{number}")
        shards.now_ms += 2
        shards.tick(1)
        route(shards, 1, (1 if number < 5 else said, Q))
        if number == 4:
            shards.ask_to_move(Q, 2)
            shards.lead_moves(1)
    shards.finish_moves()
    assert shards.ready(Q) == bodies(8)


def arriving_beside_a_death(level: int = LEVEL_HIGHEST) -> MovingShards:
    """A queue that has left shard 1 for 2 with m0, and is made there, but m0 is still on its way; the letter m1 comes
    of a queue of shard 2, as m0 did. Of a queue that refuses publishes the catalog says by now where it is."""
    shards = MovingShards(level=level)
    shards.create(DLQ, 2, message_ttl_ms=1, dead_letter_exchange="dlx")
    shards.create(Q, 1, max_length=9, overflow="reject-publish")
    for number, shard in enumerate((1, 2)):
        shards.publish(2, DLQ, f"m{number}")
        shards.now_ms += 2
        shards.tick(2)
        if number == 1:
            shards.ask_to_move(Q, 2)
            shards.lead_moves(1)
            shards.send(None, 1)
        route(shards, 2, (shard, Q))
        shards.send(None, 2)
        shards.settle_lanes(2)
    found = shards.shards[2].shard.queue(Q)
    assert found is not None and found.is_arriving
    return shards


def test_d7_a_letter_in_the_shard_to_which_a_queue_comes_waits_for_all_that_was_in_it() -> None:
    """D7: what died before it may be among that."""
    shards = arriving_beside_a_death()
    (answer,) = shards.run(2, commands.encode_get(Q, 9, True))
    assert isinstance(answer, Moved)
    shards.shards[2].restore()
    shards.finish_moves()
    assert shards.ready(Q) == bodies(2)


def test_below_its_level_that_letter_goes_before_them() -> None:
    shards = arriving_beside_a_death(LEVEL_LETTERS_BEHIND_ARRIVALS - 1)
    (answer,) = shards.run(2, commands.encode_get(Q, 9, True))
    assert isinstance(answer, GetResult) and answer.message is not None
    assert shards.shards[2].body(answer.message) == "m1"


@pytest.mark.parametrize("room", [0, 3])
def test_dead_letters_from_other_shards_follow_the_queue_exactly_once(room: int) -> None:
    """D6, D8: what was received before the move is not received again after it."""
    shards = MovingShards()
    limits: dict[str, object] = {"max_length": room, "overflow": "reject-publish"} if room else {}
    shards.create(DLQ, 3, message_ttl_ms=1, dead_letter_exchange="dlx")
    shards.create(Q, 1, **limits)
    for number in range(5):
        shards.publish(3, DLQ, f"m{number}")
        shards.now_ms += 2
        shards.tick(3)
        route(shards, 3, (1, Q))
    shards.send(None, 3)
    shards.ask_to_move(Q, 2)
    for _ in range(30):
        shards.lead_moves(1)
        shards.send(None, 1)
        shards.settle_lanes(1)
        shards.send(None, 3)
    assert shards.home[Q] == 2
    got = []
    for _ in range(9):
        (result,) = shards.run(2, commands.encode_get(Q, 9, True))
        assert isinstance(result, GetResult)
        if result.message is not None:
            got.append(shards.shards[2].body(result.message))
        shards.send(None, 3)
        shards.settle_lanes(3)
    assert got == bodies(5)


def test_dead_letters_that_waited_for_room_in_their_own_shard_go_with_the_queue() -> None:
    """D8."""
    shards = MovingShards()
    shards.create(DLQ, 1, message_ttl_ms=1, dead_letter_exchange="dlx")
    shards.create(Q, 1, max_length=2, overflow="reject-publish")
    for number in range(4):
        shards.publish(1, DLQ, f"m{number}")
        shards.now_ms += 2
        shards.tick(1)
        route(shards, 1, (1, Q))
    late = shards.transfers(1, next(iter(shards.shards[1].shard.filled_lanes())))
    shards.ask_to_move(Q, 2)
    shards.lead_moves(1)
    for target, command in late:
        shards.lead(target, command)
    shards.finish_moves()
    assert shards.ready(Q) == bodies(4)


def test_what_comes_again_with_more_behind_it_is_taken_from_where_it_was() -> None:
    """D6."""
    shards = MovingShards(items_in_lane=10)
    shards.create(Q, 1)
    shards.publish(1, Q, *bodies(6))
    shards.ask_to_move(Q, 2)
    shards.lead_moves(1)
    shards.send(None, 1)
    (lane,) = shards.shards[1].shard.filled_lanes()
    few, more = shards.transfers(1, lane, 2), shards.transfers(1, lane, 5)
    for target, command in (*few, *more, *few):
        shards.lead(target, command)
    found = shards.shards[2].shard.queue(Q)
    assert found is not None
    assert [shards.shards[2].body(message) for message in found.ready.live()] == bodies(5)
    shards.finish_moves()
    assert shards.ready(Q) == bodies(6)


def test_there_and_back_and_on() -> None:
    """An old MOVE_IN or TRANSFER_MOVED that comes again does nothing."""
    shards = moved(4)
    shards.finish_moves()
    for target in (1, 3, 2, 1, 2):
        shards.publish(shards.home[Q], Q, f"to{target}")
        shards.ask_to_move(Q, target)
        shards.finish_moves()
        for where, command in shards.sent:
            shards.lead(where, command)
        shards.finish_moves()
    assert shards.ready(Q) == [*bodies(4), "to1", "to3", "to2", "to1", "to2"]


def test_all_that_brings_items_of_a_lane_says_whose_they_are() -> None:
    """Nodes without a replica of the source answer by that."""
    shards = moved(4)
    shards.finish_moves()
    kinds = {command[0] for _, command in shards.sent}
    assert kinds == {commands.MOVE_OUT_NUMBERED, commands.MOVE_IN, commands.TRANSFER_MOVED}
    for _, command in shards.sent:
        assert commands.transferred(command) == (None if command[0] == commands.MOVE_OUT_NUMBERED else (1, Q))
    letter = encode_transfer(1, Q, 99, [LetterContent(KEY, HEADER, b"late")])
    assert commands.transferred(letter) == (1, Q)
    assert commands.transferred(commands.encode_drop_queue(Q)) is None


def test_d8_a_queue_that_has_left_or_has_not_all_yet_has_no_room_for_letters_of_others() -> None:
    """They would be refused there: large ones for nothing, and each second again."""
    shards = moved(4)
    old, new = shards.shards[1].shard, shards.shards[2].shard
    assert old.room(Q, 3) == NO_ROOM
    shards.send(None, 1)
    assert new.queue(Q) is not None and new.room(Q, 3) == NO_ROOM and new.room(Q, 1) == ANY_ROOM
    shards.finish_moves()
    assert new.room(Q, 3) == ANY_ROOM


def test_a_queue_that_was_deleted_does_not_come_back() -> None:
    shards = moved(4)
    shards.finish_moves()
    shards.run(2, commands.encode_delete_queue(Q, False, False))
    for where, command in shards.sent:
        shards.lead(where, command)
    assert shards.shards[2].shard.queue(Q) is None
    shards.lead(1, commands.encode_drop_queue(Q), commands.encode_lane_closed(Q))
    assert not shards.shards[1].shard.live_entries()


def test_below_its_level_a_shard_moves_nothing() -> None:
    driver = Driver(level=LEVEL_QUEUE_MOVES - 1)
    driver.create(Q)
    before = driver.shard.digest()
    driver.lead(commands.encode_move_out(Q, 2))
    found = driver.shard.queue(Q)
    assert found is not None and found.moving is None
    assert driver.shard.digest() == before


def test_a_move_out_that_comes_late_takes_a_queue_that_has_come_back_nowhere() -> None:
    """Whoever gave it had a catalog that was behind."""
    shards = moved(2)
    shards.finish_moves()
    shards.ask_to_move(Q, 1)
    shards.finish_moves()
    shards.shards[1].restore()
    found = shards.shards[1].shard.queue(Q)
    assert found is not None and found.moving is None and shards.shards[1].shard.move_number(Q) == 2
    for late in (0, 1, 2):
        shards.lead(1, commands.encode_move_out(Q, 2, late))
        assert not found.has_left
    shards.lead(1, commands.encode_move_out(Q, 2, 3))
    found = shards.shards[1].shard.queue(Q)
    assert found is not None and found.has_left and shards.shards[1].shard.move_number(Q) == 3


def test_below_the_level_at_which_moves_are_numbered_none_is() -> None:
    shards = MovingShards(level=LEVEL_NUMBERED_MOVES - 1)
    shards.create(Q, 1)
    shards.lead(1, commands.encode_move_out(Q, 2, 1))
    found = shards.shards[1].shard.queue(Q)
    assert found is not None and not found.has_left
    shards.lead(1, commands.encode_move_out(Q, 2))
    assert found.has_left and not shards.shards[1].shard.move_number(Q)
    assert not shards.shards[1].shard.move_in(Q)[1] & commands.FLAG_NUMBERED_MOVE


def test_a_queue_that_left_before_moves_were_numbered_has_its_number_from_the_next_on() -> None:
    shards = MovingShards(level=LEVEL_NUMBERED_MOVES - 1)
    shards.create(Q, 1)
    shards.publish(1, Q, *bodies(5))
    shards.ask_to_move(Q, 2)
    shards.lead_moves(1)
    shards.level = LEVEL_NUMBERED_MOVES
    for id in shards.shards:
        shards.lead(id, commands.encode_raise_level(LEVEL_NUMBERED_MOVES))
    shards.finish_moves()
    assert not shards.shards[2].shard.move_number(Q)
    shards.ask_to_move(Q, 1)
    shards.finish_moves()
    assert [shards.shards[id].shard.move_number(Q) for id in (1, 2)] == [2, 2]
    assert shards.ready(Q) == bodies(5)


def test_a_declare_finds_it_in_the_new_shard() -> None:
    shards = moved(3)
    shards.finish_moves()
    (counts,) = shards.run(2, commands.encode_touch_queue(Q))
    assert isinstance(counts, QueueCounts) and counts.ready == 3
    (answer,) = shards.run(1, commands.encode_touch_queue(Q))
    assert isinstance(answer, Moved)


def full_with_a_letter(level: int = LEVEL_HIGHEST) -> MovingShards:
    """A full queue that has moved to shard 2, and a letter to it without room in its lane from shard 1."""
    shards = MovingShards(level=level)
    shards.create(DLQ, 1, message_ttl_ms=1, dead_letter_exchange="dlx")
    shards.create(Q, 1, max_length=2, overflow="reject-publish")
    shards.publish(1, Q, *bodies(2))
    shards.ask_to_move(Q, 2)
    shards.finish_moves()
    letter(shards, 2)
    return shards


def letter(shards: MovingShards, said: int) -> None:
    """A message of shard 1 dies, and is routed to the queue where that is said to be."""
    shards.publish(1, DLQ, "letter")
    shards.now_ms += 2
    shards.tick(1)
    route(shards, 1, (said, Q))


def crossed(shards: MovingShards, up_to: int = 0) -> tuple[int, bool]:
    """What shard 1 says of what was published there."""
    (answer,) = shards.run(1, commands.encode_cross(Q, up_to))
    assert isinstance(answer, Crossed)
    return answer.up_to, answer.done


def test_publishers_do_not_wait_for_letters_without_room() -> None:
    shards = full_with_a_letter()
    assert crossed(shards) == (0, True)
    shards.publish(1, Q, "late")
    lane = shards.shards[1].shard.lane(Q)
    assert lane is not None
    late = lane.last_sequence()
    letter(shards, 2)
    assert crossed(shards) == (late, False), "what they have published is behind the first"
    shards.shards[1].restore()
    assert crossed(shards) == (late, False)
    shards.lead(1, commands.encode_settled(Q, late - 1))
    assert crossed(shards, late) == (late, False)
    shards.lead(1, commands.encode_settled(Q, late))
    assert crossed(shards, late) == (late, True) and crossed(shards) == (0, True)
    assert shards.shards[1].shard.has_lanes


def test_publishers_do_not_wait_for_letters_where_the_queue_is_again() -> None:
    shards = MovingShards()
    shards.create(DLQ, 1, message_ttl_ms=1, dead_letter_exchange="dlx")
    shards.create(Q, 1, max_length=2, overflow="reject-publish")
    for target in (2, 1):
        shards.ask_to_move(Q, target)
        shards.finish_moves()
    shards.publish(1, Q, *bodies(2))
    letter(shards, 1)
    assert shards.shards[1].shard.has_lanes
    assert crossed(shards) == (0, True)


def test_below_its_level_they_wait_for_those_too() -> None:
    shards = full_with_a_letter(LEVEL_LETTERS_NOT_CROSSED - 1)
    assert not crossed(shards)[1]


def full_behind_a_letter(level: int = LEVEL_HIGHEST) -> MovingShards:
    """A full queue with a single active consumer in shard 2; in the lane from 1, where that held a message, is a letter
    without room before the word that it holds nothing there any more."""
    shards = MovingShards(level=level)
    shards.create(DLQ, 1, message_ttl_ms=1, dead_letter_exchange="dlx")
    shards.create(Q, 1, single_active_consumer=True, max_length=2, overflow="reject-publish")
    shards.run(1, commands.encode_attach(Q, 5, 1, False, False, 0))
    shards.publish(1, Q, *bodies(3))
    shards.ask_to_move(Q, 2)
    shards.finish_moves()
    shards.run(2, commands.encode_attach(Q, 6, 1, False, False, 0, again=True))
    shards.run(1, commands.encode_detach(Q, 5, KEPT))
    letter(shards, 2)
    shards.run(1, commands.encode_settle(Q, 5, ACK, [1]))
    for _ in range(5):
        shards.send(None, 1)
        shards.settle_lanes(1)
    return shards


def test_d8_a_letter_without_room_does_not_hold_up_who_makes_room() -> None:
    """D8: the single active consumer waits for what stands behind it."""
    shards = full_behind_a_letter()
    assert [body for _, _, body in shards.delivered(2)] == ["m1"]
    assert shards.ready(Q) == ["m2", "letter"], "taken beyond the limit"
    shards.shards[1].restore()
    assert not shards.shards[1].shard.has_lanes


def test_below_its_level_the_letter_waits_for_room() -> None:
    shards = full_behind_a_letter(LEVEL_RELEASES_GET_THROUGH - 1)
    assert not shards.delivered(2) and shards.ready(Q) == ["m1", "m2"]


def test_d8_behind_that_mark_letters_wait_for_room_again() -> None:
    """D8."""
    shards = full_behind_a_letter()
    shards.delivered(2)
    letter(shards, 2)
    for _ in range(5):
        shards.send(None, 1)
        shards.settle_lanes(1)
    assert shards.ready(Q) == ["m2", "letter"] and shards.shards[1].shard.has_lanes


def coming_back(level: int = LEVEL_HIGHEST, **settings: object) -> tuple[MovingShards, bytes]:
    """A queue that is in shard 1 again, but for an end mark, which is in this command: and "late", which was published
    there in between, is in its lane still."""
    shards = MovingShards(level=level)
    shards.create(Q, 1, **settings)
    shards.ask_to_move(Q, 2)
    shards.finish_moves()
    shards.publish(1, Q, "late")
    shards.ask_to_move(Q, 1)
    shards.lead_moves(2)
    shards.send(None, 2)
    ((target, command),) = shards.transfers(2, next(iter(shards.shards[2].shard.filled_lanes())))
    assert target == 1
    return shards, command


@pytest.mark.parametrize(
    "asked",
    [
        commands.encode_get(Q, 9, False), commands.encode_purge(Q), commands.encode_delete_queue(Q, False, True),
        commands.encode_delete_queue(Q, True, False),
    ],
)  # fmt: skip
def test_what_a_queue_that_comes_back_has_in_its_lane_is_a_part_of_it(asked: bytes) -> None:
    """T13: a purge that was answered, or a get, has not passed over what was there."""
    shards, end_mark = coming_back()
    (answer,) = shards.shards[1].entry(shards.now_ms, (None, end_mark), (A, asked))
    assert isinstance(answer, Moved) and answer.shard == 1
    shards.finish_moves()
    assert shards.ready(Q) == ["late"]


def test_below_its_level_that_is_passed_over_as_it_was() -> None:
    shards, end_mark = coming_back(LEVEL_RETURNS_COUNTED - 1)
    (answer,) = shards.shards[1].entry(shards.now_ms, (None, end_mark), (A, commands.encode_purge(Q)))
    assert isinstance(answer, Purged) and answer.messages == 0


def test_l11_a_queue_that_expires_when_empty_does_not_with_something_in_its_lane() -> None:
    """L11."""
    shards, end_mark = coming_back(expires_ms=100, expires_if_empty=True)
    shards.now_ms += 1000
    shards.run(1)
    shards.lead(1, end_mark, commands.encode_expire_queue(Q, shards.epoch(1, Q)))
    found = shards.shards[1].shard.queue(Q)
    assert found is not None and not found.is_arriving
    shards.finish_moves()
    assert shards.ready(Q) == ["late"]


def test_what_was_published_in_the_entry_that_drops_a_queue_on_its_way_back_goes_with_it() -> None:
    shards, _ = coming_back()
    parts: list[bytes] = []
    commands.encode_publish(parts, [Q], -1, KEY, HEADER, b"later")
    shards.shards[1].entry(shards.now_ms, (A, b"".join(parts)), (None, commands.encode_drop_queue(Q)))
    shards.lead(1, commands.encode_lane_closed(Q))
    assert not shards.shards[1].shard.live_entries()


class Chaos:
    """Publishers, consumers and a queue that moves about; what leaders send gets lost, comes twice and late."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        level = LEVEL_HIGHEST if seed % 3 else LEVEL_NUMBERED_MOVES - 1
        in_lane, piece, returned = [self.random.randint(1, most) for most in (6, 3, 4)]
        self.shards = MovingShards(in_lane, piece, returned, level)
        self.ttl_ms = self.random.choice([-1, 30, 200])
        settings: dict[str, object] = {"dead_letter_exchange": "dlx"}
        if self.random.random() < 0.3:
            settings["delivery_limit"] = 50
        self.shards.create(Q, 1, **settings)
        self.known = dict.fromkeys("ab", 1)
        """Where each publisher's node thinks that the queue is."""
        self.crossing: dict[str, int] = {}
        self.published: dict[str, int] = {}
        self.held: list[tuple[int, int, str]] = []
        self.seen: dict[str, list[int]] = {name: [] for name in "ab"}
        self.returned: set[str] = set()
        self.over: list[str] = []

    def publish(self) -> None:
        name = self.random.choice("ab")
        if self.known[name] != self.shards.home[Q]:
            if self.random.random() < 0.5:
                self.learn(name)
                return
        elif name in self.crossing:
            self.learn(name)
            return
        for _ in range(self.random.randint(1, 4)):
            body = f"{name}{sum(each.startswith(name) for each in self.published)}"
            self.published[body] = self.shards.now_ms
            self.shards.publish(self.known[name], Q, body, ttl_ms=self.ttl_ms)

    def learn(self, name: str) -> None:
        """Cross over from each shard where the queue was, as a node does that hears of the move."""
        if name not in self.crossing:
            self.crossing[name] = 0
        for shard in self.shards.shards:
            up_to = 0
            for _ in range(400):
                (answer,) = self.shards.run(shard, commands.encode_cross(Q, up_to))
                assert isinstance(answer, Crossed)
                if answer.done:
                    break
                up_to = answer.up_to
                self.leaders()
            else:
                return
        del self.crossing[name]
        self.known[name] = self.shards.home[Q]

    def leaders(self) -> None:
        for source in self.shards.shards:
            self.shards.lead_moves(source)
            self.shards.send(self.random, source)
            if self.random.random() < 0.6:
                self.shards.settle_lanes(source)

    def get(self) -> None:
        home = self.shards.home[Q]
        (answer,) = self.shards.run(home, commands.encode_get(Q, 9, False))
        if isinstance(answer, Moved):
            if answer.shard == home:
                return
            home = answer.shard
            (answer,) = self.shards.run(home, commands.encode_get(Q, 9, False))
        if isinstance(answer, GetResult) and answer.message is not None:
            body = self.shards.shards[home].body(answer.message)
            name, number = body[0], int(body[1:])
            assert (body in self.returned) == answer.message.redelivered
            if body not in self.returned:
                self.seen[name].append(number)
            if self.ttl_ms >= 0:
                # The way is not charged; a second is more than any way takes here.
                assert self.shards.now_ms < self.published[body] + self.ttl_ms + 1000
            self.held.append((home, answer.delivery_id, body))

    def settle(self) -> None:
        if not self.held:
            return
        shard, number, body = self.held.pop(self.random.randrange(len(self.held)))
        outcome = self.random.choice([ACK, ACK, GIVE_BACK, REQUEUE])
        self.shards.run(shard, commands.encode_settle(Q, 9, outcome, [number]))
        if outcome == ACK:
            self.over.append(body)
        else:
            self.returned.add(body)

    def lose_session(self) -> None:
        shard = self.random.choice(list(self.shards.shards))
        self.shards.shards[shard].entry(self.shards.now_ms, Close(A))
        self.returned.update(body for where, _, body in self.held if where == shard)
        self.held = [each for each in self.held if each[0] != shard]

    def step(self) -> None:
        roll = self.random.random()
        if roll < 0.3:
            self.publish()
        elif roll < 0.45:
            self.get()
        elif roll < 0.57:
            self.settle()
        elif roll < 0.75:
            self.leaders()
        elif roll < 0.8:
            self.shards.ask_to_move(Q, self.random.randint(1, 3))
        elif roll < 0.82:
            self.lose_session()
        elif roll < 0.85:
            self.random.choice(list(self.shards.shards.values())).restore()
        else:
            self.shards.now_ms += self.random.randint(0, 10)
            for shard in self.shards.shards:
                self.shards.tick(shard)

    def judge(self) -> None:
        """Every message is in one place, in order, and none died early."""
        self.shards.finish_moves()
        deaths: list[str] = []
        for shard in self.shards.shards.values():
            for death in shard.shard.unrouted(100_000):
                body = shard.body(death.message)
                assert death.reason == "expired"
                assert death.time_ms - shard.ahead_ms >= self.published[body] + self.ttl_ms
                deaths.append(body)
        ready = self.shards.ready(Q)
        places = [*self.over, *deaths, *[body for _, _, body in self.held], *ready]
        assert sorted(places) == sorted(self.published)
        fresh = [body for body in ready if body not in self.returned]
        for name, numbers in self.seen.items():
            left = [int(body[1:]) for body in fresh if body[0] == name]
            assert [*numbers, *left] == sorted({*numbers, *left})


@pytest.mark.parametrize("seed", range(60))
def test_every_message_is_in_one_place_in_order_and_never_early(seed: int) -> None:
    """T4, T5, D6, D7."""
    chaos = Chaos(seed)
    for _ in range(300):
        chaos.step()
    chaos.judge()


def test_a_holder_that_failed_before_the_move_counts_in_the_new_shard() -> None:
    """Q1: the delivery limit counts across the move."""
    shards = MovingShards()
    shards.create(Q, 1, dead_letter_exchange="dlx", delivery_limit=1)
    shards.publish(1, Q, "a")
    shards.run(1, commands.encode_attach(Q, 5, 0, False, False, 0))
    shards.run(1, commands.encode_detach(Q, 5, FAILED))
    shards.ask_to_move(Q, 2)
    shards.finish_moves()
    shards.run(2, commands.encode_get(Q, 9, False), commands.encode_settle(Q, 9, REQUEUE, [1]))
    (death,) = shards.shards[2].shard.unrouted(9)
    assert death.reason == "delivery_limit"


def test_s2_s3_what_is_scheduled_moves_and_waits_on() -> None:
    """S2, S3: with what is left of its time, in bounded pieces, and so does what is published in the old shard."""
    shards = MovingShards()
    shards.create(Q, 1, allow_schedule=True)
    for number in range(10):
        shards.publish_later(1, Q, f"m{number}", after_ms=1000 - number)
    shards.ask_to_move(Q, 2)
    shards.lead_moves(1)
    shards.publish_later(1, Q, "late", after_ms=2000)
    shards.finish_moves()
    found = shards.shards[2].shard.queue(Q)
    assert found is not None and found.scheduled_count() == 11
    assert not shards.shards[1].shard.live_entries()
    shards.now_ms += 990
    shards.tick(2)
    assert shards.ready(Q) == []
    shards.now_ms += 10
    while shards.shards[2].shard.due_messages(shards.now_ms - 700_000):
        shards.tick(2)
    assert shards.ready(Q) == [f"m{number}" for number in reversed(range(10))]
    shards.now_ms += 1000
    shards.tick(2)
    assert shards.ready(Q)[10:] == ["late"]


def named(shards: MovingShards, shard: int, message_id: str, after_ms: int) -> None:
    """A publish that is due later, under an id."""
    shards.run(shard, later(message_id, Q, after_ms=after_ms))


def cancelled(shards: MovingShards, shard: int, *message_ids: str) -> tuple[list[int], list[int]]:
    """What was not decided, and where nothing was waiting."""
    changes = [change(each, queues=(Q,)) for each in message_ids]
    (answer,) = shards.run(shard, commands.encode_guard(len(changes)), *changes)
    assert isinstance(answer, Published)
    return answer.refused, answer.nowhere


def test_s4_what_has_moved_is_cancelled_where_it_is() -> None:
    """S4: on the way nothing is decided."""
    shards = MovingShards()
    shards.create(Q, 1, allow_schedule=True)
    for number in range(10):
        named(shards, 1, f"m{number}", 1000)
    shards.ask_to_move(Q, 2)
    shards.lead_moves(1)
    assert cancelled(shards, 1, "m1") == ([0], [])
    shards.finish_moves()
    assert cancelled(shards, 1, "m1") == ([0], [])
    assert cancelled(shards, 2, "m1", "m9", "m1") == ([], [2])
    found = shards.shards[2].shard.queue(Q)
    assert found is not None and found.scheduled_count() == 8


def test_s4_what_has_come_back_out_of_a_lane_is_cancelled_too() -> None:
    """S4: a queue that returns before all of it has gone, and a replica that began with a snapshot then."""
    shards = MovingShards()
    shards.create(Q, 1, allow_schedule=True)
    for number in range(10):
        named(shards, 1, f"m{number}", 1000)
    shards.ask_to_move(Q, 2)
    shards.lead_moves(1)
    state = shards.shards[1].shard._state
    digests = dict(state.outbox.lanes[Q].digests)
    assert digests
    restored = Shard(1, 1)
    restored.restore(shards.shards[1].shard.snapshot())
    assert restored._state.outbox.lanes[Q].digests == digests
    lane, queue = state.outbox.lanes[Q], state.queues[Q]
    while item_kind(lane.items[0]) != SCHEDULED:
        state.release(state.outbox.take_from_lane(lane).index, 1)
    before = queue.scheduled_count()
    state.begin_entry()
    take_in_lane(state, queue, len(digests))
    assert queue.scheduled_count() == before + len(digests)
    schedule = queue.schedule
    assert schedule is not None
    assert sum(bool(schedule.find(digest, 1)) for digest in digests.values()) == len(digests)
