"""What waits in a shard's lanes goes to other shards: dead letters, and queues that move, in order and once.

    items of a lane      -> TRANSFER to the target's shard, SETTLED once it is seen to be there   (RULES D6, D7)
                            what is large alone, in pieces (`node.duties.large_transfers`)
    a queue that moved   -> MOVE_IN, then TRANSFER_MOVED
    a queue that is gone -> LANE_CLOSED, once the catalog here is known to be new enough

Nothing here is state: see `node.duties.shard_duties`, which this is a part of.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final

from mayfly.node.catalog import Catalog
from mayfly.node.dead_letter import may_go_to
from mayfly.node.duties.contents import content_of
from mayfly.node.duties.large_bodies import LargeLetters
from mayfly.node.duties.port import DutyPort
from mayfly.node.duties.progress import TargetProgress
from mayfly.node.limits import DEAD_LETTERS_PER_ENTRY, DEAD_LETTERS_UNDER_WAY, TRANSFER_BYTES
from mayfly.node.numbers import is_transient
from mayfly.node.shard import commands
from mayfly.node.shard.consumers import NO_WINDOW, UNLIMITED
from mayfly.node.shard.message import Message
from mayfly.node.shard.outbox import LETTER, MANIFEST, Lane, item_kind
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.room import NO_ROOM
from mayfly.node.shard.shard import Shard

EARLIER_DEATHS_MS: Final = 5000
"""For so long a queue that has left waits for dead letters that may be its own, before it is made in its new shard:
those that die there must not overtake them (RULES D7). Nobody is served by it meanwhile."""

_JUST_BEFORE: Final = 8
"""So many items before a large one are given to the session as well: more are quicker together, and waited for."""


class _EarlierDeaths:
    """What may have died in a queue before it left its shard: deaths up to a sequence and, once those are routed, what
    was in lanes to queues to which its deaths may go."""

    __slots__ = ("_lanes", "_queue", "_sequence", "manifest")

    def __init__(self, shard: Shard, queue: Queue, manifest: int) -> None:
        self.manifest = manifest
        self._queue = queue
        self._sequence = shard.last_death
        self._lanes: dict[int, int] | None = None

    def are_through(self, shard: Shard, catalog: Catalog) -> bool:
        """Whether they have arrived where they go."""
        if not (self._queue.dead_letters or self._queue.journals):
            return True
        head = shard.unrouted(1)
        if head and head[0].sequence <= self._sequence:
            return False
        if self._lanes is None:
            lanes = [
                lane
                for lane in shard.filled_lanes()
                if may_go_to(catalog, self._queue.settings, lane.target_queue)
                and not self._waits_for_this(shard, catalog, lane)
            ]
            if any(_is_behind(shard.queue(lane.target_queue)) for lane in lanes):
                return False
            self._lanes = {lane.target_queue: lane.last_sequence() for lane in lanes}
        for queue_id, last in list(self._lanes.items()):
            lane = shard.lane(queue_id)
            if lane is None or lane.first_sequence > last:
                del self._lanes[queue_id]
        return not self._lanes

    def _waits_for_this(self, shard: Shard, catalog: Catalog, lane: Lane) -> bool:
        """Whether the lane's queue leaves at the same time and its deaths may come to this one: those two do not wait
        for each other."""
        other = shard.queue(lane.target_queue)
        if other is None or other.moving is None or other.moving.manifest_sequence < lane.first_sequence:
            return False
        return may_go_to(catalog, other.settings, self._queue.queue_id)


def _is_behind(target: Queue | None) -> bool:
    """Whether letters to a queue that leaves may stand in its lines still, behind what has no room in its lane."""
    return target is not None and target.has_left and target.has_ready()


class LaneTransfers:
    """The lanes of one shard."""

    def __init__(
        self,
        shard: Shard,
        source: int,
        port: DutyPort,
        give: Callable[[bytes], object],
        entry: Callable[[int], bytes],
        clock: Callable[[int], int],
        large: LargeLetters | None,
    ) -> None:
        """See `node.duties.shard_duties.ShardDuties`."""
        self._shard = shard
        self._source = source
        self._port = port
        self._catalog = port.catalog
        self._give = give
        self._entry = entry
        self._clock = clock
        self._large = large
        self.forget()

    def forget(self) -> None:
        """Begin anew: what was given before may never have arrived."""
        self._now_ms = 0
        self._progress: dict[int, TargetProgress] = {}
        self._earlier: dict[int, _EarlierDeaths] = {}
        self._closable: set[int] = set()

    def may_close(self, queues: tuple[int, ...]) -> None:
        """If the catalog does not know these, they are gone: it is new enough now."""
        self._closable.update(queues)

    def move(self, now_ms: int) -> tuple[int, ...]:
        """Give what is due; the queues of lanes that nobody knows any more, unless the catalog here is only behind."""
        self._now_ms = now_ms
        given: list[bytes] = []
        missing: list[int] = []
        for lane in self._shard.filled_lanes():
            queue_id = lane.target_queue
            target_shard = self._place_of(lane)
            if not target_shard:
                continue
            received = self._port.received_up_to(target_shard, queue_id, self._source)
            if self._catalog.queue_by_id(queue_id) is None and (received < 0 or self._has_lost_its_queue(lane)):
                if queue_id in self._closable:
                    given.append(commands.encode_lane_closed(queue_id))
                else:
                    missing.append(queue_id)
                continue
            # A queue that is still to be created there has received nothing yet.
            wanted = max(lane.first_sequence, received + 1)
            progress = self._progress.get(queue_id)
            if progress is None or progress.target_shard != target_shard:
                progress = self._progress[queue_id] = TargetProgress(target_shard, wanted, now_ms)
            progress.wants(wanted, now_ms)
            stalled = progress.is_stalled(now_ms)
            if received >= lane.first_sequence and (received > progress.settled or stalled):
                progress.settled = received
                given.append(commands.encode_settled(queue_id, received))
            self._send(lane, progress, stalled, now_ms)
        if given:
            self._give(b"".join(given))
        return tuple(missing)

    def _has_lost_its_queue(self, lane: Lane) -> bool:
        """Whether a queue that was about to go this way has been dropped here before it went."""
        return item_kind(lane.items[0]) == MANIFEST and self._shard.queue(lane.target_queue) is None

    def has_room(self, lane: Lane, now_ms: int) -> bool:
        """Whether there is room for all that waits in the lane, as far as is known here."""
        target_shard = self._place_of(lane)
        if not target_shard:
            return True
        received = self._port.received_up_to(target_shard, lane.target_queue, self._source)
        wanted = max(lane.first_sequence, received + 1)
        return self._last_that_fits(lane, target_shard, wanted, now_ms) == lane.last_sequence()

    def _place_of(self, lane: Lane) -> int:
        """The shard of a lane's queue, 0 if the queue sees to the lane itself."""
        record = self._catalog.queue_by_id(lane.target_queue)
        queue = self._shard.queue(lane.target_queue)
        if queue is None or queue.moving is None:
            return lane.target_shard if record is None else record.shard
        moving = queue.moving
        if queue.has_left and (moving.end_sequence == 0 or lane.first_sequence <= moving.end_sequence):
            # Only that one takes the queue itself and what was in it, wherever the catalog has the queue by now.
            return moving.target_shard
        if queue.has_left and (record is None or record.shard == self._shard.shard_id):
            return moving.target_shard
        if record is None or queue.returns:
            return 0
        return record.shard

    def _send(self, lane: Lane, progress: TargetProgress, stalled: bool, now_ms: int) -> None:
        """Send what follows; again from what is wanted when nothing has arrived for a while. What the target has no
        room for waits (RULES D8)."""
        progress.go_on(stalled, now_ms)
        last = self._last_that_fits(lane, progress.target_shard, progress.wanted, now_ms)
        if progress.probing:
            last = min(last, progress.wanted)
        while progress.sent < last and progress.sent - progress.wanted < DEAD_LETTERS_UNDER_WAY:
            if progress.waits_for_large and not progress.may_send_large:
                return
            items, is_before_large = self._in_one_command(lane, progress, last)
            if is_before_large and self._send_in_pieces(lane, progress, items[0], now_ms):
                continue
            if progress.waits_for_large or self._goes_in_pieces(progress, items[0]):
                return
            if not self._may_go_whole(lane, progress, items, now_ms):
                return
            command = self._encode(lane.target_queue, progress.sent + 1, items, now_ms)
            self._port.transfer(progress.target_shard, command)
            progress.sent += len(items)

    def _in_one_command(self, lane: Lane, progress: TargetProgress, last: int) -> tuple[list[Message], bool]:
        """What goes next together: a large item alone. And whether it is that, or just before one: then the first had
        better go in pieces as well, so that the large one need not wait for it."""
        items: list[Message] = []
        size = 0
        first = lane.first_sequence
        most = _JUST_BEFORE + 1 if progress.waits_for_large else DEAD_LETTERS_PER_ENTRY
        for message in islice(lane.items, progress.sent + 1 - first, last + 1 - first):
            if self._goes_in_pieces(progress, message):
                return items or [message], len(items) <= _JUST_BEFORE
            items.append(message)
            size += message.content_length
            if size >= TRANSFER_BYTES or len(items) >= most:
                break
        return items, False

    def _goes_in_pieces(self, progress: TargetProgress, message: Message) -> bool:
        return self._large is not None and self._large.has(message) and not is_transient(progress.target_shard)

    def _may_go_whole(self, lane: Lane, progress: TargetProgress, items: list[Message], now_ms: int) -> bool:
        large = self._large
        if large is None or not is_transient(progress.target_shard):
            return True
        size_bytes = sum([item.body_length for item in items if large.has(item)])
        return not size_bytes or large.transfers.may_go_whole(lane.target_queue, self._source, size_bytes, now_ms)

    def _send_in_pieces(self, lane: Lane, progress: TargetProgress, item: Message, now_ms: int) -> bool:
        """Send this one, if it can go now. Nothing that goes another way follows before it has come (RULES D7)."""
        sequence = progress.sent + 1
        large = self._large
        if large is None or not progress.may_send_large:
            return False

        def applied() -> None:
            progress.large_was_applied(self._now_ms)
            self._port.ask_again(progress.target_shard, lane.target_queue, self._source)

        given = large.transfers.give(
            progress.target_shard, lane.target_queue, self._source, item.content_length,
            lambda: self._parts(lane.target_queue, sequence, item, now_ms), applied, now_ms,
        )  # fmt: skip
        if given:
            progress.sends_large(sequence)
        return given

    def _parts(self, queue_id: int, sequence: int, item: Message, now_ms: int) -> list[bytes]:
        """The command that brings one item of a lane to its queue; the last part is its body."""
        content = self._content(item)
        if item_kind(item) == LETTER and item.ttl_ms < 0:
            return commands.transfer_parts(self._source, queue_id, sequence, [content])
        return commands.transfer_moved_parts(
            self._source, queue_id, sequence, self._clock(now_ms), [(item, content)]
        )

    def _content(self, item: Message) -> commands.LetterContent:
        if self._large is not None and self._large.has(item):
            return self._large.content(item)
        return content_of(self._entry(item.index), item)

    def _encode(self, queue_id: int, first_sequence: int, items: list[Message], now_ms: int) -> bytes:
        """The command that brings these items of a lane to their queue."""
        if item_kind(items[0]) == MANIFEST:
            return self._shard.move_in(queue_id)
        are_letters = True
        for item in items:
            if item.ttl_ms >= 0 or item_kind(item) != LETTER:
                are_letters = False
                break
        contents: list[bytes] = []
        moved: list[tuple[Message, commands.LetterContent]] = []
        index, data = -1, b""
        for item in items:
            # Many in a row stand in the same entry; each may stand in one of its own, which is large.
            if item.index != index:
                index, data = item.index, self._entry(item.index)
            if are_letters:
                contents.append(data[item.offset : item.offset + item.content_length])
            else:
                moved.append((item, content_of(data, item)))
        if are_letters:
            return commands.encode_transfer(self._source, queue_id, first_sequence, items, contents)
        return commands.encode_transfer_moved(self._source, queue_id, first_sequence, self._clock(now_ms), moved)

    def _earlier_are_through(self, queue_id: int, manifest: int, left_ms: int, now_ms: int) -> bool:
        """Whether the queue, which left at that time of the shard's clock, can be made in its new shard: how long it
        waits does not begin anew with each leader."""
        queue = self._shard.queue(queue_id)
        if queue is None or self._clock(now_ms) - left_ms >= EARLIER_DEATHS_MS:
            return True
        earlier = self._earlier.get(queue_id)
        if earlier is None or earlier.manifest != manifest:
            earlier = self._earlier[queue_id] = _EarlierDeaths(self._shard, queue, manifest)
        return earlier.are_through(self._shard, self._catalog)

    def _last_that_fits(self, lane: Lane, target_shard: int, wanted: int, now_ms: int) -> int:
        """The last item of the lane that the target has room for, counted from the one it wants next. What was in the
        queue before it moved has its room."""
        last = lane.last_sequence()
        place = wanted - lane.first_sequence
        item = lane.items[place] if place < len(lane.items) else None
        room = self._port.room(target_shard, lane.target_queue, self._source, 0 if item is None else item.body_length)
        if item is not None and item_kind(item) == MANIFEST:
            if self._shard.queue(lane.target_queue) is None:
                return wanted - 1
            # What follows it needs the queue to be there.
            through = self._earlier_are_through(lane.target_queue, wanted, item.enqueued_ms, now_ms)
            return wanted if through else wanted - 1
        messages, body_bytes, counted_bytes = room.messages, room.body_bytes, room.counted_bytes
        needed_up_to = self._needed_up_to(lane) if room != NO_ROOM else 0
        if messages >= UNLIMITED and body_bytes >= UNLIMITED and counted_bytes >= NO_WINDOW:
            return last
        fits = wanted - 1
        for message in islice(lane.items, place, last + 1 - lane.first_sequence):
            if fits - wanted >= DEAD_LETTERS_UNDER_WAY:
                break
            if item_kind(message) == LETTER and fits >= needed_up_to:
                messages -= 1
                body_bytes -= message.body_length
                if messages < 0 or body_bytes < 0 or counted_bytes <= 0:
                    break
                counted_bytes -= message.counted_bytes
            fits += 1
        return fits

    def _needed_up_to(self, lane: Lane) -> int:
        """The item of the lane up to which the target needs all, whether or not it has room: that mark lets it give
        what it has to consumers (`node.shard.dead_letters.waits_behind_letters`)."""
        queue = self._shard.queue(lane.target_queue)
        if queue is None or queue.moving is None or not queue.has_left:
            return 0
        return queue.moving.released_sequence
