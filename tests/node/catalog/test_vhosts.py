"""What is said of vhosts, and the type of queues that name none (rabbit_amqqueue:augment_declare_args, 4.3)."""

from __future__ import annotations

from typing import Any

import pytest

from mayfly.cluster.versions import LEVEL_HIGHEST, LEVEL_VHOST_METADATA
from mayfly.node.catalog import (
    AddVhost,
    Catalog,
    DeclareQueue,
    DescribeVhost,
    Done,
    NeedsLevel,
    QueueDeclared,
    Refusal,
    SetGlobalParameter,
)


@pytest.fixture
def catalog() -> Catalog:
    catalog = Catalog(1)
    catalog._state.level = LEVEL_HIGHEST
    return catalog


def declared(catalog: Catalog, name: str, arguments: dict[str, Any] | None = None, **flags: Any) -> dict[str, Any]:
    """The arguments of the queue that is made."""
    command = DeclareQueue("/", name, arguments=arguments or {}, node_id=1, incarnation=1, connection="c", **flags)
    met = catalog.inspect_queue(command)
    assert met is None, met
    result = catalog.apply(command)
    assert isinstance(result, QueueDeclared), result
    assert catalog.inspect_queue(command) == result.queue, "it is the same when it is declared again"
    return result.queue.arguments


@pytest.mark.parametrize("kind", ["quorum", "stream"])
def test_a_queue_without_a_type_is_of_its_vhosts_where_it_can_be(catalog: Catalog, kind: str) -> None:
    catalog.apply(DescribeVhost("/", default_queue_type=kind))
    assert declared(catalog, "q", durable=True) == {"x-queue-type": kind}
    assert declared(catalog, "transient") == {}
    assert declared(catalog, "exclusive", exclusive=True, durable=True) == {}
    assert declared(catalog, "auto-delete", auto_delete=True, durable=True) == {}
    typed = {"x-queue-type": "classic"}
    assert declared(catalog, "typed", typed, durable=True) == typed
    refused = catalog.inspect_queue(DeclareQueue("/", "typed", True))
    assert isinstance(refused, Refusal) and "inequivalent arg 'x-queue-type'" in refused.text


def test_what_goes_with_the_type_goes_with_the_default(catalog: Catalog) -> None:
    catalog.apply(DescribeVhost("/", default_queue_type="quorum"))
    declared(catalog, "q", durable=True)
    queue = catalog.queue("/", "q")
    assert queue is not None and queue.settings.delivery_limit == 20
    catalog.apply(DescribeVhost("/", default_queue_type="stream"))
    refused = catalog.apply(DeclareQueue("/", "ttl", True, arguments={"x-message-ttl": 5}))
    assert isinstance(refused, Refusal) and "x-message-ttl" in refused.text


@pytest.mark.parametrize("kind", ["", "classic"])
def test_classic_is_as_none(catalog: Catalog, kind: str) -> None:
    catalog.apply(DescribeVhost("/", default_queue_type=kind))
    assert declared(catalog, "q", durable=True) == {}


def test_what_is_not_said_stays(catalog: Catalog) -> None:
    assert catalog.apply(DescribeVhost("/", ("a",), "quorum", True)) == Done()
    assert catalog.apply(DescribeVhost("/")) == Done(changed=False)
    assert catalog.apply(DescribeVhost("/", tags=())) == Done()
    catalog.apply(AddVhost("/", "words"))
    vhost = catalog.vhost("/")
    assert vhost is not None
    assert (vhost.description, vhost.tags, vhost.default_queue_type, vhost.protected) == ("words", (), "quorum", True)
    for command in (DescribeVhost("none", ("a",)), DescribeVhost("/", default_queue_type="jms")):
        assert isinstance(catalog.apply(command), Refusal)
    assert catalog.vhost("/") == vhost


def test_before_all_members_know_it_nothing_is_said(catalog: Catalog) -> None:
    catalog._state.level = LEVEL_VHOST_METADATA - 1
    before = catalog.snapshot()
    for command in (DescribeVhost("/", ("a",)), SetGlobalParameter("n", 1)):
        assert isinstance(catalog.apply(command), NeedsLevel)
    assert catalog.snapshot() == before


def test_c1_it_is_in_the_snapshot(catalog: Catalog) -> None:
    plain, again = catalog.snapshot(), Catalog(1)
    catalog.apply(DescribeVhost("/", ("a",), "stream", True))
    catalog.apply(SetGlobalParameter("cluster_name", "mine"))
    again.restore(catalog.snapshot())
    assert again.snapshot() == catalog.snapshot() != plain
    assert again.cluster_name == "mine" and again.vhosts() == catalog.vhosts()
