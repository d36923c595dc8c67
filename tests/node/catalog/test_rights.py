"""A command says with which permissions it was checked; the log takes it only while they are those that count."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

import pytest
from msgspec.structs import replace

from mayfly.node.catalog import (
    Bind,
    Catalog,
    CheckedCommand,
    ClearPermissions,
    ClearTopicPermissions,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteUser,
    DeleteVhost,
    Done,
    ExchangeDeclared,
    OtherRights,
    PutUser,
    QueueDeclared,
    Refusal,
    Rights,
    SetPermissions,
    SetTopicPermissions,
    Unbind,
    decode,
    encode,
)
from mayfly.node.catalog.permissions import rights_digest

COMMANDS: list[CheckedCommand] = [
    DeclareQueue("/", "q", durable=True),
    DeclareExchange("/", "x"),
    DeleteExchange("/", "t"),
    Bind("/", "t", "queue", "there", "k"),
    Unbind("/", "t", "queue", "there", "k"),
]
BY_NAME = pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)


def checked(catalog: Catalog, command: CheckedCommand) -> CheckedCommand:
    """The command with the rights that the user has now, as it comes out of the log."""
    read = decode(encode(replace(command, rights=Rights("u", rights_digest(catalog, "u", command)))))
    assert isinstance(read, CheckedCommand)
    return read


@pytest.fixture
def catalog() -> Catalog:
    made = Catalog(2)
    made.apply(PutUser("u", ""))
    made.apply(SetPermissions("u", "/", "c", "w", "r"))
    made.apply(DeclareExchange("/", "t", "topic"))
    made.apply(DeclareQueue("/", "there", durable=True))
    made.apply(SetTopicPermissions("u", "/", "t", "w", "r"))
    return made


@BY_NAME
def test_with_the_permissions_it_was_checked_with_it_is_done(catalog: Catalog, command: CheckedCommand) -> None:
    command = checked(catalog, command)
    catalog.apply(SetPermissions("guest", "/", "a", "b", "c"))
    catalog.apply(SetTopicPermissions("u", "/", "other", "w", "r"))
    assert isinstance(catalog.apply(command), QueueDeclared | ExchangeDeclared | Done)


CHANGES: list[Callable[[Catalog], object]] = [
    lambda catalog: catalog.apply(SetPermissions("u", "/", "other", "w", "r")),
    lambda catalog: catalog.apply(SetPermissions("u", "/", "c", "other", "r")),
    lambda catalog: catalog.apply(SetPermissions("u", "/", "c", "w", "other")),
    lambda catalog: catalog.apply(ClearPermissions("u", "/")),
    lambda catalog: catalog.apply(DeleteUser("u")),
]


@BY_NAME
@pytest.mark.parametrize("change", CHANGES)
def test_with_others_it_changes_nothing(
    catalog: Catalog, command: CheckedCommand, change: Callable[[Catalog], object]
) -> None:
    command = checked(catalog, command)
    change(catalog)
    before = catalog.snapshot()
    replica = Catalog(2)
    replica.restore(before)
    for each in (catalog, replica):
        assert isinstance(each.apply(command), OtherRights)
        assert each.snapshot() == before
    again = catalog.apply(checked(catalog, command))
    assert not isinstance(again, Refusal), "whoever checks it anew is asked no more than this"


TOPIC_CHANGES: list[Callable[[Catalog], object]] = [
    lambda catalog: catalog.apply(SetTopicPermissions("u", "/", "t", "w", "other")),
    lambda catalog: catalog.apply(ClearTopicPermissions("u", "/")),
    lambda catalog: (catalog.apply(DeleteExchange("/", "t")), catalog.apply(DeclareExchange("/", "t"))),
]


@pytest.mark.parametrize("command", COMMANDS[3:], ids=["Bind", "Unbind"])
@pytest.mark.parametrize("change", TOPIC_CHANGES)
def test_keys_of_topic_exchanges_count(
    catalog: Catalog, command: CheckedCommand, change: Callable[[Catalog], object]
) -> None:
    command = checked(catalog, command)
    change(catalog)
    assert isinstance(catalog.apply(command), OtherRights)


def test_an_exchange_that_was_none_of_topics(catalog: Catalog) -> None:
    command = checked(catalog, Bind("/", "x", "queue", "there", "k"))
    catalog.apply(DeclareExchange("/", "x", "topic"))
    assert isinstance(catalog.apply(command), OtherRights)


@BY_NAME
def test_what_has_no_rights_is_done_as_ever(catalog: Catalog, command: CheckedCommand) -> None:
    """Older logs, and what the broker does by itself."""
    catalog.apply(DeleteUser("u"))
    assert isinstance(catalog.apply(command), QueueDeclared | ExchangeDeclared | Done)


@BY_NAME
def test_a_vhost_that_is_gone_is_told_first(catalog: Catalog, command: CheckedCommand) -> None:
    command = checked(catalog, command)
    catalog.apply(DeleteVhost("/"))
    refused = catalog.apply(command)
    assert isinstance(refused, Refusal) and refused.text == "vhost / not found"


def test_the_digest_is_the_same_in_every_version(catalog: Catalog) -> None:
    """Replicas compare what others have worked out: it is part of what the log means (cluster/versions.py)."""
    plain, with_topic = b"\x93\xa1c\xa1w\xa1r", b"\x94\xa1c\xa1w\xa1r\x92\xa1w\xa1r"
    assert rights_digest(catalog, "u", COMMANDS[0]) == sha256(plain).digest()[:16]
    assert rights_digest(catalog, "u", COMMANDS[3]) == sha256(with_topic).digest()[:16]
