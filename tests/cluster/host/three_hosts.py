"""Three hosts on a network and disks of this module, in steps that a test controls."""

import json
import random
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

from mayfly.cluster.group.fed_entry import FedEntry, Payloads
from mayfly.cluster.group.sessions import SessionKey
from mayfly.cluster.group.settings import GroupSettings
from mayfly.cluster.group.state_machine import UNKNOWN, BadCommand, BadSnapshot, Missed
from mayfly.cluster.host.frame import Frame
from mayfly.cluster.host.host import Host
from mayfly.cluster.host.parts import HostParts
from mayfly.cluster.host.settings import HostSettings
from mayfly.cluster.log.group_log import EntryCache
from mayfly.cluster.raft import RaftMessage
from simulation.cluster.carried import carried
from simulation.cluster.memory_store import MemoryStore
from tests.cluster.host.heartbeat_messages import heartbeats_as_messages

TICK_MS = 50
LOST = object()
NONE = b"none"
"""What a `Recorder` takes for no command."""


class Effect:
    """What a command does: its session's node hears of it."""

    def __init__(self, session: SessionKey, command: bytes, index: int = 0) -> None:
        self.session = session
        self.command = command
        self.index = index


class Recorder:
    """A state machine that keeps every command it was given; each answers with its position. The last `keep` entries
    stay live, as those of queues do that hold messages."""

    def __init__(self, node: int, keep: int = 0) -> None:
        self.node = node
        self.keep = keep
        self.kept: list[int] = []
        self.commands: list[bytes] = []
        self.givers: list[int] = []
        """The node that gave each of them, 0 for the leader."""
        self.forgotten: set[bytes] = set()
        """Commands whose answers the state does not say."""
        self.closed: list[SessionKey] = []
        self.closed_after: list[int] = []
        """How many commands there were when each session of `closed` ended."""
        self.stamps: list[tuple[int, int]] = []
        self.snapshot_takes = 1
        """Steps to make a snapshot, and to read one."""
        self.snapshots_read = 0
        self.attending: tuple[int, ...] | None = None
        """Nodes where somebody waits for entries; None: everywhere."""
        self._data = b""
        self._effects: list[Effect] = []
        self.listeners = {node}
        self._released: list[int] = []
        self._index = 0

    def goes_by_stamps(self) -> bool:
        return True

    def begin(self, index: int, time_ms: int, led_ms: int, data: bytes) -> None:
        self.stamps.append((time_ms, led_ms))
        self._data, self._index = data, index

    def read_on(self, data: bytes) -> None:
        self._data = data

    def apply(self, session: SessionKey | None, start: int, end: int) -> Sequence[object]:
        commands = [self._data[position : position + 4] for position in range(start, end, 4)]
        if NONE in commands:
            self._add(session, commands[: commands.index(NONE)])
            raise BadCommand("no command")
        results = list(range(len(self.commands), len(self.commands) + len(commands)))
        self._add(session, commands)
        if session is not None and session[0] in self.listeners:
            self._effects += [Effect(session, command, self._index) for command in commands]
        return results

    def _add(self, session: SessionKey | None, commands: list[bytes]) -> None:
        self.commands += commands
        self.givers += [0 if session is None else session[0]] * len(commands)

    def finish(self) -> None:
        self.kept.append(self._index)
        if len(self.kept) > self.keep:
            self._released.append(self.kept.pop(0))

    def session_closed(self, session: SessionKey) -> None:
        self.closed.append(session)
        self.closed_after.append(len(self.commands))

    def listen(self, nodes: Collection[int]) -> None:
        self.listeners = set(nodes)

    def needs(self, told: object, found: list[int]) -> None:
        if isinstance(told, Effect):
            found.append(told.index)

    def take_effects(self) -> "Sequence[Effect]":
        effects, self._effects = self._effects, []
        return effects

    def told(self) -> int:
        return len(self.commands)

    def missed(self, told: object, session: SessionKey, batches: Sequence[bytes]) -> Missed:
        assert isinstance(told, int)
        places = [place for place in range(told, len(self.commands)) if self.givers[place] == session[0]]
        answers: list[list[object]] = []
        answered = iter(places)
        for batch in batches:
            words = [batch[position : position + 4] for position in range(0, len(batch), 4)]
            found = [(word, next(it for it in answered if self.commands[it] == word)) for word in words]
            answers.append([UNKNOWN if word in self.forgotten else place for word, place in found])
        return Missed((), answers, [Effect(session, self.commands[place]) for place in places])

    def audience(self) -> tuple[int, ...] | None:
        return self.attending

    def take_released(self) -> list[int]:
        released, self._released = self._released, []
        return released

    def live_entries(self) -> Iterable[int]:
        return self.kept

    def snapshot(self) -> bytes:
        return json.dumps([self.kept, [command.hex() for command in self.commands], self.givers]).encode()

    def snapshot_steps(self) -> "SlowSnapshot":
        return SlowSnapshot(self.snapshot(), self.snapshot_takes)

    def restore_steps(self, data: bytes) -> "SlowRestore":
        return SlowRestore(self, data, self.snapshot_takes)


