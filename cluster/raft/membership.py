"""How a change of membership turns one configuration into another (thesis chapter 4).

All functions leave what they are given as it is and return a new pair of configuration and progress. A
simple change moves at most one voter, so that the majorities of before and after overlap; anything else
goes through a joint configuration, in which both majorities must agree.
"""

from mayfly.cluster.raft.conf_change import ConfChangeSingle, ConfChangeType, ConfChangeV2
from mayfly.cluster.raft.errors import ConfChangeError
from mayfly.cluster.raft.inflights import Inflights
from mayfly.cluster.raft.messages import MAX_NODE_ID, NO_NODE, ConfState
from mayfly.cluster.raft.progress import Progress
from mayfly.cluster.raft.tracker import Configuration, empty_configuration


class ProgressLimits:
    """What a new member's progress begins with."""

    def __init__(self, max_inflight_messages: int, max_inflight_bytes: int) -> None:
        self.max_inflight_messages: int = max_inflight_messages
        self.max_inflight_bytes: int = max_inflight_bytes

    def new_inflights(self) -> Inflights:
        return Inflights(self.max_inflight_messages, self.max_inflight_bytes)


class ConfigurationChange:
    """A change in the making: copies of configuration and progress, altered step by step."""

    def __init__(
        self,
        configuration: Configuration,
        progress: dict[int, Progress],
        last_index: int,
        limits: ProgressLimits,
    ) -> None:
        self.configuration: Configuration = configuration.copy()
        self.progress: dict[int, Progress] = {
            node_id: known.copy(share_inflights=True) for node_id, known in progress.items()
        }
        self._before: set[int] = configuration.incoming
        self._last_index: int = last_index
        self._limits: ProgressLimits = limits

    def enter_joint(self, auto_leave: bool, changes: list[ConfChangeSingle]) -> None:
        """From voters (a b) to (a b)&&(a b), then change the incoming half."""
        if self.configuration.is_joint():
            raise ConfChangeError(ConfChangeError.ALREADY_JOINT)
        if not self.configuration.incoming:
            raise ConfChangeError(ConfChangeError.EMPTY_GROUP)
        self.configuration.outgoing = set(self.configuration.incoming)
        self._make(changes)
        self.configuration.auto_leave = auto_leave

    def leave_joint(self) -> None:
        """The incoming half alone decides from now on."""
        configuration = self.configuration
        if not configuration.is_joint():
            raise ConfChangeError(ConfChangeError.NOT_JOINT)
        for node_id in configuration.learners_next:
            configuration.learners.add(node_id)
            self.progress[node_id].is_learner = True
        for node_id in configuration.outgoing:
            if node_id not in configuration.incoming and node_id not in configuration.learners:
                self.progress.pop(node_id, None)
        configuration.outgoing = set()
        configuration.learners_next = set()
        configuration.auto_leave = False

    def simple(self, changes: list[ConfChangeSingle]) -> None:
        """Changes that together move at most one voter."""
        if self.configuration.is_joint():
            raise ConfChangeError(ConfChangeError.SIMPLE_IN_JOINT)
        self._make(changes)
        if len(self._before ^ self.configuration.incoming) > 1:
            raise ConfChangeError(ConfChangeError.TOO_MANY_VOTERS_CHANGED)

    def _make(self, changes: list[ConfChangeSingle]) -> None:
        for change in changes:
            # An upper layer that decides against a change sets its node to nobody.
            if change.node_id != NO_NODE:
                self._make_one(change.type, change.node_id)
        if not self.configuration.incoming:
            raise ConfChangeError(ConfChangeError.NO_VOTERS_LEFT)

    def _make_one(self, kind: int, node_id: int) -> None:
        if kind == ConfChangeType.ADD_NODE:
            self._make_voter(node_id)
        elif kind == ConfChangeType.ADD_LEARNER_NODE:
            self._make_learner(node_id)
        elif kind == ConfChangeType.REMOVE_NODE:
            self._remove(node_id)
        elif kind != ConfChangeType.UPDATE_NODE:
            raise ConfChangeError(ConfChangeError.UNKNOWN_KIND, str(kind))

    def _make_voter(self, node_id: int) -> None:
        known = self.progress.get(node_id)
        if known is None:
            self._add(node_id, is_learner=False)
        else:
            known.is_learner = False
        self.configuration.learners.discard(node_id)
        self.configuration.learners_next.discard(node_id)
        self.configuration.incoming.add(node_id)

    def _make_learner(self, node_id: int) -> None:
        known = self.progress.get(node_id)
        if known is None:
            self._add(node_id, is_learner=True)
            self.configuration.learners.add(node_id)
            return
        if known.is_learner:
            return
        self._remove(node_id)
        self.progress[node_id] = known
        if node_id in self.configuration.outgoing:
            self.configuration.learners_next.add(node_id)
        else:
            known.is_learner = True
            self.configuration.learners.add(node_id)

    def _remove(self, node_id: int) -> None:
        if node_id not in self.progress:
            return
        self.configuration.incoming.discard(node_id)
        self.configuration.learners.discard(node_id)
        self.configuration.learners_next.discard(node_id)
        # While the outgoing half still counts on it, it must be sent the log.
        if node_id not in self.configuration.outgoing:
            del self.progress[node_id]

    def _add(self, node_id: int, is_learner: bool) -> None:
        # It counts as active, lest a quorum check depose the leader before it could say a word.
        self.progress[node_id] = Progress(
            0, max(self._last_index, 1), self._limits.new_inflights(), is_learner, recent_active=True
        )

    def result(self) -> tuple[Configuration, dict[int, Progress]]:
        check_consistency(self.configuration, self.progress)
        return self.configuration, self.progress


