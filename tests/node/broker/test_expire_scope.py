"""Queues in which messages expire wherever they are, as a client sees them, with fake time (RULES X2)."""

from __future__ import annotations

from typing import Any

from pamqp import commands

from mayfly.node.catalog import PolicySet, SetPolicy

DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


def bodies(client: Any, queue: str) -> list[str]:
    found = []
    while hasattr(got := client.get(queue), "body"):
        found.append(got.body.decode())
    return found


def fill(client: Any) -> None:
    for body, expiration in (("head", None), ("c", "3000"), ("a", "1000"), ("b", "2000"), ("last", "60000")):
        client.publish(1, "q", body.encode(), expiration=expiration)


def test_x2_what_is_due_is_dead_lettered_in_order_of_deadlines(world: Any, client: Any) -> None:
    """X2, D7: from behind a head that lives, and counts say so."""
    client.declare("dead")
    client.declare("q", arguments={"x-expire-scope": "any", **DEAD})
    fill(client)
    world.advance(1300)
    assert client.declare("q", arguments={"x-expire-scope": "any", **DEAD}).message_count == 4
    world.advance(2500)
    assert bodies(client, "dead") == ["a", "b", "c"]
    assert bodies(client, "q") == ["head", "last"]


def test_x2_a_policy_asks_for_it_and_the_argument_wins(world: Any, client: Any) -> None:
    """X2."""
    client.declare("dead")
    client.declare("q", arguments=DEAD)
    client.declare("not", arguments={"x-expire-scope": "head"})
    fill(client)
    client.publish(1, "not", b"head")
    client.publish(1, "not", b"behind", expiration="1000")
    world.advance(1300)
    assert bodies(client, "dead") == []
    assert isinstance(world.cluster.catalog.apply(SetPolicy("/", "p", "", {"expire-scope": "any"})), PolicySet)
    world.advance(1000)
    assert bodies(client, "dead") == ["a", "b"]
    assert client.declare("not", arguments={"x-expire-scope": "head"}).message_count == 2


def test_x2_another_scope_is_refused(client: Any) -> None:
    """X2: by name."""
    client.send(1, commands.Queue.Declare(queue="q", durable=True, arguments={"x-expire-scope": "all"}))
    (closed,) = client.take()
    assert closed.reply_code == 406
    assert "invalid arg 'x-expire-scope' for queue 'q' in vhost '/'" in closed.reply_text
