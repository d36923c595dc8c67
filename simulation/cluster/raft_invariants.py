"""What must hold in a Raft group at every moment (Ongaro and Ousterhout, figure 3), checked as it runs.

The observer sees everything: what each member stores, applies and claims. It remembers the first of each
kind and compares all others with it, so that every check is cheap enough to be made at every step.
"""

from __future__ import annotations

import hashlib

from mayfly.cluster.raft import Entry, HardState


class InvariantError(AssertionError):
    """A property of Raft does not hold: the text names it, and the members and positions concerned."""


class RaftObserver:
    """The memory of one group's run."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        self.stored: dict[tuple[int, int], tuple[int, bytes, int]] = {}
        self.applied: dict[int, Entry] = {}
        self.digests: dict[int, bytes] = {}
        self.highest_applied = 0
        self._votes: dict[tuple[int, int], int] = {}
        self._terms: dict[int, int] = {}
        self._reads: dict[bytes, int] = {}

    def leads(self, node: int, term: int) -> bool:
        """Election safety: at most one leader in a term. True when this leadership is new."""
        known = self.leaders.setdefault(term, node)
        if known != node:
            raise InvariantError(f"election safety: {known} and {node} both lead in term {term}")
        return known == node

    def hard_state(self, node: int, state: HardState) -> None:
        """A member's stored term never falls, and it votes once in a term."""
        if state.term < self._terms.get(node, 0):
            raise InvariantError(
                f"term of {node} fell from {self._terms[node]} to {state.term}, across all restarts"
            )
        self._terms[node] = state.term
        if state.vote:
            self.vote_granted(node, state.term, state.vote)

    def vote_granted(self, node: int, term: int, candidate: int) -> None:
        """A member votes, or notes its vote: for one candidate in a term, across all restarts."""
        vote = self._votes.setdefault((node, term), candidate)
        if vote != candidate:
            raise InvariantError(f"{node} voted for {vote} and for {candidate} in term {term}")

    def entry_stored(self, node: int, entry: Entry, previous_term: int) -> None:
        """Log matching: entries of one index and term are the same, and so is what stands before them."""
        value = (entry.type, entry.data, previous_term)
        known = self.stored.setdefault((entry.index, entry.term), value)
        if known != value:
            raise InvariantError(
                f"log matching: {node} stored another entry {entry.term}/{entry.index} or one after term "
                f"{previous_term}, not {known[2]}"
            )

    def entry_applied(self, node: int, entry: Entry, previous: bytes) -> bytes:
        """State machine safety: all apply the same at an index. Returns the digest of all up to here."""
        known = self.applied.setdefault(entry.index, entry)
        if known != entry:
            raise InvariantError(
                f"state machine safety: {node} applied {entry!r} where another had {known!r}"
            )
        digest = hashlib.blake2b(previous + entry.data, digest_size=16).digest()
        expected = self.digests.setdefault(entry.index, digest)
        if digest != expected:
            raise InvariantError(f"{node} has another state at index {entry.index}")
        self.highest_applied = max(self.highest_applied, entry.index)
        return digest

    def snapshot_restored(self, node: int, index: int, digest: bytes) -> None:
        """A snapshot stands for what the others applied."""
        if self.digests.get(index, digest) != digest:
            raise InvariantError(f"{node} restored another state at index {index}")

    def leader_has(self, node: int, leader_term: int, term_at: dict[int, int]) -> None:
        """Leader completeness: a new leader's log holds every entry committed in an earlier term that anyone
        has applied.

        `term_at` gives the terms of the leader's log by index; what it has compacted is left out.
        """
        if not term_at:
            return
        last = max(term_at)
        for index in range(min(term_at), self.highest_applied + 1):
            known = self.applied.get(index)
            # It may be a leader of the past that was frozen since: of later terms it knows nothing.
            if known is None or known.term >= leader_term:
                continue
            if index > last or term_at[index] != known.term:
                raise InvariantError(
                    f"leader completeness: {node} leads in term {leader_term} without the applied {known!r}"
                )

    def read_requested(self, context: bytes) -> None:
        """A read that begins now must see at least everything applied by now."""
        self._reads[context] = self.highest_applied

    def read_answered(self, node: int, context: bytes, index: int) -> None:
        """Linearizable reads (thesis, section 6.4)."""
        least = self._reads.get(context, 0)
        if index < least:
            raise InvariantError(
                f"stale read at {node}: index {index}, {least} was applied before it began"
            )
