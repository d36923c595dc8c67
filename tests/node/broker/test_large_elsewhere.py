"""Large messages on other ways than a publish and a death: redriven, copied, out of one node's memory."""

from __future__ import annotations

import random

import pytest
from pamqp import commands

from mayfly.cluster.group.pieces import PIECE_BYTES, PIECES_UNDER_WAY
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.versions import LEVELS
from mayfly.node.catalog import MoveQueue
from mayfly.node.dead_letter import RedriveTerms
from mayfly.node.numbers import stream_source
from mayfly.node.shard.redrive_commands import encode_start_redrive
from tests.node.broker.test_in_pieces import BODY, OVERHEAD_BYTES, SHARDS, Measured, publish_bytes, shards_of_queues
from tests.node.broker.test_large_dead_letters import Dying
from tests.node.broker.three_brokers import start_anew
from tests.node.conftest import Client, Delivery

BOUND = PIECES_UNDER_WAY * PIECE_BYTES + OVERHEAD_BYTES
BODIES = [random.Random(number).randbytes(size) for number, size in ((2, 9), (3, 3 * PIECE_BYTES), (4, 5), (5, 6))]


def stream_of(brokers: Measured, client: Client, name: str, most: int) -> list[Delivery]:
    """What is in a stream, from its first message on."""
    client.send(7, commands.Channel.Open())
    client.send(7, commands.Basic.Qos(prefetch_count=2 * most))
    client.send(7, commands.Basic.Consume(queue=name, consumer_tag="r", arguments={"x-stream-offset": "first"}))
    found: list[Delivery] = []
    for _ in range(400):
        if len(found) >= most:
            break
        brokers.step()
        found += [each for each in client.take(7) if isinstance(each, Delivery)]
    client.send(7, commands.Channel.Close(reply_code=200, reply_text="", class_id=0, method_id=0))
    brokers.settle()
    client.take(7)
    return found


def check_bounds(brokers: Measured, ways: int = 1) -> None:
    """Nothing that was counted had more than some pieces of as many large messages as there are ways at a time."""
    assert max(store.largest_entry for store in brokers.counting) <= PIECE_BYTES + OVERHEAD_BYTES
    assert max(store.largest_write for store in brokers.counting) <= ways * BOUND
    assert brokers.largest_frame <= ways * BOUND


def taken(brokers: Measured, name: str) -> list[bytes]:
    """All that is in a queue."""
    client = brokers.nodes[2].client()
    return [bytes(client.get(name).body) for _ in range(client.count(name))]


def received(brokers: Measured) -> list[int]:
    """How much of `origin` each copy has."""
    shards = brokers.nodes[1].engine.shards
    queues = {queue.name: queue for queue in brokers.nodes[1].engine.catalog.queues()}
    source = stream_source(queues["origin"].id)
    copies = [queue for name, queue in queues.items() if name.startswith("copy")]
    return [shards[copy.shard].received_up_to(copy.id, source) for copy in copies]


class Buried(Dying):
    """What is published to `dying` is in `large0` then, and nowhere else."""

    def __init__(self) -> None:
        super().__init__()
        for number in range(1, SHARDS):
            self.publisher.send(1, commands.Queue.Unbind(queue=f"large{number}", exchange="amq.fanout"))
        self.settle()

    def redrive(self, to: str) -> None:
        record = self.nodes[1].engine.catalog.queue("/", "large0")
        assert record is not None
        terms = RedriveTerms(queue=to).encoded()
        answers: list[object] = []
        self.nodes[1].engine.shard(record.shard).submit(encode_start_redrive(record.id, terms, 0), answers.append)
        self.run_until(lambda: answers)


@pytest.mark.parametrize("to", [f"large{number}" for number in range(1, SHARDS)] + ["small0"])
def test_r1_a_large_message_is_redriven_without_its_body_written_again(to: str) -> None:
    brokers = Buried()
    bodies = [BODIES[0], BODY, BODIES[2], BODY[1:], BODIES[3]]
    brokers.publish_dying(*bodies)
    brokers.pass_until(lambda: brokers.messages_in("large0") == len(bodies))
    brokers.count()
    brokers.redrive(to)
    brokers.pass_until(lambda: brokers.messages_in(to) == len(bodies))
    check_bounds(brokers)
    own, elsewhere = brokers.shard_of("large0"), brokers.shard_of(to)
    written = 0 if own == elsewhere else len(BODY) * 2
    assert max(store.octets for store in brokers.counting) <= written + 16 * OVERHEAD_BYTES
    for id in brokers.ids:
        start_anew(brokers, id, LEVELS)
    assert brokers.taken(to) == bodies
    assert brokers.messages_in("large0") == 0


