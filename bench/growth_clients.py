"""Clients for `bench/growth.py` that `amqpload` has no options for: many consumers, many connections, bindings."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from typing import Final

from pamqp import commands
from pamqp.base import Frame

from bench.amqp_pipeline import Pipeline, PipelineError, content, marshal

_METHOD: Final = 1
_WINDOW: Final = 200
_DELIVER: Final = bytes((0, 60, 0, 60))
_ACK: Final = bytes((0, 60, 0, 80))
_CLOSE_OK: Final = bytes((0, 10, 0, 51))
_CHANNEL_CLOSE_OK: Final = bytes((0, 20, 0, 41))
_CONSUME_OK: Final = bytes((0, 60, 0, 21))


def call_all(client: Pipeline, methods: Iterable[Frame], answer: type[Frame]) -> int:
    """Call many methods of the same kind, spread over channels with one under way on each; how many they were."""
    client.open_channels(_WINDOW)
    waiting = iter(methods)
    count = 0
    while chunk := list(islice(waiting, _WINDOW)):
        client.send(b"".join(marshal(method, channel) for channel, method in enumerate(chunk, 1)))
        for _ in chunk:
            client.expect(answer)
        count += len(chunk)
    return count


class Sink:
    """Consumes from queues without acknowledgements, on a connection of its own, and counts what comes."""

    def __init__(self, uri: str, queues: Sequence[str]) -> None:
        """Returns when all consumers are there."""
        self._client = Pipeline(uri)
        self._client.open_channels(min(_WINDOW, len(queues)))
        self._arrived = threading.Condition()
        self._count = 0
        self._failure: Exception | None = None
        self._frames = self._client.frames()
        # On many channels: on one, each would wait for the one before.
        for start in range(0, len(queues), _WINDOW):
            part = queues[start : start + _WINDOW]
            consumes = (commands.Basic.Consume(queue=queue, no_ack=True) for queue in part)
            self._client.send(b"".join(marshal(method, channel) for channel, method in enumerate(consumes, 1)))
            for _ in part:
                self._await(_CONSUME_OK)
        self._thread = threading.Thread(target=self._count_deliveries, daemon=True)
        self._thread.start()

    def _await(self, method: bytes) -> None:
        for kind, _, payload in self._frames:
            if kind == _METHOD:
                if payload[:4] == method:
                    return
                raise PipelineError(f"method {payload[:4].hex()} where {method.hex()} was due")

    def _count_deliveries(self) -> None:
        try:
            for kind, _, payload in self._frames:
                if kind == _METHOD and payload[:4] == _CLOSE_OK:
                    return
                if kind == _METHOD and payload[:4] == _DELIVER:
                    with self._arrived:
                        self._count += 1
                        self._arrived.notify_all()
        except (OSError, PipelineError) as failure:
            with self._arrived:
                self._failure = failure
                self._arrived.notify_all()

    def wait_for(self, count: int) -> None:
        """Until so many have come since the last time."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: self._count >= count or self._failure is not None, 180):
                raise PipelineError(f"{self._count} of {count} messages have come in 180 s")
            if self._count < count:
                raise PipelineError(f"{self._count} of {count} messages have come: {self._failure!r}")
            self._count -= count

    def __enter__(self) -> "Sink":
        return self

    def __exit__(self, *_: object) -> None:
        # The answer to it ends the thread: nobody may read from a socket that is closed already.
        close = commands.Connection.Close(reply_code=200, reply_text="done", class_id=0, method_id=0)
        self._client.send(marshal(close, 0))
        self._thread.join()
        self._client.__exit__()


def take(uri: str, queue: str, count: int) -> None:
    """Consume so many messages of a queue, each acknowledged; some more come back."""
    with Pipeline(uri) as client:
        client.open_channels()
        client.call(commands.Basic.Qos(prefetch_count=4 * _WINDOW), commands.Basic.QosOk)
        client.call(commands.Basic.Consume(queue=queue), commands.Basic.ConsumeOk)
        taken = 0
        for kind, _, payload in client.frames():
            taken += kind == _METHOD and payload[:4] == _DELIVER
            if kind == _METHOD and taken % _WINDOW == 0:
                client.send(marshal(commands.Basic.Ack(delivery_tag=taken, multiple=True), 1))
            if taken == count:
                break
        # Only what went before this answer is sure to be acknowledged.
        client.send(marshal(commands.Channel.Close(reply_code=200, reply_text="done", class_id=0, method_id=0), 1))
        for kind, _, payload in client.frames():
            if kind == _METHOD and payload[:4] == _CHANNEL_CLOSE_OK:
                return


class ManyConnections:
    """Connections that stay open, spread over nodes."""

    def __init__(self, uris: Sequence[str]) -> None:
        self._uris = uris
        self._clients: list[Pipeline] = []
        self._open = ExitStack()

    def grow(self, count: int) -> None:
        """Open connections until they are so many."""
        missing = range(len(self._clients), count)
        with ThreadPoolExecutor(8) as pool:
            for client in pool.map(lambda place: Pipeline(self._uris[place % len(self._uris)]), missing):
                self._clients.append(self._open.enter_context(client))

    def prepare_to_publish(self, first: int) -> None:
        """A channel with confirms on each, from the `first` on."""
        for client in self._clients[first:]:
            client.send(marshal(commands.Channel.Open(), 1) + marshal(commands.Confirm.Select(), 1))
        for client in self._clients[first:]:
            client.expect(commands.Channel.OpenOk)
            client.expect(commands.Confirm.SelectOk)

    def publish_rounds(self, rounds: int, message: Callable[[int], bytes]) -> int:
        """In each round every connection publishes a message, and gets its confirm before the next; how many."""
        for _ in range(rounds):
            for place, client in enumerate(self._clients):
                client.send(message(place))
            for client in self._clients:
                for kind, _, payload in client.frames():
                    if kind != _METHOD or payload[:4] != _ACK:
                        raise PipelineError(f"not a confirm: {payload[:4].hex()}")
                    break
        return rounds * len(self._clients)

    def __enter__(self) -> "ManyConnections":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


def keyed(exchange: str, keys: Iterable[str], body: bytes) -> Iterator[bytes]:
    """Messages to an exchange with these routing keys."""
    rest = content(body)
    return (marshal(commands.Basic.Publish(exchange=exchange, routing_key=key), 1) + rest for key in keys)
