"""A client for one use: one connection to one node, and no second try."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pamqp import commands
from pamqp.base import Frame

from simulation.node.amqp_client import AmqpClient, Message, Refused
from simulation.node.history import DECLARE, GET, PASSIVE, Attachment
from simulation.node.lease_edges.plan import ATTACH, REDECLARE
from simulation.node.lease_edges.plan import GET as GET_EDGE
from simulation.node.lease_edges.plan import GET_EMPTY as GET_EMPTY_EDGE
from simulation.node.lease_edges.plan import PASSIVE as PASSIVE_EDGE
from simulation.node.lease_edges.story import BROKEN, NOT_FOUND, OK, Sent, Story, Use
from simulation.node.sockets import Wire
from simulation.node.world import CLIENT_DELAY_US, World

RENEWALS = {GET_EDGE: GET, GET_EMPTY_EDGE: GET, REDECLARE: DECLARE, PASSIVE_EDGE: PASSIVE}


class EdgeClient:
    """Connects at once. Writes down what it asks and what it is told."""

    def __init__(self, world: World, story: Story, name: str, node: int, ready: Callable[[], None]) -> None:
        self.world = world
        self.story = story
        self.name = name
        self.node = node
        self.attachment: Attachment | None = None
        self._consuming: tuple[str, Sent | None] = ("", None)
        self._sent: dict[int, Sent] = {}
        wire = self._wire = Wire(world.queue, world.wires, CLIENT_DELAY_US)
        client = self.client = AmqpClient(wire.write_from_client, lambda answer: ready(), self._closed)
        client.on_confirm = self._confirmed
        client.on_returned = self._returned
        client.on_message = self._came
        client.on_cancelled = self._cancelled
        wire.to_client = client.receive
        wire.client_broken = client.broken
        machine = world.cluster.machines[node]
        machine.on_crash.append(self._released)
        world.connect(machine, wire, client.broken)

    @property
    def alive(self) -> bool:
        """Whether the connection stands, as far as the client knows."""
        return not self.client.closed

    # ------------------------------------------------------------------ uses

    def call(self, method: Frame, answer: Callable[[Any], None] = lambda result: None) -> None:
        """Call a method that is no use of a queue."""
        self.client.call(method, answer)

    def use(self, queue: str, kind: str, method: Frame, then: Callable[[Use], None] = lambda use: None) -> None:
        """Call a method that is one; `then` is called if it was answered well."""
        use = Use(queue, kind, self.world.queue.now_us)
        self.story.uses.append(use)
        self.world.cluster.trace.add("use", kind, queue, self.name)

        def answered(result: Any) -> None:
            use.completed_us = self.world.queue.now_us
            if isinstance(result, Refused):
                use.answer = {0: BROKEN, 404: NOT_FOUND}.get(result.code, str(result))
            else:
                use.answer = OK
                if kind in RENEWALS:
                    self.world.renewed(queue, RENEWALS[kind], use.invoked_us)
                then(use)
            self.world.cluster.trace.add("used", kind, queue, use.answer)

        if self.alive:
            self.client.call(method, answered)
        else:
            use.completed_us, use.answer = use.invoked_us, BROKEN

    def attach(self, queue: str, then: Callable[[Use], None] = lambda use: None) -> None:
        """Consume, without acknowledging anything to be settled."""

        def attached(use: Use) -> None:
            self.attachment = Attachment(queue, self.name, use.invoked_us, use.completed_us)
            self.world.attached(self.node, self.attachment)
            then(use)

        self._consuming = (queue, None)
        self.use(queue, ATTACH, commands.Basic.Consume(0, queue, self.name, no_ack=True), attached)

    def publish_after(self, use: Use) -> None:
        """Publish to the queue that the client was just told is there."""
        sent = Sent(use.queue, use)
        self.story.sent.append(sent)
        if self.attachment is not None:
            self._consuming = (use.queue, sent)
        self._sent[self.client.publish("", use.queue, b"after", commands.Basic.Properties())] = sent

    # ------------------------------------------------------------------ letting go

    def cancel(self) -> None:
        """Cancel the consumer."""
        self._released()
        if self.alive:
            self.client.call(commands.Basic.Cancel(self.name), lambda result: None)

    def close(self) -> None:
        """Close the connection politely."""
        self._released()
        if self.alive:
            self.client.close()

    def drop(self) -> None:
        """Go without a word."""
        self._released()
        self._wire.drop_by_client()
        self.client.broken()

    def _released(self) -> None:
        if self.attachment is not None:
            self.world.released(self.attachment)

    # ------------------------------------------------------------------ what the broker says

    def _closed(self, error: Refused | None) -> None:
        self._released()
        self._wire.drop_by_client()

    def _confirmed(self, tag: int, acknowledged: bool) -> None:
        sent = self._sent.get(tag)
        if sent is not None and acknowledged:
            sent.completed_us = self.world.queue.now_us

    def _returned(self, message: Message) -> None:
        for sent in self._sent.values():
            if sent.completed_us < 0:
                sent.returned = True

    def _came(self, message: Message) -> None:
        sent = self._consuming[1]
        if sent is not None and message.body == b"after":
            sent.consumed = True

    def _cancelled(self, tag: str) -> None:
        if self.attachment is not None and self.attachment.released_us is None:
            self.story.cancelled.append((self.world.queue.now_us, self._consuming[0], self.name))
        self._released()
