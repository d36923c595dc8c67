"""The commands of the queue state machine as bytes: how they are written, and what each one asks for. HOT.

A command is a fixed little-endian head that begins with its kind, then what the head announces. Commands
follow each other without gaps. Publishes, SETTLE, FLOW, PREFETCH and TAKEN have no answer; every other
command of a session answers once. Commands of the shard's leader (``INTERNAL``) do not answer, and may be applied twice
without harm.
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812  (it is an exception class)
from typing import Final

from mayfly.node.shard.errors import ShardError
from mayfly.node.shard.message import DELIVERED_ELSEWHERE, Message
from mayfly.node.shard.outbox import LETTER, item_kind, item_priority
from mayfly.node.shard.packing import NUMBER_BYTES, pack_numbers, pack_signed
from mayfly.node.shard.settings import ShardQueueSettings, encode_settings
from mayfly.node.shard.stream import Start

PUBLISH: Final = 1
SETTLE: Final = 2
GET: Final = 3
ATTACH: Final = 4
DETACH: Final = 5
CREATE_QUEUE: Final = 6
TOUCH_QUEUE: Final = 7
PURGE: Final = 8
DELETE_QUEUE: Final = 9
FLOW: Final = 10
NOOP: Final = 11
PUBLISH_GUARDED: Final = 12
TRANSACTION: Final = 13
PREFETCH: Final = 14
TAKEN: Final = 15
CROSS: Final = 16
PUBLISH_LATER: Final = 17
CHANGE_SCHEDULED: Final = 18
PUBLISH_KEPT: Final = 19
DELETE_OFFSET: Final = 20
PURGE_KEY: Final = 21
START_REDRIVE: Final = 22
CHANGE_REDRIVE: Final = 23
RELEASE_BRAKE: Final = 24
EXPIRE_DUE: Final = 32
EXPIRE_QUEUE: Final = 33
ROUTE: Final = 34
TRANSFER: Final = 35
SETTLED: Final = 36
LANE_CLOSED: Final = 37
FORGET_DELETED: Final = 38
DROP_QUEUE: Final = 39
UPDATE_QUEUES: Final = 40
RETRY_PARKED: Final = 41
DROP_PARKED: Final = 42
RAISE_LEVEL: Final = 44
TRANSFER_MARKED: Final = 45
MOVE_OUT: Final = 46
MOVE_IN: Final = 47
TRANSFER_MOVED: Final = 48
NEXT_TIMES: Final = 49
REDRIVE: Final = 50
TRANSFER_COPIES: Final = 51
ROUTE_NOTED: Final = 52
"""As ROUTE, for deaths of which some are records of journals (`node.shard.noted_commands`)."""
MOVE_OUT_NUMBERED: Final = 53

ANSWERING: Final = frozenset(
    (
        GET, ATTACH, DETACH, CREATE_QUEUE, TOUCH_QUEUE, PURGE, DELETE_QUEUE, NOOP, PUBLISH_GUARDED, TRANSACTION, CROSS,
        DELETE_OFFSET, PURGE_KEY, START_REDRIVE, CHANGE_REDRIVE, RELEASE_BRAKE,
    )
)

ACK: Final = 0
REQUEUE: Final = 1
REJECT: Final = 2
RETURN: Final = 3
"""Back to the queue as by DETACH: before what was never delivered."""
UNSENT: Final = 4
"""The same, but not counted: the client was never sent it."""
GIVE_BACK: Final = 5
"""As REQUEUE, but the delivery did not fail (RULES Q1): basic.nack, basic.recover. This and the next from feature level
`cluster.versions.LEVEL_FAILED_DELIVERIES` on; to a shard that was not told it yet they are REQUEUE and REJECT."""
DISCARD: Final = 6
"""As REJECT, but the delivery did not fail: basic.nack without requeue."""

KEPT: Final = 0
"""What a DETACH does with what is held, if it is not the way in which it comes back (`node.shard.message`): FAILED, or
GIVEN_BACK from feature level `cluster.versions.LEVEL_FAILED_DELIVERIES` on (FAILED to a shard that was not told it)."""

# Forms of a SETTLE: a list of ids, everything up to one id, a closed range of ids.
LIST: Final = 0
UP_TO: Final = 1
RANGE: Final = 2

# Outcomes of a ROUTE decision.
ROUTED: Final = 0
PARKED: Final = 1
DROPPED_CYCLE: Final = 2
DROPPED_UNROUTABLE: Final = 3

NO_TTL: Final = -1

# When a PUBLISH_LATER is due, or due again after a CHANGE_SCHEDULED: so many ms after its entry, or at that shard time.
AFTER: Final = 0
AT: Final = 1
CANCEL: Final = 2
"""The third form of a CHANGE_SCHEDULED: never."""
RECURRING: Final = 3
"""The third form of a PUBLISH_LATER (RULES S6): every so many seconds from its entry on, or, with 0, at the times that
the leader says."""
RECURRING_ONE: Final = 4
"""The same, and for all times that were missed together there is one message."""

# kind, key length, further queues, header length, body length, queue, TTL
PUBLISH_HEAD: Final = Struct("<BxHIIIQq")
# kind, AFTER or AT, then as PUBLISH, and ms: a PUBLISH_LATER begins as a PUBLISH does
PUBLISH_LATER_HEAD: Final = Struct("<BBHIIIQqQ")
# the same, and the TTL in streams: a PUBLISH_KEPT begins as a PUBLISH_LATER does
PUBLISH_KEPT_HEAD: Final = Struct("<BBHIIIQqQQ")
# kind, length of the routing key, queue, up to which offset: PURGE_KEY
PURGE_KEY_HEAD: Final = Struct("<BBQQ")
# kind, outcome, form, count, queue, holder
SETTLE_HEAD: Final = Struct("<BBBxIQQ")
# kind, AFTER, AT or CANCEL, further queues, queue, ms, digest of the message id
CHANGE_HEAD: Final = Struct("<BBHQQ16s")
# kind, no_ack, queue, holder
GET_HEAD: Final = Struct("<BBQQ")
# kind, flags, prefetch, queue, consumer, priority
ATTACH_HEAD: Final = Struct("<BBIQQi")
# kind and number of a stream's Start, behind an ATTACH with FLAG_START, and behind its window if it has one
START: Final = Struct("<BQ")
# kind, messages a second, length of terms, queue
START_REDRIVE_HEAD: Final = Struct("<BIIQ")
# kind, form, messages a second, queue, redrive
CHANGE_REDRIVE_HEAD: Final = Struct("<BBIQQ")
# length of the routing key of a stream's messages, and it itself, behind all that with FLAG_KEY
KEY_LENGTH: Final = Struct("<B")
# bytes of the window, behind an ATTACH with FLAG_WINDOW
WINDOW: Final = Struct("<I")
# kind, queue, consumer, bytes
TAKEN_HEAD: Final = Struct("<BQQQ")
# kind, prefetch, queue, consumer
PREFETCH_HEAD: Final = Struct("<BIQQ")
# kind, flag, queue, consumer: DETACH (KEPT, FAILED, GIVEN_BACK), FLOW (active)
CONSUMER_HEAD: Final = Struct("<BBQQ")
# kind, length of settings, queue: CREATE_QUEUE
SETTINGS_HEAD: Final = Struct("<BIQ")
# kind, length of terms, number of queues: UPDATE_QUEUES
TERMS_HEAD: Final = Struct("<BII")
# kind, queue: TOUCH_QUEUE, PURGE, DROP_QUEUE, LANE_CLOSED
QUEUE_HEAD: Final = Struct("<BQ")
# kind, flags, queue
DELETE_HEAD: Final = Struct("<BBQ")
# kind, shard, queue, number of the move: MOVE_OUT_NUMBERED
MOVE_OUT_HEAD: Final = Struct("<BIQQ")
# kind, queue, number: EXPIRE_QUEUE (epoch), SETTLED (up to), CROSS (up to), MOVE_OUT (shard)
NUMBERED_HEAD: Final = Struct("<BQQ")
# kind, count: FORGET_DELETED, RETRY_PARKED, DROP_PARKED, ROUTE, PUBLISH_GUARDED
LIST_HEAD: Final = Struct("<BI")
# kind, publishes, bytes of all that follows
TRANSACTION_HEAD: Final = Struct("<BII")
# kind, count, source, lane, first sequence
TRANSFER_HEAD: Final = Struct("<BIQQQ")
# key length, header length, body length
CONTENT_HEAD: Final = Struct("<HII")
# the same of a TRANSFER_MARKED, behind whether it is redelivered
MARKED_CONTENT_HEAD: Final = Struct("<BHII")
# kind, flags, count, queue, redrive, step, tag, stayed, priority, index, offset, enqueued_ms and acquired_count of the
# place
REDRIVE_HEAD: Final = Struct("<BBIQQQQQIQQQq")
# index, offset and enqueued_ms of the message, key length, header length, body length, local targets, remote targets
REDRIVEN_HEAD: Final = Struct("<QQQHIIII")
# kind, flags, use of the lease, length of settings, guests, sources received from, queue, source, sequence, epoch,
# unused ms, ms since the last use
MOVE_HEAD: Final = Struct("<BBBIIIQQQQQQ")
FLAG_EXCLUSIVE_MOVE: Final = 1
"""The consumer of the queue that moves is exclusive."""
FLAG_BRAKE: Final = 2
"""Behind all else is what has failed in the queue."""
FLAG_NUMBERED_MOVE: Final = 4
"""Behind that is the number of the move."""
# numbers of a brake, which are behind it
BRAKE_LENGTH: Final = Struct("<H")
# kind, count, source, lane, first sequence, the source's clock
TRANSFER_MOVED_HEAD: Final = Struct("<BIQQQQ")
# kind of item, priority, key length, header length, body length, delivery and acquired counts, TTL, when enqueued and
# deadline by the source's clock
MOVED_CONTENT_HEAD: Final = Struct("<BBHIIiiqqq")
# kind, count, source, queue, first and last sequence, the source's clock
TRANSFER_COPIES_HEAD: Final = Struct("<BIQQQQQ")
# why it is a marker, key length, header length, body length, sequence, when enqueued by the source's clock
COPIED_CONTENT_HEAD: Final = Struct("<BHIIQQ")
# kind, level
LEVEL_HEAD: Final = Struct("<BI")
# death sequence, outcome, key length, header length, body length, local targets, remote targets
DECISION_HEAD: Final = Struct("<QBHIIII")
# queue, digest of what recurs, the time behind which the next is, the next time: NEXT_TIMES
NEXT_TIME: Final = Struct("<Q16sQQ")
NUMBER: Final = Struct("<Q")
NUMBER_PAIR: Final = Struct("<QQ")

FLAG_NO_ACK: Final = 1
FLAG_EXCLUSIVE: Final = 2
FLAG_WINDOW: Final = 4
FLAG_AGAIN: Final = 8
FLAG_START: Final = 16
FLAG_KEY: Final = 32
FLAG_IF_UNUSED: Final = 1
FLAG_IF_EMPTY: Final = 2


def encode_publish(
    parts: list[bytes], queue_ids: Sequence[int], ttl_ms: int,
    exchange_and_key: bytes, header: bytes, body: bytes,
) -> int:
    """Append a PUBLISH to ``parts`` and return its bytes; nothing is copied before the batch is joined.

    ``queue_ids``: at least one queue of this shard, each at most once. ``ttl_ms``: the message's own TTL,
    NO_TTL for none. ``exchange_and_key``: the two short strings as on the wire; ``header``: payload of the
    content header. A queue that is gone when the command is applied is passed over (counted). No answer.
    """
    key_length = len(exchange_and_key)
    header_length = len(header)
    body_length = len(body)
    extra = len(queue_ids) - 1
    first = queue_ids[0]
    parts.append(PUBLISH_HEAD.pack(PUBLISH, key_length, extra, header_length, body_length, first, ttl_ms))
    if extra:
        parts.append(pack_numbers(queue_ids[1:]))
    parts.append(exchange_and_key)
    parts.append(header)
    if body_length:
        parts.append(body)
    return PUBLISH_HEAD.size + 8 * extra + key_length + header_length + body_length


def encode_publish_later(
    parts: list[bytes], queue_ids: Sequence[int], ttl_ms: int,
    exchange_and_key: bytes, header: bytes, body: bytes, due: tuple[int, int],
) -> int:
    """PUBLISH_LATER: as `encode_publish`, but where queues allow it the message is scheduled until it is ``due``: AFTER
    or AT, and ms. One whose time has passed is ready at once (RULES S2). With RECURRING or RECURRING_ONE, and seconds,
    the message itself waits there, and others are made of it, until it is cancelled or replaced under its id (S6). From
    feature level LEVEL_SCHEDULES on."""
    form, due_ms = due
    key_length, header_length, body_length = len(exchange_and_key), len(header), len(body)
    extra = len(queue_ids) - 1
    parts.append(
        PUBLISH_LATER_HEAD.pack(
            PUBLISH_LATER, form, key_length, extra, header_length, body_length, queue_ids[0], ttl_ms, due_ms
        )
    )
    if extra:
        parts.append(pack_numbers(queue_ids[1:]))
    parts.append(exchange_and_key)
    parts.append(header)
    parts.append(body)
    return PUBLISH_LATER_HEAD.size + NUMBER.size * extra + key_length + header_length + body_length


def encode_publish_kept(
    parts: list[bytes], queue_ids: Sequence[int], ttl_ms: int,
    exchange_and_key: bytes, header: bytes, body: bytes, due: tuple[int, int] | None, stream_ttl_ms: int,
) -> int:
    """PUBLISH_KEPT: as `encode_publish_later`, due now for None, and in streams it has the TTL ``stream_ttl_ms``,
    `dialect.NEVER_TTL` for one that is not to grow old (RULES J2). From feature level LEVEL_STREAMS on."""
    form, due_ms = (AFTER, 0) if due is None else due
    extra = len(queue_ids) - 1
    head = PUBLISH_KEPT_HEAD.pack(
        PUBLISH_KEPT, form, len(exchange_and_key), extra, len(header), len(body), queue_ids[0], ttl_ms, due_ms,
        stream_ttl_ms,
    )
    parts += (head, pack_numbers(queue_ids[1:]), exchange_and_key, header, body)
    return len(head) + NUMBER.size * extra + len(exchange_and_key) + len(header) + len(body)


def encode_change_scheduled(queue_ids: Sequence[int], digest: bytes, due: tuple[int, int]) -> bytes:
    """CHANGE_SCHEDULED: what waits in these queues of the shard under the id with this digest (`node.shard.message_id`)
    is cancelled (CANCEL, 0), or is due at another time: AFTER or AT, and ms (RULES S4). It stands among the publishes
    behind a PUBLISH_GUARDED and is one of them; its Published says for which nothing was waiting. From feature level
    LEVEL_SCHEDULES on."""
    form, due_ms = due
    head = CHANGE_HEAD.pack(CHANGE_SCHEDULED, form, len(queue_ids) - 1, queue_ids[0], due_ms, digest)
    return head + pack_numbers(queue_ids[1:])


def targets_at(data: bytes, position: int) -> int:
    """Where the further queues of the publish at ``position``, of whatever kind, stand."""
    kind = data[position]
    if kind == PUBLISH:
        return position + PUBLISH_HEAD.size
    return position + (PUBLISH_LATER_HEAD.size if kind == PUBLISH_LATER else PUBLISH_KEPT_HEAD.size)


def encode_guard(count: int) -> bytes:
    """PUBLISH_GUARDED: before ``count`` publishes, of whatever kind, that full queues may refuse, or mirrors, or that
    are mandatory, and CHANGE_SCHEDULEDs. Answers Published for all of them.

    Without it nothing can be refused, since nobody would hear of it: a mirror makes no command of it (RULES J4).
    """
    return LIST_HEAD.pack(PUBLISH_GUARDED, count)


def encode_transaction(publishes: int, parts: Sequence[bytes]) -> bytes:
    """TRANSACTION: so many publishes, of whatever kind, and then any SETTLEs (``parts``, in this order) are applied as
    one, or not at all.

    Answers Applied, or Refused: with FULL when a queue would refuse one of the publishes, with NOT_HELD when a queue
    that is there still has taken back what is settled, because the session ended in which it was handed out.
    """
    return b"".join([TRANSACTION_HEAD.pack(TRANSACTION, publishes, sum(map(len, parts))), *parts])


def encode_settle(queue_id: int, holder_id: int, outcome: int, delivery_ids: Sequence[int]) -> bytes:
    """SETTLE (ACK, REQUEUE, REJECT, RETURN, UNSENT, GIVE_BACK or DISCARD) what the holder holds under these ids, in
    this order; unknown ids are ignored.

    No answer. A gap-free rising run of ids is written as a range whatever its length.
    """
    count = len(delivery_ids)
    if count and list(delivery_ids) == list(range(delivery_ids[0], delivery_ids[0] + count)):
        return SETTLE_HEAD.pack(SETTLE, outcome, RANGE, 0, queue_id, holder_id) + NUMBER_PAIR.pack(
            delivery_ids[0], delivery_ids[-1]
        )
    return SETTLE_HEAD.pack(SETTLE, outcome, LIST, count, queue_id, holder_id) + pack_numbers(delivery_ids)


def encode_get(queue_id: int, holder_id: int, no_ack: bool) -> bytes:
    """GET one message; unless ``no_ack`` it is held under ``holder_id``. Answers GetResult or Gone. Renews
    the lease.
    """
    return GET_HEAD.pack(GET, no_ack, queue_id, holder_id)


def encode_attach(
    queue_id: int, consumer_id: int, prefetch: int, no_ack: bool, exclusive: bool, priority: int,
    window_bytes: int = 0, again: bool = False, start: Start | None = None, key: bytes | None = None,
) -> bytes:
    """ATTACH a consumer; ``prefetch`` 0 is no limit. Answers Attached, Refused or Gone. Suspends the lease.

    With ``window_bytes``, below 4 GiB, it is given no more before it has said what was TAKEN; 0 is no window. From
    feature level LEVEL_CONSUMER_WINDOWS on. ``again``: it was attached where the queue was before it has moved.
    ``start``: where it begins, for a stream alone. ``key``: of a stream with keys it is given the messages with this
    routing key alone.
    """
    flags = (FLAG_NO_ACK if no_ack else 0) | (FLAG_EXCLUSIVE if exclusive else 0) | (FLAG_AGAIN if again else 0)
    behind = b""
    if window_bytes:
        flags |= FLAG_WINDOW
        behind = WINDOW.pack(window_bytes)
    if start is not None:
        flags |= FLAG_START
        behind += START.pack(start.kind, start.number)
    if key is not None:
        flags |= FLAG_KEY
        behind += KEY_LENGTH.pack(len(key)) + key
    return ATTACH_HEAD.pack(ATTACH, flags, prefetch, queue_id, consumer_id, priority) + behind


def encode_detach(queue_id: int, consumer_id: int, way: int) -> bytes:
    """DETACH a consumer: it gets no more. Answers Detached.

    KEPT (basic.cancel): what it holds stays held until it is settled or a second DETACH returns it. FAILED (the
    channel was lost) and GIVEN_BACK: everything held goes back. A holder of GETs is given back the same way.
    """
    return CONSUMER_HEAD.pack(DETACH, way, queue_id, consumer_id)


def encode_flow(queue_id: int, consumer_id: int, active: bool) -> bytes:
    """FLOW: no deliveries to this consumer until it is active again. No answer."""
    return CONSUMER_HEAD.pack(FLOW, active, queue_id, consumer_id)


def encode_taken(queue_id: int, consumer_id: int, taken_bytes: int) -> bytes:
    """TAKEN: of all that this consumer with a window was given since its ATTACH so much has gone on to its client, as
    `Message.counted_bytes` counts. No answer.

    No-op for a consumer that is not attached in this session or has no window, and where no more was taken than was
    said before; more than was given counts as all of it.
    """
    return TAKEN_HEAD.pack(TAKEN, queue_id, consumer_id, taken_bytes)


def encode_create_queue(queue_id: int, settings: ShardQueueSettings) -> bytes:
    """CREATE_QUEUE. Answers QueueCounts, or Gone when the id has a tombstone.

    For a queue that is there: from a session the same as TOUCH_QUEUE, from the leader nothing at all.
    """
    encoded = encode_settings(settings)
    return SETTINGS_HEAD.pack(CREATE_QUEUE, len(encoded), queue_id) + encoded


def encode_update_queues(terms_bytes: bytes, queue_ids: Sequence[int]) -> bytes:
    """UPDATE_QUEUES (leader): these queues have these terms, as of `encode_terms`, after a change of policies (RULES
    T12, L9). No-op for those that have them, or are gone.
    """
    return b"".join(
        [TERMS_HEAD.pack(UPDATE_QUEUES, len(terms_bytes), len(queue_ids)), terms_bytes, pack_numbers(queue_ids)]
    )


def encode_touch_queue(queue_id: int) -> bytes:
    """TOUCH_QUEUE (a declare of what is there): renews the lease. Answers QueueCounts or Gone."""
    return QUEUE_HEAD.pack(TOUCH_QUEUE, queue_id)


def encode_purge(queue_id: int) -> bytes:
    """PURGE what is ready. Answers Purged or Gone."""
    return QUEUE_HEAD.pack(PURGE, queue_id)


def encode_delete_offset(queue_id: int, offset: int) -> bytes:
    """DELETE_OFFSET: the message at this offset of a stream leaves (RULES J3). Answers Purged, with 0 if none was
    there, or Gone."""
    return NUMBERED_HEAD.pack(DELETE_OFFSET, queue_id, offset)


def encode_purge_key(queue_id: int, key: bytes, up_to: int) -> bytes:
    """PURGE_KEY: the messages with this routing key up to this offset leave a stream with keys (RULES J3), as many as
    an entry may deal with. Answers PurgedKey, Refused or Gone: ask again while something is left."""
    return PURGE_KEY_HEAD.pack(PURGE_KEY, len(key), queue_id, up_to) + key


def encode_delete_queue(queue_id: int, if_unused: bool, if_empty: bool) -> bytes:
    """DELETE_QUEUE, leaving a tombstone with the reason 'deleted'. Answers Deleted, Refused or Gone."""
    flags = (FLAG_IF_UNUSED if if_unused else 0) | (FLAG_IF_EMPTY if if_empty else 0)
    return DELETE_HEAD.pack(DELETE_QUEUE, flags, queue_id)


def encode_release_brake(queue_id: int) -> bytes:
    """RELEASE_BRAKE: a queue on brake delivers again (RULES R5). Answers Applied; Refused with NOT_BRAKED where it is
    not on brake; Gone or Moved. From feature level LEVEL_BRAKES on."""
    return QUEUE_HEAD.pack(RELEASE_BRAKE, queue_id)


def encode_expire_due() -> bytes:
    """EXPIRE_DUE (leader): expire what is due, up to the bound of an entry (RULES T7, C4)."""
    return bytes((EXPIRE_DUE,))


def encode_expire_queue(queue_id: int, epoch: int) -> bytes:
    """EXPIRE_QUEUE (leader): delete the queue if this lease still is the current one and has run out (RULES
    L5).
    """
    return NUMBERED_HEAD.pack(EXPIRE_QUEUE, queue_id, epoch)


def encode_settled(lane: int, up_to: int) -> bytes:
    """SETTLED (leader): the target shard has committed the lane's items up to this sequence (RULES D6)."""
    return NUMBERED_HEAD.pack(SETTLED, lane, up_to)


