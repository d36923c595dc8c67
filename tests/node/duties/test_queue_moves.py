"""Queues move to other shards while clients of three nodes use them (docs/decisions/queues.md, 16)."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pamqp import commands
from pamqp.commands import Basic

from mayfly.cluster.versions import LEVEL_NUMBERED_MOVES, LEVEL_QUEUE_MOVES, LEVELS
from mayfly.node.broker.unacknowledged import DeliveryHolder
from mayfly.node.catalog import (
    Catalog,
    DeclareQueue,
    Done,
    FoundCluster,
    MoveQueue,
    NeedsLevel,
    QueueDeclared,
    QueueMoved,
    QueueRecord,
    SetPolicy,
)
from mayfly.node.catalog.shard_settings import shard_settings
from mayfly.node.duties.lane_transfers import EARLIER_DEATHS_MS
from mayfly.node.duties.queue_moves import HELD_UP_MS, QueueMoves
from mayfly.node.duties.shard_leader import RECONCILE_EVERY_MS
from mayfly.node.shard.commands import encode_attach, encode_create_queue, encode_move_out
from mayfly.node.shard.outbox import LETTER, Lane, item_kind
from tests.node.broker.three_brokers import ThreeBrokers
from tests.node.conftest import Client
from tests.node.shard.moving_shards import MovingShards

SHARDS = 3


@pytest.fixture
def brokers() -> ThreeBrokers:
    return ThreeBrokers(shards=SHARDS)


def call(brokers: ThreeBrokers, client: Client, method: Any) -> Any:
    """What a node answers, however much virtual time it takes."""
    client.take(1)
    client.send(1, method)
    brokers.run_until(lambda: client.received)
    return client.take(1)[-1]


def declare(brokers: ThreeBrokers, client: Client, name: str = "q", **arguments: Any) -> QueueRecord:
    named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    call(brokers, client, commands.Queue.Declare(queue=name, durable=True, arguments=named))
    return record_of(brokers, name)


def record_of(brokers: ThreeBrokers, name: str = "q", node: int = 1) -> QueueRecord:
    record = brokers.nodes[node].engine.catalog.queue("/", name)
    assert record is not None
    return record


def ask(brokers: ThreeBrokers, shard: int, name: str = "q", node: int = 1) -> None:
    answers: list[object] = []
    brokers.nodes[node].engine.submit_catalog(MoveQueue("/", name, shard), answers.append)
    brokers.run_until(lambda: answers)


def move(brokers: ThreeBrokers, shard: int, name: str = "q") -> None:
    """The queue is in that shard, as all nodes have it."""
    ask(brokers, shard, name)
    brokers.run_until(lambda: all(record_of(brokers, name, node).shard == shard for node in brokers.ids))


def another(record: QueueRecord) -> int:
    return record.shard % SHARDS + 1


def publish(client: Client, queue: str, numbers: range) -> None:
    client.send_bytes(b"".join(client.publish_bytes(1, queue, b"%d" % number) for number in numbers))


def take(brokers: ThreeBrokers, client: Client, queue: str = "q") -> list[int]:
    """Everything in a queue."""
    found: list[int] = []
    while True:
        got = call(brokers, client, Basic.Get(queue=queue, no_ack=True))
        if isinstance(got, Basic.GetEmpty):
            return found
        found.append(int(got.body))


def bodies(got: list[Any]) -> list[int]:
    return [int(each.body) for each in got if hasattr(each, "body")]


def test_messages_are_in_the_new_shard_in_order(brokers: ThreeBrokers) -> None:
    client, other = brokers.nodes[1].client(), brokers.nodes[2].client()
    record = declare(brokers, client)
    publish(client, "q", range(1500))
    brokers.run_until(lambda: not brokers.nodes[1].broker.owes_answers)
    brokers.step()
    move(brokers, another(record))
    counts = call(brokers, other, commands.Queue.Declare(queue="q", passive=True))
    assert counts.message_count == 1500
    assert take(brokers, other) == list(range(1500))


def test_publishers_of_all_nodes_go_over_in_order_and_every_publish_is_confirmed(brokers: ThreeBrokers) -> None:
    """Each publishes on while the queue moves there, on, and back."""
    first = brokers.nodes[1].client()
    record = declare(brokers, first)
    clients = [brokers.nodes[node].client(channel=False) for node in brokers.ids]
    for client in clients:
        client.open_channel(confirms=True)
    sent = 0
    for target in (another(record), another(record) % SHARDS + 1, record.shard):
        ask(brokers, target)
        while record_of(brokers).shard != target or sent % 100:
            for place, client in enumerate(clients):
                publish(client, "q", range(place * 100_000 + sent, place * 100_000 + sent + 10))
            sent += 10
            brokers.step()
            assert sent < 2000
    brokers.run_until(lambda: not any(node.broker.owes_answers for node in brokers.nodes.values()))
    for client in clients:
        confirmed = 0
        for tag, multiple, refused in client.acks():
            assert not refused
            confirmed = tag if multiple else max(confirmed, tag)
        assert confirmed == sent
    got = take(brokers, first)
    assert len(got) == 3 * sent == len(set(got))
    for place in range(3):
        mine = [number for number in got if number // 100_000 == place]
        assert mine == sorted(mine)


def test_consumers_go_on_without_hearing_of_it(brokers: ThreeBrokers) -> None:
    consuming, publishing = brokers.nodes[2].client(), brokers.nodes[3].client()
    record = declare(brokers, publishing)
    call(brokers, consuming, Basic.Qos(prefetch_count=50))
    consuming.consume("q")
    publish(publishing, "q", range(20))
    got: list[Any] = []

    def all_came(count: int) -> bool:
        got.extend(consuming.take(1))
        return len(bodies(got)) >= count

    brokers.run_until(lambda: all_came(20))
    for round_, target in enumerate((another(record), record.shard)):
        move(brokers, target)
        publish(publishing, "q", range(20 * round_ + 20, 20 * round_ + 40))
        brokers.run_until(lambda count=20 * round_ + 40: all_came(count))  # type: ignore[misc]
        tag = max(each.tag for each in got if hasattr(each, "body"))
        consuming.send(1, Basic.Ack(delivery_tag=tag, multiple=True))
        brokers.step()
    assert bodies(got) == list(range(60))
    assert not [each for each in got if isinstance(each, Basic.Cancel)]
    brokers.run_until(lambda: held(brokers) == 0)
    consuming.send(1, Basic.Cancel(consumer_tag="tag"))
    publish(publishing, "q", range(2))
    brokers.run_until(lambda: ready(brokers) == 2)


def held(brokers: ThreeBrokers, name: str = "q") -> int:
    """Unacknowledged in all shards, as node 1 has them."""
    record = record_of(brokers, name)
    queues = [shard.queue(record.id) for shard in brokers.nodes[1].engine.shards.values()]
    return sum(queue.held_count for queue in queues if queue is not None)


def ready(brokers: ThreeBrokers, name: str = "q") -> int:
    record = record_of(brokers, name)
    found = brokers.nodes[1].engine.shards[record.shard].queue(record.id)
    return -1 if found is None else found.ready_count()


def test_what_a_consumer_holds_is_settled_and_what_it_gives_back_comes_first(brokers: ThreeBrokers) -> None:
    client = brokers.nodes[1].client()
    record = declare(brokers, client)
    publish(client, "q", range(5))
    brokers.step()
    tags = [call(brokers, client, Basic.Get(queue="q")).tag for _ in range(3)]
    move(brokers, another(record))
    client.send(1, Basic.Ack(delivery_tag=tags[0]), Basic.Nack(delivery_tag=tags[2]))
    brokers.run_until(lambda: ready(brokers) == 3)
    assert call(brokers, client, Basic.Get(queue="q")).body == b"2"
    client.send(1, commands.Channel.Close(200, "", 0, 0))
    brokers.run_until(lambda: ready(brokers) == 4)
    assert sorted(take(brokers, brokers.nodes[2].client())) == [1, 2, 3, 4]


def test_q3_what_was_held_before_a_move_times_out_with_its_consumer(brokers: ThreeBrokers) -> None:
    """RULES Q3: what it holds in the old shard and in the new one comes back, and nothing is attached any more."""
    client = brokers.nodes[1].client()
    record = declare(brokers, client, queue_type="quorum")
    publish(client, "q", range(2))
    arguments: Any = {"x-consumer-timeout": 1_000}
    call(brokers, client, Basic.Consume(queue="q", consumer_tag="tag", arguments=arguments))
    brokers.run_until(lambda: ready(brokers) == 0)
    client.take(1)
    move(brokers, another(record))
    publish(client, "q", range(2, 4))
    brokers.run_until(lambda: len(client.received) == 6)
    assert bodies(client.take(1)) == [2, 3]
    began_ms = brokers.now_ms
    while not client.received:
        brokers.step()
        client.connection.tick(brokers.now_ms)
        assert brokers.now_ms < began_ms + 5_000
    assert [item.consumer_tag for item in client.take(1)] == ["tag"]
    brokers.run_until(lambda: ready(brokers) == 4)
    client.send(1, Basic.Ack(delivery_tag=0, multiple=True))
    assert sorted(take(brokers, client)) == [0, 1, 2, 3]
    for _ in range(20):
        brokers.step()
    counts = call(brokers, client, commands.Queue.Declare(queue="q", passive=True))
    assert (counts.message_count, counts.consumer_count) == (0, 0)


def test_q2_a_queue_moves_with_its_priorities(brokers: ThreeBrokers) -> None:
    """RULES Q2: what came back first, then from 31 to 0."""
    client = brokers.nodes[1].client()
    record = declare(brokers, client, queue_type="quorum")
    client.publish(1, "q", b"9", priority=0)
    tag = call(brokers, client, Basic.Get(queue="q")).tag
    for body, priority in ((b"0", 0), (b"4", None), (b"31", 40), (b"5", 5)):
        client.publish(1, "q", body, **({} if priority is None else {"priority": priority}))
    client.send(1, Basic.Nack(delivery_tag=tag))
    brokers.run_until(lambda: ready(brokers) == 5)
    move(brokers, another(record))
    client.publish(1, "q", b"6", priority=6)
    brokers.run_until(lambda: ready(brokers) == 6)
    assert take(brokers, client) == [9, 31, 6, 5, 4, 0]


def test_a_consumer_that_is_cancelled_while_its_queue_moves_is_not_attached_again(brokers: ThreeBrokers) -> None:
    client = brokers.nodes[1].client()
    record = declare(brokers, client)
    client.consume("q")
    brokers.step()
    ask(brokers, another(record))
    client.send(1, Basic.Cancel(consumer_tag="tag"))
    brokers.run_until(lambda: record_of(brokers).shard == another(record))
    for _ in range(20):
        brokers.step()
    counts = call(brokers, client, commands.Queue.Declare(queue="q", passive=True))
    assert counts.consumer_count == 0
    found = brokers.nodes[1].engine.shards[another(record)].queue(record.id)
    assert found is not None and found.moving is None and found.lease.suspended_by == 0


def test_a_consumer_that_is_cancelled_while_it_is_attached_again_holds_nothing(brokers: ThreeBrokers) -> None:
    """L3: the answer to its cancel comes from the old shard when it has its place in the new one already."""
    node = brokers.nodes[2]
    client = node.client()
    record = declare(brokers, client)
    client.consume("q")
    brokers.run_until(lambda: len(node.broker.consumers.by_id) == 1)
    (consumer,) = node.broker.consumers.by_id.values()
    before = consumer.holder
    brokers.silent = {record.shard}
    client.send(1, Basic.Cancel(consumer_tag="tag"))
    new = DeliveryHolder(node.broker.consumers.new_id(), another(record), record.id)
    attach = encode_attach(record.id, new.holder_id, 0, False, False, 0)
    queue_there = encode_create_queue(record.id, shard_settings(node.engine.catalog, record))
    handle = node.engine.shard(another(record))
    handle.submit(queue_there, None)
    handle.submit(attach, None)
    node.broker.consumers.attached_again(consumer, new, handle)
    brokers.silent = set()
    brokers.run_until(lambda: not node.broker.owes_answers)
    assert before.holder_id not in node.broker.consumers.by_id and new.holder_id not in node.broker.consumers.by_id

    def attached() -> int:
        found = node.engine.shards[another(record)].queue(record.id)
        return -1 if found is None else found.consumers.count

    assert attached() == 0


def test_a_transaction_goes_over_behind_what_was_committed_before(brokers: ThreeBrokers) -> None:
    client = brokers.nodes[2].client()
    record = declare(brokers, client)
    call(brokers, client, commands.Tx.Select())
    publish(client, "q", range(10))
    call(brokers, client, commands.Tx.Commit())
    publish(client, "q", range(10, 20))
    ask(brokers, another(record))
    call(brokers, client, commands.Tx.Commit())
    move(brokers, another(record))
    publish(client, "q", range(20, 30))
    call(brokers, client, commands.Tx.Commit())
    assert take(brokers, brokers.nodes[3].client()) == list(range(30))


def test_a_queue_that_refuses_publishes_goes_on_doing_so(brokers: ThreeBrokers) -> None:
    client = brokers.nodes[1].client(channel=False)
    client.open_channel(confirms=True)
    record = declare(brokers, client, max_length=3, overflow="reject-publish")
    publish(client, "q", range(3))
    brokers.step()
    move(brokers, another(record))
    client.take(1)
    publish(client, "q", range(3, 5))
    brokers.run_until(lambda: not brokers.nodes[1].broker.owes_answers)
    assert {refused for _, _, refused in client.acks()} == {True}
    assert take(brokers, client) == [0, 1, 2]


@pytest.mark.parametrize("who", ["old", "new", "catalog"])
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_leader_is_lost_while_a_queue_moves(who: str, steps: int) -> None:
    brokers = ThreeBrokers(shards=SHARDS)
    first = brokers.nodes[1].client()
    record = declare(brokers, first)
    target = another(record)
    group = {"old": record.shard, "new": target, "catalog": 0}[who]
    lost = next(id for id, node in brokers.nodes.items() if node.engine.host.groups[group].established)
    node = brokers.nodes[lost % 3 + 1]
    client = node.client()
    publish(client, "q", range(1200))
    brokers.run_until(lambda: not node.broker.owes_answers and ready(brokers) == 1200)
    ask(brokers, target, node=node.id)
    for _ in range(steps):
        brokers.step()
    brokers.cut = {lost}
    for other in brokers.ids:
        if other != lost:
            brokers.nodes[other].engine.peer_down(lost, brokers.now_ms)
            brokers.nodes[lost].engine.peer_down(other, brokers.now_ms)
    brokers.run_until(lambda: record_of(brokers, node=node.id).shard == target)
    publish(client, "q", range(1200, 1250))
    assert take(brokers, client) == list(range(1250))


def test_deleting_it_while_it_moves_leaves_nothing(brokers: ThreeBrokers) -> None:
    client = brokers.nodes[1].client()
    record = declare(brokers, client)
    publish(client, "q", range(1200))
    brokers.run_until(lambda: ready(brokers) == 1200)
    ask(brokers, another(record))
    deleted = call(brokers, client, commands.Queue.Delete(queue="q"))
    assert deleted.message_count == 1200

    def nothing_is_left() -> bool:
        shards = [shard for node in brokers.nodes.values() for shard in node.engine.shards.values()]
        return not any(shard.queue_ids() or shard.live_entries() or list(shard.lanes()) for shard in shards)

    brokers.run_until(nothing_is_left, 2000)


def test_a_policy_that_comes_while_it_moves_counts(brokers: ThreeBrokers) -> None:
    """T12, L9."""
    client = brokers.nodes[1].client()
    record = declare(brokers, client)
    ask(brokers, another(record))
    answers: list[object] = []
    brokers.nodes[1].engine.submit_catalog(SetPolicy("/", "p", "^q$", {"message-ttl": 777}), answers.append)
    brokers.run_until(lambda: record_of(brokers).shard == another(record))

    def ttls() -> set[int]:
        queues = [node.engine.shards[another(record)].queue(record.id) for node in brokers.nodes.values()]
        return {-2 if queue is None else queue.ttl_ms for queue in queues}

    brokers.run_until(lambda: ttls() == {777})


def test_dead_letters_follow_a_queue_that_has_moved(brokers: ThreeBrokers) -> None:
    """D6, D7."""
    client = brokers.nodes[1].client()
    record = declare(brokers, client, "dead")
    declare(brokers, client, "a", message_ttl=100, dead_letter_exchange="", dead_letter_routing_key="dead")
    declare(brokers, client, "b", message_ttl=100, dead_letter_exchange="", dead_letter_routing_key="dead")
    for round_, target in enumerate((another(record), another(record) % SHARDS + 1, record.shard)):
        for place, queue in enumerate("ab"):
            first = place * 10_000 + round_ * 600
            publish(client, queue, range(first, first + 600))
        brokers.step()
        brokers.step()
        brokers.step()
        move(brokers, target, "dead")
    brokers.run_until(lambda: ready(brokers, "dead") == 3600)
    got = take(brokers, client, "dead")
    for place in range(2):
        mine = [number for number in got if number // 10_000 == place]
        assert mine == list(range(place * 10_000, place * 10_000 + 1800))


def hold_up_dead_letters(brokers: ThreeBrokers, client: Client) -> int:
    """Dead letters for "narrow", which is full, wait in a shard, whose number this is."""
    narrow = declare(brokers, client, "narrow", max_length=1, overflow="reject-publish")
    declare(brokers, client, "wide")
    timed = declare(
        brokers, client, "timed", message_ttl=100, dead_letter_exchange="", dead_letter_routing_key="narrow"
    )
    if timed.shard == narrow.shard:
        move(brokers, another(narrow), "timed")
    publish(client, "timed", range(3))
    brokers.run_until(lambda: ready(brokers, "timed") == 3)
    held_since_ms = brokers.now_ms
    brokers.run_until(lambda: brokers.now_ms - held_since_ms > 2000)
    assert ready(brokers, "narrow") == 1
    return record_of(brokers, "timed").shard


@pytest.mark.parametrize("dead_letter_key", ["", "wide"])
def test_a_queue_does_not_wait_for_dead_letters_that_its_own_do_not_follow(
    brokers: ThreeBrokers, dead_letter_key: str
) -> None:
    """D7: a queue without dead letters, and one whose dead letters go elsewhere."""
    client = brokers.nodes[1].client()
    shard = hold_up_dead_letters(brokers, client)
    dead = {"dead_letter_exchange": "", "dead_letter_routing_key": dead_letter_key} if dead_letter_key else {}
    record = declare(brokers, client, **dead)
    if record.shard != shard:
        move(brokers, shard)
    publish(client, "q", range(10))
    began_ms = brokers.now_ms
    move(brokers, shard % SHARDS + 1)
    assert take(brokers, client) == list(range(10))
    assert brokers.now_ms - began_ms < 2000


def test_a_queue_is_served_where_it_is_while_dead_letters_before_its_own_are_held_up(brokers: ThreeBrokers) -> None:
    """D7"""
    client = brokers.nodes[1].client()
    shard = hold_up_dead_letters(brokers, client)
    record = declare(brokers, client, dead_letter_exchange="", dead_letter_routing_key="narrow")
    if record.shard != shard:
        move(brokers, shard)
    ask(brokers, shard % SHARDS + 1)
    publish(client, "q", range(10))
    assert take(brokers, client) == list(range(10))
    began_ms = brokers.now_ms
    brokers.run_until(lambda: brokers.now_ms - began_ms > 5000)
    assert record_of(brokers).shard == shard
    publish(client, "q", range(10))
    assert take(brokers, client) == list(range(10))
    taken: list[int] = []

    def all_are_taken() -> bool:
        taken.extend(take(brokers, client, "narrow"))
        return len(taken) == 3

    brokers.run_until(all_are_taken)
    brokers.run_until(lambda: record_of(brokers).shard == shard % SHARDS + 1)


def test_a_lane_that_is_always_full_holds_a_queue_back_though_none_waits_long(brokers: ThreeBrokers) -> None:
    """D7"""
    client = brokers.nodes[1].client()
    declare(brokers, client, "narrow", max_length=1, overflow="reject-publish")
    declare(brokers, client, message_ttl=50, dead_letter_exchange="", dead_letter_routing_key="narrow")
    move(brokers, 1)
    move(brokers, 2, "narrow")
    taken: list[int] = []
    for number in range(14):
        publish(client, "q", range(number, number + 1))
        since_ms = brokers.now_ms
        brokers.run_until(lambda began_ms=since_ms: brokers.now_ms - began_ms > 300)  # type: ignore[misc]
        if number == 3:
            ask(brokers, 3)
        if number >= 2:
            got = call(brokers, client, Basic.Get(queue="narrow", no_ack=True))
            taken.append(int(got.body))
        found = brokers.nodes[1].engine.shards[1].queue(record_of(brokers).id)
        assert found is not None and not found.has_left

    def all_are_taken() -> bool:
        taken.extend(take(brokers, client, "narrow"))
        return len(taken) == 14

    brokers.run_until(all_are_taken)
    assert taken == list(range(14))
    brokers.run_until(lambda: record_of(brokers).shard == 3)


def test_new_leaders_do_not_wait_anew_for_dead_letters_on_their_way(brokers: ThreeBrokers) -> None:
    """D7: nobody is served by a queue that has left and is not there yet, so that has an end."""
    client = brokers.nodes[1].client()
    declare(brokers, client, "dead")
    record = declare(brokers, client, message_ttl=100, dead_letter_exchange="", dead_letter_routing_key="dead")
    move(brokers, 1)
    move(brokers, 2, "dead")
    publish(client, "q", range(3))
    brokers.run_until(lambda: ready(brokers) == 3)
    brokers.silent = {2}
    old = [node.engine.shards[1] for node in brokers.nodes.values()]
    brokers.run_until(lambda: all(shard.filled_lanes() for shard in old))
    ask(brokers, 3)

    def is_in(shard: int) -> bool:
        found = brokers.nodes[1].engine.shards[shard].queue(record.id)
        return found is not None and not found.has_left

    brokers.run_until(lambda: not is_in(1))
    began_ms, turns = brokers.now_ms, 0
    while not is_in(3):
        brokers.step()
        if brokers.now_ms - began_ms > 2000 * (turns + 1):
            turns += 1
            leader = next(node for node in brokers.nodes.values() if node.engine.host.groups[1].established)
            leader.engine.host.groups[1].raw.transfer_leader(leader.id % 3 + 1)
        assert brokers.now_ms - began_ms < 2 * EARLIER_DEATHS_MS
    assert turns >= 2
    assert brokers.now_ms - began_ms >= EARLIER_DEATHS_MS - 1000
    brokers.silent = set()
    brokers.run_until(lambda: ready(brokers, "dead") == 3)


def test_a_queue_waits_for_its_dead_letters_behind_a_queue_that_leaves_as_well(brokers: ThreeBrokers) -> None:
    """D7: those that die in the new shard must not overtake them."""
    client = brokers.nodes[1].client()
    dead = declare(brokers, client, "dead")
    record = declare(brokers, client, message_ttl=100, dead_letter_exchange="", dead_letter_routing_key="dead")
    move(brokers, 1)
    move(brokers, 1, "dead")
    brokers.silent = {2}
    ask(brokers, 2, "dead")
    old = [brokers.nodes[node].engine.shards[1] for node in brokers.ids if node not in brokers.silent]

    def behind_the_queue() -> bool:
        lanes = [shard.lane(dead.id) for shard in old]
        return all(lane is not None and LETTER in [item_kind(item) for item in lane.items] for lane in lanes)

    brokers.run_until(lambda: all(shard.lane(dead.id) is not None for shard in old))
    publish(client, "q", range(3))
    brokers.run_until(behind_the_queue)
    ask(brokers, 3)
    began_ms = brokers.now_ms
    while brokers.now_ms - began_ms < EARLIER_DEATHS_MS - 1000:
        brokers.step()
        arrived = brokers.nodes[1].engine.shards[3].queue(record.id)
        assert arrived is None or arrived.has_left
    brokers.silent = set()
    brokers.run_until(lambda: ready(brokers, "dead") == 3)
    brokers.run_until(lambda: record_of(brokers).shard == 3)


def test_r4_records_of_a_queue_that_moves_stay_in_order(brokers: ThreeBrokers) -> None:
    """What is noted in the new shard must not overtake what is on its way from the old one."""
    client = brokers.nodes[1].client()
    call(brokers, client, commands.Queue.Declare(queue="j", durable=True, arguments={"x-queue-type": "stream"}))
    journal = record_of(brokers, "j").shard
    source, target = sorted({1, 2, 3} - {journal})
    record = declare(brokers, client, message_ttl=100, journal="j")
    move(brokers, source)
    publish(client, "q", range(3))
    brokers.run_until(lambda: ready(brokers) == 3)
    brokers.silent = {journal}
    old = [node.engine.shards[source] for node in brokers.nodes.values()]
    brokers.run_until(lambda: all(shard.filled_lanes() for shard in old))
    ask(brokers, target)
    began_ms = brokers.now_ms
    while brokers.now_ms - began_ms < EARLIER_DEATHS_MS - 1000:
        brokers.step()
        arrived = brokers.nodes[1].engine.shards[target].queue(record.id)
        assert arrived is None or arrived.has_left
    brokers.silent = set()
    brokers.run_until(lambda: record_of(brokers).shard == target)
    brokers.run_until(lambda: ready(brokers, "j") == 3)


def test_queues_that_leave_together_and_dead_letter_to_each_other_do_not_wait(brokers: ThreeBrokers) -> None:
    """Each would wait for the other until the time for that is over, served nowhere."""
    client = brokers.nodes[1].client()
    for name, other in (("q", "p"), ("p", "q")):
        declare(brokers, client, name, dead_letter_exchange="", dead_letter_routing_key=other)
        move(brokers, 1, name)
        publish(client, name, range(3))
    brokers.run_until(lambda: ready(brokers) == ready(brokers, "p") == 3)
    began_ms = brokers.now_ms
    for name, shard in (("q", 2), ("p", 3)):
        brokers.nodes[1].engine.submit_catalog(MoveQueue("/", name, shard), lambda _: None)
    brokers.run_until(lambda: record_of(brokers).shard == 2 and record_of(brokers, "p").shard == 3)
    assert brokers.now_ms - began_ms < EARLIER_DEATHS_MS // 2


def test_below_its_level_a_move_is_refused() -> None:
    brokers = ThreeBrokers(shards=SHARDS, levels=LEVELS.limited(LEVEL_QUEUE_MOVES - 1))
    client = brokers.nodes[1].client()
    declare(brokers, client)
    answers: list[object] = []
    brokers.nodes[1].engine.submit_catalog(MoveQueue("/", "q", 2), answers.append)
    brokers.run_until(lambda: answers)
    assert isinstance(answers[0], NeedsLevel)


@pytest.mark.parametrize("level", [LEVEL_NUMBERED_MOVES - 1, LEVELS.highest])
def test_what_a_node_that_was_cut_off_says_of_an_earlier_move_loses_nothing(level: int) -> None:
    """Where moves have no numbers, the catalog takes it for the word on the later move from the same shard to the same,
    which has not begun."""
    brokers = ThreeBrokers(shards=SHARDS, levels=LEVELS.limited(level))
    client = brokers.nodes[1].client()
    record = declare(brokers, client)
    here, there = record.shard, another(record)
    move(brokers, there)
    move(brokers, here)
    publish(client, "q", range(50))
    brokers.run_until(lambda: not brokers.nodes[1].broker.owes_answers)
    # Both in one turn: the shard does not hear of the one before the other.
    engine, answers = brokers.nodes[2].engine, list[object]()
    engine.submit_catalog(MoveQueue("/", "q", there), answers.append)
    engine.submit_catalog(QueueMoved(record.id, here, there, 1), answers.append)
    brokers.run_until(lambda: len(answers) == 2)
    is_numbered = level >= LEVEL_NUMBERED_MOVES
    assert answers == [Done(True), Done(not is_numbered)]
    assert record_of(brokers, node=2).shard == (here if is_numbered else there)

    def has_arrived() -> bool:
        queue = brokers.nodes[1].engine.shards[there].queue(record.id)
        return queue is not None and not queue.has_left and queue.ready_count() == 50

    # A shard is compared with the catalog every half minute, and when a queue of it is said to have moved.
    began_ms = brokers.now_ms
    brokers.run_until(has_arrived)
    assert brokers.now_ms - began_ms < RECONCILE_EVERY_MS // 3
    brokers.run_until(lambda: all(record_of(brokers, node=node).shard == there for node in brokers.ids))
    assert take(brokers, client) == list(range(50))
    moves = record_of(brokers).moves
    assert moves is not None and moves.count == 3


@pytest.mark.parametrize("level", [LEVEL_NUMBERED_MOVES - 1, LEVELS.highest])
def test_a_queue_moves_on_after_it_had_begun_to_move_below_the_level_of_numbers(level: int) -> None:
    """The level rises while it is on its way: what is said of its move then has the number that the catalog knows."""
    brokers = ThreeBrokers(shards=SHARDS, levels=LEVELS.limited(LEVEL_NUMBERED_MOVES - 1))
    client = brokers.nodes[1].client()
    record = declare(brokers, client)
    publish(client, "q", range(1500))
    brokers.run_until(lambda: not brokers.nodes[1].broker.owes_answers)
    for node in brokers.nodes.values():
        node.engine.catalog._state.level = level
    move(brokers, another(record))
    move(brokers, record.shard)
    assert take(brokers, client) == list(range(1500))


class Judged:
    """What the leader of shard 1 gives for a queue that the catalog has on its `number`th move, to shard 2."""

    def __init__(self, number: int, **settings: object) -> None:
        self.catalog = Catalog(SHARDS)
        self.catalog.apply(FoundCluster(((1, "n1", "n1:1"),), 1, LEVELS.highest))
        declared = self.catalog.apply(DeclareQueue("/", "q", durable=True))
        assert isinstance(declared, QueueDeclared) and declared.queue.shard == 1
        self.id = declared.queue.id
        for each in range(1, number):
            source, target = (1, 2) if each % 2 else (2, 1)
            self.catalog.apply(MoveQueue("/", "q", target))
            self.catalog.apply(QueueMoved(self.id, source, target, each))
        self.catalog.apply(MoveQueue("/", "q", 2))
        self.shards = MovingShards()
        self.shards.create(self.id, 1, **settings)
        self.given: list[object] = []
        self.led = {1, 2, 3}
        """The shards that have a leader."""
        shard = self.shards.shards[1].shard
        port = cast(Any, self)
        self.moves = QueueMoves(shard, port, self.given.append, lambda now_ms: now_ms, self.has_room)

    def perform(self, now_ms: int = 1_000) -> list[object]:
        """What is given, or said to the catalog."""
        self.given.clear()
        self.moves.perform(now_ms)
        return self.given

    def has_leader(self, shard: int) -> bool:
        return shard in self.led

    def has_room(self, lane: Lane, now_ms: int) -> bool:
        return True

    def received_up_to(self, target_shard: int, queue: int, source: int) -> int:
        return 1_000_000

    def queue_moved(self, queue: int, source: int, target: int, number: int) -> None:
        self.given.append(QueueMoved(queue, source, target, number))

    def move(self, target: int) -> None:
        self.shards.ask_to_move(self.id, target)
        self.shards.finish_moves()


def test_a_leader_that_does_not_know_that_it_is_none_says_nothing_of_a_later_move() -> None:
    """Its shard's replica has the queue on its first move, all of which has arrived; the catalog on its third."""
    judged = Judged(3)
    judged.move(2)
    assert not judged.perform()


