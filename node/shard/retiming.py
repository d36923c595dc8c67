"""A TTL that counts for what is queued already (RULES T12): other deadlines for millions of messages at once.

A deadline follows from when a message was enqueued, its own TTL and the queue's. So nothing has to be written anew that
nobody looks at: what is packed is marked (`Packed.retime`), and what is held has its deadline worked out when it comes
back, which is when it counts (T10). Only the messages at hand in a line are replaced.
"""

from mayfly.node.shard.message import Message, deadline_ms


class Retiming:
    """All that was enqueued before a place in the log has its deadline by this TTL of the queue, -1 for none,
    or by this TTL rule (`node.shard.dialect`)."""

    __slots__ = ("index", "offset", "ttl_ms")

    def __init__(self, ttl_ms: int, index: int, offset: int) -> None:
        self.ttl_ms = ttl_ms
        self.index = index
        self.offset = offset

    def of(self, message: Message) -> Message:
        """The message with the deadline that it has by now. (Its content stands in the command that enqueued it.)"""
        if message.index > self.index or (message.index == self.index and message.offset >= self.offset):
            return message
        return message.with_deadline(deadline_ms(message.enqueued_ms, message.ttl_ms, self.ttl_ms))
