"""What has to happen for one message when few come: one queue, 1 000 messages of 1 KB a second, each acknowledged.

    PYTHONPATH=. python tests/bench/low_rate.py [--rate 1000] [--seconds 2]

Three whole nodes in one process on virtual time, so that the counts are the same each time: a frame takes 0.15 ms, a
write 0.4 ms, a client 0.05 ms to answer or to be reached; computing takes none. Per message, for each node and for all:

    frames     sent to another node          raft     Raft messages in them
    writes     synced transactions           entries  log entries made by the leader
    pumps      turns of the engine           idle     those of them from which nothing came
    sockets    writes to AMQP clients

and what publisher and consumer wait, in virtual ms. A last row has what happens in a second without any client.
"""

import argparse
import heapq
import itertools
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from pamqp import commands, frame

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.versions import LEVELS
from mayfly.node.numbers import CATALOG_GROUP
from tests.node.broker.three_brokers import TICK_MS, NodeWorld, ThreeBrokers

FRAME_US = 150
WRITE_US = 400
CLIENT_US = 50
SETTLE_MS = 500
AS_DECLARED = "where it was declared"
CASES: dict[str, tuple[int, int] | None] = {
    AS_DECLARED: None,
    "all on one node": (0, 0),
    "leader apart": (1, 1),
    "consumer apart": (0, 1),
    "publisher apart": (1, 0),
    "all apart": (1, 2),
}
"""Where publisher and consumer are, counted from the leader's node; None: on the node through which the queue was
declared, wherever its leader is."""


