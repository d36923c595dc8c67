"""One node of a group, driven by hand: what the tests of the Raft paper's rules have in common."""

from mayfly.cluster.raft import (
    Config,
    ConfState,
    Entry,
    EntryType,
    HardState,
    MessageType,
    RaftMessage,
    RawNode,
    Snapshot,
    SnapshotMetadata,
    StateType,
    decode_conf_change,
)
from simulation.cluster.memory_storage import MemoryStorage


class Subject:
    """Node 1 of a group, with a log of entries of the given terms and whatever it says."""

    def __init__(
        self,
        terms: list[int] | None = None,
        size: int = 3,
        term: int = 0,
        commit: int = 0,
        members: ConfState | None = None,
        **options: bool,
    ) -> None:
        terms = terms or []
        self.options = options
        self.storage = MemoryStorage()
        conf_state = ConfState(list(range(1, size + 1))) if members is None else members
        self.storage.apply_snapshot(Snapshot(SnapshotMetadata(0, 0, conf_state)))
        self.storage.append([Entry(own, index) for index, own in enumerate(terms, 1)])
        if terms or term:
            self.storage.set_hard_state(HardState(max([term, *terms]), 0, commit))
        self.now: list[RaftMessage] = []
        self.later: list[RaftMessage] = []
        self.applied: list[Entry] = []
        self.installed: list[Snapshot] = []
        self.start()

    def start(self) -> None:
        self.node = RawNode(
            Config(
                id=1, election_tick=10, heartbeat_tick=1, storage=self.storage, random=lambda limit: limit - 1,
                **self.options,  # type: ignore[arg-type]
            )
        )  # fmt: skip

    def work(self) -> None:
        """Store, say and apply all there is."""
        while self.node.has_ready():
            ready = self.node.ready()
            if ready.snapshot is not None:
                self.storage.apply_snapshot(ready.snapshot)
                self.installed.append(ready.snapshot)
            self.storage.append(ready.entries)
            if ready.hard_state is not None:
                self.storage.set_hard_state(ready.hard_state)
            self.now += ready.messages_now
            self.later += ready.messages_after_append
            for entry in ready.committed_entries:
                if entry.type != EntryType.NORMAL:
                    self.node.apply_conf_change(decode_conf_change(entry))
                self.applied.append(entry)
            self.node.advance()

    def hears(self, kind: int, from_: int, term: int, **fields: object) -> list[RaftMessage]:
        """Take a message; returns all that is said because of it."""
        self.now, self.later = [], []
        self.node.step(RaftMessage(kind, 1, from_, term, **fields))  # type: ignore[arg-type]
        self.work()
        return self.now + self.later

    def elect(self) -> None:
        """Win an election with the vote of node 2, and of as many as it takes."""
        self.node.campaign()
        self.work()
        for voter in list(self.node.raft.tracker.progress)[1:]:
            if self.node.raft.state != StateType.LEADER:
                self.hears(MessageType.VOTE_RESP, voter, self.node.raft.term)
        assert self.node.raft.state == StateType.LEADER

    def terms(self) -> list[int]:
        log = self.node.raft.raft_log
        return [entry.term for entry in log.entries_from(1, 1 << 40)]


def entries_of(terms: list[int], first: int) -> list[Entry]:
    return [Entry(term, index) for index, term in enumerate(terms, first)]
