"""Exchanges and bindings.

Goldens amqp.exchange_types, amqp.bindings, amqp.reserved_names, amqp.missing_queue, amqp.missing_exchange.
"""
from __future__ import annotations

from typing import Any

import pytest

from mayfly.node.catalog import (
    Bind,
    Catalog,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    Done,
    ExchangeDeclared,
    Refusal,
    Unbind,
)

DEFAULT_REFUSED = Refusal(403, "operation not permitted on the default exchange")


@pytest.fixture
def catalog() -> Catalog:
    catalog = Catalog(4)
    catalog.apply(DeclareQueue("/", "q", durable=True))
    catalog.apply(DeclareExchange("/", "x", "direct", durable=True))
    return catalog


def refusal(catalog: Catalog, command: DeclareExchange) -> Refusal:
    result = catalog.apply(command)
    assert isinstance(result, Refusal), result
    assert catalog.inspect_exchange(command) == result
    return result


def test_predeclared_exchanges() -> None:
    exchanges = {exchange.name: exchange.type for exchange in Catalog(1).exchanges("/")}
    assert exchanges == {
        "": "direct", "amq.direct": "direct", "amq.fanout": "fanout", "amq.headers": "headers",
        "amq.match": "headers", "amq.topic": "topic",
    }


def test_declare_and_declare_again(catalog: Catalog) -> None:
    command = DeclareExchange("/", "y", "topic", durable=True, arguments={"x-odd": 1})
    first = catalog.apply(command)
    assert isinstance(first, ExchangeDeclared)
    assert first.created
    again = DeclareExchange("/", "y", "topic", durable=True, arguments={"x-odd": "other"})
    assert catalog.apply(again) == ExchangeDeclared(first.exchange, created=False)
    predeclared = catalog.apply(DeclareExchange("/", "amq.direct", "direct", durable=True))
    assert isinstance(predeclared, ExchangeDeclared)
    assert not predeclared.created


@pytest.mark.parametrize(
    "changes, told",
    [
        ({"type": "fanout"}, ("type", "'fanout' but current is 'direct'")),
        ({"durable": False}, ("durable", "'false' but current is 'true'")),
        ({"auto_delete": True}, ("auto_delete", "'true' but current is 'false'")),
        ({"internal": True}, ("internal", "'true' but current is 'false'")),
        (
            {"arguments": {"alternate-exchange": "a"}},
            ("alternate-exchange", "the value 'a' of type 'longstr' but current is none"),
        ),
    ],
)
def test_inequivalent_declare(catalog: Catalog, changes: dict[str, Any], told: tuple[str, str]) -> None:
    flags: dict[str, Any] = {"type": "direct", "durable": True, **changes}
    assert refusal(catalog, DeclareExchange("/", "x", **flags)) == Refusal(
        406, f"inequivalent arg '{told[0]}' for exchange 'x' in vhost '/': received {told[1]}"
    )


def test_unknown_type_closes_the_connection(catalog: Catalog) -> None:
    command = DeclareExchange("/", "odd", "sideways")
    assert refusal(catalog, command) == Refusal(406, "unknown exchange type 'sideways'")


def test_alternate_exchange_must_be_a_string(catalog: Catalog) -> None:
    command = DeclareExchange("/", "y", "direct", arguments={"alternate-exchange": 5})
    assert refusal(catalog, command) == Refusal(
        406, "invalid type 'signedint' for arg 'alternate-exchange' in exchange 'y' in vhost '/'"
    )


def test_reserved_and_default_names(catalog: Catalog) -> None:
    assert refusal(catalog, DeclareExchange("/", "amq.mine", "direct")) == Refusal(
        403, "exchange name 'amq.mine' contains reserved prefix 'amq.*'"
    )
    assert refusal(catalog, DeclareExchange("/", "", "direct", durable=True)) == DEFAULT_REFUSED
    assert catalog.apply(DeleteExchange("/", "")) == DEFAULT_REFUSED
    assert catalog.apply(DeleteExchange("/", "amq.direct")) == Refusal(
        403, "deletion of system exchange 'amq.direct' in vhost '/' not allowed"
    )
    assert catalog.apply(Bind("/", "", "queue", "q", "k")) == DEFAULT_REFUSED
    assert catalog.apply(Unbind("/", "", "queue", "q", "q")) == DEFAULT_REFUSED
    assert catalog.apply(Bind("/", "x", "exchange", "")) == DEFAULT_REFUSED


def test_missing_ends(catalog: Catalog) -> None:
    no_queue = Refusal(404, "no queue 'absent' in vhost '/'")
    no_exchange = Refusal(404, "no exchange 'absent' in vhost '/'")
    assert catalog.apply(Bind("/", "amq.direct", "queue", "absent", "k")) == no_queue
    assert catalog.apply(Bind("/", "absent", "queue", "q", "k")) == no_exchange
    assert catalog.apply(Bind("/", "amq.direct", "exchange", "absent", "k")) == no_exchange
    assert catalog.apply(Unbind("/", "amq.direct", "queue", "absent", "k")) == Done(changed=False)
    assert catalog.apply(Unbind("/", "absent", "queue", "q", "k")) == Done(changed=False)
    assert catalog.apply(DeleteExchange("/", "absent")) == Done(changed=False)
    assert catalog.find_exchange("/", "absent") == no_exchange
    assert catalog.find_exchange_to_publish("/", "absent") == no_exchange