def encode_lane_closed(lane: int) -> bytes:
    """LANE_CLOSED (leader): the lane's target queue no longer exists; what waits in it is dropped and
    counted.
    """
    return QUEUE_HEAD.pack(LANE_CLOSED, lane)


def encode_drop_queue(queue_id: int) -> bytes:
    """DROP_QUEUE (leader): the catalog has no such queue: remove it without a tombstone."""
    return QUEUE_HEAD.pack(DROP_QUEUE, queue_id)


def encode_forget_deleted(queue_ids: Sequence[int]) -> bytes:
    """FORGET_DELETED (leader): the catalog has removed these queues: their tombstones go."""
    return LIST_HEAD.pack(FORGET_DELETED, len(queue_ids)) + pack_numbers(queue_ids)


def encode_retry_parked(sequences: Sequence[int]) -> bytes:
    """RETRY_PARKED (leader, for an operator): these parked deaths are routed anew, in this order (RULES D8).
    """
    return LIST_HEAD.pack(RETRY_PARKED, len(sequences)) + pack_numbers(sequences)


def encode_drop_parked(sequences: Sequence[int]) -> bytes:
    """DROP_PARKED (leader, for an operator): these parked deaths are dropped (RULES D8)."""
    return LIST_HEAD.pack(DROP_PARKED, len(sequences)) + pack_numbers(sequences)


