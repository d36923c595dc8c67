"""Whatever a peer sends: receive() raises nothing, keeps little, and what it answers is AMQP."""

import itertools
import random
import tracemalloc
from typing import Any

from pamqp import commands, frame
from pamqp.commands import Basic, Queue

from mayfly.node.amqp.connection_state import RUNNING
from mayfly.node.amqp.handshake import PROTOCOL_HEADER
from tests.node.amqp.scripted_client import ScriptedClient, contents_of, message, raw_frame, running_client

CASES = 20_000


def _valid_pieces() -> list[bytes]:
    properties = Basic.Properties(headers={"a": [1, "b", {"c": None}]}, expiration="5", timestamp=None)
    pieces = [
        message(1),
        message(1, b"", "e", "k", properties),
        message(1, b"x" * 300, frame_bytes=100),
        frame.marshal(commands.Channel.Open(), 2),
        frame.marshal(commands.Channel.Close(200, "x", 0, 0), 1),
        frame.marshal(commands.Channel.CloseOk(), 1),
        frame.marshal(commands.Channel.Flow(True), 1),
        frame.marshal(commands.Connection.Close(200, "x", 0, 0), 0),
        frame.marshal(commands.Connection.CloseOk(), 0),
        frame.marshal(Basic.Ack(5, True), 1),
        frame.marshal(Basic.Nack(5, True), 1),
        frame.marshal(Basic.Consume(queue="q", arguments={"x-priority": 3}), 1),
        raw_frame(8, 0, b""),
        raw_frame(3, 1, b"hello"),
    ]
    arguments: list[dict[str, Any]] = [{}, {"x-message-ttl": 5}, {"a": [{"b": 1.5}], "t": True}]
    pieces += [frame.marshal(Queue.Declare(queue="q", arguments=table), 1) for table in arguments]
    return pieces


def _mutated(chance: random.Random, pieces: list[bytes]) -> bytes:
    octets = bytearray(b"".join(chance.choices(pieces, k=chance.randrange(1, 5))))
    for _ in range(chance.randrange(5)):
        place = chance.randrange(len(octets))
        change = chance.randrange(4)
        if change == 0:
            octets[place] = chance.randrange(256)
        elif change == 1:
            del octets[place : place + chance.randrange(1, 9)]
        elif change == 2:
            octets[place:place] = chance.randbytes(chance.randrange(1, 9))
        else:
            octets[place : place + 4] = chance.choice((b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x00\x00"))
        if not octets:
            break
    return bytes(octets)


def _use(client: ScriptedClient, octets: bytes, chance: random.Random) -> None:
    """Feed in one to three pieces; look at everything that comes out."""
    cuts = sorted([0, len(octets), *(chance.randrange(len(octets) + 1) for _ in range(chance.randrange(3)))])
    for low, high in itertools.pairwise(cuts):
        for content in contents_of(client.feed(octets[low:high])):
            content.properties()
            content.expiration_bytes()
            content.headers_table()
    client.connection.tick(0)
    client.output()
    assert client.connection._reader.buffered_bytes < 300_000


def test_mutated_conversations() -> None:
    chance = random.Random(20_260_101)
    pieces = _valid_pieces()
    ended = 0
    for _ in range(CASES * 3 // 4):
        client = running_client()
        _use(client, _mutated(chance, pieces), chance)
        ended += client.connection.state != RUNNING
    assert CASES // 4 < ended < CASES * 3 // 4


def test_mutated_handshakes_and_noise() -> None:
    chance = random.Random(7)
    start = ScriptedClient()
    handshake = [
        start.start_ok(),
        frame.marshal(commands.Connection.TuneOk(5, 4_096, 9), 0),
        frame.marshal(commands.Connection.Open(), 0),
        message(1),
    ]
    for number in range(CASES // 4):
        client = ScriptedClient()
        if number % 2:
            client.feed(PROTOCOL_HEADER)
            _use(client, _mutated(chance, handshake), chance)
        else:
            _use(client, chance.randbytes(chance.randrange(1, 200)), chance)


def test_noise_without_end_is_not_kept() -> None:
    chance = random.Random(9)
    for begin in (b"", PROTOCOL_HEADER):
        client = ScriptedClient()
        client.feed(begin)
        tracemalloc.start()
        try:
            for _ in range(200):
                client.feed(chance.randbytes(10_000))
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert kept < 200_000
