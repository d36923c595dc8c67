"""What a queue that is gone or was purged left behind: to be dead-lettered (RULES L11), or too much to be released at
once. Some goes with each entry (C4).
"""

from node.shard.message import Message
from node.shard.settings import ShardQueueSettings


class Remains:
    """Messages that are no queue's any more, in the order in which they go; those before ``position`` have.

    ``settings`` say where the messages go: nowhere, without ``expires_dead_letter``.
    """

    __slots__ = ("messages", "position", "queue_id", "settings")

    def __init__(self, queue_id: int, settings: ShardQueueSettings, messages: list[Message], position: int = 0) -> None:
        self.queue_id = queue_id
        self.settings = settings
        self.messages = messages
        self.position = position

    def take(self, count: int) -> list[Message]:
        """The next ones, at most ``count``."""
        first, messages = self.position, self.messages
        taken = messages[first : first + count]
        self.position = first + len(taken)
        if self.position < len(messages):
            # They are freed with whoever took them: to free millions at once takes long.
            messages[first : self.position] = [messages[-1]] * len(taken)
        return taken

    @property
    def is_over(self) -> bool:
        """Whether all of them have gone."""
        return self.position == len(self.messages)

    @property
    def die(self) -> bool:
        """Whether they are dead-lettered."""
        return self.settings.expires_dead_letter and self.settings.dead_letter_exchange is not None