@pytest.mark.parametrize("victim", [0, 1, 2, 3])
@pytest.mark.parametrize("mirror", [False, True])
def test_j4_large_messages_of_streams_are_copied_in_pieces(victim: int, mirror: bool) -> None:
    """Whichever leader dies meanwhile, each comes once and in order, to shards elsewhere and to its own."""
    brokers = Measured()
    brokers.publisher.declare("origin", arguments={"x-queue-type": "stream"})
    origin = {"x-mirror": "origin"} if mirror else {"x-sources": ["origin"]}
    for number in range(SHARDS * 2):
        brokers.nodes[1 + number % 3].client().declare(
            f"copy{number}", arguments={"x-queue-type": "stream", **origin}
        )
    brokers.settle()
    assert len(shards_of_queues(brokers, "copy")) >= 3
    brokers.publisher.take()
    bodies = [BODIES[0], BODIES[1], BODIES[2], BODIES[1][1:], BODIES[3]]
    brokers.largest_frame = 0
    for store in brokers.counting:
        store.largest_write = store.largest_entry = 0
    brokers.running = False
    for body in bodies:
        brokers.publish_large(body, "", "origin")
    for _ in range(2_000):
        if max(received(brokers)) > 1:
            break
        brokers._work()
    assert min(received(brokers)) < len(bodies)
    brokers.running = True
    if victim:
        start_anew(brokers, victim, LEVELS)
    for _ in range(40):
        brokers.step()
    # What the client of node 1 had still to send dies with that.
    bodies = bodies[: brokers.nodes[2].client().count("origin")]
    assert len(bodies) >= (2 if victim == 1 else 5)
    for _ in range(300):
        if min(received(brokers)) == len(bodies):
            break
        brokers.step()
    assert received(brokers) == [len(bodies)] * SHARDS * 2
    if not victim:
        check_bounds(brokers, 2)
    for number in range(SHARDS * 2):
        copies = stream_of(brokers, brokers.nodes[2].client(), f"copy{number}", len(bodies))
        assert [bytes(each.body) for each in copies] == bodies


def test_d6_large_messages_that_die_in_one_nodes_memory_go_to_shards_in_pieces() -> None:
    brokers = Measured()
    terms = {"x-message-ttl": 1000, "x-dead-letter-exchange": "amq.fanout"}
    brokers.publisher.declare("dying", durable=False, arguments=terms)
    brokers.settle()
    brokers.publisher.take()
    bodies = [BODIES[0], BODY, BODIES[2]]
    for body in bodies:
        brokers.publish_large(body, "", "dying")
    brokers.run_until(lambda: [tag for tag, _, _ in brokers.publisher.acks(2)][-1:] == [len(bodies)])
    for _ in range(400):
        if all(brokers.nodes[1].client().count(f"large{number}") == len(bodies) for number in range(SHARDS)):
            break
        brokers.step()
    check_bounds(brokers)
    for number in range(SHARDS):
        client = brokers.nodes[2].client()
        assert [bytes(client.get(f"large{number}").body) for _ in bodies] == bodies


class Committing(Measured):
    """A client whose channel 3 is in tx mode."""

    def __init__(self) -> None:
        super().__init__()
        self.client = self.nodes[1].client()
        self.client.open_channel(3)
        self.client.call(3, commands.Tx.Select())

    def publish(self, body: bytes, exchange: str, key: str = "") -> None:
        self.client.send_bytes(publish_bytes(3, body, exchange, key))

    def shard(self, name: str) -> int:
        record = self.nodes[1].engine.catalog.queue("/", name)
        assert record is not None
        return record.shard

    def declare_full(self, shard: int) -> str:
        """A queue in this shard that takes one message."""
        for number in range(40):
            arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
            self.nodes[1 + number % 3].client().declare(name := f"full{number}", arguments=arguments)
            self.settle()
            if self.shard(name) == shard:
                return name
        raise AssertionError("no queue came into the shard")

    def commit(self) -> None:
        self.client.take(3)
        self.client.send(3, commands.Tx.Commit())
        self.run_until(lambda: [type(each) for each in self.client.take(3)] == [commands.Tx.CommitOk])


BIG = BODIES[1]
COMMITTED = [BODIES[0], BIG, BODIES[2], BIG[1:], BODIES[3]]


