"""How messages leave a queue for where they came from, or for elsewhere (RULES R1): the commands of redrives.

A message that moves is as a dead letter on its way (`node.shard.dead_letters`): one entry takes it out of its queue and
puts it into queues of this shard and into the lanes of others. So it is exactly once in one of them (D6), and in order
(D7).
"""

from collections import deque
from typing import Final

from mayfly.cluster.versions import LEVEL_FAILED_DELIVERIES
from mayfly.node.shard.commands import CHANGE_REDRIVE_HEAD, REDRIVE_HEAD, REDRIVEN_HEAD, START_REDRIVE_HEAD
from mayfly.node.shard.dead_letters import arriving, move_content
from mayfly.node.shard.delivery import catch_up
from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.line import Line
from mayfly.node.shard.message import Message
from mayfly.node.shard.packed import ENQUEUED_MS, INDEX, OFFSET, Packed
from mayfly.node.shard.packing import NUMBER_BYTES, unpack_numbers
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.queues import gone, not_all_here
from mayfly.node.shard.redrive import CANCELLED, DONE, MOST_PER_SECOND, PAUSED, RUNNING, Place, Redrive
from mayfly.node.shard.redrive_commands import (
    CANCEL,
    FLAG_BACK,
    FLAG_DONE,
    PAUSE,
    RESUME,
    SET_RATE,
    WHICHEVER,
)
from mayfly.node.shard.results import IN_USE, NO_REDRIVE, NOT_READY, RedriveState, Refused, Result
from mayfly.node.shard.returning import ReturningMessages
from mayfly.node.shard.state import State

_REMOTE_NUMBERS: Final = 2

Key = tuple[int, int, int]
"""By which a message is known in its queue: its entry, where it stands in that, and since when it is in the queue.
(Those that come of one that recurs have the same content.)"""


def start_redrive(state: State, position: int, end: int, results: list[object]) -> int:
    """Apply the START_REDRIVE at ``position``; where it ends. Appends its answer."""
    _, per_second, length, queue_id = START_REDRIVE_HEAD.unpack_from(state.data, position)
    terms_at = position + START_REDRIVE_HEAD.size
    after: int = terms_at + length
    if after > end or per_second > MOST_PER_SECOND:
        raise ShardError(f"START_REDRIVE of {per_second} a second reaches to {after}, its batch to {end}")
    results.append(_start(state, queue_id, state.data[terms_at:after], per_second))
    return after


def _start(state: State, queue_id: int, terms: bytes, per_second: int) -> Result:
    queue = state.queues.get(queue_id)
    if queue is None:
        return gone(state, queue_id)
    elsewhere = not_all_here(state, queue)
    if elsewhere is not None:
        return elsewhere
    if queue.is_redriven:
        return Refused(IN_USE)
    if queue.stream is not None or queue.settings.delays or queue.returns:
        return Refused(NOT_READY)
    catch_up(state, queue)
    queue.redrive = Redrive(state.index, terms, per_second, state.time_ms, queue.ready_count())
    state.note_redrive(queue)
    return RedriveState(queue.redrive.redrive_id, RUNNING)


def change_redrive(state: State, position: int) -> Result:
    """The answer to the CHANGE_REDRIVE at ``position``, which is applied."""
    _, form, per_second, queue_id, redrive_id = CHANGE_REDRIVE_HEAD.unpack_from(state.data, position)
    if form > SET_RATE or per_second > MOST_PER_SECOND:
        raise ShardError(f"CHANGE_REDRIVE {form} to {per_second} a second")
    queue = state.queues.get(queue_id)
    if queue is None:
        return gone(state, queue_id)
    elsewhere = not_all_here(state, queue)
    if elsewhere is not None:
        return elsewhere
    redrive = queue.redrive
    if redrive is None or not redrive.is_active or redrive_id not in (WHICHEVER, redrive.redrive_id):
        return Refused(NO_REDRIVE)
    if form == SET_RATE:
        redrive.set_rate(per_second, state.time_ms)
    elif form == CANCEL:
        redrive.change(CANCELLED, state.time_ms)
    elif form == PAUSE and redrive.state == RUNNING:
        redrive.change(PAUSED, state.time_ms)
    elif form == RESUME and redrive.state == PAUSED:
        redrive.change(RUNNING, state.time_ms)
    state.note_redrive(queue)
    return RedriveState(redrive.redrive_id, redrive.state)


