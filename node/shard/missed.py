"""What a node's clients missed when a snapshot took the place of entries, read out of the two states.

Until then the node was told everything, so what it was told stands in the state that it had: the last delivery id of
each of its holders, which consumers were attached, how much full queues had refused. The difference to the state of the
snapshot is what it was not told:

    deliveries    what is held under later ids: nobody but the session could settle it, and its clients never saw it
    consumers     gone with their queue, or to be attached where it has moved
    answers       what a command has left behind: a holder, a held message, a queue that has refused nothing since

Messages that need no acknowledgement are held by nobody: a consumer that was given some has to know it (`Missing`).
What is held past its deadline was given in time (RULES T5), and comes late as it does from a log that is applied late.
"""

from collections.abc import Iterator, Sequence

from mayfly.cluster.group.sessions import SessionKey
from mayfly.cluster.group.state_machine import UNKNOWN, Effect, Missed
from mayfly.node.shard import commands
from mayfly.node.shard.consumers import Holder
from mayfly.node.shard.effects import ConsumerCancelled, ConsumerMoved, Deliver, Missing
from mayfly.node.shard.holders import find
from mayfly.node.shard.packing import NUMBER_BYTES, unpack_numbers
from mayfly.node.shard.queues import counts
from mayfly.node.shard.results import Applied, Attached, Detached, GetResult, Published
from mayfly.node.shard.state import State


def missed(before: State, now: State, session: SessionKey, batches: Sequence[bytes]) -> Missed:
    """See `StateMachine.missed`.

    A consumer that was known is given its messages before the answers: one of them may be that it is cancelled. One
    whose attaching is among the answers comes after them."""
    effects_before: list[Effect] = []
    effects: list[Effect] = []
    told = before.sessions.get(session, {})
    for name, holder in now.sessions.get(session, {}).items():
        if not holder.is_consumer:
            continue
        known = told.get(name)
        first = 1 if known is None else known.last_delivery_id + 1
        if first <= holder.last_delivery_id:
            held = [holder.held[id] for id in range(first, holder.last_delivery_id + 1) if id in holder.held]
            if first + len(held) <= holder.last_delivery_id:
                effects.append(Missing(holder.holder_id, holder.queue_id, session))
            else:
                delivery = Deliver(holder.holder_id, first, held, session)
                (effects if known is None else effects_before).append(delivery)
        if known is None or known.attached:
            moved = _moved(now, holder)
            if moved is not None:
                effects.append(moved)
    for (queue_id, holder_id), holder in told.items():
        if holder.attached and queue_id not in now.queues:
            effects.append(ConsumerCancelled(holder_id, queue_id, session))
    answers = _Answers(before, now, session)
    return Missed(effects_before, [answers.of_batch(batch) for batch in batches], effects)


def _moved(now: State, holder: Holder) -> ConsumerMoved | None:
    """That the queue of a consumer has moved, if it waits to be attached elsewhere. It may have come back meanwhile."""
    queue = now.queues[holder.queue_id]
    moving = queue.moving
    if moving is None or holder.order not in moving.awaited:
        return None
    return ConsumerMoved(
        holder.holder_id, holder.queue_id, holder.session, moving.target_shard or now.shard_id, holder.prefetch,
        holder.exclusive, holder.priority,
    )  # fmt: skip


class _Answers:
    """What the states say of the answers to commands of one session that were applied between them.

    UNKNOWN is for those that may be asked again without harm, and for what nobody knows: how much was purged, what a
    basic.get without acknowledgement took."""

    def __init__(self, before: State, now: State, session: SessionKey) -> None:
        self._before = before
        self._now = now
        self._session = session
        self._got: dict[tuple[int, int], Iterator[int]] = {}
        """By queue and holder of basic.get, the delivery ids that were not told, in order."""
        self._made: set[int] = set()
        """Queues that are here by one of the commands at the latest."""

    def of_batch(self, data: bytes) -> list[object]:
        """The answers to the commands in a batch that answer."""
        answers: list[object] = []
        position = 0
        while position < len(data):
            if data[position] in commands.ANSWERING:
                answers.append(self._of_command(data, position))
            position = commands.end_of(data, position)
        return answers

    def _of_command(self, data: bytes, position: int) -> object:
        kind = data[position]
        if kind == commands.GET:
            _, no_ack, queue_id, holder_id = commands.GET_HEAD.unpack_from(data, position)
            return UNKNOWN if no_ack else self._get(queue_id, holder_id)
        if kind == commands.ATTACH:
            _, _, _, queue_id, consumer_id, _ = commands.ATTACH_HEAD.unpack_from(data, position)
            if find(self._now, self._session, queue_id, consumer_id) is None:
                return UNKNOWN
            return Attached(self._now.queues[queue_id].consumers.count)
        if kind in (commands.CREATE_QUEUE, commands.TOUCH_QUEUE):
            head = commands.SETTINGS_HEAD if kind == commands.CREATE_QUEUE else commands.QUEUE_HEAD
            queue = self._now.queues.get(head.unpack_from(data, position)[-1])
            if queue is not None and kind == commands.CREATE_QUEUE:
                self._made.add(queue.queue_id)
            return UNKNOWN if queue is None or queue.has_left else counts(queue, False)
        if kind == commands.PUBLISH_GUARDED:
            _, count = commands.LIST_HEAD.unpack_from(data, position)
            return Published([]) if self._all_taken(data, position + commands.LIST_HEAD.size, count) else UNKNOWN
        if kind == commands.TRANSACTION:
            _, count, _ = commands.TRANSACTION_HEAD.unpack_from(data, position)
            return Applied() if self._all_taken(data, position + commands.TRANSACTION_HEAD.size, count) else UNKNOWN
        if kind == commands.DETACH:
            return Detached()
        return Applied() if kind == commands.NOOP else UNKNOWN

    def _get(self, queue_id: int, holder_id: int) -> object:
        """What a holder was given by the next of its GETs; UNKNOWN when it was nothing."""
        holder = find(self._now, self._session, queue_id, holder_id)
        if holder is None:
            return UNKNOWN
        name = (queue_id, holder_id)
        if name not in self._got:
            known = find(self._before, self._session, queue_id, holder_id)
            last = 0 if known is None else known.last_delivery_id
            self._got[name] = iter([id for id in holder.held if id > last])
        delivery_id = next(self._got[name], 0)
        if not delivery_id:
            return UNKNOWN
        return GetResult(holder.held[delivery_id], delivery_id, self._now.queues[queue_id].ready_count(), False)

    def _all_taken(self, data: bytes, position: int, count: int) -> bool:
        """Whether so many PUBLISHes surely came to all of their queues: these were there all the time, and have refused
        nothing. What a CHANGE_SCHEDULED came to nobody knows."""
        for _ in range(count):
            if data[position] == commands.CHANGE_SCHEDULED:
                return False
            _, _, extra, _, _, first, _ = commands.PUBLISH_HEAD.unpack_from(data, position)
            targets_at = commands.targets_at(data, position)
            others = unpack_numbers(data, targets_at, extra, targets_at + extra * NUMBER_BYTES)
            if not all(self._has_taken_all(queue_id) for queue_id in (first, *others)):
                return False
            position = commands.end_of(data, position)
        return True

    def _has_taken_all(self, queue_id: int) -> bool:
        queue, before = self._now.queues.get(queue_id), self._before.queues.get(queue_id)
        if queue is None or (before is None and queue_id not in self._made):
            return False
        return queue.refused == (0 if before is None else before.refused)
