"""A channel in tx mode: what it has published and settled since the last commit or rollback (AMQP 0-9-1, 1.9).

Nothing of it has reached a shard: it waits in memory, so there are limits to one and to all of a node. A commit gives
each shard its part as one command, which is applied as a whole or not at all: one entry of its log. Over several shards
it goes in two rounds. In the first are the publishes to shards where nothing is settled; in the second, once these are
stored, the rest. So whatever ends in between, an acknowledgement counts only when all publishes that go elsewhere are
safe: a message may come twice, none is lost.

A publish is routed when it comes, to names of queues: one that is deleted and declared anew before the commit gets it,
as in RabbitMQ (3.10, rabbit_channel:deliver_to_queues).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mayfly.node.amqp.content import Content
from mayfly.node.broker.due_times import encode_content
from mayfly.node.broker.mandatory import MandatoryPart, MandatoryPublish
from mayfly.node.broker.operation import AmqpError
from mayfly.node.broker.unacknowledged import DeliveryHolder, Settlement, Unacknowledged, UnknownTag
from mayfly.node.limits import (
    OPEN_TRANSACTIONS_ALARM_PERCENT,
    OPEN_TRANSACTIONS_BYTES,
    TRANSACTION_BYTES,
    TRANSACTION_STEP_BYTES,
    TRANSACTION_STEPS,
)
from mayfly.node.shard.commands import ACK, NO_TTL, encode_transaction

if TYPE_CHECKING:
    from mayfly.node.catalog import Catalog, QueueRecord


class OpenTransactions:
    """What all transactions of one node hold, those included whose commit is under way."""

    def __init__(self, most_bytes: int = OPEN_TRANSACTIONS_BYTES) -> None:
        self.most_bytes: int = most_bytes
        self.size_bytes: int = 0
        # Whether there is an alarm.
        self.alarm: bool = False

    @property
    def limit_bytes(self) -> int:
        """What they may hold at the moment."""
        return self.most_bytes * OPEN_TRANSACTIONS_ALARM_PERCENT // 100 if self.alarm else self.most_bytes

    def too_large(self) -> AmqpError:
        """Why a transaction is given up when all together are too large."""
        alarm = " during an alarm" if self.alarm else ""
        return AmqpError(406, f"the transactions of this node are larger than {self.limit_bytes} bytes{alarm}")


class WaitingPublish:
    """One publish that waits for its commit."""

    def __init__(
        self, content: Content, returned: Content | None, ttl_ms: int, queues: list[QueueRecord],
        due: tuple[int, int] | None, stream_ttl_ms: int,
    ) -> None:
        self.stream_ttl_ms: int = stream_ttl_ms
        self.due: tuple[int, int] | None = due
        """See `due_times.due_of`; a delay counts from the commit."""
        self.content: Content = content
        # What goes back to the client if there is no queue; None unless it is mandatory.
        self.returned: Content | None = returned
        self.ttl_ms: int = ttl_ms
        self.queues: list[QueueRecord] = queues
        """Those that it was routed to, as they were then."""


class Transaction:
    """What waits for the commit of one channel.  `publish`, `add_reply` and `settle` raise AmqpError 406
    when it, or all of the node together, become too large."""

    def __init__(
        self, of_node: OpenTransactions, most_bytes: int = TRANSACTION_BYTES, most_steps: int = TRANSACTION_STEPS
    ) -> None:
        self.most_bytes: int = most_bytes
        self.most_steps: int = most_steps
        self.size_bytes: int = 0
        self.steps: int = 0
        # Direct replies, by address.
        self.replies: list[tuple[str, Content]] = []
        self._of_node = of_node
        self._waiting: list[WaitingPublish] = []
        # By shard, since `route`: how many publishes, and their commands.
        self._publishes: dict[int, tuple[int, list[bytes]]] = {}
        self._mandatory: dict[int, MandatoryPart] = {}
        self.routed: int = 0
        """Queues that its messages were routed to, each counted for each message."""
        self._settled: list[tuple[int, list[int]]] = []
        self._settled_tags: set[int] = set()
        # Up to here nothing is outstanding that is not settled in here.
        self._all_up_to: int = 0

    @property
    def publishes(self) -> int:
        """How many wait for the commit."""
        return len(self._waiting) + len(self.replies)

    @property
    def settlements(self) -> int:
        """How many deliveries the commit will settle."""
        return len(self._settled_tags)

    # -- what the client does -------------------------------------------------------

    def publish(
        self, content: Content, returned: Content | None, ttl_ms: int, queues: list[QueueRecord],
        due: tuple[int, int] | None, stream_ttl_ms: int = NO_TTL,
    ) -> None:
        """Keep a publish to these queues; `returned` goes back to the client if none of them is there at the commit."""
        self._grow(len(queues) or 1, _size_bytes(content, _shards_of(queues)))
        self._waiting.append(WaitingPublish(content, returned, ttl_ms, queues, due, stream_ttl_ms))

    def add_reply(self, address: str, content: Content) -> None:
        """Keep a direct reply."""
        self._grow(1, _size_bytes(content, 1))
        self.replies.append((address, content))

    def settle(self, unacknowledged: Unacknowledged, tag: int, multiple: bool, outcome: int) -> None:
        """Keep a settlement.  Raises UnknownTag for a tag that is not outstanding, or settled in here before."""
        if tag in self._settled_tags:
            raise UnknownTag(tag)
        if not multiple:
            unacknowledged.holder_of(tag)
            self._keep_settled(outcome, [tag])
            return
        tags = self._unsettled(unacknowledged, tag)
        if tags:
            self._keep_settled(outcome, tags)

    def take_unsettled(self, unacknowledged: Unacknowledged) -> list[int]:
        """The outstanding tags that the commit will not settle, for the caller to settle them now."""
        return self._unsettled(unacknowledged, 0)

    def _unsettled(self, unacknowledged: Unacknowledged, tag: int) -> list[int]:
        """All up to this tag (0: all) that is outstanding and not settled in here; it is looked at once."""
        tags = unacknowledged.outstanding(tag, True, self._all_up_to)
        self._all_up_to = max(self._all_up_to, tag or unacknowledged.next_tag - 1)
        return [each for each in tags if each not in self._settled_tags]

    def _keep_settled(self, outcome: int, tags: list[int]) -> None:
        self._grow(len(tags), TRANSACTION_STEP_BYTES * len(tags))
        self._settled_tags.update(tags)
        self._settled.append((outcome, tags))

    def _grow(self, steps: int, size_bytes: int) -> None:
        self.steps += steps
        self.size_bytes += size_bytes
        of_node = self._of_node
        of_node.size_bytes += size_bytes
        if self.steps > self.most_steps:
            raise AmqpError(406, f"transaction has more than {self.most_steps} publishes and acknowledgements")
        if self.size_bytes > self.most_bytes:
            raise AmqpError(406, f"transaction is larger than {self.most_bytes} bytes")
        if of_node.size_bytes > of_node.limit_bytes:
            raise of_node.too_large()

    def release(self) -> None:
        """It is over: its size counts no more."""
        self._of_node.size_bytes -= self.size_bytes
        self.size_bytes = 0

    # -- the commit -----------------------------------------------------------------

    def lacks_queues(self, catalog: Catalog) -> bool:
        """Whether a queue is gone that was published to, and none has its name now."""
        return any(
            len(_still_there(catalog, waiting.queues)) < len(waiting.queues) for waiting in self._waiting
        )

    def queues(self, catalog: Catalog) -> list[QueueRecord]:
        """The queues to which it publishes, as they are now."""
        found = [queue for waiting in self._waiting for queue in _still_there(catalog, waiting.queues)]
        return list({queue.id: queue for queue in found if queue.moves is not None}.values())

    def route(self, catalog: Catalog) -> list[Content]:
        """Find the shards of all publishes by the queues that there are now; what must be returned to the client, in
        the order of publishing.  Raises AmqpError 406 when that makes it, or all of the node together, too large."""
        routed = [_by_shard(catalog, waiting.queues) for waiting in self._waiting]
        self._count_shards(routed)
        returned: list[Content] = []
        for waiting, by_shard in zip(self._waiting, routed, strict=True):
            if not by_shard and waiting.returned is not None:
                returned.append(waiting.returned)
            content = waiting.content
            mandatory = None if waiting.returned is None else MandatoryPublish(waiting.returned, len(by_shard))
            for shard_id, queue_ids in by_shard.items():
                self.routed += len(queue_ids)
                count, parts = self._publishes.get(shard_id, (0, []))
                encode_content(parts, queue_ids, waiting.ttl_ms, content, waiting.due, waiting.stream_ttl_ms)
                self._publishes[shard_id] = (count + 1, parts)
                if mandatory is not None:
                    self._mandatory.setdefault(shard_id, MandatoryPart()).add(count, mandatory)
        self._waiting.clear()
        return returned

    def answered(self, shard_id: int, result: object) -> list[Content]:
        """What must be returned to the client now that a shard has done its part: it came to no queue."""
        mandatory = self._mandatory.pop(shard_id, None)
        return [] if mandatory is None else mandatory.answered(result)

    def _count_shards(self, routed: list[dict[int, list[int]]]) -> None:
        """Each shard gets a copy of the message: queues that were declared anew may be in more of them."""
        more_bytes = 0
        for waiting, by_shard in zip(self._waiting, routed, strict=True):
            more_bytes += _size_bytes(waiting.content, len(by_shard))
            more_bytes -= _size_bytes(waiting.content, _shards_of(waiting.queues))
        if more_bytes > 0:
            self._grow(0, more_bytes)

    def holders(self, unacknowledged: Unacknowledged) -> list[DeliveryHolder]:
        """Those that hold what it settles."""
        found = [unacknowledged.holder_of(tag) for tag in self._settled_tags]
        return list({holder.holder_id: holder for holder in found}.values())

    def can_settle(self, unacknowledged: Unacknowledged) -> bool:
        """Whether all that was settled is held still.  What a shard has taken back, because this node was lost to it,
        goes to others: then the transaction must not count, or it would be done twice."""
        return all(unacknowledged.holder_of(tag).alive for tag in self._settled_tags)

    @property
    def acknowledged(self) -> int:
        """How many tags it acknowledges."""
        return sum([len(tags) for outcome, tags in self._settled if outcome == ACK])

    def first_round(self, unacknowledged: Unacknowledged) -> Iterator[tuple[int, bytes]]:
        """Shards and commands that come before all others: publishes to where nothing is settled. Each is made when it
        is wanted: of a large one the octets are there once for each shard."""
        settling = {unacknowledged.holder_of(tag).shard_id for tag in self._settled_tags}
        for shard_id in [shard for shard in self._publishes if shard not in settling]:
            count, parts = self._publishes.pop(shard_id)
            yield shard_id, encode_transaction(count, parts)

    def second_round(self, unacknowledged: Unacknowledged) -> Iterator[tuple[int, bytes]]:
        """The rest, made in the same way.  The tags are settled in `unacknowledged` before the first."""
        by_shard: dict[int, list[Settlement]] = {}
        for outcome, tags in self._settled:
            for tag in tags:
                unacknowledged.settle(tag, False, outcome)
        for settlement in unacknowledged.take():
            by_shard.setdefault(settlement.holder.shard_id, []).append(settlement)
        for shard_id in by_shard:
            self._publishes.setdefault(shard_id, (0, []))
        for shard_id, (count, parts) in self._publishes.items():
            settles = [settlement.encode() for settlement in by_shard.get(shard_id, [])]
            yield shard_id, encode_transaction(count, [*parts, *settles])


def _still_there(catalog: Catalog, queues: list[QueueRecord]) -> list[QueueRecord]:
    """These queues, or those that have their names now; no mirrors (RULES J4)."""
    found: list[QueueRecord] = []
    for queue in queues:
        named = catalog.delay_queue if queue.delays else catalog.queue
        now = catalog.queue_by_id(queue.id) or named(queue.vhost, queue.name)
        if now is not None and now.settings.mirror is None:
            found.append(now)
    return found


def _by_shard(catalog: Catalog, queues: list[QueueRecord]) -> dict[int, list[int]]:
    """The ids of those that are still there, by their shard."""
    by_shard: dict[int, list[int]] = {}
    for queue in _still_there(catalog, queues):
        by_shard.setdefault(queue.shard, []).append(queue.id)
    return by_shard


def _shards_of(queues: list[QueueRecord]) -> int:
    """In how many shards these queues are."""
    return len({queue.shard for queue in queues})


def _size_bytes(content: Content, shards: int) -> int:
    """What a message counts for that goes to so many shards; one that goes nowhere waits all the same."""
    return (content.size_bytes + TRANSACTION_STEP_BYTES) * max(1, shards)
