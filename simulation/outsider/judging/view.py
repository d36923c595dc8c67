"""A history by what the rules ask: by queue, by message, by connection, and when all was quiet."""

from __future__ import annotations

from dataclasses import dataclass

from simulation.outsider.judging.history import (
    ACK,
    CONFIRMED,
    DELETE,
    EMPTY,
    OK,
    PURGE,
    Call,
    DeclaredQueue,
    Ended,
    Handed,
    OutsiderHistory,
    OutsiderPublish,
    Settle,
)


def is_good_expiration(text: str | None) -> bool:
    """RULES T2; no expiration is a good one."""
    return text is None or (text.isascii() and text.isdigit() and int(text) <= 315_360_000_000)


@dataclass(frozen=True, slots=True)
class Finding:
    """A promise that was broken: the id of the rule (or `confirms`, `order`, `once`, `linearizable`), and what was
    seen."""

    rule: str
    text: str


class View:
    """Made once for each history."""

    def __init__(self, history: OutsiderHistory) -> None:
        self.history = history
        self.setting = history.setting
        self.clock_us = history.setting.clock_ms * 1_000
        self.behind_us = history.setting.behind_ms * 1_000
        self.queues = {queue.name: queue for queue in history.setting.queues}
        self.fans = {exchange.name: exchange.queues for exchange in history.setting.exchanges}
        self.publishes = {publish.message: publish for publish in history.publishes}
        self.handed: dict[tuple[int, str], list[Handed]] = {}
        for handed in sorted(history.handed, key=lambda each: (each.at_us, each.number)):
            self.handed.setdefault((handed.message, handed.queue), []).append(handed)
        self.settles: dict[int, Settle] = {settle.handed: settle for settle in history.settles}
        self.ends: dict[int, Ended] = {ended.connection: ended for ended in history.ended}
        self.calls: dict[str, list[Call]] = {}
        for call in history.calls:
            self.calls.setdefault(call.queue, []).append(call)
        self._busy = sorted((trouble.from_us, trouble.to_us) for trouble in history.troubles)
        self._touched: set[str] = set()
        for call in history.calls:
            if call.kind in ("get", "consume") and call.sent_us < history.phases.drain_us:
                self._touched.add(call.queue)

    def targets(self, exchange: str, key: str) -> tuple[str, ...]:
        """The queues that a publish goes to."""
        if exchange:
            return self.fans.get(exchange, ())
        return (key,) if key in self.queues else ()

    def routed(self, publish: OutsiderPublish) -> tuple[str, ...]:
        """The queues that a message was sent to."""
        return self.targets(publish.exchange, publish.routing_key)

    def after_death(self, queue: DeclaredQueue, publish: OutsiderPublish) -> tuple[str, ...]:
        """Where messages that die in a queue go; without a key of its own under the key they came with."""
        if queue.dead_letter_exchange is None:
            return ()
        key = publish.routing_key if queue.dead_letter_key is None else queue.dead_letter_key
        return self.targets(queue.dead_letter_exchange, key)

    def ttl_ms(self, publish: OutsiderPublish, queue: DeclaredQueue, is_first: bool) -> int | None:
        """RULES T3: the lowest counts. `expiration` is gone after the first death (D4)."""
        text = publish.expiration if is_first and is_good_expiration(publish.expiration) else None
        own = None if text is None else int(text)
        known = [ttl for ttl in (own, queue.ttl_ms) if ttl is not None]
        return min(known) if known else None

    def delay_ms(self, publish: OutsiderPublish, queue: DeclaredQueue, is_first: bool) -> int:
        """RULES S2: how long it waits before it is ready."""
        return max(0, publish.delay_ms or 0) if is_first and queue.allow_schedule else 0

    def is_quiet(self, from_us: int, to_us: int) -> bool:
        """Whether nothing was done to the cluster in that time, nor so shortly before that it may still show."""
        settle_us = self.setting.settle_ms * 1_000
        return not any(begin <= to_us and end + settle_us >= from_us for begin, end in self._busy)

    def is_untouched(self, queue: str) -> bool:
        """Whether nobody asked for messages of a queue before the drain."""
        return queue not in self._touched

    def has_moved(self, queue: str) -> bool:
        """Whether messages of a queue may have been on their way to another shard: there, and not to be had yet."""
        return queue in self.setting.moved

    def may_lose(self, queue: DeclaredQueue) -> bool:
        """Whether messages of a queue may be gone by what clients did, or by its lease."""
        return queue.expires_ms is not None or any(
            call.kind in (DELETE, PURGE) for call in self.calls.get(queue.name, ())
        )

    def is_surely_settled(self, handed: Handed) -> bool:
        """Whether the cluster has surely taken what the client said of a message: its connection lived on in quiet."""
        settle = self.settles.get(handed.number)
        if settle is None:
            return handed.no_ack
        end = self.ends.get(handed.connection)
        over_us = settle.sent_us + 1_000_000
        lived = end is None or end.at_us > over_us
        return lived and self.is_quiet(settle.sent_us, over_us)

    def acknowledged(self, handed: Handed) -> bool:
        """Whether the client took it."""
        settle = self.settles.get(handed.number)
        return handed.no_ack or (settle is not None and settle.how == ACK)

    def is_over(self, message: int, queue: str) -> bool:
        """Whether a message was taken from a queue for good, as far as clients know."""
        return any(self.acknowledged(each) for each in self.handed.get((message, queue), ()))

    def confirmed(self) -> list[OutsiderPublish]:
        """What the cluster answers for, in the order of sending."""
        return sorted(
            (each for each in self.publishes.values() if each.outcome == CONFIRMED), key=lambda each: each.sent_us
        )

    def found_empty(self, queue: str) -> list[Call]:
        """Gets that brought nothing."""
        return [call for call in self.calls.get(queue, ()) if call.kind == "get" and call.outcome == EMPTY]

    def answered(self, queue: str) -> list[Call]:
        """Calls that were answered well."""
        return [call for call in self.calls.get(queue, ()) if call.outcome in (OK, EMPTY)]
