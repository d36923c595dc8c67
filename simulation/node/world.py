"""What all clients of a run share: the machines, the network to them, the history, and the names of things."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.log.batch import WriteBatch
from simulation.cluster.cluster import SimulatedCluster
from simulation.cluster.events import EventQueue
from simulation.cluster.machine import Machine
from simulation.cluster.randomness import stream
from simulation.node.history import Attachment, CountedDeath, Delivery, History, Publish, Renewal
from simulation.node.nodes import SimulatedNode
from simulation.node.probe import Probe
from simulation.node.sockets import Wire
from simulation.node.topology import RunTopology, delay_queue

CLIENT_DELAY_US = 300


class World:
    """A cluster with its clients' surroundings."""

    def __init__(
        self,
        seed: int,
        cluster: SimulatedCluster[Frame, WriteBatch],
        topology: RunTopology,
        history: History,
    ) -> None:
        self.seed = seed
        self.cluster = cluster
        self.queue: EventQueue = cluster.queue
        self.topology = topology
        self.history = history
        self.probe = Probe(self.queue, history)
        self.probe.session_ended = self._session_ended
        self.wires: Random = stream(seed, "client wires")
        self.next_message = 0
        self.next_stream = 0
        self.next_holder = 0
        self._attached: list[tuple[int, Attachment]] = []
        self._session_ends: dict[tuple[int, int], int] = {}

    def connect(
        self, machine: Machine[Frame, WriteBatch], wire: Wire, refused: Callable[[], None]
    ) -> None:
        """Open a TCP connection; `refused` is called when nobody listens there."""
        wire.run_on_server = machine.call
        machine.on_crash.append(wire.machine_died)

        def accept() -> None:
            node = machine.program
            if not isinstance(node, SimulatedNode) or not node.accept(wire):
                wire.machine_died()
                refused()

        if machine.serving:
            machine.call(accept)
        else:
            self.queue.after(CLIENT_DELAY_US, refused)

    # ------------------------------------------------------------------ records

    def published(self, publish: Publish) -> None:
        """A message is about to be sent: note the shard clocks it can't be older than."""
        publish.clocks_ms = tuple(self.shard_clock_ms(self.waits_in(queue)) for queue in publish.queues)
        self.history.publishes[publish.message_id] = publish
        self.cluster.trace.add("publish", publish.message_id, publish.queues, publish.ttl_ms)

    def waits_in(self, queue: str) -> str:
        """Where a message for the queue waits first: there, or in the delayed exchange before it."""
        plan = self.topology.queues.get(queue)
        return queue if plan is None or plan.delayed_by is None else delay_queue(plan.delayed_by)

    def shard_clock_ms(self, queue: str) -> int:
        """The newest clock of a queue's shard that is known anywhere; -1 if it isn't."""
        return self.probe.shard_clocks_ms.get(self.probe.shard_of.get(queue, -1), -1)

    def completed(self, publish: Publish, outcome: str) -> None:
        """The answer to a publish has come."""
        publish.outcome = outcome
        publish.completed_us = self.queue.now_us
        self.cluster.trace.add(outcome, publish.message_id)

    def delivered(self, delivery: Delivery) -> None:
        """A message has reached a client."""
        queue = delivery.deaths[0].queue if delivery.deaths else delivery.queue
        source = self.probe.shard_of.get(self.waits_in(queue), -1)
        delivery.source_clock_ms = self.probe.shard_clocks_ms.get(source, -1)
        self.history.deliveries.append(delivery)
        self.cluster.trace.add(
            "delivered",
            delivery.message_id,
            delivery.holder,
            delivery.redelivered,
            "/".join(delivery.path),
        )

    def settled(self, delivery: Delivery, outcome: str) -> None:
        """A client settles a delivery."""
        delivery.settled = outcome
        delivery.settled_us = self.queue.now_us
        delivery.settled_clock_ms = self.shard_clock_ms(delivery.queue)
        self.cluster.trace.add(outcome, delivery.message_id, delivery.queue)

    def renewed(self, queue: str, kind: str, invoked_us: int) -> None:
        """An operation that renews a lease has succeeded."""
        self.history.renewals.append(Renewal(queue, kind, invoked_us, self.queue.now_us))
        self.cluster.trace.add(kind, queue)

    def attached(self, node: int, attachment: Attachment) -> None:
        """A consume-ok has come through `node`."""
        self.history.attachments.append(attachment)
        self.cluster.trace.add("attached", attachment.queue, attachment.holder)
        shard = self.probe.shard_of.get(attachment.queue, -1)
        ended_us = self._session_ends.get((shard, node), -1)
        if ended_us >= attachment.invoked_us:
            attachment.released_us = ended_us
        else:
            self._attached.append((node, attachment))

    def released(self, attachment: Attachment) -> None:
        """A client lets go of its consumer, or its node has died."""
        if attachment.released_us is None:
            attachment.released_us = self.queue.now_us
            self.cluster.trace.add("released", attachment.queue, attachment.holder)
        elif attachment.in_doubt:
            attachment.in_doubt = False
            attachment.latest_release_us = self.queue.now_us

    def _session_ended(self, shard: int, node: int) -> None:
        """The cluster counts a node as lost: its consumers of that shard are detached, whatever it thinks."""
        self._session_ends[(shard, node)] = self.queue.now_us
        self.cluster.trace.add("session over", shard, node)
        still: list[tuple[int, Attachment]] = []
        for pair in self._attached:
            moves = pair[1].queue in self.history.moved
            if pair[0] == node and (moves or self.probe.shard_of.get(pair[1].queue, -1) == shard):
                self.released(pair[1])
                pair[1].in_doubt = moves
            elif pair[1].released_us is None:
                still.append(pair)
        self._attached = still


def content_of(message_id: int, size: int) -> bytes:
    """The body of a message, which its id and size determine."""
    head = b"%d/%d/" % (message_id, size)
    return head + (b"%d." % (message_id % 97)) * (size // 3)


def id_of(content: bytes) -> int:
    """The id of the message with this body; -1 if the body is none of ours or was changed."""
    parts = content.split(b"/", 2)
    if len(parts) != 3 or not parts[0].isdigit() or not parts[1].isdigit():
        return -1
    message_id = int(parts[0])
    return message_id if content_of(message_id, int(parts[1])) == content else -1


def deaths_of(headers: object) -> tuple[CountedDeath, ...]:
    """The x-death header in the checker's words."""
    rows = headers.get("x-death", []) if isinstance(headers, dict) else []
    return tuple(CountedDeath(str(row["queue"]), str(row["reason"]), int(row["count"])) for row in rows)
