"""Large bodies leave in parts: together these are what a small body would be, between what was before and behind."""

import random

import pytest

from mayfly.node.amqp.channel import ReceivingChannel
from mayfly.node.amqp.content import Content
from mayfly.node.amqp.large_body import LargeContent
from mayfly.node.amqp.octet_views import OctetViews
from mayfly.node.amqp.output import Output
from mayfly.node.limits import OUTPUT_PART_BYTES
from tests.node.amqp.scripted_client import running_client

BODY = random.Random(3).randbytes(3 * OUTPUT_PART_BYTES + 17)


def large(body: bytes, piece_bytes: int) -> LargeContent:
    pieces = [body[at : at + piece_bytes] for at in range(0, len(body), piece_bytes)]
    return LargeContent(b"\x01x\x01k", bytes(14), OctetViews(pieces))


def open_output(frame_max_bytes: int) -> Output:
    return Output({1: ReceivingChannel(1)}, frame_max_bytes)


def send_all(output: Output, contents: list[Content]) -> None:
    output.append(b"before")
    output.send_get_ok(1, 1, True, contents[0], 3)
    output.append(b"between")
    output.send_deliveries(1, b"tag", [(2, False, Content(b"\x00\x01q", bytes(14), b"small")), (3, True, contents[1])])
    output.send_deliveries(1, b"tag", [(4, False, contents[2])])
    output.append(b"behind")


@pytest.mark.parametrize("piece_bytes", [1000, 131_064, OUTPUT_PART_BYTES, len(BODY)])
@pytest.mark.parametrize("frame_max_bytes", [4096, 131_072, 2 * OUTPUT_PART_BYTES])
def test_parts_are_together_what_one_piece_would_be(piece_bytes: int, frame_max_bytes: int) -> None:
    bodies = [BODY, BODY[5:], BODY[:OUTPUT_PART_BYTES]]
    whole = open_output(frame_max_bytes)
    send_all(whole, [Content(b"\x01x\x01k", bytes(14), body) for body in bodies])
    wanted = b"".join(whole.take())
    output = open_output(frame_max_bytes)
    send_all(output, [large(body, piece_bytes) for body in bodies])
    assert output.size_bytes == whole.taken_bytes == len(wanted)
    came = b""
    while output.size_bytes:
        assert output.has_large or came.endswith(BODY[OUTPUT_PART_BYTES - 9 : OUTPUT_PART_BYTES] + b"\xce")
        part = b"".join(output.take())
        assert 0 < len(part) <= max(OUTPUT_PART_BYTES, frame_max_bytes) + 200
        came += part
        assert output.size_bytes == len(wanted) - len(came)
    assert came == wanted
    assert output.taken_bytes == len(wanted)
    assert output.take() == []


def test_what_is_returned_leaves_in_parts_as_well() -> None:
    output = open_output(131_072)
    output.send_return(1, 312, "NO_ROUTE", Content(b"\x01x\x01k", bytes(14), BODY))
    came: list[bytes] = []
    while output.size_bytes:
        came.append(b"".join(output.take()))
    assert len(came) == 4
    assert max(map(len, came)) <= OUTPUT_PART_BYTES + 200
    small = open_output(131_072)
    small.send_return(1, 312, "NO_ROUTE", Content(b"\x01x\x01k", bytes(14), BODY[:OUTPUT_PART_BYTES]))
    assert not small.has_large


@pytest.mark.parametrize("is_large", [True, False])
def test_no_heartbeats_gather_behind_what_the_client_does_not_take(is_large: bool) -> None:
    client = running_client(heartbeat=2)
    connection = client.connection
    connection.output.send_get_ok(1, 1, False, large(BODY if is_large else b"small", 1000), 0)
    connection.output.take()
    for now_ms in range(0, 20_000, 500):
        connection.receive(b"\x08\x00\x00\x00\x00\x00\x00\xce")
        connection.tick(now_ms)
    while connection.output.has_large:
        connection.output.take()
    assert connection.output.take() == [] if is_large else len(connection.output.take()) > 10


def test_what_is_for_a_closed_channel_is_dropped() -> None:
    output = open_output(131_072)
    output.send_get_ok(2, 1, False, large(BODY, 1000), 0)
    assert (output.size_bytes, output.has_large) == (0, False)
