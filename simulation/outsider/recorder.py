"""Turns what clients see into a history: numbers for connections and messages, and records with their times."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from simulation.outsider.judging.history import (
    CLOSED,
    UNKNOWN,
    Call,
    Cancelled,
    DeathRow,
    Ended,
    Handed,
    OutsiderHistory,
    OutsiderPublish,
    Settle,
)
from simulation.outsider.workload import Outgoing, message_of


@dataclass(slots=True)
class Consuming:
    """A consumer of a client, and since when it can have been given what comes next."""

    queue: str
    tag: str
    prefetch: int
    room_since_us: int
    holds: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a publish or a call: its outcome, and the code if the channel was closed instead."""

    outcome: str
    code: int = 0
    at_us: int | None = None


NO_ANSWER = Answer(UNKNOWN)


def closed(code: int, at_us: int) -> Answer:
    """The channel or connection was closed instead; without a code nobody knows what came of it."""
    return Answer(CLOSED, code, at_us) if code else NO_ANSWER


class Recorder:
    """The history of a run as it grows."""

    def __init__(self, history: OutsiderHistory) -> None:
        self.history = history
        self._connections = 0
        self._handed = 0

    def connection(self) -> int:
        """A number for a new one."""
        self._connections += 1
        return self._connections

    def published(
        self, client: str, connection: int, node: int, outgoing: Outgoing, sent_us: int, answer: Answer
    ) -> None:
        """The answer to a publish has come, or will never come."""
        self.history.publishes.append(
            OutsiderPublish(
                client, connection, node, outgoing.message, outgoing.exchange, outgoing.routing_key, sent_us,
                answer.at_us, answer.outcome, answer.code, outgoing.expiration, outgoing.delay_ms, outgoing.priority,
            )
        )  # fmt: skip

    def called(
        self, client: str, connection: int, node: int, kind: str, queue: str, sent_us: int, answer: Answer,
        **more: Any,
    ) -> None:  # fmt: skip
        """The same of a call; `more`: fields of `Call`."""
        self.history.calls.append(
            Call(client, connection, node, kind, queue, sent_us, answer.at_us, answer.outcome, answer.code, **more)
        )

    def handed(
        self, client: str, connection: int, node: int, queue: str, tag: str, at_us: int, since_us: int,
        message: HandedMessage,
    ) -> Handed:  # fmt: skip
        """A message has come."""
        self._handed += 1
        headers = message.headers
        handed = Handed(
            self._handed, client, connection, node, queue, message_of(message.body), tag, at_us, since_us,
            message.redelivered, message.no_ack, message.expiration, deaths_of(headers),
            _death_of(headers, "first"), _death_of(headers, "last"),
        )  # fmt: skip
        self.history.handed.append(handed)
        return handed

    def settled(self, handed: int, how: str, sent_us: int) -> None:
        """The client has said what it does with a message."""
        self.history.settles.append(Settle(handed, how, sent_us))

    def ended(self, client: str, connection: int, node: int, at_us: int, polite: bool) -> None:
        """A connection is over."""
        self.history.ended.append(Ended(client, connection, node, at_us, polite))

    def cancelled(self, connection: int, consuming: Consuming, at_us: int) -> None:
        """The cluster took a consumer away."""
        self.history.cancelled.append(Cancelled(connection, consuming.queue, consuming.tag, at_us))


@dataclass(frozen=True, slots=True)
class HandedMessage:
    """What a client library hands over."""

    body: bytes
    redelivered: bool
    expiration: str | None
    headers: dict[str, Any]
    no_ack: bool = False


def deaths_of(headers: dict[str, Any]) -> tuple[DeathRow, ...]:
    """The rows of `x-death`, in its order."""
    return tuple(
        DeathRow(
            str(row["queue"]), str(row["reason"]), int(row["count"]), int(row["time"].timestamp()),
            str(row["exchange"]), tuple(map(str, row["routing-keys"])), row.get("original-expiration"),
        )
        for row in headers.get("x-death", ())
    )  # fmt: skip


def _death_of(headers: dict[str, Any], which: str) -> tuple[str, str] | None:
    queue, reason = headers.get(f"x-{which}-death-queue"), headers.get(f"x-{which}-death-reason")
    return None if queue is None and reason is None else (str(queue), str(reason))
