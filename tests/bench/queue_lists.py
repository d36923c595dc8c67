"""What a page of 100 queues costs a node with very many, sorted by a column; and what its rounds for rates cost it.

    PYTHONPATH=. python tests/bench/queue_lists.py [--queues 100000]

CPU time of this process: of a page, from the request to its octets, and of the longest turn of the loop in it, for each
column there is. The first page by a column waits for the order of all; further ones use it. All replicas are on the
node that is asked. The bars: 200 ms for a page, and no silence above 20 ms.
"""

import argparse
import asyncio
import gc
import time
from random import Random
from typing import Any, cast

from aiohttp.test_utils import make_mocked_request

from mayfly.node.catalog import DeclareQueue, UserRecord
from mayfly.node.catalog.shard_settings import shard_settings
from mayfly.node.http.topology import TopologyPages
from mayfly.node.operating.management import Management, ToldByOthers
from mayfly.node.operating.queues import Queues
from mayfly.node.operating.views import queue_columns
from mayfly.node.operating.views.sampled_rates import LOOKS_PER_STEP
from mayfly.node.shard import state
from mayfly.node.shard.commands import encode_create_queue, encode_publish
from mayfly.node.shell.process import MANY_OBJECTS, RARELY_OLDER
from tests.node.broker.three_brokers import ThreeBrokers
from tests.node.operating.seeing import Seeing

COLUMNS = [column for column in (*queue_columns.NAMES, *queue_columns.COLUMNS, *queue_columns.RATES) if column]


def filled(count: int) -> Seeing:
    """A node with so many queues, most with a message or two."""
    brokers = ThreeBrokers()
    engine = brokers.nodes[1].engine
    random = Random(1)
    index = 1_000_000
    for number in range(count):
        result: Any = engine.catalog.apply(DeclareQueue("/", f"queue.number.{number}", durable=True))
        record = result.queue
        parts: list[bytes] = []
        for _ in range(random.randrange(3)):
            encode_publish(parts, [record.id], -1, b"", b"", b"x" * random.randrange(100))
        created = encode_create_queue(record.id, shard_settings(engine.catalog, record))
        shard = engine.shards[record.shard]
        for data in filter(None, (created, b"".join(parts))):
            index += 1
            shard.begin(index, brokers.now_ms, brokers.now_ms, data)
            shard.apply((1, 1), 0, len(data))
            shard.finish()
    return Seeing(brokers, 1)


async def measured(path: str, handle: Any) -> tuple[float, float]:
    """Others have their turn whenever the loop lets them: what passes between two of theirs is a turn of it."""
    longest, done = 0.0, False

    async def others() -> None:
        nonlocal longest
        last = time.process_time()
        while not done:
            await asyncio.sleep(0)
            now = time.process_time()
            longest = max(longest, now - last)
            last = now

    beside = asyncio.create_task(others())
    start = time.process_time()
    response = await handle(make_mocked_request("GET", path), UserRecord("guest", "", ("administrator",)))
    spent = time.process_time() - start
    done = True
    await beside
    size = len(response.body) / 1e3
    print(f"  {path}: {response.status}, {size:.0f} kB, {spent * 1e3:.0f} ms, longest turn {longest * 1e3:.1f} ms")
    return spent, longest


async def pages(seeing: Seeing) -> None:
    """The first page by each column, the same again, and one in the middle; then the worst of them."""
    nothing: Any = None
    told = ToldByOthers(seeing.clients, seeing.queues, seeing.groups, nothing, nothing)
    management = Management(seeing.engine, seeing.cluster, nothing, nothing, told)
    handle = TopologyPages(nothing, cast(Any, management)).handlers()["queues.list"]
    spent: list[tuple[float, float]] = []
    for column in COLUMNS:
        for page in (1, 1, 500):
            path = f"/api/queues?page={page}&page_size=100&sort={column}&sort_reverse=true"
            spent.append(await measured(path, handle))
    pages, turns = zip(*spent, strict=True)
    print(f"  {len(COLUMNS)} columns: at most {max(pages) * 1e3:.0f} ms, longest turn {max(turns) * 1e3:.1f} ms")


def rounds(queues: Queues) -> None:
    """Of the looks that nobody asks for, each step at its time."""
    spent = []
    for _ in range(5):
        start = time.process_time()
        queues.sample_once()
        spent.append(time.process_time() - start)
    print(f"  a step of rates: {max(spent) * 1e3:.1f} ms for {LOOKS_PER_STEP} queues")


def main() -> None:
    """All of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--queues", type=int, default=100_000)
    arguments = parser.parse_args()
    gc.set_threshold(MANY_OBJECTS, *RARELY_OLDER)
    seeing = filled(arguments.queues)
    gc.collect()
    gc.freeze()
    print(f"{arguments.queues} queues, {'not compiled' if str(state.__file__).endswith('.py') else 'compiled'}:")
    asyncio.run(pages(seeing))
    rounds(seeing.queues)


if __name__ == "__main__":
    main()
