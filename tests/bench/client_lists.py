"""What lists of connections, channels and consumers cost the loops of nodes with many (stub) connections.

    PYTHONPATH=. python tests/bench/client_lists.py [--connections 30000]

CPU time of this process: of a page or list, from the request to its octets, and of the longest turn of the loop in it.
Each connection has a channel with a consumer. They are at the node that is asked ("here") or at another ("there"); all
is in one process, so "there" is the cost of both nodes.
"""

import argparse
import asyncio
import gc
import time
from typing import Any, cast

from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from mayfly.node.http.clients import ClientPages
from mayfly.node.operating.clients import Clients
from mayfly.node.operating.ports.clients import ClientsPort
from mayfly.node.shell.process import MANY_OBJECTS, RARELY_OLDER
from tests.node.operating.views.many_stubs import stub_nodes


class _Port:
    """Those of the node that is asked."""

    def __init__(self, clients: Clients) -> None:
        self.clients = clients.some
        self.count_clients = clients.count
        self.client = clients.one

    def sees_all(self, user: str) -> bool:
        return True


async def _measured(path: str, handle: Any) -> None:
    """Others have their turn whenever the loop lets them: what passes between two of theirs is a turn of it."""
    longest = 0.0
    done = False

    async def others() -> None:
        nonlocal longest
        last = time.process_time()
        while not done:
            await asyncio.sleep(0)
            now = time.process_time()
            longest = max(longest, now - last)
            last = now

    gc.collect()
    beside = asyncio.create_task(others())
    start = time.process_time()
    response: web.Response = await handle(make_mocked_request("GET", path), "guest")
    spent = time.process_time() - start
    done = True
    await beside
    body = cast(bytes, response.body)
    print(f"  {path}: {response.status}, {len(body) / 1e3:.0f} kB, {spent:.3f} s, longest {longest * 1e3:.1f} ms")


async def _all(connections: int) -> None:
    for where, at in (("here", 1), ("there", 2)):
        for count in (10_000, 10_001, connections):
            nodes = stub_nodes(2)
            nodes[at].add(count, [1])
            gc.collect()
            gc.freeze()
            pages = ClientPages(cast(ClientsPort, _Port(nodes[1].clients)))
            print(f"{count} connections {where}:")
            for kind in ("connections", "channels", "consumers"):
                handle = getattr(pages, kind)
                await _measured(f"/api/{kind}", handle)
                if count == connections:
                    for page in (1, connections // 500):
                        await _measured(f"/api/{kind}?page={page}&page_size=500", handle)


def main() -> None:
    """Lists that are just short enough, that are too long, and pages."""
    gc.set_threshold(MANY_OBJECTS, *RARELY_OLDER)  # as in a node
    parser = argparse.ArgumentParser()
    parser.add_argument("--connections", type=int, default=30_000)
    asyncio.run(_all(parser.parse_args().connections))


if __name__ == "__main__":
    main()
