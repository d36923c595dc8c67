"""A group in memory whose network and crashes a test decides, and that checks Raft's promises as it goes.

Every member's work comes in stages, so that a crash can fall between them: a Ready is taken and what may
leave at once is sent; later it is stored, the rest is sent, entries are applied. A crash loses all that was
not stored. The checks are figure 3 of the Raft paper:

- Election Safety: at most one leader per term.
- Log Matching: an entry's index and term determine its data and the term of the entry before it; by
  induction, everything before it.
- Leader Completeness: a leader's log has every entry committed in earlier terms.
- State Machine Safety: no two members apply different entries at an index.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from random import Random

from mayfly.cluster.raft import (
    LOCAL_APPEND_THREAD,
    LOCAL_APPLY_THREAD,
    ConfChangeError,
    ConfChangeSingle,
    ConfChangeTransition,
    ConfChangeType,
    ConfChangeV2,
    Config,
    ConfState,
    Entry,
    EntryType,
    HardState,
    MessageType,
    ProposalDropped,
    RaftMessage,
    RawNode,
    ReadState,
    Ready,
    Snapshot,
    SnapshotMetadata,
    StateType,
    decode_conf_change,
)
from mayfly.cluster.raft.messages import limit_entries
from simulation.cluster.memory_storage import MemoryStorage


class Promises:
    """What the members together have shown so far, against which everything new is held."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        self.entries: dict[tuple[int, int], tuple[bytes, int, int]] = {}
        self.applied: dict[int, tuple[int, bytes]] = {}
        self.applied_at_term: dict[int, int] = {}

    def check_leader(self, node: RawNode) -> None:
        raft = node.raft
        if raft.state != StateType.LEADER:
            return
        known = self.leaders.get(raft.term)
        assert known in (None, raft.id), f"{known} and {raft.id} both lead term {raft.term}"
        if known is None:
            self.leaders[raft.term] = raft.id
            for index, (term, _) in self.applied.items():
                if self.applied_at_term[index] < raft.term and index >= raft.raft_log.first_index():
                    assert raft.raft_log.term(index) == term, f"leader {raft.id} lacks entry {index}"

    def check_entries(self, node: RawNode, entries: list[Entry]) -> None:
        previous = node.raft.raft_log.term_or_zero(entries[0].index - 1) if entries else 0
        for entry in entries:
            said = (entry.data, entry.type, previous)
            known = self.entries.setdefault((entry.index, entry.term), said)
            # Where the entry before is compacted its term isn't known.
            assert known[:2] == said[:2], f"entry {entry!r} differs"
            assert known[2] == said[2] or 0 in (known[2], said[2]), f"before {entry!r}: {known} {said}"
            previous = entry.term

    def check_applied(self, entry: Entry, at_term: int) -> None:
        said = (entry.term, entry.data)
        known = self.applied.setdefault(entry.index, said)
        assert known == said, f"entry {entry.index} was applied as {known} and as {said}"
        self.applied_at_term[entry.index] = min(at_term, self.applied_at_term.get(entry.index, at_term))


