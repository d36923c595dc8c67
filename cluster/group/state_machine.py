"""What a replicated group asks of the state machine it carries, and what it tells the node around it."""

from collections.abc import Collection, Iterable, Sequence
from typing import Final, Protocol

from mayfly.cluster.group.sessions import SessionKey


class BadCommand(Exception):
    """Bytes that are not a command: every replica passes over the rest of that batch."""


class BadSnapshot(Exception):
    """Bytes that are not a snapshot of a group's state. The state machine that was given them has not changed."""


class SnapshotSteps(Protocol):
    """A snapshot of the state as it was when this was asked for, made bit by bit while entries go on being applied."""

    def step(self) -> bytes | None:
        """Do a bounded part of the work; the snapshot if that was the last of it."""
        ...


class RestoreSteps(Protocol):
    """A snapshot that is read bit by bit, while the state machine goes on with the state that it has."""

    def step(self) -> bool:
        """Read a bounded part of it; whether that was the last. Raises BadSnapshot."""
        ...

    def finish(self) -> None:
        """All was read: from now on it is the state. Nothing can go wrong here, what it says is stored by now."""
        ...


class Effect(Protocol):
    """Something that a node's clients are to be told of, such as a delivery."""

    @property
    def session(self) -> SessionKey:
        """The session that it concerns."""
        ...


class Unknown:
    """Instead of an answer: the command was applied, and nobody can say any more what it was answered."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown()


class Missed:
    """What a session was not told because a snapshot took the place of the entries that say it. In this order:
    ``effects_before``, for those that it knew of; ``answers``, for each of the batches that were asked about its
    results; ``effects``."""

    __slots__ = ("answers", "effects", "effects_before")

    def __init__(
        self, effects_before: Sequence[Effect], answers: Sequence[Sequence[object]], effects: Sequence[Effect]
    ) -> None:
        self.effects_before: Sequence[Effect] = effects_before
        self.answers: Sequence[Sequence[object]] = answers
        self.effects: Sequence[Effect] = effects


class StateMachine(Protocol):
    """A deterministic state machine: the same entries give the same state on every replica (RULES C1).

    For each entry the group calls `begin`, then `apply` for every admitted batch of commands and `session_closed`
    for every session that ends, then `finish`.
    """

    def goes_by_stamps(self) -> bool:
        """Whether the next entry's `begin` is told the stamps as they are in it, those of a new leader maybe behind the
        ones before; else the group's clock, which never goes back (RULES C2)."""
        ...

    def begin(self, index: int, time_ms: int, led_ms: int, data: bytes) -> None:
        """An entry begins; `data` is its payload, or what of that it has itself (`cluster.group.pieces`), and stays
        readable while a message in it lives."""
        ...

    def read_on(self, data: bytes) -> None:
        """What `begin` was given was the beginning of the entry's payload; this is all of it."""
        ...

    def apply(self, session: SessionKey | None, start: int, end: int) -> Sequence[object]:
        """Apply the commands in `data[start:end]`; the results of those that answer, in order. Of a single command the
        body, its last part, may stand beyond `data` (`cluster.group.pieces`): then `end` does as well.

        `session` is None for commands of the group's leader. Raises BadCommand."""
        ...

    def finish(self) -> None:
        """The entry ends: everything that follows from it happens now."""
        ...

    def session_closed(self, session: SessionKey) -> None:
        """A node's session ended: what it held goes back."""
        ...

    def take_effects(self) -> Sequence[Effect]:
        """Effects since the last call for clients of the nodes that `listen` named."""
        ...

    def listen(self, nodes: Collection[int]) -> None:
        """From now on there are effects for clients of these nodes. It changes nothing of the state."""
        ...

    def needs(self, told: object, found: list[int]) -> None:
        """Add the entries whose payload an answer or an effect refers to."""
        ...

    def told(self) -> object:
        """The state as it is, for `missed`: whoever is told by this replica was told everything up to it. Good until
        the next entry."""
        ...

    def missed(self, told: object, session: SessionKey, batches: Sequence[bytes]) -> Missed:
        """A later state has taken the place of the one whose `told` this is, and an open session of this node was told
        everything up to that one: the rest, as far as the state says it. `batches` are commands of the session that
        were applied in between; of an answer that the state does not say UNKNOWN takes the place. It changes nothing of
        the state."""
        ...

    def audience(self) -> Collection[int] | None:
        """The nodes that should hear without delay of what is committed, besides those who asked for it; None: all."""
        ...

    def take_released(self) -> list[int]:
        """Indices of entries that hold nothing alive any more, since the last call."""
        ...

    def live_entries(self) -> Iterable[int]:
        """Indices of the entries whose payload is still needed."""
        ...

    def snapshot_steps(self) -> SnapshotSteps:
        """The whole state as of now, without payloads of entries, in steps that may be far apart."""
        ...

    def restore_steps(self, data: bytes) -> RestoreSteps:
        """Read such a snapshot, in steps that may be far apart, to become what it says in the end."""
        ...


class GroupEvents(Protocol):
    """What a group tells the node it runs on."""

    def group_effects(self, group: int, effects: Sequence[Effect]) -> None:
        """Effects of one applied entry for this node's clients; the entry's answers were given before."""
        ...

    def group_session_lost(self, group: int) -> None:
        """The group has dropped this node's session; pending commands go on in a new one."""
        ...

    def group_proposes(self, group: int) -> None:
        """The group, which is led here, is about to make an entry of what was given: what is given now is in it."""
        ...

    def group_applied(self, group: int) -> None:
        """The group's state changed."""
        ...

    def group_taken_up(self, group: int) -> None:
        """The group has a replica here from now on."""
        ...

    def group_given_up(self, group: int) -> None:
        """The group has no replica here any more."""
        ...