class _Leaving:
    """A message that a REDRIVE names: where its new content and its targets stand in the command."""

    __slots__ = ("body_length", "header_length", "key_length", "locals_", "message", "offset", "remotes", "targets_at")

    def __init__(
        self, targets_at: int, locals_: int, remotes: int, offset: int, key_length: int, header_length: int,
        body_length: int,
    ) -> None:
        self.targets_at = targets_at
        self.locals_ = locals_
        self.remotes = remotes
        self.offset = offset
        self.key_length = key_length
        self.header_length = header_length
        self.body_length = body_length
        self.message: Message | None = None


def apply_redrive(state: State, position: int, end: int) -> int:
    """Apply the REDRIVE at ``position``; where it ends."""
    head = REDRIVE_HEAD.unpack_from(state.data, position)
    _, flags, count, queue_id, redrive_id, step, tag, stayed = head[:8]
    priority, index, offset, enqueued_ms, acquired_count = head[8:]
    wanted, after = _wanted(state, position + REDRIVE_HEAD.size, end, count)
    queue = state.queues.get(queue_id)
    redrive = None if queue is None else queue.redrive
    if queue is None or redrive is None or redrive.redrive_id != redrive_id:
        return after
    if redrive.state != RUNNING or step != redrive.step + 1:
        return after
    redrive.step = step
    redrive.tag = tag
    redrive.stayed = stayed
    redrive.place = Place((flags & FLAG_BACK) != 0, priority, index, offset, enqueued_ms, acquired_count)
    catch_up(state, queue)
    moved = _take_out(state, queue, wanted) if wanted else 0
    for leaving in wanted.values():
        message = leaving.message
        if message is not None:
            _move_on(state, message, leaving)
    redrive.note_moved(moved, state.time_ms)
    if flags & FLAG_DONE:
        redrive.change(DONE, state.time_ms)
        state.note_redrive(queue)
    state.touch(queue)
    return after


def _wanted(state: State, position: int, end: int, count: int) -> "tuple[dict[Key, _Leaving], int]":
    """The messages that a REDRIVE names, in its order, and where it ends. Those whose targets here are gone by now, or
    mirrors (RULES J4), are not among them: they stay."""
    data = state.data
    wanted: dict[Key, _Leaving] = {}
    for _ in range(count):
        if position + REDRIVEN_HEAD.size > end:
            raise ShardError(f"REDRIVE is cut off at {position}")
        index, offset, enqueued_ms, key_length, header_length, body_length, locals_, remotes = (
            REDRIVEN_HEAD.unpack_from(data, position)
        )
        targets_at = position + REDRIVEN_HEAD.size
        content_at = targets_at + (locals_ + _REMOTE_NUMBERS * remotes) * NUMBER_BYTES
        position = content_at + key_length + header_length + body_length
        if position > end:
            raise ShardError(f"REDRIVE of a message reaches to {position}, its batch to {end}")
        targets = unpack_numbers(data, targets_at, locals_, content_at)
        if (locals_ or remotes) and all(_takes(state, target) for target in targets):
            wanted[(index, offset, enqueued_ms)] = _Leaving(
                targets_at, locals_, remotes, content_at, key_length, header_length, body_length
            )
    return wanted, position


def _takes(state: State, queue_id: int) -> bool:
    queue = state.queues.get(queue_id)
    return queue is not None and not queue.is_mirror


def _move_on(state: State, message: Message, leaving: _Leaving) -> None:
    """Its new content goes to its targets. What it brings of a TTL counts anew there."""
    marked = state.level >= LEVEL_FAILED_DELIVERIES and message.has_failed
    content = arriving(
        state, leaving.offset, leaving.key_length, leaving.header_length, leaving.body_length, marked, message.ttl_ms
    )
    move_content(state, content, leaving.targets_at, leaving.locals_, leaving.remotes, leaving.offset)
    state.release(message.index, 1)


