"""Where dead messages go (RULES D5, D8)."""
from __future__ import annotations

from typing import Any

import pytest
from pamqp.commands import Basic

from mayfly.cluster.versions import LEVEL_HIGHEST
from mayfly.node.amqp.content import Content
from mayfly.node.catalog import Bind, Catalog, DeclareExchange, DeclareQueue, FoundCluster, QueueRecord, RemoveQueues
from mayfly.node.dead_letter import DeadLetterDecision, DeadLetterRouter
from mayfly.node.dead_letter.publisher_headers import as_stored
from tests.node.amqp.contents import make_exchange_and_key
from tests.node.amqp.headers import build_header


class Source:
    """A queue as the shard remembers it."""

    def __init__(
        self, name: str = "q", exchange: str | None = "", key: str | None = None, vhost: str = "/"
    ) -> None:
        self.vhost = vhost
        self.name = name
        self.dead_letter_exchange = exchange
        self.dead_letter_routing_key = key
        self.ttl_dialect = "rabbitmq"


def message(exchange: str = "", key: str = "q", **properties: Any) -> Content:
    """As its queue keeps it."""
    header = as_stored(build_header(Basic.Properties(**properties), 1))
    return Content(make_exchange_and_key(exchange, key), header, b"m")


@pytest.fixture
def catalog() -> Catalog:
    catalog = Catalog(4)
    catalog.apply(FoundCluster(((1, "n1", "h:1"),), 1, LEVEL_HIGHEST))
    for name in ("q", "dlq", "other"):
        catalog.apply(DeclareQueue("/", name, durable=True))
    return catalog


@pytest.fixture
def router(catalog: Catalog) -> DeadLetterRouter:
    return DeadLetterRouter(catalog)


def names(queues: tuple[QueueRecord, ...]) -> list[str]:
    return sorted(queue.name for queue in queues)


def outcome(decision: DeadLetterDecision) -> tuple[list[str], list[str], bool]:
    return names(decision.targets), names(decision.cycles), decision.unroutable


def test_to_a_queue_by_its_name(router: DeadLetterRouter) -> None:
    decision = router.decide(Source(key="dlq"), message(), "expired", 1)
    assert outcome(decision) == (["dlq"], [], False)
    assert (decision.content.exchange, decision.content.routing_key) == ("", "dlq")
    assert decision.content.body == b"m"


def test_by_the_original_keys(catalog: Catalog, router: DeadLetterRouter) -> None:
    catalog.apply(DeclareExchange("/", "dlx", "direct"))
    catalog.apply(Bind("/", "dlx", "queue", "dlq", "k1"))
    catalog.apply(Bind("/", "dlx", "queue", "other", "k2"))
    carbon = message("x", "k1", headers={"CC": ["k2"]})
    decision = router.decide(Source(exchange="dlx"), carbon, "expired", 1)
    assert outcome(decision) == (["dlq", "other"], [], False)
    assert decision.content.routing_key == "k1"
    assert outcome(router.decide(Source(exchange="dlx", key="k2"), carbon, "expired", 1))[0] == ["other"]


def test_d8_missing_exchange_and_missing_binding(catalog: Catalog, router: DeadLetterRouter) -> None:
    source = Source(exchange="dlx", key="k")
    assert outcome(router.decide(source, message(), "expired", 1)) == ([], [], True)
    catalog.apply(DeclareExchange("/", "dlx", "fanout"))
    assert outcome(router.decide(source, message(), "expired", 1)) == ([], [], True)
    catalog.apply(Bind("/", "dlx", "queue", "dlq"))
    assert outcome(router.decide(source, message(), "expired", 1)) == (["dlq"], [], False)
    queue = catalog.queue("/", "dlq")
    assert queue is not None
    catalog.apply(RemoveQueues((queue.id,)))
    assert outcome(router.decide(source, message(), "expired", 1)) == ([], [], True)


def test_internal_exchange_and_its_bindings(catalog: Catalog, router: DeadLetterRouter) -> None:
    catalog.apply(DeclareExchange("/", "dlx", "fanout", internal=True))
    catalog.apply(DeclareExchange("/", "y", "topic"))
    catalog.apply(Bind("/", "dlx", "exchange", "y"))
    catalog.apply(Bind("/", "y", "queue", "dlq", "#"))
    decision = router.decide(Source(exchange="dlx"), message(), "expired", 1)
    assert outcome(decision) == (["dlq"], [], False)
    assert decision.content.exchange == "dlx"


def test_headers_exchange_sees_the_headers_of_death(catalog: Catalog, router: DeadLetterRouter) -> None:
    arguments = {"x-match": "all-with-x", "x-first-death-reason": "expired", "h": 1}
    catalog.apply(Bind("/", "amq.headers", "queue", "dlq", "", arguments))
    source = Source(exchange="amq.headers")
    for _ in range(2):
        assert outcome(router.decide(source, message(headers={"h": 1}), "expired", 1))[0] == ["dlq"]
        assert router.decide(source, message(headers={"h": 1}), "maxlen", 1).unroutable
        assert router.decide(source, message(headers={"h": 2}), "expired", 1).unroutable


def test_d5_self_cycle(router: DeadLetterRouter) -> None:
    assert outcome(router.decide(Source(), message(), "expired", 1)) == ([], ["q"], False)
    assert outcome(router.decide(Source(), message(), "rejected", 1)) == (["q"], [], False)


def test_d5_dropped_from_the_cycle_alone(catalog: Catalog, router: DeadLetterRouter) -> None:
    for name in ("q", "dlq"):
        catalog.apply(Bind("/", "amq.fanout", "queue", name))
    decision = router.decide(Source(exchange="amq.fanout"), message(), "expired", 1)
    assert outcome(decision) == (["dlq"], ["q"], False)


def test_d5_retry_loop(router: DeadLetterRouter) -> None:
    """A rejection between makes the loop the client's own business, round after round."""
    work, retry = Source("q", key="other"), Source("other", key="q")
    content = message()
    for second in range(4):
        rejected = router.decide(work, content, "rejected", second)
        assert outcome(rejected) == (["other"], [], False)
        expired = router.decide(retry, rejected.content, "expired", second)
        assert outcome(expired) == (["q"], [], False)
        content = expired.content
    unseen = router.decide(work, content, "expired", 9)
    assert outcome(unseen) == ([], ["other"], False), "it was in the other queue since it was rejected last"


def test_d5_loop_of_expiry_alone(router: DeadLetterRouter) -> None:
    first = router.decide(Source("q", key="other"), message(), "expired", 1)
    assert names(first.targets) == ["other"]
    back = router.decide(Source("other", key="q"), first.content, "expired", 2)
    assert outcome(back) == ([], ["q"], False)


def test_alike_messages_keep_their_own_bodies(router: DeadLetterRouter) -> None:
    header, names_octets = message().header, message().exchange_and_key
    for body in (b"1", b"2"):
        decision = router.decide(Source(key="dlq"), Content(names_octets, header, body), "expired", 1)
        assert decision.content.body == body


def test_vhosts_are_apart(catalog: Catalog, router: DeadLetterRouter) -> None:
    assert router.decide(Source(key="dlq"), message(), "expired", 1).targets
    assert router.decide(Source(key="dlq", vhost="v"), message(), "expired", 1).unroutable


def test_a_queue_without_exchange_is_not_asked_about(router: DeadLetterRouter) -> None:
    with pytest.raises(ValueError, match="no dead-letter exchange"):
        router.decide(Source(exchange=None), message(), "expired", 1)
