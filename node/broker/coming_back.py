"""The ways in which messages come back to their queues, as all members know them (RULES Q1)."""

from __future__ import annotations

from mayfly.cluster.versions import LEVEL_FAILED_DELIVERIES
from mayfly.node.shard.commands import DISCARD, GIVE_BACK, REJECT, REQUEUE
from mayfly.node.shard.message import FAILED, GIVEN_BACK


def nack_outcome(level: int, requeue: bool) -> int:
    """What basic.nack and basic.recover are to a shard: no failed deliveries, once all members know the word. `level`
    is the catalog's."""
    if level < LEVEL_FAILED_DELIVERIES:
        return REQUEUE if requeue else REJECT
    return GIVE_BACK if requeue else DISCARD


def giving_back(level: int) -> int:
    """The way in which a holder's messages come back that have not failed."""
    return GIVEN_BACK if level >= LEVEL_FAILED_DELIVERIES else FAILED
