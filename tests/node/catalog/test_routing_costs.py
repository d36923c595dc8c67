"""What routing may cost is bounded by what a vhost may bind, and graphs of exchanges cost what they have of them."""
from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from mayfly.cluster.versions import LEVEL_ROUTING_WEIGHT
from mayfly.node.catalog import (
    Bind,
    Catalog,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    Done,
    FoundCluster,
    NodeStarted,
    RaiseLevel,
    Refusal,
    RemoveQueues,
    SetPolicy,
    Unbind,
    vhost,
)
from mayfly.node.catalog.exchange import Exchange

WEIGHT = 40


def catalog_of(level: int) -> Catalog:
    catalog = Catalog(1)
    catalog.apply(FoundCluster(((1, "a", "a:1"),), 1, level))
    for name in ("q", "r"):
        catalog.apply(DeclareQueue("/", name, durable=True))
    return catalog


def bound(catalog: Catalog, pattern: str, queue: str = "q", exchange: str = "amq.topic", **arguments: Any) -> Any:
    return catalog.apply(Bind("/", exchange, "queue", queue, pattern, arguments))


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch) -> Catalog:
    monkeypatch.setattr(vhost, "ROUTING_WEIGHT", WEIGHT)
    return catalog_of(LEVEL_ROUTING_WEIGHT)


def test_a_vhost_has_so_many_wild_words_and_headers_in_all_its_exchanges(catalog: Catalog) -> None:
    catalog.apply(DeclareExchange("/", "other", "topic"))
    assert bound(catalog, ".".join("a*" * 10)) == bound(catalog, ".".join("b*" * 5), exchange="other") == Done()
    assert bound(catalog, "", exchange="amq.headers", a=1, b=2, c=3, d=4, e=5, f=6, g=7, h=8) == Done()
    refused = bound(catalog, "a.*.b")
    assert isinstance(refused, Refusal) and refused.code == 406
    assert refused.text.startswith("cannot bind to exchange 'amq.topic' in vhost '/': the bindings of vhost '/' ")
    assert bound(catalog, "", exchange="amq.headers", a=2, b=2, c=2) == refused_by("amq.headers", refused)
    assert bound(catalog, "a.*") == Done(), "there is room for two"
    assert bound(catalog, "a.*") == Done(changed=False) and bound(catalog, "a.*", queue="r") == Done(), "known patterns"
    for free in ("a.b.c.d.e", "a.b.c.#", "#"):
        assert bound(catalog, free) == Done(), "costs nothing"
    catalog.apply(Unbind("/", "other", "queue", "q", ".".join("b*" * 5)))
    assert bound(catalog, "a.*.b") == Done()


def refused_by(exchange: str, refusal: Refusal) -> Refusal:
    return Refusal(refusal.code, refusal.text.replace("amq.topic", exchange))


def test_what_goes_with_an_exchange_or_a_queue_is_free_again(catalog: Catalog) -> None:
    for kind in ("exchange", "queue"):
        catalog.apply(DeclareExchange("/", "other", "topic"))
        catalog.apply(DeclareQueue("/", "gone", durable=True))
        assert bound(catalog, ".".join("a*" * 20), "gone", "other") == Done()
        assert isinstance(bound(catalog, "*"), Refusal)
        if kind == "exchange":
            catalog.apply(DeleteExchange("/", "other"))
        else:
            remove_queue(catalog, "gone")
        assert bound(catalog, "*") == Done()
        catalog.apply(Unbind("/", "amq.topic", "queue", "q", "*"))


def remove_queue(catalog: Catalog, name: str) -> None:
    queue = catalog.queue("/", name)
    assert queue is not None
    catalog.apply(RemoveQueues((queue.id,)))


def test_older_logs_mean_what_they_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a snapshot with more than may be bound now is read, and routed by."""
    monkeypatch.setattr(vhost, "ROUTING_WEIGHT", WEIGHT)
    old = catalog_of(LEVEL_ROUTING_WEIGHT - 1)
    for number in range(5):
        assert bound(old, ".".join("a*" * 10) + f".{number}") == Done()
    restored = Catalog(1)
    restored.restore(old.snapshot())
    assert [queue.name for queue in restored.route("/", "amq.topic", ".".join("ax" * 10) + ".3")] == ["q"]
    restored.apply(NodeStarted(1, 1, "a", levels=(1, LEVEL_ROUTING_WEIGHT)))
    restored.apply(RaiseLevel(LEVEL_ROUTING_WEIGHT, ((1, 1),)))
    assert restored.level == LEVEL_ROUTING_WEIGHT
    assert isinstance(bound(restored, "*"), Refusal)
    assert bound(restored, "a.b") == bound(restored, "k", exchange="amq.direct") == Done(), "costs nothing"


# -- graphs of exchanges --------------------------------------------------------------------------


def matches_of(catalog: Catalog, first: str, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each exchange was asked for a message to the first."""
    asked: Counter[str] = Counter()
    plain = Exchange.match

    def counted(exchange: Exchange, key: str, headers: Any) -> Any:
        asked[exchange.record.name] += 1
        return plain(exchange, key, headers)

    with monkeypatch.context() as patch:
        patch.setattr(Exchange, "match", counted)
        assert [queue.name for queue in catalog.route("/", first, "k")] == ["q"]
    return asked


def test_diamonds_and_rings_of_exchanges_are_walked_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are 2**30 ways from the first to the last, and for ever round."""
    catalog = catalog_of(LEVEL_ROUTING_WEIGHT)
    layers = [[f"{depth} {side}" for side in "ab"] for depth in range(31)]
    for name in [name for layer in layers for name in layer]:
        catalog.apply(DeclareExchange("/", name, "fanout"))
    for above, below in zip(layers, [*layers[1:], layers[0]], strict=True):
        for source in above:
            for destination in below:
                catalog.apply(Bind("/", source, "exchange", destination, ""))
    for name in layers[-1]:
        bound(catalog, "", exchange=name)
    asked = matches_of(catalog, "0 a", monkeypatch)
    assert set(asked.values()) == {1} and len(asked) == 62
    assert not catalog.looks_at_headers("/", "0 a")
    catalog.apply(Bind("/", "30 b", "exchange", "amq.headers", ""))
    assert catalog.looks_at_headers("/", "0 a")
    catalog.apply(Unbind("/", "30 b", "exchange", "amq.headers", ""))
    assert not catalog.looks_at_headers("/", "0 a")


def test_rings_of_alternate_exchanges_are_walked_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = catalog_of(LEVEL_ROUTING_WEIGHT)
    for number in range(50):
        arguments = {"alternate-exchange": f"{(number + 1) % 50}"}
        catalog.apply(DeclareExchange("/", str(number), "direct", arguments=arguments))
    bound(catalog, "k", exchange="49")
    asked = matches_of(catalog, "0", monkeypatch)
    assert len(asked) == 50 and asked.total() == 50
    catalog.apply(SetPolicy("/", "ring", ".*", {"alternate-exchange": "0"}))
    assert matches_of(catalog, "0", monkeypatch) == asked