def encode_raise_level(level: int) -> bytes:
    """RAISE_LEVEL (leader): the cluster is at this feature level, or a higher one. What follows in the log means what
    it does from that level on."""
    return LEVEL_HEAD.pack(RAISE_LEVEL, level)


def encode_next_times(times: Sequence[tuple[int, bytes, int, int]]) -> bytes:
    """NEXT_TIMES (leader): when messages that recur are due next (RULES S6): for each its queue, the digest under which
    it is filed (`node.shard.recurring`), the time behind which it was to be the next one, and that. No-op for what is
    not there, or waits for something else by now. From feature level LEVEL_SCHEDULES on."""
    return LIST_HEAD.pack(NEXT_TIMES, len(times)) + b"".join([NEXT_TIME.pack(*each) for each in times])


_SIZES: Final[dict[int, int]] = {
    GET: GET_HEAD.size,
    DETACH: CONSUMER_HEAD.size,
    FLOW: CONSUMER_HEAD.size,
    TOUCH_QUEUE: QUEUE_HEAD.size,
    PURGE: QUEUE_HEAD.size,
    DELETE_QUEUE: DELETE_HEAD.size,
    NOOP: 1,
    PUBLISH_GUARDED: LIST_HEAD.size,
    PREFETCH: PREFETCH_HEAD.size,
    TAKEN: TAKEN_HEAD.size,
    CROSS: NUMBERED_HEAD.size,
    DELETE_OFFSET: NUMBERED_HEAD.size,
    CHANGE_REDRIVE: CHANGE_REDRIVE_HEAD.size,
    RELEASE_BRAKE: QUEUE_HEAD.size,
}
"""Commands of a session that are no longer than their head."""


