"""A simulated client of one node: AMQP on one connection over a wire with delays, and no second try."""

from __future__ import annotations

from collections.abc import Callable

from pamqp.base import Frame

from simulation.node.amqp_client import AmqpClient, Answer, BrokerRefused
from simulation.node.history import Attachment
from simulation.node.sockets import Wire
from simulation.node.world import CLIENT_DELAY_US, World


class NodeClient(AmqpClient):
    """Connects by `connect`. The history has its consumers until it lets go of them, or is gone, or its node is."""

    def __init__(
        self,
        world: World,
        node: int,
        on_ready: Answer,
        on_ended: Callable[[], None],
        mode: Frame | None = None,
    ) -> None:
        """`on_ended` is called when the connection is over, whoever ended it."""
        self.world = world
        self.node = node
        self.wire = Wire(world.queue, world.wires, CLIENT_DELAY_US)
        self.attachments: dict[str, Attachment] = {}
        self._on_ended = on_ended
        self._let_go = False
        super().__init__(self.wire.write_from_client, on_ready, self._is_over, mode=mode)

    def connect(self) -> None:
        """Open the connection; it may be over at once."""
        self.wire.to_client = self.receive
        self.wire.client_broken = self.broken
        machine = self.world.cluster.machines[self.node]
        # The client does not know yet that its node has died, the history does.
        machine.on_crash.append(self.release_all)
        self.world.connect(machine, self.wire, self.broken)

    def drop(self) -> None:
        """Let go of the connection without a word, as a client that is killed does."""
        self._let_go = True
        self.wire.drop_by_client()
        self.broken()

    def attached(self, attachment: Attachment) -> None:
        """A consume-ok has come."""
        self.attachments[attachment.holder] = attachment
        self.world.attached(self.node, attachment)

    def release(self, tag: str) -> None:
        """Let go of a consumer, if it is attached."""
        attachment = self.attachments.pop(tag, None)
        if attachment is not None:
            self.world.released(attachment)

    def release_all(self) -> None:
        """Let go of all consumers."""
        for attachment in self.attachments.values():
            self.world.released(attachment)

    def _is_over(self, error: BrokerRefused | None) -> None:
        if not self._let_go:
            self.wire.drop_by_client()
        self.release_all()
        self._on_ended()
