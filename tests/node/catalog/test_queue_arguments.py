"""Queue arguments: what is taken, and RabbitMQ's words for what is not (RULES T1, L1, D1; goldens args.*)."""
from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest

from mayfly.cluster.versions import LEVEL_CONSUMER_TIMEOUTS, LEVEL_EXPIRE_SCOPE, LEVEL_SCHEDULES
from mayfly.node.catalog import (
    DEFAULT_DELIVERY_LIMIT,
    MAX_TTL_MS,
    QueueSettings,
    Refusal,
    consumer_priority,
    expiration_ttl_ms,
    queue_settings,
)
from mayfly.node.catalog.arguments import first_inequivalent

TEN_YEARS_MS = 315_360_000_000


def fault(arguments: dict[str, Any]) -> str:
    with pytest.raises(Refusal) as caught:
        queue_settings("/", "q", {"x-queue-type": "quorum", **arguments})
    assert caught.value.code == 406
    assert not caught.value.hard
    return caught.value.text


def quorum(arguments: dict[str, Any]) -> QueueSettings:
    return queue_settings("/", "q", {"x-queue-type": "quorum", **arguments})


@pytest.mark.parametrize("value", [0, 1, 2**31 - 1, 2**32, TEN_YEARS_MS])
def test_t1_message_ttl_taken(value: int) -> None:
    assert quorum({"x-message-ttl": value}).message_ttl_ms == value


@pytest.mark.parametrize(
    "value, why",
    [
        (-1, "{value_negative,-1}"),
        (TEN_YEARS_MS + 1, "{value_too_large,315360000001}"),
        (2**63 - 1, "{value_too_large,9223372036854775807}"),
        ("1000", '"expected integer, got longstr"'),
        (1000.0, '"expected integer, got double"'),
        (True, '"expected integer, got bool"'),
        (None, '"expected integer, got void"'),
        ([1], '"expected integer, got array"'),
        ({"a": 1}, '"expected integer, got table"'),
        (Decimal(1), '"expected integer, got decimal"'),
        (datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), '"expected integer, got timestamp"'),
    ],
)
def test_t1_message_ttl_refused(value: object, why: str) -> None:
    assert fault({"x-message-ttl": value}) == f"invalid arg 'x-message-ttl' for queue 'q' in vhost '/': {why}"


@pytest.mark.parametrize("value", [1, 30000, 2**32, TEN_YEARS_MS])
def test_l1_expires_taken(value: int) -> None:
    assert quorum({"x-expires": value}).expires_ms == value


@pytest.mark.parametrize(
    "value, why",
    [
        (0, "{value_zero,0}"),
        (-1, "{value_negative,-1}"),
        (TEN_YEARS_MS + 1, "{value_too_large,315360000001}"),
        ("1000", '"expected integer, got longstr"'),
        (1000.0, '"expected integer, got double"'),
        (False, '"expected integer, got bool"'),
    ],
)
def test_l1_expires_refused(value: object, why: str) -> None:
    assert fault({"x-expires": value}) == f"invalid arg 'x-expires' for queue 'q' in vhost '/': {why}"


def test_d1_dead_letter_arguments_taken() -> None:
    assert quorum({"x-dead-letter-exchange": ""}).dead_letter_exchange == ""
    assert quorum({}).dead_letter_exchange is None
    settings = quorum({"x-dead-letter-exchange": "x", "x-dead-letter-routing-key": ""})
    assert (settings.dead_letter_exchange, settings.dead_letter_routing_key) == ("x", "")