class SimulatedMember:
    """A node, its disk, its state machine (the list of what it applied), and work in stages."""

    def __init__(
        self, group: "SimulatedGroup", node_id: int, voters: list[int], options: dict[str, int]
    ) -> None:
        self.group = group
        self.id = node_id
        self.options = options
        self.storage = MemoryStorage()
        metadata = SnapshotMetadata(1, 1, ConfState(voters))
        self.storage.apply_snapshot(Snapshot(metadata, b"[]"))
        self.start()

    def start(self) -> None:
        """Begin, or begin again, from what is stored."""
        snapshot = self.storage.snapshot()
        self.state: list[list[object]] = json.loads(snapshot.data)
        self.applied = snapshot.metadata.index
        self.members = snapshot.metadata.conf_state
        self.pending: Ready | None = None
        self.append_work: list[RaftMessage] = []
        self.apply_work: list[RaftMessage] = []
        self.read_states: list[ReadState] = []
        self.node = RawNode(
            Config(
                id=self.id,
                election_tick=4,
                heartbeat_tick=1,
                storage=self.storage,
                random=self.group.random.randrange,
                applied=self.applied,
                max_size_per_message=120,
                max_inflight_messages=4,
                **self.options,  # type: ignore[arg-type]
            )
        )

    def is_async(self) -> bool:
        return bool(self.options.get("async_storage_writes", False))

    def begin(self) -> bool:
        """Take a Ready and send what may leave at once."""
        if self.pending is not None or not self.node.has_ready():
            return False
        ready = self.node.ready()
        self.group.promises.check_entries(self.node, ready.entries)
        self.read_states += ready.read_states
        self.group.send(ready.messages_now)
        if self.is_async():
            self.append_work.extend(m for m in ready.messages if m.to == LOCAL_APPEND_THREAD)
            self.apply_work.extend(m for m in ready.messages if m.to == LOCAL_APPLY_THREAD)
        else:
            self.pending = ready
        return True

    def finish(self, what: int = 0) -> bool:
        """Store and apply what was begun, or one piece of it with asynchronous writes."""
        ready = self.pending
        if ready is not None:
            self.store(ready.hard_state, ready.entries, ready.snapshot)
            self.group.send(ready.messages_after_append)
            self.apply(ready.committed_entries)
            self.pending = None
            self.node.advance()
            return True
        if self.append_work and (what % 2 == 0 or not self.apply_work):
            work = self.append_work.pop(0)
            state = HardState(work.term, work.vote, work.commit)
            self.store(None if state.is_empty() else state, work.entries, work.snapshot)
            self.respond(work)
            return True
        if self.apply_work:
            work = self.apply_work.pop(0)
            self.apply(work.entries)
            self.respond(work)
            return True
        return False

    def respond(self, work: RaftMessage) -> None:
        for response in work.responses:
            if response.to == self.id:
                self.take(response)
            else:
                self.group.send([response])

    def store(self, hard_state: HardState | None, entries: list[Entry], snapshot: Snapshot | None) -> None:
        if snapshot is not None:
            self.storage.apply_snapshot(snapshot)
            self.state = json.loads(snapshot.data)
            self.applied = snapshot.metadata.index
            self.members = snapshot.metadata.conf_state
        self.storage.append(entries)
        if hard_state is not None:
            self.storage.set_hard_state(hard_state)

    def apply(self, entries: list[Entry]) -> None:
        for entry in entries:
            assert entry.index == self.applied + 1
            self.group.promises.check_applied(entry, self.node.raft.term)
            if entry.type == EntryType.NORMAL:
                self.state.append([entry.index, entry.data.decode()])
            else:
                # What is impossible on one member is so on all.
                with suppress(ConfChangeError):
                    self.members = self.node.apply_conf_change(decode_conf_change(entry))
            self.applied = entry.index

    def compact(self) -> None:
        if self.applied > self.storage.snapshot().metadata.index:
            self.storage.create_snapshot(self.applied, self.members, json.dumps(self.state).encode())
            self.storage.compact(self.applied)

    def take(self, message: RaftMessage) -> None:
        with suppress(ProposalDropped):
            self.node.step(message)
        self.group.promises.check_leader(self.node)

    def log(self) -> list[tuple[int, int]]:
        """(index, term) of what the node holds, on disk or not."""
        raft_log = self.node.raft.raft_log
        entries = raft_log.entries_from(raft_log.first_index(), 1 << 40)
        return [(entry.index, entry.term) for entry in limit_entries(entries, 1 << 40)]


