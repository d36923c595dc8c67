"""How much may be taken off a queue in one go. HOT."""

from mayfly.node.shard.message import OVERHEAD_BYTES, Message


class Portion:
    """What may still be taken off a queue in one go: so many messages, bytes of bodies, and bytes as they count in a
    consumer's window. The last message may go beyond either."""

    __slots__ = ("body_bytes", "counted_bytes", "messages")

    def __init__(self, messages: int, body_bytes: int, counted_bytes: int) -> None:
        self.messages = messages
        self.body_bytes = body_bytes
        self.counted_bytes = counted_bytes

    def is_open(self) -> bool:
        """Whether one more may be taken."""
        return self.messages > 0 and self.body_bytes > 0 and self.counted_bytes > 0

    def add(self, messages: list[Message]) -> int:
        """How many of these, the first ones, are taken."""
        body_bytes = self.body_bytes
        counted_bytes = self.counted_bytes
        number = 0
        for message in messages:
            length = message.body_length
            body_bytes -= length
            counted_bytes -= OVERHEAD_BYTES + message.key_length + message.header_length + length
            number += 1
            if body_bytes <= 0 or counted_bytes <= 0:
                break
        self.messages -= number
        self.body_bytes = body_bytes
        self.counted_bytes = counted_bytes
        return number
