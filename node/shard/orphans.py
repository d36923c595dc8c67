"""What a queue that is gone or was purged left behind: to be dead-lettered (RULES L11), or too much to be released at
once. Some goes with each entry (C4).
"""

from collections import deque

from mayfly.node.shard.line import Line
from mayfly.node.shard.message import Message
from mayfly.node.shard.settings import ShardQueueSettings


class Orphans:
    """Messages that no longer belong to a queue, in the order in which they go.

    ``settings`` say where the messages go: nowhere, without ``expires_dead_letter`` and ``journal``. ``number``: as
    many were there before. ``departed``: that of the stream whose messages they were, which have pieces of theirs
    count off there who left before.
    """

    __slots__ = ("departed", "line", "number", "queue_id", "settings")

    def __init__(
        self, queue_id: int, settings: ShardQueueSettings, line: Line, departed: list[tuple[int, int]]
    ) -> None:
        self.queue_id = queue_id
        self.settings = settings
        self.line = line
        self.departed = departed
        self.number = 0

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
        """Whether it makes a difference to anybody that they go: they are dead-lettered or noted in a journal."""
        return self.are_dead_lettered or self.settings.journal is not None

    @property
    def are_dead_lettered(self) -> bool:
        """Whether they are dead-lettered."""
        return self.settings.expires_dead_letter and self.settings.dead_letter_exchange is not None


class AllOrphans:
    """The orphaned messages of a shard, the oldest first: those that die and those that are only released go side by
    side, each with a bound of its own."""

    __slots__ = ("added", "dying", "released")

    def __init__(self) -> None:
        self.dying: deque[Orphans] = deque()
        self.released: deque[Orphans] = deque()
        self.added = 0

    def add(self, orphans: Orphans) -> None:
        """Some more."""
        orphans.number = self.added
        self.added += 1
        if orphans.die:
            self.dying.append(orphans)
        else:
            self.released.append(orphans)

    def are_there(self) -> bool:
        """Whether there are any."""
        return len(self.dying) > 0 or len(self.released) > 0

    def in_order(self) -> list[Orphans]:
        """All of them, the oldest first."""
        return sorted([*self.dying, *self.released], key=_number_of)


def _number_of(orphans: Orphans) -> int:
    return orphans.number
