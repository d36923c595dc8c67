"""What a broker answers AMQP clients about streams (RULES J1), recorded of RabbitMQ 4.3.6.

    python -m tests.golden.stream_answers PORT            what a broker answers, on standard output
    python -m tests.golden.stream_answers PORT --write    the same, into the recording that our answers are held against

A port of 127.0.0.1, user guest. Each scene begins without its queues and exchange.
"""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPChannelError, AMQPConnectionError, ChannelClosedByBroker, ConnectionClosedByBroker

from tests.golden.one_answer_a_line import keep_what_is_asked_for

RECORDING: Final = Path(__file__).parent / "stream-answers-rabbitmq-4.3.6.json"
STREAM: Final = {"x-queue-type": "stream"}
QUIET_S: Final = 0.5
"""No more deliveries are awaited once none has come for so long."""
PATIENCE_S: Final = 30.0
_PAST: Final = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
_FUTURE: Final = datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)


class Client:
    """Connections to one broker, opened as they are needed: a refusal may cost one."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connections: list[pika.BlockingConnection] = []

    def channel(self) -> BlockingChannel:
        """A channel of a new connection."""
        parameters = pika.ConnectionParameters("127.0.0.1", self._port, blocked_connection_timeout=PATIENCE_S)
        connection = pika.BlockingConnection(parameters)
        self._connections.append(connection)
        return connection.channel()

    def close(self) -> None:
        """Close them all."""
        for connection in self._connections:
            with contextlib.suppress(AMQPConnectionError):
                connection.close()

    def answer(self, action: Callable[[BlockingChannel], Any]) -> Any:
        """What an action comes to on a channel of its own: its result, or the code and text of a refusal."""
        return answer(self.channel(), action)


def answer(channel: BlockingChannel, action: Callable[[BlockingChannel], Any]) -> Any:
    """The same on this channel."""
    try:
        result = action(channel)
    except ChannelClosedByBroker as error:
        return ["channel", error.reply_code, error.reply_text]
    except ConnectionClosedByBroker as error:
        return ["connection", error.reply_code, error.reply_text]
    except (AMQPChannelError, AMQPConnectionError) as error:
        return [type(error).__name__]
    return result


def declare(channel: BlockingChannel, queue: str = "s", **arguments: Any) -> Any:
    """queue.declare of a stream."""
    named = {key.replace("_", "-"): value for key, value in arguments.items()}
    done = channel.queue_declare(queue, durable=True, arguments={**STREAM, **named}).method
    return [done.message_count, done.consumer_count]


def fill(channel: BlockingChannel, count: int, first: int = 0, queue: str = "s") -> None:
    """Publish so many, each confirmed before the next."""
    channel.confirm_delivery()
    for number in range(first, first + count):
        channel.basic_publish("", queue, str(number).encode())


class Consumed:
    """What comes to consumers of one channel."""

    def __init__(self, channel: BlockingChannel, prefetch: int) -> None:
        self.channel = channel
        self.got: list[tuple[str, int, int | None, str, bool]] = []
        channel.basic_qos(prefetch_count=prefetch)

    def consume(self, tag: str = "c", queue: str = "s", **arguments: Any) -> None:
        """basic.consume."""
        named = {key.replace("_", "-"): value for key, value in arguments.items()}
        self.channel.basic_consume(queue, self._on_message, consumer_tag=tag, arguments=named)

    def _on_message(self, channel: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
        offset = (properties.headers or {}).get("x-stream-offset")
        self.got.append((method.consumer_tag, method.delivery_tag, offset, body.decode(), method.redelivered))

    def take(self) -> list[Any]:
        """[offset, body] of what has come since the last time."""
        before = -1
        until = time.monotonic() + PATIENCE_S
        while len(self.got) != before and time.monotonic() < until:
            before = len(self.got)
            self.channel.connection.process_data_events(QUIET_S)
        taken, self.got = self.got, []
        return [[offset, body] for _, _, offset, body, _ in taken]


SCENES: Final[dict[str, Callable[[Client], Any]]] = {}


def scene(play: Callable[[Client], Any]) -> Callable[[Client], Any]:
    """A conversation, under the name of the function."""
    SCENES[play.__name__] = play
    return play


@scene
def declared_again(client: Client) -> Any:
    """The same is the same; other arguments are not."""
    return [
        client.answer(declare),
        client.answer(declare),
        client.answer(lambda channel: declare(channel, x_max_age="1h")),
        client.answer(lambda channel: channel.queue_declare("s", durable=True).method.queue),
        client.answer(lambda channel: channel.queue_declare("s", durable=True, arguments={"x-queue-type": "quorum"})),
    ]


@scene
def flags(client: Client) -> Any:
    """A stream is durable, nobody's own, and stays."""
    return [
        client.answer(lambda channel: channel.queue_declare("s", arguments=STREAM)),
        client.answer(lambda channel: channel.queue_declare("s", durable=True, auto_delete=True, arguments=STREAM)),
        client.answer(lambda channel: channel.queue_declare("s", durable=True, exclusive=True, arguments=STREAM)),
        client.answer(lambda channel: channel.queue_declare("", durable=True, arguments=STREAM)),
    ]


