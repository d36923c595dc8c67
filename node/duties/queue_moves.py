"""What the leader of a shard does for a queue that is to move to another one, or has come from one.

    the catalog says that it is to move   -> MOVE_OUT, unless dead letters before its own are held up (RULES D7), once
                                             the other shard has a leader, and a redrive of it is over (R1)
    it is there, with all that was in it  -> QueueMoved in the catalog: publishers go there from then on

Both name the move by its number: either the catalog here or the shard may be behind, and have a queue on its way that
has come back since, and perhaps is to go the same way once more.

What is between is seen to with the shard's lanes (`node.duties.lane_transfers`). A queue that refuses publishes is said
to have moved as soon as it is there: only there is known whether it is full, so its publishers wait for the rest.
"""

from collections.abc import Callable
from typing import Final

from mayfly.cluster.versions import LEVEL_NUMBERED_MOVES
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


def encode_move(shard: Shard, queue_id: int, target_shard: int, number: int) -> bytes:
    """The MOVE_OUT for a queue of the shard, with the number of the move if that is taken there."""
    return commands.encode_move_out(queue_id, target_shard, number if shard.level >= LEVEL_NUMBERED_MOVES else 0)


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
        self._asked: dict[int, tuple[int, int]] = {}
        """By queue, the number of its move, and when it was first seen that it is to be made."""
        self._given_ms: dict[int, int] = {}
        """By queue, when something was given for it."""

    def perform(self, now_ms: int) -> None:
        """Give what is due."""
        moving = self._catalog.moving_queues()
        if not moving:
            if self._asked or self._given_ms:
                self.forget()
            return
        if len(self._given_ms) > len(moving):
            ids = {record.id for record in moving}
            self._given_ms = {id: ms for id, ms in self._given_ms.items() if id in ids}
            self._asked = {id: asked for id, asked in self._asked.items() if id in ids}
        for record in moving:
            if record.shard != self._shard.shard_id:
                continue
            queue = self._shard.queue(record.id)
            if queue is None or now_ms - self._given_ms.get(record.id, -AGAIN_MS) < AGAIN_MS:
                continue
            if queue.has_left:
                if self._is_there(record, queue):
                    self._given_ms[record.id] = now_ms
                    self._port.queue_moved(record.id, record.shard, record.moving_to, record.move_number + 1)
            elif not queue.is_redriven and self._shard.move_number(record.id) <= record.move_number:
                self._given_ms[record.id] = now_ms - AGAIN_MS + _LOST_MS
                if not self._waits(record, queue, now_ms):
                    self._give(encode_move(self._shard, record.id, record.moving_to, record.move_number + 1))

    def _waits(self, record: QueueRecord, queue: Queue, now_ms: int) -> bool:
        number, first_ms = self._asked.get(record.id, (-1, 0))
        if number != record.move_number:
            first_ms = now_ms
            self._asked[record.id] = (record.move_number, now_ms)
        if not self._port.has_leader(record.moving_to):
            return True  # Nothing could take the queue in.
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
        if self._shard.move_number(record.id) not in (0, record.move_number + 1):
            return False  # That was another move.
        reached = moving.manifest_sequence if queue.refuses else moving.end_sequence
        target, source = moving.target_shard, self._shard.shard_id
        received = self._port.received_up_to(target, queue.queue_id, source)
        if received < reached:
            # A leader that finds all sent has asked about nothing yet.
            self._port.room(target, queue.queue_id, source, 0)
        return 0 < reached <= received
