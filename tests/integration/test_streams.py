"""Streams of real nodes (RULES J1, J4): what was confirmed is there, at its offset, for whoever reads it, whatever
dies; copies have it, too."""

import contextlib

import pytest

from tests.integration.clients import channel, declare_led_by, publish_all
from tests.integration.nodes import PATIENT_SESSIONS, Nodes
from tests.waiting import BOUND_S, wait_for

pytestmark = [pytest.mark.processes]

VICTIM = 3
COUNT = 3000
STREAM = {"x-queue-type": "stream"}


@pytest.fixture(scope="module")
def settings() -> dict[str, object]:
    return PATIENT_SESSIONS


def read(nodes: Nodes, id: int, stream: str, start: int | str, last: int) -> list[tuple[int, bytes]]:
    """(offset, body) from there up to the offset ``last``, acknowledged by a consumer at that node."""
    found: list[tuple[int, bytes]] = []
    with channel(nodes, id) as opened:
        opened.basic_qos(prefetch_count=100)
        arguments = {"x-stream-offset": start}
        for method, properties, body in opened.consume(stream, arguments=arguments, inactivity_timeout=BOUND_S):
            assert method is not None, f"{len(found)} messages came"
            assert not method.redelivered
            found.append((properties.headers["x-stream-offset"], body))
            opened.basic_ack(method.delivery_tag)
            if found[-1][0] == last:
                with contextlib.suppress(ValueError):
                    opened.cancel()
                return found
    raise AssertionError("the consumer ended")


def test_j1_what_was_confirmed_is_read_at_its_offset_whatever_dies(whole: Nodes) -> None:
    """RULES J1: the leader of its shard dies, then all nodes at once; several consumers at several nodes."""
    nodes = whole
    bodies = [b"%d" % number for number in range(COUNT)]
    with channel(nodes, 1) as declaring:
        stream = declare_led_by(nodes, declaring, "stream", lambda leader: leader == VICTIM, STREAM)
    publish_all(nodes, 1, stream, bodies[: COUNT // 2])
    nodes.kill(VICTIM)
    wait_for(lambda: nodes.leader_of(stream) not in (0, VICTIM), "another leader")
    publish_all(nodes, 2, stream, bodies[COUNT // 2 :])
    everything = list(enumerate(bodies))
    assert read(nodes, 1, stream, "first", COUNT - 1) == everything
    assert read(nodes, 2, stream, COUNT - 20, COUNT - 1) == everything[-20:]
    nodes.kill(1, 2)
    nodes.heal()
    with channel(nodes, VICTIM) as opened:

        def has_no_consumers() -> bool:
            counts = opened.queue_declare(stream, passive=True).method
            assert counts.message_count == COUNT
            return bool(counts.consumer_count == 0)

        # A node that was killed may not have said of all consumers before that they had ended.
        wait_for(has_no_consumers, "the end of the sessions before")
    for id in (1, 2, VICTIM):
        assert read(nodes, id, stream, "first", COUNT - 1) == everything


def test_j4_copies_have_each_once_and_in_order_whichever_leader_dies(whole: Nodes) -> None:
    """RULES J4: a mirror and a stream with a source, in other shards than their stream; while it is published to, the
    leader of the stream dies, then that of the copies, then all nodes at once."""
    nodes = whole
    bodies = [b"%d" % number for number in range(COUNT)]
    third = COUNT // 3
    with channel(nodes, 1) as declaring:
        stream = declare_led_by(nodes, declaring, "origin", lambda leader: leader == VICTIM, STREAM)
        mirror = declare_led_by(nodes, declaring, "mirror", lambda leader: leader == 2, {**STREAM, "x-mirror": stream})
        source = declare_led_by(nodes, declaring, "all", lambda leader: leader == 2, {**STREAM, "x-sources": [stream]})
    publish_all(nodes, 1, stream, bodies[:third])
    nodes.kill(VICTIM)
    wait_for(lambda: nodes.leader_of(stream) not in (0, VICTIM), "another leader of the stream")
    publish_all(nodes, 1, stream, bodies[third : 2 * third])
    nodes.heal()
    nodes.kill(2)
    wait_for(lambda: nodes.leader_of(mirror) not in (0, 2), "another leader of the mirror")
    publish_all(nodes, 1, stream, bodies[2 * third :])
    nodes.kill(1, VICTIM)
    nodes.heal()
    everything = list(enumerate(bodies))
    for id in (1, 2, VICTIM):
        assert read(nodes, id, mirror, "first", COUNT - 1) == everything
        assert read(nodes, id, source, "first", COUNT - 1) == everything
