"""Users and what they may do (RULES D10)."""
from __future__ import annotations

import pytest

from mayfly.node.catalog import (
    AddVhost,
    Bind,
    Catalog,
    ClearPermissions,
    ClearTopicPermissions,
    DeclareExchange,
    DeclareQueue,
    DeleteUser,
    DeleteVhost,
    Done,
    PutUser,
    Refusal,
    SetLimit,
    SetPermissions,
    SetTopicPermissions,
    Unbind,
    UpgradePassword,
)
from mayfly.node.catalog.permissions import (
    check_access,
    check_binding,
    check_new_exchange,
    check_new_queue,
    check_topic,
    check_vhost,
)


@pytest.fixture
def catalog() -> Catalog:
    catalog = Catalog(4)
    catalog.apply(PutUser("u", ""))
    return catalog


def allow(catalog: Catalog, configure: str = "", write: str = "", read: str = "") -> None:
    assert isinstance(catalog.apply(SetPermissions("u", "/", configure, write, read)), Done)


def refused(resource: str) -> Refusal:
    return Refusal(403, f"access to {resource} in vhost '/' refused for user 'u'")


def test_guest_may_do_everything(catalog: Catalog) -> None:
    assert check_vhost(catalog, "guest", "/") is None
    command = DeclareQueue("/", "q", arguments={"x-dead-letter-exchange": ""})
    assert check_new_queue(catalog, "guest", command) is None
    assert check_access(catalog, "guest", "write", "exchange", "/", "") is None


def test_opening_a_vhost(catalog: Catalog) -> None:
    assert check_vhost(catalog, "u", "nowhere") == Refusal(530, "vhost nowhere not found", hard=True)
    assert check_vhost(catalog, "u", "/") == Refusal(
        530, "access to vhost '/' refused for user 'u'", hard=True
    )
    allow(catalog)
    assert check_vhost(catalog, "u", "/") is None
    assert catalog.apply(ClearPermissions("u", "/")) == Done()
    assert check_vhost(catalog, "u", "/") is not None
    assert catalog.apply(ClearPermissions("u", "/")) == Done(changed=False)


def test_expressions_are_searched_and_empty_is_nothing(catalog: Catalog) -> None:
    allow(catalog, configure="mid", write="^a-.*$", read="")
    assert check_access(catalog, "u", "configure", "queue", "/", "in the middle") is None
    assert check_access(catalog, "u", "write", "exchange", "/", "a-1") is None
    assert check_access(catalog, "u", "write", "exchange", "/", "b-a") == refused("exchange 'b-a'")
    assert check_access(catalog, "u", "read", "queue", "/", "q") == refused("queue 'q'")
    assert check_access(catalog, "u", "read", "queue", "/", "") == refused("queue ''")


def test_the_default_exchange_has_a_name_here(catalog: Catalog) -> None:
    allow(catalog, write=r"^amq\.default$")
    assert check_access(catalog, "u", "write", "exchange", "/", "") is None
    allow(catalog, write="^$")
    refusal = check_access(catalog, "u", "write", "exchange", "/", "")
    assert refusal == refused("exchange 'amq.default'")


def test_d10_queue_declare(catalog: Catalog) -> None:
    plain = DeclareQueue("/", "q", durable=True)
    with_exchange = DeclareQueue("/", "q", durable=True, arguments={"x-dead-letter-exchange": "dlx"})
    allow(catalog)
    assert check_new_queue(catalog, "u", plain) == refused("queue 'q'")
    allow(catalog, configure="q")
    assert check_new_queue(catalog, "u", plain) is None
    assert check_new_queue(catalog, "u", with_exchange) == refused("queue 'q'")
    allow(catalog, configure="q", read="q")
    assert check_new_queue(catalog, "u", with_exchange) == refused("exchange 'dlx'")
    allow(catalog, configure="q", read="q", write="dlx")
    assert check_new_queue(catalog, "u", with_exchange) is None


def test_exchange_declare(catalog: Catalog) -> None:
    command = DeclareExchange("/", "x", arguments={"alternate-exchange": "ae"})
    allow(catalog, configure="x")
    assert check_new_exchange(catalog, "u", command) == refused("exchange 'x'")
    allow(catalog, configure="x", read="x")
    assert check_new_exchange(catalog, "u", command) == refused("exchange 'ae'")
    allow(catalog, configure="x", read="x", write="ae")
    assert check_new_exchange(catalog, "u", command) is None


