"""Messages that come and go through the service of clients all the time, and the judgement of what became of them."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any, Final

from tests.k8s.cluster import WITHIN_S, Cluster, Login

if TYPE_CHECKING:
    from tests.k8s.transcript import Steps
    from tests.reliability.clients import Clients

LOGIN: Final = Login("chaos", "chaos")
QUEUES: Final = ("one", "two", "three")


def begin(cluster: Cluster, rate: float) -> Clients:
    """Publishers and consumers, from outside of the pods' network. The user (`LOGIN`) is there already."""
    import pika

    from mayfly.node.settings.kinds import Address
    from tests.integration.nodes import wait_for
    from tests.reliability.clients import Clients, consumers_of, publishers_of

    service = Address(cluster.address(), 5672)
    connection = pika.BlockingConnection(
        pika.ConnectionParameters(service.host, service.port, credentials=pika.PlainCredentials(*LOGIN))
    )
    channel = connection.channel()
    for queue in QUEUES:
        channel.queue_declare(queue, durable=True)
    connection.close()
    # The service under two numbers: a client that has to leave goes to it again, and gets another node.
    seed = random.randrange(1_000_000)
    load = Clients({1: service, 2: service}, LOGIN, seed)
    load.begin(publishers_of(load, QUEUES, seed, rate), consumers_of(load, QUEUES, seed))
    wait_for(lambda: len(load.proven) > 100, "messages that come and go", 60)
    return load


def end(cluster: Cluster, load: Clients, steps: Steps) -> list[Any]:
    """Calm, drain, judge."""
    from simulation.node.history import CONFIRMED
    from tests.integration.nodes import wait_for
    from tests.reliability.judging import judge

    def calm() -> str:
        load.history.calm_us = load.now_us()
        load.stop_publishing(within_s=30)
        deadline_s = time.monotonic() + 30
        while load.outstanding() and time.monotonic() < deadline_s:
            time.sleep(0.2)
        load.stop_consuming(within_s=30)
        load.drain(QUEUES)
        for queue in QUEUES:
            wait_for(lambda: _is_empty(cluster, queue), f"an empty queue {queue}", WITHIN_S, 0.2)  # noqa: B023
        load.stop_consuming(within_s=30)
        load.end()
        confirmed = sum(each.outcome == CONFIRMED for each in load.history.publishes.values())
        violations.extend(judge(load.history, list(QUEUES), load.proven))
        return f"{len(load.history.publishes)} published, {confirmed} confirmed, {len(violations)} promises broken"

    violations: list[Any] = []
    steps.do("calm, judgement", calm)
    return violations


def _is_empty(cluster: Cluster, queue: str) -> bool:
    info = cluster.page(f"/queues/%2F/{queue}?fresh=true")
    return bool(info.get("consumers")) and info["ready"] == 0
