"""What a node that was damaged has: read through it while it leads, and on its disk when it has ended."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import pika

from mayfly.cluster.log.batch import LogError
from mayfly.cluster.store.write_ahead_store import WriteAheadStore
from mayfly.node.shell.data_folder import DataFolder
from tests.integration.clients import PERSISTENT, connect, declare_led_by
from tests.integration.nodes import Nodes
from tests.integration.operators import ask_to_lead
from tests.waiting import BOUND_S, wait_for

MESSAGES: Final = 300
BODY_BYTES: Final = 2_000
_PREFETCH: Final = 100
_TRIES: Final = 60
_LEADS_WITHIN_S: Final = 3.0
_ENDS_WITHIN_S: Final = 5.0


@dataclass(slots=True)
class KeptStreams:
    """A stream in the shards that each node leads at first, which is read and never changes."""

    login: tuple[str, str]
    bodies: dict[str, list[bytes]] = field(default_factory=dict)
    """By stream."""

    def fill(self, nodes: Nodes) -> None:
        """Declare them, and publish what they hold."""
        connection = connect(nodes, nodes.ids[0], credentials=pika.PlainCredentials(*self.login))
        channel = connection.channel()
        channel.confirm_delivery()
        for id in nodes.ids:
            name = declare_led_by(
                nodes, channel, f"read-{id}", lambda leader, id=id: leader == id, {"x-queue-type": "stream"}  # type: ignore[misc]
            )
            self.bodies[name] = [Random(f"{name} {number}").randbytes(BODY_BYTES) for number in range(MESSAGES)]
            for body in self.bodies[name]:
                channel.basic_publish("", name, body, PERSISTENT)
        connection.close()

    def are_read_from(self, nodes: Nodes, id: int) -> bool:
        """Have the node lead one after the other and deliver all that is in it; False if it has ended meanwhile.

        Fails if anything else comes than was published."""
        return all(self._is_read_from(nodes, id, name) for name in self.bodies)

    def _is_read_from(self, nodes: Nodes, id: int, name: str) -> bool:
        info = nodes.queue(next(each for each in nodes.ids if each != id), name)
        assert info is not None, f"stream {name} is gone"
        for _ in range(_TRIES):
            try:
                shard = int(info["shard"])
                if not self._lead(nodes, id, shard):
                    continue
                found = self._read(nodes, id, name)
                if found is not None and _leads(nodes, id, shard):
                    assert found == self.bodies[name], f"node {id} delivers something else from {name}"
                    return True
            except (OSError, pika.exceptions.AMQPError):
                with suppress(AssertionError):
                    wait_for(lambda: _has_ended(nodes, id), f"the end of node {id}", _ENDS_WITHIN_S)
            if _has_ended(nodes, id):
                return False
        raise AssertionError(f"node {id} has not led the shard of {name} while that was read, {_TRIES} times")

    def _lead(self, nodes: Nodes, id: int, shard: int) -> bool:
        """Whether the node leads the shard now, asked to if it did not."""
        if _leads(nodes, id, shard):
            return True
        ask_to_lead(nodes, id, shard, nodes.plan(id).name, self.login)
        with suppress(AssertionError):
            wait_for(lambda: _leads(nodes, id, shard), f"node {id} leads {shard}", _LEADS_WITHIN_S)
            return True
        return False

    def _read(self, nodes: Nodes, id: int, name: str) -> list[bytes] | None:
        """All bodies, through the node; None if they do not all come."""
        found: list[bytes] = []
        connection = connect(nodes, id, credentials=pika.PlainCredentials(*self.login))
        try:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=_PREFETCH)
            arguments = {"x-stream-offset": "first"}
            for method, _, body in channel.consume(name, arguments=arguments, inactivity_timeout=BOUND_S):
                if method is None:
                    return None
                found.append(body)
                channel.basic_ack(method.delivery_tag)
                if len(found) == len(self.bodies[name]):
                    return found
        finally:
            if connection.is_open:
                connection.close()
        return None


def _leads(nodes: Nodes, id: int, shard: int) -> bool:
    """Whether the node says that it leads. (Who joins anew has another id than the first time.)"""
    row = nodes.groups(id).get(shard, {})
    return bool(row.get("role") == "leader" and row["leader"])


def _has_ended(nodes: Nodes, id: int) -> bool:
    """Whether the process is gone; who asks for its exit code is told it later."""
    try:
        stat = Path(f"/proc/{nodes.pid(id)}/stat").read_text()
    except (AssertionError, OSError):
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


def damage_left_in(data: Path) -> str:
    """What is damaged in the log of a node that was killed, in whatever entry; empty if nothing is. The folder is of
    no use afterwards."""
    folder = DataFolder(data).log
    try:
        store = WriteAheadStore(folder)
    except LogError as error:
        return str(error)
    try:
        for group, stored in store.load().items():
            if stored.damage:
                return stored.damage
            for index in [*stored.retained, *(index for index, _ in stored.entries)]:
                store.read_entry(group, index)
    except LogError as error:
        return str(error)
    finally:
        with suppress(LogError):
            store.close()
    return ""
