"""A client for one use of a lease."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pamqp import commands
from pamqp.base import Frame

from simulation.node.amqp_client import BrokerRefused, ReceivedMessage
from simulation.node.history import BROKEN, DECLARE, GET, NOT_FOUND, OK, PASSIVE, Attachment, LeaseUse, Sent
from simulation.node.lease_edges.plan import ATTACH, REDECLARE
from simulation.node.lease_edges.plan import GET as GET_EDGE
from simulation.node.lease_edges.plan import GET_EMPTY as GET_EMPTY_EDGE
from simulation.node.lease_edges.plan import PASSIVE as PASSIVE_EDGE
from simulation.node.node_client import NodeClient
from simulation.node.world import World

RENEWALS = {GET_EDGE: GET, GET_EMPTY_EDGE: GET, REDECLARE: DECLARE, PASSIVE_EDGE: PASSIVE}


class EdgeClient(NodeClient):
    """Connects at once. Writes down what it asks and what it is told."""

    def __init__(self, world: World, name: str, node: int, ready: Callable[[], None]) -> None:
        super().__init__(world, node, lambda answer: ready(), lambda: None)
        self.history = world.history
        self.name = name
        self._consuming: tuple[str, Sent | None] = ("", None)
        self._sent: dict[int, Sent] = {}
        self.on_confirm = self._answered
        self.on_returned = self._returned
        self.on_message = self._came
        self.on_cancelled = self._cancelled
        self.connect()

    @property
    def is_attached(self) -> bool:
        """Whether it was told that it consumes, ever."""
        return bool(self.attachments)

    # ------------------------------------------------------------------ uses

    def use(self, queue: str, kind: str, method: Frame, then: Callable[[LeaseUse], None] = lambda use: None) -> None:
        """Call a method that is one; `then` is called if it was answered well."""
        use = LeaseUse(queue, kind, self.world.queue.now_us)
        self.history.uses.append(use)
        self.world.cluster.trace.add("use", kind, queue, self.name)

        def answered(result: Any) -> None:
            use.completed_us = self.world.queue.now_us
            if isinstance(result, BrokerRefused):
                use.answer = {0: BROKEN, 404: NOT_FOUND}.get(result.code, str(result))
            else:
                use.answer = OK
                if kind in RENEWALS:
                    self.world.renewed(queue, RENEWALS[kind], use.invoked_us)
                then(use)
            self.world.cluster.trace.add("used", kind, queue, use.answer)

        if self.closed:
            use.completed_us, use.answer = use.invoked_us, BROKEN
        else:
            self.call(method, answered)

    def attach(self, queue: str, then: Callable[[LeaseUse], None] = lambda use: None) -> None:
        """Consume, without acknowledging anything to be settled."""

        def attached(use: LeaseUse) -> None:
            self.attached(Attachment(queue, self.name, use.invoked_us, use.completed_us))
            then(use)

        self._consuming = (queue, None)
        self.use(queue, ATTACH, commands.Basic.Consume(0, queue, self.name, no_ack=True), attached)

    def publish_after(self, use: LeaseUse) -> None:
        """Publish to the queue that the client was just told is there."""
        sent = Sent(use.queue, use)
        self.history.sent.append(sent)
        if self.is_attached:
            self._consuming = (use.queue, sent)
        self._sent[self.publish("", use.queue, b"after", commands.Basic.Properties())] = sent

    # ------------------------------------------------------------------ letting go

    def cancel(self) -> None:
        """Cancel the consumer."""
        self.release_all()
        if not self.closed:
            self.call(commands.Basic.Cancel(self.name))

    def close(self) -> None:
        """Close the connection politely."""
        self.release_all()
        super().close()

    def drop(self) -> None:
        """Go without a word."""
        self.release_all()
        # And once more when it is over: what a seed draws behind it depends on that.
        self.wire.drop_by_client()
        self.broken()

    # ------------------------------------------------------------------ what the broker says

    def _answered(self, tag: int, acknowledged: bool) -> None:
        sent = self._sent.get(tag)
        if sent is not None and acknowledged:
            sent.completed_us = self.world.queue.now_us

    def _returned(self, message: ReceivedMessage) -> None:
        for sent in self._sent.values():
            if sent.completed_us < 0:
                sent.returned = True

    def _came(self, message: ReceivedMessage) -> None:
        sent = self._consuming[1]
        if sent is not None and message.body == b"after":
            sent.consumed = True

    def _cancelled(self, tag: str) -> None:
        if any(attachment.released_us is None for attachment in self.attachments.values()):
            self.history.cancelled.append((self.world.queue.now_us, self._consuming[0], self.name))
        self.release_all()
