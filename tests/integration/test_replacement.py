"""A node whose data is gone: it decides nothing under its old id, and comes back as another member, under load."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.clients import Consumer, Publisher, channel, drain, judge, publish_all
from tests.integration.growing import Growing
from tests.integration.nodes import wait_for

pytestmark = [pytest.mark.processes]

IS_KNOWN = "asking for a place in the cluster"
"""What a founder logs that has been told that its place was another's data."""


@pytest.fixture
def founded(tmp_path: Path) -> Iterator[Growing]:
    """Three nodes that began together, and a place for a fourth."""
    nodes = Growing(tmp_path, seeds=3)
    try:
        nodes.start(1, 2, 3)
        nodes.until_serving()
        nodes.until_settled(1, 1, 2, 3)
        yield nodes
    except BaseException:
        nodes.stop()
        raise
    nodes.close()


def wipe(nodes: Growing, id: int) -> None:
    """Delete everything that a dead node had."""
    shutil.rmtree(nodes.plan(id).data_dir)


def test_a_node_that_lost_its_disk_is_replaced_under_load(founded: Growing) -> None:
    """It comes back by itself, as another member; clients of the others see nothing of it."""
    with channel(founded, 1) as declaring:
        for number in range(2):
            declaring.queue_declare(f"kept-{number}", durable=True)
    streams = []
    for number, (publishing, consuming) in enumerate(((1, 2), (2, 1))):
        consumer = Consumer(founded, consuming, f"kept-{number}").begin()
        publisher = Publisher(founded, publishing, f"kept-{number}", rate=300)
        publisher.start()
        publisher.until_confirmed(100)
        streams.append((publisher, consumer))
    before = founded.members(1)["node3"]["id"]
    founded.kill(3)
    wait_for(lambda: founded.leads_nothing(3, witness=1), "other leaders")
    for publisher, _ in streams:
        publisher.until_confirmed(100)
    wipe(founded, 3)
    founded.start(3)
    founded.until_serving()
    founded.until_settled(2, 1, 2, 3)
    assert "joined cluster" in founded.log_text(3)
    assert founded.members(2)["node3"]["id"] != before
    for publisher, consumer in streams:
        publisher.until_confirmed(100)
        publisher.finish()
        consumer.until_received(len(publisher.confirmed))
        consumer.finish()
        judge(publisher, [consumer])


def test_a_wiped_node_is_no_part_of_a_majority(founded: Growing) -> None:
    """What nodes 1 and 3 confirmed while 2 was frozen is not forgotten by 2 and a 3 that lost its disk."""
    with channel(founded, 1) as declaring:
        declaring.queue_declare("kept", durable=True)
    bodies = [b"%d" % number for number in range(300)]
    publish_all(founded, 1, "kept", bodies[:100])
    founded.freeze(2)
    wait_for(lambda: founded.leads_nothing(2, witness=1), "leaders that are awake")
    publish_all(founded, 1, "kept", bodies[100:])
    founded.kill(1, 3)
    wipe(founded, 3)
    founded.thaw(2)
    founded.start(3)
    wait_for(lambda: IS_KNOWN in founded.log_text(3), "a node that knows that it has lost its data")
    wait_for(lambda: set(founded.leaders(2)) == {0}, "a node that knows of no leader")
    assert founded.runs(3)
    assert founded.members(2)["node3"]["id"] == 3
    founded.start(1)
    founded.until_serving()
    wait_for(lambda: founded.ready(2, "kept") == len(bodies), "all that was confirmed")
    assert drain(founded, 2, "kept") == [(body, False) for body in bodies]
