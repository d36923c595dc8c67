"""Policies: what is refused, which applies, and what counts in the end (RULES T1, T3, L1, D1; goldens policy.*)."""
from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mayfly.cluster.versions import LEVEL_SCHEDULES
from mayfly.node.catalog import (
    AddVhost,
    Bind,
    Catalog,
    ClearPolicy,
    DeclareExchange,
    DeclareQueue,
    DeleteVhost,
    Done,
    PolicyRecord,
    PolicySet,
    QueueDeclared,
    QueueRecord,
    QueueSettings,
    RaiseLevel,
    Refusal,
    SetPolicy,
    check_policy,
    policies,
)
from mayfly.node.catalog.arguments import MAX_TTL_MS
from mayfly.node.catalog.expressions import LONGEST_EXPRESSION, Expression, expression
from mayfly.node.catalog.policies import MAX_LIMIT, MAX_PRIORITY
from tests.node.readings import policy_of


def policy(definition: dict[str, Any], pattern: str = "", **options: Any) -> SetPolicy:
    return SetPolicy(**({"vhost": "/", "name": "p", "pattern": pattern, "definition": definition} | options))


def refusal(command: SetPolicy) -> list[str]:
    """The lines with which the command is refused: by whoever checks it and, its pattern aside, in the catalog."""
    with pytest.raises(Refusal) as caught:
        check_policy(command)
    assert caught.value.code == 406
    catalog = Catalog(1)
    before = catalog.snapshot()
    if "regular expression" not in caught.value.text:
        assert catalog.apply(command) == caught.value
        assert catalog.snapshot() == before
        assert catalog.policies_version == 0
    return caught.value.text.split("\n")


def declared(catalog: Catalog, name: str = "q", vhost: str = "/", **arguments: Any) -> QueueRecord:
    named = {key.replace("_", "-"): value for key, value in arguments.items()}
    return declared_with(catalog, named, name, vhost)


def declared_with(catalog: Catalog, arguments: dict[str, Any], name: str = "q", vhost: str = "/") -> QueueRecord:
    named = {f"x-{key}": value for key, value in arguments.items()}
    result = catalog.apply(DeclareQueue(vhost, name, durable=True, arguments=named))
    assert isinstance(result, QueueDeclared), result
    return result.queue


def put(catalog: Catalog, command: SetPolicy) -> None:
    check_policy(command)
    result = catalog.apply(command)
    assert isinstance(result, PolicySet), result


# -- what is refused


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ({"message-ttl": -1}, "-1 is not a valid message TTL"),
        ({"message-ttl": "1000"}, '<<"1000">> is not a valid message TTL'),
        ({"expires": 0}, "0 is not a valid queue expiry"),
        ({"no-such-thing": 1}, '[{<<"no-such-thing">>,1}] are not recognised policy settings'),
        ({"overflow": "drop-tail"}, '<<"drop-tail">> is not a valid overflow value'),
        ({"max-length": -1}, "-1 is not a valid maximum length"),
        ({"dead-letter-exchange": 5}, "5 is not a valid dead letter exchange name"),
        ({"queue-leader-locator": "nope"}, '<<"nope">> is not a valid queue leader locator value'),
        ({"queue-master-locator": "nope"}, '<<"nope">> invalid queue-master-locator value'),
        ({}, "no policy provided"),
    ],
)
@pytest.mark.parametrize("operator", [False, True])
def test_recorded_refusals(definition: dict[str, Any], text: str, operator: bool) -> None:
    """Golden policy.invalid_definitions: the last line is RabbitMQ's."""
    lines = refusal(policy(definition, operator=operator))
    assert lines[-1] == text
    assert len(lines) == 2, "a line says what would be right"


