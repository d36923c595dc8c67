"""A publisher with confirms and a consumer, each in a thread of its own, that run while nodes die."""

import threading
import time
from itertools import pairwise
from typing import Any, Final

import pika

from mayfly.node.demonstration.client import connect
from mayfly.node.local_nodes.local_cluster import NodePlan
from mayfly.node.settings import NodeSettings

_EVERY_S: Final = 0.005
_PREFETCH: Final = 200


class NumberedPublisher(threading.Thread):
    """Publishes numbered messages one after the other, each waiting for its confirm."""

    def __init__(self, plan: NodePlan, settings: NodeSettings, queue: str) -> None:
        super().__init__(name="publisher", daemon=True)
        self._plan = plan
        self._settings = settings
        self._queue = queue
        self._stopping = threading.Event()
        self.sent: list[int] = []
        self.confirmed: list[int] = []
        self.confirmed_at_s: list[float] = []
        self.error: str | None = None

    def run(self) -> None:
        """The thread."""
        try:
            connection = connect(self._plan, self._settings, "demonstration: publisher")
            channel = connection.channel()
            channel.confirm_delivery()
            number = 0
            while not self._stopping.is_set():
                number += 1
                self.sent.append(number)
                properties = pika.BasicProperties(delivery_mode=2)
                channel.basic_publish("", self._queue, str(number).encode(), properties, mandatory=True)
                self.confirmed.append(number)
                self.confirmed_at_s.append(time.monotonic())
                time.sleep(_EVERY_S)
            connection.close()
        except Exception as error:  # whatever the client raises is what a user would have seen
            self.error = repr(error)

    def stop(self, timeout_s: float) -> None:
        """Stop after the message under way; a publisher that still waits for a confirm then is in error."""
        self._stopping.set()
        self.join(timeout_s)
        if self.is_alive() and self.error is None:
            self.error = f"no confirm for message {len(self.sent)}"

    def longest_pause_ms(self, from_s: float, to_s: float) -> int:
        """The longest time between two confirms within a span of monotonic time."""
        moments = [from_s, *(at for at in list(self.confirmed_at_s) if from_s < at < to_s), to_s]
        return round(1000 * max(later - earlier for earlier, later in pairwise(moments)))


class NumberedConsumer(threading.Thread):
    """Takes numbered messages and acknowledges each."""

    def __init__(self, plan: NodePlan, settings: NodeSettings, queue: str) -> None:
        super().__init__(name="consumer", daemon=True)
        self._plan = plan
        self._settings = settings
        self._queue = queue
        self._stopping = threading.Event()
        self.received: list[int] = []
        self.error: str | None = None

    def run(self) -> None:
        """The thread."""
        try:
            connection = connect(self._plan, self._settings, "demonstration: consumer")
            channel = connection.channel()
            channel.basic_qos(prefetch_count=_PREFETCH)
            channel.basic_consume(self._queue, self._on_message)
            while not self._stopping.is_set():
                connection.process_data_events(time_limit=0.05)
            connection.close()
        except Exception as error:  # whatever the client raises is what a user would have seen
            self.error = repr(error)

    def _on_message(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self.received.append(int(body))
        channel.basic_ack(method.delivery_tag)

    def stop(self, timeout_s: float) -> None:
        """Close the connection."""
        self._stopping.set()
        self.join(timeout_s)
