"""BCC and a client's own x-death at dead-lettering, end to end, as recorded from RabbitMQ 4.3.6 (RULES D3, D4, D5)."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from mayfly.cluster.versions import LEVEL_PUBLISHER_HEADERS, VersionRange
from mayfly.node.dead_letter.publisher_headers import PUBLISHER_HEADERS
from tests.node.broker.three_brokers import ThreeBrokers

FORGED = [{"count": 3, "reason": "expired", "queue": "end", "exchange": "", "routing-keys": ["r"]}]


def dlx(key: str | None = None, exchange: str = "", ttl_ms: int = 50) -> dict[str, Any]:
    found = {"x-dead-letter-exchange": exchange, "x-message-ttl": ttl_ms}
    return found if key is None else {**found, "x-dead-letter-routing-key": key}


def empty(client: Any, name: str) -> bool:
    return isinstance(client.call(1, commands.Basic.Get(queue=name, no_ack=True)), commands.Basic.GetEmpty)


def deaths(message: Any) -> list[tuple[str, str, int, list[str]]]:
    return [
        (death["queue"], death["reason"], death["count"], death["routing-keys"])
        for death in message.properties.headers["x-death"]
    ]


def test_d4_bcc_is_routed_by_at_death_and_shown_to_nobody(world: Any, client: Any) -> None:
    for name in ("blind", "copied"):
        client.declare(name)
    client.declare("q", arguments=dlx())
    client.publish(1, "q", headers={"BCC": ["blind"], "CC": ["copied"], "kept": "1"})
    assert [set(client.get(name).properties.headers) for name in ("blind", "copied")] == [{"CC", "kept"}] * 2
    world.advance(100)
    for name in ("blind", "copied"):
        got = client.get(name)
        assert deaths(got) == [("q", "expired", 1, ["q", "copied"])], "its BCC is in no list of keys"
        assert not {"BCC", PUBLISHER_HEADERS} & set(got.properties.headers)
        assert empty(client, name)


def test_d4_bcc_counts_at_the_second_death_too(world: Any, client: Any) -> None:
    for exchange in ("first", "second"):
        client.call(1, commands.Exchange.Declare(exchange=exchange))
    client.declare("a", arguments=dlx(exchange="first"))
    client.declare("b", arguments=dlx(exchange="second"))
    client.declare("end")
    client.call(1, commands.Queue.Bind(queue="b", exchange="first", routing_key="hidden"))
    client.call(1, commands.Queue.Bind(queue="end", exchange="second", routing_key="hidden"))
    client.publish(1, "a", headers={"BCC": ["hidden"]})
    world.advance(500)
    got = client.get("end")
    assert deaths(got) == [("b", "expired", 1, ["a"]), ("a", "expired", 1, ["a"])]
    assert not {"BCC", PUBLISHER_HEADERS} & set(got.properties.headers)


def test_d4_a_dead_letter_key_takes_the_place_of_bcc(world: Any, client: Any) -> None:
    for name in ("blind", "end"):
        client.declare(name)
    client.declare("q", arguments=dlx("second"))
    client.declare("second", arguments=dlx())
    client.publish(1, "q", headers={"BCC": ["blind"]})
    assert client.get("blind").body == b"m"
    world.advance(500)
    assert empty(client, "blind")


def test_bcc_of_a_transaction(world: Any, client: Any) -> None:
    client.declare("blind")
    client.declare("q", arguments=dlx())
    client.open_channel(2)
    client.call(2, commands.Tx.Select())
    client.publish(2, "q", headers={"BCC": ["blind"]})
    assert isinstance(client.call(2, commands.Tx.Commit()), commands.Tx.CommitOk)
    assert client.get("blind").properties.headers == {}
    world.advance(100)
    assert deaths(client.get("blind")) == [("q", "expired", 1, ["q"])]


def test_consumers_see_no_bcc(client: Any) -> None:
    client.declare("q")
    client.call(1, commands.Basic.Consume(queue="q", consumer_tag="c", no_ack=True))
    client.publish(1, "q", headers={"BCC": ["nowhere"], "x-death": FORGED})
    (got,) = client.take(1)
    assert got.properties.headers == {"x-death": FORGED}


def test_a_clients_x_death_is_shown_as_it_came(client: Any) -> None:
    client.declare("q")
    headers = {"a": 1, "x-death": FORGED, "x-first-death-queue": "zz", "x-last-death-reason": "yy"}
    client.publish(1, "q", headers=headers)
    got = client.get("q").properties.headers
    assert list(got.items()) == list(headers.items())


@pytest.mark.parametrize(
    "forged",
    [
        {"x-death": FORGED, "x-first-death-queue": "zz", "x-last-death-queue": "ll"},
        {"x-death": "text"},
        {"x-death": None},
    ],
)
def test_d5_a_clients_x_death_is_believed_by_nobody(world: Any, client: Any, forged: dict[str, Any]) -> None:
    """Neither a count nor a cycle comes of it: the message arrives in `end`, with one death in its history."""
    client.declare("end")
    client.declare("q", arguments=dlx("end"))
    client.publish(1, "q", headers={**forged, "z": 1})
    world.advance(100)
    got = client.get("end")
    assert deaths(got) == [("q", "expired", 1, ["q"])]
    summary = {key: value for key, value in got.properties.headers.items() if key.startswith(("x-first", "x-last"))}
    assert summary == {
        f"x-{which}-death-{what}": value
        for which in ("first", "last")
        for what, value in (("queue", "q"), ("reason", "expired"), ("exchange", ""))
    }
    assert got.properties.headers["z"] == 1


def test_what_is_published_again_starts_anew(world: Any, client: Any) -> None:
    """The history belongs to the broker's message, not to who publishes a copy of it (RabbitMQ 4.0 and later)."""
    client.declare("end")
    client.declare("q", arguments=dlx("end"))
    client.publish(1, "q")
    world.advance(100)
    headers = client.get("end").properties.headers
    client.publish(1, "q", headers=headers)
    world.advance(100)
    assert deaths(client.get("end")) == [("q", "expired", 1, ["q"])]


