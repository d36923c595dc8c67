"""Orders of many queues: right, kept for a while, made anew behind who uses them."""

import asyncio
import gc
import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from mayfly.node.operating.queue_order import AT_ONCE, FRESH_MS, KEPT_MS, QueueOrder, sorted_in_turns


class Cluster:
    """Queues of which counts are known, in two shards; those of the second may not be told."""

    def __init__(self, count: int) -> None:
        self.ready = {id: id * 7919 % count for id in range(count)}
        self.hidden: set[int] = set()
        self.now_ms = 1000
        self.asked = 0
        vhosts = [SimpleNamespace(name="/")]
        catalog = SimpleNamespace(vhosts=lambda: vhosts, queues=lambda _: map(self.record, self.ready))
        engine = cast(Any, SimpleNamespace(catalog=catalog, node_id=1))
        self.order = QueueOrder(engine, cast(Any, self), cast(Any, self), lambda *_: {}, lambda: self.now_ms)

    def record(self, id: int) -> Any:
        return SimpleNamespace(id=id, vhost="/", name=f"q{id:06}", replicated=True, shard=id % 2 + 1, owner_node=0)

    def add(self, *_: object) -> None:
        """No other node asks this one."""

    async def ask(self, ids: dict[int, list[int]], _question: object) -> Any:
        self.asked += 1
        found = {shard: [self.ready[id] for id in some] for shard, some in ids.items() if shard not in self.hidden}
        return SimpleNamespace(found=found)


def numbers(names: Sequence[tuple[str, str]] | None) -> list[int]:
    assert names is not None
    return [int(name[1:]) for _, name in names]


def test_what_is_sorted_in_turns_is_sorted() -> None:
    chance = random.Random(5)
    for count in (0, 1, AT_ONCE, AT_ONCE + 1, 5 * AT_ONCE + 3, 8 * AT_ONCE):
        keys = [chance.randrange(count // 3 + 1) for _ in range(count)]
        assert asyncio.run(sorted_in_turns(keys)) == sorted(range(count), key=keys.__getitem__)


def test_queues_come_in_the_order_of_a_column() -> None:
    async def run() -> None:
        cluster = Cluster(3 * AT_ONCE)
        assert [cluster.ready[id] for id in numbers(await cluster.order.by("ready"))] == list(range(3 * AT_ONCE))
        assert numbers(await cluster.order.by("name")) == sorted(cluster.ready)
        assert await cluster.order.by("message_stats.redeliver_details.rate") is None
        cluster.hidden = {2}
        cluster.now_ms += KEPT_MS
        names = numbers(await cluster.order.by("ready"))
        assert all(id % 2 for id in names[: len(names) // 2]), "of which nothing is known come first"

    asyncio.run(run())


def test_names_are_made_when_they_are_asked_for() -> None:
    """Of an order of many there are no more new objects than are looked at: those that a look for cycles goes through
    hold all else up."""

    async def run() -> None:
        cluster = Cluster(20 * AT_ONCE)
        made = len([each for each in gc.get_objects() if type(each) is tuple])
        names = await cluster.order.by("name")
        assert names is not None and len(names) == 20 * AT_ONCE
        assert len([each for each in gc.get_objects() if type(each) is tuple]) - made < AT_ONCE
        assert list(names[::-1][:2]) == [("/", f"q{20 * AT_ONCE - 1:06}"), ("/", f"q{20 * AT_ONCE - 2:06}")]
        assert names[-1] == names[::-1][0] and not list(names.of(["other"])) and list(names.of(["/"])) == list(names)

    asyncio.run(run())


def test_an_order_is_used_while_a_newer_one_is_made_and_forgotten_when_nobody_asks() -> None:
    async def run() -> None:
        cluster = Cluster(10)
        first, same = await asyncio.gather(cluster.order.by("ready"), cluster.order.by("ready"))
        assert first is same
        assert cluster.asked == 1, "one for both"
        cluster.ready[10] = -1
        cluster.now_ms += FRESH_MS - 1
        assert await cluster.order.by("ready") is first
        cluster.now_ms += 1
        assert await cluster.order.by("ready") is first, "nobody waits for the new one"
        await asyncio.gather(*cluster.order._making.values())
        assert numbers(await cluster.order.by("ready"))[0] == 10
        assert cluster.asked == 2
        cluster.now_ms += KEPT_MS
        await cluster.order.by("name")
        assert list(cluster.order._orders) == ["name"]

    asyncio.run(run())


def test_what_an_order_is_made_of_is_looked_at_in_turns() -> None:
    """So that no other work of the node waits for all of it."""

    async def run() -> None:
        cluster = Cluster(5 * AT_ONCE)
        turns = 0
        making = asyncio.ensure_future(cluster.order.by("ready"))
        while not making.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns > 10
        assert cluster.asked == 5

    asyncio.run(run())