def test_bindings(catalog: Catalog) -> None:
    allow(catalog, write="q")
    for command in (Bind("/", "x", "queue", "q"), Unbind("/", "x", "queue", "q")):
        assert check_binding(catalog, "u", command) == refused("exchange 'x'")
    allow(catalog, read="x")
    assert check_binding(catalog, "u", Bind("/", "x", "queue", "q")) == refused("queue 'q'")
    assert check_binding(catalog, "u", Bind("/", "x", "exchange", "y")) == refused("exchange 'y'")
    allow(catalog, read="x", write="q")
    assert check_binding(catalog, "u", Bind("/", "x", "queue", "q")) is None


def test_permissions_need_a_user_and_a_vhost(catalog: Catalog) -> None:
    assert catalog.apply(SetPermissions("nobody", "/", "", "", "")) == Refusal(404, "no user 'nobody'")
    assert catalog.apply(SetPermissions("u", "nowhere", "", "", "")) == Refusal(
        530, "vhost nowhere not found", hard=True
    )


def test_an_expression_that_does_not_compile_matches_nothing(catalog: Catalog) -> None:
    allow(catalog, configure="(", read="(a*)" + "\\1{255}" * 135, write="(x|y){30}a")
    for access in ("configure", "read", "write"):
        assert check_access(catalog, "u", access, "queue", "/", "a" * 255) is not None


def test_permissions_go_with_user_and_vhost(catalog: Catalog) -> None:
    catalog.apply(AddVhost("v"))
    catalog.apply(SetPermissions("u", "v", "", "", ""))
    allow(catalog)
    before = catalog.permissions_version
    catalog.apply(DeleteVhost("v"))
    assert catalog.permission("u", "v") is None
    assert catalog.permission("u", "/") is not None
    assert catalog.apply(DeleteUser("u")) == Done()
    assert catalog.user("u") is None
    assert catalog.permission("u", "/") is None
    assert catalog.permissions_version > before
    assert catalog.apply(DeleteUser("u")) == Done(changed=False)
    assert [user.name for user in catalog.users()] == ["guest"]


def test_users_and_vhosts_are_replaced(catalog: Catalog) -> None:
    assert catalog.apply(PutUser("u", "")) == Done(changed=False)
    assert catalog.apply(PutUser("u", "h", ("monitoring",))) == Done()
    user = catalog.user("u")
    assert user is not None
    assert (user.password_hash, user.tags) == ("h", ("monitoring",))
    catalog.apply(AddVhost("v"))
    catalog.apply(DeclareQueue("v", "q", durable=True))
    assert catalog.apply(AddVhost("v", "words")) == Done()
    assert [vhost.description for vhost in catalog.vhosts()][1] == "words"
    assert catalog.queue("v", "q") is not None


def topic_refused(key: str) -> Refusal:
    """As RabbitMQ 3.10.8 says it."""
    return Refusal(403, f"access to topic '{key}' in exchange 'amq.topic' in vhost '/' refused for user 'u'")


def test_topic_permissions_restrict_keys_of_one_exchange(catalog: Catalog) -> None:
    allow(catalog, configure=".*", write=".*", read=".*")
    assert check_topic(catalog, "u", "write", "/", "amq.topic", "any") is None, "without any, all keys will do"
    assert catalog.apply(SetTopicPermissions("u", "/", "amq.topic", "^a", "^b")) == Done()
    assert check_topic(catalog, "u", "write", "/", "amq.topic", "a.b") is None
    assert check_topic(catalog, "u", "write", "/", "amq.topic", "b.b") == topic_refused("b.b")
    assert check_topic(catalog, "u", "write", "/", "other", "b.b") is None
    assert check_topic(catalog, "guest", "write", "/", "amq.topic", "b.b") is None
    for make in (Bind, Unbind):
        assert check_binding(catalog, "u", make("/", "amq.topic", "queue", "q", "b.#")) is None
        assert check_binding(catalog, "u", make("/", "amq.topic", "queue", "q", "a.#")) == topic_refused("a.#")
        assert check_binding(catalog, "u", make("/", "amq.direct", "queue", "q", "a.#")) is None
    assert catalog.apply(ClearTopicPermissions("u", "/", "other")) == Done(changed=False)
    assert catalog.apply(ClearTopicPermissions("u", "/")) == Done()
    assert check_topic(catalog, "u", "write", "/", "amq.topic", "b.b") is None


