"""Class exchange as RabbitMQ answers it (goldens amqp.missing_exchange, amqp.exchange_types)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pamqp import commands

from tests.node.conftest import closed


def again(client: Any) -> None:
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)


def test_missing_exchange(client: Any) -> None:
    client.declare("q")
    text = "NOT_FOUND - no exchange 'absent' in vhost '/'"
    for method in (
        commands.Exchange.Declare(exchange="absent", passive=True),
        commands.Queue.Bind(queue="q", exchange="absent", routing_key="k"),
        commands.Exchange.Bind(destination="absent", source="amq.direct", routing_key="k"),
    ):
        assert closed(client.call(1, method)) == ("channel", 404, text)
        again(client)
    assert isinstance(client.call(1, commands.Exchange.Delete(exchange="absent")), commands.Exchange.DeleteOk)


def test_reserved_and_default(client: Any) -> None:
    default = ("channel", 403, "ACCESS_REFUSED - operation not permitted on the default exchange")
    client.declare("q")
    cases = [
        (
            commands.Exchange.Declare(exchange="amq.mine"),
            ("channel", 403, "ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'"),
        ),
        (
            commands.Exchange.Delete(exchange="amq.direct"),
            (
                "channel",
                403,
                "ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost '/' not allowed",
            ),
        ),
        (commands.Exchange.Declare(exchange="", durable=True), default),
        (commands.Exchange.Declare(exchange="", passive=True), default),
        (commands.Exchange.Delete(exchange=""), default),
        (commands.Queue.Bind(queue="q", exchange="", routing_key="k"), default),
        (commands.Queue.Unbind(queue="q", exchange="", routing_key="q"), default),
    ]
    for method, wanted in cases:
        assert closed(client.call(1, method)) == wanted
        again(client)
    same = commands.Exchange.Declare(exchange="amq.direct", exchange_type="direct", durable=True)
    assert isinstance(client.call(1, same), commands.Exchange.DeclareOk)


def test_unknown_type_closes_the_connection(client: Any) -> None:
    got = client.call(1, commands.Exchange.Declare(exchange="x", exchange_type="sideways"))
    assert closed(got) == ("channel", 406, "PRECONDITION_FAILED - unknown exchange type 'sideways'")
    assert (got.class_id, got.method_id) == (40, 10)


def test_inequivalent(client: Any) -> None:
    client.call(1, commands.Exchange.Declare(exchange="x", exchange_type="direct", durable=True))
    got = client.call(1, commands.Exchange.Declare(exchange="x", exchange_type="fanout", durable=True))
    text = (
        "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'x' in vhost '/': "
        "received 'fanout' but current is 'direct'"
    )
    assert closed(got) == ("channel", 406, text)


def test_bindings_between_exchanges_and_auto_delete(client: Any) -> None:
    client.declare("q")
    client.call(1, commands.Exchange.Declare(exchange="x", exchange_type="direct"))
    client.call(1, commands.Exchange.Declare(exchange="y", exchange_type="fanout"))
    client.call(1, commands.Exchange.Declare(exchange="gone", exchange_type="fanout", auto_delete=True))
    client.call(1, commands.Queue.Bind(queue="q", exchange="x", routing_key="k"))
    client.call(1, commands.Exchange.Bind(destination="y", source="x", routing_key="k"))
    client.call(1, commands.Queue.Bind(queue="q", exchange="y"))
    client.publish(1, "k", exchange="x")
    assert client.count("q") == 1, "one queue gets one copy, whatever ways lead to it"
    client.call(1, commands.Queue.Unbind(queue="q", exchange="x", routing_key="k"))
    client.publish(1, "k", exchange="x")
    assert client.count("q") == 2
    client.call(1, commands.Exchange.Unbind(destination="y", source="x", routing_key="k"))
    client.publish(1, "k", exchange="x")
    assert client.count("q") == 2
    client.call(1, commands.Queue.Bind(queue="q", exchange="gone"))
    client.call(1, commands.Queue.Unbind(queue="q", exchange="gone"))
    got = client.call(1, commands.Exchange.Declare(exchange="gone", passive=True))
    assert closed(got) == ("channel", 404, "NOT_FOUND - no exchange 'gone' in vhost '/'")


def test_delete_if_unused(client: Any) -> None:
    client.declare("q")
    client.call(1, commands.Exchange.Declare(exchange="x", exchange_type="direct"))
    client.call(1, commands.Queue.Bind(queue="q", exchange="x", routing_key="k"))
    got = client.call(1, commands.Exchange.Delete(exchange="x", if_unused=True))
    assert closed(got) == ("channel", 406, "PRECONDITION_FAILED - exchange 'x' in vhost '/' in use")


def test_what_is_wrong_first_is_answered_first(client: Any) -> None:
    """The type, then the name, then the alternate exchange, which has its type on the wire in the text."""
    known = "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'amq.direct' in vhost '/': "
    for value, sent in ((True, "bool"), (bytearray(b"x"), "binary"), (Decimal(5), "decimal")):
        arguments = {"alternate-exchange": value}

        def declare(name: str, kind: str, arguments: Any = arguments) -> Any:
            return commands.Exchange.Declare(exchange=name, exchange_type=kind, durable=True, arguments=arguments)

        for name, text in (
            ("amq.mine", "ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'"),
            ("amq.direct", known + "received 'fanout' but current is 'direct'"),
        ):
            code = 403 if name == "amq.mine" else 406
            assert closed(client.call(1, declare(name, "fanout"))) == ("channel", code, text)
            again(client)
        text = f"PRECONDITION_FAILED - invalid type '{sent}' for arg 'alternate-exchange' in exchange 'x' in vhost '/'"
        assert closed(client.call(1, declare("x", "fanout"))) == ("channel", 406, text)
        again(client)
    got = client.call(1, commands.Exchange.Declare(exchange="x", passive=True))
    assert closed(got)[1] == 404, "a value that is none made an exchange"
    again(client)
    bad = commands.Exchange.Declare(exchange="x", exchange_type="bogus", arguments={"alternate-exchange": 5})
    assert closed(client.call(1, bad)) == ("channel", 406, "PRECONDITION_FAILED - unknown exchange type 'bogus'")


def test_a_binding_without_an_end_is_answered_before_its_arguments(world: Any, client: Any) -> None:
    """404 for what is not there, then 406 for x-match, then 405, as in RabbitMQ 3.10.8."""
    wrong: Any = {"x-match": "wrong"}
    for method, text in (
        (commands.Queue.Bind(queue="none", exchange="amq.headers", arguments=wrong), "no queue 'none' in vhost '/'"),
        (commands.Queue.Bind(queue="none", exchange="none", arguments=wrong), "no exchange 'none' in vhost '/'"),
        (
            commands.Exchange.Bind(destination="none", source="amq.headers", arguments=wrong),
            "no exchange 'none' in vhost '/'",
        ),
    ):
        assert closed(client.call(1, method)) == ("channel", 404, f"NOT_FOUND - {text}")
        again(client)
    world.client().declare("mine", exclusive=True)
    got = client.call(1, commands.Queue.Bind(queue="mine", exchange="amq.headers", arguments=wrong))
    assert closed(got)[:2] == ("channel", 406)
    again(client)
    got = client.call(1, commands.Queue.Bind(queue="mine", exchange="amq.headers", arguments={"x-match": "any"}))
    assert closed(got)[:2] == ("channel", 405)


@pytest.mark.parametrize("key, count", [("#.#.#", 3), ("a.#.b.#.#", 3), ("#.#.#.#", 4)])
def test_keys_with_many_hashes_are_refused_by_topic_exchanges(client: Any, key: str, count: int) -> None:
    """In the words of RabbitMQ 4.3.6, for queues and exchanges; undoing what is not there is no fault."""
    text = f"PRECONDITION_FAILED - Topic binding key '{key}' uses {count} '#' wildcards, at most 2 are allowed"
    client.declare("q")
    client.call(1, commands.Exchange.Declare(exchange="fan", exchange_type="fanout"))
    for bind in (
        commands.Queue.Bind(queue="q", exchange="amq.topic", routing_key=key),
        commands.Exchange.Bind(destination="fan", source="amq.topic", routing_key=key),
    ):
        assert closed(client.call(1, bind)) == ("channel", 406, text)
        again(client)
    for method in (
        commands.Queue.Unbind(queue="q", exchange="amq.topic", routing_key=key),
        commands.Queue.Bind(queue="q", exchange="amq.direct", routing_key=key),
        commands.Queue.Bind(queue="q", exchange="amq.topic", routing_key="##.#.#"),
        commands.Queue.Bind(queue="q", exchange="amq.topic", routing_key="#.a.#"),
    ):
        assert type(client.call(1, method)) in (commands.Queue.BindOk, commands.Queue.UnbindOk)
    assert closed(client.call(1, commands.Queue.Bind(queue="none", exchange="amq.topic", routing_key=key)))[1] == 404
