"""What dead-lettering writes into a message (RULES D2, D3, D4; goldens dlx.*)."""
from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp.commands import Basic

from mayfly.node.amqp.content import Content, check_header, replace_properties, short_string
from mayfly.node.amqp.field_table import (
    FieldTable,
    FieldValue,
    array,
    integer,
    long_integer,
    long_string,
    table,
    timestamp,
)
from mayfly.node.content_header import CLUSTER_ID, EXPIRATION, HEADERS
from mayfly.node.dead_letter import DeadMessage, DeathWriter
from mayfly.node.dead_letter.publisher_headers import PUBLISHER_HEADERS, as_shown, as_stored
from tests.node.amqp.contents import make_exchange_and_key
from tests.node.amqp.headers import build_header

NOW_S = 1_700_000_000


def message(
    exchange: str = "", key: str = "q", headers: FieldTable | None = None, body: bytes = b"m", old: bool = False,
    **properties: Any,
) -> Content:
    """A published message as its queue keeps it; `old`: as it did before LEVEL_PUBLISHER_HEADERS."""
    header = build_header(Basic.Properties(**properties), len(body))
    if headers is not None:
        header = replace_properties(header, {HEADERS: headers.encode()})
    return Content(make_exchange_and_key(exchange, key), header if old else as_stored(header), body)


def die(
    content: Content, queue: str = "q", reason: str = "expired", exchange: str = "", key: str | None = "dlq",
    time_s: int = NOW_S, writer: DeathWriter | None = None,
) -> DeadMessage:
    dead = (writer or DeathWriter()).write(content, queue, reason, time_s, exchange, key)
    check_header(dead.header)
    return dead


def typed(value: FieldValue) -> object:
    """As the goldens show it: "l:1", "S:q", {"A": [...]}, {"F": [[name, value], ...]}."""
    tag = chr(value.tag)
    if tag == "A":
        return {"A": [typed(element) for element in value.array()]}
    if tag == "F":
        return {"F": shown(value.table())}
    return f"{tag}:{value.text() if tag == 'S' else value.integer() if tag != 'V' else ''}"


def shown(headers: FieldTable | None) -> list[list[object]]:
    assert headers is not None
    return [[name, typed(value)] for name, value in headers.entries]


def by_name(entries: list[list[object]]) -> dict[object, object]:
    return {name: value for name, value in entries}  # noqa: C416 (dict() takes no lists in strict mypy)


def headers_of(dead: DeadMessage) -> list[list[object]]:
    """As receivers see them."""
    return shown(Content(b"", as_shown(dead.header), b"").headers_table())


def deaths(dead: DeadMessage) -> list[tuple[object, ...]]:
    headers = dead.content(b"m").headers_table()
    assert headers is not None
    value = headers.get("x-death")
    assert value is not None
    records = [by_name(shown(element.table())) for element in value.array()]
    return [(record["queue"], record["reason"], record["count"]) for record in records]


def summary(prefix: str, exchange: str, queue: str, reason: str) -> list[list[object]]:
    return [
        [f"x-{prefix}-death-exchange", f"S:{exchange}"],
        [f"x-{prefix}-death-queue", f"S:{queue}"],
        [f"x-{prefix}-death-reason", f"S:{reason}"],
    ]


def death(
    queue: str, reason: str = "expired", exchange: str = "", keys: tuple[str, ...] = ("q",),
    *more: list[object],
) -> list[list[object]]:
    return [
        ["count", "l:1"],
        ["reason", f"S:{reason}"],
        ["queue", f"S:{queue}"],
        ["time", f"T:{NOW_S}"],
        ["exchange", f"S:{exchange}"],
        ["routing-keys", {"A": [f"S:{key}" for key in keys]}],
        *more,
    ]


def test_d3_d4_headers_in_full() -> None:
    dead = die(message(body=b"payload"))
    assert headers_of(dead) == [
        ["x-death", {"A": [{"F": death("q")}]}],
        *summary("first", "", "q", "expired"),
        *summary("last", "", "q", "expired"),
    ]
    content = dead.content(b"payload")
    assert (content.exchange, content.routing_key, content.body) == ("", "dlq", b"payload")
    assert dead.keys == ("dlq",)
    assert dead.history == (("q", "expired"),)


def test_d3_original_expiration() -> None:
    dead = die(message(expiration="50"))
    assert headers_of(dead)[0] == [
        "x-death", {"A": [{"F": death("q", "expired", "", ("q",), ["original-expiration", "S:50"])}]}
    ]
    assert dead.content(b"").expiration_bytes() is None


@pytest.mark.parametrize("reason", ["expired", "rejected", "maxlen", "delivery_limit", "queue_expired"])
def test_d2_reasons(reason: str) -> None:
    dead = die(message(), reason=reason)
    assert headers_of(dead)[0] == ["x-death", {"A": [{"F": death("q", reason)}]}]
    assert dead.history == (("q", reason),)


