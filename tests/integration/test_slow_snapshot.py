"""A node that needs a snapshot which takes long gets it while its shard goes on, and goes on from the log."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.long_away import LongAway
from tests.integration.nodes import Nodes, wait_for
from tests.waiting import BOUND_S

pytestmark = [pytest.mark.processes, pytest.mark.slow]

AT_ONCE = 40
MESSAGES = 14 * AT_ONCE
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
    large = LongAway(nodes, MESSAGES, AT_ONCE, rate=500)
    large.publisher.start()
    large.until_compacted()
    before = large.at_leader
    large.come_back(within_s=2 * BOUND_S)
    # Under load: another snapshot would leave it as far behind again.
    wait_for(lambda: nodes.ready(1, large.queue) - nodes.ready(3, large.queue) < FOLLOWS, "node 3 to follow")
    large.finish()
    if large.at_leader["term"] == before["term"]:
        assert f"snapshot of group {large.shard} did not reach node 3" not in nodes.log_text(1)
    wait_for(lambda: large.at_leader["compacted"] > before["commit"], "a log that is compacted again")
