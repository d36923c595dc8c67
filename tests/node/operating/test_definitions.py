"""Definitions: files of RabbitMQ come in whole or not at all, and what goes out comes in again as it was."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from mayfly.cluster.versions import (
    LEVEL_DELAYED_EXCHANGES,
    LEVEL_GLOBAL_PARAMETERS,
    LEVEL_HIGHEST,
    LEVEL_SCHEDULES,
    LEVEL_STREAMS,
)
from mayfly.node.catalog import (
    AddVhost,
    Bind,
    Catalog,
    CatalogCommand,
    DeclareQueue,
    DeleteUser,
    DescribeVhost,
    NodeStarted,
    PutUser,
    RaiseLevel,
    Refusal,
    SetGlobalParameter,
    SetLimit,
    SetPolicy,
)
from mayfly.node.catalog.passwords import verify_password
from mayfly.node.operating import import_and_export
from mayfly.node.operating.definitions.exporting import definitions_of
from mayfly.node.operating.definitions.reading import (
    BadDefinitions,
    EarlyDefinitions,
    Plan,
    check_on,
    for_level,
    read_definitions,
)
from mayfly.node.operating.import_and_export import Definitions

EXPORTED = Path(__file__).parent / "rabbitmq-3.10.8-definitions.json"
"""Made by RabbitMQ 3.10.8: rabbitmqctl export_definitions. Passwords are secret and guest."""

EXPORTED_BY_4 = Path(__file__).parent / "rabbitmq-4.3.6-definitions.json"
"""Made by RabbitMQ 4.3.6 with the plugin rabbitmq_federation: rabbitmqctl export_definitions."""

LIMITED = Path(__file__).parent / "rabbitmq-3.10.8-limits.json"
"""Made by it as well, after rabbitmqctl set_vhost_limits and set_user_limits."""


def at_the_highest_level(shards: int) -> Catalog:
    catalog = Catalog(shards)
    catalog._state.level = LEVEL_HIGHEST
    return catalog


def imported(catalog: Catalog, file: object) -> Plan:
    """What a node does with a file."""
    plan = for_level(read_definitions(json.dumps(file).encode()), catalog.level)
    check_on(catalog.founding_shards, catalog.snapshot(), plan)
    for place, command in plan.commands:
        result = catalog.apply(command)
        assert not isinstance(result, Exception), (place, result)
    return plan


def test_arguments_that_do_nothing_yet_are_left_out_and_told() -> None:
    catalog = Catalog(1)
    queue = {
        "vhost": "/", "name": "q", "durable": True, "auto_delete": False,
        "arguments": {"x-queue-type": "quorum", "x-stream-filter-size-bytes": 16},
    }  # fmt: skip
    plan = imported(catalog, {"vhosts": [{"name": "/"}], "queues": [queue]})
    record = catalog.queue("/", "q")
    assert record is not None and record.arguments == {"x-queue-type": "quorum"}
    for key in ("x-stream-filter-size-bytes",):
        assert sum(f'"q" without its argument {key}' in note for note in plan.notes) == 1


def test_s5_retries_wait_for_the_level_from_which_on_they_are_known() -> None:
    queue = {
        "vhost": "/", "name": "q", "durable": True, "auto_delete": False,
        "arguments": {"x-delayed-retry-type": "all", "x-delayed-retry-min": 1000},
    }  # fmt: skip
    file = {"vhosts": [{"name": "/"}], "queues": [queue]}
    catalog = Catalog(1)
    with pytest.raises(EarlyDefinitions, match="x-delayed-retry-type needs feature level 8, the cluster is at 1"):
        imported(catalog, file)
    catalog.apply(RaiseLevel(LEVEL_SCHEDULES, ()))
    imported(catalog, file)
    record = catalog.queue("/", "q")
    assert record is not None and record.settings.retry_min_ms == 1000


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


OLD: dict[str, Any] = {
    "vhosts": [
        {"name": "/", "limits": [], "metadata": {"description": "d", "tags": [], "default_queue_type": "undefined"}},
        {"name": "v", "metadata": {"default_queue_type": "jms", "tags": []}},
    ],
    "global_parameters": [
        {"name": "cluster_name", "value": "rabbit@old"}, {"name": "internal_cluster_id", "value": "rabbitmq-cluster"},
        {"name": "mqtt_default_vhosts", "value": {}},
    ],
    "parameters": [
        {"vhost": "/", "component": "shovel", "name": "s", "value": {}},
        {"vhost": "/", "component": "federation-upstream", "name": "far", "value": {"uri": "amqp://far"}},
        {"vhost": "/", "component": "federation-upstream-set", "name": "both", "value": [{"upstream": "far"}]},
        {
            "vhost": "/", "component": "operator_policy", "name": "o",
            "value": {"pattern": ".*", "definition": {"ha-mode": "all"}, "priority": 0, "apply-to": "queues"},
        },
    ],
    "policies": [
        {"vhost": "/", "name": "ha", "pattern": "", "definition": {"ha-mode": "all", "ha-sync-mode": "automatic"}},
        {"vhost": "/", "name": "lazy", "pattern": "", "definition": {"queue-mode": "lazy", "max-length": 5}},
        {"vhost": "/", "name": "fed", "apply-to": "exchanges", "pattern": "", "definition": {"max-length": 5}},
        {"vhost": "/", "name": "log", "apply-to": "streams", "pattern": "", "definition": {"max-age": "1D"}},
        {"vhost": "/", "name": "pcre", "pattern": "^(?!amq\\.)(a+)+\\Q", "definition": {"max-length": 5}},
        {"vhost": "/", "name": "upstreams", "pattern": "^f", "definition": {"federation-upstream-set": "all"}},
        {"vhost": "/", "name": "upstream", "pattern": "^g", "definition": {"federation-upstream": "far", "expires": 9}},
        {"vhost": "/", "name": "kept", "pattern": "^k", "definition": {"max-length": 5}},
    ],
    "exchanges": [
        {"vhost": "/", "name": "later", "type": "x-consistent-hash", "arguments": {}},
        {"vhost": "/", "name": "amq.rabbitmq.log", "type": "topic"},
    ],
    "queues": [
        {"vhost": "/", "name": "q", "arguments": {"x-queue-mode": "lazy", "x-queue-version": 1, "x-ha-policy": "all"}},
        {"vhost": "/", "name": "log", "arguments": {"x-queue-type": "stream", "x-max-age": "1D"}},
        {"vhost": "/", "name": "mqtt", "arguments": {"x-queue-type": "rabbit_mqtt_qos0_queue"}},
        {"vhost": "/", "name": "going", "durable": True, "auto_delete": True, "arguments": {}},
    ],
    "bindings": [
        {"vhost": "/", "source": source, "destination": to, "destination_type": kind, "routing_key": ""}
        for source, kind, to in (
            ("later", "queue", "q"), ("amq.topic", "exchange", "later"), ("amq.fanout", "queue", "log"),
            ("amq.rabbitmq.event", "queue", "q"), ("amq.topic", "queue", "q"),
        )
    ],
}  # fmt: skip
"""What exports of 3.8 to 4.3 hold that is not here."""


def test_what_is_not_here_is_left_out_with_a_note_each_and_the_rest_is_done() -> None:
    catalog = Catalog(1)
    catalog._state.level = LEVEL_STREAMS
    plan = imported(catalog, OLD)
    five = {"max-length": 5}
    assert {each.name: each.definition for each in catalog.policies()} == {
        "lazy": five, "kept": five, "log": {"max-age": "1D"}, "upstream": {"expires": 9},
    }
    assert [each.name for each in catalog.queues("/")] == ["q", "log"]
    old = catalog.queue("/", "q")
    assert old is not None and old.arguments == {"x-queue-mode": "lazy", "x-queue-version": 1, "x-ha-policy": "all"}
    bindings = [(each.source, each.destination) for each in catalog.bindings("/") if each.source]
    assert bindings == [("amq.fanout", "log"), ("amq.topic", "q")]
    assert catalog.exchange("/", "later") is None and catalog.has_vhost("v")
    assert list(catalog.policies(None, True)) == []
    told = {
        "vhosts[1]": 'default_queue_type = "jms" left out', "policies[0]": "there is no ha-mode, ha-sync-mode for",
        "policies[1]": '"lazy" without its queue-mode', "policies[2]": "there is no max-length for exchanges",
        "policies[4]": "its pattern", "exchanges[0]": 'type "x-consistent-hash"',
        "queues[2]": 'type "rabbit_mqtt_qos0_queue"', "parameters[0]": '"shovel"',
        "parameters[1]": '"federation-upstream"', "parameters[2]": '"federation-upstream-set"',
        "parameters[3]": "there is no ha-mode for queues", "bindings[3]": '"amq.rabbitmq.event"',
        "policies[5]": "there is no federation-upstream-set for all", "policies[6]": "without its federation-upstream,",
        "global_parameters[2]": "mqtt_default_vhosts", "queues[3]": "goes with its clients",
    }  # fmt: skip
    kept = [("queues[0]", f'keeps its argument {key}') for key in ('x-queue-mode = "lazy"', 'x-ha-policy = "all"')]
    for place, text in [*told.items(), *kept]:
        assert [note for note in plan.notes if note.startswith(place) and text in note], (place, plan.notes)
    assert len(plan.notes) == len(told) + len(kept), plan.notes


def test_s1_delayed_exchanges_come_with_their_bindings_and_are_exported_without_what_is_behind_them() -> None:
    catalog = Catalog(1)
    catalog._state.level = LEVEL_DELAYED_EXCHANGES
    arguments = {"x-delayed-type": "direct"}
    file = {
        "vhosts": [{"name": "/"}],
        "exchanges": [{"vhost": "/", "name": "later", "type": "x-delayed-message", "arguments": arguments}],
        "queues": [{"vhost": "/", "name": "q", "arguments": {}}],
        "bindings": [
            {"vhost": "/", "source": "later", "destination": "q", "destination_type": "queue", "routing_key": "k"}
        ],
    }
    plan = imported(catalog, file)
    assert plan.notes == []
    exported = definitions_of(catalog)
    (exchange,) = exported["exchanges"]
    assert (exchange["type"], exchange["arguments"]) == ("x-delayed-message", arguments)
    assert [queue["name"] for queue in exported["queues"]] == ["q"]
    assert [queue.name for queue in catalog.route("/", "later", "k")] == ["q"]
    assert [queue.delays for queue in catalog.route("/", "later", "k", waits=True)] == [True]


FOUR: dict[str, Any] = {
    "rabbit_version": "4.3.6", "rabbitmq_version": "4.3.6", "product_name": "RabbitMQ", "product_version": "4.3.6",
    "rabbitmq_definition_format": "cluster", "original_cluster_name": "rabbit@new", "explanation": "of a cluster",
    "users": [
        {
            "name": "app", "password_hash": "", "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": ["management"], "limits": {},
        },
    ],
    "vhosts": [
        {
            "name": "/", "description": "all", "tags": ["prod"], "default_queue_type": "quorum",
            "metadata": {"description": "all", "tags": ["prod"], "default_queue_type": "quorum", "tracing": False},
        },
    ],
    "permissions": [{"user": "app", "vhost": "/", "configure": "^app", "write": ".*", "read": ".*"}],
    "topic_permissions": [], "parameters": [],
    "global_parameters": [
        {"name": "cluster_name", "value": "rabbit@new"}, {"name": "cluster_tags", "value": {"zone": "a"}},
        {"name": "internal_cluster_id", "value": "rabbitmq-cluster-id-x"},
    ],
    "policies": [
        {
            "vhost": "/", "name": "dead", "pattern": "^app", "apply-to": "quorum_queues", "priority": 1,
            "definition": {
                "dead-letter-exchange": "", "dead-letter-strategy": "at-least-once", "overflow": "reject-publish",
                "delivery-limit": 5,
            },
        },
    ],
    "queues": [
        {
            "vhost": "/", "name": "app.jobs", "type": "quorum", "durable": True, "auto_delete": False,
            "arguments": {"x-queue-type": "quorum", "x-quorum-initial-group-size": 3, "x-delivery-limit": -1},
        },
        {
            "vhost": "/", "name": "app.old", "type": "classic", "durable": True, "auto_delete": False,
            "arguments": {"x-queue-type": "classic", "x-queue-version": 2, "x-max-priority": 5},
        },
    ],
    "exchanges": [
        {
            "vhost": "/", "name": "app", "type": "topic", "durable": True, "auto_delete": False, "internal": False,
            "arguments": {"alternate-exchange": "amq.fanout"},
        },
    ],
    "bindings": [
        {
            "vhost": "/", "source": "app", "destination": "app.jobs", "destination_type": "queue",
            "routing_key": "job.#", "arguments": {},
        },
    ],
}  # fmt: skip
"""In the fields of an export of 4.3."""


def test_a_file_in_the_fields_of_4_3_comes_in_whole() -> None:
    catalog = at_the_highest_level(4)
    assert imported(catalog, FOUR).notes == []
    (vhost,) = catalog.vhosts()
    assert (vhost.description, vhost.tags, vhost.default_queue_type) == ("all", ("prod",), "quorum")
    assert catalog.cluster_name == "rabbit@new"
    assert {each.name: each.value for each in catalog.global_parameters()}["cluster_tags"] == {"zone": "a"}
    assert {each.name for each in catalog.queues("/")} == {"app.jobs", "app.old"}
    assert catalog.user("app") is not None and catalog.is_bound(Bind("/", "app", "queue", "app.jobs", "job.#", {}))
    jobs = catalog.queue("/", "app.jobs")
    assert jobs is not None and catalog.policies_of_queue(jobs)[0] is not None


def test_a_file_of_rabbitmq_4_comes_in_whole() -> None:
    """Quorum and stream queues, a vhost's tags and default type, limits; a note for each thing of a plugin."""
    catalog = at_the_highest_level(4)
    content = json.loads(EXPORTED_BY_4.read_text())
    plan = imported(catalog, content)
    shop = next(each for each in catalog.vhosts() if each.name == "shop")
    assert (shop.description, shop.tags, shop.default_queue_type) == ("orders", ("prod", "eu"), "quorum")
    ann = catalog.user("ann")
    assert ann is not None and verify_password(ann.password_hash, "secret")
    kinds = {name: catalog.queue("shop", name) for name in ("jobs", "of the vhost's type", "log", "old")}
    found = {name: record.arguments["x-queue-type"] for name, record in kinds.items() if record is not None}
    assert found == {"jobs": "quorum", "of the vhost's type": "quorum", "log": "stream", "old": "classic"}
    jobs = catalog.queue("shop", "jobs")
    assert jobs is not None and catalog.effective_settings(jobs).delivery_limit == 5
    assert {each.name for each in catalog.policies("shop")} == {"short", "retries"}
    bindings = [(each.source, each.destination) for each in catalog.bindings("shop") if each.source]
    assert sorted(bindings) == [("orders", "dead"), ("orders", "jobs"), ("orders", "log")]
    left_out = ("federation-upstream-set", '"far"', '"going"')
    for text in left_out:
        assert sum(text in note for note in plan.notes) == 1, (text, plan.notes)
    queues = [each for each in content["queues"] if each["name"] != "going"]
    assert sum(len(list(catalog.queues(each.name))) for each in catalog.vhosts()) == len(queues)
    assert len(plan.notes) == len(left_out), plan.notes


