"""Compares a shard with the catalog, bit by bit: what the one has and the other has not is created, or dropped.

    in the catalog, and not in the shard   -> CREATE_QUEUE
    in the shard, and not in the catalog   -> DROP_QUEUE
    in the shard, in the catalog elsewhere -> MOVE_OUT to there, unless it has left or is about to come
    empty lanes to queues that are gone    -> LANE_CLOSED

Below LEVEL_NUMBERED_MOVES the catalog takes a QueueMoved that comes late, from a node that was cut off, for that of a
later move on the same way, which may not have begun. All messages of the queue are here then, or on their way: it goes
where the catalog has it. A catalog that is behind has no say: that move is none that the queue has not made yet.

Only the shard's own queues are looked at on either side, so many in a step. Both sides change between the steps: each
queue is judged by what both say at the same moment, and whoever asked for the comparison looks whether to have another.
"""

from collections.abc import Callable
from typing import Final

from mayfly.node.catalog import Catalog
from mayfly.node.catalog.shard_settings import shard_settings
from mayfly.node.duties.queue_moves import encode_move
from mayfly.node.limits import QUEUES_UPDATED_PER_ENTRY
from mayfly.node.shard import commands
from mayfly.node.shard.shard import Shard

QUEUES_PER_STEP: Final = 4_096
"""As many as the largest block of the catalog has: a millisecond or two."""


def has_strayed(shard: Shard, catalog: Catalog, queue_id: int) -> bool:
    """Whether a queue is in the shard, and in the catalog elsewhere."""
    queue, record = shard.queue(queue_id), catalog.queue_by_id(queue_id)
    if queue is None or queue.has_left or record is None:
        return False
    return shard.shard_id not in (record.shard, record.moving_to)


class Comparison:
    """One comparison. The catalog here has, by its first step, all that was committed when it was made."""

    def __init__(self, shard: Shard, catalog: Catalog, give: Callable[[bytes], object]) -> None:
        self._shard = shard
        self._catalog = catalog
        self._give = give
        # What the shard gets later may be of commands that the catalog here has not applied at the first step.
        self._present = list(shard.queue_ids())
        self._present.reverse()
        self._blocks: list[int] | None = None
        self.differed: bool = False
        """Whether anything was given."""
        self.created: list[int] = []
        """The queues that the shard was told to create in the last step."""

    def step(self) -> bool:
        """Look at some queues; whether that was the last step."""
        catalog, shard_id = self._catalog, self._shard.shard_id
        self.created = []
        if self._blocks is None:
            self._blocks = catalog.blocks_of_shard(shard_id)
            self._blocks.reverse()
        parts: list[bytes] = []
        left = QUEUES_PER_STEP
        while left > 0 and self._blocks:
            left -= self._look_for_missing(self._blocks.pop(), parts)
        if left > 0 and self._present:
            self._look_for_surplus(left, parts)
        over = not self._blocks and not self._present
        if over:
            parts += [
                commands.encode_lane_closed(lane.target_queue)
                for lane in self._shard.lanes()
                if not lane.items and catalog.queue_by_id(lane.target_queue) is None
            ]
        self.differed = self.differed or bool(parts)
        for first in range(0, len(parts), QUEUES_UPDATED_PER_ENTRY):
            self._give(b"".join(parts[first : first + QUEUES_UPDATED_PER_ENTRY]))
        return over

    def _look_for_missing(self, block: int, parts: list[bytes]) -> int:
        """Of a block of the catalog; how many queues that were."""
        shard, catalog = self._shard, self._catalog
        records = catalog.queues_in_block(shard.shard_id, block)
        for record in records:
            if shard.queue(record.id) is None and record.id not in shard.deleted:
                parts.append(commands.encode_create_queue(record.id, shard_settings(catalog, record)))
                self.created.append(record.id)
        return len(records)

    def _look_for_surplus(self, most: int, parts: list[bytes]) -> None:
        shard, catalog = self._shard, self._catalog
        some = self._present[-most:]
        del self._present[-most:]
        surplus: list[int] = []
        strayed: list[tuple[int, int, int]] = []
        for id in some:
            record = catalog.queue_by_id(id)
            queue = shard.queue(id)
            if queue is None or (record is not None and shard.shard_id in (record.shard, record.moving_to)):
                continue
            if record is None:
                surplus.append(id)
            elif not queue.has_left:
                # Whatever brought it there, from LEVEL_NUMBERED_MOVES on no queue leaves without a number.
                strayed.append((id, record.shard, max(1, record.move_number)))
        surplus.sort()
        strayed.sort()
        parts += [commands.encode_drop_queue(id) for id in surplus]
        parts += [encode_move(shard, id, target, number) for id, target, number in strayed]
