"""Which messages of a queue a redrive moves, and where to: decided here for it and for its preview alike (RULES R1)."""

from collections.abc import Callable
from typing import Final

from mayfly.node.dead_letter import RedriveDecision, RedriveRouter, RedriveTerms
from mayfly.node.shard import commands
from mayfly.node.shard.message import Message
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.redrive import Redrive

# What becomes of a message.
NOT_ITS_OWN: Final = 0
"""It came after the start, or is about to expire."""
STAYS: Final = 1
NO_ROUTE: Final = 2
"""It is meant, but there is no queue to which it could go: it stays as well."""
MOVES: Final = 3


class Judged:
    """What becomes of a message. With MOVES and NO_ROUTE there is a decision; ``original`` is the message as it is."""

    __slots__ = ("decision", "fate", "original")

    def __init__(
        self, fate: int, original: commands.LetterContent | None = None, decision: RedriveDecision | None = None
    ) -> None:
        self.fate = fate
        self.original = original
        self.decision = decision


_NOT_ITS_OWN: Final = Judged(NOT_ITS_OWN)
_STAYS: Final = Judged(STAYS)


class RedriveJudge:
    """Judges with the local catalog and the local log."""

    def __init__(self, router: RedriveRouter, content: Callable[[Message], commands.LetterContent]) -> None:
        """`content(message)`: of one that lives; its body may be said to be elsewhere."""
        self._router = router
        self._content = content

    def judge(
        self, queue: Queue, redrive: Redrive, terms: RedriveTerms, message: Message, time_ms: int,
        with_content: bool = True,
    ) -> Judged:
        """About a message of the queue, at this time of its shard's clock."""
        if not redrive.is_meant(message.index, message.enqueued_ms) or 0 <= message.deadline_ms <= time_ms:
            return _NOT_ITS_OWN
        if not terms.is_of_age(redrive.started_ms - message.enqueued_ms):
            return _STAYS
        original = self._content(message)
        decision = self._router.decide(queue.vhost, queue.name, terms, original, with_content)
        if not decision.meant:
            return _STAYS
        return Judged(MOVES if decision.targets else NO_ROUTE, original, decision)
