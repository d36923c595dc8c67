"""Limits of vhosts and users; texts as RabbitMQ 3.10.8 gave them."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands, frame

from mayfly.node.broker.access_counts import (
    CHANNELS_OF_USER,
    CONNECTIONS_OF_USER,
    CONNECTIONS_OF_VHOST,
    REPEAT_MS,
    REPEATED_AFTER_MS,
    AccessCounts,
)
from mayfly.node.catalog import Catalog, PutUser, SetLimit
from mayfly.node.catalog.access_limits import limit_fault


def limit(world: Any, kind: Any, name: str, which: str, value: int | None) -> None:
    world.cluster.catalog.apply(SetLimit(kind, name, which, value))


def opening(world: Any) -> Any:
    """The answer to connection.open."""
    client = world.login()
    client.take()
    client.send(0, commands.Connection.TuneOk(10, 131072, 0))
    client.send(0, commands.Connection.Open(virtual_host="/"))
    return client.take()[-1]


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        ("vhost", "/", "NOT_ALLOWED - access to vhost '/' refused for user 'guest': connection limit (2) is reached"),
        ("user", "guest", "NOT_ALLOWED - connection refused for user 'guest': user connection limit (2) is reached"),
    ],
)
def test_connections(world: Any, kind: str, name: str, text: str) -> None:
    """Those that were there before the limit count; room that one leaves can be taken."""
    first = world.client()
    limit(world, kind, name, "max-connections", 2)
    world.client()
    refused = opening(world)
    assert (refused.reply_code, refused.reply_text) == (530, text)
    first.lose()
    assert isinstance(opening(world), commands.Connection.OpenOk)
    limit(world, kind, name, "max-connections", 0)
    assert opening(world).reply_code == 530
    limit(world, kind, name, "max-connections", None)
    assert isinstance(opening(world), commands.Connection.OpenOk)


def test_channels_of_a_user(world: Any) -> None:
    """Over all connections; several in one packet are counted one by one."""
    limit(world, "user", "guest", "max-channels", 3)
    one, other = world.client(), world.client()
    one.send(1, commands.Channel.Close(200, "", 0, 0))
    one.take()
    one.open_channel(1)
    other.send_bytes(b"".join(frame.marshal(commands.Channel.Open(), number) for number in (2, 3, 4)))
    answers = other.take()
    assert [type(answer) for answer in answers] == [commands.Channel.OpenOk, commands.Connection.Close]
    text = "number of channels opened for user 'guest' has reached the maximum allowed user limit of (3)"
    assert (answers[1].reply_code, answers[1].reply_text) == (530, f"NOT_ALLOWED - {text}")
    # The refused connection is over, its channels with it.
    one.open_channel(2)
    one.open_channel(3)
    assert world.cluster.access_counts.total(CHANNELS_OF_USER, "guest") == 3


def test_nothing_is_counted_when_all_are_gone(world: Any) -> None:
    for _ in range(3):
        client = world.client()
        client.open_channel(2)
        client.lose()
    counts = world.cluster.access_counts
    keys = ((CONNECTIONS_OF_VHOST, "/"), (CONNECTIONS_OF_USER, "guest"), (CHANNELS_OF_USER, "guest"))
    assert [counts.total(*key) for key in keys] == [0, 0, 0]


def test_queues_of_a_vhost(client: Any, world: Any) -> None:
    limit(world, "vhost", "/", "max-queues", 1)
    client.declare("q1")
    client.declare("q1")
    got = client.declare("q2")
    assert (got.reply_code, got.reply_text) == (
        406, "PRECONDITION_FAILED - cannot declare queue 'q2': queue limit in vhost '/' (1) is reached",
    )  # fmt: skip


def test_nodes_tell_each_other_of_what_has_limits() -> None:
    catalog = Catalog(1)
    one, other = AccessCounts(), AccessCounts()
    one.add(CONNECTIONS_OF_VHOST, "/", 2)
    one.add(CONNECTIONS_OF_USER, "guest", 2)
    assert one.news(catalog, 0) is not None
    assert one.news(catalog, 1) is None
    catalog.apply(PutUser("u", ""))
    catalog.apply(SetLimit("vhost", "/", "max-connections", 5))
    news = one.news(catalog, 2)
    assert news is not None, "a limit is news"
    other.add(CONNECTIONS_OF_VHOST, "/", 1)
    other.told(1, news)
    other.told(2, news)
    assert other.total(CONNECTIONS_OF_VHOST, "/") == 5
    assert other.total(CONNECTIONS_OF_USER, "guest") == 0, "which has no limits"
    other.told(2, b"\xc1")
    other.forget(1)
    assert other.total(CONNECTIONS_OF_VHOST, "/") == 3


def test_nodes_tell_each_other_how_many_there_are_of_all() -> None:
    catalog = Catalog(1)
    one, other = AccessCounts(), AccessCounts()
    one.add(CONNECTIONS_OF_VHOST, "/", 2)
    one.add(CONNECTIONS_OF_VHOST, "v", 3)
    one.add(CHANNELS_OF_USER, "guest", 7)
    news = one.news(catalog, 0)
    assert news is not None
    other.add(CONNECTIONS_OF_VHOST, "/", 1)
    other.told(1, news)
    assert (other.everywhere(CONNECTIONS_OF_VHOST), other.everywhere(CHANNELS_OF_USER)) == (6, 7)
    assert [one.news(catalog, now_ms) for now_ms in range(50, 10_000, 50)].count(None) == 199, "not again and again"
    other.forget(1)
    assert (other.everywhere(CONNECTIONS_OF_VHOST), other.everywhere(CHANNELS_OF_USER)) == (1, 0)


def test_counts_are_repeated_as_one_may_get_lost() -> None:
    catalog = Catalog(1)
    catalog.apply(SetLimit("vhost", "/", "max-connections", 5))
    counts = AccessCounts()
    nothing = counts.news(catalog, 0)
    assert nothing is not None
    assert [counts.news(catalog, now_ms) for now_ms in range(50, 100_000, 50)].count(None) == 1999, "none is no news"
    counts.add(CONNECTIONS_OF_VHOST, "/", 1)
    told = [counts.news(catalog, now_ms) for now_ms in range(100_000, 200_000, 50)]
    assert sum(each is not None for each in told) in (100_000 // REPEAT_MS, 100_000 // REPEAT_MS + 1)
    counts.add(CONNECTIONS_OF_VHOST, "/", -1)
    told = [counts.news(catalog, now_ms) for now_ms in range(200_000, 300_000, 50)]
    assert told.count(nothing) == REPEATED_AFTER_MS // REPEAT_MS and told[-1] is None


@pytest.mark.parametrize(
    ("value", "good"), [(0, True), (-1, True), (2**31, False), (-2, False), (True, False)]
)
def test_values(value: object, good: bool) -> None:
    assert (limit_fault("vhost", "max-queues", value) is None) == good
