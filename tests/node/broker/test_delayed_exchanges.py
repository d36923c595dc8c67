"""Exchanges of the type `x-delayed-message`, as a client sees them, with fake time (RULES S1, S3)."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest
from pamqp import commands

from mayfly.cluster.versions import LEVEL_DELAYED_EXCHANGES
from mayfly.node.catalog import AddVhost, Catalog, DeclareExchange, DeleteVhost, NeedsLevel, Refusal, SetPermissions
from tests.node.readings import statistics_of

TEN_YEARS_MS = 315_360_000_000


def delayed(client: Any, name: str = "later", kind: Any = "direct", channel: int = 1, **options: Any) -> Any:
    arguments = {"x-delayed-type": kind, **options.pop("arguments", {})}
    return client.call(
        channel,
        commands.Exchange.Declare(
            exchange=name, exchange_type="x-delayed-message", durable=True, arguments=arguments, **options
        ),
    )


def bind(client: Any, queue: str = "q", exchange: str = "later", key: str = "k", **arguments: Any) -> None:
    client.call(
        1, commands.Queue.Bind(queue=queue, exchange=exchange, routing_key=key, arguments=arguments)
    )


def publish(client: Any, body: str, delay: Any = None, key: str = "k", exchange: str = "later", **options: Any) -> None:
    headers = dict(options.pop("headers", {}))
    if delay is not None:
        headers["x-delay"] = delay
    client.publish(1, key, body.encode(), exchange=exchange, headers=headers or None, **options)


def bodies(client: Any, queue: str = "q") -> list[str]:
    found = []
    while hasattr(got := client.get(queue), "body"):
        found.append(got.body.decode())
    return found


@pytest.fixture
def ready(client: Any) -> Any:
    """A client that has declared the exchange, and bound a queue to it."""
    delayed(client)
    client.declare("q")
    bind(client)
    return client


def test_s1_s3_a_message_is_routed_when_it_is_due_in_order_of_due_times_then_of_publishing(
    world: Any, ready: Any
) -> None:
    for body, delay in (("c", 3000), ("a", 1000), ("b", 1000), ("now", 0), ("too", None)):
        publish(ready, body, delay)
    assert bodies(ready) == ["now", "too"]
    world.advance(950)
    assert bodies(ready) == []
    world.advance(350)
    assert bodies(ready) == ["a", "b"]
    world.advance(1600)
    assert bodies(ready) == []
    world.advance(400)
    assert bodies(ready) == ["c"]


def test_s1_the_bindings_count_that_there_are_when_it_is_due(world: Any, ready: Any) -> None:
    publish(ready, "m", 1000)
    ready.call(1, commands.Queue.Unbind(queue="q", exchange="later", routing_key="k"))
    ready.declare("other")
    bind(ready, "other")
    world.advance(1300)
    assert bodies(ready) == []
    got = ready.get("other")
    assert got.body == b"m"
    assert (got.method.exchange, got.method.routing_key) == ("later", "k")


def test_s1_the_delay_arrives_negated_and_the_rest_as_it_was(world: Any, ready: Any) -> None:
    publish(ready, "m", 1000, headers={"a": 1, "b": "two"}, message_id="id", expiration="60000", priority=3)
    publish(ready, "large", 40_000)
    publish(ready, "none")
    assert ready.get("q").properties.headers is None
    world.advance(1300)
    properties = ready.get("q").properties
    assert properties.headers == {"a": 1, "b": "two", "x-delay": -1000}
    assert (properties.message_id, properties.expiration, properties.priority) == ("id", "60000", 3)
    world.advance(39_000)
    assert ready.get("q").properties.headers == {"x-delay": -40_000}


@pytest.mark.parametrize(("delay", "negated"), [("500", -500), ("00500", -500), (500.75, -500), ("0", None)])
def test_s1_a_delay_in_digits_or_with_a_fraction_is_one(
    world: Any, ready: Any, delay: Any, negated: int | None
) -> None:
    """S1: as the plugin reads it; it arrives negated, as an integer."""
    publish(ready, "m", delay)
    assert ready.take() == []
    if negated is None:
        assert ready.get("q").properties.headers == {"x-delay": "0"}
        return
    world.advance(450)
    assert bodies(ready) == []
    world.advance(350)
    assert ready.get("q").properties.headers == {"x-delay": negated}


@pytest.mark.parametrize(
    ("kind", "fits", "fails"),
    [("direct", "k", "other"), ("topic", "a.k", "a.other"), ("fanout", "any", None), ("headers", "any", None)],
)
def test_s1_it_routes_as_the_type_it_was_declared_with(
    world: Any, client: Any, kind: str, fits: str, fails: str | None
) -> None:
    delayed(client, kind=kind)
    client.declare("q")
    client.declare("not")
    if kind == "headers":
        bind(client, **{"x-match": "all", "colour": "red"})
        bind(client, "not", **{"x-match": "all", "colour": "blue"})
    else:
        bind(client, key="*.k" if kind == "topic" else "k")
    for delay in (1000, None):
        publish(client, str(delay), delay, fits, headers={"colour": "red"})
        if fails is not None:
            publish(client, "lost", delay, fails)
    assert bodies(client) == ["None"]
    world.advance(1300)
    assert bodies(client) == ["1000"]
    assert bodies(client, "not") == []


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({"x-delay": -1}, "x-delay = -1: an integer from 0 to 315360000000 is expected, milliseconds from now"),
        ({"x-delay": TEN_YEARS_MS + 1}, "x-delay = 315360000001: an integer from 0 to 315360000000 is expected"),
        ({"x-delay": "soon"}, "x-delay = 'soon' (longstr): an integer"),
        ({"x-delay": "-5000"}, "x-delay = '-5000' (longstr): an integer"),
        ({"x-delay": -1.5}, "x-delay = -1.5 (float): an integer"),
        ({"x-delay": math.nan}, "x-delay = nan (float): an integer"),
        ({"x-delay": True}, "x-delay = True (bool): an integer"),
    ],
)
def test_s1_what_is_no_delay_is_refused_and_nothing_is_stored(
    world: Any, ready: Any, headers: dict[str, Any], told: str
) -> None:
    publish(ready, "m", headers=headers)
    (closed,) = ready.take()
    assert closed.reply_code == 406
    assert closed.reply_text.startswith(f"PRECONDITION_FAILED - invalid message: {told}")
    ready.send(1, commands.Channel.CloseOk())
    ready.open_channel(1)
    world.advance(1000)
    assert bodies(ready) == []
    assert waiting(world) == 0


def waiting(world: Any, exchange: str = "later") -> int:
    """How many messages wait for the exchange, in its shard."""
    record = world.cluster.catalog.delay_queue("/", exchange)
    return int(world.cluster.shards[record.shard].shard.queue(record.id).scheduled_count())


def test_s1_a_delay_beyond_what_the_plugin_takes_is_kept(world: Any, ready: Any) -> None:
    """The plugin ends at 2^32 - 1 ms."""
    publish(ready, "m", 2**32 + 5)
    assert ready.take() == []
    assert waiting(world) == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "Invalid argument, 'x-delayed-type' is not there: 'direct', 'fanout', 'headers' or 'topic' is expected"),
        ({"x-delayed-type": "sideways"}, "Invalid argument, 'x-delayed-type' = 'sideways': 'direct', 'fanout'"),
        ({"x-delayed-type": "x-delayed-message"}, "Invalid argument, 'x-delayed-type' = 'x-delayed-message': 'direct'"),
        ({"x-delayed-type": 5}, "Invalid argument, 'x-delayed-type' is of type"),
    ],
)
def test_s1_another_type_is_refused(client: Any, arguments: dict[str, Any], told: str) -> None:
    client.send(
        1, commands.Exchange.Declare(exchange="e", exchange_type="x-delayed-message", arguments=arguments)
    )
    (closed,) = client.take()
    assert closed.reply_code == 406
    assert closed.reply_text.startswith(f"PRECONDITION_FAILED - {told}")


def test_s1_declaring_it_again_needs_the_same_type(client: Any) -> None:
    assert isinstance(delayed(client), commands.Exchange.DeclareOk)
    assert isinstance(delayed(client), commands.Exchange.DeclareOk)
    passive = commands.Exchange.Declare(exchange="later", exchange_type="x-delayed-message", passive=True)
    assert isinstance(client.call(1, passive), commands.Exchange.DeclareOk)
    closed = delayed(client, kind="fanout")
    assert closed.reply_code == 406
    assert "inequivalent arg 'x-delayed-type' for exchange 'later' in vhost '/'" in closed.reply_text


def test_s1_below_its_level_there_is_no_such_type() -> None:
    catalog = Catalog(1)
    command = DeclareExchange("/", "later", "x-delayed-message", True, False, False, {"x-delayed-type": "direct"})
    catalog._state.level = LEVEL_DELAYED_EXCHANGES - 1
    assert isinstance(catalog.apply(command), NeedsLevel)
    catalog._state.level = LEVEL_DELAYED_EXCHANGES
    assert not isinstance(catalog.apply(command), Refusal)


def test_s1_without_a_route_then_it_goes_to_the_alternate_exchange(world: Any, client: Any) -> None:
    client.declare("rest")
    client.call(1, commands.Queue.Bind(queue="rest", exchange="amq.fanout"))
    delayed(client, arguments={"alternate-exchange": "amq.fanout"})
    publish(client, "m", 1000)
    world.advance(1300)
    assert bodies(client, "rest") == ["m"]


def test_s1_without_any_it_is_dropped_counted_and_logged_once(
    world: Any, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    delayed(client)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            publish(client, "m", 1000)
        world.advance(1500)
    assert waiting(world) == 0
    assert sum(statistics_of(it.shard).dropped_due for it in world.cluster.shards.values()) == 3
    told = [record.getMessage() for record in caplog.records if "later" in record.getMessage()]
    assert told == [
        "messages of the delayed exchange 'later' in vhost '/' have no route when they are due, and are dropped"
    ]


def test_s1_a_mandatory_one_without_a_route_comes_back_at_once(world: Any, client: Any) -> None:
    """The plugin knows no mandatory. Who wants to know whether there is a route is told of those that there are."""
    delayed(client)
    publish(client, "m", 1000, mandatory=True)
    (returned,) = client.take()
    assert returned.body == b"m"
    assert waiting(world) == 0
    client.declare("q")
    bind(client)
    publish(client, "m", 1000, mandatory=True)
    assert client.take() == []
    assert waiting(world) == 1


def test_s1_cc_and_bcc_are_keys_at_the_due_time_too(world: Any, client: Any) -> None:
    delayed(client)
    for name in ("k", "cc", "bcc"):
        client.declare(name)
        bind(client, name, key=name)
    publish(client, "m", 1000, headers={"CC": ["cc"], "BCC": ["bcc"]})
    world.advance(1300)
    for name in ("k", "cc", "bcc"):
        assert client.get(name).properties.headers == {"CC": ["cc"], "x-delay": -1000}


def test_s3_a_ttl_counts_from_the_due_time(world: Any, ready: Any) -> None:
    ready.declare("other")
    bind(ready, "other")
    publish(ready, "short", 2000, expiration="1000")
    world.advance(2300)
    assert (ready.count("q"), ready.count("other")) == (1, 1)
    world.advance(1300)
    assert (ready.count("q"), ready.count("other")) == (0, 0)


def test_s3_the_ttl_of_its_queue_counts_from_the_due_time(world: Any, client: Any) -> None:
    delayed(client)
    client.declare("q", arguments={"x-message-ttl": 1000})
    bind(client)
    publish(client, "m", 2000)
    world.advance(2300)
    assert bodies(client) == ["m"]


def test_s1_in_a_transaction_a_delay_counts_from_the_commit(world: Any, ready: Any) -> None:
    ready.open_channel(2)
    ready.call(1, commands.Tx.Select())
    publish(ready, "m", 1000)
    world.advance(3000)
    ready.call(1, commands.Tx.Commit())
    assert not hasattr(ready.get("q", channel=2), "body")
    world.advance(1300)
    assert ready.get("q", channel=2).body == b"m"


def test_s1_a_message_through_another_exchange_waits_too(world: Any, ready: Any) -> None:
    ready.call(1, commands.Exchange.Bind(destination="later", source="amq.topic", routing_key="#"))
    ready.declare("direct")
    ready.call(1, commands.Queue.Bind(queue="direct", exchange="amq.topic", routing_key="k"))
    publish(ready, "m", 1000, exchange="amq.topic")
    assert bodies(ready, "direct") == ["m"]
    assert bodies(ready) == []
    world.advance(1300)
    assert bodies(ready) == ["m"]
    assert bodies(ready, "direct") == []


def test_s1_where_messages_wait_is_found_once_for_each_key_until_routing_changes(
    world: Any, ready: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    delayed(ready, "second")
    ready.call(1, commands.Exchange.Bind(destination="later", source="amq.topic", routing_key="k"))
    plain = Catalog.route
    found: list[str] = []

    def counted(catalog: Catalog, *args: Any, **options: Any) -> Any:
        if options.get("waits"):
            found.append(args[2])
        return plain(catalog, *args, **options)

    monkeypatch.setattr(Catalog, "route", counted)
    for delay in (1000, 2000, 3000):
        publish(ready, "m", delay, exchange="amq.topic")
    assert (found, waiting(world)) == (["k"], 3)
    ready.call(1, commands.Exchange.Bind(destination="second", source="amq.topic", routing_key="k"))
    ready.call(1, commands.Exchange.Unbind(destination="later", source="amq.topic", routing_key="k"))
    publish(ready, "m", 1000, exchange="amq.topic")
    assert (found, waiting(world), waiting(world, "second")) == (["k", "k"], 3, 1)
    for _ in range(2):
        publish(ready, "m", 1000, exchange="amq.topic", headers={"CC": ["other"]})
    assert (found[2:], waiting(world, "second")) == (["k", "k"], 3)


def test_s1_a_value_that_reads_as_the_name_of_a_header_means_nothing(world: Any, ready: Any) -> None:
    publish(ready, "a", headers={"note": "x-schedule-cancel"})
    publish(ready, "b", headers={"note": "x-delay", "x-deliver-at": "never"})
    assert ready.take() == []
    assert (bodies(ready), waiting(world)) == (["a", "b"], 0)


def test_s1_queues_in_the_memory_of_a_node_get_it_too(world: Any, client: Any) -> None:
    delayed(client)
    client.declare("q", exclusive=True, durable=False)
    bind(client)
    publish(client, "m", 1000, expiration="2000")
    world.advance(1300)
    assert client.count("q") == 1
    world.advance(2300)
    assert client.count("q") == 0


@pytest.mark.parametrize("way", ["delete", "last binding", "vhost"])
def test_s1_what_waits_goes_with_the_exchange(world: Any, client: Any, way: str) -> None:
    catalog = world.cluster.catalog
    if way == "vhost":
        catalog.apply(AddVhost("v"))
        catalog.apply(SetPermissions("guest", "v", ".*", ".*", ".*"))
        client = world.client("v")
    delayed(client, auto_delete=way == "last binding")
    client.declare("q")
    bind(client)
    publish(client, "m", 1000)
    record = next(iter(catalog.delay_queues()))
    assert world.cluster.shards[record.shard].shard.queue(record.id).scheduled_count() == 1
    if way == "delete":
        client.call(1, commands.Exchange.Delete(exchange="later"))
    elif way == "last binding":
        client.call(1, commands.Queue.Unbind(queue="q", exchange="later", routing_key="k"))
    else:
        catalog.apply(DeleteVhost("v"))
    assert catalog.delay_queues() == []
    assert catalog.queue_by_id(record.id) is None
    if way != "vhost":
        delayed(client)
        bind(client)
        world.advance(1000)
        assert bodies(client) == []


def test_s1_if_unused_is_about_bindings(client: Any) -> None:
    delayed(client)
    publish(client, "m", 1000)
    delete = commands.Exchange.Delete(exchange="later", if_unused=True)
    assert isinstance(client.call(1, delete), commands.Exchange.DeleteOk)


def test_s1_no_client_sees_the_queue_in_which_it_waits(world: Any, ready: Any) -> None:
    publish(ready, "m", 1000)
    assert [queue.name for queue in world.cluster.catalog.queues()] == ["q"]
    assert world.cluster.catalog.queues_count == 1
    client = world.client()
    assert client.call(1, commands.Queue.Declare(queue="later", passive=True)).reply_code == 404
    # A queue may have the name of the exchange, and is another one.
    ready.declare("later")
    ready.publish(1, "later", b"mine")
    assert bodies(ready, "later") == ["mine"]
    ready.call(1, commands.Queue.Delete(queue="later"))
    world.advance(1300)
    assert bodies(ready) == ["m"]


def test_s1_who_may_not_write_to_it_may_not_delay(world: Any, ready: Any) -> None:
    world.add_user("reader", "secret", "", "", ".*")
    client = world.client(user="reader", password="secret")
    publish(client, "m", 1000)
    (closed,) = client.take()
    assert closed.reply_code == 403
    assert waiting(world) == 0


def change(client: Any, message_id: str, **headers: Any) -> None:
    client.publish(1, "k", b"", exchange="later", mandatory=True, headers={"x-schedule-cancel": message_id, **headers})


def test_s1_s4_what_waits_for_an_exchange_is_cancelled_and_rescheduled(world: Any, ready: Any) -> None:
    for body in ("gone", "sooner", "now", "kept"):
        publish(ready, body, 3000, message_id=body)
    change(ready, "gone")
    change(ready, "sooner", **{"x-delay": 1000})
    change(ready, "now", **{"x-delay": 0})
    assert ready.take() == []
    change(ready, "gone")
    (returned,) = ready.take()
    assert returned.method.reply_text == "NO_ROUTE"
    world.advance(300)
    assert bodies(ready) == ["now"]
    world.advance(1000)
    assert bodies(ready) == ["sooner"]
    world.advance(2500)
    assert bodies(ready) == ["kept"]
    change(ready, "kept")
    assert len(ready.take()) == 1
