"""Definitions: files of RabbitMQ come in whole or not at all, and what goes out comes in again as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from node.catalog import Catalog, DeclareQueue, NodeStarted, PutUser, SetPolicy
from node.catalog.passwords import verify_password
from node.operating.definitions import BadDefinitions, Plan, check_on, definitions_of, read_definitions

EXPORTED = Path(__file__).parent / "rabbitmq-3.10.8-definitions.json"
"""Made by RabbitMQ 3.10.8: rabbitmqctl export_definitions. Passwords are secret and guest."""


def imported(catalog: Catalog, file: object) -> Plan:
    """What a node does with a file."""
    plan = read_definitions(json.dumps(file).encode())
    check_on(catalog, plan)
    for place, command in plan.commands:
        result = catalog.apply(command)
        assert not isinstance(result, Exception), (place, result)
    return plan


def exported() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(EXPORTED.read_text())
    return content


def test_a_file_of_rabbitmq() -> None:
    catalog = Catalog(4)
    plan = imported(catalog, exported())
    assert [vhost.name for vhost in catalog.vhosts()] == ["/", "shop"]
    ann = catalog.user("ann")
    assert ann is not None and set(ann.tags) == {"monitoring", "management"}
    assert verify_password(ann.password_hash, "secret") and not verify_password(ann.password_hash, "guest")
    permission = catalog.permission("ann", "shop")
    assert permission is not None and (permission.configure, permission.write) == ("^a", ".*")
    (topics,) = catalog.topic_permissions()
    assert (topics.user, topics.exchange, topics.write) == ("ann", "amq.topic", "^a")
    jobs, short = catalog.queue("shop", "jobs"), catalog.queue("shop", "tmp.1")
    assert jobs is not None and jobs.replicated and jobs.settings.dead_letter_exchange == "dead"
    assert short is not None and catalog.effective_settings(short).message_ttl_ms == 60_000
    assert catalog.effective_settings(jobs).max_length == 1000  # the operator policy
    assert catalog.queue("shop", "going") is None
    kinds = [(it.source, it.destination, it.routing_key) for it in catalog.bindings("shop") if it.source]
    assert sorted(kinds) == [("orders", "dead", "lost.#"), ("orders", "jobs", "job.*")]
    assert any("going" in note for note in plan.notes)


def test_a_second_time_changes_nothing() -> None:
    catalog = Catalog(4)
    imported(catalog, exported())
    before = catalog.snapshot()
    imported(catalog, exported())
    assert catalog.snapshot() == before


def test_what_goes_out_comes_in_again() -> None:
    """Into an empty cluster; queues that go with their node stay behind, with what is bound to them."""
    catalog = Catalog(4)
    imported(catalog, exported())
    catalog.apply(PutUser("bob", "scrypt$2$8$1$0011223344556677$11", ("administrator",)))
    catalog.apply(NodeStarted(1, 1, "n"))
    catalog.apply(DeclareQueue("shop", "passing", False, False, False, {}, False, 1, 1))
    catalog.apply(SetPolicy("/", "p", "^x", {"expires": 1000}, 3, "queues", True))
    file = definitions_of(catalog)
    assert "passing" not in json.dumps(file)
    other = Catalog(4)
    plan = imported(other, file)
    assert plan.notes == [] and definitions_of(other) == file


def changed(path: str, value: object) -> dict[str, Any]:
    """The file with another value at one place, such as queues.0.durable."""
    file = exported()
    at: Any = file
    *parts, last = (int(part) if part.isdigit() else part for part in path.split("."))
    for part in parts:
        at = at[part]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return file


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("queues", "all", 'queues = "all": a JSON array is expected'),
        ("queues.0", 7, "queues[0] = 7: a JSON object is expected"),
        ("queues.0.durable", "yes", 'queues[0].durable = "yes": true or false is expected'),
        ("queues.0.name", None, "queues[0].name is missing: a string is expected"),
        ("queues.1.vhost", "nowhere", "queues[1]: vhost nowhere not found"),
        ("queues.1.arguments", {"x-message-ttl": "soon"}, "queues[1]: invalid arg 'x-message-ttl'"),
        ("policies.0.priority", True, "policies[0].priority = true: a whole number is expected"),
        ("policies.0.pattern", "(", "policies[0]: "),
        ("policies.0.definition", {"ha-mode": "all"}, "policies[0]: "),
        ("permissions.0.read", "(", 'permissions[0].read = "(": no regular expression'),
        ("permissions.0.user", "nobody", "permissions[0]: "),
        ("users.0.hashing_algorithm", "rot13", "users[0]: hashing_algorithm is 'rot13', one of rabbit_password"),
        ("users.0.password_hash", "***", "users[0]: password_hash is not in base64"),
        ("exchanges.0.type", "x-random", "exchanges[0]: "),
        ("bindings.0.destination_type", "client", 'bindings[0].destination_type = "client": queue or exchange'),
        ("bindings.0.destination", "nothing", "bindings[0]: "),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_done(path: str, value: object, text: str) -> None:
    catalog = Catalog(4)
    before = catalog.snapshot()
    with pytest.raises(BadDefinitions) as refused:
        imported(catalog, changed(path, value))
    assert text in str(refused.value), str(refused.value)
    assert catalog.snapshot() == before


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b'"x"', b"[" * 100_000])
def test_no_definitions_at_all(data: bytes) -> None:
    with pytest.raises(BadDefinitions):
        read_definitions(data)
