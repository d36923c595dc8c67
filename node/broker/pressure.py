"""What holds a client back: it takes too little, publishes too much, or the cluster cannot take it."""

from __future__ import annotations

from mayfly.cluster.versions import LEVEL_CONSUMER_WINDOWS
from mayfly.node.amqp.output import Output
from mayfly.node.broker.client import Client, ClientChannel
from mayfly.node.broker.cluster_facade import ClusterFacade
from mayfly.node.broker.settings import BrokerSettings
from mayfly.node.broker.waiting_events import WaitingEvents
from mayfly.node.limits import (
    CONNECTION_WINDOWS_BYTES,
    CONSUMER_WINDOW_LEAST_BYTES,
    OUTPUT_FULL_BYTES,
    OUTPUT_HIGH_WATER_BYTES,
    WAITING_EVENTS_BYTES,
    WAITING_EVENTS_LEAST_BYTES,
)


class NodePressure:
    """What holds back all clients of one node."""

    def __init__(self, cluster: ClusterFacade, settings: BrokerSettings, waiting_events: WaitingEvents) -> None:
        self.cluster: ClusterFacade = cluster
        self.settings: BrokerSettings = settings
        self.waiting_events: WaitingEvents = waiting_events
        self.reading_stopped: bool = False
        """The node is about to stop: it takes nothing from clients any more."""


class Pressure:
    """Whether one connection is read, given deliveries and answered.

    waiting_bytes: what is under way on its channels, and what waits for that (`node.broker.waiting_events`).
    """

    def __init__(self, client: Client, node: NodePressure) -> None:
        self._client: Client | None = client
        self._node: NodePressure = node
        self._cluster: ClusterFacade = node.cluster
        self._output: Output = client.output
        self.has_published: bool = False
        self.output_blocked: bool = False
        self.output_full: bool = False
        self.waiting_bytes: int = 0
        self._told_blocked = False
        if self._cluster.blocked is not None:
            client.amqp.hold_publishes()

    @property
    def is_blocked(self) -> bool:
        """Whether the client publishes and is not read because of an alarm."""
        return self._told_blocked

    @property
    def wants_reading(self) -> bool:
        """Whether the socket should be read from."""
        client = self._client
        if client is None or self.waiting_bytes > self._most_waiting_bytes or self.output_full:
            return False
        if not client.amqp.wants_input:
            return False
        if client.over:
            return True
        if self._node.reading_stopped:
            return False
        if not self.has_published:
            return True
        cluster = self._cluster
        return not cluster.overloaded and cluster.blocked is None

    @property
    def _most_waiting_bytes(self) -> int:
        """What may wait here: little while the node has no room for more, whatever it is that the client asks for."""
        cluster = self._cluster
        if self._node.waiting_events.is_too_much or cluster.overloaded or cluster.blocked is not None:
            return WAITING_EVENTS_LEAST_BYTES
        return WAITING_EVENTS_BYTES

    def reading_may_change(self) -> None:
        """Tell the socket to look at `wants_reading`."""
        if self._client is not None:
            self._client.host.reading_changed()

    def set_output_blocked(self, blocked: bool) -> None:
        """The socket's buffer is above its high-water mark, or has drained."""
        if blocked != self.output_blocked:
            self.output_blocked = blocked
            for channel in self._channels():
                channel.pause_consumers()

    def note_output(self) -> None:
        """Deliveries were added to what is to be written. Where that is much, there shall be no more before the socket
        has shown how much of it it takes: what a shard has at hand it delivers in one go."""
        if self._output.size_bytes > OUTPUT_HIGH_WATER_BYTES:
            self.set_output_blocked(True)

    def next_window_bytes(self) -> int:
        """The window of the consumer that comes next: what its shard may give it before this node has said that some of
        that was taken, however late it hears and is heard. 0 is none: not all members know windows."""
        if self._cluster.catalog.level < LEVEL_CONSUMER_WINDOWS:
            return 0
        # Those whose channels wait for their shards as well: all channels of a connection may attach at once.
        consumers = 1 + sum([channel.consumer_count for channel in self._channels()])
        share_bytes = max(CONSUMER_WINDOW_LEAST_BYTES, CONNECTION_WINDOWS_BYTES // consumers)
        return min(self._node.settings.consumer_window_bytes, share_bytes)

    def takes_answers(self) -> bool:
        """Whether what the client asks for may be done now: there is room for the answer."""
        if self._output.size_bytes > OUTPUT_FULL_BYTES:
            self.set_output_full(True)
        return not self.output_full

    def set_output_full(self, full: bool) -> None:
        """So much is to be sent that the client is not read, and nothing done for it, until it takes some of that."""
        if full != self.output_full:
            self.output_full = full
            if not full:
                for channel in self._channels():
                    channel.go_on()
            self.reading_may_change()

    def first_publish(self) -> None:
        """The client turns out to be a publisher, with its first publish or the beginning of it: alarms and pressure
        concern it from now on."""
        self.has_published = True
        self.alarm_changed(self._cluster.blocked)
        self.reading_may_change()

    def alarm_changed(self, text: str | None) -> None:
        """Publishers are not read from while there is an alarm, and told so if they can take that. RabbitMQ tells once,
        whatever comes on top. Who has not published yet is stopped in front of the first publish."""
        client = self._client
        if client is None or client.over:
            return
        amqp = client.amqp
        if not self.has_published:
            if text is not None:
                amqp.hold_publishes()
            else:
                amqp.take_publishes()
            self.reading_may_change()
            return
        if (text is not None) == self._told_blocked:
            return
        self._told_blocked = text is not None
        if text is not None:
            amqp.send_blocked(text)
        else:
            amqp.send_unblocked()
            if amqp.take_publishes():
                client.go_on()
        client.mark()
        self.reading_may_change()

    def let_go(self) -> None:
        """The socket is gone: the client is not held any more."""
        self._client = None

    def _channels(self) -> list[ClientChannel]:
        return [] if self._client is None else list(self._client.channels_by_id().values())
