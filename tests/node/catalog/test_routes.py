"""Routing through exchanges of all kinds (goldens amqp.alternate_exchange, amqp.bindings, dlx.*)."""
from __future__ import annotations

from typing import Any

import pytest

from mayfly.node.catalog import Bind, Catalog, DeclareExchange, DeclareQueue, DeleteExchange, Unbind


@pytest.fixture
def catalog() -> Catalog:
    catalog = Catalog(4)
    for name in ("a", "b", "c"):
        catalog.apply(DeclareQueue("/", name, durable=True))
    return catalog


def exchange(catalog: Catalog, name: str, kind: str = "direct", **flags: Any) -> None:
    catalog.apply(DeclareExchange("/", name, kind, **flags))


def route(
    catalog: Catalog, name: str, key: str = "", headers: dict[str, Any] | None = None,
    extra_keys: tuple[str, ...] = (),
) -> str:
    queues = catalog.route("/", name, key, headers, extra_keys)
    assert len(queues) == len({queue.id for queue in queues})
    return "".join(sorted(queue.name for queue in queues))


def test_default_exchange(catalog: Catalog) -> None:
    assert route(catalog, "", "a") == "a"
    assert route(catalog, "", "absent") == ""
    assert route(catalog, "", "a", extra_keys=("b", "absent", "a")) == "ab"


def test_absent_exchange_and_vhost(catalog: Catalog) -> None:
    assert route(catalog, "absent", "a") == ""
    assert catalog.route("nowhere", "", "a") == ()


def test_direct(catalog: Catalog) -> None:
    for queue, key in (("a", "k"), ("b", "k"), ("b", "l"), ("c", "l")):
        catalog.apply(Bind("/", "amq.direct", "queue", queue, key))
    assert route(catalog, "amq.direct", "k") == "ab"
    assert route(catalog, "amq.direct", "l") == "bc"
    assert route(catalog, "amq.direct", "k", extra_keys=("l",)) == "abc"
    assert route(catalog, "amq.direct", "m") == ""
    catalog.apply(Unbind("/", "amq.direct", "queue", "b", "k"))
    assert route(catalog, "amq.direct", "k") == "a"


def test_fanout(catalog: Catalog) -> None:
    assert route(catalog, "amq.fanout", "any") == ""
    for queue, key in (("a", "k"), ("a", "l"), ("b", "")):
        catalog.apply(Bind("/", "amq.fanout", "queue", queue, key))
    assert route(catalog, "amq.fanout", "any") == "ab"
    assert route(catalog, "amq.fanout", "any", extra_keys=("more",)) == "ab"
    catalog.apply(Unbind("/", "amq.fanout", "queue", "a", "k"))
    assert route(catalog, "amq.fanout", "any") == "ab"
    catalog.apply(Unbind("/", "amq.fanout", "queue", "a", "l"))
    assert route(catalog, "amq.fanout", "any") == "b"


def test_topic_reaches_each_queue_once(catalog: Catalog) -> None:
    for queue, key in (("a", "#"), ("a", "x.*"), ("b", "x.y"), ("c", "z")):
        catalog.apply(Bind("/", "amq.topic", "queue", queue, key))
    assert route(catalog, "amq.topic", "x.y") == "ab"
    assert route(catalog, "amq.topic", "x.y", extra_keys=("z",)) == "abc"


@pytest.mark.parametrize(
    "arguments, headers, matches",
    [
        ({"x-match": "all", "k": 1, "l": "v"}, {"k": 1, "l": "v", "m": 0}, True),
        ({"x-match": "all", "k": 1, "l": "v"}, {"k": 1}, False),
        ({"k": 1, "l": "v"}, {"k": 1, "l": "w"}, False),
        ({"x-match": "any", "k": 1, "l": "v"}, {"k": 2, "l": "v"}, True),
        ({"x-match": "any", "k": 1, "l": "v"}, {"k": 2}, False),
        ({"x-match": "any"}, {"k": 2}, False),
        ({"x-match": "all"}, {"k": 2}, True),
        ({}, None, True),
        ({"x-match": "all", "k": None}, {"k": "whatever"}, True),
        ({"x-match": "all", "k": None}, {}, False),
        ({"k": 1}, {"k": True}, False),
        ({"k": 1}, {"k": 1.0}, False),
        ({"k": 1}, {"k": "1"}, False),
        ({"k": [1, {"n": "v"}]}, {"k": [1, {"n": "v"}]}, True),
        ({"k": b"\xff"}, {"k": bytearray(b"\xff")}, True),
        ({"x-match": "all", "x-death-reason": "expired"}, {}, True),
        ({"x-match": "all-with-x", "x-death-reason": "expired"}, {}, False),
        ({"x-match": "all-with-x", "x-death-reason": "expired"}, {"x-death-reason": "expired"}, True),
        ({"x-match": "any", "x-first": "1", "k": 1}, {"x-first": "1"}, False),
        ({"x-match": "any-with-x", "x-first": "1", "k": 1}, {"x-first": "1"}, True),
    ],
)
def test_headers(
    catalog: Catalog, arguments: dict[str, Any], headers: dict[str, Any] | None, matches: bool
) -> None:
    catalog.apply(Bind("/", "amq.headers", "queue", "a", "", arguments))
    assert route(catalog, "amq.headers", "k", headers) == ("a" if matches else "")
    catalog.apply(Unbind("/", "amq.headers", "queue", "a", "", arguments))
    assert route(catalog, "amq.headers", "k", headers) == ""


