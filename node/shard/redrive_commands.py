"""The commands of redrives as bytes (RULES R1): START_REDRIVE, CHANGE_REDRIVE and the leader's REDRIVE."""

from collections.abc import Sequence
from typing import Final

from mayfly.node.shard.commands import (
    CHANGE_REDRIVE,
    CHANGE_REDRIVE_HEAD,
    NUMBER_PAIR,
    REDRIVE,
    REDRIVE_HEAD,
    REDRIVEN_HEAD,
    START_REDRIVE,
    START_REDRIVE_HEAD,
    LetterContent,
)
from mayfly.node.shard.packing import pack_numbers
from mayfly.node.shard.redrive import Place

# What a CHANGE_REDRIVE asks for.
PAUSE: Final = 0
RESUME: Final = 1
CANCEL: Final = 2
SET_RATE: Final = 3

WHICHEVER: Final = 0
"""A CHANGE_REDRIVE that means the queue's redrive, whichever it is."""

FLAG_DONE: Final = 1
FLAG_BACK: Final = 2
"""The place is in a line of what came back."""


class Redriven:
    """What the leader decided for one message, known by its place in the log and its time: the ``content`` goes to
    ``local_targets`` (queues of this shard) and ``remote_targets`` (target shard, target queue)."""

    __slots__ = ("content", "enqueued_ms", "index", "local_targets", "offset", "remote_targets")

    def __init__(
        self, index: int, offset: int, enqueued_ms: int, local_targets: Sequence[int],
        remote_targets: Sequence[tuple[int, int]], content: LetterContent,
    ) -> None:
        self.index = index
        self.offset = offset
        self.enqueued_ms = enqueued_ms
        self.local_targets = local_targets
        self.remote_targets = remote_targets
        self.content = content


def encode_start_redrive(queue_id: int, terms: bytes, per_second: int) -> bytes:
    """START_REDRIVE: what is ready in the queue now, and is meant by the terms, moves; ``per_second`` 0 is no rate.
    Answers RedriveState; Refused with IN_USE while another one is under way, with NOT_READY for a stream and for
    what else has nothing ready; Gone or Moved. From feature level LEVEL_REDRIVES on."""
    return START_REDRIVE_HEAD.pack(START_REDRIVE, per_second, len(terms), queue_id) + terms


def encode_change_redrive(queue_id: int, form: int, redrive_id: int = WHICHEVER, per_second: int = 0) -> bytes:
    """CHANGE_REDRIVE: PAUSE, RESUME or CANCEL the redrive of the queue, or SET_RATE. Answers RedriveState; Refused with
    NO_REDRIVE where no such one is under way; Gone or Moved. From feature level LEVEL_REDRIVES on."""
    return CHANGE_REDRIVE_HEAD.pack(CHANGE_REDRIVE, form, per_second, queue_id, redrive_id)


def encode_redrive(
    queue_id: int, redrive_id: int, step: int, redriven: Sequence[Redriven], stayed: int, place: Place, done: bool,
    tag: int = 0,
) -> bytes:
    """REDRIVE (leader): these messages leave the queue and go on, in this order; with them and with ``stayed`` others,
    in all, the redrive has looked at everything up to the ``place``; ``done``: it has looked at everything. By the
    ``tag`` the leader knows which of its commands was applied as this step.

    No-op unless the redrive is running and ``step`` is the one after its last. A message that is not ready any more, or
    whose targets in this shard are gone, is passed over. From feature level LEVEL_REDRIVES on."""
    flags = (FLAG_DONE if done else 0) | (FLAG_BACK if place.is_back else 0)
    parts = [
        REDRIVE_HEAD.pack(
            REDRIVE, flags, len(redriven), queue_id, redrive_id, step, tag, stayed, place.priority, place.index,
            place.offset, place.enqueued_ms, place.acquired_count,
        )
    ]
    for each in redriven:
        content = each.content
        parts.append(
            REDRIVEN_HEAD.pack(
                each.index, each.offset, each.enqueued_ms, len(content.exchange_and_key), len(content.header),
                len(content.body) + content.body_elsewhere, len(each.local_targets), len(each.remote_targets),
            )
        )
        parts.append(pack_numbers(each.local_targets))
        parts += [NUMBER_PAIR.pack(shard, queue) for shard, queue in each.remote_targets]
        parts += (content.exchange_and_key, content.header, content.body)
    return b"".join(parts)