def end_of(data: bytes, position: int) -> int:
    """Where a command of a session ends; that of a PUBLISH_GUARDED where the first PUBLISH begins that it announces.

    For commands that were applied: others may raise anything, or lead anywhere."""
    kind = data[position]
    if kind in (PUBLISH, PUBLISH_LATER, PUBLISH_KEPT):
        _, key_length, extra, header_length, body_length, _, _ = PUBLISH_HEAD.unpack_from(data, position)
        lengths: int = extra * NUMBER.size + key_length + header_length + body_length
        return targets_at(data, position) + lengths
    if kind == CHANGE_SCHEDULED:
        further: int = CHANGE_HEAD.unpack_from(data, position)[2]
        return position + CHANGE_HEAD.size + further * NUMBER.size
    if kind == SETTLE:
        _, _, form, count, _, _ = SETTLE_HEAD.unpack_from(data, position)
        numbers: int = count if form == LIST else 1 if form == UP_TO else 2
        return position + SETTLE_HEAD.size + numbers * NUMBER.size
    if kind == ATTACH:
        flags: int = ATTACH_HEAD.unpack_from(data, position)[1]
        behind = (WINDOW.size if flags & FLAG_WINDOW else 0) + (START.size if flags & FLAG_START else 0)
        after = position + ATTACH_HEAD.size + behind
        return after + KEY_LENGTH.size + data[after] if flags & FLAG_KEY else after
    if kind == PURGE_KEY:
        return position + PURGE_KEY_HEAD.size + data[position + 1]
    if kind == START_REDRIVE:
        terms_length: int = START_REDRIVE_HEAD.unpack_from(data, position)[2]
        return position + START_REDRIVE_HEAD.size + terms_length
    if kind == CREATE_QUEUE:
        settings_length: int = SETTINGS_HEAD.unpack_from(data, position)[1]
        return position + SETTINGS_HEAD.size + settings_length
    if kind == TRANSACTION:
        size_bytes: int = TRANSACTION_HEAD.unpack_from(data, position)[2]
        return position + TRANSACTION_HEAD.size + size_bytes
    return position + _SIZES[kind]


