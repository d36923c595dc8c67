"""What each hot structure of the core costs: CPU time of one operation, and as a multiple of a reference loop.

    python tests/bench/raft_structures.py

CPU time of the process, not of the clock on the wall, and the best of several rounds, so that other load on the machine
matters little. What is left of it (caches, clock rates) the multiple takes out: the reference, a call of an empty
function, is measured beside every figure. Run it on the installed package for the compiled figures.
"""

import time
from collections.abc import Callable

from mayfly.cluster.group.reads import Reads
from mayfly.cluster.group.sessions import SessionSender, SessionTable
from mayfly.cluster.raft import (
    Config,
    ConfState,
    Entry,
    MessageType,
    RaftMessage,
    RawNode,
    Snapshot,
    SnapshotMetadata,
)
from mayfly.cluster.raft.inflights import Inflights
from mayfly.cluster.raft.log import RaftLog
from mayfly.cluster.raft.messages import NO_LIMIT
from mayfly.cluster.raft.progress import Progress, ProgressState
from mayfly.cluster.raft.quorum import joint_committed, majority_committed
from mayfly.cluster.raft.read_only import ReadOnly
from simulation.cluster.memory_storage import MemoryStorage

ROUNDS = 7
CALLS = 20_000
BATCH = 64


def cpu_us(work: Callable[[], None], calls: int) -> float:
    """CPU microseconds of one call: the best of the rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best / calls * 1e6


def nothing() -> None:
    """The reference."""


def reference() -> None:
    for _ in range(CALLS):
        nothing()


def inflights() -> None:
    window = Inflights(256, NO_LIMIT)
    for index in range(CALLS):
        window.add(index, 100)
        window.full()
        if index % 128 == 127:
            window.free_to(index)


def progress() -> None:
    """One message sent and acknowledged."""
    follower = Progress(0, 1, Inflights(256, NO_LIMIT), is_learner=False)
    follower.acknowledge(0)
    follower.state = ProgressState.REPLICATE
    for index in range(1, CALLS + 1):
        follower.sent_entries(1, 100)
        follower.acknowledge(index)
        follower.inflights.free_to(index)


def _filled_log(entries: int) -> RaftLog:
    storage = MemoryStorage()
    storage.append([Entry(1, index, data=b"x" * 100) for index in range(1, entries + 1)])
    return RaftLog(storage, NO_LIMIT)


def log_append() -> None:
    """An entry appended, and told stable."""
    log = _filled_log(0)
    for index in range(1, CALLS + 1):
        log.append([Entry(1, index, data=b"x")])
        if index % BATCH == 0:
            log.unstable.stable_to(index, 1)


def log_maybe_append() -> None:
    """An entry taken as a follower: checked against the one before, appended, committed."""
    log = _filled_log(0)
    for index in range(1, CALLS + 1):
        log.maybe_append(index - 1, 1 if index > 1 else 0, [Entry(1, index, data=b"x")], index - 1)


SLICED = _filled_log(1000)


def log_slice() -> None:
    """64 entries of a log of 1000, limited in bytes."""
    for number in range(CALLS // BATCH):
        SLICED.slice(1 + number % 900, 1 + number % 900 + BATCH, 1 << 20)


FIVE = {1: 10, 2: 11, 3: 9, 4: 12, 5: 8}


def quorum_majority() -> None:
    for _ in range(CALLS):
        majority_committed((1, 2, 3, 4, 5), FIVE)


def quorum_joint() -> None:
    for _ in range(CALLS):
        joint_committed((1, 2, 3), (3, 4, 5), FIVE)


def session_table() -> None:
    table = SessionTable()
    for sequence in range(1, CALLS + 1):
        table.admit(1, 1, sequence)


def session_sender() -> None:
    """A command given, sent and applied."""
    sender = SessionSender(1, 1, 1 << 30, 1)
    for sequence in range(1, CALLS + 1):
        sender.add([b"word"], 4, True, None)
        sender.unsent(0, 1000)
        sender.applied(sequence)


def read_only() -> None:
    """A read noted by the leader, confirmed by one of two followers."""
    reads = ReadOnly(0)
    message = RaftMessage(MessageType.READ_INDEX, entries=[Entry(data=b"read")])
    voters = {1, 2, 3}
    for _ in range(CALLS):
        reads.add(message, 7)
        context = reads.context()
        reads.acknowledge(1, context)
        reads.acknowledge(2, context)
        reads.take_confirmed(voters, set())


def read_index() -> None:
    """A read of a node: asked for, answered, due."""
    reads = Reads(1, 1)
    for index in range(CALLS):
        reads.wait(_ignore, 0)
        context = reads.request(index * 1000, 1)
        if context is not None:
            reads.answered(context, index)
        for waiter in reads.due(index, 0):
            waiter(None)


def _ignore(result: object) -> None:
    pass


def _leader() -> RawNode:
    storage = MemoryStorage()
    storage.apply_snapshot(Snapshot(SnapshotMetadata(0, 0, ConfState([1, 2, 3]))))
    node = RawNode(Config(1, 10, 2, storage, lambda limit: 0))
    node.campaign()
    _work(node, storage)
    node.step(RaftMessage(MessageType.VOTE_RESP, 1, 2, 1))
    _work(node, storage)
    return node


def _work(node: RawNode, storage: MemoryStorage) -> None:
    while node.has_ready():
        ready = node.ready()
        storage.append(ready.entries)
        node.advance()


def idle_ticks() -> None:
    """A tick of an idle leader with two followers; every second one sends heartbeats."""
    node = _leader()
    for _ in range(CALLS):
        node.tick()
        if node.has_ready():
            node.ready()
            node.advance()


STRUCTURES: tuple[tuple[str, Callable[[], None], int], ...] = (
    ("inflights: a message added, now and then freed", inflights, CALLS),
    ("progress: a message sent and acknowledged", progress, CALLS),
    ("log: an entry appended", log_append, CALLS),
    ("log: an entry taken as a follower", log_maybe_append, CALLS),
    ("log: 64 entries sliced", log_slice, CALLS // BATCH),
    ("quorum: commit index of 5 voters", quorum_majority, CALLS),
    ("quorum: commit index of a joint configuration", quorum_joint, CALLS),
    ("session table: a batch admitted", session_table, CALLS),
    ("session sender: a command given, sent, applied", session_sender, CALLS),
    ("read index, leader: a read noted and confirmed", read_only, CALLS),
    ("read index, node: a read asked for and answered", read_index, CALLS),
    ("tick of an idle leader with 2 followers", idle_ticks, CALLS),
)


def main() -> None:
    """Print the table."""
    print(f"{'structure':50s} {'us':>8s} {'calls':>8s}")
    for name, work, calls in STRUCTURES:
        one_call_us = cpu_us(reference, CALLS)
        cost_us = cpu_us(work, calls)
        print(f"{name:50s} {cost_us:8.2f} {cost_us / one_call_us:8.0f}")


if __name__ == "__main__":
    main()
