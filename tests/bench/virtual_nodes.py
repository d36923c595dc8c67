"""What has to happen for a message when more nodes share the load, at an offered rate: counts, the same each time.

    PYTHONPATH=. python tests/bench/virtual_nodes.py 3 7 [--rate 2700] [--seconds 0.5] [--turn-us 300]

Whole nodes in one process on virtual time, as in `low_rate.py`, with 16 shards of three replicas and one queue in each.
On every node there are a publisher to all queues in turn, with confirms, and a consumer of all queues, which
acknowledges what it has got in one turn. 1 KB. A turn of a node takes `--turn-us` of virtual time, in which what comes
gathers.
Per message, of all nodes together: see `low_rate.py`, and

    wire       bytes of the frames between nodes
    CPU        of engine and broker, and of frames to octets and back, us (thread time: for a quiet machine)
    confirm    what publishers wait, virtual ms: the median, and what 99 % are below
    deliver    what consumers wait

`--count-instructions` is for a run under `valgrind --tool=callgrind --instr-atstart=no`: the load alone is counted.
"""

import argparse
import gc
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from pamqp import commands, frame

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.transport import codec
from mayfly.node.shell.process import MANY_OBJECTS, RARELY_OLDER
from tests.bench.low_rate import CLIENT_US, SETTLE_MS, TimedBrokers, quantiles
from tests.node.broker.three_brokers import NodeWorld

SHARDS = 16
BODY = bytes(1024)
PREFETCH = 200
COUNTED = ("frames", "raft", "writes", "entries", "pumps", "sockets")


class BusyNodes(TimedBrokers):
    """Nodes whose turns take time; the real time of what they do is added up."""

    def __init__(self, nodes: int, turn_us: int) -> None:
        super().__init__(SHARDS, nodes)
        self.cpu_s = 0.0
        self.turn_us = turn_us
        self.wire_bytes = 0
        self._free_us = dict.fromkeys(self.nodes, 0)
        """By node: when it can begin its next turn."""

    def timed(self, work: Callable[[], Any]) -> Any:
        """Do something that belongs to a node."""
        began_s = time.thread_time()
        done = work()
        self.cpu_s += time.thread_time() - began_s
        return done

    def schedule(self, node: NodeWorld) -> None:
        if node.id not in self._scheduled:
            self._scheduled.add(node.id)
            self.at(max(self.now_us, self._free_us[node.id]), lambda: self.timed(partial(self._pump, node)))

    def _pump(self, node: NodeWorld) -> None:
        self._free_us[node.id] = self.now_us + self.turn_us
        super()._pump(node)

    def _deliver(self, sender: int, to: int, sent_frame: Frame) -> None:
        self.timed(partial(self._carry, sender, to, sent_frame))

    def _carry(self, sender: int, to: int, sent_frame: Frame) -> None:
        unordered = sent_frame.take_unordered()
        for each in (unordered, sent_frame):
            if each is not None:
                octets = b"".join(codec.encode_pieces(each))
                self.wire_bytes += len(octets)
                super()._deliver(sender, to, codec.decode_frame(octets, sender, to))


