"""What a host is made with besides its settings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mayfly.cluster.group.fed_entry import FeedCodec
from mayfly.cluster.group.state_machine import GroupEvents, StateMachine
from mayfly.cluster.log.group_log import EntryCache
from mayfly.cluster.raft import Entry


@dataclass(slots=True, eq=False)
class HostParts:
    """What a host is made with: the layer above, the log of this node, and where it says what it does.

    `machine(id)` makes the state machine of a replica that is begun or taken up. `lost`: see `OwnSession`.
    `trace` is told what an operator wants to know, `detail` every turn of every group's consensus."""

    machine: Callable[[int], StateMachine]
    events: GroupEvents
    codec: FeedCodec
    reader: Callable[[int, int], Entry]
    cache: EntryCache
    random: Callable[[int], int]
    lost: Any
    trace: Callable[[str], None] | None = None
    detail: Callable[[str], None] | None = None
