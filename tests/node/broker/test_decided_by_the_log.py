"""What a client may do is decided where the log decides: nothing that changes on the way there gets round it (D10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pamqp import commands, frame

from mayfly.cluster.versions import LEVEL_RIGHTS
from mayfly.node.catalog import (
    Catalog,
    CatalogCommand,
    ClearPermissions,
    DeclareExchange,
    DeclareQueue,
    SetLimit,
    SetPermissions,
    SetTopicPermissions,
)
from tests.node.conftest import World

FORBIDDEN = "forbidden"
TO_FORBIDDEN: Any = {"x-dead-letter-exchange": FORBIDDEN}
AROUND = range(12)
"""How many steps the second command is behind the first: one of them is in between whatever the first does."""


def is_refused(got: Any, what: str) -> bool:
    assert isinstance(got, commands.Channel.Close), got
    assert got.reply_text == f"ACCESS_REFUSED - access to {what} in vhost '/' refused for user 'u'"
    return got.reply_code == 403


@pytest.fixture
def user(world: Any) -> Any:
    """One that may use what begins with "mine", and nothing else."""
    world.add_user("u", "pw", "^mine", "^mine", "^mine")
    world.client().call(1, commands.Exchange.Declare(exchange=FORBIDDEN, exchange_type="fanout"))
    client = world.client(user="u", password="pw")
    client.open_channel(2)
    return client


def behind(steps: int, channel: int, method: Any) -> bytes:
    """A method that is looked at some steps after what stands before it: those in front of it take one each."""
    fillers = [commands.Queue.Declare(queue="mine.filler", passive=True)] * steps
    return b"".join(frame.marshal(each, channel) for each in [*fillers, method])


def in_one_piece(client: Any, steps: int, first: Any, then: Any) -> None:
    """`first` on one channel, `then` on the other."""
    client.declare("mine.filler")
    client.send_bytes(frame.marshal(first, 2) + behind(steps, 1, then))


@pytest.mark.parametrize("steps", AROUND)
@pytest.mark.parametrize("before", [{}, TO_FORBIDDEN], ids=["another", "the same"])
def test_d10_a_queue_that_is_deleted_meanwhile_is_not_made_anew_with_a_forbidden_exchange(
    world: Any, user: Any, steps: int, before: dict[str, Any]
) -> None:
    assert isinstance(world.client().declare("mine", arguments=before), commands.Queue.DeclareOk)
    declare = commands.Queue.Declare(queue="mine", durable=True, arguments=TO_FORBIDDEN)
    in_one_piece(user, steps, commands.Queue.Delete(queue="mine"), declare)
    there = world.cluster.catalog.queue("/", "mine")
    assert there is None or (before and there.id == 1), "either it was gone, or what was there has been looked up"


@pytest.mark.parametrize("steps", AROUND)
def test_nor_is_an_exchange_with_a_forbidden_alternate(world: Any, user: Any, steps: int) -> None:
    user.call(1, commands.Exchange.Declare(exchange="mine"))
    alternate: Any = {"alternate-exchange": FORBIDDEN}
    declare = commands.Exchange.Declare(exchange="mine", arguments=alternate)
    in_one_piece(user, steps, commands.Exchange.Delete(exchange="mine"), declare)
    assert world.cluster.catalog.exchange("/", "mine") is None or not world.cluster.catalog.exchange(
        "/", "mine"
    ).arguments


@pytest.mark.parametrize("steps", AROUND)
def test_d10_two_connections_are_no_way_round_either(world: Any, user: Any, steps: int) -> None:
    other = world.client(user="u", password="pw")
    other.declare("mine")
    other.declare("mine.filler")
    world.running = False
    other.send(1, commands.Queue.Delete(queue="mine"))
    user.send_bytes(behind(steps, 1, commands.Queue.Declare(queue="mine", durable=True, arguments=TO_FORBIDDEN)))
    world.running = True
    world.settle()
    assert world.cluster.catalog.queue("/", "mine") is None


@pytest.mark.parametrize("steps", range(4))
def test_an_exchange_that_becomes_a_topic_exchange_meanwhile(world: Any, user: Any, steps: int) -> None:
    """Keys of a topic exchange are checked, those of others are not."""
    world.cluster.catalog.apply(SetTopicPermissions("u", "/", "mine", "^a", "^a"))
    user.call(1, commands.Exchange.Declare(exchange="mine"))
    user.declare("mine.filler")
    user.open_channel(3)
    user.take()
    user.send_bytes(
        frame.marshal(commands.Exchange.Delete(exchange="mine", nowait=True), 2)
        + frame.marshal(commands.Exchange.Declare(exchange="mine", exchange_type="topic", nowait=True), 2)
        + behind(steps, 3, commands.Queue.Bind(queue="mine.filler", exchange="mine", routing_key="b"))
    )
    topic = world.cluster.catalog.exchange("/", "mine")
    assert topic is not None and topic.type == "topic"
    assert [binding.routing_key for binding in world.cluster.catalog.bindings("/")] == []


def declare_queue(client: Any) -> Any:
    return commands.Queue.Declare(queue="mine.new", durable=True)


def declare_exchange(client: Any) -> Any:
    return commands.Exchange.Declare(exchange="mine.new")


def delete_exchange(client: Any) -> Any:
    client.call(1, commands.Exchange.Declare(exchange="mine.old"))
    return commands.Exchange.Delete(exchange="mine.old")


def bind(client: Any) -> Any:
    client.call(1, commands.Exchange.Declare(exchange="mine.old"))
    client.declare("mine.filler")
    return commands.Queue.Bind(queue="mine.filler", exchange="mine.old", routing_key="k")


def unbind(client: Any) -> Any:
    client.call(1, bind(client))
    return commands.Queue.Unbind(queue="mine.filler", exchange="mine.old", routing_key="k")


ASKING = [declare_queue, declare_exchange, delete_exchange, bind, unbind]


def things(world: Any) -> tuple[list[str], list[str], int]:
    catalog = world.cluster.catalog
    names = [queue.name for queue in catalog.queues("/")], [exchange.name for exchange in catalog.exchanges("/")]
    return (*names, len(list(catalog.bindings("/"))))


@pytest.mark.parametrize("ask", ASKING)
def test_d10_permissions_that_are_cleared_on_the_way_do_not_count(
    world: Any, user: Any, ask: Callable[[Any], Any]
) -> None:
    method = ask(user)
    before = things(world)
    # As from another node: it stands in the log before what is checked here meanwhile.
    world.cluster.submit_catalog(ClearPermissions("u", "/"), lambda _: None)
    got = user.call(1, method)
    assert isinstance(got, commands.Channel.Close | commands.Connection.Close)
    assert got.reply_code in (403, 530)
    assert things(world) == before


@pytest.mark.parametrize("ask", ASKING)
def test_those_that_are_others_but_allow_it_do(world: Any, user: Any, ask: Callable[[Any], Any]) -> None:
    """Asked again, once, and nobody notices."""
    method = ask(user)
    before = things(world)
    world.cluster.submit_catalog(SetPermissions("u", "/", "^min", "^min", "^min"), lambda _: None)
    assert not isinstance(user.call(1, method), commands.Channel.Close)
    assert things(world) != before


def test_permissions_that_change_all_the_time_come_to_an_end(world: Any, user: Any) -> None:
    """No loop without an end: each answer finds yet another change in front of it."""
    cluster, submit, changes = world.cluster, world.cluster.submit_catalog, iter(range(1000))

    def in_front_of_each(command: CatalogCommand, done: Any) -> None:
        submit(SetPermissions("u", "/", f"^mine|{next(changes)}", "^mine", "^mine"), lambda _: None)
        submit(command, done)

    cluster.submit_catalog = in_front_of_each
    got = user.call(1, commands.Exchange.Declare(exchange="mine.new"))
    assert isinstance(got, commands.Connection.Close) and got.reply_code == 541
    assert "permissions" in got.reply_text
    assert cluster.catalog.exchange("/", "mine.new") is None


def test_who_may_not_make_it_may_look_it_up(world: Any, user: Any) -> None:
    """An equivalent declare asks for configure alone, also where this replica has not heard of the queue."""
    guest = world.client()
    world.cluster.submit_catalog(
        DeclareExchange("/", "mine.x", arguments={"alternate-exchange": FORBIDDEN}), lambda _: None
    )
    declare = commands.Exchange.Declare(exchange="mine.x", arguments={"alternate-exchange": FORBIDDEN})
    assert isinstance(user.call(1, declare), commands.Exchange.DeclareOk)
    assert isinstance(guest.declare("mine.q", arguments=TO_FORBIDDEN), commands.Queue.DeclareOk)
    assert isinstance(user.declare("mine.q", arguments=TO_FORBIDDEN), commands.Queue.DeclareOk)
    assert is_refused(user.declare("mine.other", arguments=TO_FORBIDDEN), f"exchange '{FORBIDDEN}'")


def test_what_is_there_and_not_the_same_is_told_as_such(world: Any, user: Any) -> None:
    """As in RabbitMQ: 406, though the user could not have made it either."""
    guest = world.client()
    guest.declare("mine.q")
    guest.call(1, commands.Exchange.Declare(exchange="mine.x", exchange_type="fanout"))
    assert user.declare("mine.q", arguments=TO_FORBIDDEN).reply_code == 406
    declare = commands.Exchange.Declare(exchange="mine.x", arguments={"alternate-exchange": FORBIDDEN})
    assert user.call(2, declare).reply_code == 406


def test_a_vhosts_limit_counts_what_the_log_has_by_then(world: Any, user: Any) -> None:
    world.cluster.catalog.apply(SetLimit("vhost", "/", "max-queues", 1))
    user.send_bytes(b"".join(frame.marshal(declare_queue(user), channel) for channel in (1, 2)))
    user.send_bytes(frame.marshal(commands.Queue.Declare(queue="mine.too", durable=True), 2))
    assert len(list(world.cluster.catalog.queues("/"))) == 1


@pytest.mark.parametrize(
    "method",
    [
        commands.Basic.Consume(queue="mine", consumer_tag="c"),
        commands.Basic.Get(queue="mine"),
        commands.Queue.Purge(queue="mine"),
        commands.Queue.Delete(queue="mine"),
    ],
    ids=["consume", "get", "purge", "delete"],
)
def test_what_waits_for_a_queue_is_checked_when_it_goes_on(world: Any, user: Any, method: Any) -> None:
    """Nobody knows the queue here: the catalog is brought up to date, with a queue and other permissions."""
    world.running = False
    user.send(1, method)
    for change in (SetPermissions("u", "/", "^other", "^other", "^other"), DeclareQueue("/", "mine", True)):
        world.cluster.submit_catalog(change, lambda _: None)
    world.running = True
    world.settle()
    (got,) = user.take(1)
    assert (got.name, got.reply_code) == ("Channel.Close", 403)
    assert len(list(world.cluster.catalog.queues("/"))) == 1


def test_a_consumer_of_another_kind_of_queue_than_the_one_that_was_looked_at(
    world: Any, user: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exclusive consumer is none for a queue with a single active one, whichever has the name by then."""
    guest = world.client()
    guest.declare("mine")
    waiting: list[Any] = []
    world.running = False
    guest.send(1, commands.Queue.Delete(queue="mine", nowait=True))
    user.send(1, commands.Basic.Consume(queue="mine", consumer_tag="c", exclusive=True))
    with monkeypatch.context() as slow:
        slow.setattr(world.cluster, "catalog_barrier", waiting.append)
        world.running = True
        arguments: Any = {"x-single-active-consumer": True}
        again = commands.Queue.Declare(queue="mine", durable=True, arguments=arguments)
        assert isinstance(guest.call(1, again), commands.Queue.DeclareOk)
    (reached,) = waiting
    reached(None)
    world.settle()
    (got,) = user.take()
    assert (got.name, got.reply_code) == ("Channel.Close", 403)
    (there,) = world.cluster.catalog.queues("/")
    assert world.cluster.shards[there.shard].shard.queue(there.id).consumers.count == 0


def test_below_the_level_nothing_is_written_that_others_do_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    for level in (LEVEL_RIGHTS - 1, LEVEL_RIGHTS):
        world = World()
        client = world.client()
        written: list[bool] = []
        submit = world.cluster.submit_catalog

        def note(command: Any, done: Any, submit: Any = submit, written: list[bool] = written) -> None:
            written.append(command.rights is not None)
            submit(command, done)

        with monkeypatch.context() as patched:
            patched.setattr(Catalog, "level", level)
            patched.setattr(world.cluster, "submit_catalog", note)
            for ask in ASKING:
                client.call(1, ask(client))
        assert len(written) >= len(ASKING)
        assert set(written) == {level == LEVEL_RIGHTS}
