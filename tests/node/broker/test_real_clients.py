"""pika and aio-pika against the listener on loopback; sockets that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pathlib
import random
import socket
import ssl
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import aio_pika
import pika
import pika.exceptions
import pytest

from tests.golden.recordings import GOLDEN, VERSION
from tests.node.broker.direct_node import DirectNode
from tests.waiting import BOUND_S, wait_for


@pytest.fixture(scope="module")
def node() -> Iterator[Any]:
    with DirectNode() as running:
        yield running


@pytest.fixture
def connection(node: Any) -> Iterator[pika.BlockingConnection]:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port))
    yield connection
    if connection.is_open:
        connection.close()


def test_pika_publishes_and_consumes(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    channel.queue_declare("pika", durable=True)
    channel.confirm_delivery()
    for number in range(20):
        channel.basic_publish("", "pika", b"%d" % number, mandatory=True)
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", "nowhere", b"", mandatory=True)
    got = []
    channel.basic_qos(prefetch_count=5)
    for method, _, body in channel.consume("pika", inactivity_timeout=BOUND_S):
        assert method is not None
        got.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(got) == 20:
            break
    channel.cancel()
    assert got == [b"%d" % number for number in range(20)]
    assert channel.queue_delete("pika").method.message_count == 0


def test_aio_pika_round_trip(node: Any) -> None:
    async def main() -> list[bytes]:
        connection = await aio_pika.connect_robust(f"amqp://guest:guest@127.0.0.1:{node.port}/")
        async with connection:
            channel = await connection.channel(publisher_confirms=True)
            await channel.set_qos(prefetch_count=100)
            exchange = await channel.declare_exchange("aio", aio_pika.ExchangeType.TOPIC, auto_delete=True)
            queue = await channel.declare_queue("", exclusive=True)
            await queue.bind(exchange, "a.#")
            bodies = [b"%d" % number for number in range(500)]
            await asyncio.gather(*(exchange.publish(aio_pika.Message(body), "a.b") for body in bodies))
            got = []
            async with queue.iterator(timeout=BOUND_S) as messages:
                async for message in messages:
                    await message.ack()
                    got.append(message.body)
                    if len(got) == len(bodies):
                        break
            return got

    assert sorted(asyncio.run(main())) == sorted(b"%d" % number for number in range(500))


def test_a_queue_deleted_elsewhere_cancels(node: Any, connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    channel.queue_declare("short-lived", durable=True)
    cancelled = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame))
    channel.basic_consume("short-lived", lambda *_: None)
    other = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port))
    other.channel().queue_delete("short-lived")
    other.close()

    def is_cancelled() -> bool:
        connection.process_data_events(0.05)
        return bool(cancelled)

    wait_for(is_cancelled, "basic.cancel")
    assert len(cancelled) == 1


def test_large_messages(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    name = channel.queue_declare("", exclusive=True).method.queue
    body = os.urandom(5 * 1024 * 1024)
    channel.confirm_delivery()
    channel.basic_publish("", name, body)
    assert channel.basic_get(name, auto_ack=True)[2] == body


def test_a_client_that_does_not_read_holds_the_queue_not_the_memory(node: Any, connection: Any) -> None:
    channel = connection.channel()
    channel.queue_declare("backlog", durable=True)
    channel.confirm_delivery()
    slow = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port))
    consuming = slow.channel()
    consuming.basic_consume("backlog", lambda *_: None, auto_ack=True)
    for _ in range(60):
        channel.basic_publish("", "backlog", bytes(1024 * 1024))
    assert channel.queue_declare("backlog", passive=True).method.message_count > 20
    slow.close()
    channel.queue_delete("backlog")


def test_garbage_on_the_port(node: Any, connection: pika.BlockingConnection, caplog: Any) -> None:
    """No traceback, no leftover, no effect on others."""
    chance = random.Random(1)
    channel = connection.channel()
    wait_for(lambda: node.listener.connection_count == 1, "the end of the connections of other tests")
    with caplog.at_level(logging.WARNING):
        for number in range(400):
            with socket.create_connection(("127.0.0.1", node.port), timeout=BOUND_S) as raw:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if number % 2:
                    raw.sendall(b"AMQP\x00\x00\x09\x01")
                raw.sendall(chance.randbytes(chance.choice((1, 7, 40, 3000))))
    wait_for(lambda: node.listener.connection_count == 1, "the end of all that was garbage")
    assert not [record for record in caplog.records if record.exc_info]
    assert channel.queue_declare("", exclusive=True).method.message_count == 0


def test_wrong_protocol_header(node: Any) -> None:
    with socket.create_connection(("127.0.0.1", node.port), timeout=BOUND_S) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\n\r\n")
        data = b""
        while chunk := raw.recv(100):
            data += chunk
    assert data == b"AMQP\x00\x00\x09\x01"


def test_wrong_password(node: Any) -> None:
    wrong = pika.ConnectionParameters(
        "127.0.0.1", node.port, credentials=pika.PlainCredentials("guest", "wrong"), connection_attempts=1
    )
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        pika.BlockingConnection(wrong)


def test_shutdown_tells_clients_and_ends() -> None:
    with DirectNode() as node:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port))
        stopper = threading.Thread(target=node.stop)
        stopper.start()
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as told:
            connection.process_data_events(BOUND_S)
        assert told.value.reply_code == 320
        stopper.join(BOUND_S)
        assert not stopper.is_alive()


def test_tls(tmp_path: pathlib.Path) -> None:
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "1",
                "-subj",
                "/CN=localhost",
            ),
            *("-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")),
        ],
        check=True,
        capture_output=True,
    )
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    trusting = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    trusting.check_hostname = False
    with DirectNode(tls=server) as node:
        options = pika.SSLOptions(trusting, "localhost")
        connection = pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", node.port, ssl_options=options)
        )
        channel = connection.channel()
        name = channel.queue_declare("", exclusive=True).method.queue
        channel.basic_publish("", name, b"secret" * 100_000)
        assert channel.basic_get(name, auto_ack=True)[2] == b"secret" * 100_000
        connection.close()
        # Somebody who speaks no TLS is let go without a trace.
        with socket.create_connection(("127.0.0.1", node.port), timeout=BOUND_S) as raw:
            raw.sendall(b"AMQP\x00\x00\x09\x01")
            with contextlib.suppress(ConnectionError):
                raw.recv(100)


RECORDED = (
    "amqp.missing", "amqp.reserved", "amqp.unknown_delivery", "amqp.returns", "amqp.exchange_types",
    "amqp.confirms", "amqp.consumer_tags", "queue.purge", "queue.counts", "wire.close_ids", "ttl.unacked",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not GOLDEN.is_dir(), reason="the recordings are not here")
def test_recorded_answers_of_rabbitmq(node: Any, tmp_path: pathlib.Path) -> None:
    """Some of the recorded scenarios; all of them take a minute (tests/node/broker/direct_node.py says how)."""
    for name in RECORDED:
        mine = tmp_path / f"{name}.json"
        uri = f"amqp://guest:guest@127.0.0.1:{node.port}/%2F"
        subprocess.run(
            [sys.executable, str(GOLDEN / "ttl_golden.py"), "--uri", uri, "--only", name, "--out", str(mine)],
            check=True,
            capture_output=True,
            timeout=5 * BOUND_S,
        )
        compared = subprocess.run(
            [
                *(sys.executable, str(GOLDEN / "compare_golden.py")),
                *(str(GOLDEN / f"rabbitmq-{VERSION}-quorum.json"), str(mine)),
            ],
            capture_output=True,
            text=True,
            timeout=5 * BOUND_S,
        ).stdout.splitlines()
        lines = [each for each in compared if each.split()[-1].startswith(name)]
        assert lines
        assert all(line.startswith("match ") for line in lines), compared
