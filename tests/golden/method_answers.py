"""Short conversations whose answers RabbitMQ's documents leave open, or that it gives in an order of its own.

    python -m tests.golden.method_answers PORT            what a broker answers, on standard output
    python -m tests.golden.method_answers PORT --write    the same, into the recording that our answers are held against

A port of 127.0.0.1, user guest. Three more users take part, each with the password of its name and these permissions in
the vhost /, to be made by hand in RabbitMQ (`rabbitmqctl add_user`, `set_permissions`): see `USERS`.
"""

from __future__ import annotations

import re
import socket
import struct
import time
from pathlib import Path
from typing import Any, Final

from pamqp import commands
from pamqp import frame as frames
from pamqp.base import Frame
from pamqp.commands import Basic, Exchange, Queue

from tests.golden.bad_values import publish
from tests.golden.one_answer_a_line import keep_what_is_asked_for
from tests.integration.amqp_socket import login_octets, method_frame

RECORDING: Final = Path(__file__).parent / "method-answers-rabbitmq-3.10.8.json"
SINCE_4: Final = Path(__file__).parent / "method-answers-rabbitmq-4.3.6.json"
"""What 4.3.6 answers to those conversations in which it does as we do, and 3.10.8 did not."""

USERS: Final[dict[str, tuple[str, str, str]]] = {
    "nobody": ("", "", ""),
    "reader": ("", "", "^readable$"),
    "writer": ("", ".*", ""),
}
"""User -> what it may configure, write and read."""

QUEUES: Final = ("q", "readable", "secret")
REPLIES: Final = "amq.rabbitmq.reply-to"
QUIET_S: Final = 0.4
"""No more deliveries are awaited once none has come for so long."""
PATIENCE_S: Final = 60.0


class Fill:
    """So many messages for a queue, stored by another client."""

    def __init__(self, queue: str, count: int) -> None:
        self.queue = queue
        self.count = count


class Deliveries:
    """How many messages have come to the user since the last answer."""


DELIVERIES: Final = Deliveries()

Step = Frame | Fill | Deliveries | bytes | tuple[str, Any]
"""What guest does, or the user in front. A method is answered; octets are sent and get no answer of their own."""


def durable(queue: str = "q", **arguments: Any) -> Frame:
    """queue.declare."""
    return Queue.Declare(queue=queue, durable=True, arguments={k.replace("_", "-"): v for k, v in arguments.items()})


QUORUM: Final[dict[str, Any]] = {"x_queue_type": "quorum"}
SINGLE: Final[dict[str, Any]] = {"x_single_active_consumer": True}


def replies(tag: str, no_ack: bool = True) -> Frame:
    """basic.consume of direct replies."""
    return Basic.Consume(queue=REPLIES, consumer_tag=tag, no_ack=no_ack)


def consume(tag: str, queue: str = "q", no_ack: bool = False) -> Frame:
    """basic.consume."""
    return Basic.Consume(queue=queue, consumer_tag=tag, no_ack=no_ack)


def qos(count: int, for_all: bool) -> Frame:
    """basic.qos."""
    return Basic.Qos(prefetch_count=count, global_=for_all)


def as_user(user: str, *methods: Frame) -> list[Step]:
    """These methods, each by that user."""
    return [(user, method) for method in methods]


