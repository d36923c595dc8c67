"""One Raft group alone on the worst network: members made of `RawNode` and `MemoryStorage`, nothing above.

Disks take time and forget what was not synced, messages are lost, doubled and overtaken, members crash,
freeze and are cut off, the membership changes, logs are compacted; `RaftObserver` watches every step.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

from mayfly.cluster.raft import (
    ConfChangeSingle,
    ConfChangeType,
    ConfChangeV2,
    Config,
    ConfState,
    Entry,
    EntryType,
    HardState,
    MessageType,
    ProposalDropped,
    RaftError,
    RaftMessage,
    RawNode,
    Ready,
    RecordedNode,
    RecordedStep,
    Snapshot,
    SnapshotMetadata,
    decode_conf_change,
)
from simulation.cluster.events import MILLISECOND_US, SECOND_US, EventQueue
from simulation.cluster.memory_storage import MemoryStorage
from simulation.cluster.notices import NoticeNetwork, NoticeProfile
from simulation.cluster.raft_invariants import InvariantError, RaftObserver
from simulation.cluster.raft_scenario import RaftScenario
from simulation.cluster.raft_schedules import make_schedule
from simulation.cluster.randomness import continued, exponential_us
from simulation.cluster.trace import Trace
from simulation.simulator import ScenarioRun, Sink, Violation

TICK_US = 100 * MILLISECOND_US
BOOTSTRAP = 1
MOST_EVENTS = 500_000
"""A run has up to 30 000: beyond this its members answer each other for ever."""
CHAOS_US = 12 * SECOND_US
LEAST_CALM_US = 3 * SECOND_US
LONGEST_CALM_US = 40 * SECOND_US
"""Two members without pre-vote, of which one alone can win, stand in turns by chance: each round of up to two seconds
is lost with a probability of a half."""
TROUBLES = (
    *("crash", "crash", "power", "freeze", "cut", "cut one way", "heal", "heal"),
    *("change", "change", "transfer"),
)
MOST_MESSAGES = 300_000
"""About three times what the busiest of many thousand seeds needs: a member that comes anew gets 186 entries one by one
over links that change their order. Each that is accepted has all behind it sent again, so it is the square of that."""


class RaftMember:
    """One member: its volatile node, its durable storage, and a write under way between the two."""

    def __init__(self, node: int, group: RaftGroup, conf_state: ConfState) -> None:
        self.id = node
        self.group = group
        self.storage = MemoryStorage()
        self.storage.apply_snapshot(Snapshot(SnapshotMetadata(BOOTSTRAP, 1, conf_state), b""))
        self.storage.set_hard_state(HardState(1, 0, BOOTSTRAP))
        self.raw: RawNode | None = None
        self.frozen = False
        self.digest = b""
        self.applied = BOOTSTRAP
        self.conf_state = conf_state
        self._ready: Ready | None = None
        self._life = 0
        self._was_leader_in = 0

    @property
    def leads(self) -> bool:
        """Whether it takes itself for the leader."""
        return self.raw is not None and self.raw.leads

    def start(self) -> None:
        """Start from what is durable."""
        if self.raw is not None:
            return
        self._life += 1
        snapshot = self.storage.snapshot()
        self.applied = snapshot.metadata.index
        self.digest = snapshot.data
        self.conf_state = snapshot.metadata.conf_state
        self._was_leader_in = 0
        random = self.group.random
        self.raw = self.group.new_node(
            Config(
                id=self.id,
                election_tick=self.group.scenario.election_tick,
                heartbeat_tick=1,
                storage=self.storage,
                random=random.randrange,
                applied=self.applied,
                max_size_per_message=self.group.max_message_bytes,
                max_inflight_messages=self.group.max_inflight,
                check_quorum=self.group.check_quorum,
                pre_vote=self.group.scenario.pre_vote,
                step_down_on_removal=self.group.scenario.step_down_on_removal,
            )
        )
        self._schedule_tick(self._life)

    def crash(self) -> None:
        """Lose everything that is not durable."""
        self.raw = None
        self.frozen = False
        self._ready = None

    def crash_within(self, delay_us: int, outage_us: int) -> None:
        """Crash so much later, unless it has crashed by then; and start again after the outage."""
        life = self._life

        def crash() -> None:
            if self.raw is not None and self._life == life and not self.group.calm:
                self.group.trace.add("aimed crash", self.id)
                self.crash()
                self.group.queue.after(outage_us, self.start)

        self.group.queue.after(delay_us, crash)

    def stand(self) -> None:
        """Stand for election now, if it can."""
        if self.raw is not None and not self.frozen:
            self.raw.campaign()
            self.progress()

    def _schedule_tick(self, life: int) -> None:
        def tick() -> None:
            if self.raw is None or self._life != life:
                return
            if not self.frozen:
                self.raw.tick()
                self.progress()
            self._schedule_tick(life)

        # No two clocks run alike.
        self.group.queue.after(TICK_US + self.group.random.randint(-5_000, 5_000), tick)

    def receive(self, message: RaftMessage) -> None:
        """A message came; the node may refuse it as nonsense, which is no failure."""
        if self.raw is None or self.frozen:
            return
        try:
            self.raw.step(message)
        except RaftError as error:
            self.group.trace.add("refused", self.id, error)
        self.progress()

    def progress(self) -> None:
        """Take the next Ready, unless one is being written."""
        raw = self.raw
        if raw is None:
            return
        if raw.leads:
            self._observe_leadership(raw)
        while self._ready is None and raw.has_ready():
            ready = raw.ready()
            if ready.messages_now:
                self.group.send(self.id, ready.messages_now)
            for state in ready.read_states:
                self.group.observer.read_answered(self.id, state.request_context, state.index)
            if ready.hard_state is None and not ready.entries and ready.snapshot is None:
                self._finish(raw, ready)
            else:
                self._ready = ready
                self._write(ready)

    def _write(self, ready: Ready) -> None:
        life = self._life
        duration_us = self.group.write_us()
        self.group.queue.after(duration_us, lambda: self._written(life, ready))
        self.group.schedule.writes(self, ready, duration_us)

    def _written(self, life: int, ready: Ready) -> None:
        raw = self.raw
        if raw is None or self._life != life or self._ready is not ready:
            return
        if self.frozen:
            self.group.queue.after(TICK_US, lambda: self._written(life, ready))
            return
        self._store(ready)
        self._ready = None
        self._finish(raw, ready)
        self.progress()

    def _store(self, ready: Ready) -> None:
        observer, storage = self.group.observer, self.storage
        if ready.snapshot is not None:
            storage.apply_snapshot(ready.snapshot)
        if ready.entries:
            previous_term = storage.term(ready.entries[0].index - 1)
            for entry in ready.entries:
                observer.entry_stored(self.id, entry, previous_term)
                previous_term = entry.term
            storage.append(ready.entries)
        if ready.hard_state is not None:
            storage.set_hard_state(ready.hard_state)
            observer.hard_state(self.id, ready.hard_state)

    def _finish(self, raw: RawNode, ready: Ready) -> None:
        observer = self.group.observer
        if ready.messages_after_append:
            self.group.send(self.id, ready.messages_after_append)
        if ready.snapshot is not None:
            metadata = ready.snapshot.metadata
            observer.snapshot_restored(self.id, metadata.index, ready.snapshot.data)
            self.digest = ready.snapshot.data
            self.applied = metadata.index
            self.conf_state = metadata.conf_state
        if not ready.committed_entries and ready.snapshot is None:
            raw.advance()
            return
        for entry in ready.committed_entries:
            if entry.index != self.applied + 1:
                raise InvariantError(f"{self.id} was given entry {entry.index} after {self.applied}")
            self.digest = observer.entry_applied(self.id, entry, self.digest)
            self.applied = entry.index
            if entry.type != EntryType.NORMAL:
                self.conf_state = raw.apply_conf_change(decode_conf_change(entry))
            self.group.check_durable(entry)
        raw.advance()
        self._maybe_compact()

    def _maybe_compact(self) -> None:
        storage = self.storage
        if storage.last_index() < self.applied:
            return
        metadata = storage.snapshot().metadata
        if self.conf_state is not metadata.conf_state and self.conf_state != metadata.conf_state:
            # A member that has just come in can't use a snapshot of a time when it did not belong.
            metadata = storage.create_snapshot(self.applied, self.conf_state, self.digest).metadata
        if self.applied - metadata.index >= self.group.scenario.compact_every:
            storage.create_snapshot(self.applied, self.conf_state, self.digest)
            keep = self.group.random.randint(0, self.group.scenario.compact_every // 2)
            if self.applied - keep >= storage.first_index():
                storage.compact(self.applied - keep)

    def _observe_leadership(self, raw: RawNode) -> None:
        self.group.observer.leads(self.id, raw.term)
        if self._was_leader_in != raw.term:
            self._was_leader_in = raw.term
            self.group.trace.add("leads", self.id, raw.term)
            terms = {index: raw.term_at(index) for index in range(self.storage.first_index(), raw.last_index + 1)}
            self.group.observer.leader_has(self.id, raw.term, terms)
            self.group.schedule.leads(self)


class RaftGroup(ScenarioRun[RaftScenario]):
    """A whole run of one group."""

    def __init__(
        self, scenario: RaftScenario, sink: Sink = None, record: Callable[[RecordedStep], None] | None = None
    ) -> None:
        """`sink` gets the trace line by line; `record` each step of each member."""
        self.scenario = scenario
        self._record = record
        self.schedule = make_schedule(scenario.schedule, scenario.seed)
        self.queue = EventQueue(MOST_EVENTS)
        self.trace = Trace(self.queue, sink, MOST_MESSAGES)
        self.random: Random = continued(scenario.rest)
        self.observer = RaftObserver()
        self.size = scenario.size
        self.check_quorum = scenario.check_quorum
        self.max_message_bytes = scenario.max_message_bytes
        self.max_inflight = scenario.max_inflight
        self.write_mean_us = scenario.write_mean_us
        self.proposal_gap_us = scenario.proposal_gap_us
        self.membership_changes = scenario.joiners > 0
        self.profile = NoticeProfile(scenario.loss, scenario.duplication)
        self.network: NoticeNetwork[RaftMessage] = NoticeNetwork(
            self.queue, self.random, self.profile, self._deliver
        )
        nodes = list(range(1, self.size + scenario.joiners + 1))
        conf_state = ConfState(voters=nodes[: self.size], learners=[])
        self.members = {node: RaftMember(node, self, conf_state) for node in nodes}
        self.proposed = 0
        self.calm = False

    def new_node(self, config: Config) -> RawNode:
        """A member's volatile half."""
        return RawNode(config) if self._record is None else RecordedNode(config, self._record)

    def write_us(self) -> int:
        """How long a write takes."""
        return exponential_us(self.random, self.write_mean_us, 1 * SECOND_US)

    def send(self, source: int, messages: list[RaftMessage]) -> None:
        """Put messages on the network."""
        for message in messages:
            if message.to == source:
                raise InvariantError(f"{source} sent itself {message!r}")
            if message.type == MessageType.VOTE_RESP and not message.reject:
                self.observer.vote_granted(source, message.term, message.to)
            self.network.send(source, message.to, message)
            if message.type == MessageType.SNAP:
                self._report_snapshot(source, message.to)

    def _report_snapshot(self, source: int, target: int) -> None:
        """What a transport owes its node: the fate of a snapshot, here not always the truth."""
        arrived = self.random.random() < 0.5

        def report() -> None:
            member = self.members[source]
            if member.frozen:
                self.queue.after(TICK_US, report)
            elif member.raw is not None:
                member.raw.report_snapshot(target, arrived)
                member.progress()

        self.queue.after(self.random.randint(1, 2 * SECOND_US), report)

    def _deliver(self, target: int, source: int, message: RaftMessage) -> None:
        self.trace.add("message", repr(message))
        member = self.members.get(target)
        if member is not None:
            member.receive(message)

    def check_durable(self, entry: Entry) -> None:
        """What anyone applies is on the disks of a majority (groups whose membership stays)."""
        if self.membership_changes:
            return
        holders = 0
        for member in self.members.values():
            storage = member.storage
            if storage.last_index() >= entry.index and (
                entry.index < storage.first_index() or storage.term(entry.index) == entry.term
            ):
                holders += 1
        if holders <= self.size // 2:
            raise InvariantError(f"{entry!r} was applied with {holders} of {self.size} copies on disk")

    def pass_time(self) -> None:
        """Chaos, then calm, until the group has agreed on something new and all members that belong to it know it."""
        self.schedule.begin(self)
        for member in self.members.values():
            member.start()
        self._schedule_proposal()
        self._schedule_trouble()
        self.queue.run_until(CHAOS_US)
        self.calm = True
        self.trace.add("calm")
        self.network.blocked.clear()
        self.profile.loss = self.profile.duplication = 0.0
        self.write_mean_us = min(self.write_mean_us, 1_000)
        self.proposal_gap_us = max(self.proposal_gap_us, 100 * MILLISECOND_US)
        for member in self.members.values():
            member.frozen = False
            member.start()
        agreed = max(self.observer.highest_applied, BOOTSTRAP + 1)
        self.queue.run_until(CHAOS_US + LEAST_CALM_US)
        while why := self._unfinished(agreed):
            if self.queue.now_us > CHAOS_US + LONGEST_CALM_US:
                raise InvariantError(why)
            self._take_away_removed_leaders()
            self.queue.run_until(self.queue.now_us + SECOND_US // 2)
        self.trace.add("end", self.observer.highest_applied, self.observer.digests[self.observer.highest_applied].hex())

    def judge(self) -> list[Violation]:
        """All was judged at its step, and the run has only ended because all members agree."""
        return []

    def happened(self) -> dict[str, int]:
        """Of figure 3's subjects."""
        return {"entries": self.observer.highest_applied, "leaders": len(self.observer.leaders)}

    def _take_away_removed_leaders(self) -> None:
        """A leader that stays although it was removed takes no proposals and keeps others from standing: whoever runs a
        group without `step_down_on_removal` has to end it."""
        if self.scenario.step_down_on_removal:
            return
        for member in self.members.values():
            voters = (*member.conf_state.voters, *member.conf_state.voters_outgoing)
            if member.raw is not None and member.raw.leads and member.id not in voters:
                member.crash()

    def _schedule_proposal(self) -> None:
        self.queue.after(exponential_us(self.random, self.proposal_gap_us, SECOND_US), self._propose)

    def _propose(self) -> None:
        self._schedule_proposal()
        member = self.random.choice(list(self.members.values()))
        raw = member.raw
        if raw is None or member.frozen:
            return
        self.proposed += 1
        try:
            if self.random.random() < self.scenario.reads:
                context = b"read %d" % self.proposed
                self.observer.read_requested(context)
                raw.read_index(context)
            else:
                size = self.random.choice((0, 8, 100))
                raw.propose(b"%d:" % self.proposed + b"x" * size)
        except ProposalDropped:
            pass
        member.progress()

    def _schedule_trouble(self) -> None:
        self.queue.after(exponential_us(self.random, self.scenario.trouble_gap_us, 5 * SECOND_US), self._trouble)

    def _trouble(self) -> None:
        """One fault or its end, at random; or a membership change, or a transfer."""
        if self.calm:
            return
        self._schedule_trouble()
        random = self.random
        member = self._victim()
        kind = random.choice(TROUBLES)
        self.trace.add("trouble", kind, member.id)
        outage = exponential_us(random, self.scenario.outage_us, 10 * SECOND_US)
        if kind == "crash":
            member.crash()
            self.queue.after(outage, member.start)
        elif kind == "power":
            for each in self.members.values():
                each.crash()
                self.queue.after(outage + random.randint(0, SECOND_US), each.start)
        elif kind == "freeze":
            member.frozen = True
            self.queue.after(outage, lambda: setattr(member, "frozen", False))
        elif kind in ("cut", "cut one way"):
            for other in self.members:
                self.network.blocked[(member.id, other)] = None
                if kind == "cut":
                    self.network.blocked[(other, member.id)] = None
        elif kind == "heal":
            self.network.blocked.clear()
        elif member.raw is not None and kind == "change" and self.membership_changes:
            self._change_membership(member)
        elif member.raw is not None and kind == "transfer":
            member.raw.transfer_leader(random.choice(list(self.members)))
            member.progress()

    def _victim(self) -> RaftMember:
        """Whom the trouble hits; a blow to a leader is worth more than one to anybody."""
        members = list(self.members.values())
        if self.random.random() < self.scenario.aim_at_leader:
            members = [member for member in members if member.leads] or members
        return self.random.choice(members)

    def _change_membership(self, member: RaftMember) -> None:
        random = self.random
        changes = [
            ConfChangeSingle(
                random.choice(
                    (
                        ConfChangeType.ADD_NODE,
                        ConfChangeType.ADD_NODE,
                        ConfChangeType.REMOVE_NODE,
                        ConfChangeType.ADD_LEARNER_NODE,
                    )
                ),
                node,
            )
            for node in random.sample(list(self.members), random.choice((1, 1, 2)))
        ]
        voters = set(member.conf_state.voters)
        for change in changes:
            (voters.add if change.type == ConfChangeType.ADD_NODE else voters.discard)(change.node_id)
        if not voters or member.raw is None:
            return
        with suppress(RaftError):
            member.raw.propose_conf_change(ConfChangeV2(0, changes))
        member.progress()

    def _unfinished(self, agreed_before: int) -> str:
        """Why the group has not come to rest: nothing new was agreed on, or a member that belongs to it is behind."""
        best = max(self.members.values(), key=lambda member: member.applied)
        if best.applied <= agreed_before:
            return f"nothing was agreed on in the calm, all stand at {best.applied}"
        for node in (*best.conf_state.voters, *best.conf_state.learners):
            member = self.members[node]
            if member.applied + 5 < best.applied:
                return f"{member.id} has applied {member.applied} in the end, {best.id} {best.applied}"
        return ""