def test_d4_properties_kept_and_headers_sorted_in() -> None:
    headers = FieldTable(
        [
            ("zeta", long_string("1")),
            ("alpha", integer(2)),
            ("flag", FieldValue(ord("t"), b"\x01")),
            ("none", FieldValue(ord("V"), b"")),
            ("list", array([integer(1), long_string("two")])),
            ("table", table(FieldTable([("k", long_string("v"))]))),
        ]
    )
    properties: dict[str, Any] = {
        "content_type": "text/plain", "content_encoding": "utf-8", "delivery_mode": 2, "priority": 7,
        "correlation_id": "corr", "reply_to": "rt", "message_id": "mid", "message_type": "ty",
        "timestamp": datetime.datetime.fromtimestamp(NOW_S, tz=datetime.UTC), "user_id": "guest",
        "app_id": "app",
    }
    content = message(headers=headers, **properties, expiration="9")
    content.header = replace_properties(content.header, {CLUSTER_ID: short_string("clu")})
    dead = die(content)
    assert [name for name, _ in headers_of(dead)] == [
        "alpha", "flag", "list", "none", "table", "x-death",
        "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason",
        "x-last-death-exchange", "x-last-death-queue", "x-last-death-reason", "zeta",
    ]
    kept = by_name(headers_of(dead))
    assert kept["alpha"] == "I:2"
    assert kept["flag"] == "t:1"
    assert kept["list"] == {"A": ["I:1", "S:two"]}
    assert kept["table"] == {"F": [["k", "S:v"]]}
    after = dead.content(b"m").properties()
    for name, value in properties.items():
        assert getattr(after, name) == value
    assert after.cluster_id == "clu"
    assert after.expiration is None


def test_no_key_keeps_the_original() -> None:
    dead = die(message("x", "k.two"), exchange="dlx", key=None)
    assert (dead.content(b"").exchange, dead.content(b"").routing_key) == ("dlx", "k.two")
    assert dead.keys == ("k.two",)
    assert headers_of(dead)[0] == ["x-death", {"A": [{"F": death("q", "expired", "x", ("k.two",))}]}]


def again(dead: DeadMessage, **changes: Any) -> DeadMessage:
    return die(dead.content(b"m"), **changes)


def test_d3_chain_of_three() -> None:
    """Newest first; the newest one's fields are sorted as soon as there are others."""
    dead = again(die(message(key="q1"), queue="q1", key="q2"), queue="q2", key="q3")
    assert headers_of(dead) == [
        ["x-death", {"A": [{"F": sorted(death("q2", keys=("q2",)), key=lambda field: str(field[0]))},
                           {"F": death("q1", keys=("q1",))}]}],
        *summary("first", "", "q1", "expired"),
        *summary("last", "", "q2", "expired"),
    ]
    assert dead.history == (("q2", "expired"), ("q1", "expired"))


def test_d3_repeat_counts_and_moves_to_the_front() -> None:
    dead = die(message(key="work"), "work", "rejected", key="retry")
    for _ in range(2):
        dead = again(dead, queue="retry", key="work", time_s=NOW_S + 5)
        dead = again(dead, queue="work", reason="rejected", key="retry", time_s=NOW_S + 9)
    dead = again(dead, queue="retry", key="work")
    assert deaths(dead) == [("S:retry", "S:expired", "l:3"), ("S:work", "S:rejected", "l:3")]
    assert headers_of(dead)[1:4] == summary("first", "", "work", "rejected")
    assert headers_of(dead)[4:7] == summary("last", "", "retry", "expired")
    assert dead.history == (("retry", "expired"), ("work", "rejected"))


def test_d3_same_queue_for_another_reason_is_another_entry() -> None:
    dead = again(again(die(message()), reason="rejected"), reason="maxlen")
    assert deaths(dead) == [
        ("S:q", "S:maxlen", "l:1"), ("S:q", "S:rejected", "l:1"), ("S:q", "S:expired", "l:1")
    ]
    older = again(dead, reason="expired")
    assert [count for _, _, count in deaths(older)] == ["l:2", "l:1", "l:1"]
    assert older.history == (("q", "expired"), ("q", "maxlen"), ("q", "rejected"))


def copies(**lists: list[str]) -> FieldTable:
    return FieldTable(
        [(name, array([long_string(key) for key in keys])) for name, keys in lists.items()]
        + [("other", long_string("h"))]
    )


def test_d4_cc_without_key() -> None:
    dead = die(message("x", "k1", copies(CC=["k2", "k3"])), exchange="dlx", key=None)
    assert dead.keys == ("k1", "k2", "k3")
    assert dead.content(b"").routing_key == "k1"
    assert headers_of(dead)[0] == ["CC", {"A": ["S:k2", "S:k3"]}]
    assert headers_of(dead)[2] == ["x-death", {"A": [{"F": death("q", "expired", "x", ("k1", "k2", "k3"))}]}]


