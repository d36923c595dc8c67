"""From claims to a user: who it is for, what it is called, and which scopes are this broker's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mayfly.node.catalog.token_user import TokenUser
from mayfly.node.limits import TOKEN_SCOPES
from mayfly.node.oauth.claims import ClaimRules, token_user
from mayfly.node.oauth.token import Believed, TokenRefused
from tests.node.oauth.provider import CLUSTER, claims


def user(said: dict[str, Any], **rules: Any) -> TokenUser:
    return token_user(Believed(said, 1), ClaimRules(resource_server_id=CLUSTER, **rules))


def may(found: TokenUser, *allowed: str) -> list[bool]:
    """Of each `permission:name` whether it is allowed in /."""
    return [found.scopes.allow(each.partition(":")[0], "/", each.partition(":")[2]) for each in allowed]


@pytest.mark.parametrize("audience", [CLUSTER, [CLUSTER], ["other", CLUSTER], f"other {CLUSTER}"])
def test_a_token_for_this_cluster(audience: object) -> None:
    assert user(claims(aud=audience)).name == "ada"


@pytest.mark.parametrize("audience", [None, "", [], "other", ["other"], f"{CLUSTER}2", [[CLUSTER]], {CLUSTER: 1}, 7])
def test_a_token_for_others_is_refused(audience: object) -> None:
    with pytest.raises(TokenRefused, match="aud"):
        user(claims(aud=audience))
    assert user(claims(aud=audience), verify_audience=False).name == "ada"


def test_the_issuer_counts_where_one_is_set() -> None:
    assert user(claims(iss="https://a"), issuer="https://a").name == "ada"
    for issuer in (None, "https://b", ["https://a"]):
        with pytest.raises(TokenRefused, match="iss"):
            user(claims(iss=issuer), issuer="https://a")


def test_the_name() -> None:
    said = claims(client_id="shop", user_name="Ada L.", email=["no text"])
    assert user(said).name == "ada"
    assert user(said, preferred_names=("email", "user_name")).name == "Ada L."
    assert user(claims(sub=None, client_id="shop")).name == "shop"
    for bad in (claims(sub=None), claims(sub=7), claims(sub="")):
        with pytest.raises(TokenRefused, match="names nobody"):
            user(bad)
    for bad in (claims(sub="a\nb"), claims(sub="a\0"), claims(sub="é" * 128), claims(sub="\ud800")):
        with pytest.raises(TokenRefused, match="no name"):
            user(bad)


@pytest.mark.parametrize("said", [
    claims("read:*/a", "write:*/b"),
    claims(scope=f"{CLUSTER}.read:*/a  {CLUSTER}.write:*/b other.configure:*/*"),
    claims(scope=[f"{CLUSTER}.read:*/a", 7, None, f"{CLUSTER}.write:*/b"]),
])  # fmt: skip
def test_scopes_as_text_and_as_list(said: dict[str, Any]) -> None:
    assert may(user(said), "read:a", "write:b", "read:b", "configure:a") == [True, True, False, False]


@pytest.mark.parametrize(
    "scope", ["read:*/*", "rabbitmq2.read:*/*", "other.read:*/*", "Rabbitmq.read:*/*", "rabbitmq.rea"]
)
def test_scopes_of_others_are_none(scope: str) -> None:
    found = user(claims(scope=[scope]))
    assert not found.scopes.enter("/")
    assert found.tags == ()


def test_the_prefix_can_be_another_one_or_none() -> None:
    assert may(user(claims(scope="api://read:*/*"), scope_prefix="api://"), "read:a") == [True]
    assert may(user(claims(scope="read:*/*"), scope_prefix=""), "read:a") == [True]
    assert may(user(claims("read:*/*"), scope_prefix="api://"), "read:a") == [False]


def test_more_scopes_where_settings_say() -> None:
    own = f"{CLUSTER}.read:*/a"
    for said, path in (
        ({"roles": own}, "roles"),
        ({"roles": [own]}, "roles"),
        ({"realm": {"roles": [own]}}, "realm.roles"),
        ({"realm": [{"roles": [own]}, 7, {"other": 1}]}, "realm.roles"),
        ({"access": {CLUSTER: ["read:*/a"]}}, "access"),
        ({"access": {CLUSTER: "read:*/a"}}, "access"),
        ({"authorization": {"permissions": [{"scopes": [own]}]}}, "nothing"),
    ):
        assert may(user(claims(**said), additional_scopes=("nothing.here", path)), "read:a", "read:b") == [True, False]
        assert may(user(claims(**said)), "read:a") == [path == "nothing"]


def test_aliases() -> None:
    admin = (f"{CLUSTER}.tag:administrator", f"{CLUSTER}.read:*/*")
    aliases = {"admin": admin, f"{CLUSTER}.x": (f"{CLUSTER}.write:*/*",)}
    found = user(claims("x", roles=["admin"]), scope_aliases=aliases, additional_scopes=("roles",))
    assert found.tags == ("administrator",)
    assert may(found, "read:a", "write:a", "configure:a") == [True, True, False]


def test_tags() -> None:
    assert user(claims("tag:monitoring", "tag:administrator", "tag:monitoring")).tags == ("administrator", "monitoring")
    assert user(claims(scope=["tag:administrator", "other.tag:administrator"])).tags == ()


def test_claims_stand_for_themselves_in_scopes() -> None:
    found = user(claims("write:*/q-{sub}", "read:{vhost}/{vhost}-*", "read:*/{exp}", "read:*/{none}x", name="a*%/é"))
    assert may(found, "write:q-a*%/é", "write:q-ab%/é", "read:/-x", "read:x") == [True, False, True, False]
    assert found.scopes.allow("read", "v", "v-x")
    assert not found.scopes.allow("read", "v", "/-x")


def test_there_are_bounds() -> None:
    user(claims(*[f"read:*/{number}" for number in range(TOKEN_SCOPES)]))
    with pytest.raises(TokenRefused, match="at most"):
        user(claims(*[f"read:*/{number}" for number in range(TOKEN_SCOPES + 1)]))
    assert may(user(claims("read:*/" + "*" * 5000)), "read:a") == [False]


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["scopes", CLUSTER, "a"]), inner),
)


@given(st.dictionaries(st.sampled_from(["sub", "aud", "scope", "client_id", "authorization", "roles"]), _json))
def test_any_claims_name_a_user_or_are_refused(said: dict[str, Any]) -> None:
    try:
        found = user(said, additional_scopes=("roles.a", "authorization"), verify_audience=False)
    except TokenRefused:
        return
    assert found.name
    assert found.name in (said.get("sub"), said.get("client_id"))
    assert not found.scopes.enter("/") or CLUSTER in str(said)