def test_internal_exchange_takes_no_publishes(catalog: Catalog) -> None:
    catalog.apply(DeclareExchange("/", "in", "fanout", internal=True))
    assert catalog.find_exchange_to_publish("/", "in") == Refusal(
        403, "cannot publish to internal exchange 'in' in vhost '/'"
    )


def test_binding_twice_is_once(catalog: Catalog) -> None:
    bind = Bind("/", "x", "queue", "q", "k", {"b": 1, "a": [1, {"c": None}]})
    assert catalog.apply(bind) == Done(changed=True)
    version = catalog.routing_version
    same = Bind("/", "x", "queue", "q", "k", {"a": [1, {"c": None}], "b": 1})
    assert catalog.apply(same) == Done(changed=False)
    assert catalog.routing_version == version
    assert len(list(catalog.bindings("/"))) == 1
    other = Bind("/", "x", "queue", "q", "k", {"b": True, "a": [1, {"c": None}]})
    assert catalog.apply(other) == Done(changed=True)
    assert [queue.name for queue in catalog.route("/", "x", "k")] == ["q"], "two bindings, one copy"
    assert catalog.apply(Unbind("/", "x", "queue", "q", "k")) == Done(changed=False)
    assert catalog.apply(Unbind("/", "x", "queue", "q", "k", bind.arguments)) == Done(changed=True)
    assert [queue.name for queue in catalog.route("/", "x", "k")] == ["q"]
    assert catalog.apply(Unbind("/", "x", "queue", "q", "k", other.arguments)) == Done(changed=True)
    assert catalog.route("/", "x", "k") == ()


def test_delete_if_unused(catalog: Catalog) -> None:
    catalog.apply(Bind("/", "x", "queue", "q", "k"))
    assert catalog.apply(DeleteExchange("/", "x", if_unused=True)) == Refusal(
        406, "exchange 'x' in vhost '/' in use"
    )
    assert catalog.apply(DeleteExchange("/", "x")) == Done()
    assert catalog.exchange("/", "x") is None
    assert not any(binding.destination == "q" for binding in catalog.bindings("/"))
    assert catalog.apply(DeleteExchange("/", "x", if_unused=True)) == Done(changed=False)


def test_auto_delete_goes_with_its_last_binding(catalog: Catalog) -> None:
    catalog.apply(DeclareExchange("/", "ad", "fanout", auto_delete=True))
    assert catalog.exchange("/", "ad") is not None, "it waits for its first binding"
    catalog.apply(Bind("/", "ad", "queue", "q", "one"))
    catalog.apply(Bind("/", "ad", "queue", "q", "two"))
    catalog.apply(Unbind("/", "ad", "queue", "q", "one"))
    assert catalog.exchange("/", "ad") is not None
    catalog.apply(Unbind("/", "ad", "queue", "q", "two"))
    assert catalog.find_exchange("/", "ad") == Refusal(404, "no exchange 'ad' in vhost '/'")


def test_auto_delete_goes_on_up_a_long_chain(catalog: Catalog) -> None:
    """Each goes because the one it leads to went; no depth of the chain may matter to a replica."""
    length = 3000
    for number in range(length):
        catalog.apply(DeclareExchange("/", f"ad{number}", "fanout", auto_delete=True))
    for number in range(length - 1):
        catalog.apply(Bind("/", f"ad{number}", "exchange", f"ad{number + 1}"))
    catalog.apply(Bind("/", f"ad{length - 1}", "queue", "q"))
    assert len(catalog.route("/", "ad0", "k")) == 1
    catalog.apply(Unbind("/", f"ad{length - 1}", "queue", "q"))
    assert all(catalog.exchange("/", f"ad{number}") is None for number in range(length))
    assert list(catalog.bindings("/")) == []


def test_a_ring_of_auto_delete_exchanges(catalog: Catalog) -> None:
    for name in "abc":
        catalog.apply(DeclareExchange("/", name, "fanout", auto_delete=True))
    for source, destination in ("ab", "bc", "ca", "aa"):
        catalog.apply(Bind("/", source, "exchange", destination))
    catalog.apply(DeleteExchange("/", "a"))
    assert [catalog.exchange("/", name) for name in "abc"] == [None, None, None]
    assert list(catalog.bindings("/")) == []


@pytest.mark.parametrize("mode", ["all", "any", "all-with-x", "any-with-x"])
def test_x_match_taken(catalog: Catalog, mode: str) -> None:
    assert catalog.apply(Bind("/", "amq.headers", "queue", "q", "", {"x-match": mode})) == Done()


def test_x_match_refused(catalog: Catalog) -> None:
    assert catalog.apply(Bind("/", "amq.headers", "queue", "q", "", {"x-match": "some"})) == Refusal(
        406, 'Invalid x-match field value <<"some">>; expected all, any, all-with-x, or any-with-x'
    )
    assert catalog.apply(Bind("/", "amq.headers", "queue", "q", "", {"x-match": 5})) == Refusal(
        406, "Invalid x-match field type signedint (value 5); expected longstr"
    )
    assert catalog.apply(Bind("/", "amq.direct", "queue", "q", "", {"x-match": 5})) == Done()
