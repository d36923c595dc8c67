"""What a host is made with besides its settings."""

from collections.abc import Callable

from mayfly.cluster.group.fed_entry import FeedCodec
from mayfly.cluster.group.state_machine import GroupEvents, StateMachine
from mayfly.cluster.log.group_log import EntryCache
from mayfly.cluster.raft import Entry


class HostParts:
    """What a host is made with: the layer above, the log of this node, and where it says what it does."""

    def __init__(
        self,
        machine: Callable[[int], StateMachine],
        events: GroupEvents,
        codec: FeedCodec,
        reader: Callable[[int, int], Entry],
        cache: EntryCache,
        random: Callable[[int], int],
        lost: object,
        trace: Callable[[str], None] | None = None,
        detail: Callable[[str], None] | None = None,
    ) -> None:
        """`machine(id)` makes the state machine of a replica that is begun or taken up. `lost`: see `OwnSession`.
        `trace` is told what an operator wants to know, `detail` every turn of every group's consensus."""
        self.machine: Callable[[int], StateMachine] = machine
        self.events: GroupEvents = events
        self.codec: FeedCodec = codec
        self.reader: Callable[[int, int], Entry] = reader
        self.cache: EntryCache = cache
        self.random: Callable[[int], int] = random
        self.lost: object = lost
        self.trace: Callable[[str], None] | None = trace
        self.detail: Callable[[str], None] | None = detail
