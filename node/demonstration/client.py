"""An ordinary AMQP client, and what it needs to know of the cluster it talks to."""

import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import pika
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from mayfly.node.local_nodes.local_cluster import NodePlan, fetch
from mayfly.node.settings import NodeSettings

_CONNECT_TIMEOUT_S: Final = 5
_HEARTBEAT_S: Final = 30
_MOST_NAMES_TRIED: Final = 100
_ANYWHERE: Final = {"x-queue-type": "quorum", "x-queue-leader-locator": "balanced"}
"""Not near to the declaring node, as is the default: the scenes need leaders on other nodes."""


class DemonstrationError(Exception):
    """The demonstration cannot go on; the text says why."""


def connect(plan: NodePlan, settings: NodeSettings, name: str) -> BlockingConnection:
    """A connection to one node, with the default user."""
    return BlockingConnection(
        pika.ConnectionParameters(
            host=plan.amqp.host,
            port=plan.amqp.port,
            credentials=pika.PlainCredentials(settings.default_user, settings.default_pass),
            heartbeat=_HEARTBEAT_S,
            socket_timeout=_CONNECT_TIMEOUT_S,
            client_properties={"connection_name": name},
        )
    )


def queue_info(plan: NodePlan, queue: str) -> dict[str, Any] | None:
    """What a node knows of a queue in the default vhost; None: of none. This renews no lease (L2)."""
    status, info = fetch(plan.http, f"/queues/%2F/{quote(queue, safe='')}")
    if status == HTTPStatus.NOT_FOUND:
        return None
    if status != HTTPStatus.OK:
        raise OSError(f"{plan.name} does not tell about {queue}: {info}")
    return info


def leader_of(plan: NodePlan, queue: str) -> int:
    """The id of the node that leads the queue's shard; 0 if none is known."""
    info = queue_info(plan, queue)
    return int(info["leader"] or 0) if info else 0


def declare_where(
    channel: BlockingChannel,
    plan: NodePlan,
    prefix: str,
    arguments: Mapping[str, object],
    leader_suits: Callable[[int], bool],
) -> str:
    """Declare a quorum queue whose shard is led by a suitable node, by trying names; its name."""
    unsuitable: list[str] = []
    try:
        for number in range(1, _MOST_NAMES_TRIED + 1):
            name = f"{prefix}-{number}"
            channel.queue_declare(name, durable=True, arguments={**_ANYWHERE, **arguments})
            leader = leader_of(plan, name)
            if leader and leader_suits(leader):
                return name
            unsuitable.append(name)
    finally:
        # Only now: a shard that became empty again would be the first choice for the next queue.
        for name in unsuitable:
            channel.queue_delete(name)
    raise DemonstrationError(f"no name of {_MOST_NAMES_TRIED} gave {prefix} a shard with a suitable leader")


def wait_until(what: Callable[[], bool], timeout_s: float, every_s: float = 0.01) -> bool:
    """Ask again and again; False at the timeout."""
    deadline = time.monotonic() + timeout_s
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True