SCENES: Final[dict[str, list[Step]]] = {
    "get: single active consumer, quorum": [durable(**QUORUM, **SINGLE), Fill("q", 1), Basic.Get(queue="q")],
    "get: single active consumer, quorum, empty": [durable(**QUORUM, **SINGLE), Basic.Get(queue="q", no_ack=True)],
    "get: single active consumer, classic": [durable(**SINGLE), Fill("q", 1), Basic.Get(queue="q", no_ack=True)],
    "get: single active consumer, transient": [
        Queue.Declare(queue="q", exclusive=True, arguments={"x-single-active-consumer": True}),
        Basic.Get(queue="q", no_ack=True),
    ],
    "get: single active consumer, without permission": [
        durable(**QUORUM, **SINGLE), *as_user("nobody", Basic.Get(queue="q")),
    ],
    "qos: a limit of each lifts that of all": [
        durable(), Fill("q", 6), qos(2, True), consume("a"), DELIVERIES, qos(5, False), DELIVERIES,
    ],
    "qos: a limit of 0 for each lifts that of all": [
        durable(), Fill("q", 6), qos(2, True), consume("a"), DELIVERIES, qos(0, False), DELIVERIES,
    ],
    "qos: consumers keep the limit that they began with": [
        durable(), Fill("q", 9), qos(2, False), qos(3, True), consume("a"), DELIVERIES, consume("b"), DELIVERIES,
        qos(4, False), DELIVERIES, consume("c"), DELIVERIES,
    ],
    "qos: all, then each": [
        durable(), Fill("q", 9), qos(3, True), qos(2, False), consume("a"), DELIVERIES, consume("b"), DELIVERIES,
    ],
    "qos: each, then all": [
        durable(), Fill("q", 9), qos(2, False), qos(3, True), consume("a"), DELIVERIES, consume("b"), DELIVERIES,
    ],
    "qos: all, none for all": [
        durable(), Fill("q", 6), qos(2, True), consume("a"), DELIVERIES, qos(0, True), DELIVERIES,
    ],
    "qos: all, then a quorum queue": [durable(**QUORUM), qos(2, True), consume("a")],
    "qos: all, lifted, then a quorum queue": [durable(**QUORUM), qos(2, True), qos(3, False), consume("a")],
    "replies: twice with one tag": [replies("t"), replies("t")],
    "replies: twice": [replies("t"), replies("u")],
    "replies: twice, the second acknowledging": [replies("t"), replies("t", no_ack=False)],
    "replies: a queue with their tag, and which is cancelled first": [
        durable(), replies("t"), consume("t", no_ack=True), Basic.Cancel(consumer_tag="t"), Fill("q", 1), DELIVERIES,
        replies("u"), Basic.Cancel(consumer_tag="t"), Fill("q", 1), DELIVERIES, consume("t", no_ack=True), DELIVERIES,
    ],
    "replies: with the tag of a queue": [durable(), consume("t"), replies("t")],
    "replies: with the tag of a queue, acknowledging": [durable(), consume("t"), replies("t", no_ack=False)],
    "order: reserved name of a queue": as_user(
        "nobody", Queue.Declare(queue="amq.x"), Queue.Declare(queue="amq.x", passive=True), Queue.Delete(queue="amq.x"),
    ),
    "order: a name by the server": as_user(
        "nobody", Queue.Declare(queue=""), Queue.Declare(queue="", durable=True, arguments={"x-queue-type": "quorum"}),
    ),
    "order: queues that are not there": as_user(
        "nobody", Queue.Declare(queue="none"), Queue.Declare(queue="none", passive=True), Queue.Delete(queue="none"),
        Queue.Purge(queue="none"), Basic.Get(queue="none"), consume("t", "none"),
    ),
    "order: exchange.declare": as_user(
        "nobody", Exchange.Declare(exchange="amq.x"), Exchange.Declare(exchange="x", exchange_type="x-no-such"),
        Exchange.Declare(exchange=""), Exchange.Declare(exchange="", exchange_type="x-no-such"),
        Exchange.Declare(exchange="amq.direct"), Exchange.Declare(exchange="", passive=True),
        Exchange.Declare(exchange="amq.x", exchange_type="x-no-such"),
    ),
    "order: exchange.delete": as_user(
        "nobody", Exchange.Delete(exchange="amq.direct"), Exchange.Delete(exchange="amq.x"),
        Exchange.Delete(exchange=""), Exchange.Delete(exchange="x"),
    ),
    "order: bindings of who may do nothing": as_user(
        "nobody", Queue.Bind(queue="none", exchange=""), Queue.Bind(queue="none", exchange="none"),
        Exchange.Bind(destination="", source="none"), Exchange.Bind(destination="none", source=""),
        Queue.Unbind(queue="none", exchange=""),
    ),
    "order: bindings of who may write": as_user(
        "writer", Queue.Bind(queue="none", exchange=""), Queue.Bind(queue="none", exchange="none"),
        Exchange.Bind(destination="", source="none"), Exchange.Bind(destination="none", source=""),
        Queue.Unbind(queue="none", exchange=""), Queue.Bind(queue="none", exchange="amq.topic"),
    ),
    "order: a tag again, for a queue that may not be read": [
        durable("readable"), durable("secret"),
        *as_user("reader", consume("t", "readable"), consume("u", "secret")),
        *as_user("reader", consume("t", "readable"), consume("t", "secret")),
    ],
    "order: a tag again, for a queue that is not there": [durable(), consume("t"), consume("t", "none")],
    "order: a tag again, for no queue": [
        durable("readable"), *as_user("reader", consume("t", "readable"), consume("t", "")),
    ],
    "order: a publish with more than one fault": [
        ("nobody", publish("q", expiration=b"x", exchange="none")), *as_user("nobody", qos(1, False)),
        ("writer", publish("q", expiration=b"x", exchange="none")), *as_user("writer", qos(1, False)),
        ("writer", publish("q", expiration=b"x")), *as_user("writer", qos(1, False)),
    ],
    "update-secret": [
        commands.Connection.UpdateSecret("no password at all", "because"), Queue.Declare(queue="q", exclusive=True),
    ],
}  # fmt: skip