class SimulatedGroup:
    """Members and what is under way between them."""

    def __init__(self, size: int, seed: int = 0, **options: int) -> None:
        self.random = Random(seed)
        self.promises = Promises()
        self.network: list[RaftMessage] = []
        self.proposed = 0
        voters = list(range(1, size + 1))
        self.members = {node_id: SimulatedMember(self, node_id, voters, options) for node_id in voters}

    def __getitem__(self, node_id: int) -> SimulatedMember:
        return self.members[node_id]

    def send(self, messages: list[RaftMessage]) -> None:
        self.network.extend(messages)

    def hand_over(self, message: RaftMessage) -> None:
        self.members[message.to].take(message)
        self.report_snapshot(message, True)

    def lose(self, message: RaftMessage) -> None:
        self.report_snapshot(message, False)

    def report_snapshot(self, message: RaftMessage, ok: bool) -> None:
        """What a transport owes the sender of a snapshot."""
        if message.type == MessageType.SNAP:
            self.members[message.from_].node.report_snapshot(message.to, ok)

    def leaders(self) -> list[int]:
        return [member.id for member in self.members.values() if member.node.raft.state == StateType.LEADER]

    # A schedule's actions. The numbers say on whom or what; any number means something.

    def act(self, action: int, first: int, second: int) -> None:
        actions: list[Callable[[SimulatedMember, int], None]] = [
            self._tick, self._work, self._work, self._work, self._deliver, self._deliver, self._deliver,
            self._deliver, self._drop, self._duplicate, self._propose, self._propose, self._restart,
            self._campaign, self._compact, self._transfer, self._reconfigure, self._forget,
        ]  # fmt: skip
        member = self.members[1 + first % len(self.members)]
        actions[action % len(actions)](member, second)
        self.promises.check_leader(member.node)

    def _tick(self, member: SimulatedMember, count: int) -> None:
        for _ in range(1 + count % 2):
            member.node.tick()

    def _work(self, member: SimulatedMember, what: int) -> None:
        """One stage, or all there is."""
        if what % 2:
            while member.finish(what >> 1) or member.begin():
                pass
        elif what % 3 == 0 or not member.finish(what):
            member.begin()

    def _deliver(self, member: SimulatedMember, which: int) -> None:
        """Deliver a few messages, mostly the oldest."""
        for _ in range(1 + which % 6):
            if self.network:
                late = which % 5 == 0
                self.hand_over(self.network.pop(which % len(self.network) if late else 0))

    def _drop(self, member: SimulatedMember, which: int) -> None:
        if self.network:
            self.lose(self.network.pop(which % len(self.network)))

    def _duplicate(self, member: SimulatedMember, which: int) -> None:
        if self.network:
            message = self.network[which % len(self.network)]
            self.members[message.to].take(message)

    def _propose(self, member: SimulatedMember, count: int) -> None:
        self.proposed += 1
        batch = [f"{self.proposed}.{part}".encode() for part in range(1 + count % 3)]
        with suppress(ProposalDropped):
            member.node.propose_batch(batch)

    def _restart(self, member: SimulatedMember, what: int) -> None:
        # Rare enough for something to happen in between.
        if what % 4 == 0:
            member.start()

    def _campaign(self, member: SimulatedMember, what: int) -> None:
        if what % 4 == 0:
            member.node.campaign()

    def _compact(self, member: SimulatedMember, what: int) -> None:
        member.compact()

    def _transfer(self, member: SimulatedMember, to: int) -> None:
        member.node.transfer_leader(1 + to % len(self.members))

    def _forget(self, member: SimulatedMember, what: int) -> None:
        member.node.forget_leader()

    def _reconfigure(self, member: SimulatedMember, mask: int) -> None:
        """Make voters of some members and learners of the others."""
        changes = []
        for position, node_id in enumerate(self.members):
            kind = ConfChangeType.ADD_NODE if mask >> position & 1 else ConfChangeType.ADD_LEARNER_NODE
            if mask >> (position + 8) & 1:
                changes.append(ConfChangeSingle(kind, node_id))
        if changes:
            with suppress(ProposalDropped):
                member.node.propose_conf_change(ConfChangeV2(ConfChangeTransition.AUTO, changes))

    # Peace.

    def settle(self, cut_off: frozenset[int] = frozenset()) -> None:
        """Let all who aren't cut off work and talk until nothing is left to do. No time passes."""
        busy = True
        while busy:
            busy = False
            for member in self.members.values():
                while member.id not in cut_off and (member.begin() or member.finish()):
                    busy = True
                    self.promises.check_leader(member.node)
            pending, self.network = self.network, []
            for message in pending:
                if message.to in cut_off or message.from_ in cut_off:
                    self.lose(message)
                else:
                    busy = True
                    self.hand_over(message)

    def work_until(self, condition: Callable[[], bool], among: frozenset[int]) -> None:
        """Deliver messages one by one, and have those in `among` work off what they have, until it is so.

        What the others send, and what is sent to them, is not delivered.
        """
        for _ in range(200):
            for node_id in sorted(among):
                while self[node_id].finish() or self[node_id].begin():
                    self.promises.check_leader(self[node_id].node)
            if condition():
                return
            if self.network:
                message = self.network.pop(0)
                if message.from_ in among:
                    self.hand_over(message) if message.to in among else self.lose(message)
        raise AssertionError(f"did not come true: {self.describe()}")

    def heal(self, rounds: int = 400) -> None:
        """From now on nothing is lost: there must come a leader, and everybody must apply the same."""
        for member in self.members.values():
            while member.finish():
                pass
        for _ in range(rounds):
            self.settle()
            applied = {member.applied for member in self.members.values()}
            leaders = self.leaders()
            if len(leaders) == 1 and len(applied) == 1:
                lead = self.members[leaders[0]].node.raft
                joint = lead.tracker.configuration.is_joint()
                if lead.has_committed_in_term() and lead.raft_log.last_index() in applied and not joint:
                    break
            for member in self.members.values():
                member.node.tick()
        else:
            raise AssertionError(f"no agreement: {self.describe()}")
        states = [member.state for member in self.members.values()]
        assert all(state == states[0] for state in states)

    def describe(self) -> str:
        return "; ".join(
            f"{member.id} state {member.node.raft.state} term {member.node.raft.term} "
            f"applied {member.applied} {member.node.raft.raft_log!r} {member.members!r}"
            for member in self.members.values()
        )
