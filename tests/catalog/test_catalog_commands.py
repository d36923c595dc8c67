"""The wire form of catalog commands."""
from __future__ import annotations

import datetime

import msgspec
import pytest

from node.catalog import (
    AddMember,
    AddVhost,
    Bind,
    Catalog,
    CatalogCommand,
    ClearPermissions,
    ClearPolicy,
    DeclareExchange,
    DeclareQueue,
    DefinitionsLoaded,
    DeleteExchange,
    DeleteUser,
    DeleteVhost,
    Done,
    FoundCluster,
    MalformedCommand,
    MemberGone,
    NodeLost,
    NodeStarted,
    PlaceGroup,
    PreferLeader,
    PutUser,
    Refusal,
    RemoveMember,
    RemoveQueues,
    SetPermissions,
    SetPolicy,
    Unbind,
    decode,
    encode,
)
from node.catalog_machine import CatalogMachine, frame_command

EVERY_COMMAND: list[CatalogCommand] = [
    DeclareQueue("/", "q", durable=True, arguments={"x-message-ttl": 5, "b": b"\xff", "t": {"n": None}}),
    RemoveQueues((1, 2**40)),
    DeclareExchange("/", "x", "topic", durable=True, arguments={"alternate-exchange": "y"}),
    DeleteExchange("/", "x", if_unused=True),
    Bind("/", "x", "queue", "q", "a.#", {"x-match": "any"}, node_id=1, connection="c"),
    Unbind("/", "x", "exchange", "y", "k"),
    AddVhost("v", "words"),
    DeleteVhost("v"),
    PutUser("u", "scrypt$1$1$1$00$00", ("administrator",)),
    DeleteUser("u"),
    SetPermissions("u", "/", ".*", "", "^a"),
    ClearPermissions("u", "/"),
    NodeStarted(1, 7, "one", {"amqp": "127.0.0.1:5672"}),
    NodeLost(1, 7),
    FoundCluster(((1, "one", "a:1"), (2, "two", "b:1")), 3),
    AddMember("three", "c:1", "data"),
    RemoveMember("one"),
    MemberGone(1),
    PlaceGroup(1, ("one", "2")),
    PreferLeader(1, "two"),
    SetPolicy("/", "p", "^a", {"message-ttl": 1, "overflow": "drop-head"}, -1, "queues", operator=True),
    ClearPolicy("/", "p", operator=True),
    DefinitionsLoaded("ab12"),
]


@pytest.mark.parametrize("command", EVERY_COMMAND, ids=lambda command: type(command).__name__)
def test_command_survives_its_encoding(command: CatalogCommand) -> None:
    assert decode(encode(command)) == command
    assert type(decode(encode(command))) is type(command)


@pytest.mark.parametrize("command", EVERY_COMMAND, ids=lambda command: type(command).__name__)
def test_every_command_is_applied(command: CatalogCommand) -> None:
    """No command of the union is without its handling."""
    Catalog(4).apply(command, 1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\xc1",
        b"garbage",
        encode(MemberGone(1))[:-1],
        encode(MemberGone(1)) + b"\x00",
        msgspec.msgpack.encode({"command": "no_such_command"}),
        msgspec.msgpack.encode({"command": "remove_queues", "ids": ["a"]}),
        msgspec.msgpack.encode({"command": "bind", "vhost": "/", "source": "", "destination_kind": "shelf"}),
        b"\x91" * 100_000,
    ],
)
def test_malformed_bytes_are_told(data: bytes) -> None:
    with pytest.raises(MalformedCommand, match="not a catalog command"):
        decode(data)


def test_arguments_without_a_stored_form_are_told() -> None:
    with pytest.raises(MalformedCommand):
        encode(DeclareQueue("/", "\udc80"))
    with pytest.raises(MalformedCommand):
        encode(DeclareQueue("/", "q", arguments={"n": 2**70}))


def test_times_in_arguments_survive() -> None:
    moment = datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    command = decode(encode(DeclareQueue("/", "q", arguments={"when": moment})))
    assert isinstance(command, DeclareQueue)
    assert command.arguments == {"when": moment}


def test_a_command_that_is_none_any_more_is_passed_over_in_an_old_log() -> None:
    """Such as the barriers that there once were: every replica refuses them alike, and applies what is around them."""
    data = b"".join(
        part
        for command in (encode(AddVhost("a")), msgspec.msgpack.encode({"command": "barrier"}), encode(AddVhost("b")))
        for part in frame_command(command)
    )
    catalog = Catalog(4)
    machine = CatalogMachine(catalog, lambda: None)
    machine.begin(2, 9, 0, data)
    added, refused, also_added = machine.apply((1, 1), 0, len(data))
    machine.finish()
    assert (added, also_added) == (Done(), Done())
    assert isinstance(refused, Refusal) and "not a catalog command" in refused.text
    expected = Catalog(4)
    expected.apply(AddVhost("a"), 9)
    expected.apply(AddVhost("b"), 9)
    assert catalog.snapshot() == expected.snapshot()