def test_d4_cc_with_key() -> None:
    dead = die(message("x", "k1", copies(CC=["k2"])), exchange="dlx", key="dead")
    assert dead.keys == ("dead",)
    assert [name for name, _ in headers_of(dead)][:2] == ["other", "x-death"]
    assert headers_of(dead)[1] == ["x-death", {"A": [{"F": death("q", "expired", "x", ("k1", "k2"))}]}]


def test_d3_bcc_is_routed_by_and_not_listed() -> None:
    dead = die(message("x", "k1", copies(BCC=["k3"], CC=["k2"])), exchange="dlx", key=None)
    assert dead.keys == ("k1", "k2", "k3")
    records = by_name(headers_of(dead))
    assert "BCC" not in records
    assert again(dead, exchange="dlx", key=None).keys == ("k1", "k2", "k3")
    assert records["x-death"] == {"A": [{"F": death("q", "expired", "x", ("k1", "k2"))}]}
    replaced = die(message("x", "k1", copies(BCC=["k3"])), exchange="dlx", key="dead")
    assert replaced.keys == ("dead",)
    assert b"BCC" not in replaced.header


def test_cc_of_another_type_is_no_cc() -> None:
    headers = FieldTable([("CC", long_string("k2")), ("BCC", array([integer(5), long_string("k3")]))])
    assert die(message(headers=headers), key=None).keys == ("q", "k3")


def forged(*records: FieldValue) -> FieldTable:
    return FieldTable([("x-death", array(list(records)))])


ELSEWHERE = FieldTable(
    [
        ("count", integer(3)),
        ("reason", long_string("expired")),
        ("queue", long_string("elsewhere")),
        ("exchange", long_string("")),
        ("routing-keys", array([long_string("r")])),
    ]
)


@pytest.mark.parametrize("history", [array([table(ELSEWHERE)]), long_string("[{...}]"), integer(1)])
def test_d3_a_clients_history_is_believed_by_nobody(history: FieldValue) -> None:
    headers = FieldTable([("a", integer(1)), ("x-death", history), ("x-first-death-queue", long_string("z"))])
    content = message(headers=headers)
    assert Content(b"", as_shown(content.header), b"").headers_table() == headers, "receivers see it as it came"
    dead = die(content)
    assert headers_of(dead) == [
        ["a", "I:1"],
        ["x-death", {"A": [{"F": death("q")}]}],
        *summary("first", "", "q", "expired"),
        *summary("last", "", "q", "expired"),
    ]
    assert dead.history == (("q", "expired"),)
    assert PUBLISHER_HEADERS.encode() not in dead.header
    assert deaths(again(dead, queue="r")) == [("S:r", "S:expired", "l:1"), ("S:q", "S:expired", "l:1")]


def test_d3_an_old_messages_forged_history_is_kept_behind() -> None:
    dead = die(message(headers=forged(table(ELSEWHERE)), old=True))
    assert headers_of(dead) == [
        ["x-death", {"A": [{"F": sorted(death("q"), key=lambda field: str(field[0]))},
                           {"F": shown(ELSEWHERE)}]}],
        *summary("last", "", "q", "expired"),
    ]
    assert dead.history == (("q", "expired"), ("elsewhere", "expired"))


def record(**fields: FieldValue) -> FieldValue:
    return table(FieldTable(list(fields.items())))


def test_d3_an_old_messages_history_of_another_type_starts_anew() -> None:
    dead = die(message(headers=FieldTable([("x-death", long_string("[{...}]"))]), old=True))
    assert headers_of(dead)[0] == ["x-death", {"A": [{"F": death("q")}]}]
    assert [name for name, _ in headers_of(dead)][1] == "x-last-death-exchange"


def test_d3_odd_things_in_an_old_messages_history() -> None:
    q, expired = long_string("q"), long_string("expired")
    dead = die(
        message(
            headers=forged(
                long_string("no table"),
                record(queue=integer(5)),
                record(queue=q, reason=expired, count=long_string("many")),
                record(queue=q, reason=expired, count=integer(-4)),
                record(queue=q, reason=expired, count=long_integer(2)),
                record(queue=q, reason=expired),
            ),
            old=True,
        )
    )
    assert dead.history == (("q", "expired"), (None, None))
    value = dead.content(b"").headers_table()
    assert value is not None
    array_of_deaths = value.get("x-death")
    assert array_of_deaths is not None
    counted = array_of_deaths.array()[0].table().get("count")
    assert counted == long_integer(1 + 0 + 2 + 1 + 1)