def test_strict_refuses_what_would_be_left_out_and_does_nothing() -> None:
    catalog = at_the_highest_level(1)
    before = catalog.snapshot()
    file = json.dumps(OLD).encode()
    status, content = asyncio.run(definitions(catalog).import_(file, strict=True))
    assert status == 400 and content["notes"] == read_definitions(file).notes and catalog.snapshot() == before
    assert "strict is asked for; nothing is done" in content["reason"]
    file = json.dumps({**FOUR, "queues": [], "bindings": []}).encode()
    status, content = asyncio.run(definitions(catalog).import_(file, strict=True))
    assert (status, content["notes"]) == (200, []) and catalog.user("app") is not None


def test_what_every_cluster_of_rabbitmq_exports_takes_no_note() -> None:
    file = exported()
    file["queues"] = [queue for queue in file["queues"] if not queue["auto_delete"]]
    file["bindings"] = [each for each in file["bindings"] if each["destination"] != "going"]
    file["global_parameters"] = OLD["global_parameters"][:2]
    assert imported(at_the_highest_level(1), file).notes == []


def test_what_is_said_of_vhosts_and_global_parameters_goes_out_and_comes_in_again() -> None:
    catalog, other = at_the_highest_level(1), at_the_highest_level(1)
    for command in (
        AddVhost("v", "words"), DescribeVhost("v", ("a", "b"), "stream", True), AddVhost("w"),
        SetGlobalParameter("cluster_name", "mine"), SetGlobalParameter("mine", {"deep": [1, None, {"x": 0.5}]}),
    ):  # fmt: skip
        assert not isinstance(catalog.apply(command), Refusal)
    file = definitions_of(catalog)
    assert imported(other, file).notes == []
    assert [msgspec.structs.replace(each, serial=0) for each in other.vhosts()] == [
        msgspec.structs.replace(each, serial=0) for each in catalog.vhosts()
    ]
    assert other.global_parameters() == catalog.global_parameters() and other.cluster_name == "mine"
    assert imported(catalog, file).notes == [] and definitions_of(catalog) == file, "a second time changes nothing"


