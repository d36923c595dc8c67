"""What an expired queue left behind that is to be dead-lettered, some in each entry (RULES L11, C4)."""

from node.shard.message import Message
from node.shard.settings import ShardQueueSettings


class Remains:
    """The messages of a queue that is gone already, in the order in which they die; those before ``position`` have.

    ``settings`` are the queue's: they say where the messages go.
    """

    __slots__ = ("messages", "position", "queue_id", "settings")

    def __init__(self, queue_id: int, settings: ShardQueueSettings, messages: list[Message]) -> None:
        self.queue_id = queue_id
        self.settings = settings
        self.messages = messages
        self.position = 0

    def take(self, count: int) -> list[Message]:
        """The next ones, at most ``count``."""
        taken = self.messages[self.position : self.position + count]
        self.position += len(taken)
        return taken