def test_large_messages_of_a_transaction_go_in_pieces_to_one_shard_after_the_other() -> None:
    brokers = Committing()
    shards = shards_of_queues(brokers, "large")
    brokers.largest_frame = 0
    for store in brokers.counting:
        store.octets = store.largest_write = store.largest_entry = 0
    for body in COMMITTED:
        brokers.publish(body, "amq.fanout")
    brokers.commit()
    check_bounds(brokers)
    octets = len(shards) * sum(map(len, COMMITTED))
    assert octets <= max(store.octets for store in brokers.counting) <= octets + 64 * OVERHEAD_BYTES
    for id in brokers.ids:
        start_anew(brokers, id, LEVELS)
    for number in range(SHARDS):
        assert taken(brokers, f"large{number}") == COMMITTED
        assert brokers.nodes[2].client().count(f"large{number}") == 0


def test_a_large_transaction_settles_what_it_settles() -> None:
    brokers = Committing()
    brokers.publish(b"first", "", "large0")
    brokers.commit()
    got = brokers.client.get("large0", 3, no_ack=False)
    brokers.client.send(3, commands.Basic.Ack(delivery_tag=got.tag))
    for body in COMMITTED:
        brokers.publish(body, "", "large0")
    brokers.commit()
    brokers.client.lose()
    assert taken(brokers, "large0") == COMMITTED


@pytest.mark.parametrize("body", [BIG, b"small"], ids=["large", "small"])
def test_what_a_commit_settles_and_does_not_do_comes_back_with_its_channel(body: bytes) -> None:
    """Its consumers are cancelled: nothing of the channel names who holds it."""
    brokers = Committing()
    names = [f"large{number}" for number in range(SHARDS)]
    one, other = next((a, b) for a in names for b in names if brokers.shard(a) != brokers.shard(b))
    full = brokers.declare_full(brokers.shard(one))
    for name in (one, other, full):
        brokers.publish(name.encode(), "", name)
    brokers.commit()
    client = brokers.client
    for name in (one, other):
        client.send(3, commands.Basic.Consume(queue=name, consumer_tag=name))
    got: list[Delivery] = []

    def has_come() -> bool:
        got.extend([each for each in client.take(3) if isinstance(each, Delivery)])
        return len(got) == 2

    brokers.run_until(has_come)
    for name in (one, other):
        client.send(3, commands.Basic.Cancel(consumer_tag=name))
    brokers.step()
    for delivery in got:
        client.send(3, commands.Basic.Ack(delivery_tag=delivery.tag))
    brokers.publish(b"refused", "", full)
    brokers.publish(body, "", other)
    client.send(3, commands.Tx.Commit())
    brokers.run_until(lambda: any(isinstance(each, commands.Channel.Close) for each in client.take(3)))
    client.send(3, commands.Channel.CloseOk())
    brokers.step()
    assert taken(brokers, one) == [one.encode()], "it is not acknowledged, and was held by a cancelled consumer"
    assert taken(brokers, other) == [body]


def test_d7_what_was_committed_before_a_move_comes_before_what_is_committed_after_it() -> None:
    """Another client of the node has gone over to the new shard while the commit waited in the line."""
    brokers = Committing()
    catalog = brokers.nodes[1].engine.catalog
    old = brokers.shard("large0")
    new = next(queue.shard for queue in catalog.queues() if queue.shard != old)
    line = brokers.nodes[1].broker.large_publishes
    for body in COMMITTED:
        brokers.publish(body, "", "large0")
    line.enter(old, 1, lambda _: None)
    brokers.client.take(3)
    brokers.client.send(3, commands.Tx.Commit())
    assert line.waiting_bytes
    brokers.nodes[1].engine.submit_catalog(MoveQueue("/", "large0", new), lambda _: None)
    brokers.run_until(lambda: brokers.shard("large0") == new)
    other = brokers.nodes[1].client()
    other.open_channel(5, confirms=True)
    other.send_bytes(publish_bytes(5, b"other", "", "large0"))
    brokers.run_until(lambda: other.acks(5))
    brokers.silent.add(new)
    line.leave(old, 1)
    brokers.run_until(lambda: [type(each) for each in brokers.client.take(3)] == [commands.Tx.CommitOk])
    brokers.publish(b"after", "", "large0")
    brokers.client.send(3, commands.Tx.Commit())
    for _ in range(40):
        brokers.step()
    brokers.silent.clear()
    brokers.run_until(lambda: [type(each) for each in brokers.client.take(3)] == [commands.Tx.CommitOk])
    for _ in range(100):
        brokers.step()
    there = taken(brokers, "large0")
    assert [body for body in there if body != b"other"] == [*COMMITTED, b"after"]


