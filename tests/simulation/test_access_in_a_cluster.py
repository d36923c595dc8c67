"""Users that are deleted, or get other permissions, while they are connected, in whole simulated clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from pamqp import commands
from pamqp.base import Frame

from mayfly.node.catalog import DeleteUser, PutUser, SetPermissions
from simulation.cluster import faults
from simulation.cluster.events import MILLISECOND_US, SECOND_US
from simulation.cluster.randomness import stream
from simulation.node.amqp_client import AmqpClient, BrokerRefused
from simulation.node.run import Simulation
from simulation.node.sockets import Wire
from tests.simulation.catalog_changes import once_founded, run, submit
from tests.simulation.scenarios import at, three_nodes

USER = (PutUser("u", "any"), SetPermissions("u", "/", ".*", ".*", ".*"))


class Visitor:
    """A client of one node that logs in and stays; nothing of the scenario is its."""

    def __init__(self, simulation: Simulation, node: int, user: str = "u") -> None:
        self.node = node
        self.ready = False
        self.ends: list[BrokerRefused | None] = []
        queue = simulation.queue
        self._wire = Wire(queue, stream(1, f"visitor {node} {queue.now_us}"), 300)
        self._wire.client_broken = lambda: self._client.broken()
        self._client = AmqpClient(
            self._wire.write_from_client, self._is_ready, self.ends.append, login=(user, "guest")
        )
        self._wire.to_client = self._client.receive
        simulation.world.connect(simulation.cluster.machines[node], self._wire, lambda: self.ends.append(None))

    def _is_ready(self, _answer: object) -> None:
        self.ready = True

    def call(self, method: Frame, answered: Callable[[Any], None]) -> None:
        """Send a method."""
        self._client.call(method, answered)

    @property
    def is_told(self) -> bool:
        """Whether the node has closed the connection, and said why."""
        return [str(end) for end in self.ends] == ["320 CONNECTION_FORCED - user 'u' is deleted"]


def of_others(simulation: Simulation) -> list[str]:
    """Connections, on any node, of users that are not the ones that its catalog has."""
    found = []
    for program in simulation.programs():
        for connection in program.broker.connections.values():
            record = program.engine.catalog.user(connection.user) if connection.user else None
            if connection.user and (record is None or record.serial != connection._user_serial):
                found.append(f"{connection.name} on node {program.machine.id}")
    return found


def test_a_deleted_user_is_disconnected_on_every_node_that_hears_of_it() -> None:
    """Also where it is made anew before a node that is cut off hears of anything; who logs in meanwhile is not kept."""
    simulation = Simulation(replace(three_nodes(600), changes=(), plan=(at(3.0, faults.PARTITION, 3, lasts=3.0),)))
    visitors: list[Visitor] = []
    stages: list[str] = []
    queue = simulation.queue

    def begin() -> None:
        for command in USER:
            submit(simulation, 1, command)
        queue.after(SECOND_US, come)
        queue.after(int(2.9 * SECOND_US), all_are_in)
        queue.after(4 * SECOND_US, delete)
        queue.after(5 * SECOND_US, those_that_hear_have_acted)
        queue.after(9 * SECOND_US, all_have_acted)

    def come() -> None:
        visitors.extend(Visitor(simulation, node) for node in (1, 2, 3, 3))

    def all_are_in() -> None:
        assert all(visitor.ready and not visitor.ends for visitor in visitors)
        stages.append("in")

    def delete() -> None:
        for delay_ms in (0, 2, 5, 8):
            queue.after(delay_ms * MILLISECOND_US, lambda: visitors.append(Visitor(simulation, 2)))
        for command in (DeleteUser("u"), *USER):
            submit(simulation, 1, command)

    def those_that_hear_have_acted() -> None:
        assert [visitor.is_told for visitor in visitors[:4]] == [True, True, False, False]
        assert of_others(simulation) == []
        stages.append("heard")

    def all_have_acted() -> None:
        assert all(visitor.is_told for visitor in visitors[:4])
        assert all(visitor.ready or visitor.ends for visitor in visitors)
        assert of_others(simulation) == []
        stages.append("all")

    once_founded(simulation, begin)
    run(simulation)
    assert stages == ["in", "heard", "all"]


def test_what_a_node_gives_that_has_not_heard_of_other_permissions() -> None:
    """A node that is cut off still takes what its users declare; it stands in the log behind the change, and counts
    for nothing. Who may do it still is asked again, and notices nothing."""
    simulation = Simulation(replace(three_nodes(602), changes=(), plan=(at(3.0, faults.PARTITION, 3, lasts=3.0),)))
    visitors: dict[str, Visitor] = {}
    answers: dict[str, object] = {}
    queue = simulation.queue

    def begin() -> None:
        for command in (*USER, PutUser("v", "any"), SetPermissions("v", "/", "^v", "", "")):
            submit(simulation, 1, command)
        queue.after(SECOND_US, come)
        queue.after(4 * SECOND_US, declare)
        queue.after(int(4.2 * SECOND_US), change)

    def come() -> None:
        for name in ("u", "v"):
            visitors[name] = Visitor(simulation, 3, name)

    def declare() -> None:
        for name, visitor in visitors.items():
            assert visitor.ready and not visitor.ends
            visitor.call(commands.Exchange.Declare(exchange=f"{name}.new"), partial(answers.__setitem__, name))

    def change() -> None:
        assert not answers
        submit(simulation, 1, SetPermissions("u", "/", "^other", "", ""))
        submit(simulation, 1, SetPermissions("v", "/", "^v[.]", "", ""))

    once_founded(simulation, begin)
    run(simulation)
    assert [str(end) for end in visitors["u"].ends][:1] == [
        "403 ACCESS_REFUSED - access to exchange 'u.new' in vhost '/' refused for user 'u'"
    ]
    assert isinstance(answers.get("v"), commands.Exchange.DeclareOk)
    for program in simulation.programs():
        assert program.engine.catalog.exchange("/", "v.new") and not program.engine.catalog.exchange("/", "u.new")
