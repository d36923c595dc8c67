"""A group in memory that obeys the directives of the `interaction` transcripts."""

from collections.abc import Callable
from functools import partial

from mayfly.cluster.raft import (
    LOCAL_APPEND_THREAD,
    LOCAL_APPLY_THREAD,
    NO_LIMIT,
    ConfChange,
    ConfChangeTransition,
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
    ReadOnlyOption,
    Snapshot,
    SnapshotMetadata,
    UnknownPeer,
    decode_conf_change,
)
from simulation.cluster.memory_storage import MemoryStorage
from tests.cluster.raft.datadriven import Directive
from tests.cluster.raft.notation import (
    MESSAGE_TYPES,
    STATES,
    TRANSITIONS,
    describe_all_progress,
    describe_entry,
    describe_message,
    describe_ready,
    parse_changes,
)

# How the recordings word what the core raises.
DROPPED = "raft proposal dropped"
UNKNOWN_PEER = "raft: cannot step as peer not found"


class HistoryStorage:
    """Storage whose snapshot is always that of the state machine's newest state.

    Not a subclass: a compiled `MemoryStorage` can't have one.
    """

    def __init__(self) -> None:
        self.inner = MemoryStorage()
        self.history: list[Snapshot] = []

    def initial_state(self) -> tuple[HardState, ConfState]:
        return self.inner.initial_state()

    def entries(self, low: int, high: int, max_bytes: int) -> list[Entry]:
        return self.inner.entries(low, high, max_bytes)

    def term(self, index: int) -> int:
        return self.inner.term(index)

    def first_index(self) -> int:
        return self.inner.first_index()

    def last_index(self) -> int:
        return self.inner.last_index()

    def snapshot(self) -> Snapshot:
        return self.history[-1]


class Member:
    """One node with its storage, its state machine (which joins all data) and its pending local work."""

    def __init__(self, node: RawNode, storage: HistoryStorage, config: Config) -> None:
        self.node = node
        self.storage = storage
        self.config = config
        self.append_work: list[RaftMessage] = []
        self.apply_work: list[RaftMessage] = []

    def store(self, hard_state: HardState | None, entries: list[Entry], snapshot: Snapshot | None) -> None:
        if hard_state is not None and not hard_state.is_empty():
            self.storage.inner.set_hard_state(hard_state)
        if snapshot is not None:
            assert not entries
            self.storage.inner.apply_snapshot(snapshot)
        self.storage.inner.append(entries)

    def apply(self, entries: list[Entry]) -> None:
        for entry in entries:
            last = self.storage.history[-1]
            data, members = entry.data, last.metadata.conf_state
            if entry.type != EntryType.NORMAL:
                change = decode_conf_change(entry)
                data, members = change.context, self.node.apply_conf_change(change)
            metadata = SnapshotMetadata(entry.index, entry.term, members)
            self.storage.history.append(Snapshot(metadata, last.data + data))