def check_without_body(data: bytes, start: int, end: int) -> None:
    """Raise ShardError unless one publish, of whatever kind and guarded or not, or one dead letter or message on its
    way, stands between ``start`` and ``end``, and nothing but its body beyond ``data`` (see `cluster.group.pieces`)."""
    try:
        position = start
        if data[position] == PUBLISH_GUARDED:
            position += LIST_HEAD.size
        if data[position] in (PUBLISH, PUBLISH_LATER, PUBLISH_KEPT):
            stop = end_of(data, position)
            body_length = PUBLISH_HEAD.unpack_from(data, position)[4]
        elif position == start:
            body_at, body_length = _body_of_letter(data, position)
            stop = body_at + body_length
        else:
            raise ShardError(f"command {data[position]} at {position} where a publish was guarded")
    except (IndexError, StructError) as error:
        raise ShardError(f"batch from {start} to {end} in an entry of {len(data)} bytes: {error}") from error
    if stop != end or stop - body_length > len(data):
        raise ShardError(f"command from {start} to {stop}, {end} expected, in an entry of {len(data)} bytes")


def _body_of_letter(data: bytes, position: int) -> tuple[int, int]:
    """Where the body of a single letter begins that is routed, redriven or on its way, and its length; ShardError for
    any other command."""
    kind = data[position]
    if kind == ROUTE:
        count: int = LIST_HEAD.unpack_from(data, position)[1]
        position += LIST_HEAD.size
        head = DECISION_HEAD.unpack_from(data, position)
        lengths = head[2:5]
        position += DECISION_HEAD.size + head[5] * NUMBER_BYTES + head[6] * NUMBER_PAIR.size
    elif kind == REDRIVE:
        count = REDRIVE_HEAD.unpack_from(data, position)[2]
        position += REDRIVE_HEAD.size
        head = REDRIVEN_HEAD.unpack_from(data, position)
        lengths = head[3:6]
        position += REDRIVEN_HEAD.size + head[6] * NUMBER_BYTES + head[7] * NUMBER_PAIR.size
    elif kind == TRANSFER_COPIES:
        count = TRANSFER_COPIES_HEAD.unpack_from(data, position)[1]
        position += TRANSFER_COPIES_HEAD.size
        lengths = COPIED_CONTENT_HEAD.unpack_from(data, position)[1:4]
        position += COPIED_CONTENT_HEAD.size
    elif kind == TRANSFER_MOVED:
        count = TRANSFER_MOVED_HEAD.unpack_from(data, position)[1]
        position += TRANSFER_MOVED_HEAD.size
        lengths = MOVED_CONTENT_HEAD.unpack_from(data, position)[2:5]
        position += MOVED_CONTENT_HEAD.size
    elif kind in (TRANSFER, TRANSFER_MARKED):
        count = TRANSFER_HEAD.unpack_from(data, position)[1]
        content = CONTENT_HEAD if kind == TRANSFER else MARKED_CONTENT_HEAD
        position += TRANSFER_HEAD.size
        lengths = content.unpack_from(data, position)[-3:]
        position += content.size
    else:
        raise ShardError(f"command {kind} at {position} without a body")
    if count != 1:
        raise ShardError(f"{count} letters in a command without a body")
    return position + lengths[0] + lengths[1], lengths[2]


