"""SASL: what is offered to whom, and EXTERNAL, with which a client is who its certificate says."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from mayfly.node.broker.certificates import COMMON_NAME, SUBJECT_ALTERNATIVE_NAME, user_of_certificate
from mayfly.node.catalog import PutUser, SetPermissions

# As ssl shows them.
CERTIFICATE: dict[str, Any] = {
    "subject": ((("organizationName", "o"),), (("commonName", "alice"),)),
    "subjectAltName": (("DNS", "a.example"), ("DNS", "b.example"), ("email", "a@example"), ("IP Address", "10.0.0.1")),
}


@pytest.mark.parametrize(
    ("login_from", "san_type", "user"),
    [
        (COMMON_NAME, "dns", "alice"), (SUBJECT_ALTERNATIVE_NAME, "dns", "a.example"),
        (SUBJECT_ALTERNATIVE_NAME, "email", "a@example"), (SUBJECT_ALTERNATIVE_NAME, "ip", "10.0.0.1"),
        (SUBJECT_ALTERNATIVE_NAME, "uri", None),
    ],
)  # fmt: skip
def test_whom_a_certificate_names(login_from: str, san_type: str, user: str | None) -> None:
    assert user_of_certificate(CERTIFICATE, login_from, san_type) == user


@pytest.mark.parametrize(
    "subject",
    [
        (), ((("commonName", ""),),), ((("commonName", "a\0b"),),),
        ((("commonName", "alice"),), (("commonName", "bob"),)), ((("organizationName", "alice"),),),
    ],
)  # fmt: skip
def test_a_certificate_that_names_nobody(subject: Any) -> None:
    assert user_of_certificate({"subject": subject}, COMMON_NAME, "dns") is None
    assert user_of_certificate({}, SUBJECT_ALTERNATIVE_NAME, "dns") is None


def offered(client: Any) -> list[str]:
    client.send_bytes(b"AMQP\x00\x00\x09\x01")
    return sorted(client.take()[0].mechanisms.split())


def test_external_is_offered_to_those_with_a_certificate_alone(world: Any) -> None:
    """Neither is ANONYMOUS, to anybody."""
    assert offered(world.socket()) == ["AMQPLAIN", "PLAIN"]
    assert offered(world.socket(certificate_user="alice")) == ["AMQPLAIN", "EXTERNAL", "PLAIN"]


@pytest.mark.parametrize("mechanism", ["EXTERNAL", "ANONYMOUS", "RABBIT-CR-DEMO", ""])
def test_what_was_not_offered_is_refused(world: Any, mechanism: str) -> None:
    client = world.login("guest", "guest", mechanism=mechanism)
    assert (client.take(), client.closed) == ([], True)


def test_external_logs_in_as_whom_the_certificate_names(world: Any) -> None:
    """Whatever the response says, and without a password; it must be a user, with permissions as any."""
    world.cluster.catalog.apply(PutUser("alice", ""))
    world.cluster.catalog.apply(SetPermissions("alice", "/", "^a", "", ""))
    client = world.client(user="guest", password="guest", mechanism="EXTERNAL", certificate_user="alice")
    assert client.connection.user == "alice"
    assert client.declare("a").queue == "a"
    assert client.declare("b").reply_code == 403
    (close,) = world.login(mechanism="EXTERNAL", certificate_user="nobody").take()
    assert close.reply_text.startswith("ACCESS_REFUSED - Login was refused using authentication mechanism EXTERNAL")
    assert world.verified == 0
    # A certificate is no password: with PLAIN the name takes one.
    (close,) = world.login("alice", "", certificate_user="alice").take()
    assert isinstance(close, commands.Connection.Close)


def test_guest_with_a_certificate_comes_from_this_machine_only(world: Any) -> None:
    (close,) = world.login(mechanism="EXTERNAL", certificate_user="guest", loopback=False).take()
    assert close.reply_code == 403
