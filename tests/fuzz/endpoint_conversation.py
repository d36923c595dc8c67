"""One client of the endpoint and what it should see: what it says is cut anywhere, and what comes is held against the
model, in its order, with nothing else between."""

import random
from collections.abc import Callable
from typing import Any, Final

from pamqp import commands, frame
from pamqp.commands import Basic, Connection, Exchange
from pamqp.header import ContentHeader

from tests.fuzz import endpoint_faults as faults
from tests.fuzz.endpoint_model import Channel, Due, Endpoint, Fault, Message
from tests.node.conftest import Client, Delivery, World

CHANNELS: Final = (1, 2, 3)
QUEUES: Final = ("q1", "q2", "q3")
LIMITED: Final = "limited"
_SPARE_ROWS: Final = 16
"""Runs of deliveries that a channel may keep beyond twice what is outstanding."""


class Conversation:
    """A client, the model of what it may expect, and a witness: another client that must not notice anything."""

    def __init__(self, seed: int, cuts: tuple[int, ...] = (0, 0, 1, 3)) -> None:
        """`cuts`: in how many places what is sent is cut, one of these numbers."""
        self.chance = random.Random(seed)
        self.cuts = cuts
        self.world = World()
        self.model = Endpoint()
        self.frame_max = 4096 if self.chance.random() < 0.3 else 131_072
        self.state: dict[int, str] = {}
        self.failing: Channel | None = None
        self.told = ""
        self.rest: dict[int, tuple[Message, bool, list[bytes]]] = {}
        self.witness = self.world.client()
        self.witness.declare("witness")
        for queue in QUEUES:
            self.witness.declare(queue)
            self.model.declare(queue)
        self.witness.declare(LIMITED, arguments={"x-max-length": 3, "x-overflow": "reject-publish"})
        self.model.declare(LIMITED, 3)
        self.witness.call(1, Exchange.Declare(exchange="x", exchange_type="direct", durable=True))
        self.witness.call(1, Exchange.Declare(exchange="f", exchange_type="fanout", durable=True))
        for _ in range(2):
            message = self.model.new_message("", LIMITED, 5)
            self.witness.publish(1, LIMITED, message.body, message_id=message.name)
            self.model.enqueue(message, [self.model.queues[LIMITED]])
        self.connect()

    def connect(self) -> None:
        self.client: Client = self.world.login()
        (tune,) = self.client.take()
        self.client.send(0, Connection.TuneOk(tune.channel_max, self.frame_max, 0), Connection.Open())
        (opened,) = self.client.take()
        assert isinstance(opened, Connection.OpenOk), opened
        self.state = dict.fromkeys(CHANNELS, "closed")
        self.rest = {}
        for number in self.chance.sample(CHANNELS, 2):
            self.open(number)

    def say(self, octets: bytes) -> None:
        """Send it in pieces."""
        cuts = sorted(self.chance.randrange(len(octets) + 1) for _ in range(self.chance.choice(self.cuts)))
        for start, stop in zip([0, *cuts], [*cuts, len(octets)], strict=True):
            self.client.connection.receive(octets[start:stop])
            if self.chance.random() < 0.3:
                self.world.settle()
        self.world.settle()

    def expect(self, octets: bytes, *due: tuple[int, Due]) -> None:
        """Say it; this is due, each on its channel in this order, and whatever the model makes of the rest."""
        self.model.look()
        self.say(octets)
        waiting: dict[int, list[Due]] = {}
        for number, each in due:
            waiting.setdefault(number, []).append(each)
        heard, self.client.received = self.client.received, []
        place = 0
        while place < len(heard):
            number, what = heard[place]
            place += 1
            if isinstance(what, (Basic.Deliver, Basic.GetOk, Basic.Return)):
                what, place = self.content(heard, place, number, what)
            self.hear(number, what, waiting.get(number, []))
        missing = {number: each for number, each in waiting.items() if each}
        assert not missing, f"not answered: {missing}"
        self.model.nothing_is_missing()

    def content(self, heard: list[tuple[int, Any]], place: int, number: int, method: Any) -> tuple[Delivery, int]:
        """The content that follows on this channel, in frames of the size agreed."""
        channel, head = heard[place]
        assert channel == number and isinstance(head, ContentHeader), heard[place]
        place += 1
        body = b""
        while len(body) < head.body_size:
            channel, piece = heard[place]
            assert channel == number and 0 < len(piece.value) <= self.frame_max - 8, (channel, len(piece.value))
            body += piece.value
            place += 1
        assert len(body) == head.body_size
        return Delivery(method, head.properties, body), place

    def hear(self, number: int, what: Any, due: list[Due]) -> None:
        method = what.method if isinstance(what, Delivery) else what
        channel = self.model.channels.get(number)
        if channel is None and due and due[0][0] is commands.Channel.Close:
            channel = self.failing
        if isinstance(method, Basic.Deliver):
            assert channel is not None, f"a delivery on channel {number}, which is not open"
            self.model.delivered(channel, what)
        elif isinstance(method, (Basic.Ack, Basic.Nack)):
            assert channel is not None and channel.confirms, f"a confirm on channel {number}"
            self.model.confirmed(channel, method.delivery_tag, method.multiple, isinstance(method, Basic.Nack))
        elif isinstance(method, Basic.Cancel):
            self.model.cancels.remove((number, str(method.consumer_tag)))
        else:
            came = f"{method.name} {getattr(method, 'reply_text', '')}"
            assert due, f"not due on channel {number}: {came}"
            kind, values = due.pop(0)
            assert isinstance(method, kind), f"due: {kind.__name__} {values}, came {came}"
            self.compare(channel, what, values)

    def compare(self, channel: Channel | None, what: Any, values: dict[str, Any]) -> None:
        method = what.method if isinstance(what, Delivery) else what
        for name, value in values.items():
            if name == "message":
                value.check(what)
                if channel is not None and channel.unreturned:
                    channel.unreturned.pop(0)
            elif name == "from":
                assert channel is not None
                queue, no_ack = value
                self.model.got(channel, queue, no_ack, what)
            elif name == "then":
                value()
            elif name == "ids":
                assert value in (None, (method.class_id, method.method_id)), (method, value)
            else:
                found = getattr(method, name)
                assert found == value, (name, found, values, getattr(method, "reply_text", None))

    def open(self, number: int) -> None:
        self.model.channels[number] = Channel(number)
        self.state[number] = "open"
        self.expect(frame.marshal(commands.Channel.Open(), number), (number, (commands.Channel.OpenOk, {})))
        mode = self.chance.random()
        if mode < 0.4:
            self.confirm_mode(number)
        elif mode < 0.6:
            self.transaction_mode(number)

    def in_mode(self, number: int, method: Any, change: Callable[[Channel], Any], answer: Any) -> None:
        octets = frame.marshal(method, number)
        try:
            due = change(self.model.channels[number]) or [(answer, {})]
        except Fault as fault:
            self.fails(number, octets, fault)
        else:
            self.expect(octets, *[(number, each) for each in due])

    def confirm_mode(self, number: int) -> None:
        self.in_mode(number, commands.Confirm.Select(), self.model.select_confirms, commands.Confirm.SelectOk)

    def transaction_mode(self, number: int) -> None:
        if not self.model.channels[number].confirms or self.chance.random() < 0.3:
            self.in_mode(number, commands.Tx.Select(), self.model.select_transactions, commands.Tx.SelectOk)

    def some_of(self, pieces: list[bytes]) -> bytes:
        return b"".join(self.chance.sample(pieces, self.chance.choice([0, 1, 3])))

    def fails(self, number: int, octets: bytes, fault: Fault) -> None:
        """This ends the channel; what comes behind it there is ignored, and others go on."""
        self.failing = self.model.channels[number]
        self.model.end_channel(number)
        self.state[number] = "closing"
        values = {"reply_code": fault.code, "ids": fault.ids}
        due: list[tuple[int, Due]] = [(number, (commands.Channel.Close, values))]
        octets += self.some_of(faults.behind(number))
        others = [each for each in CHANNELS if self.state[each] == "open"]
        if others:
            octets += frame.marshal(Basic.Qos(prefetch_count=self.model.channels[others[0]].prefetch), others[0])
            due.append((others[0], (Basic.QosOk, {})))
        self.expect(octets, *due)

    def gone(self) -> None:
        """The connection is over, and the next one begins."""
        assert self.client.closed
        self.client.lose()
        assert len(self.world.broker.connections) == 1, "the broker keeps a connection that is over"
        self.connect()

    def nothing_is_kept(self) -> None:
        """The broker keeps what the model says is outstanding, and little else."""
        connection, broker = self.client.connection, self.world.broker
        assert connection.exclusive_queues == {}, "exclusive queues that are gone are kept"
        rows = 0
        for number, channel in self.model.channels.items():
            kept = connection.channels[number]
            tags = kept.unacknowledged
            assert tags.count == len(channel.held), f"{tags.count} outstanding, {len(channel.held)} were not settled"
            most = 2 * len(channel.held) + _SPARE_ROWS
            assert len(tags._runs) <= most, f"{len(tags._runs)} runs for {len(channel.held)} deliveries"
            assert set(kept.consumers) == set(channel.consumers), "consumers that are gone are kept"
            most = 2 * len(self.model.queues)
            assert len(kept.get_holders) <= most, f"{len(kept.get_holders)} holders of basic.get"
            rows += len(channel.held) + len(kept.consumers) + len(kept.get_holders)
        sessions = [local.shard._state.sessions for local in self.world.cluster.shards.values()]
        holders = sum(len(holders) for session in sessions for holders in session.values())
        assert holders <= rows, f"{holders} holders in the shards, {rows} here"
        assert len(broker.consumers.by_id) == sum(len(channel.consumers) for channel in self.model.channels.values())

    def ping(self) -> None:
        """Another client is served."""
        body = self.chance.randbytes(8)
        self.witness.publish(1, "witness", body)
        got = self.witness.get("witness")
        assert isinstance(got, Delivery) and got.body == body, "another client is not served"

    def end(self) -> None:
        """Another client finds all that must be there, and the broker holds nothing of this one."""
        self.model.end_connection()
        self.client.lose()
        assert len(self.world.broker.connections) == 1
        assert self.world.broker.open_transactions.size_bytes == 0, "transactions that are over count still"
        for queue in self.model.queues.values():
            due = queue.line
            got = []
            while isinstance(delivery := self.witness.get(queue.name), Delivery):
                got.append(delivery)
            names = [delivery.properties.message_id for delivery in got]
            assert sorted(names) == sorted(message.name for message in due), (queue.name, names, [m.name for m in due])
            by_name = {message.name: message for message in due}
            for delivery in got:
                by_name[delivery.properties.message_id].check(delivery)
            assert not queue.ordered or names == [message.name for message in due], (queue.name, names)
        self.ping()
