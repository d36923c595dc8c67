"""What the simulated hosts replicate: a chain of digests, counters of clients, and in group 0 who is a member.

Small, but with everything that a group offers its state machine: answers, sessions that end, entries whose payload
is still needed below a snapshot, and snapshots. The digest covers the stamps and octets of every entry and which of its
batches were admitted, so two replicas with one digest have applied the same, once each, in one order.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import blake2b
from typing import Any

from mayfly.cluster.group.fed_entry import FedEntry, MalformedFeed, Payloads
from mayfly.cluster.group.sessions import SessionKey
from mayfly.cluster.group.state_machine import UNKNOWN, BadSnapshot, Missed
from mayfly.cluster.host.failure_domains import path_of
from mayfly.cluster.host.placement import first_plan, replanned
from simulation.cluster.raft_invariants import InvariantError

COMMAND = 1
"""The next number of a client: (client, number, octets of padding behind it)."""
KEEP = 2
"""The same, and the entry that carries it stays readable until others have taken its place."""
BARRIER = 3
STARTED = 4
"""A node says what its data is called: (node, store, 0)."""
ADD = 5
"""A node with new data asks for a place: (store, 0, 0); the answer is its id."""
REMOVE = 6
"""A member shall go: (node, 0, 0)."""
GONE = 7
"""A leaving member votes nowhere any more: (node, 0, 0)."""

MEMBER, JOINING, LEAVING, REMOVED = "member", "joining", "leaving", "removed"

_COMMAND = struct.Struct("<BIII")
_KEPT = 5
"""How many entries are kept readable."""


def encode_command(kind: int, first: int = 0, second: int = 0, padding: int = 0) -> bytes:
    """A command, with so many octets behind it that mean nothing."""
    return _COMMAND.pack(kind, first, second, padding) + bytes(padding)


def large_body(first: int, second: int, padding: int) -> bytes:
    """What stands behind a command that goes in pieces: nobody else's is the same."""
    return (struct.pack("<II", first, second) * (padding // 8 + 1))[:padding]


def encode_large(kind: int, first: int, second: int, padding: int) -> list[bytes]:
    """The same command with a body that may go in pieces."""
    return [_COMMAND.pack(kind, first, second, padding), large_body(first, second, padding)]


class Directory:
    """Who is a member, as `node.catalog.members` keeps it: ids only grow, removed ones are remembered, data has names.

    It knows the founders from the beginning; what their data is called it learns from them, and from then on the plan
    minds failure domains.
    """

    def __init__(
        self, founders: Sequence[int], groups: Sequence[int], replication_factor: int, domain: Callable[[int], str]
    ) -> None:
        self._domain = domain
        self.states: dict[int, str] = dict.fromkeys(founders, MEMBER)
        self.stores: dict[int, int] = {}
        self.plan = first_plan(groups, founders, replication_factor)
        self.version = 1
        self._replication_factor = replication_factor

    def apply(self, kind: int, first: int, second: int) -> int:
        """Carry a command out. The answer to ADD is the id given, to REMOVE whether that was possible."""
        if kind == ADD:
            return self._add(first)
        state = self.states.get(first)
        if kind == STARTED and state not in (None, REMOVED) and (first not in self.stores or state == JOINING):
            self.stores.setdefault(first, second)
            self._put(first, MEMBER if state == JOINING else str(state))
        elif kind == REMOVE:
            others = [node for node, its in self.states.items() if its == MEMBER and node != first]
            if state in (MEMBER, JOINING) and others:
                self._put(first, LEAVING)
            return int(bool(others))
        elif kind == GONE and state == LEAVING:
            self._put(first, REMOVED)
        return 0

    def _add(self, store: int) -> int:
        for node, known in self.stores.items():
            if known == store:
                return node
        node = max(self.states) + 1
        self.stores[node] = store
        self._put(node, JOINING)
        return node

    def _put(self, node: int, state: str) -> None:
        self.states[node] = state
        self.version += 1
        voting = [id for id, its in sorted(self.states.items()) if its == MEMBER]
        if voting:
            domains = {id: path_of(self._domain(id)) for id in voting}
            self.plan = replanned(self.plan, voting, self._replication_factor, (), domains)

    def present(self) -> list[int]:
        """The nodes that have replicas."""
        return [node for node, state in sorted(self.states.items()) if state != REMOVED]

    def stored(self) -> list[object]:
        """All of it, for snapshots."""
        return [self.version, sorted(self.states.items()), sorted(self.stores.items()), sorted(self.plan.items())]

    def restore(
        self,
        version: int,
        states: list[tuple[int, str]],
        stores: list[tuple[int, int]],
        plan: list[tuple[int, list[int]]],
    ) -> None:
        """Take over what `stored` gave."""
        self.version = version
        self.states = dict(states)
        self.stores = dict(stores)
        self.plan = {group: tuple(chosen) for group, chosen in plan}


SNAPSHOT_TAKES = 40
"""Steps to make a snapshot are fewer than this, and other ones at each index: elections, installs and crashes fall
between them."""


RESTORE_TAKES = 12
"""Steps to read a snapshot are fewer than this: elections, newer snapshots and crashes fall between them."""


class Echo:
    """The effect of a client's command: its node hears of it, with what the log has."""

    __slots__ = ("client", "digest", "index", "number", "session")

    def __init__(self, session: SessionKey, client: int, number: int, index: int, digest: bytes = b"") -> None:
        self.session = session
        self.client = client
        self.number = number
        self.index = index
        self.digest = digest
        """Of the entry's payload, where it came over the network."""


def payload_digest(data: bytes) -> bytes:
    """What an echo carries of a payload."""
    return blake2b(data, digest_size=8).digest()


class EchoCodec:
    """The `FeedCodec` of chain machines: JSON, a part for each entry, or one for each echo."""

    def encode(
        self, entries: list[FedEntry], payloads: Payloads, most_bytes: int
    ) -> list[tuple[int, list[bytes | memoryview]]]:
        """See `FeedCodec`."""
        parts: list[tuple[int, list[bytes | memoryview]]] = []
        for entry in entries:
            echoes = [
                [it.client, it.number, it.index, payload_digest(payloads.data(it.index)).hex()]
                for it in entry.effects
                if isinstance(it, Echo)
            ]
            parts += [(0, [json.dumps([0, [], [echo], None]).encode()]) for echo in echoes[1:]]
            parts.append((1, [json.dumps([entry.index, entry.answers, echoes[:1], entry.ended]).encode()]))
        return parts

    def decode(self, parts: list[bytes], session: SessionKey) -> tuple[list[FedEntry], dict[int, bytes]]:
        """See `FeedCodec`."""
        entries: list[FedEntry] = []
        later: list[Echo] = []
        for part in parts:
            try:
                index, answers, echoes, ended = json.loads(part)
            except ValueError as error:
                raise MalformedFeed(str(error)) from error
            read = [Echo(session, client, number, at, bytes.fromhex(it)) for client, number, at, it in echoes]
            if not index:
                later += read
                continue
            entry = FedEntry(index)
            entry.answers = [
                (sequence, None if results is None else [tuple(it) for it in results])
                for sequence, results in answers
            ]
            entry.effects = [*read, *later]
            entry.ended = None if ended is None else tuple(ended)
            later = []
            entries.append(entry)
        return entries, {}


class _SlowSnapshot:
    """A snapshot that takes so many steps before the one that has it."""

    def __init__(self, snapshot: bytes, steps: int) -> None:
        self._snapshot = snapshot
        self._left = steps

    def step(self) -> bytes | None:
        """See `SnapshotSteps`."""
        self._left -= 1
        return None if self._left >= 0 else self._snapshot


class _SlowRestore:
    """A snapshot that takes so many steps to read."""

    def __init__(self, machine: ChainMachine, data: bytes) -> None:
        self._machine = machine
        self._data = data
        self._left = len(data) % RESTORE_TAKES
        self._stored: list[Any] | None = None

    def step(self) -> bool:
        """See `RestoreSteps`. Nothing at all is the state that a founder begins with."""
        self._left -= 1
        if self._left >= 0:
            return False
        if self._data:
            try:
                self._stored = json.loads(self._data)
            except ValueError as error:
                raise BadSnapshot(str(error)) from error
        return True

    def finish(self) -> None:
        """See `RestoreSteps`."""
        if self._stored is not None:
            self._machine.become(self._stored)


def _answers(batch: bytes) -> list[object]:
    """The answers to commands that were applied, as far as that alone says them."""
    answers: list[object] = []
    position = 0
    while position < len(batch):
        kind, first, second, padding = _COMMAND.unpack_from(batch, position)
        position += _COMMAND.size + padding
        answers.append((kind, first, second) if kind in (COMMAND, KEEP, BARRIER) else UNKNOWN)
    return answers


class ChainMachine:
    """The state machine of one group on one node.

    `applying(index, data)` is called before an entry is applied, `applied(index, digest)` after it and after a
    snapshot was restored. In `bodies` is noted what stands behind an entry's own payload, in other entries.
    """

    def __init__(
        self,
        directory: Directory | None,
        applying: Callable[[int, bytes], None],
        applied: Callable[[int, bytes], None],
        bodies: dict[int, bytes] | None = None,
    ) -> None:
        self.bodies = {} if bodies is None else bodies
        self.directory = directory
        self.index = 0
        """Index of the last entry that was not empty."""
        self.digest = b""
        self.counters: dict[int, int] = {}
        self.kept: list[int] = []
        self._applying = applying
        self._applied = applied
        self._data = b""
        self._hashed: list[bytes] = []
        self._keeps = self._is_read = False
        self._released: list[int] = []
        self._listeners: set[int] = set()
        self._echoes: list[Echo] = []

    def goes_by_stamps(self) -> bool:
        """See `StateMachine`."""
        return True

    def begin(self, index: int, time_ms: int, led_ms: int, data: bytes) -> None:
        """See `StateMachine`."""
        if index <= self.index:
            raise InvariantError(f"entry {index} is applied after entry {self.index}: twice, or out of order")
        self._applying(index, data)
        self.index, self._data = index, data
        self._hashed = [self.digest, index.to_bytes(8, "big"), data]
        self._keeps = self._is_read = False

    def read_on(self, data: bytes) -> None:
        """See `StateMachine`."""
        self.bodies[self.index] = data[len(self._data) :]
        self._data = data
        self._hashed.append(data)
        self._is_read = True

    def apply(self, session: SessionKey | None, start: int, end: int) -> Sequence[object]:
        """See `StateMachine`; each command answers with (kind, first, what came of it)."""
        results: list[object] = []
        data = self._data
        self._hashed.append(start.to_bytes(4, "big"))
        while start < end:
            kind, first, second, padding = _COMMAND.unpack_from(data, start)
            start += _COMMAND.size + padding
            if self._is_read and data[start - padding : start] != large_body(first, second, padding):
                raise InvariantError(f"entry {self.index}: command {second} of client {first} has another body")
            if start > len(data):
                if start != end:
                    raise InvariantError(f"entry {self.index}: a body ends at {start}, its pieces at {end}")
                self.bodies[self.index] = large_body(first, second, padding)
            outcome = second
            if kind in (COMMAND, KEEP):
                last = self.counters.get(first, 0)
                if second != last + 1:
                    what = "applied twice" if second <= last else "lost before it"
                    raise InvariantError(
                        f"entry {self.index}: command {second} of client {first} comes after its command {last}: {what}"
                    )
                self.counters[first] = second
                if session is not None and session[0] in self._listeners:
                    self._echoes.append(Echo(session, first, second, self.index))
                self._keeps = self._keeps or kind == KEEP
            elif kind != BARRIER and self.directory is not None:
                outcome = self.directory.apply(kind, first, second)
            results.append((kind, first, outcome))
        return results

    def finish(self) -> None:
        """See `StateMachine`."""
        self.digest = blake2b(b"".join(self._hashed), digest_size=12).digest()
        if self._keeps:
            self.kept.append(self.index)
            if len(self.kept) > _KEPT:
                self._released.append(self.kept.pop(0))
        else:
            self._released.append(self.index)
        self._applied(self.index, self.digest)

    def session_closed(self, session: SessionKey) -> None:
        """See `StateMachine`."""
        self._hashed.append(b"over %d %d" % session)

    def take_effects(self) -> Sequence[Echo]:
        """See `StateMachine`."""
        echoes, self._echoes = self._echoes, []
        return echoes

    def listen(self, nodes: Collection[int]) -> None:
        """See `StateMachine`."""
        self._listeners = set(nodes)

    def needs(self, told: object, found: list[int]) -> None:
        """See `StateMachine`."""
        if isinstance(told, Echo):
            found.append(told.index)

    def told(self) -> dict[int, int]:
        """See `StateMachine`: the counters."""
        return dict(self.counters)

    def missed(self, told: object, session: SessionKey, batches: Sequence[bytes]) -> Missed:
        """See `StateMachine`: every command of every client since echoes, without the entry that had it."""
        assert isinstance(told, dict)
        echoes = [
            Echo(session, client, number, 0)
            for client, last in self.counters.items()
            for number in range(told.get(client, 0) + 1, last + 1)
        ]
        return Missed((), [_answers(batch) for batch in batches], echoes)

    def audience(self) -> Collection[int] | None:
        """In group 0 everybody, as in a catalog; elsewhere nobody but who asked."""
        return None if self.directory is not None else ()

    def take_released(self) -> list[int]:
        """See `StateMachine`."""
        released, self._released = self._released, []
        return released

    def live_entries(self) -> Iterable[int]:
        """See `StateMachine`."""
        return self.kept

    def snapshot(self) -> bytes:
        """See `StateMachine`."""
        directory = None if self.directory is None else self.directory.stored()
        state = [self.index, self.digest.hex(), sorted(self.counters.items()), self.kept, directory]
        return json.dumps(state).encode()

    def snapshot_steps(self) -> _SlowSnapshot:
        """See `StateMachine`."""
        return _SlowSnapshot(self.snapshot(), self.index % SNAPSHOT_TAKES)

    def restore_steps(self, data: bytes) -> _SlowRestore:
        """See `StateMachine`."""
        return _SlowRestore(self, data)

    def become(self, stored: list[Any]) -> None:
        """What was read of a snapshot."""
        index, digest, counters, kept, directory = stored
        self.index, self.digest = index, bytes.fromhex(digest)
        self.counters = dict(counters)
        self.kept = kept
        if self.directory is not None:
            self.directory.restore(*directory)
        self._applied(self.index, self.digest)