class LetterContent:
    """Content on its way in a ROUTE, REDRIVE or TRANSFER: key, header and body as in PUBLISH. ``redelivered``, in a
    TRANSFER: whether a delivery of it failed before it died. ``body_elsewhere``, of the only content of a command:
    octets of a body that the log has already (`cluster.group.pieces`), instead of one that is here."""

    __slots__ = ("body", "body_elsewhere", "exchange_and_key", "header", "redelivered")

    def __init__(
        self, exchange_and_key: bytes, header: bytes, body: bytes, redelivered: bool = False, body_elsewhere: int = 0
    ) -> None:
        self.exchange_and_key = exchange_and_key
        self.header = header
        self.body = body
        self.redelivered = redelivered
        self.body_elsewhere = body_elsewhere


class RouteDecision:
    """What the leader decided for one death.

    ``outcome`` ROUTED: ``content`` (with its new x-death headers) goes to ``local_targets`` (queues of this
    shard) and ``remote_targets`` (target shard, target queue). PARKED and DROPPED_* take no targets and no
    content.
    """

    __slots__ = ("content", "local_targets", "outcome", "remote_targets", "sequence")

    def __init__(
        self, sequence: int, outcome: int, local_targets: Sequence[int] = (),
        remote_targets: Sequence[tuple[int, int]] = (), content: LetterContent | None = None,
    ) -> None:
        self.sequence = sequence
        self.outcome = outcome
        self.local_targets = local_targets
        self.remote_targets = remote_targets
        self.content = content


