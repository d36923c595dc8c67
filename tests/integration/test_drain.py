"""Nodes that are drained and stopped under load: a short pause for others, and for their own clients a clean cut."""

import os
import re
import signal
import socket
from collections.abc import Callable

import pika.exceptions
import pytest

from tests.integration.clients import Consumer, Publisher, channel, connect, declare_led_by, drain, judge
from tests.integration.nodes import PATIENT_SESSIONS, Nodes
from tests.integration.operators import run_mayfly as mayfly
from tests.waiting import BOUND_S, wait_for

pytestmark = [pytest.mark.processes]

Record = Callable[[str, object], None]
VICTIM = 3
PATIENTLY = ("--timeout", str(2 * BOUND_S))


@pytest.fixture(scope="module")
def settings() -> dict[str, object]:
    """A busy machine lets clients acknowledge late, and leaders be handed over late: so long a node waits for that."""
    return {**PATIENT_SESSIONS, "drain_acks_ms": 5_000, "drain_timeout_ms": 30_000}


def reason(nodes: Nodes, id: int) -> str:
    """Why a node is not ready; "" if it is."""
    return str(nodes.page(id, "/health/ready")[1].get("reason", ""))


def test_a_stopped_node_costs_its_clients_and_others_nothing(whole: Nodes, record_property: Record) -> None:
    """SIGTERM under load. What its publisher has confirms for is stored, and nothing else: so repeating the rest makes
    no duplicates. Its consumer acknowledged all it was given: nothing is delivered twice. Clients of others go on."""
    with channel(whole, 1) as declaring:
        own = declare_led_by(whole, declaring, "own", lambda leader: leader == VICTIM)
        taken = declare_led_by(whole, declaring, "taken", lambda leader: leader != VICTIM)
        others = declare_led_by(whole, declaring, "others", lambda leader: leader == VICTIM)
    cut = Publisher(whole, VICTIM, own, rate=600)
    feeder, torn, heir = (
        Publisher(whole, 1, taken, rate=400), Consumer(whole, VICTIM, taken).begin(), Consumer(whole, 2, taken).begin(),
    )  # fmt: skip
    publisher, consumer = Publisher(whole, 1, others, rate=400), Consumer(whole, 2, others).begin()
    for each in (cut, feeder, publisher):
        each.start()
    for each in (cut, feeder, publisher):
        each.until_confirmed(200)
    torn.until_received(50)
    os.kill(whole.pid(VICTIM), signal.SIGTERM)
    assert whole.ends_by_itself(VICTIM) == 0
    wait_for(lambda: whole.leads_nothing(VICTIM, witness=1), "other leaders, as node 1 knows them")
    cut.join(2 * BOUND_S)  # it waits for confirms for as long as BOUND_S
    assert cut.error is not None
    wait_for(lambda: torn.error, "the close at the consumer")
    assert "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'" in str(torn.error)
    for each in (feeder, publisher):
        each.until_confirmed(100)
        each.finish()
    wait_for(lambda: len(torn.deliveries) + len(heir.deliveries) >= len(feeder.confirmed), "what was fed")
    consumer.until_received(len(publisher.confirmed))
    for taker in (heir, consumer):
        taker.finish()
    judge(publisher, [consumer])
    judge(feeder, [torn, heir])
    stored = sorted(int(body.split(b" ")[0]) for body, _ in drain(whole, 1, own))
    assert stored == sorted(cut.confirmed)
    pause_ms = publisher.longest_pause_ms()
    record_property("longest_confirm_pause_ms", pause_ms)
    print(f"longest pause between confirms of a publisher on another node: {pause_ms} ms")
    # Nobody waits for the session of the node that went: it gave everything back.
    whole.heal()


def test_drain_and_revive(whole: Nodes) -> None:
    """`mayfly drain` comes back when it is done; the node stays up, not ready, without clients and leaders."""
    refused = mayfly(whole, VICTIM, "drain", password="wrong")
    assert refused.returncode == 1 and "administrator" in refused.stderr
    client = connect(whole, VICTIM)
    opened = client.channel()
    opened.queue_declare("kept", durable=True)
    opened.basic_publish("", "kept", b"held")
    method, _, _ = opened.basic_get("kept")
    assert method is not None
    done = mayfly(whole, VICTIM, "drain")
    assert done.returncode == 0, done.stderr
    # This client does not read by itself: its close-ok is still to come, unless it was waited for in vain already.
    last = done.stdout.splitlines()[-1]
    assert re.fullmatch("drained: leads 0 groups, has [01] connections with 0 unacknowledged deliveries", last), last
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="Node was put into maintenance mode"):
        client.process_data_events(time_limit=BOUND_S)
    wait_for(lambda: whole.status(VICTIM)["drain"]["connections"] == 0, "the end of the connection")
    assert "drained" in reason(whole, VICTIM)
    assert whole.page(VICTIM, "/health/live")[0] == 200
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connect(whole, VICTIM)
    assert drain(whole, 1, "kept") == [(b"held", True)]
    wait_for(lambda: whole.leads_nothing(VICTIM, witness=1), "other leaders, as node 1 knows them")
    amqp = whole.plan(VICTIM).amqp
    with socket.create_server((amqp.host, amqp.port)):
        for _ in range(2):
            blocked = mayfly(whole, VICTIM, "revive")
            assert blocked.returncode == 1 and "clients can't be taken again" in blocked.stderr
            assert "drained" in reason(whole, VICTIM)
    revived = mayfly(whole, VICTIM, "revive")
    assert revived.returncode == 0 and revived.stdout.startswith("serving")
    whole.until_balanced()
    with channel(whole, VICTIM, confirms=True) as again:
        again.basic_publish("", "kept", b"after")
    whole.until_well()
    assert reason(whole, VICTIM) == ""


def test_hooks_see_whether_another_node_may_go(whole: Nodes) -> None:
    """`mayfly ready --quorum-plus-one` and `mayfly cluster await`, as a rollout asks before the next node."""
    asked = ("ready", "--quorum-plus-one", "--members", "3")
    assert mayfly(whole, 1, *asked, *PATIENTLY).returncode == 0
    whole.kill(VICTIM)
    # It counts as up until it has not been heard of for an election timeout.
    wait_for(lambda: "one less is no majority" in mayfly(whole, 1, *asked).stderr, "a refusal")
    assert mayfly(whole, 1, "ready", *PATIENTLY).returncode == 0
    assert mayfly(whole, VICTIM, "ready").returncode == 1
    whole.start(VICTIM)
    again = mayfly(whole, 1, "cluster", "await", "--quorum-plus-one", "--members", "3", *PATIENTLY)
    assert again.returncode == 0, again.stderr


def test_hooks_see_whether_one_can_be_spared(whole: Nodes) -> None:
    """`mayfly ready --without`: a node that drains is none to count on, and two that drain do not both go."""
    assert mayfly(whole, 1, "ready", "--without", "node2", *PATIENTLY).returncode == 0
    assert mayfly(whole, VICTIM, "drain").returncode == 0
    wait_for(lambda: mayfly(whole, 2, "ready", "--without", "node2").returncode == 1, "a refusal")
    assert mayfly(whole, VICTIM, "ready", "--without", "node3", *PATIENTLY).returncode == 0
    assert mayfly(whole, VICTIM, "revive").returncode == 0
    assert mayfly(whole, 2, "ready", "--without", "node2", *PATIENTLY).returncode == 0