def test_d3_the_greatest_count_stays() -> None:
    greatest = record(
        queue=long_string("q"), reason=long_string("expired"), count=long_integer(2**63 - 1)
    )
    assert deaths(die(message(headers=forged(greatest), old=True))) == [("S:q", "S:expired", f"l:{2**63 - 1}")]


def test_names_that_are_not_utf8() -> None:
    content = Content(make_exchange_and_key(b"\xffx", b"\xfek"), message().header, b"m")
    dead = die(content, exchange="dlx", key=None)
    assert dead.exchange_and_key == make_exchange_and_key("dlx", b"\xfek")
    assert dead.keys[0].encode("utf-8", "surrogateescape") == b"\xfek"
    assert b"\x01\xffx" not in dead.header
    assert long_string(b"\xffx").raw in dead.header


def test_the_writers_memory_changes_no_answer() -> None:
    """Every part of the death counts: queue, reason, second, keys, exchange, expiration, header."""
    writer = DeathWriter()
    for _ in range(2):
        for content in (message(), message(key="other"), message(expiration="5"), message(priority=1)):
            for queue in ("q", "r"):
                for reason in ("expired", "rejected"):
                    for key in (None, "", "k"):
                        for exchange in ("", "dlx"):
                            for time_s in (1, 2):
                                kept = die(content, queue, reason, exchange, key, time_s, writer)
                                fresh = die(content, queue, reason, exchange, key, time_s)
                                assert (kept.exchange_and_key, kept.header) == (
                                    fresh.exchange_and_key, fresh.header
                                )
                                assert (kept.keys, kept.history) == (fresh.keys, fresh.history)


def test_the_writers_memory_is_bounded() -> None:
    writer = DeathWriter()
    for number in range(5000):
        writer.write(message(key=str(number), message_id=str(number)), "q", "expired", 1, "", None)
    assert len(writer._written) <= 2048
    assert len(writer._first_tables) <= 2048
    large = message(headers=FieldTable([("h", long_string("v" * 2000))]))
    writer.write(large, "large", "expired", 1, "", None)
    assert all(key[0] != "large" for key in writer._written)


TEXT = st.text(max_size=4)
SCALARS = st.one_of(
    st.builds(integer, st.integers(-(2**31), 2**31 - 1)),
    st.builds(long_integer, st.integers(-(2**63), 2**63 - 1)),
    st.builds(long_string, st.one_of(TEXT, st.binary(max_size=4))),
    st.builds(timestamp, st.integers(0, 2**64 - 1)),
    st.just(FieldValue(ord("V"), b"")),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(array),
        st.lists(st.tuples(TEXT, inner), max_size=3).map(lambda entries: table(FieldTable(entries))),
    ),
    max_leaves=8,
)
RECORDS = st.lists(
    st.tuples(st.sampled_from(["queue", "reason", "count", "time", "exchange", "routing-keys"]),
              st.one_of(VALUES, st.sampled_from([long_string("q"), long_string("expired"), integer(7)]))),
    max_size=6,
).map(lambda entries: table(FieldTable(entries)))
HEADER_TABLES = st.lists(
    st.one_of(
        st.tuples(TEXT, VALUES),
        st.tuples(st.just("x-death"), VALUES),
        st.tuples(st.just("x-death"), st.lists(st.one_of(RECORDS, VALUES), max_size=4).map(array)),
        st.tuples(st.sampled_from(["CC", "BCC"]), st.one_of(VALUES, st.just(array([long_string("k2")])))),
    ),
    max_size=5,
).map(FieldTable)


@settings(max_examples=300, deadline=None)
@given(
    HEADER_TABLES, st.booleans(), st.sampled_from([None, "", "k"]),
    st.sampled_from(["expired", "rejected", "maxlen"]), st.booleans(),
)
def test_d4_whatever_a_client_wrote_survives(
    headers: FieldTable, with_expiration: bool, key: str | None, reason: str, old: bool
) -> None:
    """Two deaths of a message with any headers: well formed, and what is not ours is as it was, types too."""
    written = ("x-death", "x-first-death-", "x-last-death-", "CC", "BCC")
    foreign = [entry for entry in headers.entries if not entry[0].startswith(written)]
    content = message(headers=headers, expiration="1" if with_expiration else None, old=old)
    first = die(content, reason=reason, key=key)
    second = again(first, queue="r", key=key)
    for dead in (first, second):
        after = Content(b"", as_shown(dead.header), b"").headers_table()
        assert after is not None
        left = [entry for entry in after.entries if not entry[0].startswith(written)]
        assert sorted(left, key=repr) == sorted(foreign, key=repr)
        assert FieldTable.decode(after.encode()) == after
        assert not dead.content(b"m").has_property(EXPIRATION)
    assert second.history[:2] == (("r", "expired"), ("q", reason))
    assert first.history[0] == ("q", reason)
