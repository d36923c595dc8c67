"""The client that declares leases goes on whatever a node does to its connection."""

import pika
import pytest
from pika.exceptions import ConnectionClosedByBroker

from mayfly.node.settings.kinds import Address
from tests.failover.leases import Lease, Leases
from tests.waiting import BOUND_S


class Closed:
    """A connection that its node closes while its client does."""

    is_open = True

    def __init__(self, parameters: object) -> None:
        del parameters

    def call_later(self, *arguments: object) -> None:
        del arguments

    def channel(self) -> "Closed":
        return self

    def queue_declare(self, *arguments: object, **more: object) -> None:
        del arguments, more

    def close(self) -> None:
        raise ConnectionClosedByBroker(320, "CONNECTION_FORCED")


def test_a_node_that_is_stopped_meanwhile_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pika, "BlockingConnection", Closed)
    leases = Leases([Address("127.0.0.1", 1)], ("guest", "guest"), lambda witness, queue: (404, "no such queue"), [1])
    leases.start()
    try:
        while not leases.leases and leases.is_alive():
            leases.join(0.01)
    finally:
        leases.enough()
    leases.join(BOUND_S)
    assert leases.failure is None
    assert leases.leases and leases.leases[0].gone_s


def test_a_lease_that_ends_early_is_told_but_not_if_clocks_were_that_fast() -> None:
    assert Lease("q", 6_000, asked_s=10.0, gone_s=15.97).fault(0.0) == "q with 6000 ms was gone 0.030 s early"
    assert Lease("q", 6_000, asked_s=10.0, gone_s=15.97).fault(0.02) == ""
    assert Lease("q", 6_000, asked_s=10.0, gone_s=15.8).fault(0.02) != ""
