"""A channel in tx mode: what it has published and settled since the last commit or rollback (AMQP 0-9-1, 1.9).

Nothing of it has reached a shard. A commit gives each shard its part as one command, which is applied as a whole or
not at all: one entry of its log. Over several shards it goes in two rounds. In the first are the publishes to shards
where nothing is settled; in the second, once these are stored, the rest. So whatever ends in between, an
acknowledgement counts only when all publishes that go elsewhere are safe: a message may come twice, none is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.amqp.content import Content
from node.broker.operation import AmqpError
from node.broker.unacknowledged import Settlement, Unacknowledged, UnknownTag
from node.limits import TRANSACTION_BYTES
from node.shard.commands import encode_transaction

if TYPE_CHECKING:
    from node.broker.publishing import Run


class Transaction:
    """What waits for the commit of one channel."""

    def __init__(self, most_bytes: int = TRANSACTION_BYTES) -> None:
        self.most_bytes: int = most_bytes
        self.size_bytes: int = 0
        # Unroutable, to be returned with the commit.
        self.returned: list[Content] = []
        # Direct replies, by address.
        self.replies: list[tuple[str, Content]] = []
        # By shard: how many publishes, and their commands.
        self._publishes: dict[int, tuple[int, list[bytes]]] = {}
        self._settled: list[tuple[int, list[int]]] = []
        self._settled_tags: set[int] = set()

    # -- what the client does -------------------------------------------------------

    def publish(self, runs: dict[int, Run]) -> None:
        """Keep publishes.  Raises AmqpError 406 when the transaction becomes too large."""
        for shard_id, run in runs.items():
            self.size_bytes += run.size_bytes
            count, parts = self._publishes.get(shard_id, (0, []))
            parts += run.parts
            self._publishes[shard_id] = (count + len(run.offsets), parts)
        if self.size_bytes > self.most_bytes:
            raise AmqpError(406, f"transaction is larger than {self.most_bytes} bytes")

    def settle(self, unacknowledged: Unacknowledged, tag: int, multiple: bool, outcome: int) -> None:
        """Keep a settlement.  Raises UnknownTag for a tag that is not outstanding, or settled in here before."""
        if tag in self._settled_tags:
            raise UnknownTag(tag)
        tags = [each for each in unacknowledged.outstanding(tag, multiple) if each not in self._settled_tags]
        self._settled_tags.update(tags)
        self._settled.append((outcome, tags))

    def is_settled(self, tag: int) -> bool:
        """Whether the commit will settle this tag."""
        return tag in self._settled_tags

    # -- the commit -----------------------------------------------------------------

    def first_round(self, unacknowledged: Unacknowledged) -> list[tuple[int, bytes]]:
        """Shards and commands that come before all others: publishes to where nothing is settled."""
        settling = {unacknowledged.holder_of(tag).shard_id for tag in self._settled_tags}
        first: list[tuple[int, bytes]] = []
        for shard_id in [shard for shard in self._publishes if shard not in settling]:
            count, parts = self._publishes.pop(shard_id)
            first.append((shard_id, encode_transaction(count, parts)))
        return first

    def second_round(self, unacknowledged: Unacknowledged) -> list[tuple[int, bytes]]:
        """The rest.  The tags are settled in `unacknowledged` by this."""
        by_shard: dict[int, list[Settlement]] = {}
        for outcome, tags in self._settled:
            for tag in tags:
                unacknowledged.settle(tag, False, outcome)
        for settlement in unacknowledged.take():
            by_shard.setdefault(settlement.holder.shard_id, []).append(settlement)
        for shard_id in by_shard:
            self._publishes.setdefault(shard_id, (0, []))
        second: list[tuple[int, bytes]] = []
        for shard_id, (count, parts) in self._publishes.items():
            settles = [settlement.encode() for settlement in by_shard.get(shard_id, [])]
            second.append((shard_id, encode_transaction(count, [*parts, *settles])))
        return second
