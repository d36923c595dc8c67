"""Each method that is served needs just the permissions of this table: refused (403) for want of any one of them, done
with these and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest
from pamqp.commands import Basic, Exchange, Queue

from mayfly.node.catalog import SetPermissions
from tests.node.broker.test_where_methods_are import SCENES, consuming, exchanges, inputs, nothing_before
from tests.node.conftest import Client, World, closed

ACCESSES: Final = ("configure", "write", "read")
NAMES: Final = ("q", "e", "f", "new", "s", "amq.default", "amq.fanout")


class Case(NamedTuple):
    """A method where all that it needs is there, and what its user must be allowed."""

    before: Callable[[Client], None]
    method: Any
    """None: a message is published to the queue, by the default exchange."""
    needs: tuple[tuple[str, str, str], ...] = ()
    """Access, kind and name."""


def scene(name: str, *needs: tuple[str, str, str]) -> Case:
    return Case(*SCENES[name], needs)


def a_stream(client: Client) -> None:
    client.declare("s", arguments={"x-queue-type": "stream"})


def forwarding(kind: str, onward: str) -> tuple[tuple[str, str, str], ...]:
    return (("configure", kind, "new"), ("read", kind, "new"), ("write", "exchange", onward))


WITHOUT: Final = (
    "Basic.Qos", "Basic.Cancel", "Basic.Recover", "Basic.RecoverAsync", "Basic.Ack", "Basic.Nack", "Basic.Reject",
    "Confirm.Select", "Tx.Select", "Tx.Commit", "Tx.Rollback",
)  # fmt: skip
"""Methods that need none: what they are about was allowed before."""
BINDING_EXCHANGES: Final = (("write", "exchange", "f"), ("read", "exchange", "e"))
BINDING_QUEUES: Final = (("write", "queue", "q"), ("read", "exchange", "e"))
CASES: Final[dict[str, Case]] = {
    **{name: scene(name) for name in WITHOUT},
    "Exchange.Declare": scene("Exchange.Declare", ("configure", "exchange", "e")),
    "Exchange.Declare, there": Case(exchanges, Exchange.Declare(exchange="e"), (("configure", "exchange", "e"),)),
    "Exchange.Declare, passive": Case(exchanges, Exchange.Declare(exchange="e", passive=True)),
    "Exchange.Declare, with an alternate exchange": Case(
        nothing_before, Exchange.Declare(exchange="new", arguments={"alternate-exchange": "amq.fanout"}),
        forwarding("exchange", "amq.fanout"),
    ),
    "Exchange.Delete": scene("Exchange.Delete", ("configure", "exchange", "e")),
    "Exchange.Bind": scene("Exchange.Bind", *BINDING_EXCHANGES),
    "Exchange.Unbind": scene("Exchange.Unbind", *BINDING_EXCHANGES),
    "Queue.Declare": scene("Queue.Declare", ("configure", "queue", "new")),
    "Queue.Declare, there": Case(
        nothing_before, Queue.Declare(queue="q", durable=True), (("configure", "queue", "q"),)
    ),
    "Queue.Declare, passive": Case(nothing_before, Queue.Declare(queue="q", passive=True)),
    "Queue.Declare, with a dead-letter exchange": Case(
        nothing_before, Queue.Declare(queue="new", durable=True, arguments={"x-dead-letter-exchange": "amq.fanout"}),
        forwarding("queue", "amq.fanout"),
    ),
    "Queue.Declare, with the default exchange for dead letters": Case(
        nothing_before, Queue.Declare(queue="new", durable=True, arguments={"x-dead-letter-exchange": ""}),
        forwarding("queue", "amq.default"),
    ),
    "Queue.Declare, with a journal": Case(
        a_stream, Queue.Declare(queue="new", durable=True, arguments={"x-journal": "s"}),
        (("configure", "queue", "new"), ("read", "queue", "new"), ("write", "queue", "s")),
    ),
    "Queue.Declare, a mirror": Case(
        a_stream, Queue.Declare(queue="new", durable=True, arguments={"x-queue-type": "stream", "x-mirror": "s"}),
        (("configure", "queue", "new"), ("read", "queue", "s")),
    ),
    "Queue.Bind": scene("Queue.Bind", *BINDING_QUEUES),
    "Queue.Unbind": scene("Queue.Unbind", *BINDING_QUEUES),
    "Queue.Purge": scene("Queue.Purge", ("read", "queue", "q")),
    "Queue.Delete": scene("Queue.Delete", ("configure", "queue", "q")),
    "Basic.Consume": scene("Basic.Consume", ("read", "queue", "q")),
    "Basic.Consume, once more": Case(consuming, Basic.Consume(queue="q"), (("read", "queue", "q"),)),
    "Basic.Get": scene("Basic.Get", ("read", "queue", "q")),
    "Basic.Publish": scene("Basic.Publish", ("write", "exchange", "amq.default")),
}  # fmt: skip


def ask(world: World, case: Case, allowed: dict[str, set[str]]) -> Any:
    """What the method is answered for a user who had all permissions before it, and has these for it."""
    world.add_user("u", "pw", ".*", ".*", ".*")
    client = world.client(user="u", password="pw")
    client.declare("q")
    case.before(client)
    expressions = [f"^({'|'.join(sorted(allowed[access]))})$" if allowed[access] else "" for access in ACCESSES]
    world.cluster.submit_catalog(SetPermissions("u", "/", *expressions), lambda _: None)
    world.settle()
    client.take()
    if case.method is None:
        client.publish(1, "q")
    else:
        client.send(1, case.method)
    return client.take()


@pytest.mark.parametrize(
    ("name", "want"), [(name, want) for name, case in CASES.items() for want in case.needs], ids=str
)
def test_refused_for_want_of_that_one(world: World, name: str, want: tuple[str, str, str]) -> None:
    access, kind, of = want
    allowed = {each: {*NAMES} - ({of} if each == access else set()) for each in ACCESSES}
    (got,) = ask(world, CASES[name], allowed)
    text = f"ACCESS_REFUSED - access to {kind} '{of}' in vhost '/' refused for user 'u'"
    assert closed(got) == ("channel", 403, text)


@pytest.mark.parametrize("name", CASES)
def test_done_with_these_alone(world: World, name: str) -> None:
    case = CASES[name]
    got = ask(world, case, {each: {of for access, _, of in case.needs if access == each} for each in ACCESSES})
    assert not any("Close" in frame.name for frame in got if hasattr(frame, "name")), closed(got[-1])


def test_every_method_is_in_the_table() -> None:
    reaching = ("RECEIVE_METHOD", "RECEIVE_PUBLISH", "RECEIVE_SETTLEMENT")
    served = {name for name, happening in inputs().items() if happening in reaching}
    assert {name.partition(",")[0] for name in CASES} == served
