"""What the leader of a shard does for a queue that is to move to another one, or has come from one.

    the catalog says that it is to move   -> MOVE_OUT, unless dead letters before its own are held up (RULES D7), and
                                             once a redrive of it is over (R1)
    it is there, with all that was in it  -> QueueMoved in the catalog: publishers go there from then on

What is between is seen to with the shard's lanes (`node.duties.lane_transfers`). A queue that refuses publishes is said
to have moved as soon as it is there: only there is known whether it is full, so its publishers wait for the rest.
"""

from collections.abc import Callable
from typing import Final

from mayfly.node.catalog import QueueRecord
from mayfly.node.dead_letter import may_go_to
from mayfly.node.duties.port import DutyPort
from mayfly.node.duties.progress import AGAIN_MS
from mayfly.node.shard import commands
from mayfly.node.shard.outbox import LETTER, Lane, item_kind
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.shard import Shard

HELD_UP_MS: Final = 30_000
"""For so long a move waits where dead letters do not get on, say for room, and those of its queue may go the same way.
After that those that die in the new shard may overtake them."""

_LOST_MS: Final = 200
"""A MOVE_OUT that was to have an effect has it by then."""


class QueueMoves:
    """The duty for one shard."""

    def __init__(
        self,
        shard: Shard,
        port: DutyPort,
        give: Callable[[bytes], object],
        clock: Callable[[int], int],
        has_room: Callable[[Lane, int], bool],
    ) -> None:
        """`give(command)` takes an internal command for the shard, which may get lost; `clock(now_ms)` is the shard's
        clock; `has_room(lane, now_ms)`: all that waits in the lane is known to have room."""
        self._clock = clock
        self._has_room = has_room
        self._shard = shard
        self._port = port
        self._catalog = port.catalog
        self._give = give
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self._asked_ms: dict[int, int] = {}
        """By queue, when it was first seen that it is to move."""
        self._given_ms: dict[int, int] = {}
        """By queue, when something was given for it."""

    def perform(self, now_ms: int) -> None:
        """Give what is due."""
        moving = self._catalog.moving_queues()
        if not moving:
            if self._asked_ms:
                self.forget()
            return
        for record in moving:
            if record.shard != self._shard.shard_id:
                continue
            queue = self._shard.queue(record.id)
            if queue is None or now_ms - self._given_ms.get(record.id, -AGAIN_MS) < AGAIN_MS:
                continue
            if queue.has_left:
                if self._is_there(record, queue):
                    self._given_ms[record.id] = now_ms
                    self._port.queue_moved(record.id, record.shard, record.moving_to)
            elif not queue.is_redriven:
                self._given_ms[record.id] = now_ms - AGAIN_MS + _LOST_MS
                if not self._waits(queue, now_ms):
                    self._give(commands.encode_move_out(record.id, record.moving_to))

    def _waits(self, queue: Queue, now_ms: int) -> bool:
        first_ms = self._asked_ms.setdefault(queue.queue_id, now_ms)
        leaves_any = queue.dead_letters or queue.journals
        return now_ms - first_ms < HELD_UP_MS and leaves_any and self._are_held_up(queue, now_ms)

    def _are_held_up(self, queue: Queue, now_ms: int) -> bool:
        """Whether dead letters before those of the queue have no room, or have waited for so long that it may last."""
        before_ms = self._clock(now_ms) - AGAIN_MS
        if any(death.time_ms < before_ms for death in self._shard.unrouted(1)):
            return True
        source = queue.settings
        return any(
            item_kind(lane.items[0]) == LETTER
            and may_go_to(self._catalog, source, lane.target_queue)
            and (lane.items[0].enqueued_ms < before_ms or not self._has_room(lane, now_ms))
            for lane in self._shard.filled_lanes()
        )

    def _is_there(self, record: QueueRecord, queue: Queue) -> bool:
        """Whether publishers may go to the new shard."""
        moving = queue.moving
        if moving is None or moving.target_shard != record.moving_to:
            return False
        reached = moving.manifest_sequence if queue.refuses else moving.end_sequence
        target, source = moving.target_shard, self._shard.shard_id
        received = self._port.received_up_to(target, queue.queue_id, source)
        if received < reached:
            # A leader that finds all sent has asked about nothing yet.
            self._port.room(target, queue.queue_id, source, 0)
        return 0 < reached <= received