@pytest.mark.parametrize(
    ("key", "bad"),
    [
        ("message-ttl", [-1, MAX_TTL_MS + 1, 1.0, "1", True, None, [], {}, 2**70]),
        ("expires", [0, -1, MAX_TTL_MS + 1, 1.5, "1", False, None]),
        ("max-length", [-1, MAX_LIMIT + 1, 1.0, "1", True]),
        ("max-length-bytes", [-1, MAX_LIMIT + 1, 1.0, "1", True]),
        ("delivery-limit", [-2, MAX_LIMIT + 1, 1.0, "1", True]),
        ("overflow", ["", "drop", 1, None, ["drop-head"]]),
        ("dead-letter-exchange", [1, None, "x" * 256, "ü" * 128]),
        ("dead-letter-routing-key", [1, None, "x" * 256]),
        ("dead-letter-strategy", ["once", 1, True]),
        ("ttl-applies", ["never", True]),
        ("alternate-exchange", [1, None, "x" * 256]),
        ("queue-leader-locator", ["min-masters", "", 1, ["random"]]),
    ],
)
def test_t1_l1_bad_values_are_named_with_what_would_be_right(key: str, bad: list[Any]) -> None:
    for value in bad:
        definition = {key: value} | ({"dead-letter-exchange": "x"} if key == "dead-letter-routing-key" else {})
        hint, text = refusal(policy(definition))
        assert hint.startswith(f"{key} takes ")
        assert " is not a valid " in text


@pytest.mark.parametrize(
    ("key", "good"),
    [
        ("message-ttl", [0, MAX_TTL_MS]), ("expires", [1, MAX_TTL_MS]), ("max-length", [0, MAX_LIMIT]),
        ("max-length-bytes", [0, MAX_LIMIT]), ("delivery-limit", [-1, 0, MAX_LIMIT]),
        ("overflow", ["drop-head", "reject-publish", "reject-publish-dlx"]),
        ("dead-letter-exchange", ["", "x" * 255]), ("dead-letter-strategy", ["at-least-once", "at-most-once"]),
        ("ttl-applies", ["default", "retroactive"]), ("alternate-exchange", ["", "x"]),
    ],
)  # fmt: skip
def test_good_values_are_taken(key: str, good: list[Any]) -> None:
    for value in good:
        for operator in (False, True):
            put(Catalog(1), policy({key: value}, operator=operator))


def test_d1_a_routing_key_without_an_exchange() -> None:
    assert "dead-letter-exchange" in refusal(policy({"dead-letter-routing-key": "k"}))[0]
    put(Catalog(1), policy({"dead-letter-routing-key": "k", "dead-letter-exchange": ""}))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"apply_to": "queue"}, "apply-to 'queue' unrecognised; should be one of: "),
        ({"apply_to": "exchanges"}, "message-ttl is a setting of queues, and this policy applies to exchanges"),
        ({"priority": MAX_PRIORITY + 1}, f"priority should be a number, actually was {MAX_PRIORITY + 1}"),
        ({"name": ""}, "a policy's name has 1 to 255 octets, this one has 0"),
        ({"name": "ü" * 128}, "a policy's name has 1 to 255 octets, this one has 256"),
    ],
)
def test_other_bad_values(options: dict[str, Any], text: str) -> None:
    assert refusal(policy({"message-ttl": 1}, **options))[-1].startswith(text)


def test_exchange_settings_are_not_for_queues() -> None:
    text = "alternate-exchange is a setting of exchanges, and this policy applies to queues"
    assert refusal(policy({"alternate-exchange": "x"}, apply_to="queues")) == [text]


def test_no_such_vhost() -> None:
    for command in (policy({"expires": 1}, vhost="none"), ClearPolicy("none", "p")):
        answer = Catalog(1).apply(command)
        assert isinstance(answer, Refusal)
        assert answer.text == "vhost none not found"


# -- patterns


@pytest.mark.parametrize("pattern", ["(", "x" * (LONGEST_EXPRESSION + 1), "(a)\\1", "^.{40}x"])
@pytest.mark.parametrize("operator", [False, True])
def test_patterns_that_cannot_be_used_are_refused(pattern: str, operator: bool) -> None:
    text = refusal(policy({"expires": 1}, pattern, operator=operator))[0]
    assert text.startswith("pattern should be regular expression but is invalid: ")


