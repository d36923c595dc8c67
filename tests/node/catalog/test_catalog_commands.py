"""The wire form of catalog commands."""
from __future__ import annotations

import datetime
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mayfly.cluster.group.state_machine import BadCommand
from mayfly.cluster.versions import LEVEL_HIGHEST
from mayfly.node.catalog import (
    AddMember,
    AddShards,
    AddVhost,
    Bind,
    Catalog,
    CatalogCommand,
    ClearGlobalParameter,
    ClearPermissions,
    ClearPolicy,
    ClearTopicPermissions,
    DeclareExchange,
    DeclareQueue,
    DefinitionsLoaded,
    DeleteExchange,
    DeleteUser,
    DeleteVhost,
    DescribeVhost,
    Done,
    FoundCluster,
    MalformedCommand,
    MemberAway,
    MemberBack,
    MemberGone,
    MoveQueue,
    NodeLost,
    NodeStarted,
    PlaceGroup,
    PlanGroups,
    PreferLeader,
    PutUser,
    QueueMoved,
    RaiseLevel,
    Refusal,
    RemoveMember,
    RemoveQueues,
    SetGlobalParameter,
    SetLimit,
    SetPermissions,
    SetPolicy,
    SetSwitch,
    SetTopicPermissions,
    Unbind,
    UpgradePassword,
    decode,
    encode,
)
from mayfly.node.catalog.commands import MAX_NESTING
from mayfly.node.catalog.machine import CatalogMachine, frame_command
from mayfly.node.catalog.nesting import nested_deeper

EVERY_COMMAND: list[CatalogCommand] = [
    DeclareQueue("/", "q", durable=True, arguments={"x-message-ttl": 5, "b": b"\xff", "t": {"n": None}}),
    RemoveQueues((1, 2**40)),
    DeclareExchange("/", "x", "topic", durable=True, arguments={"alternate-exchange": "y"}),
    DeleteExchange("/", "x", if_unused=True),
    Bind("/", "x", "queue", "q", "a.#", {"x-match": "any"}, node_id=1, connection="c"),
    Unbind("/", "x", "exchange", "y", "k"),
    AddVhost("v", "words"),
    DeleteVhost("v"),
    DescribeVhost("v", ("a",), "quorum", True),
    SetGlobalParameter("n", {"k": [1, None, 0.5]}),
    ClearGlobalParameter("n"),
    PutUser("u", "scrypt$1$1$1$00$00", ("administrator",)),
    DeleteUser("u"),
    SetPermissions("u", "/", ".*", "", "^a"),
    ClearPermissions("u", "/"),
    NodeStarted(1, 7, "one", {"amqp": "127.0.0.1:5672"}),
    NodeLost(1, 7),
    FoundCluster(((1, "one", "a:1"), (2, "two", "b:1")), 3),
    AddMember("three", "c:1", "data", (1, LEVEL_HIGHEST)),
    RemoveMember("one"),
    MemberGone(1),
    PlaceGroup(1, ("one", "2")),
    PreferLeader(1, "two"),
    SetPolicy("/", "p", "^a", {"message-ttl": 1, "overflow": "drop-head"}, -1, "queues", operator=True),
    ClearPolicy("/", "p", operator=True),
    DefinitionsLoaded("ab12"),
    UpgradePassword("u", "scrypt$1$1$1$00$00", "scrypt$2$1$1$00$00"),
    SetTopicPermissions("u", "/", "x", "^a", ""),
    ClearTopicPermissions("u", "/", "x"),
    SetLimit("user", "u", "max-channels", 3),
    SetSwitch("/", "message-ttl", False),
    RaiseLevel(LEVEL_HIGHEST, ((1, 7), (2, 7))),
    MemberAway(1, 7),
    MemberBack(1),
    PlanGroups(1, ((1, (2, 1)),)),
    AddShards(5),
    MoveQueue("/", "q", 2),
    MoveQueue("/", "q", 2, id=1, number=1),
    QueueMoved(1, 1, 2),
    QueueMoved(1, 1, 2, 3),
]

