"""What the AMQP layer costs per message on this machine: python tests/bench/amqp_frames.py [--body BYTES]

Prints microseconds of CPU time for a publish read, a settlement read, a delivery and a confirm written; the best of
several runs.  The first line tells whether the module that reads frames is compiled (.so) or not (.py).
"""

import argparse
import time
from collections.abc import Callable

from pamqp import commands, frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from mayfly.node.amqp import frames
from mayfly.node.amqp.connection import Connection
from mayfly.node.amqp.content import Content
from mayfly.node.amqp.events import PublishesReceived
from mayfly.node.amqp.handshake import PROTOCOL_HEADER
from mayfly.node.amqp.settings import ConnectionSettings

READ_BYTES = 65_536
MESSAGES = 6_000
RUNS = 15


def running_connection() -> Connection:
    """A connection past its handshake, with channel 1 open."""
    connection = Connection(ConnectionSettings("bench"))
    connection.receive(PROTOCOL_HEADER)
    connection.receive(frame.marshal(commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest"), 0))
    connection.authenticated()
    connection.receive(frame.marshal(commands.Connection.TuneOk(2047, 131_072, 0), 0))
    connection.receive(frame.marshal(commands.Connection.Open(), 0))
    connection.opened()
    connection.receive(frame.marshal(commands.Channel.Open(), 1))
    connection.take_output()
    return connection


def publishes(
    body_bytes: int, properties: Callable[[int], commands.Basic.Properties], keys: int = 1
) -> bytes:
    """MESSAGES publishes, their frames in one piece; `keys` routing keys take turns."""
    parts: list[bytes] = []
    body = frame.marshal(ContentBody(b"x" * body_bytes), 1)
    for number in range(MESSAGES):
        publish = commands.Basic.Publish(exchange="amq.direct", routing_key=f"some.key.{number % keys}")
        parts.append(frame.marshal(publish, 1))
        parts.append(frame.marshal(ContentHeader(body_size=body_bytes, properties=properties(number)), 1))
        parts.append(body)
    return b"".join(parts)


def in_reads(octets: bytes, read_bytes: int = READ_BYTES) -> list[bytes]:
    """As a socket would give them."""
    return [octets[at : at + read_bytes] for at in range(0, len(octets), read_bytes)]


def best_of(work: Callable[[], object]) -> float:
    """Microseconds per message."""
    best = float("inf")
    for _ in range(RUNS):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best / MESSAGES * 1e6


def read_all(connection: Connection, pieces: list[bytes]) -> list[Content]:
    """Receive every piece; the last contents, so that no memory piles up."""
    contents: list[Content] = []
    for piece in pieces:
        for event in connection.receive(piece):
            if isinstance(event, PublishesReceived):
                contents = event.contents
    return contents


def main() -> None:
    """Run every measurement once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--body", type=int, default=1024, help="body size in bytes")
    body_bytes: int = parser.parse_args().body
    print(f"frames: {frames.__file__}")
    connection = running_connection()
    plain = publishes(body_bytes, lambda _: commands.Basic.Properties(delivery_mode=2))
    kinds = {
        "publish, persistent": plain,
        "publish, own message id and expiration": publishes(
            body_bytes,
            lambda number: commands.Basic.Properties(
                delivery_mode=2, message_id=f"id-{number}", expiration="60000"
            ),
        ),
        "publish, own headers table and 5 000 keys": publishes(
            body_bytes,
            lambda number: commands.Basic.Properties(headers={"n": number, "from": "here"}),
            keys=5_000,
        ),
    }
    for name, octets in kinds.items():
        pieces = in_reads(octets)
        cost = best_of(lambda pieces=pieces: read_all(connection, pieces))  # type: ignore[misc]
        print(f"{name:45} {cost:6.2f} us")
    small = in_reads(plain, 1_460)
    print(f"{'publish, in reads of 1 460 bytes':45} {best_of(lambda: read_all(connection, small)):6.2f} us")
    acks = [frame.marshal(commands.Basic.Ack(delivery_tag=number + 1), 1) for number in range(MESSAGES)]
    ack_pieces = in_reads(b"".join(acks))
    print(f"{'ack':45} {best_of(lambda: read_all(connection, ack_pieces)):6.2f} us")
    contents = read_all(connection, in_reads(plain))
    deliveries = [(number + 1, False, contents[number % len(contents)]) for number in range(MESSAGES)]
    batches = [deliveries[at : at + 100] for at in range(0, MESSAGES, 100)]

    def deliver() -> None:
        for batch in batches:
            connection.output.send_deliveries(1, b"ctag1.0123456789abcdef", batch)
            b"".join(connection.take_output())

    print(f"{'delivery, joined to one piece per 100':45} {best_of(deliver):6.2f} us")
    confirms = [(number + 1, False) for number in range(MESSAGES)]

    def confirm() -> None:
        connection.output.send_confirms(1, confirms)
        connection.take_output()

    print(f"{'confirm':45} {best_of(confirm):6.2f} us")


if __name__ == "__main__":
    main()