class TimedBrokers(ThreeBrokers):
    """Three nodes whose frames, writes and clients take time; after the start everything happens in `run`."""

    def __init__(self, shards: int, nodes: int = 3) -> None:
        super().__init__(shards=shards, nodes=nodes)
        self.now_us = self.now_ms * 1000
        self.counts: dict[int, Counter[str]] = {id: Counter() for id in self.ids}
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._scheduled: set[int] = set()
        self._due: dict[int, int] = {}
        """By node: for when it is to be pumped again."""
        self._quiet: dict[int, Any] = {}
        """By node: the write under way of which the node is not told when it ends, unless it looks before."""
        self._ended: dict[int, Any] = {}
        """...and one that has ended."""
        self.outputs: dict[Any, Callable[[bytes], None]] = {}

    def at(self, time_us: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time_us, next(self._numbers), action))

    def rest(self) -> None:
        """Until all is raised and led as it stays."""
        self.run_until(
            lambda: all(
                node.engine.catalog.level == LEVELS.highest
                and all(
                    group.leader == node.engine.catalog.members.plan[id][0]
                    for id, group in node.engine.host.groups.items()
                )
                and all(
                    id == CATALOG_GROUP or (id in node.engine.host.groups) == (node.id in replicas)
                    for id, replicas in node.engine.catalog.members.plan.items()
                )
                for node in self.nodes.values()
            )
        )

    def begin(self) -> None:
        """From here on time is kept; the nodes' ticks are not all at the same moment."""
        self.running = False
        self.now_us = self.now_ms * 1000
        for place, node in enumerate(self.nodes.values()):
            self._tick(node, self.now_us + place * TICK_MS * 1000 // len(self.nodes))

    def run(self, until_us: int) -> None:
        while self._events and self._events[0][0] <= until_us:
            time_us, _, action = heapq.heappop(self._events)
            self.now_us = time_us
            self.now_ms = time_us // 1000
            action()
        self.now_us = until_us

    def _tick(self, node: NodeWorld, at_us: int) -> None:
        def tick() -> None:
            node.engine.tick(self.now_ms)
            self.schedule(node)
            self._tick(node, at_us + TICK_MS * 1000)

        self.at(at_us, tick)

    def schedule(self, node: NodeWorld) -> None:
        """Pump when everything that happens at this moment has happened."""
        if node.id not in self._scheduled:
            self._scheduled.add(node.id)
            self.at(self.now_us, lambda: self._pump(node))

    def _pump(self, node: NodeWorld) -> None:
        self._scheduled.discard(node.id)
        counts = self.counts[node.id]
        self._quiet.pop(node.id, None)  # It has looked: it is told.
        ended = self._ended.pop(node.id, None)
        if ended is not None:
            self._store(node, ended)
        last = {id: group.raw.raft.raft_log.last_index() for id, group in node.engine.host.groups.items()}
        output = node.engine.pump(self.now_ms)
        for id, group in node.engine.host.groups.items():
            if group.leads:
                counts["entries"] += group.raw.raft.raft_log.last_index() - last[id]
        counts["pumps"] += 1
        for to, sent_frame in output.frames.items():
            counts["frames"] += 1
            counts["raft"] += len(sent_frame.raft)
            self.at(self.now_us + FRAME_US, partial(self._deliver, node.id, to, sent_frame))
        if output.write is not None:
            counts["writes"] += 1
            batch = output.write
            if not output.write_waits:
                self._quiet[node.id] = batch
            self.at(self.now_us + WRITE_US, lambda: self._written(node, batch))
        sent = False
        for each in node.later:
            each()
        node.later = []
        dirty, node.dirty = node.dirty, []
        for host in dirty:
            client = host.client
            if client is None:
                continue
            data = b"".join(client.connection.flush())
            if data:
                counts["sockets"] += 1
                sent = True
                take = self.outputs.get(client, client.output)
                self.at(self.now_us + CLIENT_US, partial(take, data))
        counts["idle"] += not (output.frames or output.write or sent)
        if node.engine.busy:
            self.schedule(node)
        if 0 <= output.due_ms < self._due.get(node.id, 1 << 62):
            due_ms = self._due[node.id] = output.due_ms
            self.at(due_ms * 1000, lambda: self._is_due(node, due_ms))

    def _is_due(self, node: NodeWorld, due_ms: int) -> None:
        if self._due.get(node.id) == due_ms:
            del self._due[node.id]
            self.schedule(node)

    def _deliver(self, sender: int, to: int, sent_frame: Frame) -> None:
        self.nodes[to].engine.receive(sender, sent_frame, self.now_ms)
        self.schedule(self.nodes[to])

    def _written(self, node: NodeWorld, batch: Any) -> None:
        if self._quiet.pop(node.id, None) is batch:
            self._ended[node.id] = batch
            return
        self._store(node, batch)
        self.schedule(node)

    def _store(self, node: NodeWorld, batch: Any) -> None:
        self.stores[node.id].write(batch)
        node.engine.persisted(self.now_ms)


class Flow:
    """A publisher with confirms and a consumer with a prefetch of 1 000, and how long each message took."""

    def __init__(self, brokers: TimedBrokers, publisher: NodeWorld, consumer: NodeWorld, queue: str) -> None:
        self._brokers = brokers
        self._homes = {"publisher": publisher, "consumer": consumer}
        self.publisher = publisher.client()
        self.consumer = consumer.client()
        self.publisher.send(1, commands.Confirm.Select())
        self.consumer.send(1, commands.Basic.Qos(prefetch_count=1000))
        self.publisher.declare(queue)
        self.consumer.consume(queue)
        self.publisher.take()
        self.consumer.take()
        self._queue = queue
        self._sent_us: list[int] = []
        self._confirmed = 0
        self.confirm_us: list[int] = []
        self.latency_us: list[int] = []
        brokers.outputs[self.publisher] = self._confirms
        brokers.outputs[self.consumer] = self._deliveries

    def publish(self) -> None:
        self._sent_us.append(self._brokers.now_us)
        data = self.publisher.publish_bytes(1, self._queue, b"x" * 1024, delivery_mode=2)
        self._input("publisher", self.publisher, data)

    def _input(self, name: str, client: Any, data: bytes) -> None:
        def receive() -> None:
            client.connection.receive(data)
            self._brokers.schedule(self._homes[name])

        self._brokers.at(self._brokers.now_us + CLIENT_US, receive)

    def _confirms(self, data: bytes) -> None:
        self.publisher.output(data)
        for tag, multiple, refused in self.publisher.acks():
            assert not refused
            first = self._confirmed + 1 if multiple else tag
            self.confirm_us += [self._brokers.now_us - self._sent_us[each - 1] for each in range(first, tag + 1)]
            self._confirmed = max(self._confirmed, tag)

    def _deliveries(self, data: bytes) -> None:
        self.consumer.output(data)
        for delivery in self.consumer.take(1):
            self.latency_us.append(self._brokers.now_us - self._sent_us[len(self.latency_us)])
            ack = commands.Basic.Ack(delivery_tag=delivery.tag)
            self._input("consumer", self.consumer, frame.marshal(ack, 1))


def case(
    name: str, rate: int, seconds: float, shards: int
) -> tuple[dict[int, Counter[str]], Flow, int, tuple[int, int]]:
    """Counts by node in the order of the leader, the two after it; where publisher and consumer are in that order."""
    brokers = TimedBrokers(shards)
    brokers.rest()
    first = next(iter(brokers.nodes.values()))
    client = first.client()
    client.declare("q")
    (record,) = [each for each in first.engine.catalog.queues() if each.name == "q"]
    leader = next(id for id, node in brokers.nodes.items() if node.engine.host.groups[record.shard].leads)
    order = [(leader - 1 + step) % 3 + 1 for step in range(3)]
    declaring = order.index(first.id)
    places = CASES[name] or (declaring, declaring)
    publisher, consumer = (brokers.nodes[order[place]] for place in places)
    flow = Flow(brokers, publisher, consumer, "q")
    brokers.begin()
    brokers.run(brokers.now_us + SETTLE_MS * 1000)
    for earlier in brokers.counts.values():
        earlier.clear()
    count = int(rate * seconds)
    began = brokers.now_us
    for number in range(count):
        # A step that fits no tick: messages come at every moment of one.
        brokers.at(began + number * 1_000_003 // rate, flow.publish)
    brokers.run(began + int(seconds * 1e6))
    counts = {id: Counter(brokers.counts[id]) for id in order}
    brokers.run(brokers.now_us + 1_000_000)
    assert len(flow.latency_us) == len(flow.confirm_us) == count, (len(flow.latency_us), len(flow.confirm_us), count)
    return counts, flow, count, places


COLUMNS = ("frames", "raft", "writes", "entries", "pumps", "idle", "sockets")


def quantiles(values_us: list[int]) -> str:
    values = sorted(values_us)
    return f"{values[len(values) // 2] / 1000:.2f} / {values[len(values) * 99 // 100] / 1000:.2f} ms"


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--shards", type=int, default=16)
    options = parser.parse_args()
    print(f"{'':34}" + "".join(f"{name:>9}" for name in COLUMNS))
    for name in CASES:
        counts, flow, count, places = case(name, options.rate, options.seconds, options.shards)
        for place, each in enumerate(counts.values()):
            parts = ["leader"] if place == 0 else []
            parts += ["publisher"] * (places[0] == place) + ["consumer"] * (places[1] == place)
            print(f"  {', '.join(parts) or 'neither':32}" + "".join(f"{each[c] / count:9.2f}" for c in COLUMNS))
        total = sum(counts.values(), Counter[str]())
        print(f"{name:34}" + "".join(f"{total[c] / count:9.2f}" for c in COLUMNS))
        print(f"  confirm {quantiles(flow.confirm_us)}, end to end {quantiles(flow.latency_us)}")
    brokers = TimedBrokers(options.shards)
    brokers.rest()
    brokers.begin()
    brokers.run(brokers.now_us + 2_000_000)
    for counts_of_node in brokers.counts.values():
        counts_of_node.clear()
    brokers.run(brokers.now_us + 10_000_000)
    total = sum(brokers.counts.values(), Counter[str]())
    print(f"{'in a second without clients':34}" + "".join(f"{total[c] / 10:9.2f}" for c in COLUMNS))


if __name__ == "__main__":
    main()