def test_queues_without_a_type_are_of_the_one_that_the_file_says_of_their_vhost() -> None:
    catalog = at_the_highest_level(1)
    queues = [{"vhost": "v", "name": "q"}, {"vhost": "/", "name": "q"}]
    imported(catalog, {"queues": queues, "vhosts": [{"name": "v", "metadata": {"default_queue_type": "stream"}}]})
    assert [queue.arguments for queue in catalog.queues("v")] == [{"x-queue-type": "stream"}]
    assert [queue.arguments for queue in catalog.queues("/")] == [{}]


def test_a_level_that_knows_no_descriptions_takes_what_every_export_says_and_refuses_the_rest() -> None:
    usual = {"description": "", "tags": [], "default_queue_type": "classic"}
    catalog = Catalog(1)
    assert imported(catalog, {"vhosts": [{"name": "v", **usual, "metadata": usual}]}).notes == []
    for said in ({"tags": ["x"]}, {"default_queue_type": "quorum"}, {"metadata": {"protected_from_deletion": True}}):
        with pytest.raises(EarlyDefinitions, match=r"vhosts.0.: .*feature level 8"):
            imported(Catalog(1), {"vhosts": [{"name": "v", **said}]})
    with pytest.raises(EarlyDefinitions, match=r"global_parameters.0.: .*feature level 8"):
        imported(Catalog(1), {"global_parameters": [{"name": "x", "value": 1}]})


