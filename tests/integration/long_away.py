"""A node that was away while a queue got more than its leader's log reaches back to: only a snapshot brings it back."""

from typing import Any, Final

from tests.integration.clients import Publisher, channel, declare_led_by, publish_all
from tests.integration.nodes import Nodes, wait_for
from tests.integration.replica_sets import shard_of
from tests.waiting import BOUND_S

BODY_BYTES: Final = 64 * 1024


class LongAway:
    """Node 3, which is down, and what node 1 leads meanwhile: a queue full of `bodies`, to which `publisher` adds small
    messages once it is started."""

    def __init__(self, nodes: Nodes, messages: int, at_once: int, rate: float) -> None:
        """Start the nodes, kill node 3, and publish so many messages, `at_once` before their confirms. `rate`: how many
        small ones there are in a second."""
        self._nodes = nodes
        nodes.serve()
        with channel(nodes, 1) as declaring:
            self.queue: str = declare_led_by(nodes, declaring, "large", lambda leader: leader == 1)
        self.shard: int = shard_of(nodes, self.queue)
        self._last: int = nodes.groups(3)[self.shard]["commit"]
        nodes.kill(3)
        self.bodies: list[bytes] = [b"%06d" % number + bytes(BODY_BYTES) for number in range(messages)]
        for start in range(0, messages, at_once):
            publish_all(nodes, 1, self.queue, self.bodies[start : start + at_once])
        self.publisher: Publisher = Publisher(nodes, 1, self.queue, rate=rate)

    @property
    def at_leader(self) -> dict[str, Any]:
        """What node 1 says of its replica of the shard."""
        return self._nodes.groups(1)[self.shard]

    @property
    def count(self) -> int:
        """How many messages there are by now."""
        return len(self.bodies) + len(self.publisher.confirmed)

    def until_compacted(self) -> None:
        """Wait until nobody has what follows node 3's last entry."""
        wait_for(lambda: self.at_leader["compacted"] > self._last, "a compacted log")

    def come_back(self, within_s: float = BOUND_S) -> None:
        """Start node 3, and wait until the snapshot is there."""
        self._nodes.start(3)
        self._nodes.until_serving()
        wait_for(lambda: self._nodes.ready(3, self.queue) >= len(self.bodies), "the snapshot on node 3", within_s)

    def finish(self) -> None:
        """Stop publishing, and wait until node 3 has everything."""
        self.publisher.finish()
        self.until_whole()

    def until_whole(self) -> None:
        """Wait until node 3 has everything."""
        wait_for(lambda: self._nodes.ready(3, self.queue) == self.count, "all messages on node 3")
