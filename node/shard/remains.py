"""What a queue that is gone or was purged left behind: to be dead-lettered (RULES L11), or too much to be released at
once. Some goes with each entry (C4).
"""

from node.shard.line import Line
from node.shard.message import Message
from node.shard.settings import ShardQueueSettings


class Remains:
    """Messages that are no queue's any more, in the order in which they go.

    ``settings`` say where the messages go: nowhere, without ``expires_dead_letter``.
    """

    __slots__ = ("line", "queue_id", "settings")

    def __init__(self, queue_id: int, settings: ShardQueueSettings, line: Line) -> None:
        self.queue_id = queue_id
        self.settings = settings
        self.line = line

    def take(self, count: int) -> list[Message]:
        """The next ones, at most ``count``."""
        taken: list[Message] = []
        line = self.line
        while len(taken) < count:
            some = line.items[line.head : line.head + count - len(taken)]
            if not some:
                break
            taken += some
            line.advance(len(some))
        return taken

    @property
    def is_over(self) -> bool:
        """Whether all of them have gone."""
        return self.line.count() == 0

    @property
    def die(self) -> bool:
        """Whether they are dead-lettered."""
        return self.settings.expires_dead_letter and self.settings.dead_letter_exchange is not None