_REFUSED: Final[list[dict[str, Any]]] = [
    {"x_max_age": "1x"}, {"x_max_age": ""}, {"x_max_age": "0s"}, {"x_max_age": "h"}, {"x_max_age": 5},
    {"x_max_age": "-1h"}, {"x_max_age": "1.5h"}, {"x_max_length_bytes": -1}, {"x_max_length_bytes": "1"},
    {"x_stream_max_segment_size_bytes": -1}, {"x_stream_max_segment_size_bytes": 3_000_000_001},
    {"x_stream_filter_size_bytes": 15}, {"x_stream_filter_size_bytes": 256}, {"x_initial_cluster_size": 0},
    {"x_queue_leader_locator": "nowhere"},
    {"x_message_ttl": 1000}, {"x_expires": 1000}, {"x_max_length": 5}, {"x_overflow": "drop-head"},
    {"x_dead_letter_exchange": ""}, {"x_dead_letter_routing_key": "k"}, {"x_max_priority": 5},
    {"x_single_active_consumer": True}, {"x_delivery_limit": 5}, {"x_queue_mode": "lazy"}, {"x_queue_version": 2},
]


@scene
def arguments_refused(client: Client) -> Any:
    """Bad values, and what is not for streams."""
    return [[each, client.answer(partial(declare, **each))] for each in _REFUSED]


_TAKEN: Final[list[dict[str, Any]]] = [
    {"x_max_age": "1Y"}, {"x_max_age": "2M"}, {"x_max_age": "7D"}, {"x_max_age": "10h"}, {"x_max_age": "1m"},
    {"x_max_age": "30s"}, {"x_max_length_bytes": 1_000_000}, {"x_stream_max_segment_size_bytes": 1_000_000},
    {"x_stream_filter_size_bytes": 16}, {"x_initial_cluster_size": 1}, {"x_queue_leader_locator": "balanced"},
]


@scene
def arguments_taken(client: Client) -> Any:
    """What streams take."""
    found = []
    for each in _TAKEN:
        found.append([each, client.answer(partial(declare, **each))])
        client.answer(lambda channel: channel.queue_delete("s").method.message_count)
    return found


@scene
def consumers_refused(client: Client) -> Any:
    """Consumers need a prefetch and have to acknowledge, and begin somewhere."""
    client.answer(declare)

    def consume(prefetch: int = 10, auto_ack: bool = False, **arguments: Any) -> Any:
        def action(channel: BlockingChannel) -> Any:
            if prefetch:
                channel.basic_qos(prefetch_count=prefetch)
            named = {key.replace("_", "-"): value for key, value in arguments.items()}
            return channel.basic_consume("s", print, consumer_tag="c", auto_ack=auto_ack, arguments=named)

        return client.answer(action)

    return [
        consume(prefetch=0), consume(auto_ack=True), consume(prefetch=0, auto_ack=True),
        consume(x_stream_offset="here"), consume(x_stream_offset=""), consume(x_stream_offset="5"),
        consume(x_stream_offset="1x"), consume(prefetch=0, x_stream_offset="here"),
        consume(x_priority=1), consume(x_priority="one"), consume(x_cancel_on_ha_failover=True),
        consume(x_consumer_timeout=1), consume(x_stream_offset="1h"), consume(x_stream_filter=["a"]),
        consume(x_stream_match_unfiltered=True), consume(x_stream_filter="a", x_stream_match_unfiltered=True),
    ]