def test_the_brokers_own_history_goes_on(world: Any, client: Any) -> None:
    client.declare("end")
    client.declare("b", arguments=dlx("end"))
    client.declare("a", arguments=dlx("b"))
    client.publish(1, "a", headers={"x-death": FORGED, "BCC": ["nowhere"]})
    world.advance(500)
    assert deaths(client.get("end")) == [("b", "expired", 1, ["b"]), ("a", "expired", 1, ["a"])]


def test_a_client_cannot_say_what_the_broker_says_to_itself(world: Any, client: Any) -> None:
    client.declare("end")
    client.declare("q", arguments=dlx("end"))
    client.publish(1, "q", headers={PUBLISHER_HEADERS: ["x-death"], "a": 1})
    client.publish(1, "end", headers={PUBLISHER_HEADERS: "x", "a": 1})
    assert client.get("end").properties.headers == {"a": 1}
    world.advance(100)
    got = client.get("end")
    assert deaths(got) == [("q", "expired", 1, ["q"])]
    assert PUBLISHER_HEADERS not in got.properties.headers


@pytest.mark.parametrize("level", [LEVEL_PUBLISHER_HEADERS - 1, LEVEL_PUBLISHER_HEADERS])
def test_nothing_is_stored_that_a_member_of_an_older_release_would_show(level: int) -> None:
    brokers = ThreeBrokers(shards=1, levels=VersionRange(1, level))
    client = brokers.nodes[1].client()
    client.declare("q")
    client.publish(1, "q", headers={"BCC": ["nowhere"], "x-death": FORGED})
    shard = brokers.nodes[1].engine.shards[1]
    (index,) = shard.live_entries()
    stored = brokers.nodes[1].engine.host.groups[1].log.data(index)
    assert (b"BCC" in stored, PUBLISHER_HEADERS.encode() in stored) == (level >= LEVEL_PUBLISHER_HEADERS,) * 2
    assert client.get("q").properties.headers == {"x-death": FORGED}