def test_d1_dead_letter_arguments_refused() -> None:
    assert fault({"x-dead-letter-exchange": 5}) == (
        "invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue 'q' in vhost '/'"
    )
    assert fault({"x-dead-letter-routing-key": "k"}) == (
        "invalid arg 'x-dead-letter-routing-key' for queue 'q' in vhost '/': routing_key_but_no_dlx_defined"
    )
    assert fault({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": 5}) == (
        "invalid arg 'x-dead-letter-routing-key' for queue 'q' in vhost '/': {unacceptable_type,signedint}"
    )


def test_d1_names_that_no_frame_could_carry_are_refused() -> None:
    """A dead message would have to be delivered with them."""
    assert fault({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "é" * 128}).endswith(
        ": {value_too_long,256}"
    )
    assert quorum({"x-dead-letter-exchange": "x" * 255}).dead_letter_exchange == "x" * 255
    assert fault({"x-dead-letter-exchange": b"\xff"}).endswith(": not_utf8")


def test_d8_dead_letter_strategy() -> None:
    assert quorum({}).dead_letter_strategy == "at-least-once"
    assert quorum({"x-dead-letter-strategy": "at-most-once"}).dead_letter_strategy == "at-most-once"
    assert fault({"x-dead-letter-strategy": "sometimes"}).endswith(": invalid_dlx_strategy")


@pytest.mark.parametrize("value", ["drop-head", "reject-publish", "reject-publish-dlx"])
def test_overflow_taken(value: str) -> None:
    assert quorum({"x-overflow": value}).overflow == value


def test_overflow_refused() -> None:
    assert fault({"x-overflow": "drop-tail"}) == (
        "invalid arg 'x-overflow' for queue 'q' in vhost '/': invalid_overflow"
    )
    assert fault({"x-overflow": 1}).endswith(": {unacceptable_type,signedint}")


@pytest.mark.parametrize("key", ["x-max-length", "x-max-length-bytes"])
def test_lengths(key: str) -> None:
    assert fault({key: -1}) == f"invalid arg '{key}' for queue 'q' in vhost '/': {{value_negative,-1}}"
    assert fault({key: "10"}).endswith('"expected integer, got longstr"')
    assert fault({key: True}).endswith('"expected integer, got bool"')
    settings = quorum({"x-max-length": 0, "x-max-length-bytes": 2**40})
    assert (settings.max_length, settings.max_length_bytes) == (0, 2**40)


def test_queue_types() -> None:
    assert fault({"x-queue-type": "bogus"}) == (
        "invalid arg 'x-queue-type' for queue 'q' in vhost '/': \"unsupported queue type 'bogus'\""
    )
    assert fault({"x-queue-type": 1}) == (
        "invalid arg 'x-queue-type' for queue 'q' in vhost '/': {unacceptable_type,signedint}"
    )


@pytest.mark.parametrize(
    "key, value",
    [("x-max-priority", 5), ("x-queue-mode", "lazy"), ("x-queue-version", 2), ("x-max-age", "1D")],
)
def test_arguments_of_other_queue_types(key: str, value: object) -> None:
    assert fault({key: value}) == (
        f"invalid arg '{key}' for queue 'q' in vhost '/' of queue type rabbit_quorum_queue"
    )
    if key != "x-max-age":
        queue_settings("/", "q", {"x-queue-type": "classic", key: value})
    else:
        with pytest.raises(Refusal, match="of queue type rabbit_classic_queue"):
            queue_settings("/", "q", {"x-queue-type": "classic", key: value})


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("x-queue-mode", "nope", "\"unsupported queue mode 'nope'\""),
        ("x-queue-mode", 5, "{unacceptable_type,signedint}"),
        ("x-queue-leader-locator", "nope", "invalid_queue_locator_arg"),
    ],
)
def test_texts_of_rabbitmq_for_modes_and_places(key: str, value: object, fault: str) -> None:
    with pytest.raises(Refusal) as refused:
        queue_settings("/", "q", {key: value})
    assert refused.value.text == f"invalid arg '{key}' for queue 'q' in vhost '/': {fault}"


def test_max_priority() -> None:
    assert queue_settings("/", "q", {"x-max-priority": 255}).max_priority == 255
    with pytest.raises(Refusal, match="max_value_exceeded,256"):
        queue_settings("/", "q", {"x-max-priority": 256})


def test_unknown_arguments_are_passed_over() -> None:
    assert quorum({"x-never-heard-of": "1"}) == quorum({})


def test_delivery_limit() -> None:
    """Quorum queues have RabbitMQ 4's limit by default, others none; a negative one means none."""
    assert quorum({}).delivery_limit == DEFAULT_DELIVERY_LIMIT == 20
    assert quorum({"x-delivery-limit": 0}).delivery_limit == 0
    assert quorum({"x-delivery-limit": -1}).delivery_limit is None
    assert queue_settings("/", "q", {}).delivery_limit is None
    assert queue_settings("/", "q", {"x-delivery-limit": 3}).delivery_limit == 3
    assert fault({"x-delivery-limit": "3"}).endswith('"expected integer, got longstr"')


def test_single_active_consumer() -> None:
    assert quorum({"x-single-active-consumer": True}).single_active_consumer
    assert fault({"x-single-active-consumer": 1}).endswith(": {unacceptable_type,signedint}")


def test_l11_t12_extensions() -> None:
    settings = quorum(
        {"x-expires-if": "empty", "x-expires-dead-letter": True, "x-ttl-applies": "retroactive"}
    )
    assert settings.expires_only_if_empty
    assert settings.expires_dead_letter
    assert settings.ttl_retroactive
    assert fault({"x-expires-if": "bored"}).endswith(": invalid_expires_if")


@pytest.mark.parametrize("text, ttl_ms", [(b"0", 0), (b"60000", 60000), (b"4294967296", 2**32),
                                          (b"315360000000", MAX_TTL_MS)])
def test_t2_expiration_taken(text: bytes, ttl_ms: int) -> None:
    assert expiration_ttl_ms(text) == ttl_ms


