"""How long a message that came back waits before it is delivered again (RULES S5).

RabbitMQ 4.3's quorum queues: the least delay times the failed deliveries, at least one, at most the greatest. LavinMQ
2.11: the same times all deliveries or, with a multiplier, the least delay times multiplier ** (deliveries - 1).
"""

from typing import Final

from mayfly.node.shard.message import FAILED, GIVEN_BACK, Message

# Which returns wait, as in `ShardQueueSettings.retry_ways`: a bit for each way of `node.shard.message`.
ON_FAILED: Final = 1 << FAILED
ON_GIVEN_BACK: Final = 1 << GIVEN_BACK

LINEAR: Final = 0
"""No multiplier: the delay grows by the least one each time."""

PPM: Final = 1_000_000
_WORD: Final = (1 << 64) - 1
_ODD: Final = 0x9E3779B97F4A7C15
_OTHER_ODD: Final = 0xBF58476D1CE4E5B9


class Retries:
    """What a queue was told about it; immutable.

    ``ways``: ON_FAILED, ON_GIVEN_BACK or both. Delays from ``min_ms`` to ``max_ms``, by ``multiplier`` or LINEAR;
    ``counts_all``: by how often the message came back, instead of by how often its delivery failed. Up to
    ``jitter_ppm`` millionths of the delay come on top.
    """

    __slots__ = ("counts_all", "jitter_ppm", "max_ms", "min_ms", "multiplier", "ways")

    def __init__(
        self, ways: int, min_ms: int, max_ms: int, multiplier: int, counts_all: bool, jitter_ppm: int
    ) -> None:
        self.ways = ways
        self.min_ms = min_ms
        self.max_ms = max_ms
        self.multiplier = multiplier
        self.counts_all = counts_all
        self.jitter_ppm = jitter_ppm

    def wait(self, way: int) -> bool:
        """Whether messages that come back in this way wait."""
        return (self.ways >> way) & 1 == 1

    def delay_ms(self, message: Message, index: int) -> int:
        """How long a message waits that has come back, its counts say so, in the entry ``index``."""
        attempt = max(1, message.acquired_count if self.counts_all else message.delivery_count)
        delay_ms = self.min_ms
        if self.multiplier == LINEAR:
            delay_ms *= attempt
        elif self.multiplier > 1:
            while attempt > 1 and delay_ms < self.max_ms:
                delay_ms *= self.multiplier
                attempt -= 1
        delay_ms = min(delay_ms, self.max_ms)
        if self.jitter_ppm:
            delay_ms += delay_ms * self.jitter_ppm * _drawn_ppm(index, message) // (PPM * PPM)
        return delay_ms


def _drawn_ppm(index: int, message: Message) -> int:
    """A number from 0 to PPM, the same on all replicas, and another one for each message and return."""
    word = (index * _ODD + message.index * _OTHER_ODD + message.offset) & _WORD
    for _ in range(2):
        word ^= word >> 31
        word = word * _OTHER_ODD & _WORD
    return (word >> 20) % (PPM + 1)