def check_consistency(configuration: Configuration, progress: dict[int, Progress]) -> None:
    """Raises `ConfChangeError` when somebody plays two parts, or has no progress."""
    for node_id in configuration.incoming | configuration.outgoing | configuration.learners:
        if node_id not in progress:
            raise ConfChangeError(ConfChangeError.INCONSISTENT, f"no progress of {node_id}")
    for node_id in configuration.learners_next:
        if node_id not in configuration.outgoing or progress[node_id].is_learner:
            raise ConfChangeError(ConfChangeError.INCONSISTENT, f"{node_id} is no outgoing voter")
    for node_id in configuration.learners:
        if configuration.is_voter(node_id) or not progress[node_id].is_learner:
            raise ConfChangeError(ConfChangeError.INCONSISTENT, f"{node_id} is learner and voter")
    if not configuration.is_joint() and (configuration.learners_next or configuration.auto_leave):
        raise ConfChangeError(ConfChangeError.INCONSISTENT, "left-overs of a joint configuration")


def changed_membership(
    configuration: Configuration,
    progress: dict[int, Progress],
    change: ConfChangeV2,
    last_index: int,
    limits: ProgressLimits,
) -> tuple[Configuration, dict[int, Progress]]:
    """The membership after a change. Raises `ConfChangeError` when it can't be made."""
    making = ConfigurationChange(configuration, progress, last_index, limits)
    if change.leaves_joint():
        making.leave_joint()
    elif change.enters_joint():
        making.enter_joint(change.auto_leave(), change.changes)
    else:
        making.simple(change.changes)
    return making.result()


def restored_membership(
    state: ConfState, last_index: int, limits: ProgressLimits
) -> tuple[Configuration, dict[int, Progress]]:
    """The membership that a `ConfState` describes. Raises `ConfChangeError` when that can't be one."""
    _check_ids(state)
    configuration = empty_configuration()
    configuration.incoming = set(state.voters)
    configuration.outgoing = set(state.voters_outgoing)
    configuration.learners = set(state.learners)
    configuration.learners_next = set(state.learners_next)
    configuration.auto_leave = state.auto_leave
    if not configuration.incoming and (configuration.outgoing or configuration.learners):
        raise ConfChangeError(ConfChangeError.NO_VOTERS_LEFT)
    progress: dict[int, Progress] = {}
    for node_id in sorted(configuration.incoming | configuration.outgoing | configuration.learners):
        is_learner = node_id in configuration.learners
        progress[node_id] = Progress(
            0, max(last_index, 1), limits.new_inflights(), is_learner, recent_active=True
        )
    check_consistency(configuration, progress)
    return configuration, progress


def _check_ids(state: ConfState) -> None:
    for part in (state.voters, state.learners, state.voters_outgoing, state.learners_next):
        if len(set(part)) != len(part):
            raise ConfChangeError(ConfChangeError.INCONSISTENT, f"a node is named twice in {part}")
        for node_id in part:
            if not 0 < node_id <= MAX_NODE_ID:
                raise ConfChangeError(ConfChangeError.INCONSISTENT, f"{node_id} is no node id")