WHAT_THEY_NAME: list[CatalogCommand] = [
    FoundCluster(((1, "one", "a:1"), (2, "two", "b:1")), 2, LEVEL_HIGHEST),
    NodeStarted(1, 7, "one", {"peer": "a:1"}, levels=(1, LEVEL_HIGHEST)),
    NodeStarted(2, 7, "two", {"peer": "b:1"}, levels=(1, LEVEL_HIGHEST)),
    AddVhost("v"),
    PutUser("u", "scrypt$1$1$1$00$00"),
    DeclareExchange("/", "x", "topic", durable=True, arguments={"alternate-exchange": "y"}),
    DeclareExchange("/", "y"),
    DeclareQueue("/", "q", durable=True, arguments={"x-message-ttl": 5, "b": b"\xff", "t": {"n": None}}),
    SetGlobalParameter("n", 1),
]


@pytest.mark.parametrize("command", EVERY_COMMAND, ids=lambda command: type(command).__name__)
def test_command_survives_its_encoding(command: CatalogCommand) -> None:
    assert decode(encode(command)) == command
    assert type(decode(encode(command))) is type(command)


@pytest.mark.parametrize("command", EVERY_COMMAND, ids=lambda command: type(command).__name__)
def test_every_command_is_applied(command: CatalogCommand) -> None:
    """No command of the union is without its handling: where what it names is there, it is not refused."""
    catalog = Catalog(4)
    if not isinstance(command, FoundCluster):
        for before in WHAT_THEY_NAME:
            assert not isinstance(catalog.apply(before, 1), Refusal), before
    assert not isinstance(catalog.apply(command, 2), Refusal)


def test_no_command_is_left_out() -> None:
    assert {type(command) for command in EVERY_COMMAND} == set(get_args(CatalogCommand))


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


@pytest.mark.parametrize("garbage", [b"\1", b"\1\2\3", b"\xff\xff\xff\x7fxx"])
def test_a_batch_with_garbage_at_its_end_is_cut_short(garbage: bytes) -> None:
    """What is before it is applied; what comes behind the batch in its entry is not read as a part of it."""
    catalog = Catalog(4)
    machine = CatalogMachine(catalog, lambda: None)
    data = b"".join(frame_command(encode(AddVhost("a")))) + garbage
    machine.begin(1, 0, 0, data + bytes(20))
    with pytest.raises(BadCommand):
        machine.apply(None, 0, len(data))
    machine.finish()
    assert catalog.apply(AddVhost("a")) == Done(changed=False)


def _with_unknown_field(depth: int) -> bytes:
    """A command of a later release, whose new field is nested so deep."""
    field = msgspec.msgpack.encode("x")
    known = msgspec.msgpack.encode({"command": "member_gone", "node_id": 1})
    return bytes([known[0] + 1]) + known[1:] + field + b"\x91" * depth + b"\x01"


def test_how_deep_a_command_may_be_nested_does_not_depend_on_the_stack() -> None:
    """Else one replica would apply what another one can't read."""

    def at(frames: int, depth: int) -> bool:
        if frames:
            return at(frames - 1, depth)
        try:
            decode(_with_unknown_field(depth))
        except MalformedCommand:
            return False
        return True

    for depth, readable in ((10, True), (MAX_NESTING - 1, True), (MAX_NESTING, False), (600, False), (5000, False)):
        assert [at(frames, depth) for frames in (0, 300)] == [readable, readable]


@given(st.recursive(st.none() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary() | st.datetimes(
    timezones=st.just(datetime.UTC)), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_nesting_is_told_without_reading(value: object) -> None:
    def depth(value: object) -> int:
        if isinstance(value, dict):
            return 1 + max(map(depth, value.values()), default=0)
        return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0

    data = msgspec.msgpack.encode(value)
    assert not nested_deeper(data, depth(value))
    assert depth(value) == 0 or nested_deeper(data, depth(value) - 1)


def test_nesting_is_told_behind_long_values() -> None:
    deep: object = [[[1]]]
    for value in ("x" * 40, "x" * 300, "x" * 70_000, b"x" * 70_000, [0] * 70_000, msgspec.msgpack.Ext(5, b"x" * 300),
                  *(msgspec.msgpack.Ext(5, b"x" * size) for size in (1, 2, 3, 4, 8, 16))):
        data = msgspec.msgpack.encode([value, deep])
        assert nested_deeper(data, 3) and not nested_deeper(data, 4)