def _take_out(state: State, queue: Queue, wanted: dict[Key, _Leaving]) -> int:
    """Those of the messages that are ready leave the queue, wherever they are in line; how many."""
    taken = 0
    for line in queue.lines():
        if line.count():
            taken += _take_from_head(state, queue, line, wanted)
            if taken == len(wanted):
                break
            taken += _take_from_anywhere(state, queue, line, wanted)
    return taken


def _is_wanted(state: State, queue: Queue, message: Message, wanted: dict[Key, _Leaving]) -> bool:
    """Note a message that leaves. One whose deadline has passed expires instead (RULES T5)."""
    leaving = wanted.get((message.index, message.offset, message.enqueued_ms))
    if leaving is None or 0 <= message.deadline_ms <= state.time_ms:
        return False
    if leaving.message is not None:
        return False
    leaving.message = message
    queue.ready_bytes -= message.body_length
    return True


def _take_from_head(state: State, queue: Queue, line: Line, wanted: dict[Key, _Leaving]) -> int:
    """Take what is wanted from the head of a line, up to the first that stays."""
    taken = 0
    while True:
        items, head = line.items, line.head
        run = timed = 0
        while head + run < len(items):
            message = items[head + run]
            if not _is_wanted(state, queue, message, wanted):
                break
            timed += message.deadline_ms >= 0
            run += 1
        if not run:
            return taken
        taken += run
        line.timed -= timed
        line.advance(run)


def _take_from_anywhere(state: State, queue: Queue, line: Line, wanted: dict[Key, _Leaving]) -> int:
    """Take what is wanted and still there from a line; what is packed is looked at where it may be."""
    left = [key[0] for key, leaving in wanted.items() if leaving.message is None]
    if not left or not line.count():
        return 0
    low, high = min(left), max(left)
    taken: list[Message] = []
    items = _without(state, queue, line.items[line.head :], low, high, wanted, taken)
    back = _without(state, queue, line.back, low, high, wanted, taken)
    packed: deque[Packed | ReturningMessages] = deque()
    for piece in line.packed:
        if isinstance(piece, Packed) and piece.may_hold(low, high):
            smaller = _piece_without(state, queue, piece, wanted, taken)
            if smaller is not None:
                packed.append(smaller)
        else:
            packed.append(piece)
    if taken:
        # The places of all that follow them change: nobody is to know a message again by its old one.
        passed = line.gone + line.count()
        timed = sum([1 for message in taken if message.deadline_ms >= 0])
        line.put_together(items, packed, back, line.timed - timed)
        line.gone = passed
        if line.anywhere:
            line.nothing_noted()
        if not items:
            line.advance(0)
    return len(taken)


def _without(
    state: State, queue: Queue, messages: list[Message], low: int, high: int, wanted: dict[Key, _Leaving],
    taken: list[Message],
) -> list[Message]:
    """The messages that stay; the others, whose content is in entries from ``low`` to ``high``, are taken."""
    stay: list[Message] = []
    for message in messages:
        if low <= message.index <= high and _is_wanted(state, queue, message, wanted):
            taken.append(message)
        else:
            stay.append(message)
    return stay


def _piece_without(
    state: State, queue: Queue, piece: Packed, wanted: dict[Key, _Leaving], taken: list[Message]
) -> Packed | None:
    """A piece of a line without what leaves, None for nothing; itself where nothing does. (Never changed in place: who
    counts what is in the queue may still have it.)"""
    there = bytearray(b"\1") * piece.size if piece.there is None else piece.there[:]
    places = [place for place in range(piece.size) if there[place]]
    left = piece.count
    keys = zip(piece.column(INDEX), piece.column(OFFSET), piece.column(ENQUEUED_MS), strict=True)
    for place, key in zip(places, keys, strict=True):
        if key in wanted:
            message = piece.message(place)
            if _is_wanted(state, queue, message, wanted):
                taken.append(message)
                there[place] = 0
                left -= 1
    if left == piece.count:
        return piece
    if not left:
        return None
    smaller = Packed(piece.size, piece.columns, piece.queue_ttl_ms, there)
    return smaller.without_gaps() if 2 * left <= piece.size else smaller