class Wire:
    """One connection with channel 1 open, made again when the broker has closed it."""

    def __init__(self, port: int, user: str, quiet_s: float = QUIET_S) -> None:
        self._port = port
        self._quiet_s = quiet_s
        self._user = user
        self._socket: socket.socket | None = None
        self._buffer = b""
        self._deliveries = 0

    def send(self, octets: bytes) -> None:
        """Send octets."""
        if self._socket is None:
            self._deliveries, self._buffer = 0, b""
            self._socket = socket.create_connection(("127.0.0.1", self._port))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opening = login_octets(self._user, self._user) + method_frame(commands.Channel.Open(), 1)
            self._socket.sendall(opening)
            while not isinstance(got := self._next(PATIENCE_S), commands.Channel.OpenOk):
                assert isinstance(got, Frame), f"{self._user} does not get in: {got!r}"
        self._socket.sendall(octets)

    def call(self, method: Frame) -> Any:
        """Send a method; the answer's name, or what a close says."""
        self.send(method_frame(method, 0 if method.name.startswith("Connection") else 1))
        return self.answer()

    def answer(self) -> Any:
        """The next method but deliveries and confirms."""
        got = self._next(PATIENCE_S)
        if got is None or got is TIMED_OUT:
            self.close()
            return "hung up" if got is None else "no answer"
        if isinstance(got, commands.Channel.Close | commands.Connection.Close):
            kind = got.name.partition(".")[0].lower()
            if kind == "channel":
                self.send(method_frame(commands.Channel.CloseOk(), 1) + method_frame(commands.Channel.Open(), 1))
                while not isinstance(self._next(PATIENCE_S), commands.Channel.OpenOk):
                    pass
            else:
                self.close()
            text = re.sub(r"amq\.gen-[\w-]+", "amq.gen-*", got.reply_text or "")
            return [kind, got.reply_code, text, got.class_id, got.method_id]
        return got.name

    def deliveries(self) -> int:
        """How many have come, when no more do."""
        got = self._next(self._quiet_s)
        assert got is TIMED_OUT, got
        count, self._deliveries = self._deliveries, 0
        return count

    def close(self) -> None:
        """Hang up."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def confirmed(self, count: int) -> None:
        """Wait for so many confirms."""
        until_s = time.monotonic() + PATIENCE_S
        got = 0
        while got < count:
            answer = self._next(until_s - time.monotonic(), confirms=True)
            assert isinstance(answer, Basic.Ack), answer
            tag = int(answer.delivery_tag or 0)
            got = tag if answer.multiple else got + 1

    def _next(self, patience_s: float, confirms: bool = False) -> Any:
        """The next method but deliveries; None when the broker has hung up."""
        assert self._socket is not None
        self._socket.settimeout(max(0.001, patience_s))
        while True:
            if len(self._buffer) >= 7:
                size = struct.unpack(">I", self._buffer[3:7])[0] + 8
                if len(self._buffer) >= size:
                    data, self._buffer = self._buffer[:size], self._buffer[size:]
                    got = frames.unmarshal(data)[2] if data[0] == 1 else None
                    if isinstance(got, Basic.Deliver):
                        self._deliveries += 1
                    elif isinstance(got, Frame) and (confirms or not isinstance(got, Basic.Ack)):
                        return got
                    continue
            try:
                chunk = self._socket.recv(65536)
            except ConnectionError:
                return None
            except TimeoutError:
                return TIMED_OUT
            if not chunk:
                return None
            self._buffer += chunk


TIMED_OUT: Final = object()


def play(port: int, steps: list[Step], quiet_s: float = QUIET_S) -> list[Any]:
    """What a broker answers to a scene, step by step."""
    wires: dict[str, Wire] = {}
    helper = Wire(port, "guest")
    for queue in QUEUES:
        helper.call(Queue.Delete(queue=queue))
    answers: list[Any] = []
    for step in steps:
        user, deed = step if isinstance(step, tuple) else ("guest", step)
        wire = wires.setdefault(user, Wire(port, user, quiet_s))
        if isinstance(deed, Fill):
            _fill(port, deed)
        elif isinstance(deed, Deliveries):
            answers.append(wire.deliveries())
        elif isinstance(deed, bytes):
            wire.send(deed)
        else:
            answers.append(wire.call(deed))
    for wire in wires.values():
        wire.close()
    for queue in QUEUES:
        helper.call(Queue.Delete(queue=queue))
    helper.close()
    return answers


def _fill(port: int, fill: Fill) -> None:
    wire = Wire(port, "guest")
    wire.call(commands.Confirm.Select())
    wire.send(publish(fill.queue) * fill.count)
    wire.confirmed(fill.count)
    wire.close()


def record(port: int) -> dict[str, list[Any]]:
    """All answers of a broker."""
    return {name: play(port, steps) for name, steps in SCENES.items()}


def main() -> None:
    """See the module's text."""
    keep_what_is_asked_for(record, RECORDING)


if __name__ == "__main__":
    main()