def test_names_in_topic_permissions_are_names_and_no_expressions(catalog: Catalog) -> None:
    catalog.apply(PutUser("a.c", ""))
    catalog.apply(SetTopicPermissions("a.c", "/", "x", "^{username}-{vhost}$", ""))
    assert check_topic(catalog, "a.c", "write", "/", "x", "a.c-/") is None
    assert check_topic(catalog, "a.c", "write", "/", "x", "abc-/") is not None
    assert check_topic(catalog, "a.c", "read", "/", "x", "") is None, "nothing: the empty key, as in RabbitMQ"
    assert check_topic(catalog, "a.c", "read", "/", "x", "k") is not None


def test_a_topic_permission_with_a_long_name_in_it_is_searched(catalog: Catalog) -> None:
    user = "a.c" * 85
    catalog.apply(PutUser(user, ""))
    catalog.apply(SetTopicPermissions(user, "/", "x", "^{username}-{username}-{username}$", "^{username}"))
    assert check_topic(catalog, user, "write", "/", "x", f"{user}-{user}-{user}") is None
    assert check_topic(catalog, user, "write", "/", "x", f"{user}-{user}-{user[1:]}") is not None
    assert check_topic(catalog, user, "read", "/", "x", user.replace(".", "-")) is not None


def test_who_is_made_anew_is_another_one(catalog: Catalog) -> None:
    """Serials: users and vhosts of one name are told apart, also by a replica that came from a snapshot."""

    def serials(of: Catalog) -> tuple[int, int]:
        user, vhost = of.user("u"), of.vhost("v")
        assert user is not None
        assert vhost is not None
        return user.serial, vhost.serial

    catalog.apply(AddVhost("v"))
    first = serials(catalog)
    for command in (PutUser("u", "x"), AddVhost("v", "words"), UpgradePassword("u", "x", "y")):
        catalog.apply(command)
    assert serials(catalog) == first
    other = Catalog(4)
    other.restore(catalog.snapshot())
    for each in (catalog, other):
        for anew in (DeleteUser("u"), DeleteVhost("v"), PutUser("u", "x"), AddVhost("v")):
            each.apply(anew)
    assert serials(catalog) == serials(other)
    assert not set(first) & set(serials(catalog))


def test_a_better_hash_does_not_undo_another_password(catalog: Catalog) -> None:
    catalog.apply(PutUser("u", "old", ("t",)))
    catalog.apply(SetLimit("user", "u", "max-channels", 3))
    assert catalog.apply(UpgradePassword("u", "older", "x")) == Done(changed=False)
    assert catalog.apply(UpgradePassword("u", "old", "new")) == Done()
    assert catalog.apply(UpgradePassword("nobody", "old", "new")) == Done(changed=False)
    user = catalog.user("u")
    assert user is not None
    assert (user.password_hash, user.tags, user.limits) == ("new", ("t",), {"max-channels": 3})


def test_limits_stay_with_their_user_and_vhost(catalog: Catalog) -> None:
    catalog.apply(AddVhost("v"))
    assert catalog.apply(SetLimit("vhost", "v", "max-queues", 1)) == Done()
    assert catalog.apply(SetLimit("vhost", "v", "max-queues", 1)) == Done(changed=False)
    assert catalog.apply(SetLimit("vhost", "none", "max-queues", 1)) == Refusal(530, "vhost none not found", hard=True)
    assert catalog.apply(SetLimit("user", "none", "max-channels", 1)) == Refusal(404, "no user 'none'")
    catalog.apply(AddVhost("v", "words"))
    assert not isinstance(catalog.apply(DeclareQueue("v", "one", durable=True)), Refusal)
    assert catalog.apply(DeclareQueue("v", "two", durable=True)) == Refusal(
        406, "cannot declare queue 'two': queue limit in vhost 'v' (1) is reached"
    )
    assert not isinstance(catalog.apply(DeclareQueue("v", "one", durable=True)), Refusal), "it is there already"
    catalog.apply(SetLimit("vhost", "v", "max-queues", -1))
    assert not isinstance(catalog.apply(DeclareQueue("v", "two", durable=True)), Refusal)
    assert catalog.apply(SetLimit("vhost", "v", "max-queues", None)) == Done()
    vhost = catalog.vhost("v")
    assert vhost is not None
    assert vhost.limits == {}