def test_a_small_message_of_a_large_transaction_is_read_alone() -> None:
    brokers = Committing()
    bodies = [BIG, *[b"%d" % number for number in range(50)]]
    for body in bodies:
        brokers.publish(body, "", "large0")
    brokers.commit()
    client = brokers.nodes[1].client()
    cache = brokers.nodes[1].engine.host.cache
    cache.drop_joined()
    got = [bytes(client.get("large0").body) for _ in bodies]
    assert got == bodies
    assert cache._joined == b"", "nothing was put together"


@pytest.mark.parametrize("rounds", [5, 20, 40])
@pytest.mark.parametrize("victim", [2, 3])
def test_a_large_transaction_is_all_or_nothing_for_a_shard_though_a_node_dies_meanwhile(
    rounds: int, victim: int
) -> None:
    brokers = Committing()
    for body in COMMITTED:
        brokers.publish(body, "amq.fanout")
    brokers.running = False
    brokers.client.take(3)
    brokers.client.send(3, commands.Tx.Commit())
    for _ in range(rounds):
        brokers._work()
    brokers.running = True
    start_anew(brokers, victim, LEVELS)
    brokers.run_until(lambda: [type(each) for each in brokers.client.take(3)] == [commands.Tx.CommitOk])
    for number in range(SHARDS):
        assert taken(brokers, f"large{number}") == COMMITTED


def test_d6_what_was_committed_with_others_dies_as_all_messages_do() -> None:
    """Its body, or its names, stand in the middle of what is elsewhere."""
    brokers = Committing()
    brokers.client.declare("dying", 3, arguments={"x-message-ttl": 1000, "x-dead-letter-exchange": "amq.fanout"})
    for body in COMMITTED:
        brokers.publish(body, "", "dying")
    brokers.commit()
    brokers.largest_frame = 0
    for store in brokers.counting:
        store.octets = store.largest_write = store.largest_entry = 0
    for _ in range(400):
        if all(brokers.nodes[1].client().count(f"large{number}") == len(COMMITTED) for number in range(SHARDS)):
            break
        brokers.step()
    check_bounds(brokers)
    shards = {queue.name: queue.shard for queue in brokers.nodes[1].engine.catalog.queues()}
    others = sum(shards[f"large{number}"] != shards["dying"] for number in range(SHARDS))
    assert others < SHARDS
    assert max(store.octets for store in brokers.counting) <= others * sum(map(len, COMMITTED)) + 64 * OVERHEAD_BYTES
    for number in range(SHARDS):
        assert taken(brokers, f"large{number}") == COMMITTED


def test_r4_what_was_committed_with_others_is_noted_as_all_messages_are() -> None:
    brokers = Committing()
    brokers.client.declare("notes", 3, arguments={"x-queue-type": "stream"})
    brokers.client.declare("dying", 3, arguments={"x-message-ttl": 1000, "x-journal": "notes"})
    for body in COMMITTED:
        brokers.publish(body, "", "dying")
    brokers.commit()
    notes = stream_of(brokers, brokers.nodes[2].client(), "notes", len(COMMITTED))
    assert [note.properties.headers["body-bytes"] for note in notes] == [len(body) for body in COMMITTED]
    assert {note.properties.headers["routing-key"] for note in notes} == {"dying"}


def test_large_dead_letters_to_a_nodes_memory_go_one_after_the_other() -> None:
    """Others have their time between them, for such a one is not cut."""
    brokers = Measured()
    host = brokers.nodes[2].client()
    names = [f"fleeting{number}" for number in range(4)]
    for name in names:
        host.declare(name, durable=False)
        host.send(1, commands.Queue.Bind(queue=name, exchange="amq.direct", routing_key="k"))
    terms = {"x-message-ttl": 1000, "x-dead-letter-exchange": "amq.direct", "x-dead-letter-routing-key": "k"}
    for name in ("dying", "dying as well"):
        brokers.publisher.declare(name, arguments=terms)
    brokers.settle()
    brokers.publisher.take()
    largest: list[int] = []

    def watch(frame: Frame) -> None:
        notices = [*frame.notices, *(frame.unordered.notices if frame.unordered is not None else ())]
        largest.append(sum(len(data) for _, data in notices))

    brokers.watches = watch
    for name in ("dying", "dying as well"):
        brokers.publish_large(BIG, "", name)
    for _ in range(400):
        if all(host.count(name) == 2 for name in names):
            break
        brokers.step()
    assert sum(largest) >= 4 * len(BIG)
    assert max(largest) <= len(BIG) + OVERHEAD_BYTES
    assert all(taken(brokers, name) == [BIG, BIG] for name in names)