class RecorderCodec:
    """How answers and effects of recorders travel: JSON, a part for each entry. Payloads come with the effects, for a
    delivery needs them."""

    def encode(
        self, entries: list[FedEntry], payloads: Payloads, most_bytes: int
    ) -> list[tuple[int, list[bytes | memoryview]]]:
        parts: list[tuple[int, list[bytes | memoryview]]] = []
        for entry in entries:
            effects = [it.command.hex() for it in entry.effects if isinstance(it, Effect)]
            for index in entry.needs:
                payloads.data(index)
            parts.append((1, [json.dumps([entry.index, entry.answers, effects, entry.ended]).encode()]))
        return parts

    def decode(self, parts: list[bytes], session: SessionKey) -> tuple[list[FedEntry], dict[int, bytes]]:
        entries: list[FedEntry] = []
        for part in parts:
            index, answers, effects, ended = json.loads(part)
            entry = FedEntry(index)
            entry.answers = [(sequence, results) for sequence, results in answers]
            entry.effects = [Effect(session, bytes.fromhex(command)) for command in effects]
            entry.ended = None if ended is None else tuple(ended)
            entries.append(entry)
        return entries, {}


class SlowRestore:
    """A snapshot that is read in so many steps; what is wrong with it shows in the last."""

    def __init__(self, recorder: Recorder, data: bytes, steps: int) -> None:
        self.recorder = recorder
        self.data = data
        self.left = steps

    def step(self) -> bool:
        self.left -= 1
        if self.left == 0:
            self.recorder.snapshots_read += 1
            try:
                self.kept, commands, self.givers = json.loads(self.data)
            except ValueError as error:
                raise BadSnapshot(str(error)) from error
            self.commands = [bytes.fromhex(command) for command in commands]
        return self.left == 0

    def finish(self) -> None:
        self.recorder.kept, self.recorder.commands, self.recorder.givers = self.kept, self.commands, self.givers


class SlowSnapshot:
    """A snapshot in so many steps."""

    def __init__(self, snapshot: bytes, steps: int) -> None:
        self.snapshot = snapshot
        self.left = steps

    def step(self) -> bytes | None:
        self.left -= 1
        return None if self.left else self.snapshot


class Node:
    """A host with its store, and what it told the node around it."""

    def __init__(
        self,
        id: int,
        nodes: Sequence[int],
        groups: int,
        incarnation: int,
        store: MemoryStore,
        now: int,
        compact_entries: int,
        bootstrap: bool = True,
        keep: int = 0,
        inflight_bytes: int = 1 << 20,
        compact_bytes: int = 1 << 40,
        everywhere: bool = True,
        election_ticks: int = 10,
    ) -> None:
        def machine(group: int) -> Recorder:
            self.machines[group] = Recorder(id, keep)
            return self.machines[group]

        self.id = id
        self.store = store
        self.effects: list[object] = []
        self.sessions_lost = 0
        self.told: list[str] = []
        self.machines: dict[int, Recorder] = {}
        settings = GroupSettings(
            election_ticks=election_ticks, heartbeat_ticks=2, session_window=4, batch_bytes=1000, entry_bytes=10_000,
            repeat_after_ms=1000, session_timeout_ms=3000, compact_bytes=compact_bytes, compact_entries=compact_entries,
            inflight_bytes=inflight_bytes,
        )
        parts = HostParts(
            machine, self, RecorderCodec(), store.read_entry, EntryCache(1 << 20),
            random.Random(id * 1000 + incarnation).randrange, LOST, self.told.append,
        )  # fmt: skip
        self.host = Host(
            HostSettings(id, nodes, 3, TICK_MS, election_ticks * TICK_MS, 2000, settings, bootstrap, everywhere),
            range(groups), parts, incarnation,
        )  # fmt: skip
        first = self.host.start(store.load(), now)
        if first is not None:
            store.write(first)

    def group_effects(self, group: int, effects: Sequence[Any]) -> None:
        self.effects += [effect.command for effect in effects]

    def group_session_lost(self, group: int) -> None:
        self.sessions_lost += 1

    def group_proposes(self, group: int) -> None:
        pass

    def group_applied(self, group: int) -> None:
        pass

    def group_taken_up(self, group: int) -> None:
        pass

    def group_given_up(self, group: int) -> None:
        del self.machines[group]


def lose(frame: Frame, sender: int, to: int, loses: Callable[[int, RaftMessage], bool]) -> None:
    """Take out of a frame the messages that get lost. If some of the heartbeats do, the others go on as messages."""
    frame.raft = [(group, message) for group, message in frame.raft if not loses(group, message)]
    for notice in list(frame.notices):
        beats = heartbeats_as_messages(notice, sender, to)
        arriving = [(group, message) for group, message in beats if not loses(group, message)]
        if len(arriving) < len(beats):
            frame.notices.remove(notice)
            frame.raft += arriving


