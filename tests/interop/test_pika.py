"""pika, as its documentation has it: blocking connections, confirms, and a loop that connects again."""

import threading
from typing import Any

import pika
import pika.exceptions
import pytest

from tests.integration.nodes import Nodes, wait_for
from tests.interop.support import WITHIN_S, dead, fresh, urls

pytestmark = [pytest.mark.processes]
PERSISTENT = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)


def get_soon(channel: Any, queue: str) -> tuple[Any, Any, bytes]:
    """A message that is on its way into a queue."""
    found: list[tuple[Any, Any, bytes]] = []

    def got() -> bool:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is not None:
            found.append((method, properties, body))
        return bool(found)

    wait_for(got, f"a message in {queue}")
    return found[0]


def test_work_queue_and_topics(whole: Nodes) -> None:
    """Publisher on one node, workers on the others; a rejected task is dead-lettered, a returned one comes again."""
    publishing, working = (pika.BlockingConnection(pika.URLParameters(address)) for address in urls(whole)[:2])
    with publishing, working:
        channel = publishing.channel()
        channel.confirm_delivery()
        exchange, tasks, failed = fresh("topics"), fresh("tasks"), fresh("failed")
        channel.exchange_declare(exchange, exchange_type="topic", durable=True)
        channel.queue_declare(failed, durable=True)
        channel.queue_declare(
            tasks,
            durable=True,
            arguments={
                "x-queue-type": "quorum",
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": failed,
            },
        )
        channel.queue_bind(tasks, exchange, "task.*")
        for number in range(30):
            channel.basic_publish(exchange, f"task.{number}", b"%d" % number, PERSISTENT, mandatory=True)
        with pytest.raises(pika.exceptions.UnroutableError):
            channel.basic_publish(exchange, "other", b"", PERSISTENT, mandatory=True)

        done: list[bytes] = []
        seen_again: list[bytes] = []
        whole.until_told(2)
        worker = working.channel()
        worker.basic_qos(prefetch_count=4)

        def work(where: Any, method: Any, properties: Any, body: bytes) -> None:
            if body == b"7":
                where.basic_reject(method.delivery_tag, requeue=False)
            elif body == b"8" and not method.redelivered:
                where.basic_nack(method.delivery_tag, requeue=True)
            else:
                if method.redelivered:
                    seen_again.append(body)
                done.append(body)
                where.basic_ack(method.delivery_tag)
            if len(done) == 29:
                where.stop_consuming()

        worker.basic_consume(tasks, work)
        worker.start_consuming()
        assert sorted(map(int, done)) == [number for number in range(30) if number != 7]
        assert seen_again == [b"8"]
        _, properties, body = get_soon(channel, failed)
        assert (body, properties.headers["x-death"][0]["reason"]) == (b"7", "rejected")


def test_transactions(whole: Nodes) -> None:
    with pika.BlockingConnection(pika.URLParameters(urls(whole)[0])) as connection:
        name = fresh("tx")
        channel = connection.channel()
        channel.queue_declare(name, durable=True)
        channel.tx_select()
        channel.basic_publish("", name, b"rolled back", PERSISTENT)
        channel.tx_rollback()
        channel.basic_publish("", name, b"committed", PERSISTENT)
        channel.tx_commit()
        assert channel.basic_get(name, auto_ack=True)[2] == b"committed"
        assert channel.basic_get(name, auto_ack=True)[2] is None


def test_priorities(whole: Nodes) -> None:
    with pika.BlockingConnection(pika.URLParameters(urls(whole)[0])) as connection:
        name = fresh("priority")
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(name, durable=True, arguments={"x-max-priority": 9})
        for priority in (0, 9, 4):
            channel.basic_publish("", name, b"%d" % priority, pika.BasicProperties(priority=priority))
        assert [channel.basic_get(name, auto_ack=True)[2] for _ in range(3)] == [b"9", b"4", b"0"]


def test_direct_reply_to(whole: Nodes) -> None:
    asking, serving = (pika.BlockingConnection(pika.URLParameters(address)) for address in urls(whole)[:2])
    with asking, serving:
        name = fresh("rpc")
        client, server = asking.channel(), serving.channel()
        server.queue_declare(name, exclusive=True)
        whole.until_told(1)
        answers: list[bytes] = []
        client.basic_consume("amq.rabbitmq.reply-to", lambda *message: answers.append(message[3]), auto_ack=True)
        client.basic_publish("", name, b"6", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to"))
        _, properties, _ = get_soon(server, name)
        server.basic_publish("", properties.reply_to, b"36")
        asking.process_data_events(time_limit=WITHIN_S)
        assert answers == [b"36"]


@pytest.mark.interop_long
def test_reconnecting_loops_go_on_when_their_node_dies(whole: Nodes) -> None:
    """The loops that pika's documentation gives: a list of nodes, connect again on AMQPConnectionError."""
    name = fresh("loop")
    parameters = [pika.URLParameters(address) for address in urls(whole)]
    received: set[int] = set()
    confirmed: list[int] = []
    over = threading.Event()

    def consume() -> None:
        while not over.is_set():
            try:
                connection = pika.BlockingConnection(parameters)
                channel = connection.channel()
                channel.queue_declare(name, durable=True)
                for method, _, body in channel.consume(name, inactivity_timeout=0.2):
                    if method is not None:
                        received.add(int(body))
                        channel.basic_ack(method.delivery_tag)
                    if over.is_set():
                        break
                connection.close()
            except pika.exceptions.AMQPError:
                continue

    def publish() -> None:
        number = 0
        while not over.is_set():
            try:
                connection = pika.BlockingConnection(parameters)
                channel = connection.channel()
                channel.confirm_delivery()
                channel.queue_declare(name, durable=True)
                while not over.is_set():
                    channel.basic_publish("", name, b"%d" % number, PERSISTENT, mandatory=True)
                    confirmed.append(number)
                    number += 1
                connection.close()
            except pika.exceptions.AMQPError:
                number += 1

    threads = [threading.Thread(target=each, daemon=True) for each in (consume, publish)]
    for thread in threads:
        thread.start()
    try:
        wait_for(lambda: len(received) > 50, "messages", WITHIN_S)
        with dead(whole, 1):
            before = len(received)
            wait_for(lambda: len(received) > before + 50, "messages without node 1", WITHIN_S)
        before = len(confirmed)
        wait_for(lambda: len(confirmed) > before + 50, "messages after it is back", WITHIN_S)
        wait_for(lambda: set(confirmed[:before]) <= received, "all that was confirmed", WITHIN_S)
    finally:
        over.set()
        for thread in threads:
            thread.join(WITHIN_S)