@pytest.mark.parametrize(
    "text, why",
    [
        (b"abc", "no_integer"),
        (b"", "no_integer"),
        (b"-", "no_integer"),
        (b"+5", "no_integer"),
        (b" 5", "no_integer"),
        (b"-1", "{value_negative,-1}"),
        (b"1.5", '{leftover_string,".5"}'),
        (b'5"', '{leftover_string,"\\""}'),
        (b"5\x01", "{leftover_string,[1]}"),
        (b"315360000001", "{value_too_large,315360000001}"),
        (b"9" * 255, "{value_too_large," + "9" * 255 + "}"),
        ("٣".encode(), "no_integer"),
    ],
)
def test_t2_expiration_refused(text: bytes, why: str) -> None:
    assert expiration_ttl_ms(text) == Refusal(406, f"invalid expiration '{text.decode()}': {why}")


def test_t2_leading_zeros_are_digits() -> None:
    assert expiration_ttl_ms(b"0005") == 5
    assert expiration_ttl_ms(b"0" * 200 + b"5") == 5


def test_consumer_priority() -> None:
    assert consumer_priority("/", "q", "classic", {}) == 0
    assert consumer_priority("/", "q", "classic", {"x-priority": -1}) == -1
    with pytest.raises(Refusal) as caught:
        consumer_priority("/", "q", "classic", {"x-priority": "high"})
    assert caught.value == Refusal(
        406, "invalid arg 'x-priority' for queue 'q' in vhost '/': \"expected integer, got longstr\""
    )


@pytest.mark.parametrize(
    ("kind", "key"),
    [("classic", "x-stream-offset"), ("quorum", "x-stream-offset"), ("quorum", "x-cancel-on-ha-failover")],
)
def test_a_consumer_with_an_argument_for_another_type_of_queue(kind: Any, key: str) -> None:
    with pytest.raises(Refusal) as caught:
        consumer_priority("/", "q", kind, {key: True})
    assert caught.value.code == 406
    assert caught.value.text == f"invalid arg '{key}' for queue 'q' in vhost '/' of queue type rabbit_{kind}_queue"


def test_x2_the_scope_is_head_or_any_and_counts_from_its_level_on() -> None:
    """X2: below it, it is an argument that nobody knows."""
    assert quorum({"x-expire-scope": "any"}).expire_anywhere
    assert not quorum({"x-expire-scope": "head"}).expire_anywhere
    assert "'x-expire-scope'" in fault({"x-expire-scope": "all"})
    below = queue_settings("/", "q", {"x-expire-scope": "all"}, level=LEVEL_EXPIRE_SCOPE - 1)
    assert not below.expire_anywhere
    assert first_inequivalent({"x-expire-scope": "any"}, {}, LEVEL_EXPIRE_SCOPE) == "x-expire-scope"
    assert first_inequivalent({"x-expire-scope": "any"}, {}, LEVEL_EXPIRE_SCOPE - 1) is None


def test_s2_the_opt_in_is_a_boolean_and_counts_from_its_level_on() -> None:
    """Below it members may not know it: to all it is an argument that nobody knows."""
    assert quorum({"x-allow-schedule": True}).allow_schedule
    assert not quorum({"x-allow-schedule": False}).allow_schedule
    assert "'x-allow-schedule'" in fault({"x-allow-schedule": 1})
    below = queue_settings("/", "q", {"x-allow-schedule": 1}, level=LEVEL_SCHEDULES - 1)
    assert not below.allow_schedule
    assert first_inequivalent({"x-allow-schedule": True}, {}, LEVEL_SCHEDULES) == "x-allow-schedule"
    assert first_inequivalent({"x-allow-schedule": True}, {}, LEVEL_SCHEDULES - 1) is None


@pytest.mark.parametrize(
    ("key", "value", "other", "level"),
    [
        ("x-delayed-retry-type", "all", "failed", LEVEL_SCHEDULES),
        ("x-delayed-retry-min", 1000, 2000, LEVEL_SCHEDULES),
        ("x-delayed-retry-max", 3000, 4000, LEVEL_SCHEDULES),
        ("x-consumer-timeout", 60_000, 90_000, LEVEL_CONSUMER_TIMEOUTS),
    ],
)
def test_a_redeclare_with_other_delays_is_no_equal_one_from_their_level_on(
    key: str, value: Any, other: Any, level: int
) -> None:
    """Q3, S5: said otherwise, or by one of the two alone; below the level they are arguments that nobody knows."""
    for received, current in (({key: value}, {key: other}), ({key: value}, {}), ({}, {key: value})):
        assert first_inequivalent(received, current, level) == key
        assert first_inequivalent(received, current, level - 1) is None
    assert first_inequivalent({key: value}, {key: value}, level) is None