def test_a_leader_whose_catalog_is_behind_sends_no_queue_away_that_has_come_back() -> None:
    judged = Judged(1)
    judged.move(2)
    judged.move(1)
    assert not judged.perform()


def test_a_leader_gives_a_move_its_number_and_says_it_in_the_end() -> None:
    judged = Judged(1)
    assert judged.perform() == [encode_move_out(judged.id, 2, 1)]
    judged = Judged(1)
    judged.move(2)
    assert judged.perform() == [QueueMoved(judged.id, 1, 2, 1)]


def test_a_queue_does_not_leave_for_a_shard_that_nobody_leads() -> None:
    """It would be of no use to anybody until there is a majority for that one."""
    judged = Judged(1)
    judged.led = {1}
    assert not judged.perform() and not judged.perform(1_000 + HELD_UP_MS)
    judged.led = {1, 2}
    assert judged.perform(2_000 + HELD_UP_MS) == [encode_move_out(judged.id, 2, 1)]


def test_how_long_a_queue_has_waited_for_one_move_does_not_count_for_the_next() -> None:
    """D7: another queue moves all the while, so that something is always remembered."""
    judged = Judged(1, dead_letter_exchange="dlx")
    judged.catalog.apply(DeclareQueue("/", "other", durable=True))
    judged.catalog.apply(MoveQueue("/", "other", 3))
    judged.shards.create(99, 1, message_ttl_ms=1, dead_letter_exchange="dlx")
    judged.shards.publish(1, 99, "nobody routes this")
    judged.shards.now_ms += 2
    judged.shards.tick(1)
    first_ms = 2 * judged.shards.now_ms
    assert not judged.perform(first_ms)
    assert judged.perform(first_ms + HELD_UP_MS) == [encode_move_out(judged.id, 2, 1)]
    for source, target, number in ((1, 2, 1), (2, 1, 2)):
        judged.move(target)
        judged.catalog.apply(QueueMoved(judged.id, source, target, number))
        judged.catalog.apply(MoveQueue("/", "q", source))
    judged.catalog.apply(MoveQueue("/", "q", 2))
    later_ms = first_ms + 2 * HELD_UP_MS
    assert not judged.perform(later_ms)
    assert judged.perform(later_ms + HELD_UP_MS) == [encode_move_out(judged.id, 2, 3)]