def test_a_level_that_knows_no_global_parameters_leaves_out_what_every_export_has() -> None:
    file = {"global_parameters": FOUR["global_parameters"], "vhosts": [{"name": "v"}]}
    catalog = Catalog(1)
    catalog._state.level = LEVEL_GLOBAL_PARAMETERS - 1
    notes = imported(catalog, file).notes
    assert [note.partition(" ")[0] for note in notes] == ["global_parameters[0]:", "global_parameters[1]:"]
    assert f"global parameters begin with {LEVEL_GLOBAL_PARAMETERS}" in notes[0]
    assert (catalog.has_vhost("v"), catalog.global_parameters()) == (True, [])
    status, content = asyncio.run(definitions(catalog).import_(json.dumps(file).encode(), strict=True))
    assert (status, content["notes"]) == (400, notes)
    assert imported(at_the_highest_level(1), file).notes == []


@pytest.mark.parametrize(
    ("parameter", "text"),
    [
        ({"name": "cluster_name", "value": 5}, "cluster_name takes a string"),
        ({"name": "", "value": 5}, "a global parameter's name has 1 to 255 octets"),
        ({"name": "x", "value": 2**64}, "the value of x takes numbers of 64 bits"),
    ],
)
def test_bad_global_parameters_are_told(parameter: dict[str, Any], text: str) -> None:
    with pytest.raises(BadDefinitions, match=f"global_parameters.0.: {text}"):
        imported(at_the_highest_level(1), {"global_parameters": [parameter]})


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
    for limit in (SetLimit("user", "bob", "max-channels", 7), SetLimit("vhost", "shop", "max-connections", 0)):
        catalog.apply(limit)
    catalog.apply(SetPolicy("/", "p", "^x", {"expires": 1000}, 3, "queues", True))
    file = definitions_of(catalog)
    assert "passing" not in json.dumps(file)
    assert {user["name"]: user["limits"] for user in file["users"]}["bob"] == {"max-channels": 7}
    parameter = {"vhost": "shop", "component": "vhost-limits", "name": "limits", "value": {"max-connections": 0}}
    assert parameter in file["parameters"]
    other = Catalog(4)
    plan = imported(other, file)
    assert plan.notes == [] and definitions_of(other) == file


