"""How long a catalog with very many queues holds its node: python tests/bench/catalog_at_size.py [queues]

One replica without a node around it. Every step is timed by itself, as ticks have other work between them, in CPU: of a
snapshot; of reading one, until nothing is left of the state that was there before; of a shard's comparisons with the
catalog, for a shard that has its part of the queues and for one that has none. What a queue takes is what the process
has more with all of them there.
"""

import gc
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from mayfly.cluster.group.applying import Applying
from mayfly.cluster.group.clock import GroupClock
from mayfly.node.catalog import Bind, Catalog, DeclareQueue
from mayfly.node.catalog.machine import CatalogMachine
from mayfly.node.catalog.shard_settings import shard_settings
from mayfly.node.duties.shard_leader import ShardLeader
from mayfly.node.shard import commands
from mayfly.node.shard.shard import Shard
from mayfly.node.shell.process import MANY_OBJECTS, RARELY_OLDER
from tests.cluster.group.own_sessions import told_by_replica

SHARDS: Final = 8
BOUND_ARE: Final = 4
"""One queue of so many is bound to an exchange."""
TICK_MS: Final = 50
TICKS: Final = 4_000


def cpu_ms() -> float:
    return time.thread_time() * 1000


def memory_bytes() -> int:
    gc.collect()
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


class Steps:
    """Times steps, each by itself."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._took_ms: list[float] = []

    def timed(self, work: Callable[[], Any]) -> Any:
        """Do one step."""
        began = cpu_ms()
        result = work()
        self._took_ms.append(cpu_ms() - began)
        return result

    def tell(self) -> None:
        """Print the longest, how many there were, and what all took."""
        longest = max(self._took_ms)
        print(
            f"{self._what}: longest step {longest:.1f} ms (number {self._took_ms.index(longest) + 1}), "
            f"{len(self._took_ms)} steps, {sum(self._took_ms):.0f} ms in all", flush=True,
        )


def filled(queues: int) -> Catalog:
    """A catalog with so many queues."""
    catalog = Catalog(SHARDS)
    for number in range(queues):
        name = f"queue-{number}"
        catalog.apply(DeclareQueue("/", name, durable=True, arguments={"x-expires": 3_600_000}), number)
        if number % BOUND_ARE == 0:
            catalog.apply(Bind("/", "amq.direct", "queue", name, name))
    return catalog


class Nobody:
    """Hears what a group tells."""

    def group_effects(self, group: int, effects: Any) -> None: ...
    def group_session_lost(self, group: int) -> None: ...
    def group_proposes(self, group: int) -> None: ...
    def group_applied(self, group: int) -> None: ...


def applying(catalog: Catalog) -> Applying:
    machine = CatalogMachine(catalog, lambda: None)
    return Applying(told_by_replica(0, Nobody()), machine, None)


def snapshot(catalog: Catalog) -> bytes:
    steps = Steps("snapshot")
    making = steps.timed(applying(catalog).state_steps)
    while True:
        data = steps.timed(making.step)
        if data is not None:
            break
    steps.tell()
    assert isinstance(data, bytes)
    print(f"  {len(data) / 1e6:.0f} MB")
    return data


def restore(catalog: Catalog, data: bytes) -> None:
    """Into a catalog that is as large, which has to be let go."""
    steps = Steps("restore")
    replica = applying(catalog)
    reading = steps.timed(lambda: replica.reading(data))
    while not steps.timed(reading.step):
        pass
    steps.timed(lambda: replica.restore(reading, 1))
    while steps.timed(catalog.let_go):
        pass
    steps.tell()


class Port:
    """What a shard's leader needs of the node."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def barrier(self, done: Callable[[], None]) -> None:
        done()

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


class Led:
    """A group that is led here."""

    established, term = True, 1

    def __init__(self) -> None:
        self.clock = GroupClock()
        self.sessions = self
        self.ended = 0
        self.log = self

    def data(self, index: int) -> bytes:
        raise AssertionError(index)


def reconcile(catalog: Catalog, shard_id: int, what: str) -> None:
    """A new leader, up to the tick in which it has nothing to do, and then one comparison on the timer."""
    shard = Shard(shard_id, 1)
    index = 0
    for record in catalog.queues():
        if record.shard == shard_id:
            index += 1
            create = commands.encode_create_queue(record.id, shard_settings(catalog, record))
            shard.begin(index, 1, 1, create)
            shard.apply(None, 0, len(create))
            shard.finish()
    given: list[bytes] = []
    led: Any = Led()
    leader = ShardLeader(shard, led, Port(catalog), given.append, 250)
    steps = Steps(f"reconcile, {what} ({len(list(shard.queue_ids()))} queues)")
    for tick in range(1, TICKS):
        steps.timed(partial(leader.tick, tick * TICK_MS))
        if tick == TICKS // 2:
            catalog.apply(DeclareQueue("/", f"one more {shard_id}", durable=False, node_id=9), 1)
    steps.tell()
    assert not given, len(given)


def main() -> None:
    """Measure, print."""
    queues = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    gc.set_threshold(MANY_OBJECTS, *RARELY_OLDER)
    before = memory_bytes()
    catalog = filled(queues)
    took = memory_bytes() - before
    print(f"{queues} queues, one of {BOUND_ARE} bound: {took / queues:.0f} bytes each", flush=True)
    data = snapshot(catalog)
    restore(catalog, data)
    del data
    reconcile(catalog, 3, "its part")
    few = filled(0)
    few.restore(catalog.snapshot())
    few.apply(DeclareQueue("/", "q", durable=True), 1)
    reconcile(few, 0, "nothing")


if __name__ == "__main__":
    main()
