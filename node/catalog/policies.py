"""Policies: what they may say, which of them applies to a queue or exchange, and what two of them say together.

As in RabbitMQ, one policy and one operator policy apply: of those of the vhost whose kind of thing and pattern fit,
the one with the highest priority; of several with the same priority the one whose name comes first by its characters
(RabbitMQ leaves that open). Policies do not add up, but the operator policy is laid over the policy: a number counts
if it is the lower one, of anything else the policy's word counts.

Refusals carry a line that says what would be right and then, last, RabbitMQ's own line (golden
policy.invalid_definitions).
"""
from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

from mayfly.cluster.versions import (
    LEVEL_BRAKES,
    LEVEL_CONSUMER_TIMEOUTS,
    LEVEL_EXPIRE_SCOPE,
    LEVEL_JOURNALS,
    LEVEL_LEADER_LOCATORS,
    LEVEL_SCHEDULES,
    LEVEL_STREAMS,
    LEVEL_TTL_DIALECTS,
)
from mayfly.node.amqp.errors import PRECONDITION_FAILED
from mayfly.node.catalog import brakes, delayed_retries
from mayfly.node.catalog.arguments import MAX_TTL_MS
from mayfly.node.catalog.commands import SetPolicy
from mayfly.node.catalog.expressions import Expression, expression, expression_fault
from mayfly.node.catalog.leader_locators import LEADER_LOCATOR, LEADER_LOCATORS, MASTER_LOCATOR, MASTER_LOCATORS
from mayfly.node.catalog.records import ApplyTo, PolicyRecord
from mayfly.node.catalog.results import Refusal
from mayfly.node.catalog.streams import age_ms
from mayfly.node.catalog.ttl_dialects import POLICY_KEY, TTL_DIALECTS
from mayfly.node.catalog.values import json_term
from mayfly.node.limits import POLICIES, POLICY_STEPS

MAX_LIMIT: Final = 2**48 - 1
"""The highest length, number of bytes or deliveries that a limit can be."""

MAX_PRIORITY: Final = 2**31 - 1

_LONGEST_NAME_BYTES: Final = 255

_APPLY_TO: Final[dict[str, tuple[str, ...]]] = {
    "all": ("classic", "quorum", "stream", "exchange"),
    "queues": ("classic", "quorum", "stream"),
    "classic_queues": ("classic",),
    "quorum_queues": ("quorum",),
    "streams": ("stream",),
    "exchanges": ("exchange",),
}
"""What each value of apply-to is for: queues by the type that was asked for, and exchanges."""


class _Key:
    """A key of definitions: which values it takes, in words too, and what RabbitMQ says of others."""

    def __init__(self, takes: Callable[[Any], bool], expected: str, called: str = "", fault: str = "") -> None:
        """`called` is RabbitMQ's name for a value, `fault` its whole text where that is another one than usual."""
        self.takes = takes
        self.expected = expected
        self.fault = fault or f"is not a valid {called}"


