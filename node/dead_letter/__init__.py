"""Dead-lettering: the headers of death, cycles, and where dead messages go (RULES D). Pure."""
from mayfly.node.dead_letter.cycles import is_cycle
from mayfly.node.dead_letter.death_headers import (
    DELIVERY_LIMIT,
    EXPIRED,
    MAXLEN,
    QUEUE_EXPIRED,
    REASONS,
    REJECTED,
    DeadMessage,
    DeathHistory,
    DeathWriter,
)
from mayfly.node.dead_letter.due import DueDecision, decide_due, delay_ms_of
from mayfly.node.dead_letter.redrive import (
    Origin,
    RedriveDecision,
    RedriveRouter,
    RedriveTerms,
    origin_of,
    terms_of,
)
from mayfly.node.dead_letter.routing import DeadLetterDecision, DeadLetterRouter, DeadLetterSource, may_go_to

__all__ = [
    "DELIVERY_LIMIT",
    "EXPIRED",
    "MAXLEN",
    "QUEUE_EXPIRED",
    "REASONS",
    "REJECTED",
    "DeadLetterDecision",
    "DeadLetterRouter",
    "DeadLetterSource",
    "DeadMessage",
    "DeathHistory",
    "DeathWriter",
    "DueDecision",
    "Origin",
    "RedriveDecision",
    "RedriveRouter",
    "RedriveTerms",
    "decide_due",
    "delay_ms_of",
    "is_cycle",
    "may_go_to",
    "origin_of",
    "terms_of",
]
