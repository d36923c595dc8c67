"""What must hold in every group of simulated hosts, at every step; on top of `raft_invariants`.

One `HostObserver` for each group sees what becomes durable on every disk, what every replica applies and says, and what
clients are told. All checks compare with the first of its kind, so each costs about as much as one look-up.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from mayfly.cluster.log.batch import GroupWrite
from mayfly.cluster.raft import Entry, HardState, MessageType, RaftMessage
from simulation.cluster.raft_invariants import InvariantError, RaftObserver


class HostObserver(RaftObserver):
    """The memory of one group over a run. Members are named by (node, store): wiped data is other data."""

    def __init__(self, group: int) -> None:
        super().__init__()
        self.group = group
        self.acknowledged: dict[int, int] = {}
        """The last number of each client whose command was answered."""
        self.bodies: dict[int, bytes] = {}
        """What stands behind the payload of an entry, in other ones."""
        self.copies: Callable[[int, int], tuple[int, int]] | None = None
        """How many disks of voters hold (index, term), and how many would be a majority; None: not to be checked."""
        self._hard_states: dict[tuple[int, int], tuple[int, int, int]] = {}
        self._states: dict[int, bytes] = {}
        self._counted: dict[tuple[int, int], int] = {}
        self._stores: dict[tuple[int, int], int] = {}

    def teller(self, node: int, store: int) -> int:
        """One number for a node with its data, as the observer of Raft wants it."""
        return self._stores.setdefault((node, store), node * 1_000 + store)

    def written(
        self, node: int, store: int, write: GroupWrite, term_before: Callable[[int], int]
    ) -> None:
        """A write of this group is durable; `term_before(index)` is the term that the disk has at an index."""
        name = self.teller(node, store)
        if write.hard_state is not None:
            state = write.hard_state
            self.hard_state(name, state)
            self._hard_states[(node, store)] = (state.term, state.vote, state.commit)
        if write.snapshot is not None and write.snapshot.state:
            index, digest = write.snapshot.metadata.index, blake2b(write.snapshot.state, digest_size=8).digest()
            if self._states.setdefault(index, digest) != digest:
                raise InvariantError(f"group {self.group}: the snapshot of node {node} at {index} is unlike another's")
        if write.entries:
            previous = term_before(write.entries[0].index - 1)
            for entry in write.entries:
                self.entry_stored(name, entry, previous)
                previous = entry.term

    def loaded(self, node: int, store: int, state: HardState) -> None:
        """A process starts with this term and vote: those that were written last."""
        expected = self._hard_states.get((node, store))
        if expected is not None and (state.term, state.vote, state.commit) != expected:
            raise InvariantError(f"group {self.group}: node {node} starts with {state!r}, {expected} was written")

    def delivered(self, message: RaftMessage) -> None:
        """A message reaches another node: a vote is given once in a term, whatever became of the voter's disk."""
        if message.type == MessageType.VOTE_RESP and not message.reject:
            key = (message.from_, message.term)
            known = self._counted.setdefault(key, message.to)
            if known != message.to:
                raise InvariantError(
                    f"group {self.group}: {message.from_} voted for {known} and for {message.to} in term {message.term}"
                )

    def applying(self, node: int, entry: Entry) -> None:
        """A replica applies an entry: all apply the same, and a majority has it on disk."""
        known = self.applied.get(entry.index)
        if known is None:
            self.applied[entry.index] = entry
            self.highest_applied = max(self.highest_applied, entry.index)
            if self.copies is not None:
                found, enough = self.copies(entry.index, entry.term)
                if found < enough:
                    raise InvariantError(
                        f"group {self.group}: node {node} applied {entry!r} with {found} copies on disk, not {enough}"
                    )
        elif known != entry:
            raise InvariantError(
                f"state machine safety: node {node} applied {entry!r} in group {self.group} where another had {known!r}"
            )

    def has_state(self, node: int, index: int, digest: bytes) -> None:
        """A replica's state after an entry, or restored from a snapshot of it, is everybody's."""
        known = self.digests.setdefault(index, digest)
        if known != digest:
            raise InvariantError(f"node {node} has another state of group {self.group} at index {index}")

    def answered(self, client: int, number: int, result: object) -> None:
        """A client's command was answered, by the replica of its own node."""
        if not isinstance(result, tuple) or result[1:] != (client, number):
            raise InvariantError(f"command {number} of client {client} was answered with {result!r}")
        if number <= self.acknowledged.get(client, 0):
            raise InvariantError(f"command {number} of client {client} was answered twice, or out of order")
        self.acknowledged[client] = number

    def payload_read(self, node: int, index: int, data: bytes) -> None:
        """A payload was read back from the log of a node."""
        if not self.is_payload(index, data):
            raise InvariantError(f"node {node} served a damaged entry {index} of group {self.group}")

    def is_payload(self, index: int, data: bytes) -> bool:
        """Whether this is the whole payload of an entry, or nobody knows."""
        known = self.applied.get(index)
        return known is None or known.data + self.bodies.get(index, b"") == data

    def keeps_acknowledged(self, node: int, counters: dict[int, int]) -> None:
        """A replica that is up to date has every command that was answered."""
        for client, number in self.acknowledged.items():
            if counters.get(client, 0) < number:
                raise InvariantError(
                    f"node {node} lacks command {number} of client {client} in group {self.group}, which was answered"
                )
