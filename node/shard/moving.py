"""What a queue that moves to another shard, or has come from one, has besides. Most queues never have it.

The queue stays a row of the shard that it leaves: what is published for it there stands in its lines and goes on
through the lane to its new shard, where it is the same queue with the same id (docs/decisions/queues.md, 16).
"""

from collections.abc import Sequence
from typing import Any

from mayfly.node.shard.line import Line


class Moving:
    """``target_shard``: where the queue has gone, 0 if it is here.

    Of one that has gone: ``unused_ms``, how long its lease had been unused then; ``manifest_sequence`` and, once all
    that was in it is in the lane, ``end_sequence``, of those items in its lane. ``released_sequence``: the same of the
    mark that says that its lease is not held here any more, 0 for none; from LEVEL_RELEASES_GET_THROUGH on.
    ``exclusive``: its consumer was.

    Of one that has come: ``source_shard``, from which its messages are still arriving, 0 if all are here;
    ``exclusive``: its place is kept for such a consumer, which is to be attached again. ``returns``: it was here
    before; until all has arrived, and what its lane from here still had is taken in behind that, what is published here
    goes into that lane (by way of ``late``, which is empty between entries): nodes may publish here that know of none
    of it.

    ``guests``: shards from which it has come and where its lease is still held: by consumers that are to be attached
    here, or by what they hold there (RULES L3). ``awaited``: consumers, by order, that are to be attached elsewhere and
    were not detached here yet.
    """

    __slots__ = (
        "awaited",
        "end_sequence",
        "exclusive",
        "guests",
        "late",
        "manifest_sequence",
        "released_sequence",
        "returns",
        "source_shard",
        "target_shard",
        "unused_ms",
    )

    def __init__(self) -> None:
        self.target_shard = 0
        self.source_shard = 0
        self.unused_ms = 0
        self.manifest_sequence = 0
        self.end_sequence = 0
        self.released_sequence = 0
        self.exclusive = False
        self.returns = False
        self.late = Line()
        self.guests: dict[int, None] = {}
        self.awaited: dict[int, None] = {}

    def row(self) -> list[object]:
        """As it stands in a snapshot."""
        row: list[object] = [
            self.target_shard, self.source_shard, self.unused_ms, self.manifest_sequence, self.end_sequence,
            self.exclusive, self.returns, list(self.guests), list(self.awaited),
        ]
        if self.released_sequence:
            row.append(self.released_sequence)
        return row

    def restore(self, row: Sequence[Any]) -> None:
        """Be what stands in such a row."""
        (
            self.target_shard, self.source_shard, self.unused_ms, self.manifest_sequence, self.end_sequence,
            self.exclusive, self.returns, guests, awaited, *released,
        ) = row
        if released:
            (self.released_sequence,) = released
        self.guests = dict.fromkeys(guests)
        self.awaited = dict.fromkeys(awaited)