def limits_of_shop(value: object) -> dict[str, Any]:
    file = exported()
    file["parameters"].append({"vhost": "shop", "component": "vhost-limits", "name": "limits", "value": value})
    file["parameters"].append({"vhost": "shop", "component": "shovel", "name": "s", "value": {}})
    return file


def test_limits_come_in_after_what_they_limit() -> None:
    """Those of a vhost are replaced; those of a user are set. Also as pairs, as RabbitMQ 3.10 writes objects in
    parameters. Other ones are left out, with a note."""
    catalog = Catalog(4)
    file = limits_of_shop([["max-queues", 1], ["max-connections", 10]])
    file["users"][0]["limits"] = {"max-connections": 3}
    plan = imported(catalog, file)
    assert sum("shovel" in note for note in plan.notes) == 1
    shop, user = catalog.vhost("shop"), catalog.user(file["users"][0]["name"])
    assert shop is not None and shop.limits == {"max-queues": 1, "max-connections": 10}
    assert len(list(catalog.queues("shop"))) > 1
    assert user is not None and user.limits == {"max-connections": 3}
    before = catalog.snapshot()
    imported(catalog, file)
    assert catalog.snapshot() == before
    file["parameters"][-2]["value"] = {"max-connections": 5}
    file["users"][0]["limits"] = {}
    imported(catalog, file)
    shop, user = catalog.vhost("shop"), catalog.user(file["users"][0]["name"])
    assert shop is not None and shop.limits == {"max-connections": 5}
    assert user is not None and user.limits == {"max-connections": 3}