@pytest.mark.parametrize(
    "pattern",
    ["", "^", ".*", "^amq\\.", "^(orders|payments)\\..*-v\\d{1,3}$", "^(?!amq\\.).*", "[a-z]+\\.[0-9]+", "(?i)^QUEUE$",
     "^a.*b.*c.*d$", "^(" + "|".join(f"team-{n}" for n in range(60)) + ")\\.", "^\\d{4}-\\d{2}$", "(a|b)+",
     "^(a|b)\\.retry\\..*$", "^[a-z]{3}-\\d+$", ".*\\.retry\\..*", "^a{255}$", "(a+)+$", "(a|aa)+$", ".*(?<!-v1)$"],
)  # fmt: skip
def test_patterns_that_people_use_are_taken_and_apply(pattern: str) -> None:
    catalog = Catalog(1)
    put(catalog, policy({"expires": 1}, pattern))
    for name in ("a" * 255, "ab" * 127, "orders.x-v1"):
        assert (applying(catalog, declared(catalog, name)) == ["p", None]) == bool(re.search(pattern, name))


@pytest.mark.parametrize(
    "pattern", ["(", "(a*)(a*)(a*)(a*)" + "\\4{255}" * 135, "^.{40}x", "((((){255}){255}){255}){255}"]
)
def test_a_pattern_that_cannot_be_searched_matches_nothing_and_can_be_deleted(pattern: str) -> None:
    """A release before may have taken it."""
    catalog = Catalog(1)
    queue = declared(catalog, "a" * 255)
    assert catalog.apply(policy({"expires": 1}, pattern)) == PolicySet(created=True)
    restarted = Catalog(1)
    restarted.restore(catalog.snapshot())
    for each in (catalog, restarted):
        assert each.policies_of_queue(queue) == (None, None)
        assert policy_of(each, "/", "p") is not None
        assert each.apply(ClearPolicy("/", "p")) == Done()


