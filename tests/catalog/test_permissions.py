"""Users and what they may do (RULES D10)."""
from __future__ import annotations

import pytest

from node.catalog import (
    AddVhost,
    Bind,
    Catalog,
    ClearPermissions,
    DeclareExchange,
    DeclareQueue,
    DeleteUser,
    DeleteVhost,
    Done,
    PutUser,
    Refusal,
    SetPermissions,
    Unbind,
)
from node.catalog.permissions import (
    check_access,
    check_binding,
    check_declare_exchange,
    check_declare_queue,
    check_vhost,
    permission_fault,
)


@pytest.fixture
def catalog() -> Catalog:
    catalog = Catalog(4)
    catalog.apply(PutUser("u", ""))
    return catalog


def allow(catalog: Catalog, configure: str = "", write: str = "", read: str = "") -> None:
    assert isinstance(catalog.apply(SetPermissions("u", "/", configure, write, read)), Done)


def refused(access: str, resource: str) -> Refusal:
    return Refusal(403, f"{access} access to {resource} in vhost '/' refused for user 'u'")


def test_guest_may_do_everything(catalog: Catalog) -> None:
    assert check_vhost(catalog, "guest", "/") is None
    command = DeclareQueue("/", "q", arguments={"x-dead-letter-exchange": ""})
    assert check_declare_queue(catalog, "guest", command) is None
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
    assert check_access(catalog, "u", "write", "exchange", "/", "b-a") == refused("write", "exchange 'b-a'")
    assert check_access(catalog, "u", "read", "queue", "/", "q") == refused("read", "queue 'q'")
    assert check_access(catalog, "u", "read", "queue", "/", "") == refused("read", "queue ''")


def test_the_default_exchange_has_a_name_here(catalog: Catalog) -> None:
    allow(catalog, write=r"^amq\.default$")
    assert check_access(catalog, "u", "write", "exchange", "/", "") is None
    allow(catalog, write="^$")
    refusal = check_access(catalog, "u", "write", "exchange", "/", "")
    assert refusal == refused("write", "exchange 'amq.default'")


def test_d10_queue_declare(catalog: Catalog) -> None:
    plain = DeclareQueue("/", "q", durable=True)
    with_exchange = DeclareQueue("/", "q", durable=True, arguments={"x-dead-letter-exchange": "dlx"})
    allow(catalog)
    assert check_declare_queue(catalog, "u", plain) == refused("configure", "queue 'q'")
    allow(catalog, configure="q")
    assert check_declare_queue(catalog, "u", plain) is None
    assert check_declare_queue(catalog, "u", with_exchange) == refused("read", "queue 'q'")
    allow(catalog, configure="q", read="q")
    assert check_declare_queue(catalog, "u", with_exchange) == refused("write", "exchange 'dlx'")
    allow(catalog, configure="q", read="q", write="dlx")
    assert check_declare_queue(catalog, "u", with_exchange) is None
    allow(catalog, configure="q")
    catalog.apply(with_exchange)
    assert check_declare_queue(catalog, "u", with_exchange) is None, "a queue that is there is only looked up"


def test_exchange_declare(catalog: Catalog) -> None:
    command = DeclareExchange("/", "x", arguments={"alternate-exchange": "ae"})
    allow(catalog, configure="x")
    assert check_declare_exchange(catalog, "u", command) == refused("read", "exchange 'x'")
    allow(catalog, configure="x", read="x")
    assert check_declare_exchange(catalog, "u", command) == refused("write", "exchange 'ae'")
    allow(catalog, configure="x", read="x", write="ae")
    assert check_declare_exchange(catalog, "u", command) is None


def test_bindings(catalog: Catalog) -> None:
    allow(catalog, write="q")
    for command in (Bind("/", "x", "queue", "q"), Unbind("/", "x", "queue", "q")):
        assert check_binding(catalog, "u", command) == refused("read", "exchange 'x'")
    allow(catalog, read="x")
    assert check_binding(catalog, "u", Bind("/", "x", "queue", "q")) == refused("write", "queue 'q'")
    assert check_binding(catalog, "u", Bind("/", "x", "exchange", "y")) == refused("write", "exchange 'y'")
    allow(catalog, read="x", write="q")
    assert check_binding(catalog, "u", Bind("/", "x", "queue", "q")) is None


def test_permissions_need_a_user_and_a_vhost(catalog: Catalog) -> None:
    assert catalog.apply(SetPermissions("nobody", "/", "", "", "")) == Refusal(406, "no user 'nobody'")
    assert catalog.apply(SetPermissions("u", "nowhere", "", "", "")) == Refusal(
        530, "vhost nowhere not found", hard=True
    )


def test_an_expression_that_does_not_compile_matches_nothing(catalog: Catalog) -> None:
    assert permission_fault("(") is not None
    assert permission_fault("^a.*") is None
    allow(catalog, read="(")
    assert check_access(catalog, "u", "read", "queue", "/", "(") is not None


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
