"""A node that needs a large snapshot gets it though its connections break again and again."""

import asyncio
import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mayfly.node.settings.kinds import Address
from tests.cluster.transport.wire import Wire
from tests.integration.clients import drain
from tests.integration.long_away import BODY_BYTES, LongAway
from tests.integration.nodes import Nodes, wait_for

pytestmark = [pytest.mark.processes, pytest.mark.slow]

AT_ONCE = 100
MESSAGES = 10 * AT_ONCE
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
    large = LongAway(nodes, MESSAGES, AT_ONCE, rate=50)
    large.until_compacted()
    wire = nodes.thread.wire
    wire.most_cuts, wire.cut_every_bytes = CUTS, CUT_EVERY_BYTES
    before_bytes, term = wire.bytes_there, large.at_leader["term"]
    # The state goes on changing, what is being sent does not.
    large.publisher.start()
    large.publisher.until_confirmed(10)
    large.come_back()
    large.finish()
    assert wire.cuts == CUTS
    # Another leader would have made another snapshot, and begun anew.
    if large.at_leader["term"] == term:
        # A cut may meet a connection on which nothing of the snapshot is under way.
        resumed = nodes.log_text(1).count(f"snapshot of group {large.shard} for node 3 goes on at byte")
        assert 1 <= resumed <= CUTS
        # A break loses what is under way: up to a window of 8 MB.
        assert wire.bytes_there - before_bytes < 1.5 * len(large.bodies) * BODY_BYTES
    wait_for(lambda: not list((nodes.plan(3).data_dir / "snapshots").iterdir()), "the end of the files that came")
    nodes.until_well()
    # From its own disk, too.
    nodes.kill(3)
    nodes.start(3)
    nodes.until_serving()
    large.until_whole()
    assert [body for body, _ in drain(nodes, 3, large.queue)][: len(large.bodies)] == large.bodies