class Clients:
    """A publisher and a consumer on one node."""

    def __init__(self, nodes: BusyNodes, node: NodeWorld, queues: list[str], waits: "Waits") -> None:
        self._nodes = nodes
        self._node = node
        self._queues = queues
        self._waits = waits
        self.publisher, self.consumer = node.client(), node.client()
        self.publisher.send(1, commands.Confirm.Select())
        self.consumer.send(1, commands.Basic.Qos(prefetch_count=PREFETCH))
        for queue in queues:
            self.consumer.consume(queue, tag=queue)
        self.publisher.take()
        self.consumer.take()
        self._sent_us: list[int] = []
        self._confirmed = 0
        nodes.outputs[self.publisher] = self._confirms
        nodes.outputs[self.consumer] = self._deliveries

    def publish(self, number: int) -> None:
        self._sent_us.append(self._nodes.now_us)
        body = self._nodes.now_us.to_bytes(8, "big") + BODY[8:]
        queue = self._queues[number % SHARDS]
        self._input(self.publisher, self.publisher.publish_bytes(1, queue, body, delivery_mode=2))

    def _input(self, client: Any, data: bytes) -> None:
        def receive() -> None:
            self._nodes.timed(lambda: client.connection.receive(data))
            self._nodes.schedule(self._node)

        self._nodes.at(self._nodes.now_us + CLIENT_US, receive)

    def _confirms(self, data: bytes) -> None:
        self.publisher.output(data)
        for tag, multiple, refused in self.publisher.acks():
            assert not refused
            first = self._confirmed + 1 if multiple else tag
            for each in range(first, tag + 1):
                if self._sent_us[each - 1]:
                    self._waits.confirm_us.append(self._nodes.now_us - self._sent_us[each - 1])
                    self._sent_us[each - 1] = 0
            if multiple:
                self._confirmed = max(self._confirmed, tag)

    def _deliveries(self, data: bytes) -> None:
        self.consumer.output(data)
        tag = 0
        for delivery in self.consumer.take(1):
            self._waits.deliver_us.append(self._nodes.now_us - int.from_bytes(delivery.body[:8], "big"))
            tag = delivery.tag
        if tag:
            self._input(self.consumer, frame.marshal(commands.Basic.Ack(delivery_tag=tag, multiple=True), 1))


class Waits:
    """What clients have waited."""

    def __init__(self) -> None:
        self.confirm_us: list[int] = []
        self.deliver_us: list[int] = []


def count_instructions(on: bool) -> None:
    """Have callgrind, if this runs under it, count from here on, or no more."""
    words = ["callgrind_control", "-i", "on" if on else "off", str(os.getpid())]
    subprocess.run(words, stdout=subprocess.DEVNULL, check=True)


def measure(count: int, rate: int, seconds: float, turn_us: int, counting: bool) -> None:
    """Print the counts of so many nodes."""
    nodes = BusyNodes(count, turn_us)
    nodes.rest()
    names = [f"queue-{number}" for number in range(SHARDS)]
    declaring = next(iter(nodes.nodes.values())).client()
    for name in names:
        declaring.declare(name)
    waits = Waits()
    clients = [Clients(nodes, node, names, waits) for node in nodes.nodes.values()]
    nodes.begin()
    nodes.run(nodes.now_us + SETTLE_MS * 1000)
    for earlier in nodes.counts.values():
        earlier.clear()
    total, began_us = int(rate * seconds), nodes.now_us
    cpu_s, wire_bytes = nodes.cpu_s, nodes.wire_bytes
    for number in range(total):
        # A step that fits no tick: messages come at every moment of one.
        place = number % count
        nodes.at(began_us + number * 1_000_003 // rate, partial(clients[place].publish, number // count + place))
    gc.collect()
    gc.freeze()
    if counting:
        count_instructions(True)
    nodes.run(began_us + int(seconds * 1e6))
    if counting:
        count_instructions(False)
    counts = sum(nodes.counts.values(), Counter[str]())
    cpu_us = (nodes.cpu_s - cpu_s) / total * 1e6
    wire = (nodes.wire_bytes - wire_bytes) / total
    nodes.run(nodes.now_us + 1_000_000)
    assert len(waits.deliver_us) == len(waits.confirm_us) == total
    figures = " ".join(f"{name} {counts[name] / total:.3f}" for name in COUNTED)
    print(f"{count} nodes: per message {figures} wire {wire:.0f} B, CPU {cpu_us:.1f} us")
    print(f"  confirm {quantiles(waits.confirm_us)}, deliver {quantiles(waits.deliver_us)}", flush=True)


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("nodes", type=int, nargs="+")
    parser.add_argument("--rate", type=int, default=2_700, help="messages a second of each node's publisher")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--turn-us", type=int, default=300)
    parser.add_argument("--count-instructions", action="store_true")
    given = parser.parse_args()
    gc.set_threshold(MANY_OBJECTS, *RARELY_OLDER)
    for count in given.nodes:
        measure(count, given.rate * count, given.seconds, given.turn_us, given.count_instructions)


if __name__ == "__main__":
    main()