class TranscriptGroup:
    """All members, and the messages under way between them."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.under_way: list[RaftMessage] = []
        self.quiet = False
        self.lines: list[str] = []
        self._commands: dict[str, Callable[[Directive], None]] = {
            "add-nodes": self.add_nodes,
            "campaign": lambda directive: self.named(directive).node.campaign(),
            "compact": self.compact,
            "deliver-msgs": self.deliver_messages,
            "forget-leader": lambda directive: self.named(directive).node.forget_leader(),
            "log-level": self.log_level,
            "process-append-thread": lambda directive: self.for_each(
                directive, "processing append thread", self.process_append
            ),
            "process-apply-thread": lambda directive: self.for_each(
                directive, "processing apply thread", self.process_apply
            ),
            "process-ready": lambda directive: self.for_each(
                directive, "handling Ready", self.process_ready
            ),
            "propose": self.propose,
            "propose-conf-change": self.propose_conf_change,
            "raft-log": lambda directive: self.show_log(self.named(directive)),
            "raft-state": lambda directive: self.show_states(),
            "report-unreachable": self.report_unreachable,
            "send-snapshot": self.send_snapshot,
            "set-randomized-election-timeout": self.set_election_timeout,
            "stabilize": self.stabilize_some,
            "status": self.show_status,
            "tick-election": lambda directive: self.tick(directive, lambda config: config.election_tick),
            "tick-heartbeat": lambda directive: self.tick(directive, lambda config: config.heartbeat_tick),
            "transfer-leadership": self.transfer_leadership,
        }

    def answer(self, directive: Directive) -> list[str]:
        """Obey a directive and return what the transcripts would say."""
        self.lines = []
        try:
            self._commands[directive.command](directive)
        except ProposalDropped:
            return [DROPPED]
        if self.quiet or not self.lines:
            return ["ok"]
        return self.lines

    # Helpers.

    def named(self, directive: Directive) -> Member:
        return self.members[int(directive.bare()[0]) - 1]

    def named_all(self, directive: Directive) -> list[int]:
        return [int(key) for key in directive.bare()]

    def indented(self, heading: str, action: Callable[[], None]) -> None:
        outer, self.lines = self.lines, []
        action()
        self.lines = [*outer, heading, *("  " + line for line in self.lines)]

    def for_each(self, directive: Directive, doing: str, action: Callable[[int], None]) -> None:
        named = self.named_all(directive)
        for node_id in named:
            if len(named) > 1:
                self.indented(f"> {node_id} {doing}", partial(action, node_id))
            else:
                action(node_id)

    # Directives.

    def log_level(self, directive: Directive) -> None:
        self.quiet = directive.bare() == ["none"]

    def add_nodes(self, directive: Directive) -> None:
        voters = [int(value) for value in directive.values("voters")]
        learners = [int(value) for value in directive.values("learners")]
        index = directive.number("index")
        metadata = SnapshotMetadata(index, 1 if index else 0, ConfState(voters, learners))
        for _ in range(int(directive.bare()[0])):
            storage = HistoryStorage()
            if index:
                storage.inner.apply_snapshot(Snapshot(metadata))
            storage.history.append(Snapshot(metadata))
            lease_based = directive.values("read-only") == ["lease-based"]
            config = Config(
                id=len(self.members) + 1,
                election_tick=3,
                heartbeat_tick=1,
                storage=storage,
                random=lambda limit: 0,
                applied=index,
                max_size_per_message=NO_LIMIT,
                max_committed_size_per_ready=directive.number("max-committed-size-per-ready"),
                max_inflight_messages=directive.number("inflight", NO_LIMIT),
                check_quorum=directive.flag("checkquorum"),
                pre_vote=directive.flag("prevote"),
                read_only_option=ReadOnlyOption.LEASE_BASED if lease_based else ReadOnlyOption.SAFE,
                async_storage_writes=directive.flag("async-storage-writes"),
                disable_conf_change_validation=directive.flag("disable-conf-change-validation"),
                step_down_on_removal=directive.flag("step-down-on-removal"),
            )
            self.members.append(Member(RawNode(config), storage, config))

    def compact(self, directive: Directive) -> None:
        member = self.named(directive)
        member.storage.inner.compact(int(directive.bare()[1]))
        self.show_log(member)

    def propose(self, directive: Directive) -> None:
        self.named(directive).node.propose(directive.text.split()[2].encode())

    def propose_conf_change(self, directive: Directive) -> None:
        changes = parse_changes(directive.given)
        change: ConfChange | ConfChangeV2
        if directive.flag("v1"):
            change = ConfChange(changes[0].type, changes[0].node_id)
        else:
            names = directive.values("transition")
            transition = TRANSITIONS[names[0]] if names else ConfChangeTransition.AUTO
            change = ConfChangeV2(transition, changes)
        self.named(directive).node.propose_conf_change(change)

    def report_unreachable(self, directive: Directive) -> None:
        self.named(directive).node.report_unreachable(self.named_all(directive)[1])

    def transfer_leadership(self, directive: Directive) -> None:
        self.members[directive.number("from") - 1].node.transfer_leader(directive.number("to"))

    def set_election_timeout(self, directive: Directive) -> None:
        self.named(directive).node.raft.randomized_election_timeout = directive.number("timeout")

    def tick(self, directive: Directive, count: Callable[[Config], int]) -> None:
        member = self.named(directive)
        for _ in range(count(member.config)):
            member.node.tick()

    def send_snapshot(self, directive: Directive) -> None:
        from_, to = self.named_all(directive)
        sender = self.members[from_ - 1]
        message = RaftMessage(
            MessageType.SNAP, to, from_, sender.node.raft.term, snapshot=sender.storage.snapshot()
        )
        self.under_way.append(message)
        self.lines.extend(describe_message(message))

    def deliver_messages(self, directive: Directive) -> None:
        only = [MESSAGE_TYPES.index(name) for name in directive.values("type")]
        count = 0
        for key, values in directive.arguments:
            if not values:
                count += self.deliver(int(key), only, drop=False)
            elif key == "drop":
                for value in values:
                    count += self.deliver(int(value), only, drop=True)
        if not count:
            self.lines.append("no messages")

    def stabilize_some(self, directive: Directive) -> None:
        loud = self.quiet
        if directive.values("log-level") == ["none"]:
            self.quiet = True
        self.stabilize(self.named_all(directive) or list(range(1, len(self.members) + 1)))
        if self.quiet:
            self.lines = []
        self.quiet = loud

    # What the directives are made of.

    def stabilize(self, node_ids: list[int]) -> None:
        busy = True
        while busy:
            busy = False
            for node_id in node_ids:
                if self.members[node_id - 1].node.has_ready():
                    busy = True
                    self.indented(f"> {node_id} handling Ready", partial(self.process_ready, node_id))
            for node_id in node_ids:
                if any(message.to == node_id for message in self.under_way):
                    busy = True
                    self.indented(f"> {node_id} receiving messages", partial(self.deliver_all, node_id))
            for node_id in node_ids:
                member = self.members[node_id - 1]
                busy |= self.work_off(node_id, "append", member.append_work, self.process_append)
            for node_id in node_ids:
                member = self.members[node_id - 1]
                busy |= self.work_off(node_id, "apply", member.apply_work, self.process_apply)

    def work_off(
        self, node_id: int, name: str, work: list[RaftMessage], process: Callable[[int], None]
    ) -> bool:
        if not work:
            return False

        def all_of_it() -> None:
            while work:
                process(node_id)

        self.indented(f"> {node_id} processing {name} thread", all_of_it)
        return True

    def deliver_all(self, node_id: int) -> None:
        self.deliver(node_id, [], drop=False)

    def deliver(self, node_id: int, only: list[int], drop: bool) -> int:
        chosen: list[RaftMessage] = []
        rest: list[RaftMessage] = []
        for message in self.under_way:
            local = message.from_ == message.to or message.from_ in (LOCAL_APPEND_THREAD, LOCAL_APPLY_THREAD)
            fits = message.to == node_id and not (drop and local) and (not only or message.type in only)
            (chosen if fits else rest).append(message)
        self.under_way = rest
        for message in chosen:
            lines = describe_message(message)
            if drop:
                lines[0] = "dropped: " + lines[0]
            self.lines.extend(lines)
            if not drop:
                try:
                    self.members[node_id - 1].node.step(message)
                except UnknownPeer:
                    self.lines.append(UNKNOWN_PEER)
        return len(chosen)

    def process_ready(self, node_id: int) -> None:
        member = self.members[node_id - 1]
        ready = member.node.ready()
        self.lines.extend(describe_ready(ready))
        if not member.config.async_storage_writes:
            views = ready.messages_now + ready.messages_after_append
            assert [id(message) for message in views] == [id(message) for message in ready.messages]
            member.store(ready.hard_state, ready.entries, ready.snapshot)
            member.apply(ready.committed_entries)
        for message in ready.messages:
            if message.to == LOCAL_APPEND_THREAD:
                member.append_work.append(message)
            elif message.to == LOCAL_APPLY_THREAD:
                member.apply_work.append(message)
            else:
                self.under_way.append(message)
        if not member.config.async_storage_writes:
            member.node.advance()

    def process_append(self, node_id: int) -> None:
        member = self.members[node_id - 1]
        message = self.take_work(member.append_work)
        member.store(HardState(message.term, message.vote, message.commit), message.entries, message.snapshot)
        self.respond(message)

    def process_apply(self, node_id: int) -> None:
        member = self.members[node_id - 1]
        message = self.take_work(member.apply_work)
        member.apply(message.entries)
        self.respond(message)

    def take_work(self, work: list[RaftMessage]) -> RaftMessage:
        message = work.pop(0)
        responses, message.responses = message.responses, []
        self.lines.append("Processing:")
        self.lines.extend(describe_message(message))
        message.responses = responses
        return message

    def respond(self, message: RaftMessage) -> None:
        self.lines.append("Responses:")
        for response in message.responses:
            self.lines.extend(describe_message(response))
        self.under_way.extend(message.responses)

    def show_log(self, member: Member) -> None:
        first, last = member.storage.first_index(), member.storage.last_index()
        if last < first:
            self.lines.append(f"log is empty: first index={first}, last index={last}")
        else:
            entries = member.storage.entries(first, last + 1, NO_LIMIT)
            self.lines.extend(map(describe_entry, entries))

    def show_states(self) -> None:
        for member in self.members:
            status = member.node.status()
            part = "(Voter)" if status.configuration.is_voter(status.id) else "(Non-Voter)"
            self.lines.append(
                f"{status.id}: {STATES[status.state]} {part} "
                f"Term:{status.hard_state.term} Lead:{status.lead}"
            )

    def show_status(self, directive: Directive) -> None:
        self.lines.extend(describe_all_progress(self.named(directive).node.status().progress))