@scene
def not_for_streams(client: Client) -> Any:
    """basic.get and queue.purge."""
    client.answer(declare)
    client.answer(lambda channel: fill(channel, 1))
    return [
        client.answer(lambda channel: channel.basic_get("s")),
        client.answer(lambda channel: channel.basic_get("s", auto_ack=True)),
        client.answer(lambda channel: channel.queue_purge("s")),
    ]


@scene
def deleted(client: Client) -> Any:
    """Whether it is empty and unused counts for nothing; a consumer is cancelled."""
    channel = client.channel()
    declare(channel)
    fill(channel, 3)
    consumed = Consumed(client.channel(), 10)
    consumed.consume()
    cancelled: list[str] = []
    consumed.channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    count = client.answer(lambda channel: channel.queue_delete("s", if_unused=True, if_empty=True).method.message_count)
    consumed.take()
    return [count, cancelled, client.answer(lambda channel: channel.queue_declare("s", passive=True))]


@scene
def counted(client: Client) -> Any:
    """The messages, once the broker has counted them, and no consumers."""
    channel = client.channel()
    declare(channel)
    fill(channel, 5)
    consumed = Consumed(client.channel(), 10)
    consumed.consume(x_stream_offset="first")
    until = time.monotonic() + PATIENCE_S
    while True:
        passive = channel.queue_declare("s", passive=True).method
        if passive.message_count == 5 or time.monotonic() > until:
            return [passive.message_count, passive.consumer_count, declare(channel)]
        time.sleep(0.25)  # RabbitMQ counts a stream's messages now and then; bounded by PATIENCE_S.


@scene
def offsets(client: Client) -> Any:
    """Where consumers begin: ten messages are there, two come later."""
    channel = client.channel()
    declare(channel)
    fill(channel, 10)
    starts: dict[str, Any] = {
        "none": None, "first": "first", "last": "last", "next": "next", "0": 0, "4": 4, "9": 9, "10": 10, "11": 11,
        "past": _PAST, "future": _FUTURE, "an hour": "1h",
    }
    consumers = {}
    for name, start in starts.items():
        consumers[name] = Consumed(client.channel(), 100)
        consumers[name].consume(**({} if start is None else {"x_stream_offset": start}))
    before = {name: each.take() for name, each in consumers.items()}
    fill(channel, 2, 10)
    return {name: [before[name], each.take()] for name, each in consumers.items()}


@scene
def offsets_of_none(client: Client) -> Any:
    """The same of a stream without messages: three come later."""
    channel = client.channel()
    declare(channel)
    starts: dict[str, Any] = {"first": "first", "last": "last", "next": "next", "0": 0, "past": _PAST}
    consumers = {}
    for name, start in starts.items():
        consumers[name] = Consumed(client.channel(), 100)
        consumers[name].consume(x_stream_offset=start)
    fill(channel, 3)
    return {name: each.take() for name, each in consumers.items()}


@scene
def credit(client: Client) -> Any:
    """Whatever is said of a message, it is not given again, and one more may come."""
    channel = client.channel()
    declare(channel)
    fill(channel, 12)
    consumed = Consumed(client.channel(), 3)
    consumed.consume(x_stream_offset="first")
    found = [consumed.take()]
    consumed.channel.basic_ack(1)
    found.append(consumed.take())
    consumed.channel.basic_nack(2, requeue=True)
    found.append(consumed.take())
    consumed.channel.basic_reject(3, requeue=False)
    found.append(consumed.take())
    consumed.channel.basic_ack(6, multiple=True)
    found.append(consumed.take())
    return found


