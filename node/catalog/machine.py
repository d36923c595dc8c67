"""The catalog as a replicated state machine: batches of encoded commands in, results out.

    batch = (length u32, command[length])*
"""

import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from mayfly.cluster.group.sessions import SessionKey
from mayfly.cluster.group.state_machine import (
    BadCommand,
    BadSnapshot,
    Effect,
    Missed,
    RestoreSteps,
    SnapshotSteps,
)
from mayfly.cluster.versions import LEVEL_CATALOG_CLOCK
from mayfly.node.catalog import (
    Catalog,
    CatalogState,
    MalformedCommand,
    MalformedSnapshot,
    QueueRecord,
    QueuesRemoved,
    ReadingInSteps,
    Refusal,
    decode,
)

_LENGTH: Final = struct.Struct("<I")


def frame_command(command: bytes) -> list[bytes]:
    """An encoded catalog command as the parts of a batch."""
    return [_LENGTH.pack(len(command)), command]


class CatalogMachine:
    """Adapts `Catalog` to `cluster.group.state_machine.StateMachine`. It needs no payload after it was applied."""

    def __init__(self, catalog: Catalog, changed: Callable[[], None]) -> None:
        self.catalog: Catalog = catalog
        self.last_commands: dict[int, int] = {}
        """Node -> the last entry applied here that had commands of its session; not of entries in a snapshot."""
        self.restored: bool = False
        """Set when a snapshot took the place of entries."""
        self._changed = changed
        self._data = b""
        self._time_ms = 0
        self._index = 0
        self._touched = False
        self._dead: list[int] = []
        self._removed: list[QueueRecord] = []

    def goes_by_stamps(self) -> bool:
        """As all replicas did that may still be there, below `LEVEL_CATALOG_CLOCK`."""
        return self.catalog.level < LEVEL_CATALOG_CLOCK

    def begin(self, index: int, time_ms: int, led_ms: int, data: bytes) -> None:
        """An entry begins."""
        self._index, self._time_ms, self._data = index, time_ms, data

    def read_on(self, data: bytes) -> None:
        """See `StateMachine`."""
        self._data = data

    def apply(self, session: SessionKey | None, start: int, end: int) -> Sequence[object]:
        """Apply the commands; every one of them answers. One that can't be read is refused, the others go on.

        Raises BadCommand where the batch has no length of a command, or a wrong one: those before it are applied."""
        if session is not None:
            self.last_commands[session[0]] = self._index
        results: list[object] = []
        while start < end:
            if end - start < _LENGTH.size:
                raise BadCommand(f"{end - start} octets at the end of a batch of catalog commands are no command")
            (length,) = _LENGTH.unpack_from(self._data, start)
            start += _LENGTH.size
            if length > end - start:
                raise BadCommand(f"catalog command of {length} octets, its batch has {end - start} more")
            try:
                result = self.catalog.apply(decode(self._data[start : start + length]), self._time_ms)
                results.append(result)
                if isinstance(result, QueuesRemoved):
                    self._removed += result.queues
                self._removed += self.catalog.dropped
                self.catalog.dropped.clear()
            except MalformedCommand as error:
                results.append(Refusal(541, str(error), True))
            start += length
            self._touched = True
        return results

    def finish(self) -> None:
        """The entry ends; its payload is of no more use."""
        self._data = b""
        self._dead.append(self._index)
        if self._touched:
            self._touched = False
            self._changed()

    def session_closed(self, session: SessionKey) -> None:
        """Nothing in the catalog belongs to a session."""

    def take_effects(self) -> Sequence[Effect]:
        """The catalog has no effects besides its results."""
        return ()

    def listen(self, nodes: Collection[int]) -> None:
        """There is nothing to hear."""

    def needs(self, told: object, found: list[int]) -> None:
        """Results refer to nothing."""

    def told(self) -> None:
        """Nothing but answers."""

    def missed(self, told: object, session: SessionKey, batches: Sequence[bytes]) -> Missed:
        """The answers are unknown. Whoever waits for them looks at the catalog, or gives its command again."""
        return Missed((), [() for _ in batches], ())

    def audience(self) -> None:
        """Everybody: clients of any node see what is declared."""

    def take_released(self) -> list[int]:
        """The entries applied since the last call."""
        dead, self._dead = self._dead, []
        return dead

    def take_removed(self) -> list[QueueRecord]:
        """The queues that went by commands applied since the last call; not those that a snapshot hides."""
        removed, self._removed = self._removed, []
        return removed

    def live_entries(self) -> Iterable[int]:
        """None: the catalog's state holds all it needs."""
        return ()

    def snapshot_steps(self) -> SnapshotSteps:
        """The whole catalog as it is now."""
        return self.catalog.snapshot_steps()

    def restore_steps(self, data: bytes) -> RestoreSteps:
        """Read a whole catalog, to become it in the end."""
        return CatalogRestore(self, self.catalog.reading(data))

    def become(self, state: CatalogState) -> None:
        """Something that was read takes the place of the catalog."""
        self.catalog.become(state)
        self.restored = True
        self._changed()


class CatalogRestore:
    """A snapshot that a catalog becomes; until the end it goes on as what it was."""

    def __init__(self, machine: CatalogMachine, reading: ReadingInSteps) -> None:
        self._machine = machine
        self._reading = reading

    def step(self) -> bool:
        """See `RestoreSteps`."""
        try:
            return self._reading.step()
        except MalformedSnapshot as error:
            raise BadSnapshot(str(error)) from error

    def finish(self) -> None:
        """See `RestoreSteps`."""
        self._machine.become(self._reading.state)
