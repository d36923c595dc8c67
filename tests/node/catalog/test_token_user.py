"""Patterns of scopes, and what scopes allow."""

from __future__ import annotations

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mayfly.node.catalog import Catalog, SetTopicPermissions
from mayfly.node.catalog.permissions import check_access, check_topic, check_vhost, is_limited_to_keys
from mayfly.node.catalog.token_user import Pattern, Scopes, TokenUser, quoted

EXCHANGES = ("", "amq.topic", "amq.direct")
VHOSTS = 20


@pytest.mark.parametrize(("pattern", "matching", "others"), [
    ("*", ["", "a", "/", "*"], []),
    ("foo*", ["foo", "foobar"], ["fo", "barfoo"]),
    ("*foo", ["foo", "barfoo"], ["foob"]),
    ("foo*bar", ["foobar", "foo-bar-bar", "foobarbar"], ["foobarb", "fooba", "foar"]),
    ("a*b*c", ["abc", "a-b-c", "abbcc"], ["acb", "ab", "ac"]),
    ("*before*after*", ["before after", "beforeafterbeforeafter"], ["after before"]),
    ("aa*aa", ["aaaa", "aaaaa"], ["aaa", "aa"]),
    ("**", ["", "a"], []),
    ("%2A", ["*"], ["", "a"]),
    ("%2F", ["/"], ["%2F", "%2f"]),
    ("%2f%25+%C3%A9", ["/% é"], []),
    ("", [""], ["a"]),
    ("a.c", ["a.c"], ["abc"]),
])  # fmt: skip
def test_patterns(pattern: str, matching: list[str], others: list[str]) -> None:
    found = Pattern(pattern)
    assert [each for each in matching if not found.matches(each)] == []
    assert [each for each in others if found.matches(each)] == []


@pytest.mark.parametrize("pattern", ["%", "%2", "%zz", "a%", "%FF", "%C3", "% 1", "%+1", "%1_"])
def test_patterns_that_can_not_be_allow_nothing(pattern: str) -> None:
    with pytest.raises(ValueError):
        Pattern(pattern)
    scopes = Scopes([f"read:*/{pattern}", f"read:{pattern}/*", f"read:*/*/{pattern}"])
    assert not scopes.enter("/")
    assert not scopes.allow("read", "/", pattern)


def naive(pattern: str, text: str) -> bool:
    """Every way to divide the text is tried."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(naive(pattern[1:], text[start:]) for start in range(len(text) + 1))
    return text[:1] == pattern[0] and naive(pattern[1:], text[1:])


@given(st.text("ab*", max_size=8), st.text("ab", max_size=10))
def test_a_pattern_matches_what_it_says(pattern: str, text: str) -> None:
    assert Pattern(pattern).matches(text) == naive(pattern, text)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text())
def test_a_quoted_text_stands_for_itself_alone(text: str, other: str) -> None:
    found = Pattern(quoted(text))
    assert found.matches(text)
    assert found.matches(other) == (other == text)


def test_hostile_patterns_cost_no_more_than_they_are_long() -> None:
    """With a way back at every asterisk these would take longer than anybody waits."""
    assert not Pattern("*a" * 2000 + "b").matches("a" * 255)
    assert not Pattern("a*" * 200 + "b").matches("a" * 255)


def test_what_scopes_allow() -> None:
    scopes = Scopes([
        "read:v/q*", "write:v/amq.topic/a.*", "write:v/amq.topic/b", "configure:%2F/x",
        "read:a/b/c/d", "read:a", "x:v/*",
    ])  # fmt: skip
    assert [scopes.enter(vhost) for vhost in ("v", "/", "w", "a")] == [True, True, False, False]
    assert scopes.allow("read", "v", "q1")
    assert not scopes.allow("write", "v", "q1")
    assert not scopes.allow("read", "/", "q1")
    assert not scopes.allow("x", "v", "q1")
    keys = ["a.b", "b", "a", "c"]
    assert [scopes.allow_key("write", "v", "amq.topic", key) for key in keys] == [True, True, False, False]
    assert scopes.allow_key("read", "v", "q", "any key")
    assert not scopes.allow_key("read", "v", "x", "any key")


def test_whether_any_key_will_do() -> None:
    scopes = Scopes([
        "write:v/a", "write:v/b/*", "write:v/b/x", "write:v/c/x", "write:v/c*/**", "write:v/d/x", "write:v/e/a*",
        "read:v/d",
    ])  # fmt: skip
    found = [scopes.allow_any_key("write", "v", exchange) for exchange in ("a", "b", "c", "d", "e", "f")]
    assert found == [True, True, True, False, False, False]
    assert not scopes.allow_any_key("write", "/", "a")


def test_scopes_that_are_the_same_for_each_vhost_are_read_once() -> None:
    others = ("write:*/{vhost}", "write:v1/%", "write:{vhost}/%")
    scopes = Scopes([*[f"read:*/q{number}" for number in range(200)], *others])
    before = patterns()
    vhosts = [f"v{number}" for number in range(VHOSTS)]
    assert all(scopes.allow("read", vhost, "q7") and scopes.allow("write", vhost, vhost) for vhost in vhosts)
    assert not any(scopes.allow("write", vhost, "v") for vhost in vhosts)
    assert patterns() - before <= 3 * VHOSTS


def patterns() -> int:
    """How many there are in memory."""
    gc.collect()
    return sum(isinstance(each, Pattern) for each in gc.get_objects())


def test_one_scope_allows_and_not_two_together() -> None:
    scopes = Scopes(["write:v/a/x", "write:v/b/y"])
    assert not scopes.allow_key("write", "v", "a", "y")


def test_a_user_of_a_token_has_nothing_of_a_user_of_the_catalog_with_that_name() -> None:
    catalog = Catalog(1)
    assert check_access(catalog, "guest", "read", "queue", "/", "q") is None
    ada = TokenUser("guest", (), Scopes(["write:%2F/amq.default"]), 1)
    assert check_vhost(catalog, ada, "/") is None
    assert check_vhost(catalog, ada, "none") is not None
    refusal = check_access(catalog, ada, "read", "queue", "/", "q")
    assert refusal is not None
    assert refusal.text == "access to queue 'q' in vhost '/' refused for user 'guest'"
    assert check_access(catalog, ada, "write", "exchange", "/", "") is None
    assert check_topic(catalog, ada, "write", "/", "amq.topic", "k") is not None


def test_who_is_limited_to_keys() -> None:
    catalog = Catalog(1)
    scopes = Scopes(["write:%2F/amq.*/k", "write:%2F/amq.default"])
    found = [is_limited_to_keys(catalog, TokenUser("guest", (), scopes, 1), "/", name) for name in EXCHANGES]
    assert found == [False, True, False]
    assert not is_limited_to_keys(catalog, TokenUser("guest", (), Scopes(["write:*/*"]), 1), "/", "amq.topic")
    catalog.apply(SetTopicPermissions("guest", "/", "amq.topic", "^k$", ".*"))
    assert [is_limited_to_keys(catalog, "guest", "/", name) for name in EXCHANGES] == [False, True, False]