def test_exchange_to_exchange(catalog: Catalog) -> None:
    exchange(catalog, "x")
    exchange(catalog, "y", "fanout")
    catalog.apply(Bind("/", "x", "queue", "a", "k"))
    catalog.apply(Bind("/", "x", "exchange", "y", "k"))
    catalog.apply(Bind("/", "y", "queue", "a"))
    catalog.apply(Bind("/", "y", "queue", "b"))
    assert route(catalog, "x", "k") == "ab"
    assert route(catalog, "x", "other") == ""
    catalog.apply(Unbind("/", "x", "exchange", "y", "k"))
    assert route(catalog, "x", "k") == "a"
    catalog.apply(Bind("/", "x", "exchange", "y", "k"))
    catalog.apply(DeleteExchange("/", "y"))
    assert route(catalog, "x", "k") == "a"


def test_rings_of_exchanges_end(catalog: Catalog) -> None:
    for name in ("x", "y", "z"):
        exchange(catalog, name, "fanout")
    for source, destination in (("x", "y"), ("y", "z"), ("z", "x"), ("x", "x")):
        catalog.apply(Bind("/", source, "exchange", destination))
    catalog.apply(Bind("/", "z", "queue", "c"))
    for name in ("x", "y", "z"):
        assert route(catalog, name, "k") == "c"


def test_alternate_exchange(catalog: Catalog) -> None:
    exchange(catalog, "x", arguments={"alternate-exchange": "ae"})
    catalog.apply(Bind("/", "x", "queue", "a", "k"))
    assert route(catalog, "x", "other") == "", "a missing alternate is none"
    exchange(catalog, "ae", "fanout")
    catalog.apply(Bind("/", "ae", "queue", "b"))
    assert route(catalog, "x", "other") == "b"
    assert route(catalog, "x", "k") == "a"
    assert route(catalog, "x", "other", extra_keys=("k",)) == "a"


def test_alternate_of_an_empty_fanout_and_topic(catalog: Catalog) -> None:
    for kind in ("fanout", "topic", "headers"):
        exchange(catalog, f"x.{kind}", kind, arguments={"alternate-exchange": "amq.direct"})
        catalog.apply(Bind("/", "amq.direct", "queue", "c", "k"))
        assert route(catalog, f"x.{kind}", "k") == "c"


def test_alternates_chain_and_ring(catalog: Catalog) -> None:
    exchange(catalog, "x", arguments={"alternate-exchange": "y"})
    exchange(catalog, "y", arguments={"alternate-exchange": "x"})
    assert route(catalog, "x", "k") == ""
    exchange(catalog, "z", arguments={"alternate-exchange": ""})
    assert route(catalog, "z", "b") == "b", "the default exchange as the alternate"


def test_alternate_is_not_taken_when_a_binding_led_nowhere(catalog: Catalog) -> None:
    """The exchange did route the message: to an exchange that had no use for it."""
    exchange(catalog, "x", "fanout", arguments={"alternate-exchange": "ae"})
    exchange(catalog, "ae", "fanout")
    catalog.apply(Bind("/", "ae", "queue", "b"))
    exchange(catalog, "y", "fanout")
    catalog.apply(Bind("/", "x", "exchange", "y"))
    assert route(catalog, "x", "k") == ""


def test_routing_version_tells_every_change(catalog: Catalog) -> None:
    versions = [catalog.routing_version]
    for command in (
        DeclareQueue("/", "new", durable=True),
        DeclareExchange("/", "x", "fanout", auto_delete=True),
        Bind("/", "x", "queue", "a"),
        Unbind("/", "x", "queue", "a"),
        DeclareExchange("/", "y", "fanout"),
        DeleteExchange("/", "y"),
    ):
        catalog.apply(command)
        versions.append(catalog.routing_version)
    catalog.restore(catalog.snapshot())
    versions.append(catalog.routing_version)
    assert versions == sorted(set(versions))


def test_who_looks_at_headers(catalog: Catalog) -> None:
    exchange(catalog, "x")
    exchange(catalog, "y", arguments={"alternate-exchange": "amq.headers"})
    assert catalog.looks_at_headers("/", "amq.headers")
    assert catalog.looks_at_headers("/", "y")
    assert not catalog.looks_at_headers("/", "x")
    assert not catalog.looks_at_headers("/", "absent")
    assert not catalog.looks_at_headers("nowhere", "x")
    catalog.apply(Bind("/", "x", "exchange", "y", "k"))
    assert catalog.looks_at_headers("/", "x")
    catalog.apply(Unbind("/", "x", "exchange", "y", "k"))
    assert not catalog.looks_at_headers("/", "x")


def test_who_may_reach_a_queue(catalog: Catalog) -> None:
    """By any key, through bindings of exchanges and alternates; the default exchange by its name alone."""
    for name in ("x", "y"):
        exchange(catalog, name)
    exchange(catalog, "z", arguments={"alternate-exchange": "y"})
    catalog.apply(Bind("/", "x", "queue", "a", "k"))
    catalog.apply(Bind("/", "y", "exchange", "x", "k"))
    for name in ("x", "y", "z"):
        assert catalog.may_reach("/", name, None, "a") and catalog.may_reach("/", name, "other", "a")
        assert not catalog.may_reach("/", name, "b", "b")
    assert catalog.may_reach("/", "", None, "b") and catalog.may_reach("/", "", "b", "b")
    assert not catalog.may_reach("/", "", "a", "b")
    assert not catalog.may_reach("nowhere", "", None, "a") and not catalog.may_reach("/", "absent", None, "a")
    catalog.apply(Unbind("/", "y", "exchange", "x", "k"))
    assert catalog.may_reach("/", "x", None, "a") and not catalog.may_reach("/", "z", None, "a")