@scene
def several(client: Client) -> Any:
    """Each consumer has its own place, also on one channel, also if it is to be the only one."""
    channel = client.channel()
    declare(channel)
    fill(channel, 4)
    consumed = Consumed(client.channel(), 10)
    consumed.channel.basic_consume(
        "s", consumed._on_message, consumer_tag="a", exclusive=True, arguments={"x-stream-offset": "first"}
    )
    consumed.consume("b", x_stream_offset=2)
    other = Consumed(client.channel(), 10)
    other.consume("c", x_stream_offset="first")
    until = time.monotonic() + PATIENCE_S
    while len(consumed.got) < 6 and time.monotonic() < until:
        consumed.channel.connection.process_data_events(QUIET_S)
    got = sorted([tag, offset, body] for tag, _, offset, body, _ in consumed.got)
    return [got, other.take()]


@scene
def again(client: Client) -> Any:
    """A consumer that comes back begins where it says; nothing is redelivered."""
    channel = client.channel()
    declare(channel)
    fill(channel, 5)
    one = Consumed(client.channel(), 10)
    one.consume(x_stream_offset="first")
    first = one.take()
    one.channel.connection.close()
    other = Consumed(client.channel(), 10)
    other.consume(x_stream_offset=3)
    until = time.monotonic() + PATIENCE_S
    while len(other.got) < 2 and time.monotonic() < until:
        other.channel.connection.process_data_events(QUIET_S)
    return [first, [[offset, body, redelivered] for _, _, offset, body, redelivered in other.got]]