def encode_route(decisions: Sequence[RouteDecision]) -> bytes:
    """ROUTE (leader): decisions for deaths from the head of ``Shard.unrouted`` on, in order.

    Decisions for deaths already routed are ignored; after a gap nothing more of the command is applied.
    """
    parts = [LIST_HEAD.pack(ROUTE, len(decisions))]
    for decision in decisions:
        add_decision(parts, decision)
    return b"".join(parts)


def add_decision(parts: list[bytes], decision: RouteDecision) -> None:
    """Append a decision as it stands in a ROUTE."""
    content = decision.content
    if content is None:
        if decision.outcome == ROUTED:
            raise ValueError("a routed death needs its content")
        content = LetterContent(b"", b"", b"")
    parts.append(
        DECISION_HEAD.pack(
            decision.sequence, decision.outcome, len(content.exchange_and_key), len(content.header),
            len(content.body) + content.body_elsewhere, len(decision.local_targets), len(decision.remote_targets),
        )
    )
    parts.append(pack_numbers(decision.local_targets))
    for target_shard, target_queue in decision.remote_targets:
        parts.append(NUMBER_PAIR.pack(target_shard, target_queue))
    parts += (content.exchange_and_key, content.header, content.body)


def encode_transfer(
    source: int, lane: int, first_sequence: int, items: Sequence[Message], contents: Sequence[bytes]
) -> bytes:
    """TRANSFER (leader of the target shard): lane items with contiguous sequence numbers from
    ``first_sequence`` on, and the whole content of each.

    ``lane`` is the target queue. ``source`` is unique for the life of the sending shard's state: the shard id
    of a replicated shard; a transient shard's must differ from one incarnation of its node to the next. What
    was received before is dropped, a gap refuses the whole command (RULES D6, D7).

    TRANSFER_MARKED where some are ``redelivered``: shards make such from feature level
    `cluster.versions.LEVEL_FAILED_DELIVERIES` on.
    """
    is_marked = False
    for item in items:
        if item.redelivered:
            is_marked = True
            break
    parts = [_transfer_head(is_marked, len(items), source, lane, first_sequence)]
    # Many in a row are alike.
    key_length = header_length = body_length = -1
    was_marked = False
    head = b""
    for place, item in enumerate(items):
        if (
            item.header_length != header_length or item.body_length != body_length or item.key_length != key_length
            or item.redelivered != was_marked
        ):
            key_length, header_length, body_length = item.key_length, item.header_length, item.body_length
            was_marked = item.redelivered
            head = CONTENT_HEAD.pack(key_length, header_length, body_length)
            if is_marked:
                head = MARKED_CONTENT_HEAD.pack(was_marked, key_length, header_length, body_length)
        parts.append(head)
        parts.append(contents[place])
    return b"".join(parts)


def transfer_parts(source: int, lane: int, first_sequence: int, contents: Sequence[LetterContent]) -> list[bytes]:
    """The same as several parts, the last of which is the last body."""
    is_marked = any(content.redelivered for content in contents)
    parts = [_transfer_head(is_marked, len(contents), source, lane, first_sequence)]
    for content in contents:
        lengths = (len(content.exchange_and_key), len(content.header), len(content.body))
        if is_marked:
            parts.append(MARKED_CONTENT_HEAD.pack(content.redelivered, *lengths))
        else:
            parts.append(CONTENT_HEAD.pack(*lengths))
        parts += (content.exchange_and_key, content.header, content.body)
    return parts


def _transfer_head(is_marked: bool, count: int, source: int, lane: int, first_sequence: int) -> bytes:
    return TRANSFER_HEAD.pack(TRANSFER_MARKED if is_marked else TRANSFER, count, source, lane, first_sequence)


class MovedLease:
    """The lease of a queue on its way: unused for ``unused_ms``, last used ``since_ms`` ago (shard time) in the way
    ``use`` (its place among USES), still held in the shards ``guests``."""

    __slots__ = ("epoch", "guests", "since_ms", "unused_ms", "use")

    def __init__(self, epoch: int, unused_ms: int, since_ms: int, use: int, guests: Sequence[int]) -> None:
        self.epoch = epoch
        self.unused_ms = unused_ms
        self.since_ms = since_ms
        self.use = use
        self.guests = guests


def encode_cross(queue_id: int, up_to: int) -> bytes:
    """CROSS: has all that was published here for a queue that has left, before this (``up_to`` 0) or before the CROSS
    that answered this ``up_to``, arrived where it is now? Answers Crossed."""
    return NUMBERED_HEAD.pack(CROSS, queue_id, up_to)