def test_limits_go_out_where_rabbitmq_has_them() -> None:
    """Its own export comes in, and what goes out then has the limits in the same places with the same values. (It has
    those of a vhost a second time in `vhosts`, as pairs, which it does not read.)"""
    catalog = Catalog(4)
    theirs = json.loads(LIMITED.read_text())
    plan = imported(catalog, theirs)
    ours = definitions_of(catalog)
    assert plan.notes == []
    assert ours["parameters"] == theirs["parameters"]
    assert {it["name"]: it["limits"] for it in ours["users"]} == {it["name"]: it["limits"] for it in theirs["users"]}
    assert ours["parameters"][0]["value"] == {"max-connections": 10, "max-queues": 5}


@pytest.mark.parametrize("value", ["many", {"max-channels": 3}, {"max-queues": -2}, {"max-queues": True}])
def test_limits_that_are_none_are_told(value: object) -> None:
    with pytest.raises(BadDefinitions, match=r"parameters\[1\].value"):
        imported(Catalog(4), limits_of_shop(value))


class Control:
    """Applies commands at once."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    async def catch_up(self) -> None:
        """It is up to date."""

    async def command(self, command: CatalogCommand) -> object:
        return self.catalog.apply(command)


class Engine:
    """The part of an engine that definitions without queues need."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog


def definitions(catalog: Catalog) -> Definitions:
    return Definitions(cast(Any, Engine(catalog)), cast(Any, Control(catalog)))


def test_a_file_is_loaded_once_whatever_node_starts_with_it() -> None:
    """A user that was deleted since stays away; another file, or the same one after it, is loaded."""
    file, other = exported(), exported()
    file["queues"] = other["queues"] = file["bindings"] = other["bindings"] = []
    other["users"][0]["tags"] = "management"
    catalog = Catalog(4)

    def load(content: object) -> Plan | None:
        return asyncio.run(definitions(catalog).load_once(json.dumps(content).encode()))

    assert load(file) is not None and catalog.user("ann") is not None
    catalog.apply(DeleteUser("ann"))
    assert load(file) is None and catalog.user("ann") is None
    restored = Catalog(4)
    restored.restore(catalog.snapshot())
    assert restored.definitions_digest == catalog.definitions_digest != ""
    assert load(other) is not None and load(other) is None and load(file) is not None
    assert catalog.user("ann") is not None
    file["users"][0]["tags"] = 7
    before = catalog.snapshot()
    with pytest.raises(BadDefinitions):
        load(file)
    assert catalog.snapshot() == before


