"""What a leader knows about one follower's log (figure 2: nextIndex and matchIndex), and how it sends.

    PROBE --- an entry was accepted ---> REPLICATE
      ^  \\                                 |  \\
      |   --- the log no longer reaches --  |   |
      |        back so far: SNAPSHOT  <-----+---+
      +--- rejected, unreachable, snapshot done -

In PROBE one message at a time finds out where the logs agree; in REPLICATE messages are sent ahead of
their acknowledgements, as far as the window of `Inflights` allows; in SNAPSHOT nothing is sent.
"""

from typing import Final

from mayfly.cluster.raft.inflights import Inflights


class ProgressState:
    """How the leader sends to a follower."""

    PROBE: Final = 0
    REPLICATE: Final = 1
    SNAPSHOT: Final = 2


PROGRESS_STATE_NAMES: Final = ("PROBE", "REPLICATE", "SNAPSHOT")


class Progress:
    """One follower as the leader sees it. Always 0 <= match < next.

    ``sent_commit`` is the highest commit index that is under way to it; ``flow_paused`` says that one
    message is out and the next waits for an answer or a heartbeat's; ``recent_active`` that it was heard of
    since the last quorum check.
    """

    def __init__(
        self, match: int, next_index: int, inflights: Inflights, is_learner: bool, recent_active: bool = False
    ) -> None:
        self.match: int = match
        self.next: int = next_index
        self.sent_commit: int = 0
        self.state: int = ProgressState.PROBE
        self.pending_snapshot: int = 0
        self.recent_active: bool = recent_active
        self.flow_paused: bool = False
        self.inflights: Inflights = inflights
        self.is_learner: bool = is_learner

    def __repr__(self) -> str:
        return (
            f"Progress({PROGRESS_STATE_NAMES[self.state]} match={self.match} next={self.next} "
            f"inflight={self.inflights.count()} paused={self.is_paused()} learner={self.is_learner})"
        )

    def copy(self, share_inflights: bool) -> "Progress":
        inflights = self.inflights if share_inflights else self.inflights.copy()
        twin = Progress(self.match, self.next, inflights, self.is_learner, self.recent_active)
        twin.sent_commit = self.sent_commit
        twin.state = self.state
        twin.pending_snapshot = self.pending_snapshot
        twin.flow_paused = self.flow_paused
        return twin

    def reset(self, match: int, next_index: int) -> None:
        """Forget everything but whether it is a learner: a new term begins."""
        self._enter(ProgressState.PROBE)
        self.match = match
        self.next = next_index
        self.sent_commit = 0
        self.recent_active = False

    def _enter(self, state: int) -> None:
        self.flow_paused = False
        self.pending_snapshot = 0
        self.state = state
        self.inflights.reset()

    def become_probe(self) -> None:
        """Find out anew where the logs agree; after a snapshot, not before what it brought."""
        following = self.match + 1
        if self.state == ProgressState.SNAPSHOT:
            following = max(following, self.pending_snapshot + 1)
        self._enter(ProgressState.PROBE)
        self.next = following
        self._lower_sent_commit()

    def become_replicate(self) -> None:
        self._enter(ProgressState.REPLICATE)
        self.next = self.match + 1

    def become_snapshot(self, index: int) -> None:
        """A snapshot of ``index`` is under way."""
        self._enter(ProgressState.SNAPSHOT)
        self.pending_snapshot = index
        self.next = index + 1
        self.sent_commit = index

    def is_paused(self) -> bool:
        """Whether no APP may be sent now."""
        return self.flow_paused or self.state == ProgressState.SNAPSHOT

    def sent_entries(self, count: int, byte_count: int) -> None:
        """An APP with this many entries, ``next`` the first of them, was sent."""
        if self.state == ProgressState.REPLICATE:
            if count > 0:
                self.next += count
                self.inflights.add(self.next - 1, byte_count)
            # A message into a full window counts as a probe: only one until something is answered.
            self.flow_paused = self.inflights.full()
        elif count > 0:
            self.flow_paused = True

    def can_bump_commit(self, commit: int) -> bool:
        """Whether telling this commit index may move the follower's, beyond what it was told before."""
        return commit > self.sent_commit and self.sent_commit < self.next - 1

    def acknowledge(self, index: int) -> bool:
        """The follower's log agrees up to ``index``. False when that was known."""
        if index <= self.match:
            return False
        self.match = index
        if self.next <= index:
            self.next = index + 1
        self.flow_paused = False
        return True

    def refuse(self, rejected: int, hint: int) -> bool:
        """The follower refused the entry before ``rejected`` and hints where to go on.

        Lowers ``next``. False when the refusal is stale: it speaks of what has been acknowledged, or, while
        probing, of another message than the last. A follower that has lost what it acknowledged refuses that
        every time; it is asked again with the next heartbeat, not at once and for ever.
        """
        if rejected <= self.match:
            return False
        if self.state == ProgressState.REPLICATE:
            self.next = self.match + 1
            self._lower_sent_commit()
            return True
        if self.next - 1 != rejected:
            return False
        self.next = max(min(rejected, hint + 1), self.match + 1)
        self._lower_sent_commit()
        self.flow_paused = False
        return True

    def _lower_sent_commit(self) -> None:
        # What was told with messages that are now void has hardly been heard.
        if self.sent_commit > self.next - 1:
            self.sent_commit = self.next - 1
