"""Where a dead message goes: the decision a shard's leader takes and records in the log (RULES D5, D8)."""
from __future__ import annotations

from typing import Final, Protocol

from mayfly.node.amqp.content import Content, property_span
from mayfly.node.amqp.field_table import table_to_python
from mayfly.node.catalog import Catalog, QueueRecord
from mayfly.node.catalog.routing_steps import TooManySteps
from mayfly.node.catalog.ttl_dialects import OTTERMQ
from mayfly.node.content_header import HEADERS
from mayfly.node.dead_letter.cycles import is_cycle
from mayfly.node.dead_letter.death_headers import DeadMessage, DeathWriter, PublishedContent, text_time
from mayfly.node.dead_letter.publisher_headers import as_shown

_REMEMBERED: Final = 4096
_LONGEST_REMEMBERED_HEADER_BYTES: Final = 2048


class DeadLetterSource(Protocol):
    """What counts of the queue a message died in; the queue itself may be gone."""

    @property
    def vhost(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def dead_letter_exchange(self) -> str | None: ...
    @property
    def dead_letter_routing_key(self) -> str | None: ...
    @property
    def ttl_dialect(self) -> str: ...


class NotedSource(DeadLetterSource, Protocol):
    """The same, and where it is noted what dies there."""

    @property
    def journal(self) -> str | None: ...


class DeadLetterDecision:
    """Where one dead message goes.

    `targets` are the queues it goes to. `cycles` are those it was routed to and is dropped from (D5). Both
    are empty when it is unroutable: the exchange is missing, nothing is bound, or it takes too many steps (D8).
    `content` is the message with its new headers, also when it goes nowhere.
    """

    __slots__ = ("content", "cycles", "targets")

    def __init__(
        self, content: Content, targets: tuple[QueueRecord, ...], cycles: tuple[QueueRecord, ...]
    ) -> None:
        self.content = content
        self.targets = targets
        self.cycles = cycles

    @property
    def unroutable(self) -> bool:
        """Whether no queue was found at all."""
        return not self.targets and not self.cycles


def may_go_to(catalog: Catalog, source: NotedSource, queue_id: int) -> bool:
    """Whether what dies in the source may be routed to that queue, or be noted there (RULES R4), as the catalog is
    now."""
    exchange, target = source.dead_letter_exchange, catalog.queue_by_id(queue_id)
    if target is None or target.vhost != source.vhost:
        return False
    if target.name == source.journal:
        return True
    if exchange is None:
        return False
    return catalog.may_reach(source.vhost, exchange, source.dead_letter_routing_key, target.name)


class DeadLetterRouter:
    """Decides for the local replica of the catalog. Not part of the replicated state: its decisions are."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._writer = DeathWriter()
        self._text_writer = DeathWriter(text_time)
        self._routing_version = -1
        self._decided: dict[
            tuple[str, str, DeadMessage], tuple[tuple[QueueRecord, ...], tuple[QueueRecord, ...]]
        ] = {}

    def decide(
        self, source: DeadLetterSource, content: PublishedContent, reason: str, time_s: int
    ) -> DeadLetterDecision:
        """Decide for a message that died in the source for the reason (D2) at `time_s`, seconds since 1970.

        ValueError if the source has no dead-letter exchange: its dead are discarded, not routed.
        """
        exchange = source.dead_letter_exchange
        if exchange is None:
            raise ValueError(f"queue {source.name!r} has no dead-letter exchange")
        writer = self._text_writer if source.ttl_dialect == OTTERMQ else self._writer
        dead = writer.write(
            content, source.name, reason, time_s, exchange, source.dead_letter_routing_key
        )
        if self._routing_version != self._catalog.routing_version or len(self._decided) >= _REMEMBERED:
            self._decided.clear()
            self._routing_version = self._catalog.routing_version
        # Messages that are alike share one DeadMessage, which is told apart by identity.
        remembered_as = (source.vhost, exchange, dead)
        found = self._decided.get(remembered_as)
        if found is None:
            found = self._route(source.vhost, exchange, dead)
            if len(dead.header) <= _LONGEST_REMEMBERED_HEADER_BYTES:
                self._decided[remembered_as] = found
        return DeadLetterDecision(dead.content(content.body), found[0], found[1])

    def _route(
        self, vhost: str, exchange: str, dead: DeadMessage
    ) -> tuple[tuple[QueueRecord, ...], tuple[QueueRecord, ...]]:
        headers = None
        if self._catalog.looks_at_headers(vhost, exchange):
            header = as_shown(dead.header)
            start, stop = property_span(header, HEADERS)
            headers = table_to_python(header[start:stop])
        try:
            routed = self._catalog.route(vhost, exchange, dead.keys[0], headers, dead.keys[1:])
        except TooManySteps:
            return (), ()
        cycles = tuple([queue for queue in routed if is_cycle(dead.history, queue.name)])
        if not cycles:
            return routed, ()
        return tuple([queue for queue in routed if queue not in cycles]), cycles
