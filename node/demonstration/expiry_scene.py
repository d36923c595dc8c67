"""Messages expire in order and arrive, with correct `x-death`, in a dead-letter queue led by another node."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import pika
from pika.adapters.blocking_connection import BlockingConnection

from mayfly.node.demonstration.client import connect, declare_where, leader_of
from mayfly.node.demonstration.narrator import Narrator
from mayfly.node.local_nodes.local_cluster import NodePlan
from mayfly.node.settings import NodeSettings

MESSAGES: Final = 10
TTL_MS: Final = 2000
EVERY_S: Final = 0.12
# One expiry tick (250 ms by default), the transfer between the shards, and a busy machine.
PROMPT_MS: Final = 1000
_DEAD_LETTER_EXCHANGE: Final = "demo.dead-letters"
_PATIENCE_S: Final = 60.0
# `time` in x-death has seconds for its unit.
_TIME_TOLERANCE_S: Final = 3.0


class Arrival(NamedTuple):
    """A message in the dead-letter queue, and when it came."""

    at_ms: int
    properties: Any
    body: bytes


def play(narrator: Narrator, plans: Sequence[NodePlan], settings: NodeSettings) -> None:
    """Publish on the first node, receive on the last."""
    narrator.scene(
        "1. Messages that nobody takes expire, in order, and move to another node's dead-letter queue"
    )
    publisher = connect(plans[0], settings, "demonstration: publisher")
    receiver = connect(plans[-1], settings, "demonstration: dead letters")
    try:
        source, dead = _declare(narrator, publisher, plans)
        arrivals: list[Arrival] = []
        receiving = receiver.channel()
        receiving.basic_consume(
            dead,
            lambda channel, method, properties, body: arrivals.append(Arrival(_now_ms(), properties, body)),
            auto_ack=True,
        )
        sent_ms = _publish(narrator, publisher, plans[0], source)
        deadline = time.monotonic() + _PATIENCE_S
        told = 0
        while len(arrivals) < MESSAGES and time.monotonic() < deadline:
            receiver.process_data_events(time_limit=0.05)
            for arrival in arrivals[told:]:
                narrator.say(f"{plans[-1].name} delivers from {dead}: {arrival.body.decode()}")
            told = len(arrivals)
        # A second copy would come now.
        receiver.process_data_events(time_limit=0.3)
        _judge(narrator, source, sent_ms, arrivals)
    finally:
        publisher.close()
        receiver.close()


def _declare(
    narrator: Narrator, connection: BlockingConnection, plans: Sequence[NodePlan]
) -> tuple[str, str]:
    channel = connection.channel()
    channel.exchange_declare(_DEAD_LETTER_EXCHANGE, exchange_type="direct", durable=True)
    dead = declare_where(channel, plans[0], "demo.dead", {}, lambda leader: True)
    channel.queue_bind(dead, _DEAD_LETTER_EXCHANGE, routing_key="expired")
    dead_leader = leader_of(plans[0], dead)
    arguments = {
        "x-message-ttl": TTL_MS,
        "x-dead-letter-exchange": _DEAD_LETTER_EXCHANGE,
        "x-dead-letter-routing-key": "expired",
    }
    source = declare_where(channel, plans[0], "demo.timed", arguments, lambda leader: leader != dead_leader)
    source_leader = leader_of(plans[0], source)
    narrator.say(f"queue {source}: TTL {TTL_MS} ms, dead letters to {dead}; no consumer")
    narrator.promise(
        "the queue and its dead-letter queue are led by different nodes",
        source_leader != leader_of(plans[0], dead),
        f"{source} by node {source_leader}, {dead} by node {dead_leader}",
    )
    return source, dead


def _publish(narrator: Narrator, connection: BlockingConnection, plan: NodePlan, queue: str) -> list[int]:
    """Publish with confirms; the moments before each publish, in ms."""
    channel = connection.channel()
    channel.confirm_delivery()
    sent_ms = []
    for number in range(1, MESSAGES + 1):
        sent_ms.append(_now_ms())
        properties = pika.BasicProperties(delivery_mode=2, headers={"number": number})
        channel.basic_publish("", queue, f"message {number}".encode(), properties, mandatory=True)
        time.sleep(EVERY_S)
    narrator.say(
        f"{MESSAGES} messages published on {plan.name}, {EVERY_S * 1000:.0f} ms apart, all confirmed"
    )
    return sent_ms


def _judge(narrator: Narrator, source: str, sent_ms: Sequence[int], arrivals: Sequence[Arrival]) -> None:
    bodies = [arrival.body for arrival in arrivals]
    expected = [f"message {number}".encode() for number in range(1, MESSAGES + 1)]
    narrator.promise(
        "each message arrives once",
        sorted(bodies) == sorted(expected),
        f"{len(set(bodies) & set(expected))} of {MESSAGES} arrived, {len(bodies) - len(set(bodies))} twice",
    )
    narrator.promise(
        "in the order in which they expired",
        bodies == expected,
        ", ".join(body.decode().removeprefix("message ") for body in bodies),
    )
    # By number, so that one that is missing does not shift the ages of the others.
    sent = dict(zip(expected, sent_ms, strict=True))
    ages_ms = [arrival.at_ms - sent[arrival.body] for arrival in arrivals if arrival.body in sent]
    age = f"age on arrival {min(ages_ms)} to {max(ages_ms)} ms" if ages_ms else "nothing arrived"
    narrator.promise(f"none before its TTL of {TTL_MS} ms", bool(ages_ms) and min(ages_ms) >= TTL_MS, age)
    latest_ms = TTL_MS + PROMPT_MS
    in_time = bool(ages_ms) and max(ages_ms) <= latest_ms
    narrator.promise(f"all within {PROMPT_MS} ms after it", len(ages_ms) >= MESSAGES, age, in_time)
    faults = sorted(
        {fault for arrival in arrivals for fault in death_faults(arrival.properties.headers, source)}
    )
    example = ", ".join(f"{key} {value!r}" for key, value in _first_death(arrivals).items() if key != "time")
    narrator.promise(
        "x-death tells the story of each",
        bool(arrivals) and not faults,
        "; ".join(faults) or example or "nothing arrived",
    )


def death_faults(headers: Mapping[str, Any] | None, queue: str) -> list[str]:
    """What is wrong with the headers of a message that expired once, in `queue`, published there (D3, D4)."""
    headers = headers or {}
    deaths = headers.get("x-death")
    if not isinstance(deaths, list) or len(deaths) != 1 or not isinstance(deaths[0], Mapping):
        return [f"x-death is {deaths!r}, expected one entry"]
    death = deaths[0]
    expected = {"count": 1, "reason": "expired", "queue": queue, "exchange": "", "routing-keys": [queue]}
    faults = [
        f"x-death {key} is {death.get(key)!r}, expected {value!r}"
        for key, value in expected.items()
        if death.get(key) != value
    ]
    faults += [
        f"x-{when}-death-{key} is {headers.get(f'x-{when}-death-{key}')!r}, expected {expected[key]!r}"
        for when in ("first", "last")
        for key in ("reason", "queue", "exchange")
        if headers.get(f"x-{when}-death-{key}") != expected[key]
    ]
    at = death.get("time")
    if not isinstance(at, datetime):
        faults.append(f"x-death time is {at!r}, expected a timestamp")
    elif abs((datetime.now(UTC) - _as_utc(at)).total_seconds()) > _TIME_TOLERANCE_S + _PATIENCE_S:
        faults.append(f"x-death time is {at}, expected the time at which it expired")
    return faults


def _first_death(arrivals: Sequence[Arrival]) -> Mapping[str, Any]:
    for arrival in arrivals:
        deaths = (arrival.properties.headers or {}).get("x-death")
        if isinstance(deaths, list) and deaths and isinstance(deaths[0], Mapping):
            return deaths[0]
    return {}


def _as_utc(moment: datetime) -> datetime:
    """pika gives timestamps as naive UTC."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _now_ms() -> int:
    """Wall clock, as the nodes on this machine read it, in whole ms."""
    return time.time_ns() // 1_000_000
