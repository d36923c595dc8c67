"""Clients where message TTL or dead-lettering is switched off (RULES X3)."""

from __future__ import annotations

from typing import Any

from pamqp import commands

from mayfly.node.catalog import Refusal, SetSwitch
from tests.node.conftest import Client, World


def switch(world: World, feature: str, on: bool, vhost: str | None = None) -> None:
    answers: list[object] = []
    world.cluster.submit_catalog(SetSwitch(vhost, feature, on), answers.append)
    world.settle()
    assert not isinstance(answers[0], Refusal)


def refusal(client: Client) -> str:
    (close,) = [item for item in client.take() if isinstance(item, commands.Channel.Close)]
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    return str(close.reply_text)


def test_x3_an_expiration_is_refused_and_the_message_stored_nowhere(world: World, client: Client) -> None:
    """RULES X3: and taken again when it is on."""
    client.declare("q")
    switch(world, "message-ttl", False, "/")
    client.publish(1, "q", expiration="1000")
    assert refusal(client) == (
        "PRECONDITION_FAILED - invalid expiration '1000': message TTL is switched off in vhost '/'"
    )
    client.publish(1, "q", b"plain")
    assert client.count("q") == 1
    switch(world, "message-ttl", True, "/")
    client.publish(1, "q", expiration="1000")
    assert client.count("q") == 2


def test_x3_nothing_expires_by_its_queues_ttl_while_it_is_off(world: World, client: Client) -> None:
    """RULES X3: what has a deadline keeps it."""
    client.declare("q", arguments={"x-message-ttl": 2000})
    client.publish(1, "q", b"before")
    switch(world, "message-ttl", False)
    world.advance(1000)
    client.publish(1, "q", b"after")
    world.advance(60_000)
    assert client.get("q").body == b"after"
    arguments: Any = {"x-message-ttl": 2000}
    client.send(1, commands.Queue.Declare(queue="q", durable=True, arguments=arguments))
    assert refusal(client).endswith("message TTL is switched off in this cluster")


def test_x3_what_dies_is_dropped_while_dead_lettering_is_off(world: World, client: Client) -> None:
    """RULES X3: without x-death, without a dead letter; those of before have arrived."""
    client.declare("dead")
    client.declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    for on in (True, False, True):
        switch(world, "dead-lettering", on)
        world.advance(1500)
        client.publish(1, "q", b"on" if on else b"off")
        tag = client.get("q", no_ack=False).tag
        client.send(1, commands.Basic.Reject(tag, requeue=False))
        world.advance(1500)
    assert client.count("q") == 0
    assert [client.get("dead").body for _ in range(2)] == [b"on", b"on"]
    assert client.count("dead") == 0
