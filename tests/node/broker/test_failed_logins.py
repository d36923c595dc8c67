"""Logins that fail are counted and slowed down; the memory that costs is bounded."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from pamqp import commands

from mayfly.node.broker.failed_logins import FailedLogins, origin_of
from mayfly.node.broker.password_line import PasswordLine
from mayfly.node.limits import (
    LOGIN_ADDRESSES,
    LOGIN_DELAY_FIRST_MS,
    LOGIN_DELAY_MOST_MS,
    LOGIN_FAILURES_FREE,
    LOGIN_FAILURES_FREE_OF_ORIGIN,
    LOGIN_FAILURES_KEPT_MS,
    LOGINS_WAITING,
    PASSWORD_CHECKS_OF_ORIGIN,
    PASSWORD_CHECKS_WAITING,
)
from tests.node.conftest import CAPABILITIES


def test_delays_grow_to_a_bound_and_end() -> None:
    failed = FailedLogins()
    delays = []
    for _ in range(LOGIN_FAILURES_FREE + 8):
        delays.append(failed.delay_ms("a", "u", 0))
        failed.failed("a", "u", 0)
    assert delays[:LOGIN_FAILURES_FREE] == [0] * LOGIN_FAILURES_FREE
    assert delays[LOGIN_FAILURES_FREE : LOGIN_FAILURES_FREE + 2] == [LOGIN_DELAY_FIRST_MS, 2 * LOGIN_DELAY_FIRST_MS]
    assert delays[-1] == LOGIN_DELAY_MOST_MS
    assert failed.delay_ms("b", "u", 0) == failed.delay_ms("a", "v", 0) == 0
    assert failed.delay_ms("a", "u", LOGIN_FAILURES_KEPT_MS) == LOGIN_DELAY_MOST_MS
    assert failed.delay_ms("a", "u", LOGIN_FAILURES_KEPT_MS + 1) == 0


def test_many_failures_from_an_address_slow_all_users_but_those_that_succeeded_there() -> None:
    failed = FailedLogins()
    failed.succeeded("a", "known")
    for number in range(LOGIN_FAILURES_FREE_OF_ORIGIN):
        assert failed.delay_ms("a", "new", 0) == 0
        failed.failed("a", f"guess {number}", 0)
    assert failed.delay_ms("a", "new", 0) == LOGIN_DELAY_FIRST_MS
    assert failed.delay_ms("a", "known", 0) == failed.delay_ms("b", "new", 0) == 0
    assert failed.delay_ms("a", "new", LOGIN_FAILURES_KEPT_MS + 1) == 0
    assert failed.addresses == 0


def test_memory_is_bounded() -> None:
    failed = FailedLogins()
    for number in range(LOGIN_ADDRESSES + 100):
        failed.failed(str(number), "u" * 10_000, number)
        failed.succeeded(str(number), "u")
    assert (failed.addresses, failed.refused) == (LOGIN_ADDRESSES, LOGIN_ADDRESSES + 100)
    tables = (failed._by_pair._known, failed._succeeded)
    assert [len(table) for table in tables] == [LOGIN_ADDRESSES] * 2
    assert all(len(user) <= 255 for _, user in failed._by_pair._known)
    for _ in range(LOGINS_WAITING):
        assert failed.begin_waiting("a", "u")
    assert not failed.begin_waiting("a", "u") and failed.begin_waiting("a", "v")
    for user in "u" * LOGINS_WAITING + "v":
        failed.end_waiting("a", user)
    assert not failed._waiting


@pytest.mark.parametrize(
    ("peer", "origin"),
    [
        ("10.0.0.1:5672", "10.0.0.1"), ("::ffff:10.0.0.1:5672", "10.0.0.1"), ("::1:5672", "::/64"),
        ("2001:db8:1:2:3:4:5:6:5672", "2001:db8:1:2::/64"), ("fe80::1%eth0:5672", "fe80::/64"), ("unknown", "unknown"),
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
    assert (world.broker.logins.failed.accepted, world.broker.logins.failed.refused) == (2, LOGIN_FAILURES_FREE)


def test_few_wait_at_once(world: Any) -> None:
    fail(world, LOGIN_FAILURES_FREE)
    waiting = [world.login("guest", "other") for _ in range(LOGINS_WAITING)]
    assert all(client.take() == [] for client in waiting)
    assert world.login("guest", "other").take()[0].reply_code == 403
    waiting[0].lose()
    assert world.login("guest", "other").take() == []


def test_whoever_is_turned_away_does_not_prolong_it(world: Any) -> None:
    """Clients that retry, while the throttle refuses them, are served a minute after the last wrong password."""
    fail(world, LOGIN_FAILURES_FREE)
    waiting = [world.login("guest", "guest") for _ in range(LOGINS_WAITING)]
    refused = world.broker.logins.failed.refused
    for second in range(60):
        world.broker.logins.now_ms = second * 1000
        assert world.login("guest", "guest").take()[0].reply_code == 403
    assert world.broker.logins.failed.refused == refused + 60
    for client in waiting:
        client.lose()
    world.broker.logins.now_ms = LOGIN_FAILURES_KEPT_MS + 1
    assert isinstance(world.login("guest", "guest").take()[0], commands.Connection.Tune)


def test_wrong_passwords_of_one_do_not_lock_others_out(world: Any) -> None:
    """All from one address, as behind a load balancer."""
    users = [f"user {number}" for number in range(20)]
    for user in users:
        world.add_user(user, "right")
    fail(world, LOGIN_FAILURES_FREE)
    world.login("guest", "wrong").connection.tick(LOGIN_DELAY_FIRST_MS)
    world.settle()
    clients = [world.login(user, "right") for user in users]
    assert all(isinstance(client.take()[0], commands.Connection.Tune) for client in clients)


def start(world: Any, user: str, password: str) -> Any:
    """A login whose password nobody has looked at yet."""
    from pamqp import frame

    client = world.socket()
    start_ok = commands.Connection.StartOk({}, "PLAIN", f"\0{user}\0{password}", "en_US")
    client.connection.receive(b"AMQP\x00\x00\x09\x01" + frame.marshal(start_ok, 0))
    return client


def test_guesses_that_come_at_once_cost_no_more_checks_than_one_by_one(world: Any) -> None:
    """The first ones count before the next are looked at; then few wait, and the others are turned away."""
    clients = [start(world, "guest", f"guess {number}") for number in range(300)]
    assert world.verified == PASSWORD_CHECKS_OF_ORIGIN
    world.settle()
    assert world.verified < LOGIN_FAILURES_FREE + PASSWORD_CHECKS_OF_ORIGIN
    refused = world.broker.logins.failed.refused
    assert refused == 300 - LOGINS_WAITING
    for client in clients:
        client.connection.tick(LOGIN_DELAY_MOST_MS)
    world.settle()
    assert world.verified < LOGIN_FAILURES_FREE + PASSWORD_CHECKS_OF_ORIGIN + LOGINS_WAITING
    assert world.broker.logins.failed.refused == 300
    assert not world.broker.logins.line._under_way and not world.broker.logins.line._lines


def test_many_right_logins_at_once_stand_in_line(world: Any) -> None:
    for number in range(40):
        world.add_user(str(number), "right")
    clients = [start(world, str(number), "right") for number in range(40)]
    gone, *clients = clients[::-1]
    gone.lose()
    world.settle()
    assert all(isinstance(client.take()[-1], commands.Connection.Tune) for client in clients)
    assert not world.broker.logins.line._under_way and not world.broker.logins.line._lines


def test_a_line_is_bounded_and_an_address_does_not_hold_up_others() -> None:
    line = PasswordLine()
    turns: list[int] = []
    assert all(line.begin("a") for _ in range(PASSWORD_CHECKS_OF_ORIGIN)) and not line.begin("a")
    standing = [line.stand("a", partial(turns.append, number)) for number in range(300)]
    assert standing == [True] * PASSWORD_CHECKS_WAITING + [False] * (300 - PASSWORD_CHECKS_WAITING)
    assert line.begin("b") and not line.stand("c", lambda: None)
    line.end("a")  # none of them begins
    assert turns == list(range(PASSWORD_CHECKS_WAITING))
    assert line.stand("a", lambda: turns.append(line.begin("a")))
    assert line.stand("a", lambda: turns.append(-1))
    line.end("a")
    assert turns[-1] is True


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


def stammer(world: Any, mechanism: str = "PLAIN", response: str = "no user and no password") -> Any:
    """A login of which nobody can tell whose it is."""
    from pamqp import frame

    client = world.socket()
    properties: Any = {"capabilities": CAPABILITIES}
    start_ok = commands.Connection.StartOk(properties, mechanism, response, "en_US")
    client.connection.receive(b"AMQP\x00\x00\x09\x01" + frame.marshal(start_ok, 0))
    world.settle()
    return client


@pytest.mark.parametrize(
    ("mechanism", "response", "why"),
    [
        ("PLAIN", "guest", "the PLAIN response of the client is malformed"),
        ("AMQPLAIN", "\x05LOGINS", "the AMQPLAIN response of the client is malformed"),
        ("EXTERNAL", "", "unknown authentication mechanism 'EXTERNAL'"),
        ("RABBIT-CR-DEMO", "guest", "unknown authentication mechanism 'RABBIT-CR-DEMO'"),
    ],
)
def test_a_login_that_names_nobody_counts(
    world: Any, caplog: pytest.LogCaptureFixture, mechanism: str, response: str, why: str
) -> None:
    """It is logged as others are; the client hears nothing, as of RabbitMQ."""
    client = stammer(world, mechanism, response)
    assert [type(each).__name__ for each in client.take()] == ["Start"] and client.closed
    assert world.broker.logins.failed.refused == 1
    (record,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert record.getMessage().endswith(f"login of '' refused: {why}")


def test_logins_that_name_nobody_are_slowed_as_others_are(world: Any) -> None:
    for _ in range(LOGIN_FAILURES_FREE):
        assert stammer(world).closed
    slowed = [stammer(world) for _ in range(LOGINS_WAITING)]
    assert not any(client.closed for client in slowed)
    assert stammer(world).closed, "few wait at once"
    refused = world.broker.logins.failed.refused
    slowed[0].connection.tick(LOGIN_DELAY_FIRST_MS)
    world.settle()
    assert slowed[0].closed and world.broker.logins.failed.refused == refused + 1
    assert isinstance(world.login("guest", "guest").take()[0], commands.Connection.Tune), "others are not"


def test_many_logins_that_name_nobody_slow_whoever_is_new_from_there(world: Any) -> None:
    for _ in range(LOGIN_FAILURES_FREE_OF_ORIGIN):
        stammer(world).connection.tick(world.broker.logins.now_ms + LOGIN_DELAY_MOST_MS)
        world.settle()
    assert world.login("guest", "guest").take() == []
