"""What the leader of a shard asked for counts while it still leads: after that its state is old, its log perhaps gone.

Whoever reads an entry of the log here gets a `LookupError`.
"""

import gc
from typing import Any, cast

import pytest

from mayfly.node.catalog import DeclareQueue, QueueDeclared
from mayfly.node.catalog.shard_settings import shard_settings
from mayfly.node.duties.shard_leader import ShardLeader
from mayfly.node.duties.tenure import Tenure
from mayfly.node.limits import ROUTING_STEPS_PER_TURN
from mayfly.node.shard import commands
from tests.node.duties.test_comparison import UNCOMPILED, Led, Port
from tests.node.duties.test_dead_letter_duties import founded, publish
from tests.node.shard.driver import Driver


class WaitedFor(Port):
    """Changes of the catalog are answered only when they are here."""

    is_waited_for = True


class Leader:
    """The leader of a shard in which a message is dead and has not been routed."""

    def __init__(self) -> None:
        self.catalog = founded()
        self.driver = Driver()
        arguments: dict[str, object] = {"x-message-ttl": 100, "x-dead-letter-exchange": ""}
        declared = self.catalog.apply(DeclareQueue("/", "timed", durable=True, arguments=arguments))
        assert isinstance(declared, QueueDeclared)
        timed = declared.queue
        self.driver.run(commands.encode_create_queue(timed.id, shard_settings(self.catalog, timed)))
        self.driver.run(publish("one", timed.id))
        self.driver.pass_ms(100)
        self.driver.tick()
        assert self.driver.shard.unrouted(1)
        self.port, self.group = WaitedFor(self.catalog), Led()
        self.given: list[bytes] = []
        group, port = cast(Any, self.group), cast(Any, self.port)
        self.duties = ShardLeader(self.driver.shard, group, port, self.given.append, 250)
        self.now_ms = 0

    def tick(self) -> None:
        self.now_ms += 10
        self.duties.tick(self.now_ms)

    def lose_the_lead(self) -> None:
        self.group.established = False
        self.given.clear()

    def lead_again(self) -> None:
        self.group.established = True
        self.group.term += 1


@UNCOMPILED
def test_the_catalog_is_current_when_the_lead_is_lost() -> None:
    """Nothing is routed, and nothing compared with the catalog; who leads again asks anew."""
    leader = Leader()
    leader.tick()
    leader.lose_the_lead()
    assert leader.port.arrive() == 2
    assert leader.given == []
    leader.lead_again()
    leader.tick()
    with pytest.raises(LookupError):
        leader.port.arrive()


@UNCOMPILED
def test_the_catalog_is_current_for_a_lead_that_is_over_when_there_is_another() -> None:
    leader = Leader()
    leader.tick()
    leader.lose_the_lead()
    leader.lead_again()
    assert leader.port.arrive() == 2
    assert leader.given == []


@UNCOMPILED
def test_a_turn_to_route_comes_when_the_lead_is_lost() -> None:
    leader = Leader()
    turns = leader.catalog.routing_turns
    turns.steps.taken += ROUTING_STEPS_PER_TURN
    leader.tick()
    leader.port.arrive()
    assert turns.has_waiting
    leader.lose_the_lead()
    turns.begin()
    assert leader.given == []
    leader.lead_again()
    leader.tick()
    with pytest.raises(LookupError):
        leader.port.arrive()


def test_a_tenure_is_over_though_nobody_has_noticed() -> None:
    group = Led()
    tenure = Tenure(group)
    tenure.begin(group.term)
    assert tenure.is_still(tenure.number)
    group.term += 1
    assert not tenure.is_still(tenure.number)
    tenure.begin(group.term)
    assert tenure.is_still(tenure.number) and not tenure.is_still(tenure.number - 1)
    group.established = False
    assert not tenure.is_still(tenure.number)
    assert Tenure().is_still(0)


@UNCOMPILED
def test_who_led_holds_no_memory() -> None:
    """The duties of a replica that is given up go with it, and do not wait for the collector."""
    gc.disable()
    try:
        before = sum(isinstance(each, ShardLeader) for each in gc.get_objects())
        leader = Leader()
        leader.tick()
        assert sum(isinstance(each, ShardLeader) for each in gc.get_objects()) == before + 1
        leader.port.waiting.clear()
        del leader
        assert sum(isinstance(each, ShardLeader) for each in gc.get_objects()) == before
    finally:
        gc.enable()