def test_a_vhost_has_so_many_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is held against all of them, and each is prepared at every start."""
    catalog = Catalog(1)
    monkeypatch.setattr(policies, "POLICIES", 2)
    for name in ("p", "other", "p"):
        command = policy({"expires": 1}, "^a", name=name)
        check_policy(command, catalog.policies("/"))
        catalog.apply(command)
    with pytest.raises(Refusal, match="vhost '/' has 2 policies") as caught:
        check_policy(policy({"expires": 1}, "^a", name="third"), catalog.policies("/"))
    assert caught.value.code == 406
    monkeypatch.setattr(policies, "POLICY_STEPS", 3 * expression("^a").steps - 1)
    monkeypatch.setattr(policies, "POLICIES", 3)
    with pytest.raises(Refusal, match=r"would take \d+ steps to prepare, at most \d+ are taken: simplify them"):
        check_policy(policy({"expires": 1}, "^a", name="third"), catalog.policies("/"))


def test_the_order_of_precedence_and_the_keys_follow_the_policies() -> None:
    table = policies.PolicyTable()
    for name, priority, key in (("b", 1, "expires"), ("a", 1, "max-length"), ("c", 2, "expires"), ("b", 3, "overflow")):
        table.put(PolicyRecord("/", name, "", {key: 1}, priority, "all"))
    assert [record.name for record in table.by_precedence()] == ["b", "c", "a"]
    assert set(table.keys_used) == {"overflow", "expires", "max-length"} and len(table) == 3
    table.remove("c")
    assert table.remove("c") is None
    assert [record.name for record in table.by_precedence()] == ["b", "a"]
    assert set(table.keys_used) == {"overflow", "max-length"}
    assert [record.name for record in table.records()] == ["b", "a"]


def test_a_change_of_policies_looks_at_no_exchange_before_it_is_used() -> None:
    """It is one step of the log, and a vhost may have thousands of both."""
    catalog = Catalog(1)
    declared(catalog, "q")
    for number in range(3):
        catalog.apply(DeclareExchange("/", f"x{number}", "fanout"))
    catalog.apply(DeclareExchange("/", "to", "fanout"))
    catalog.apply(Bind("/", "to", "queue", "q", ""))
    put(catalog, policy({"alternate-exchange": "to"}, "^x", apply_to="exchanges"))
    exchanges = catalog._state.vhosts["/"]._exchanges
    assert all(exchange.alternate is None for exchange in exchanges.values())
    assert [queue.name for queue in catalog.route("/", "x1", "k")] == ["q"]
    assert [name for name, exchange in exchanges.items() if exchange.alternate is not None] == ["x1"]
    catalog.apply(ClearPolicy("/", "p"))
    assert catalog.route("/", "x1", "k") == ()


# -- which applies


def applying(catalog: Catalog, queue: QueueRecord) -> list[str | None]:
    return [None if each is None else each.name for each in catalog.policies_of_queue(queue)]


def test_one_policy_and_one_operator_policy_apply() -> None:
    """Golden policy.highest_priority_alone: they do not add up."""
    catalog = Catalog(1)
    queue = declared(catalog)
    put(catalog, policy({"message-ttl": 300}, "^q", name="low", priority=1))
    put(catalog, policy({"max-length": 1}, "^q", name="high", priority=5))
    put(catalog, policy({"expires": 7}, "^q", name="operator", priority=-3, operator=True))
    assert applying(catalog, queue) == ["high", "operator"]
    assert catalog.policy_definition(queue) == {"expires": 7, "max-length": 1}
    assert catalog.effective_settings(queue) == QueueSettings(max_length=1, expires_ms=7)
    assert catalog.apply(ClearPolicy("/", "high")) == Done()
    assert catalog.effective_settings(queue) == QueueSettings(message_ttl_ms=300, expires_ms=7)
    assert catalog.apply(ClearPolicy("/", "operator")) == Done(changed=False), "that name is an operator policy's"
    assert catalog.apply(ClearPolicy("/", "operator", operator=True)) == Done()
    assert catalog.apply(ClearPolicy("/", "low")) == Done()
    assert catalog.effective_settings(queue) == queue.settings == QueueSettings()


@given(st.permutations(["a", "b", "c", "d"]))
def test_of_equal_priorities_the_first_name_counts_whatever_the_order(names: list[str]) -> None:
    catalog = Catalog(1)
    queue = declared(catalog)
    for name in names:
        put(catalog, policy({"expires": 1}, name=name, priority=2 if name in "bc" else 1))
    assert applying(catalog, queue) == ["b", None]
    assert [each.name for each in catalog.policies()] == ["b", "c", "a", "d"]


@pytest.mark.parametrize(
    ("apply_to", "plain", "classic", "quorum"),
    [("all", True, True, True), ("queues", True, True, True), ("classic_queues", True, True, False),
     ("quorum_queues", False, False, True)],
)  # fmt: skip
def test_apply_to_goes_by_the_type_that_was_asked_for(
    apply_to: str, plain: bool, classic: bool, quorum: bool
) -> None:
    catalog = Catalog(1)
    put(catalog, policy({"expires": 1}, apply_to=apply_to))
    queues = (
        declared(catalog, "one"),
        declared(catalog, "two", queue_type="classic"),
        declared(catalog, "three", queue_type="quorum"),
    )
    assert [applying(catalog, queue)[0] == "p" for queue in queues] == [plain, classic, quorum]


def test_policies_are_of_their_vhost_and_go_with_it() -> None:
    catalog = Catalog(1)
    catalog.apply(AddVhost("v"))
    put(catalog, policy({"expires": 1}, vhost="v"))
    put(catalog, policy({"expires": 2}, vhost="v", operator=True))
    assert applying(catalog, declared(catalog)) == [None, None]
    assert applying(catalog, declared(catalog, vhost="v")) == ["p", "p"]
    catalog.apply(DeleteVhost("v"))
    catalog.apply(AddVhost("v"))
    assert list(catalog.policies("v")) == list(catalog.policies("v", operator=True)) == []
    assert applying(catalog, declared(catalog, vhost="v")) == [None, None]


def test_answers_tell_new_from_replaced() -> None:
    catalog = Catalog(1)
    assert catalog.apply(policy({"expires": 1})) == PolicySet(created=True)
    assert catalog.apply(policy({"expires": 1})) == PolicySet(created=False)
    assert catalog.policies_version == 1, "the same again changes nothing"
    assert catalog.apply(policy({"expires": 2})) == PolicySet(created=False)
    assert catalog.policies_version == 2
    assert catalog.apply(ClearPolicy("/", "p")) == Done()
    assert catalog.apply(ClearPolicy("/", "p")) == Done(changed=False)
    assert catalog.policies_version == 3


# -- what counts in the end

NUMBERS = ("message-ttl", "expires", "max-length", "max-length-bytes")
FIELDS = {"message-ttl": "message_ttl_ms", "expires": "expires_ms", "max-length": "max_length",
          "max-length-bytes": "max_length_bytes"}  # fmt: skip
GIVEN = st.dictionaries(st.sampled_from(NUMBERS), st.integers(1, 9), max_size=4)


@given(GIVEN, GIVEN, GIVEN, st.booleans())
def test_t3_l1_of_numbers_the_lowest_counts(
    arguments: dict[str, int], own: dict[str, int], operators: dict[str, int], policies_first: bool
) -> None:
    """Whatever is set first, and however often: argument, policy and operator policy together, the lowest."""
    catalog = Catalog(1)
    queue = None if policies_first else declared_with(catalog, arguments)
    for definition, operator in ((own, False), (operators, True)):
        if definition:
            put(catalog, policy(definition, operator=operator))
    queue = queue or declared_with(catalog, arguments)
    settings = catalog.effective_settings(queue)
    for key in NUMBERS:
        given = [each[key] for each in (arguments, own, operators) if key in each]
        assert getattr(settings, FIELDS[key]) == (min(given) if given else None)
    shown = {key: min(each[key] for each in (own, operators) if key in each) for key in sorted({*own, *operators})}
    assert catalog.policy_definition(queue) == shown
    catalog.apply(ClearPolicy("/", "p"))
    catalog.apply(ClearPolicy("/", "p", operator=True))
    assert catalog.effective_settings(queue) == queue.settings


@pytest.mark.parametrize("type_", ["classic", "quorum"])
@given(
    st.none() | st.integers(-1, 5), st.none() | st.integers(-1, 5), st.none() | st.integers(-1, 5)
)
def test_a_negative_delivery_limit_is_none(
    type_: str, argument: int | None, own: int | None, operators: int | None
) -> None:
    """Of limits that are given the lowest counts; the default of quorum queues (20) counts when none is given."""
    catalog = Catalog(1)
    arguments: dict[str, Any] = {} if argument is None else {"delivery_limit": argument}
    queue = declared(catalog, queue_type=type_, **arguments)
    for limit, operator in ((own, False), (operators, True)):
        if limit is not None:
            put(catalog, policy({"delivery-limit": limit}, operator=operator))
    given = [limit for limit in (argument, own, operators) if limit is not None]
    limits = [limit for limit in given if limit >= 0]
    default = 20 if type_ == "quorum" else None
    expected = min(limits) if limits else None if given else default
    assert catalog.effective_settings(queue).delivery_limit == expected


def test_d1_the_argument_wins_over_the_policy_and_that_over_the_operator_policy() -> None:
    catalog = Catalog(1)
    own = {"dead-letter-exchange": "policy", "dead-letter-routing-key": "policy"}
    operators = {"dead-letter-exchange": "operator", "dead-letter-routing-key": "operator"}
    put(catalog, policy(operators | {"dead-letter-strategy": "at-most-once"}, operator=True))
    bare = declared(catalog, "bare")

    def dead_letters(queue: QueueRecord) -> tuple[str | None, str | None, str]:
        settings = catalog.effective_settings(queue)
        return settings.dead_letter_exchange, settings.dead_letter_routing_key, settings.dead_letter_strategy

    assert dead_letters(bare) == ("operator", "operator", "at-most-once")
    put(catalog, policy(own))
    assert dead_letters(bare) == ("policy", "policy", "at-most-once")
    with_exchange = declared(catalog, "one", dead_letter_exchange="")
    assert dead_letters(with_exchange) == ("", "policy", "at-most-once")
    with_all = declared(
        catalog, "all", dead_letter_exchange="x", dead_letter_routing_key="k", dead_letter_strategy="at-least-once"
    )
    assert dead_letters(with_all) == ("x", "k", "at-least-once")


def test_t12_ttl_applies_and_overflow() -> None:
    catalog = Catalog(1)
    bare = declared(catalog, "bare")
    with_arguments = declared(catalog, "with", ttl_applies="default", overflow="reject-publish-dlx")
    put(catalog, policy({"ttl-applies": "retroactive", "overflow": "reject-publish"}))
    assert catalog.effective_settings(bare) == QueueSettings(ttl_retroactive=True, overflow="reject-publish")
    settings = catalog.effective_settings(with_arguments)
    assert not settings.ttl_retroactive
    assert settings.overflow == "reject-publish", "as RabbitMQ's quorum queues have it"
    put(catalog, policy({"ttl-applies": "default"}))
    assert not catalog.effective_settings(bare).ttl_retroactive


# -- which queues a change concerns


def test_changes_concern_the_queues_that_matched_or_match() -> None:
    catalog = Catalog(1)
    queues = [declared(catalog, name) for name in ("a", "b", "c")]
    put(catalog, policy({"expires": 1}, "^a"))
    put(catalog, policy({"expires": 1}, "^b"))
    put(catalog, policy({"expires": 1}, "^c", operator=True))

    def concerned(since: int) -> list[list[str]]:
        changes = catalog.policy_changes(since)
        assert changes is not None
        return [[queue.name for queue in queues if change.concerns(queue)] for change in changes]

    assert concerned(0) == [["a"], ["a", "b"], ["c"]]
    assert concerned(2) == [["c"]]
    assert concerned(3) == []
    catalog.restore(catalog.snapshot())
    assert catalog.policy_changes(3) is None
    assert catalog.policy_changes(4) == []
    for number in range(300):
        put(catalog, policy({"expires": number + 1}))
    assert catalog.policy_changes(4) is None, "too long ago"
    assert len(catalog.policy_changes(304 - 256) or ()) == 256


def test_queues_since() -> None:
    catalog = Catalog(1)
    queues = [declared(catalog, name) for name in "abcd"]
    assert [queue.name for queue in catalog.queues_since(queues[2].id)] == ["d", "c"]
    assert list(catalog.queues_since(catalog.next_queue_id)) == []
    catalog.restore(catalog.snapshot())
    assert [queue.name for queue in catalog.queues_since(queues[3].id)] == ["d"]


# -- exchanges


def test_alternate_exchange_by_policy() -> None:
    """It works on exchanges that are there, on new ones, and after a snapshot; the argument wins."""
    catalog = Catalog(1)
    for name in ("other", "own"):
        catalog.apply(DeclareExchange("/", name, "fanout"))
        declared(catalog, name)
        catalog.apply(Bind("/", name, "queue", name))
    catalog.apply(DeclareExchange("/", "plain", "direct"))
    catalog.apply(DeclareExchange("/", "argued", "direct", arguments={"alternate-exchange": "own"}))

    def reached(exchange: str) -> list[str]:
        return [queue.name for queue in catalog.route("/", exchange, "k")]

    assert reached("plain") == []
    version = catalog.routing_version
    put(catalog, policy({"alternate-exchange": "other"}, "^(plain|argued|new)$", apply_to="exchanges"))
    assert catalog.routing_version > version
    catalog.apply(DeclareExchange("/", "new", "direct"))
    for _ in range(2):
        assert (reached("plain"), reached("argued"), reached("new")) == (["other"], ["own"], ["other"])
        catalog.restore(catalog.snapshot())
    catalog.apply(ClearPolicy("/", "p"))
    assert (reached("plain"), reached("argued")) == ([], ["own"])


def test_definitions_survive_json_as_they_are() -> None:
    catalog = Catalog(1)
    put(catalog, policy({"overflow": "drop-head", "expires": 5}))
    record = policy_of(catalog, "/", "p")
    assert record is not None
    assert json.dumps(record.definition) == '{"expires": 5, "overflow": "drop-head"}'


def test_the_default_exchange_has_no_alternate() -> None:
    """A publish to a queue that is not there is returned, whatever policies fit an empty name."""
    catalog = Catalog(1)
    catalog.apply(DeclareExchange("/", "other", "fanout"))
    declared(catalog, "caught")
    catalog.apply(Bind("/", "other", "queue", "caught"))
    catalog.apply(DeclareExchange("/", "plain", "direct"))
    for operator in (False, True):
        put(catalog, policy({"alternate-exchange": "other"}, "", operator=operator))
        assert list(catalog.route("/", "", "missing")) == []
        assert list(catalog.route("/", "", "missing", extra_keys=["too"])) == [], "with the header CC"
        assert [queue.name for queue in catalog.route("/", "plain", "k")] == ["caught"]
        catalog.apply(ClearPolicy("/", "p", operator))


def test_a_policy_without_an_alternate_exchange_hides_one_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one applies, as for queues. Where no policy has one, no pattern is held against the exchanges' names."""
    catalog = Catalog(1)
    searched: list[str] = []
    search = Expression.search

    def noted(pattern: Expression, name: str) -> bool:
        searched.append(name)
        return search(pattern, name)

    monkeypatch.setattr(Expression, "search", noted)
    catalog.apply(DeclareExchange("/", "other", "fanout"))
    declared(catalog, "caught")
    catalog.apply(Bind("/", "other", "queue", "caught"))
    catalog.apply(DeclareExchange("/", "plain", "direct"))
    searched.clear()
    put(catalog, policy({"expires": 100_000}, priority=1))
    assert searched == []
    put(catalog, policy({"alternate-exchange": "other"}, name="below"))
    assert list(catalog.route("/", "plain", "k")) == []
    assert "plain" in searched
    catalog.apply(ClearPolicy("/", "p"))
    assert [queue.name for queue in catalog.route("/", "plain", "k")] == ["caught"]


