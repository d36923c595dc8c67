"""A node that needs a large snapshot gets it though its connections break again and again."""

import asyncio
import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mayfly.node.settings.kinds import Address
from tests.cluster.transport.wire import Wire
from tests.integration.clients import Publisher, channel, declare_led_by, drain, publish_all
from tests.integration.nodes import Nodes, wait_for

pytestmark = [pytest.mark.processes, pytest.mark.slow]

BODY_BYTES = 64 * 1024
BATCH = 100
BATCHES = 10
CUT_EVERY_BYTES = 24 << 20
CUTS = 2


class WireThread(threading.Thread):
    """A wire to a port of this machine, in a thread of its own."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.wire = Wire(port)
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self.start()
        self._ready.wait()

    def run(self) -> None:
        """The thread."""
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self.wire.start())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self.wire.stop())
        self._loop.close()

    def end(self) -> None:
        """Break everything, and end the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self.join()


class WiredNodes(Nodes):
    """Three nodes; the others reach node 3 by a wire."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, 3, {"compact_bytes": 1 << 20})
        self.thread = WireThread(self.plan(3).peer.port)
        wired = Address("127.0.0.1", self.thread.wire.port)
        seeds = (self.plan(1).peer, self.plan(2).peer, wired)
        self.plans = [dataclasses.replace(plan, seeds=seeds) for plan in self.plans]
        self.configure(3, advertised_peer_address=str(wired))


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[WiredNodes]:
    wired = WiredNodes(tmp_path)
    try:
        yield wired
    except BaseException:
        wired.stop()
        raise
    finally:
        wired.thread.end()
    wired.close()


def test_a_snapshot_arrives_over_connections_that_break(nodes: WiredNodes) -> None:
    """What came before a break is not sent again; the messages are all there, on the node's own disk too."""
    nodes.serve()
    with channel(nodes, 1) as declaring:
        name = declare_led_by(nodes, declaring, "large", lambda leader: leader == 1)
    shard = int((nodes.queue(1, name) or {})["shard"])
    behind = nodes.groups(3)[shard]["commit"]
    nodes.kill(3)
    bodies = [b"%06d" % number + bytes(BODY_BYTES) for number in range(BATCH * BATCHES)]
    for start in range(0, len(bodies), BATCH):
        publish_all(nodes, 1, name, bodies[start : start + BATCH])
    wait_for(lambda: nodes.groups(1)[shard]["compacted"] > behind, "a compacted log")
    wire = nodes.thread.wire
    wire.most_cuts, wire.cut_every_bytes = CUTS, CUT_EVERY_BYTES
    before_bytes, term = wire.bytes_there, nodes.groups(1)[shard]["term"]
    # The state goes on changing, what is being sent does not.
    publisher = Publisher(nodes, 1, name, rate=50)
    publisher.start()
    publisher.until_confirmed(10)
    nodes.start(3)
    nodes.until_serving()
    wait_for(lambda: nodes.ready(3, name) >= len(bodies), "all messages on node 3")
    publisher.finish()
    count = len(bodies) + len(publisher.confirmed)
    wait_for(lambda: nodes.ready(3, name) == count, "the last messages on node 3")
    assert wire.cuts == CUTS
    # Another leader would have made another snapshot, and begun anew.
    if nodes.groups(1)[shard]["term"] == term:
        # A cut may meet a connection on which nothing of the snapshot is under way.
        assert 1 <= nodes.log_text(1).count(f"snapshot of group {shard} for node 3 goes on at byte") <= CUTS
        # A break loses what is under way: up to a window of 8 MB.
        assert wire.bytes_there - before_bytes < 1.5 * len(bodies) * BODY_BYTES
    wait_for(lambda: not list((nodes.plan(3).data_dir / "snapshots").iterdir()), "the end of the files that came")
    nodes.until_well()
    nodes.kill(3)
    nodes.start(3)
    nodes.until_serving()
    wait_for(lambda: nodes.ready(3, name) == count, "all messages on node 3, from its disk")
    assert [body for body, _ in drain(nodes, 3, name)][: len(bodies)] == bodies
