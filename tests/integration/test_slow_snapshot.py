"""A node that needs a snapshot which takes long gets it while its shard goes on, and goes on from the log."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.clients import Publisher, channel, declare_led_by, publish_all
from tests.integration.nodes import Nodes, wait_for
from tests.waiting import BOUND_S

pytestmark = [pytest.mark.processes, pytest.mark.slow]

BODY_BYTES = 64 * 1024
BATCH = 40
BATCHES = 14
PACE = "1MiB"
ENTRIES = 100
FOLLOWS = 1000
"""Messages: what comes in two seconds."""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    slow = Nodes(tmp_path, 3, {"compact_entries": ENTRIES, "replica_move_bytes_per_second": PACE})
    try:
        yield slow
    except BaseException:
        slow.stop()
        raise
    slow.close()


def test_a_slow_snapshot_arrives_once_though_the_log_is_compacted_often(nodes: Nodes) -> None:
    """35 MiB at 1 MiB/s, beside so many entries that the log would be compacted twenty times meanwhile."""
    nodes.serve()
    with channel(nodes, 1) as declaring:
        name = declare_led_by(nodes, declaring, "large", lambda leader: leader == 1)
    shard = int((nodes.queue(1, name) or {})["shard"])
    behind = nodes.groups(3)[shard]["commit"]
    nodes.kill(3)
    bodies = [b"%06d" % number + bytes(BODY_BYTES) for number in range(BATCH * BATCHES)]
    for start in range(0, len(bodies), BATCH):
        publish_all(nodes, 1, name, bodies[start : start + BATCH])
    publisher = Publisher(nodes, 1, name, rate=500)
    publisher.start()
    wait_for(lambda: nodes.groups(1)[shard]["compacted"] > behind, "a compacted log")
    before, term = nodes.groups(1)[shard]["commit"], nodes.groups(1)[shard]["term"]
    nodes.start(3)
    nodes.until_serving()
    wait_for(lambda: nodes.ready(3, name) >= len(bodies), "the snapshot on node 3", 2 * BOUND_S)
    # Under load: another snapshot would leave it as far behind again.
    wait_for(lambda: nodes.ready(1, name) - nodes.ready(3, name) < FOLLOWS, "node 3 to follow")
    publisher.finish()
    count = len(bodies) + len(publisher.confirmed)
    wait_for(lambda: nodes.ready(3, name) == count, "the last messages on node 3")
    if nodes.groups(1)[shard]["term"] == term:
        assert f"snapshot of group {shard} did not reach node 3" not in nodes.log_text(1)
    wait_for(lambda: nodes.groups(1)[shard]["compacted"] > before, "a log that is compacted again")
