"""A small history in which all is well, for tests that break one thing in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from simulation.outsider.judging.history import (
    ACK,
    CONFIRMED,
    CONSUME,
    DECLARE,
    GET,
    OK,
    Call,
    DeathRow,
    DeclaredQueue,
    FanoutExchange,
    Handed,
    OutsiderHistory,
    OutsiderPublish,
    Phases,
    Setting,
    Settle,
)

EPOCH_MS = 1_790_000_000_000
S = 1_000_000
QUEUES = (
    DeclaredQueue("plain"),
    DeclaredQueue("timed", 1_000, dead_letter_exchange="", dead_letter_key="dead"),
    DeclaredQueue("dead"),
    DeclaredQueue("looped", 1_000, dead_letter_exchange="", dead_letter_key="loop end"),
    DeclaredQueue("loop end", 1_000, dead_letter_exchange="", dead_letter_key="looped"),
    DeclaredQueue("later", allow_schedule=True),
    DeclaredQueue("again", retry_min_ms=500),
    DeclaredQueue("leased", expires_ms=1_000),
    DeclaredQueue("tried", delivery_limit=1, dead_letter_exchange="", dead_letter_key="dead"),
    DeclaredQueue("short", max_length=1, dead_letter_exchange="", dead_letter_key="dead"),
)


def history(**changes: Any) -> OutsiderHistory:
    """No messages; a consumer with room for all waits for the dead."""
    setting = Setting(1, QUEUES, (FanoutExchange("both", ("plain", "timed")),), 250, 20, 500, EPOCH_MS)
    made = OutsiderHistory(replace(setting, **changes), Phases(0, 60 * S, 61 * S))
    made.calls += [called(DECLARE, queue.name, 0) for queue in QUEUES]
    made.calls.append(replace(called(CONSUME, "dead", S // 2, 9), tag="c1"))
    return made


def called(kind: str, queue: str, at_us: int, connection: int = 1, outcome: str = OK, code: int = 0) -> Call:
    """A call that takes a millisecond."""
    return Call("caller", connection, 1, kind, queue, at_us, at_us + 1_000, outcome, code, no_ack=kind == GET)


def published(message: int, queue: str, at_us: int, **more: Any) -> OutsiderPublish:
    """To one queue, confirmed a millisecond later."""
    made = OutsiderPublish("publisher", 2, 1, message, "", queue, at_us, at_us + 1_000, CONFIRMED)
    return replace(made, **more)


def handed(number: int, message: int, queue: str, at_us: int, **more: Any) -> Handed:
    """To the consumer that waits for it."""
    made = Handed(number, "consumer", 9, 1, queue, message, "c1", at_us, S // 2, False)
    return replace(made, **more)


def died(queue: str, at_us: int, reason: str = "expired", **more: Any) -> dict[str, Any]:
    """What a message of its says that has died there once, sent to that queue."""
    row = DeathRow(queue, reason, 1, (EPOCH_MS + at_us // 1_000) // 1_000, "", (queue,))
    return {"deaths": (replace(row, **more),), "first_death": (queue, reason), "last_death": (queue, reason)}


def one_death() -> OutsiderHistory:
    """A message that was sent at 2 s to live for a second, and was taken where the dead go."""
    made = history()
    made.publishes.append(published(1, "timed", 2 * S))
    made.handed.append(handed(1, 1, "dead", 3 * S + 300_000, **died("timed", 3 * S)))
    made.settles.append(Settle(1, ACK, 3 * S + 400_000))
    return made
