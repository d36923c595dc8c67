"""Texts of others in our log, and names that may be said."""

import logging

import pytest

from mayfly.cluster import limits
from mayfly.cluster.transport import codec
from mayfly.cluster.transport.codec import PeerRefused
from mayfly.cluster.transport.complaints import Complaints
from mayfly.cluster.transport.local_peer import LocalPeer
from mayfly.cluster.transport.peer_text import address_fault, name_fault, printable

NASTY = "a\nb\r\x1b[31m\u2028\u202ec\x00"


def test_a_text_is_one_line_of_what_can_be_printed() -> None:
    assert printable(NASTY) == r"a\nb\r\x1b[31m\u2028\u202ec\x00"
    assert printable("node 2 is 'größer'") == "node 2 is 'größer'"


def test_a_long_text_is_cut_off() -> None:
    assert printable("x" * limits.MAX_PEER_TEXT_LENGTH) == "x" * limits.MAX_PEER_TEXT_LENGTH
    assert printable("x" * 100_000) == "x" * limits.MAX_PEER_TEXT_LENGTH + "..."


def test_complaints_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    Complaints().say(NASTY, NASTY)
    assert [record.getMessage().isprintable() for record in caplog.records] == [True]


@pytest.mark.parametrize("name", ["", "node1", "mayfly-0.mayfly", "a" * limits.MAX_NAME_LENGTH, "3f_2"])
def test_names_that_nodes_have_are_taken(name: str) -> None:
    assert name_fault("name", name) == ""


@pytest.mark.parametrize("name", ["a b", "a\n", "\n", "-a", "ä", "a" * (limits.MAX_NAME_LENGTH + 1), "a\x00", "a'b"])
def test_other_names_are_not(name: str) -> None:
    fault = name_fault("node_name", name)
    assert fault.startswith("node_name ")
    assert fault.isprintable()


@pytest.mark.parametrize("address", ["", "h:1", "127.0.0.1:25672", "[::1]:25672", "[fe80::1%eth0]:1", "a_b.c-d.:65535"])
def test_addresses_of_nodes_are_taken(address: str) -> None:
    assert address_fault(address) == ""


@pytest.mark.parametrize("address", ["h", "h:1\n", "h:x", "[::1\n]:1", "a b:1", ":1", "unix:/tmp/x", "h" * 300 + ":1"])
def test_other_addresses_are_not(address: str) -> None:
    assert address_fault(address).isprintable()
    assert address_fault(address)


@pytest.mark.parametrize("field", ["node_name", "cluster_id", "store", "address"])
def test_a_hello_with_another_name_is_refused(field: str) -> None:
    hello = LocalPeer(2, "node-2", "blue").hello()
    setattr(hello, field, "x\ny")
    with pytest.raises(PeerRefused, match=r"are taken|is taken") as refused:
        codec.decode_hello(codec.encode_hello(hello))
    assert str(refused.value).isprintable()
