"""Logins that fail are counted and slowed down; the memory that costs is bounded."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from node.broker.failed_logins import FailedLogins, origin_of
from node.limits import (
    LOGIN_ADDRESSES,
    LOGIN_DELAY_FIRST_MS,
    LOGIN_DELAY_MOST_MS,
    LOGIN_FAILURES_FREE,
    LOGIN_FAILURES_KEPT_MS,
    LOGINS_WAITING,
)


def test_delays_grow_to_a_bound_and_end() -> None:
    failed = FailedLogins()
    delays = []
    for _ in range(LOGIN_FAILURES_FREE + 8):
        delays.append(failed.delay_ms("a", 0))
        failed.failed("a", 0)
    assert delays[:LOGIN_FAILURES_FREE] == [0] * LOGIN_FAILURES_FREE
    assert delays[LOGIN_FAILURES_FREE : LOGIN_FAILURES_FREE + 2] == [LOGIN_DELAY_FIRST_MS, 2 * LOGIN_DELAY_FIRST_MS]
    assert delays[-1] == LOGIN_DELAY_MOST_MS
    assert failed.delay_ms("b", 0) == 0
    assert failed.delay_ms("a", LOGIN_FAILURES_KEPT_MS) == LOGIN_DELAY_MOST_MS
    assert failed.delay_ms("a", LOGIN_FAILURES_KEPT_MS + 1) == 0
    assert failed.addresses == 0


def test_memory_is_bounded() -> None:
    failed = FailedLogins()
    for number in range(LOGIN_ADDRESSES + 100):
        failed.failed(str(number), number)
    assert (failed.addresses, failed.refused) == (LOGIN_ADDRESSES, LOGIN_ADDRESSES + 100)


@pytest.mark.parametrize(
    ("peer", "origin"),
    [
        ("10.0.0.1:5672", "10.0.0.1"), ("::ffff:10.0.0.1:5672", "10.0.0.1"), ("::1:5672", "::/64"),
        ("2001:db8:1:2:3:4:5:6:5672", "2001:db8:1:2::/64"), ("fe80::1%eth0:5672", "fe80::/64"), ("local", "local"),
    ],
)  # fmt: skip
def test_origins(peer: str, origin: str) -> None:
    assert origin_of(peer) == origin


def fail(world: Any, times: int) -> None:
    for _ in range(times):
        assert world.login("guest", "wrong").take()[0].reply_code == 403


def test_after_failures_a_login_waits_before_its_password_is_looked_at(world: Any) -> None:
    fail(world, LOGIN_FAILURES_FREE)
    checks = world.verified
    client = world.login("guest", "guest")
    assert client.take() == []
    client.connection.tick(LOGIN_DELAY_FIRST_MS - 1)
    world.settle()
    assert (client.take(), world.verified) == ([], checks)
    client.connection.tick(LOGIN_DELAY_FIRST_MS)
    world.settle()
    assert isinstance(client.take()[0], commands.Connection.Tune)
    assert world.verified == checks + 1
    # What was verified a moment ago does not wait.
    assert isinstance(world.login("guest", "guest").take()[0], commands.Connection.Tune)
    assert (world.broker.failed_logins.accepted, world.broker.failed_logins.refused) == (2, LOGIN_FAILURES_FREE)


def test_few_wait_at_once(world: Any) -> None:
    fail(world, LOGIN_FAILURES_FREE)
    waiting = [world.login("guest", "other") for _ in range(LOGINS_WAITING)]
    assert all(client.take() == [] for client in waiting)
    assert world.login("guest", "other").take()[0].reply_code == 403
    waiting[0].lose()
    assert world.login("guest", "other").take() == []


def test_the_same_password_is_checked_once_for_all_who_come_at_once(world: Any) -> None:
    world.running = False
    clients = [world.socket() for _ in range(5)]
    from pamqp import frame

    start_ok = commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US")
    for client in clients:
        client.connection.receive(b"AMQP\x00\x00\x09\x01" + frame.marshal(start_ok, 0))
    clients[0].connection.lost()  # whose check it is
    world.settle()
    assert world.verified == 1
    assert all(isinstance(client.take()[-1], commands.Connection.Tune) for client in clients[1:])


def test_whoever_is_not_there_takes_as_long_as_a_wrong_password(world: Any) -> None:
    assert world.login("nobody", "x").take()[0].reply_code == 403
    assert world.verified == 1