def _number(lowest: int, highest: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest


def _one_of(*words: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and value in words


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and len(value.encode("utf-8", "surrogatepass")) <= _LONGEST_NAME_BYTES


_NAME: Final = f"a string of at most {_LONGEST_NAME_BYTES} octets"
_KEYS: Final = {
    "allow-schedule": _Key(lambda value: isinstance(value, bool), "true or false", "allow-schedule value"),
    "alternate-exchange": _Key(_is_name, f"{_NAME}, the name of an exchange", "alternate exchange name"),
    "consumer-disconnected-timeout": _Key(
        _number(0, MAX_LIMIT), f"an integer from 0 to {MAX_LIMIT} (milliseconds)", "consumer disconnected timeout"
    ),
    "consumer-timeout": _Key(
        _number(0, MAX_LIMIT), f"an integer from 0 to {MAX_LIMIT} (milliseconds)", "consumer timeout"
    ),
    brakes.RATE: _Key(brakes.is_rate, brakes.RATES, "dead letter brake rate"),
    brakes.WINDOW: _Key(
        _number(1, brakes.MOST_WINDOW_MS), f"an integer from 1 to {brakes.MOST_WINDOW_MS} (milliseconds)",
        "dead letter brake window",
    ),
    "dead-letter-exchange": _Key(_is_name, f"{_NAME}, the name of an exchange", "dead letter exchange name"),
    "dead-letter-routing-key": _Key(_is_name, _NAME, "dead letter routing key"),
    "dead-letter-strategy": _Key(
        _one_of("at-least-once", "at-most-once"), "at-least-once or at-most-once", "dead letter strategy"
    ),
    delayed_retries.JITTER: _Key(delayed_retries.is_jitter, "a number from 0 to 1", "delayed retry jitter"),
    delayed_retries.MAX: _Key(
        _number(1, MAX_TTL_MS), f"an integer from 1 to {MAX_TTL_MS} (milliseconds)",
        fault="is not a valid delayed retry maximum delay. Must be a positive integer",
    ),
    delayed_retries.MIN: _Key(
        _number(1, MAX_TTL_MS), f"an integer from 1 to {MAX_TTL_MS} (milliseconds)",
        fault="is not a valid delayed retry minimum delay. Must be a positive integer",
    ),
    delayed_retries.MULTIPLIER: _Key(
        _number(1, delayed_retries.MOST_MULTIPLIER), f"an integer from 1 to {delayed_retries.MOST_MULTIPLIER}",
        "delayed retry multiplier",
    ),
    delayed_retries.TYPE: _Key(
        _one_of(*delayed_retries.TYPES), "all, failed, returned or disabled",
        fault="is not a valid delayed retry type. Must be one of: all, failed, returned, disabled",
    ),
    "delivery-limit": _Key(
        _number(-1, MAX_LIMIT), f"an integer from 0 to {MAX_LIMIT}, or -1 for no limit", "delivery limit"
    ),
    "expires": _Key(_number(1, MAX_TTL_MS), f"an integer from 1 to {MAX_TTL_MS} (milliseconds)", "queue expiry"),
    "journal": _Key(
        lambda value: _is_name(value) and value != "", f"{_NAME}, the name of a stream", "name of a journal"
    ),
    "max-age": _Key(
        lambda value: isinstance(value, str) and age_ms(value) is not None,
        "a number with a unit, one of Y, M, D, h, m and s, such as 7D", "max age",
    ),
    "max-length": _Key(_number(0, MAX_LIMIT), f"an integer from 0 to {MAX_LIMIT}", "maximum length"),
    "max-length-bytes": _Key(_number(0, MAX_LIMIT), f"an integer from 0 to {MAX_LIMIT}", "maximum length in bytes"),
    "message-ttl": _Key(_number(0, MAX_TTL_MS), f"an integer from 0 to {MAX_TTL_MS} (milliseconds)", "message TTL"),
    "overflow": _Key(
        _one_of("drop-head", "reject-publish", "reject-publish-dlx"),
        "drop-head, reject-publish or reject-publish-dlx", "overflow value",
    ),
    LEADER_LOCATOR: _Key(
        _one_of(*LEADER_LOCATORS), "client-local, balanced, least-leaders or random", "queue leader locator value"
    ),
    MASTER_LOCATOR: _Key(
        _one_of(*MASTER_LOCATORS), "client-local, min-masters or random", fault="invalid queue-master-locator value"
    ),
    POLICY_KEY: _Key(_one_of(*TTL_DIALECTS), "rabbitmq, lavinmq or ottermq", "TTL dialect"),
    "expire-scope": _Key(_one_of("head", "any"), "head or any", "expire-scope value"),
    "ttl-applies": _Key(_one_of("default", "retroactive"), "default or retroactive", "ttl-applies value"),
}

KEYS_SINCE_LEVEL: Final = {
    LEADER_LOCATOR: LEVEL_LEADER_LOCATORS,
    MASTER_LOCATOR: LEVEL_LEADER_LOCATORS,
    "consumer-timeout": LEVEL_CONSUMER_TIMEOUTS,
    "consumer-disconnected-timeout": LEVEL_CONSUMER_TIMEOUTS,
    POLICY_KEY: LEVEL_TTL_DIALECTS,
    "expire-scope": LEVEL_EXPIRE_SCOPE,
    "journal": LEVEL_JOURNALS,
    **dict.fromkeys(brakes.KEYS, LEVEL_BRAKES),
    **dict.fromkeys(("allow-schedule", *delayed_retries.KEYS), LEVEL_SCHEDULES),
    "max-age": LEVEL_STREAMS,
}
"""Feature levels of the cluster below which no policy may have such a key."""

_LOWEST_COUNTS: Final = frozenset(
    {
        "message-ttl", "expires", "max-length", "max-length-bytes", "delivery-limit", "consumer-timeout",
        delayed_retries.MIN, delayed_retries.MAX, brakes.RATE,
    }
)  # fmt: skip


# -- what may be said -----------------------------------------------------------------------------


def check_policy(command: SetPolicy, known: Iterable[PolicyRecord] = ()) -> None:
    """Refuse (406) a policy with a bad value, its pattern included, or one too many beside those of its kind and vhost
    that are `known`. For whoever gives the command to the log."""
    fault = expression_fault(command.pattern)
    if fault is not None:
        raise _refused(f"pattern should be regular expression but is invalid: {fault}")
    policy_record(command)
    others = [record for record in known if record.name != command.name]
    if len(others) >= POLICIES:
        raise _refused(
            f"vhost '{command.vhost}' has {len(others)} policies, and may have {POLICIES}: names are held against all"
        )
    steps = sum(expression(record.pattern).steps for record in others) + expression(command.pattern).steps
    if steps > POLICY_STEPS:
        raise _refused(
            f"the patterns of all policies of vhost '{command.vhost}' would take {steps} steps to prepare, at most "
            f"{POLICY_STEPS} are taken: simplify them"
        )


def policy_record(command: SetPolicy) -> PolicyRecord:
    """The policy that the command is to make. Refuses (406) a bad value; the pattern is not looked at."""
    name_bytes = len(command.name.encode("utf-8", "surrogatepass"))
    if not 0 < name_bytes <= _LONGEST_NAME_BYTES:
        raise _refused(f"a policy's name has 1 to {_LONGEST_NAME_BYTES} octets, this one has {name_bytes}")
    if not _number(-MAX_PRIORITY, MAX_PRIORITY)(command.priority):
        raise _refused(
            f"priority takes an integer from {-MAX_PRIORITY} to {MAX_PRIORITY}",
            f"priority should be a number, actually was {json_term(command.priority)}",
        )
    if command.apply_to not in _APPLY_TO:
        raise _refused(
            f"apply-to '{command.apply_to}' unrecognised; should be one of: 'queues', 'classic_queues', "
            "'quorum_queues', 'streams', 'exchanges', or 'all'"
        )
    _check_definition(command.definition)
    _check_meant_for(command.apply_to, command.definition)
    return PolicyRecord(
        command.vhost, command.name, command.pattern, dict(sorted(command.definition.items())), command.priority,
        cast(ApplyTo, command.apply_to),
    )


def _check_definition(definition: Mapping[str, Any]) -> None:
    """Values first, then keys that nobody knows, as in RabbitMQ; then what RULES D1 asks for."""
    if not definition:
        raise _refused(f"a definition has at least one of: {', '.join(_KEYS)}", "no policy provided")
    for name in sorted(definition):
        key = _KEYS.get(name)
        if key is not None and not key.takes(definition[name]):
            raise _refused(
                f"{name} takes {key.expected}", f"{json_term(definition[name])} {key.fault}"
            )
    unknown = [
        f"{{{json_term(name)},{json_term(definition[name])}}}" for name in sorted(definition) if name not in _KEYS
    ]
    if unknown:
        raise _refused(
            f"the keys of a definition are: {', '.join(_KEYS)}",
            f"[{','.join(unknown)}] are not recognised policy settings",
        )
    if (fault := delayed_retries.pair_fault(definition)) is not None:
        raise _refused(f"{delayed_retries.MIN} is what retries begin with, {delayed_retries.MAX} ends them", fault)
    if (fault := brakes.pair_fault(definition)) is not None:
        raise _refused(f"{brakes.RATE} says how many messages may fail, {brakes.WINDOW} over how long", fault)
    if "dead-letter-routing-key" in definition and "dead-letter-exchange" not in definition:
        raise _refused("dead-letter-routing-key takes a dead-letter-exchange beside it, and there is none (D1)")


def known_part(apply_to: str, definition: Mapping[str, Any]) -> dict[str, Any]:
    """What of a definition has a key that means something for what the policy applies to; values are unchecked."""
    return {name: value for name, value in definition.items() if name in _KEYS and _is_meant_for(apply_to, name)}


def _is_meant_for(apply_to: str, name: str) -> bool:
    return apply_to == "all" or (name == "alternate-exchange") == (apply_to == "exchanges")


def _check_meant_for(apply_to: str, definition: Mapping[str, Any]) -> None:
    for_exchanges = apply_to == "exchanges"
    for name in sorted(definition):
        if not _is_meant_for(apply_to, name):
            kind = "queues" if for_exchanges else "exchanges"
            raise _refused(f"{name} is a setting of {kind}, and this policy applies to {apply_to}")


def _refused(*lines: str) -> Refusal:
    return Refusal(PRECONDITION_FAILED, "\n".join(lines))


# -- which applies --------------------------------------------------------------------------------


def matches(policy: PolicyRecord, kind: str, name: str) -> bool:
    """Whether the policy could apply to something of that kind ("exchange", or a type of queue) and name."""
    return kind in _APPLY_TO[policy.apply_to] and expression(policy.pattern).search(name)


class _Policy:
    """A policy with its pattern made ready."""

    __slots__ = ("kinds", "pattern", "record")

    def __init__(self, record: PolicyRecord) -> None:
        self.record = record
        self.kinds = _APPLY_TO[record.apply_to]
        self.pattern: Expression = expression(record.pattern)


def _precedence(policy: _Policy) -> tuple[int, str]:
    return -policy.record.priority, policy.record.name


class PolicyTable:
    """The policies of one vhost, or its operator policies."""

    def __init__(self) -> None:
        self._records: dict[str, PolicyRecord] = {}
        self._by_precedence: list[_Policy] = []
        self.keys_used: Counter[str] = Counter()
        """All keys in the definitions, and in how many: of another one no policy has to be looked for."""

    def put(self, record: PolicyRecord) -> PolicyRecord | None:
        """Add a policy; the one that it replaces."""
        before = self._records.get(record.name)
        if before is not None:
            self._leave(before)
        self._records[record.name] = record
        insort(self._by_precedence, _Policy(record), key=_precedence)
        self.keys_used.update(record.definition.keys())
        return before

    def remove(self, name: str) -> PolicyRecord | None:
        """Remove a policy, and answer it."""
        before = self._records.pop(name, None)
        if before is not None:
            self._leave(before)
        return before

    def _leave(self, record: PolicyRecord) -> None:
        del self._by_precedence[bisect_left(self._by_precedence, (-record.priority, record.name), key=_precedence)]
        self.keys_used.subtract(record.definition.keys())
        self.keys_used += Counter()  # without those that no definition has any more

    def __len__(self) -> int:
        return len(self._by_precedence)

    def records(self) -> Iterable[PolicyRecord]:
        """All, in the order in which they were first set."""
        return self._records.values()

    def by_precedence(self) -> Iterable[PolicyRecord]:
        """All, the one that counts before the others first."""
        return (policy.record for policy in self._by_precedence)

    def for_thing(self, kind: str, name: str) -> PolicyRecord | None:
        """The one policy that applies to something of that kind and name; see `matches`."""
        for policy in self._by_precedence:
            if kind in policy.kinds and policy.pattern.search(name):
                return policy.record
        return None


# -- what two say together ------------------------------------------------------------------------


def lowest(key: str, one: Any, other: Any) -> Any:
    """Of two numbers for one key of policies the one that counts; a negative delivery limit is no limit, and the longer
    of two least delays counts."""
    if key == delayed_retries.MIN or (key == "delivery-limit" and (one < 0 or other < 0)):
        return max(one, other)
    return min(one, other)


def merged_definition(policy: PolicyRecord | None, operator_policy: PolicyRecord | None) -> dict[str, Any]:
    """What a policy and an operator policy say together, keys in order; empty if there is neither."""
    if policy is None or operator_policy is None:
        one = policy or operator_policy
        return {} if one is None else one.definition
    merged = operator_policy.definition | policy.definition
    if delayed_retries.TYPE in operator_policy.definition:
        merged[delayed_retries.TYPE] = operator_policy.definition[delayed_retries.TYPE]
    for key in _LOWEST_COUNTS & policy.definition.keys() & operator_policy.definition.keys():
        merged[key] = lowest(key, policy.definition[key], operator_policy.definition[key])
    return dict(sorted(merged.items()))
