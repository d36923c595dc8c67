"""py-amqp, kombu above it, and amqpstorm: blocking clients."""

import itertools
import threading
from typing import Any

import pytest

from tests.integration.nodes import Nodes, wait_for
from tests.interop.support import NO_PYTHON_CLIENTS, WITHIN_S, dead, fresh, url, urls

amqp = pytest.importorskip("amqp", reason=NO_PYTHON_CLIENTS)
amqpstorm = pytest.importorskip("amqpstorm", reason=NO_PYTHON_CLIENTS)
kombu = pytest.importorskip("kombu", reason=NO_PYTHON_CLIENTS)
from kombu.mixins import ConsumerProducerMixin  # noqa: E402
from kombu.pidbox import Mailbox  # noqa: E402

pytestmark = [pytest.mark.processes]


def test_py_amqp(whole: Nodes) -> None:
    with amqp.Connection(str(whole.plan(1).amqp), confirm_publish=True, heartbeat=60) as connection:
        channel = connection.channel()
        name = fresh("py-amqp")
        channel.exchange_declare(name, "headers", durable=True, auto_delete=False)
        channel.queue_declare(name, durable=True, auto_delete=False)
        channel.queue_bind(name, name, arguments={"x-match": "all", "kind": "a", "size": 3})
        channel.basic_qos(0, 1, False)
        headers = {"kind": "a", "size": 3}
        channel.basic_publish_confirm(amqp.Message("one", delivery_mode=2, application_headers=headers), name)
        got: list[Any] = []
        channel.basic_consume(name, callback=got.append)
        connection.drain_events(timeout=WITHIN_S)
        assert (got[0].body, got[0].headers) == ("one", headers)
        channel.basic_reject(got[0].delivery_tag, requeue=True)
        connection.drain_events(timeout=WITHIN_S)
        assert got[1].delivery_info["redelivered"]
        channel.basic_ack(got[1].delivery_tag)
        connection.send_heartbeat()
        connection.heartbeat_tick()
        with pytest.raises(amqp.NotFound):
            channel.queue_declare(fresh("missing"), passive=True)
        # A client that deletes what it consumes from is answered before it is told of the cancel.
        channel = connection.channel()
        told: list[str] = []
        tag = channel.basic_consume(name, callback=got.append, on_cancel=told.append)
        assert channel.queue_delete(name) == 0
        assert told == []
        connection.drain_events(timeout=WITHIN_S)
        assert told == [tag]


def test_kombu_simple_queue_and_mailbox(whole: Nodes) -> None:
    """Simple queues, retried publishes, and a pidbox: broadcast exchange, answers into queues of their own."""
    with kombu.Connection(url(whole, 1)) as one, kombu.Connection(url(whole, 2)) as two:
        with one.SimpleQueue(fresh("simple")) as putting:
            putting.put({"hello": "world"}, serializer="json", compression="zlib")
            with two.SimpleQueue(putting.queue.name) as getting:
                message = getting.get(block=True, timeout=WITHIN_S)
                assert message.payload == {"hello": "world"}
                message.ack()
                with pytest.raises(getting.Empty):
                    getting.get(block=False)

        mailbox = Mailbox(fresh("pidbox"), type="fanout")
        node = mailbox(one).Node("worker", handlers={"double": lambda state, number: {"is": 2 * number}})
        consumer = node.listen(channel=one.channel())
        whole.until_told(2)
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                try:
                    one.drain_events(timeout=0.1)
                except TimeoutError:
                    continue

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            replies = mailbox(two).call(["worker"], "double", {"number": 21}, timeout=WITHIN_S)
        finally:
            over.set()
            thread.join(WITHIN_S)
            consumer.cancel()
        assert replies == [{"worker": {"is": 42}}]


class Doubler(ConsumerProducerMixin):
    """Takes from one queue, puts twice the number into another; the mixin connects again by itself."""

    def __init__(self, connection: Any, source: Any, target: Any) -> None:
        self.connection = connection
        self.source = source
        self.target = target

    def get_consumers(self, consumer: Any, channel: Any) -> list[Any]:
        """What the mixin asks for."""
        return [consumer([self.source], callbacks=[self.on_message], prefetch_count=5)]

    def on_message(self, body: Any, message: Any) -> None:
        """Acknowledged once the answer is on its way."""
        self.producer.publish(
            {"is": 2 * body["number"]},
            routing_key=self.target.name,
            declare=[self.target],
            retry=True,
            retry_policy={"interval_start": 0, "interval_step": 0.2, "max_retries": 100},
        )
        message.ack()


@pytest.mark.interop_long
def test_kombu_mixin_goes_to_another_node(whole: Nodes) -> None:
    source, target = (kombu.Queue(name, routing_key=name) for name in (fresh("numbers"), fresh("doubles")))
    everywhere = ";".join(urls(whole))
    worker = Doubler(kombu.Connection(everywhere, transport_options={"confirm_publish": True}), source, target)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    doubles: set[int] = set()
    policy = {"interval_start": 0, "interval_step": 0.2, "max_retries": 100}
    numbers = itertools.count()
    with kombu.Connection(everywhere, transport_options={"confirm_publish": True}) as connection:

        def ask_and_collect(count: int) -> None:
            """Publish so many numbers, then take what is there until all that was ever asked for is doubled."""
            producer = connection.Producer()
            asked = [next(numbers) for _ in range(count)]
            for number in asked:
                producer.publish(
                    {"number": number}, routing_key=source.name, declare=[source], retry=True, retry_policy=policy
                )

            def collected() -> bool:
                def take() -> bool:
                    message = target(connection.default_channel).get(no_ack=True)
                    if message is not None:
                        doubles.add(message.payload["is"])
                    return message is not None

                target(connection.default_channel).declare()
                while connection.ensure(connection, take, max_retries=100, interval_start=0, interval_step=0.2)():
                    pass
                return {2 * number for number in asked} <= doubles

            wait_for(collected, "all doubles", WITHIN_S, every_s=0.05)

        ask_and_collect(20)
        with dead(whole, 1):
            ask_and_collect(20)
        ask_and_collect(20)
    worker.should_stop = True
    thread.join(WITHIN_S)
    assert not thread.is_alive()


def test_amqpstorm(whole: Nodes) -> None:
    with amqpstorm.UriConnection(url(whole, 2) + "?heartbeat=60") as connection, connection.channel() as channel:
        name = fresh("storm")
        channel.confirm_deliveries()
        channel.exchange.declare(name, exchange_type="direct", durable=True)
        channel.queue.declare(name, durable=True, arguments={"x-queue-type": "quorum"})
        channel.queue.bind(name, name, "k")
        for number in range(20):
            message = amqpstorm.Message.create(channel, f"{number}", {"message_id": str(number), "delivery_mode": 2})
            assert message.publish("k", exchange=name, mandatory=True)
        got: list[str] = []

        def take(message: Any) -> None:
            got.append(message.body)
            message.ack()
            if len(got) == 20:
                channel.stop_consuming()

        channel.basic.qos(5)
        channel.basic.consume(take, name)
        channel.start_consuming()
        assert got == [f"{number}" for number in range(20)]
        with pytest.raises(amqpstorm.AMQPChannelError) as refused:
            channel.queue.declare(name, durable=True, arguments={"x-queue-type": "quorum", "x-max-length": 1})
        assert refused.value.error_code == 406