def test_a_file_is_looked_at_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large one takes seconds."""
    threads: list[threading.Thread] = []

    def noted(look: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            threads.append(threading.current_thread())
            return look(*arguments)

        return run

    for name in ("read_definitions", "check_on"):
        monkeypatch.setattr(import_and_export, name, noted(getattr(import_and_export, name)))
    file = exported()
    file["queues"] = file["bindings"] = []
    asyncio.run(definitions(Catalog(4)).load(json.dumps(file).encode()))
    assert len(threads) == 2 and threading.main_thread() not in threads


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
        ("policies.0.definition", {"message-ttl": -1, "ha-mode": "all"}, "policies[0]: "),
        ("policies.0.definition", {}, "policies[0]: "),
        ("policies.0.apply-to", "topics", "policies[0]: "),
        ("permissions.0.read", "(", 'permissions[0].read = "(": no regular expression'),
        ("permissions.0.user", "nobody", "permissions[0]: "),
        ("users.0.hashing_algorithm", "rot13", "users[0]: hashing_algorithm is 'rot13', one of rabbit_password"),
        ("users.0.password_hash", "***", "users[0]: password_hash is not in base64"),
        ("users.0.name", "u\n", "a user's name has 1 to 255 octets and no control characters"),
        ("users.0.tags", ["t"] * 300, "users[0]: tags with 300 values, where 256 are the most"),
        ("queues.1.arguments", {"x": "y" * 16_384}, "queues[1]: arguments of 16392 octets, where 16384 are the most"),
        ("bindings.1.arguments", {"x": [{"y": 1}] * 200}, "bindings[1]: arguments with 401 values, where 256 are"),
        ("exchanges.0.arguments", {"x": [0] * 256}, "exchanges[0]: arguments with 257 values, where 256 are the most"),
        ("users.0.tags", 7, "users[0]: tags takes words with commas between, or a list of words"),
        ("users.0.tags", ["a\tb"], "users[0]: a tag has"),
        ("users.0.tags", "management,a\x00", "users[0]: a tag has 1 to 255 octets"),
        ("users.0.limits", {"max-queues": 3}, "users[0].limits: 'max-queues' is no limit of a user"),
        ("vhosts.0.name", "v" * 5000, "vhosts[0].name = "),
        ("vhosts.0.name", "", "a vhost's name has 1 to 255 octets"),
        ("queues.1.name", "ü" * 128, "a string of at most 255 octets is expected"),
        ("exchanges.0.name", "e" * 256, "a string of at most 255 octets is expected"),
        ("bindings.1.routing_key", "k" * 256, "a string of at most 255 octets is expected"),
        ("exchanges.0.type", 7, "exchanges[0].type = 7: a string is expected"),
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


def test_j4_streams_come_behind_those_that_they_copy() -> None:
    """Wherever they stand in a file; the rest stays in its order, and circles are refused when they are declared."""
    queues = [
        {"vhost": "/", "name": name, "durable": True, "arguments": {"x-queue-type": "stream", **more}}
        for name, more in (
            ("c", {"x-mirror": "b"}), ("a", {}), ("d", {"x-sources": ["a", "c"]}), ("b", {"x-sources": ["e"]}),
            ("e", {}),
        )
    ]  # fmt: skip
    catalog = Catalog(2)
    catalog._state.level = LEVEL_STREAMS
    imported(catalog, {"vhosts": [{"name": "/"}], "queues": queues})
    assert [queue.name for queue in catalog.queues("/")] == ["e", "b", "c", "a", "d"]
    assert read_definitions(json.dumps(definitions_of(catalog)).encode())
    circle = [{**queues[0], "arguments": {"x-queue-type": "stream", "x-mirror": "c"}}]
    assert len(read_definitions(json.dumps({"vhosts": [{"name": "/"}], "queues": circle}).encode()).commands) == 2
