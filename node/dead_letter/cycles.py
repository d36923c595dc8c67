"""Dead-letter cycles (RULES D5): a message that comes back without anybody having looked at it."""
from __future__ import annotations

from mayfly.node.dead_letter.death_headers import REJECTED, DeathHistory


def is_cycle(history: DeathHistory, queue: str) -> bool:
    """Whether the message, `history` its deaths up to now, would come back to the queue all by itself.

    It would if the queue is in the history and no death since then, that one included, was a rejection: a
    consumer that rejects has seen the message and can stop (goldens dlx.self_cycle, dlx.retry_loop).
    """
    for died_in, reason in history:
        if reason == REJECTED:
            return False
        if died_in == queue:
            return True
    return False
