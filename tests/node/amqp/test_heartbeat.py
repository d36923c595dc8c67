"""Heartbeats and time limits, under a clock of our own."""

import itertools
from collections.abc import Iterator

import pytest

from mayfly.node.amqp.events import ConnectionClosed
from mayfly.node.amqp.handshake import PROTOCOL_HEADER
from tests.node.amqp.scripted_client import ScriptedClient, running_client

BEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"


def ticks(start_ms: int, end_ms: int, step_ms: int = 100) -> Iterator[int]:
    return iter(range(start_ms, end_ms, step_ms))


def test_a_silent_client_gets_beats_and_is_cut_without_a_close() -> None:
    """wire.heartbeat_missed: between two and three intervals after its last octet."""
    client = running_client(heartbeat=1)
    beats = 0
    for now_ms in ticks(0, 10_000):
        events = client.connection.tick(now_ms)
        output = client.names()
        assert set(output) <= {(0, "Heartbeat")}
        beats += len(output)
        if client.connection.should_close:
            assert events == [ConnectionClosed("missed heartbeats from client, timeout: 1s")]
            break
    assert 2_000 <= now_ms <= 3_000
    assert 2 <= beats <= 5


@pytest.mark.parametrize("size", [1, 8])
def test_a_client_that_sends_anything_lives(size: int) -> None:
    """wire.heartbeat_kept: any octet counts as life."""
    client = running_client(heartbeat=1)
    octets = BEAT * 10
    for now_ms in ticks(0, 20_000):
        if now_ms % 1_500 == 0 and now_ms < 8_000:
            client.connection.receive(octets[:size])
            octets = octets[size:]
        client.connection.tick(now_ms)
        if client.connection.should_close:
            break
    assert 9_500 <= now_ms <= 11_000


def test_what_is_sent_takes_the_place_of_beats() -> None:
    client = running_client(heartbeat=2)
    for now_ms in ticks(0, 3_000):
        client.connection.receive(BEAT)
        client.connection.send_blocked("x")
        assert client.names() == [(0, "Connection.Blocked")]
        client.connection.tick(now_ms)
        assert client.output() == []


def test_beats_come_at_half_the_interval() -> None:
    client = running_client(heartbeat=4)
    sent = []
    for now_ms in ticks(0, 20_000):
        client.connection.receive(BEAT)
        client.connection.tick(now_ms)
        if client.names():
            sent.append(now_ms)
    assert all(2_000 <= later - earlier <= 2_200 for earlier, later in itertools.pairwise(sent))
    assert len(sent) >= 8


def test_no_heartbeats_when_none_were_agreed() -> None:
    client = running_client(heartbeat=0)
    for now_ms in ticks(0, 600_000, 5_000):
        assert client.connection.tick(now_ms) == []
    assert client.output() == []
    assert not client.connection.should_close


def test_a_client_whose_socket_is_not_read_is_not_silent() -> None:
    client = running_client(heartbeat=1)
    client.connection.reading_paused = True
    for now_ms in ticks(0, 10_000):
        client.connection.tick(now_ms)
    assert not client.connection.should_close
    client.connection.reading_paused = False
    for now_ms in ticks(10_000, 13_000):
        client.connection.tick(now_ms)
    assert client.connection.should_close


def test_a_process_that_stood_still_reads_before_it_judges() -> None:
    client = running_client(heartbeat=1)
    client.connection.tick(0)
    client.connection.tick(3_600_000)
    assert not client.connection.should_close


def test_the_handshake_has_its_time() -> None:
    for octets in (b"", b"AMQP", PROTOCOL_HEADER):
        client = ScriptedClient()
        client.feed(octets)
        client.connection.tick(5)
        assert client.connection.tick(9_900) == []
        events = client.connection.tick(10_100)
        assert [type(event) for event in events] == [ConnectionClosed]
        assert client.connection.should_close
        assert client.names() == ([(0, "Connection.Start")] if octets == PROTOCOL_HEADER else [])