@scene
def fanned_out(client: Client) -> Any:
    """A stream and a queue behind one exchange; what the message brings comes along."""
    channel = client.channel()
    channel.exchange_declare("x", "fanout")
    declare(channel)
    channel.queue_declare("q", durable=True, arguments={"x-queue-type": "quorum"})
    for queue in ("s", "q"):
        channel.queue_bind(queue, "x")
    channel.confirm_delivery()
    properties = pika.BasicProperties(
        headers={"a": "b", "n": 5}, content_type="text/plain", message_id="m", expiration="1", priority=3,
        delivery_mode=2, correlation_id="c", type="t", app_id="p", timestamp=1_700_000_000,
    )
    channel.basic_publish("x", "key", b"body", properties, mandatory=True)
    got: list[Any] = []

    def on_message(channel: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
        plain = {name: value for name, value in sorted(vars(properties).items()) if value is not None}
        got.append([method.exchange, method.routing_key, method.redelivered, plain, body.decode()])

    reading = client.channel()
    reading.basic_qos(prefetch_count=5)
    reading.basic_consume("s", on_message, arguments={"x-stream-offset": "first"})
    until = time.monotonic() + PATIENCE_S
    while not got and time.monotonic() < until:
        reading.connection.process_data_events(QUIET_S)
    return got


@scene
def in_a_queue_beside_it(client: Client) -> Any:
    """What comes to the queue behind the same exchange, once; and the stream has it still."""
    channel = client.channel()
    channel.exchange_declare("x", "fanout")
    declare(channel)
    channel.queue_declare("q", durable=True, arguments={"x-queue-type": "quorum"})
    for queue in ("s", "q"):
        channel.queue_bind(queue, "x")
    channel.confirm_delivery()
    for number in range(2):
        headers = {"number": number}
        channel.basic_publish("x", "key", str(number).encode(), pika.BasicProperties(headers=headers), mandatory=True)
    got: list[Any] = []
    for _ in range(3):
        method, properties, body = channel.basic_get("q", auto_ack=True)
        if method is None:
            got.append(None)
        else:
            got.append([method.exchange, method.routing_key, method.redelivered, properties.headers, body.decode()])
    return [got, _numbers(client, lambda found: len(found) == 2)]


@scene
def from_a_time(client: Client) -> Any:
    """What was published seconds before is not given, what came seconds after is."""
    channel = client.channel()
    declare(channel)
    fill(channel, 3)
    time.sleep(2.5)
    between = datetime.datetime.now(datetime.UTC)
    time.sleep(2.5)
    fill(channel, 3, 3)
    consumed = Consumed(client.channel(), 10)
    consumed.consume(x_stream_offset=between)
    return consumed.take()


_LARGE_BYTES: Final = 1000
_SEGMENT_BYTES: Final = 10_000


def _filled_with_large(channel: BlockingChannel, first: int, count: int) -> None:
    channel.confirm_delivery()
    for number in range(first, first + count):
        channel.basic_publish("", "s", str(number).encode().ljust(_LARGE_BYTES))


def _numbers(client: Client, is_awaited: Callable[[list[int]], bool]) -> list[int]:
    """The numbers that are the bodies of all that is there, once they are what is awaited, or were not for long."""
    until = time.monotonic() + PATIENCE_S
    while True:
        consumed = Consumed(client.channel(), 1000)
        consumed.consume(x_stream_offset="first")
        found = [int(body) for _, body in consumed.take()]
        consumed.channel.close()
        if is_awaited(found) or time.monotonic() > until:
            return found


def _is_left(found: list[int], last: int, first: int) -> bool:
    """Whether all up to the last is there, from one on that is not before ``first``."""
    return found == list(range(found[0] if found else 0, last + 1)) and found[0] >= first


@scene
def retained_by_size(client: Client) -> Any:
    """Whether the oldest have gone, the newest are there, none is missing between, and as much is there as is to be:
    within two of the small segments, of which RabbitMQ drops whole ones."""
    channel = client.channel()
    most = 50
    declare(channel, x_max_length_bytes=most * _LARGE_BYTES, x_stream_max_segment_size_bytes=_SEGMENT_BYTES)
    _filled_with_large(channel, 0, 200)
    two_segments = 2 * _SEGMENT_BYTES // _LARGE_BYTES
    left = _numbers(client, lambda found: _is_left(found, 199, 200 - most - two_segments))
    return [left[-1], left == list(range(left[0], 200)), abs(len(left) - most) <= two_segments]


@scene
def retained_by_age(client: Client) -> Any:
    """The same of an age: what was published long before has gone when more is published."""
    channel = client.channel()
    declare(channel, x_max_age="5s", x_stream_max_segment_size_bytes=_SEGMENT_BYTES)
    _filled_with_large(channel, 0, 50)
    time.sleep(6)
    _filled_with_large(channel, 50, 50)
    two_segments = 2 * _SEGMENT_BYTES // _LARGE_BYTES
    left = _numbers(client, lambda found: _is_left(found, 99, 50 - two_segments))
    return [left[-1], left == list(range(left[0], 100)), left[0] >= 50 - two_segments]


@scene
def cancelled(client: Client) -> Any:
    """After cancel-ok nothing more comes; what is still open can be acknowledged, and a new consumer begins anew."""
    channel = client.channel()
    declare(channel)
    fill(channel, 5)
    consumed = Consumed(client.channel(), 2)
    consumed.consume("a", x_stream_offset="first")
    first = consumed.take()
    consumed.channel.basic_cancel("a")
    consumed.channel.basic_ack(2, multiple=True)
    later = consumed.take()
    consumed.consume("b", x_stream_offset=1)
    return [first, later, consumed.take()]


def _clean(client: Client) -> Iterator[Any]:
    channel = client.channel()
    yield answer(channel, lambda channel: channel.exchange_delete("x"))
    for queue in ("s", "q"):
        yield answer(channel, partial(BlockingChannel.queue_delete, queue=queue))


def play(port: int, name: str) -> Any:
    """What a broker answers in one scene."""
    client = Client(port)
    try:
        list(_clean(client))
        return SCENES[name](client)
    finally:
        client.close()


def record(port: int) -> dict[str, Any]:
    """What a broker answers in all of them."""
    return {name: play(port, name) for name in SCENES}


def main() -> None:
    keep_what_is_asked_for(record, RECORDING)


if __name__ == "__main__":
    main()