class Cluster:
    """Nodes 1..n; frames arrive in the next step, unless a node is in `cut`; `stuck` disks do not finish writes.

    `frozen` nodes do nothing, and their mail waits. `loses(sender, receiver, message)` says which Raft messages
    do not arrive.
    """

    def __init__(
        self,
        size: int = 3,
        groups: int = 1,
        compact_entries: int = 1 << 40,
        keep: int = 0,
        inflight_bytes: int = 1 << 20,
        compact_bytes: int = 1 << 40,
        everywhere: bool = True,
        election_ticks: int = 10,
    ) -> None:
        self.everywhere = everywhere
        self.election_ticks = election_ticks
        self.keep = keep
        self.compact_bytes = compact_bytes
        self.inflight_bytes = inflight_bytes
        self.ids = list(range(1, size + 1))
        self.groups = groups
        self.compact_entries = compact_entries
        self.now = 1_000_000
        self.stores = {id: MemoryStore() for id in self.ids}
        self.incarnations = dict.fromkeys(self.ids, 1)
        self.nodes: dict[int, Node] = {}
        self.cut: set[int] = set()
        self.stuck: set[int] = set()
        self.frozen: set[int] = set()
        self.loses: Callable[[int, int, RaftMessage], bool] = lambda sender, to, message: False
        self.as_sent: Callable[[RaftMessage], RaftMessage] = lambda message: message
        """What a message is in its sender's memory."""
        self._mail: list[tuple[int, int, Frame]] = []
        for id in self.ids:
            self.start(id)

    def _is_lost(self, sender: int, to: int, group: int, message: RaftMessage) -> bool:
        return self.loses(sender, to, message)

    def start(self, id: int) -> None:
        self.nodes[id] = Node(
            id, self.ids, self.groups, self.incarnations[id] << 20, self.stores[id], self.now, self.compact_entries,
            True, self.keep, self.inflight_bytes, self.compact_bytes, self.everywhere, self.election_ticks,
        )
        self.incarnations[id] += 1
        for other in self.nodes:
            if other != id:
                self.nodes[other].host.peer_up(id, self.now)
                self.nodes[id].host.peer_up(other, self.now)

    def add(self, id: int, nodes: Sequence[int]) -> None:
        """Start a node that joins: it has nothing, and knows the other members."""
        self.stores[id] = MemoryStore()
        self.incarnations[id] = 1
        self.nodes[id] = Node(
            id, nodes, self.groups, 1 << 20, self.stores[id], self.now, self.compact_entries, False,
            everywhere=self.everywhere,
        )  # fmt: skip
        self.incarnations[id] += 1
        for other in self.nodes:
            if other != id:
                self.nodes[other].host.peer_up(id, self.now)
                self.nodes[id].host.peer_up(other, self.now)

    def kill(self, id: int) -> None:
        del self.nodes[id]
        for node in self.nodes.values():
            node.host.peer_down(id, self.now)

    def step(self, until: Callable[[], object] = lambda: False) -> None:
        """One tick for everybody; mail and disk as far as they go at this moment, or until something is so."""
        self.now += TICK_MS
        for id, node in self.nodes.items():
            if id not in self.frozen:
                node.host.tick(self.now)
        self.exchange(until)

    def exchange(self, until: Callable[[], object] = lambda: False) -> None:
        """Mail and disk as far as they go without time passing."""
        for _ in range(30):
            self._pump()
            mail = [letter for letter in self._mail if letter[1] not in self.frozen]
            self._mail = [letter for letter in self._mail if letter[1] in self.frozen]
            if not mail or until():
                break
            for sender, to, frame in mail:
                if to in self.nodes and not {sender, to} & self.cut:
                    lose(frame, sender, to, partial(self._is_lost, sender, to))
                    frame.raft = [(group, carried(group, self.as_sent(message))) for group, message in frame.raft]
                    self.nodes[to].host.receive(sender, frame, self.now)

    def _pump(self) -> None:
        for id, node in self.nodes.items():
            if id in self.frozen:
                continue
            output = node.host.pump(self.now)
            if output.write is not None and id not in self.stuck:
                node.store.write(output.write)
                node.host.persisted(self.now)
                more = node.host.pump(self.now)
                for to, frame in more.frames.items():
                    output.frames.setdefault(to, Frame()).merge(frame)
                if more.write is not None:
                    node.store.write(more.write)
                    node.host.persisted(self.now)
            self._mail += [(id, to, frame) for to, frame in output.frames.items()]

    def run_until(self, condition: Callable[[], object], limit: int = 400) -> None:
        for _ in range(limit):
            if condition():
                return
            self.step()
        raise AssertionError(f"did not come true within {limit} steps of {TICK_MS} ms")

    def leader(self, group: int = 0) -> int:
        """The node that leads the group with its own term's entry applied; 0 if there is none."""
        for id, node in self.nodes.items():
            replica = node.host.groups.get(group)
            if replica is not None and id not in self.cut | self.frozen and replica.established:
                return id
        return 0