def encode_move_out(queue_id: int, target_shard: int, number: int = 0) -> bytes:
    """MOVE_OUT_NUMBERED (leader): the queue leaves for another shard, for the ``number``th time. Without a number
    MOVE_OUT, from feature level LEVEL_QUEUE_MOVES on and below LEVEL_NUMBERED_MOVES.

    No-op for one that has left, is still arriving, is redriven or not here, and while more dead letters wait for room
    in it than an entry may deal with; for one that has come here with that move, or a later one.
    """
    if not number:
        return NUMBERED_HEAD.pack(MOVE_OUT, queue_id, target_shard)
    return MOVE_OUT_HEAD.pack(MOVE_OUT_NUMBERED, target_shard, queue_id, number)


def encode_move_in(
    queue_id: int, source: int, sequence: int, settings: ShardQueueSettings, lease: MovedLease, exclusive: bool,
    received: Sequence[tuple[int, int]], brake: Sequence[int] = (), number: int = 0,
) -> bytes:
    """MOVE_IN (leader of the shard that the queue leaves, to the other one): the queue as such, item ``sequence`` of
    its lane. No-op for a queue that is there, or was there after that. ``brake``: `Brake.row` before now, from feature
    level LEVEL_BRAKES on. ``number``: of the move, from LEVEL_NUMBERED_MOVES on."""
    encoded = encode_settings(settings)
    numbers = [number for row in received for number in row]
    flags = (FLAG_EXCLUSIVE_MOVE if exclusive else 0) | (FLAG_BRAKE if brake else 0)
    behind = BRAKE_LENGTH.pack(len(brake)) + pack_signed(brake) if brake else b""
    if number:
        flags |= FLAG_NUMBERED_MOVE
        behind += NUMBER.pack(number)
    return (
        MOVE_HEAD.pack(
            MOVE_IN, flags, lease.use, len(encoded), len(lease.guests), len(received), queue_id, source, sequence,
            lease.epoch, lease.unused_ms, lease.since_ms,
        )
        + encoded + pack_numbers(lease.guests) + pack_numbers(numbers) + behind
    )


def transferred(command: bytes) -> tuple[int, int] | None:
    """The source and the queue of a command that brings items of a lane; None for any other. Raises struct.error
    where it is too short."""
    if command[0] == MOVE_IN:
        head = MOVE_HEAD.unpack_from(command)
        return head[7], head[6]
    if command[0] in (TRANSFER, TRANSFER_MARKED, TRANSFER_MOVED, TRANSFER_COPIES):
        head = TRANSFER_HEAD.unpack_from(command)
        return head[2], head[3]
    return None


def encode_transfer_moved(
    source: int, lane: int, first_sequence: int, time_ms: int, items: Sequence[tuple[Message, LetterContent]]
) -> bytes:
    """TRANSFER_MOVED (leader of the shard that the queue has left, to the other one): items of its lane as TRANSFER has
    them, messages of the queue with all that they are among them. Also what was due in a delayed exchange and has a
    TTL, on its way to any queue. ``time_ms``: the clock of the sending shard by which their times count, not before
    now: by what is left of it a deadline is set anew, never earlier (RULES T5)."""
    return b"".join(transfer_moved_parts(source, lane, first_sequence, time_ms, items))


def transfer_moved_parts(
    source: int, lane: int, first_sequence: int, time_ms: int, items: Sequence[tuple[Message, LetterContent]]
) -> list[bytes]:
    """The same as several parts, the last of which is the last body."""
    parts = [TRANSFER_MOVED_HEAD.pack(TRANSFER_MOVED, len(items), source, lane, first_sequence, time_ms)]
    for item, content in items:
        kind = item_kind(item)
        acquired = item.acquired_count
        if kind == LETTER:
            acquired = DELIVERED_ELSEWHERE if content.redelivered else 0
        parts.append(
            MOVED_CONTENT_HEAD.pack(
                kind, item_priority(item), len(content.exchange_and_key), len(content.header), len(content.body),
                item.delivery_count, acquired, item.ttl_ms, item.enqueued_ms, item.deadline_ms,
            )
        )
        parts += (content.exchange_and_key, content.header, content.body)
    return parts


def encode_transfer_copies(
    source: int, queue: int, first_sequence: int, last_sequence: int, time_ms: int,
    items: Sequence[tuple[Message, LetterContent]],
) -> bytes:
    """TRANSFER_COPIES (leader of the copying stream's shard): what stands in another stream, ``source``
    (`node.numbers.stream_source`), at the sequences from the first to the last (RULES J4). A sequence is an offset
    there, plus 1. Where none of the ``items`` is, nothing is any more. ``time_ms``: the clock of the source's shard by
    which their times count.

    What was received before is dropped, a gap refuses the whole command. From feature level LEVEL_STREAMS on.
    """
    return b"".join(transfer_copies_parts(source, queue, first_sequence, last_sequence, time_ms, items))


def transfer_copies_parts(
    source: int, queue: int, first_sequence: int, last_sequence: int, time_ms: int,
    items: Sequence[tuple[Message, LetterContent]],
) -> list[bytes]:
    """The same as several parts, the last of which is the last body."""
    parts = [
        TRANSFER_COPIES_HEAD.pack(
            TRANSFER_COPIES, len(items), source, queue, first_sequence, last_sequence, time_ms
        )
    ]
    for item, content in items:
        body_length = len(content.body) + content.body_elsewhere
        lengths = (len(content.exchange_and_key), len(content.header), body_length)
        parts.append(
            COPIED_CONTENT_HEAD.pack(item.marker_reason, *lengths, item.stream_offset + 1, item.enqueued_ms)
        )
        parts += (content.exchange_and_key, content.header, content.body)
    return parts
