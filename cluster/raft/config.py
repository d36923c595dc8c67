"""The settings of one member of a Raft group."""

from collections.abc import Callable
from typing import Final

from mayfly.cluster.raft.messages import MAX_NODE_ID, NO_LIMIT
from mayfly.cluster.raft.storage import Storage


class ReadOnlyOption:
    """How a leader makes sure that it still leads before it answers a read index request.

    SAFE asks a quorum with a round of heartbeats. LEASE_BASED trusts that check-quorum would have deposed
    it, which holds as long as clocks of the members run about equally fast (thesis section 6.4.1).
    """

    SAFE: Final = 0
    LEASE_BASED: Final = 1


class Config:
    """Settings, checked when made. Ticks are calls of ``RawNode.tick``. Raises ValueError."""

    def __init__(
        self,
        id: int,
        election_tick: int,
        heartbeat_tick: int,
        storage: Storage,
        random: Callable[[int], int],
        applied: int = 0,
        max_size_per_message: int = 1 << 20,
        max_committed_size_per_ready: int = 0,
        max_uncommitted_bytes: int = NO_LIMIT,
        max_inflight_messages: int = 256,
        max_inflight_bytes: int = NO_LIMIT,
        check_quorum: bool = False,
        pre_vote: bool = False,
        read_only_option: int = ReadOnlyOption.SAFE,
        async_storage_writes: bool = False,
        disable_proposal_forwarding: bool = False,
        disable_conf_change_validation: bool = False,
        step_down_on_removal: bool = False,
        trace: Callable[[str], None] | None = None,
        given_up: tuple[int, int] = (0, 0),
    ) -> None:
        """
        ``random(n)`` gives a number in ``[0, n)``; election timeouts are drawn with it.
        ``applied`` is the last index the state machine has applied; nothing up to it is handed out again.
        ``max_size_per_message`` bounds the bytes of entries in one APP (at least one entry goes).
        ``max_committed_size_per_ready`` bounds entries handed out for applying at once; 0 takes the former.
        ``max_uncommitted_bytes`` bounds payload a leader accepts that isn't committed yet.
        ``max_inflight_messages``, ``max_inflight_bytes`` bound what is under way to one follower.
        ``check_quorum``: a leader that hears from no quorum for an election timeout steps down, and nodes
        that hear from a leader ignore candidates. ``pre_vote``: ask before raising the term.
        ``step_down_on_removal``: a leader that is removed or demoted becomes a follower when it applies that.
        ``trace`` is called with a sentence on every change of role and every oddity.
        ``given_up``: term and index of the last entry of a log that this member had, and said so, and has no more. It
        elects, and stands for election, only as it would with that log.
        """
        self.id: int = id
        self.election_tick: int = election_tick
        self.heartbeat_tick: int = heartbeat_tick
        self.storage: Storage = storage
        self.random: Callable[[int], int] = random
        self.applied: int = applied
        self.max_size_per_message: int = max_size_per_message
        self.max_committed_size_per_ready: int = max_committed_size_per_ready or max_size_per_message
        self.max_uncommitted_bytes: int = max_uncommitted_bytes or NO_LIMIT
        self.max_inflight_messages: int = max_inflight_messages
        self.max_inflight_bytes: int = max_inflight_bytes or NO_LIMIT
        self.check_quorum: bool = check_quorum
        self.pre_vote: bool = pre_vote
        self.read_only_option: int = read_only_option
        self.async_storage_writes: bool = async_storage_writes
        self.disable_proposal_forwarding: bool = disable_proposal_forwarding
        self.disable_conf_change_validation: bool = disable_conf_change_validation
        self.step_down_on_removal: bool = step_down_on_removal
        self.trace: Callable[[str], None] | None = trace
        self.given_up: tuple[int, int] = given_up
        self._validate()

    def _validate(self) -> None:
        if not 0 < self.id <= MAX_NODE_ID:
            raise ValueError(f"a node id is a positive 63 bit number, not {self.id}")
        if self.heartbeat_tick <= 0:
            raise ValueError("heartbeat_tick must be at least 1")
        if self.election_tick <= self.heartbeat_tick:
            raise ValueError("election_tick must be greater than heartbeat_tick")
        if self.max_inflight_messages <= 0:
            raise ValueError("max_inflight_messages must be at least 1")
        if self.max_inflight_bytes < self.max_size_per_message:
            raise ValueError("max_inflight_bytes must hold at least one message of max_size_per_message")
        if self.read_only_option == ReadOnlyOption.LEASE_BASED and not self.check_quorum:
            raise ValueError("lease based reads need check_quorum")
