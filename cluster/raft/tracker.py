"""Who belongs to the group, how far each member is, and how it voted: as one node sees it."""

from mayfly.cluster.raft.messages import ConfState
from mayfly.cluster.raft.progress import Progress
from mayfly.cluster.raft.quorum import VoteResult, joint_vote, majority_committed, majority_vote


class Configuration:
    """The membership in force.

    ``incoming`` are the voters; in a joint configuration ``outgoing`` are those of before, and decisions
    need a majority of both. ``learners`` receive the log without a vote. ``learners_next`` are outgoing
    voters that become learners when the joint configuration is left, because nobody is both at once.
    """

    def __init__(
        self,
        incoming: set[int],
        outgoing: set[int],
        learners: set[int],
        learners_next: set[int],
        auto_leave: bool,
    ) -> None:
        self.incoming: set[int] = incoming
        self.outgoing: set[int] = outgoing
        self.learners: set[int] = learners
        self.learners_next: set[int] = learners_next
        self.auto_leave: bool = auto_leave

    def __repr__(self) -> str:
        return (
            f"Configuration(incoming={sorted(self.incoming)}, outgoing={sorted(self.outgoing)}, "
            f"learners={sorted(self.learners)}, learners_next={sorted(self.learners_next)}, "
            f"auto_leave={self.auto_leave})"
        )

    def copy(self) -> "Configuration":
        return Configuration(
            set(self.incoming),
            set(self.outgoing),
            set(self.learners),
            set(self.learners_next),
            self.auto_leave,
        )

    def is_joint(self) -> bool:
        return bool(self.outgoing)

    def voters(self) -> list[int]:
        """Everybody whose vote counts in one half or the other, in order."""
        return sorted(self.incoming | self.outgoing)

    def is_voter(self, node_id: int) -> bool:
        return node_id in self.incoming or node_id in self.outgoing

    def conf_state(self) -> ConfState:
        return ConfState(
            sorted(self.incoming),
            sorted(self.learners),
            sorted(self.outgoing),
            sorted(self.learners_next),
            self.auto_leave,
        )


def empty_configuration() -> Configuration:
    """A group of nobody."""
    return Configuration(set(), set(), set(), set(), False)


class Tracker:
    """The membership together with the progress and the vote of every member."""

    def __init__(self, configuration: Configuration, progress: dict[int, Progress]) -> None:
        self.configuration: Configuration = configuration
        self.progress: dict[int, Progress] = progress
        self.votes: dict[int, bool] = {}
        self._incoming: list[int] = []
        self._outgoing: list[int] = []
        self._members: list[int] = []
        self.install(configuration, progress)

    def install(self, configuration: Configuration, progress: dict[int, Progress]) -> None:
        """Put another membership in force."""
        self.configuration = configuration
        self.progress = progress
        self._incoming = sorted(configuration.incoming)
        self._outgoing = sorted(configuration.outgoing)
        self._members = sorted(progress)

    def members(self) -> list[int]:
        """Everybody who is sent the log, in order; not to be changed."""
        return self._members

    def is_singleton(self) -> bool:
        """Whether one voter decides alone."""
        return len(self._incoming) == 1 and not self._outgoing

    def committed(self) -> int:
        """The highest index that the group's quorum is known to have."""
        progress = self.progress
        matches = [progress[voter].match for voter in self._incoming]
        if not self._outgoing:
            matches.sort()
            return matches[(len(matches) - 1) // 2] if matches else 0
        acknowledged = dict(zip(self._incoming, matches, strict=True))
        for voter in self._outgoing:
            acknowledged[voter] = progress[voter].match
        return min(
            majority_committed(self._incoming, acknowledged), majority_committed(self._outgoing, acknowledged)
        )

    def quorum_is_active(self) -> bool:
        """Whether a quorum was heard of since `mark_inactive`."""
        active = {
            node_id: progress.recent_active
            for node_id, progress in self.progress.items()
            if not progress.is_learner
        }
        return joint_vote(self._incoming, self._outgoing, active) == VoteResult.WON

    def mark_inactive(self, but: int) -> None:
        """Begin another interval of listening for everybody but one."""
        for node_id, progress in self.progress.items():
            if node_id != but:
                progress.recent_active = False

    def reset_votes(self) -> None:
        self.votes = {}

    def record_vote(self, node_id: int, granted: bool) -> None:
        """Count a vote; a second one of the same node changes nothing."""
        self.votes.setdefault(node_id, granted)

    def tally(self) -> int:
        """The `VoteResult` as it stands."""
        if not self._outgoing:
            return majority_vote(self._incoming, self.votes)
        return joint_vote(self._incoming, self._outgoing, self.votes)