def test_s5_retries_of_two_policies_and_arguments_together() -> None:
    """As RabbitMQ 4.3: of policies the operator's type, the longer minimum and the shorter maximum; with arguments the
    policies' type and the lowest numbers."""
    catalog = Catalog(1)
    catalog.apply(RaiseLevel(LEVEL_SCHEDULES, ()))
    own = {"delayed-retry-type": "all", "delayed-retry-min": 1000, "delayed-retry-max": 9000}
    theirs = {"delayed-retry-type": "failed", "delayed-retry-min": 2000, "delayed-retry-max": 8000}
    put(catalog, policy(own))
    put(catalog, policy(theirs, operator=True))
    plain = declared(catalog, "plain")
    given_some = declared(catalog, "given", delayed_retry_type="returned", delayed_retry_min=500)
    found = catalog.effective_settings(plain)
    assert (found.retry_type, found.retry_min_ms, found.retry_max_ms) == ("failed", 2000, 8000)
    found = catalog.effective_settings(given_some)
    assert (found.retry_type, found.retry_min_ms, found.retry_max_ms) == ("failed", 500, 8000)


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ({"delayed-retry-type": "all"}, "delayed-retry-min is required when delayed-retry-type is all"),
        (
            {"delayed-retry-type": "some", "delayed-retry-min": 1},
            '<<"some">> is not a valid delayed retry type. Must be one of: all, failed, returned, disabled',
        ),
        ({"delayed-retry-min": 0}, "0 is not a valid delayed retry minimum delay. Must be a positive integer"),
        (
            {"delayed-retry-type": "all", "delayed-retry-min": 1000, "delayed-retry-max": 500},
            "delayed-retry-max (500) must not be smaller than delayed-retry-min (1000)",
        ),
    ],
)
def test_s5_recorded_refusals(definition: dict[str, Any], text: str) -> None:
    """Golden policy4.keys_of_4: the last line is RabbitMQ's."""
    assert refusal(policy(definition))[-1] == text


def test_s5_keys_wait_for_their_level() -> None:
    catalog = Catalog(1)
    early = catalog.apply(policy({"delayed-retry-min": 5}))
    assert isinstance(early, Refusal)
    assert early.text.startswith("delayed-retry-min needs feature level 8, the cluster is at 1")
