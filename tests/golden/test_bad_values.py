"""Bad values at the doors of AMQP: refused in RabbitMQ's words, nothing half done, and nobody else notices.

Our answers are held against those that `tests.golden.bad_values` recorded of RabbitMQ 3.10.8. What differs on purpose
is in `excuse`, and in docs/deviations.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pamqp import commands

from tests.golden.bad_values import (
    EXTENSIONS,
    PLAIN,
    QUEUE,
    RECORDING,
    Case,
    Talk,
    count,
    dead_letter,
    declare,
    declare_dying,
    declares,
    forgeries,
    others,
    publish,
    publishes,
)
from tests.integration.amqp_socket import method_frame
from tests.node.broker.direct_node import DirectNode
from tests.waiting import BOUND_S

SINCE_4: dict[str, Any] = {"declare x-queue-type: empty string": "taken"}
"""As RabbitMQ 4.3.6 answers."""
BYSTANDER = "bystander"
NAMES = ("x-dead-letter-exchange", "x-dead-letter-routing-key", "alternate-exchange")


@pytest.fixture(scope="module")
def node() -> Iterator[DirectNode]:
    with DirectNode() as node:
        yield node


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(RECORDING.read_text(encoding="utf-8"))
    return content | SINCE_4


def excuse(name: str, theirs: Any) -> str | None:
    """Why our answer is not RabbitMQ's, or None if it has to be."""
    if theirs in ("hung up", "no answer") or (isinstance(theirs, list) and theirs[0] == 541):
        return "its reader or its queue crashed"
    door, _, value = name.partition(": ")
    key = door.split()[-1]
    if key in EXTENSIONS:
        return "it does not know the argument"
    if key == "x-delivery-limit":
        return "3.10 takes whatever there is for a delivery limit"
    if key in NAMES and value in ("string of 256 octets", "string that is not UTF-8"):
        return "names that no frame could carry"
    if name in ("expiration: b'+5'", "expiration: b'-0'"):
        return "T2: digits only"
    if key == "x-match" and theirs != "taken":
        return "values inside the text are not printed as Erlang prints them; the code is the same"
    return None


def outcome(answer: Any) -> Any:
    """An answer without the line breaks with which Erlang prints what is long."""
    return [answer[0], "".join(answer[1].split()), *answer[2:]] if isinstance(answer, list) else answer


def state(node: DirectNode) -> tuple[bytes, list[str]]:
    """All that the node knows."""
    cluster = node.cluster
    return cluster.catalog.snapshot(), [local.shard.digest() for local in cluster.shards.values()]


def hold_against(node: DirectNode, cases: Iterator[Case], recorded: dict[str, Any], *queues: str) -> None:
    """Each case on one connection that has to last, with these queues, while another client publishes."""
    talk, other = Talk(node.port, BOUND_S), Talk(node.port, BOUND_S)
    for queue in (BYSTANDER, *queues):
        other.ask(declare(PLAIN, queue), commands.Queue.DeclareOk)
    other.ask(method_frame(commands.Confirm.Select(), 1), commands.Confirm.SelectOk)
    published = 0
    for number, case in enumerate(cases):
        before = state(node)
        ours, theirs = case.play(talk), recorded[case.name]
        if ours != "taken":
            assert state(node) == before, f"{case.name} is half done"
            assert ours[0] == 406 and len(ours) == 4, f"{case.name}: {ours}"
        if (why := excuse(case.name, theirs)) is None:
            assert outcome(ours) == outcome(theirs), case.name
        elif isinstance(theirs, list) and theirs[0] == 406:
            assert ours[0] == 406, f"{case.name}: {why}"
        if number % 20 == 0:
            assert isinstance(other.ask(publish(BYSTANDER), commands.Basic.Ack), commands.Basic.Ack)
            published += 1
    assert (talk.connections, other.connections) == (1, 1)
    assert count(other, BYSTANDER) == published
    for queue in (BYSTANDER, *queues):
        other.ask(method_frame(commands.Queue.Delete(queue=queue), 1), commands.Queue.DeleteOk)
    talk.close()
    other.close()


def test_t1_l1_d1_arguments_of_queues(node: DirectNode, recorded: dict[str, Any]) -> None:
    """queue.declare: every argument with every value."""
    hold_against(node, declares(), recorded)


def test_arguments_of_exchanges_bindings_and_consumers(node: DirectNode, recorded: dict[str, Any]) -> None:
    hold_against(node, others(), recorded, QUEUE)


def test_t2_expirations_and_copies(node: DirectNode, recorded: dict[str, Any]) -> None:
    """basic.publish: `expiration`, CC and BCC. What is refused is in no queue."""
    hold_against(node, publishes(), recorded, QUEUE)


def test_d3_d4_d5_histories_that_a_client_made_up(node: DirectNode) -> None:
    """They are believed by nobody: every message is dead-lettered, once, and tells of its true death alone."""
    talk, other = Talk(node.port, BOUND_S), Talk(node.port, BOUND_S)
    declare_dying(talk)
    for name, headers in forgeries():
        assert dead_letter(talk, headers, BOUND_S) == [QUEUE, "expired", 1, 1], name
    assert count(talk) == count(other) == 0
    assert (talk.connections, other.connections) == (1, 1)
    talk.close()
    other.close()
