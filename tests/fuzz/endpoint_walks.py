"""Walks of a client through all that it may do and much that it may not, each made of one seed, held against the model.

What is sent is cut anywhere, contents of several channels go between each other, and what ends a channel or the
connection has more behind it. What must hold after every step: what was due has come, in its order, and nothing else;
no message is lost, doubled or out of order; another client is served; and in the end the broker holds nothing.
"""

from collections.abc import Callable
from typing import Any, Final

from pamqp import commands, frame
from pamqp.commands import Basic, Connection, Exchange, Queue
from pamqp.header import ContentHeader

from tests.fuzz import endpoint_faults as faults
from tests.fuzz.endpoint_conversation import CHANNELS, LIMITED, QUEUES, Conversation
from tests.fuzz.endpoint_model import ACK, DROP, FAIL, REQUEUE, Channel, Due, Fault, Message

_MOST_KEPT_BYTES: Final = 300_000
_LARGEST_BODY: Final = 134_217_728


class Walk(Conversation):
    """One client that does all that it may, and much that it may not."""

    def __init__(self, seed: int, cuts: tuple[int, ...] = (0, 0, 1, 3)) -> None:
        super().__init__(seed, cuts)
        self.actions: list[tuple[int, Callable[[int], None]]] = [
            (8, self.publish), (4, self.interleave), (4, self.begin_content), (4, self.get), (6, self.settle),
            (3, self.acknowledge_many), (4, self.consume), (2, self.cancel), (3, self.qos), (2, self.confirm_mode),
            (2, self.transaction_mode), (4, self.commit), (2, self.recover), (2, self.count), (1, self.purge),
            (1, self.delete_and_declare), (1, self.pass_by), (2, self.bind), (2, self.close_channel),
            (4, self.soft_fault), (1, self.hard_fault), (1, self.leave), (1, self.heartbeat),
        ]

    # -- publishing ------------------------------------------------------------------------

    def some_message(self, queue: str | None = None) -> tuple[Message, bool]:
        chance = self.chance
        exchange, key = chance.choice(
            [
                ("", "q1"), ("", "q2"), ("", "q3"), ("", LIMITED), ("", LIMITED), ("", "nowhere"), ("x", "k"),
                ("x", "none"), ("f", ""),
            ]
        )
        if queue is not None:
            exchange, key = "", queue
        most = max([len(each.line) for each in self.model.queues.values()])
        if most > self.model.LARGEST_LINE:
            exchange, key = "", "nowhere"
        size = chance.choice([0, 1, 5, 30, 30, 2047, 2048, 4088, 4089, 9000])
        return self.model.new_message(exchange, key, size), chance.random() < 0.3

    def frames(self, number: int, message: Message, mandatory: bool, **properties: Any) -> list[bytes]:
        publish = Basic.Publish(exchange=message.exchange, routing_key=message.key, mandatory=mandatory)
        properties.update(message_id=message.name, delivery_mode=2)
        head = ContentHeader(body_size=len(message.body), properties=Basic.Properties(**properties))
        parts = [frame.marshal(publish, number), frame.marshal(head, number)]
        left = message.body
        while left:
            size = self.chance.choice([1, 100, self.frame_max - 8, self.frame_max - 8])
            parts.append(faults.raw_frame(3, number, left[:size]))
            left = left[size:]
        return parts

    def published(self, number: int, message: Message, mandatory: bool) -> list[tuple[int, Due]]:
        """A message has gone whole: what is due for it."""
        channel = self.model.channels[number]
        if channel.transaction and message.key == LIMITED:
            raise AssertionError("what a queue may refuse is not in the model's transactions")
        return [(number, due) for due in self.model.publish(channel, message, mandatory)]

    def publish(self, number: int) -> None:
        octets, due = b"", []
        for _ in range(self.chance.choice([1, 1, 2, 5])):
            message, mandatory = self.some_message()
            if self.model.channels[number].transaction and message.key == LIMITED:
                continue
            octets += b"".join(self.frames(number, message, mandatory))
            due += self.published(number, message, mandatory)
        self.expect(octets, *due)

    def interleave(self, number: int) -> None:
        """Contents of all open channels at once, frame by frame."""
        going = []
        for each in [each for each in CHANNELS if self.state[each] == "open"]:
            message, mandatory = self.some_message(self.chance.choice(QUEUES))
            going.append((each, message, mandatory, self.frames(each, message, mandatory)))
        octets, due = b"", []
        while going:
            place = self.chance.randrange(len(going))
            each, message, mandatory, parts = going[place]
            octets += parts.pop(0)
            if self.chance.random() < 0.1:
                octets += faults.raw_frame(8, 0, b"")
            if not parts:
                due += self.published(each, message, mandatory)
                del going[place]
        self.expect(octets, *due)

    def begin_content(self, number: int) -> None:
        """A message whose frames come while other things happen."""
        message, mandatory = self.some_message(self.chance.choice(QUEUES))
        parts = self.frames(number, message, mandatory)
        self.state[number] = "content"
        self.rest[number] = message, mandatory, parts[1:]
        self.expect(parts[0])

    def go_on(self, number: int) -> None:
        message, mandatory, parts = self.rest[number]
        count = self.chance.randrange(1, len(parts) + 1)
        octets = b"".join(parts[:count])
        del parts[:count]
        due: list[tuple[int, Due]] = []
        if not parts:
            del self.rest[number]
            self.state[number] = "open"
            due = self.published(number, message, mandatory)
        self.expect(octets, *due)

    # -- consuming and settling --------------------------------------------------------------

    def get(self, number: int) -> None:
        queue = self.model.queues.get(self.chance.choice([*QUEUES, LIMITED]))
        if queue is None:
            return
        no_ack = self.chance.random() < 0.3
        octets = frame.marshal(Basic.Get(queue=queue.name, no_ack=no_ack), number)
        if queue.line:
            count = min(len(queue.line), self.chance.choice([1, 4]))
            due: Due = (Basic.GetOk, {"from": (queue, no_ack)})
            self.expect(octets * count, *[(number, due)] * count)
        else:
            self.expect(octets, (number, (Basic.GetEmpty, {})))

    def some_settlement(self, channel: Channel) -> tuple[Any, int, bool, str]:
        chance = self.chance
        way = chance.randrange(6)
        tags = list(channel.held)
        if not tags or chance.random() < 0.1:
            # Most of these were settled before, or never given.
            gaps = [tag for tag in range(min(tags, default=1), channel.next_tag) if tag not in channel.held]
            tags = gaps or [0, channel.next_tag, channel.next_tag - 1, 2**63 - 1]
        tag = chance.choice(tags)
        if way < 3:
            multiple = chance.random() < 0.3
            return Basic.Ack(0 if multiple and chance.random() < 0.2 else tag, multiple), tag, multiple, ACK
        requeue = chance.random() < 0.6
        outcome = REQUEUE if requeue else DROP
        if way < 5:
            multiple = chance.random() < 0.3
            return Basic.Nack(tag, multiple, requeue), tag, multiple, outcome
        return Basic.Reject(tag, requeue), tag, False, FAIL if requeue else DROP

    def settle(self, number: int) -> None:
        channel = self.model.channels[number]
        method, _, multiple, outcome = self.some_settlement(channel)
        octets = frame.marshal(method, number)
        try:
            self.model.settle(channel, type(method), method.delivery_tag, multiple, outcome)
        except Fault as fault:
            self.fails(number, octets, fault)
        else:
            self.expect(octets)

    def acknowledge_many(self, number: int) -> None:
        """Several in one piece; what is wrong among them ends it there."""
        channel = self.model.channels[number]
        octets = b""
        tags = self.chance.sample(list(channel.held), min(len(channel.held), self.chance.randrange(1, 6)))
        if self.chance.random() < 0.5:
            tags.sort()
        if self.chance.random() < 0.2:
            tags += tags[:1]
        for tag in tags:
            multiple = self.chance.random() < 0.1
            octets += frame.marshal(Basic.Ack(tag, multiple), number)
            try:
                self.model.settle(channel, Basic.Ack, tag, multiple, ACK)
            except Fault as fault:
                # Between two pieces what was acknowledged would bring deliveries to a channel that is about to end.
                cuts, self.cuts = self.cuts, (0,)
                self.fails(number, octets, fault)
                self.cuts = cuts
                return
        self.expect(octets)

    def consume(self, number: int) -> None:
        chance = self.chance
        channel = self.model.channels[number]
        tag = chance.choice(["a", "b", "c", "d"])
        if tag in channel.consumers and chance.random() < 0.9:
            return
        queue, no_ack, exclusive = chance.choice(QUEUES), chance.random() < 0.2, chance.random() < 0.1
        nowait = chance.random() < 0.2
        method = Basic.Consume(queue=queue, consumer_tag=tag, no_ack=no_ack, exclusive=exclusive, nowait=nowait)
        octets = frame.marshal(method, number)

        def consumes() -> None:
            self.model.consumes(channel, queue, tag, no_ack, exclusive)

        try:
            self.model.may_consume(channel, queue, tag, exclusive)
        except Fault as fault:
            if fault.code == 530:
                self.breaks(octets, fault, late=True)
            else:
                self.fails(number, octets, fault)
            return
        if nowait:
            consumes()
            self.expect(octets)
        else:
            self.expect(octets, (number, (Basic.ConsumeOk, {"consumer_tag": tag, "then": consumes})))

    def cancel(self, number: int) -> None:
        channel = self.model.channels[number]
        tag = self.chance.choice([*channel.consumers, "none"])
        nowait = self.chance.random() < 0.2
        octets = frame.marshal(Basic.Cancel(consumer_tag=tag, nowait=nowait), number)
        if nowait:
            self.model.cancel(channel, tag)
            self.expect(octets)
            return
        values = {"consumer_tag": tag, "then": lambda: self.model.cancel(channel, tag)}
        self.expect(octets, (number, (Basic.CancelOk, values)))

    def qos(self, number: int) -> None:
        channel = self.model.channels[number]
        channel.prefetch = self.chance.choice([0, 1, 2, 3, 5, 65535])
        octets = frame.marshal(Basic.Qos(prefetch_count=channel.prefetch), number)
        self.expect(octets, (number, (Basic.QosOk, {})))

    def recover(self, number: int) -> None:
        self.model.recover(self.model.channels[number])
        self.expect(frame.marshal(Basic.Recover(requeue=True), number), (number, (Basic.RecoverOk, {})))

    # -- modes -----------------------------------------------------------------------------------

    def commit(self, number: int) -> None:
        if self.model.channels[number].transaction or self.chance.random() < 0.1:
            if self.chance.random() < 0.7:
                self.in_mode(number, commands.Tx.Commit(), self.model.commit, commands.Tx.CommitOk)
            else:
                self.in_mode(number, commands.Tx.Rollback(), self.model.roll_back, commands.Tx.RollbackOk)

    # -- queues ------------------------------------------------------------------------------------

    def count(self, number: int) -> None:
        octets, due = b"", []
        for queue in self.model.queues.values():
            octets += frame.marshal(Queue.Declare(queue=queue.name, passive=True), number)
            values = {"queue": queue.name, "message_count": len(queue.line), "consumer_count": len(queue.consumers)}
            due.append((number, (Queue.DeclareOk, values)))
        self.expect(octets, *due)

    def purge(self, number: int) -> None:
        queue = self.model.queues[self.chance.choice([*QUEUES, LIMITED])]
        count = len(queue.line)
        queue.returned, queue.fresh = [], []
        octets = frame.marshal(Queue.Purge(queue=queue.name), number)
        self.expect(octets, (number, (Queue.PurgeOk, {"message_count": count})))

    def delete_and_declare(self, number: int) -> None:
        name = self.chance.choice(QUEUES)
        count = self.model.delete(name)
        octets = frame.marshal(Queue.Delete(queue=name), number)
        self.expect(octets, (number, (Queue.DeleteOk, {"message_count": count})))
        keepers = [each.number for each in self.model.channels.values() if each.kept and each.number not in self.rest]
        if keepers and self.chance.random() < 0.3:
            # To a queue that is not there.
            self.commit(keepers[0])
        values = {"queue": name, "message_count": 0, "consumer_count": 0}
        self.model.declare(name)
        octets = frame.marshal(Queue.Declare(queue=name, durable=True), number)
        self.expect(octets, (number, (Queue.DeclareOk, values)))

    def pass_by(self, number: int) -> None:
        """Queues of this client alone that come and go: with their last consumer, or deleted after a look at them, or
        after a message was taken from them."""
        channel = self.model.channels[number]
        plain = not channel.confirms and not channel.transaction
        way = self.chance.choice(["consume", "get", "take"] if plain else ["consume", "get"])
        declare = Queue.Declare(queue="passing", exclusive=True, auto_delete=way == "consume")
        octets = b""
        due: list[tuple[int, Due]] = []
        for _ in range(self.chance.choice([1, 1, 20])):
            parts = [frame.marshal(declare, number)]
            answers: list[type[Any]] = [Queue.DeclareOk]
            if way == "consume":
                parts.append(frame.marshal(Basic.Consume(queue="passing", consumer_tag="p"), number))
                parts.append(frame.marshal(Basic.Cancel(consumer_tag="p"), number))
                answers += [Basic.ConsumeOk, Basic.CancelOk]
            else:
                if way == "take":
                    parts += self.frames(number, self.model.new_message("", "passing", 5), False)
                parts.append(frame.marshal(Basic.Get(queue="passing"), number))
                if way == "take":
                    parts.append(frame.marshal(Basic.Ack(channel.next_tag), number))
                    channel.next_tag += 1
                parts.append(frame.marshal(Queue.Delete(queue="passing"), number))
                answers += [Basic.GetOk if way == "take" else Basic.GetEmpty, Queue.DeleteOk]
            octets += b"".join(parts)
            due += [(number, (kind, {})) for kind in answers]
        self.expect(octets, *due)

    def bind(self, number: int) -> None:
        exchange, queue = self.chance.choice(["x", "f"]), self.chance.choice(QUEUES)
        if self.chance.random() < 0.7:
            self.model.bindings.add((exchange, "k", queue))
            octets = frame.marshal(Queue.Bind(queue=queue, exchange=exchange, routing_key="k"), number)
            self.expect(octets, (number, (Queue.BindOk, {})))
        else:
            self.model.bindings.discard((exchange, "k", queue))
            octets = frame.marshal(Queue.Unbind(queue=queue, exchange=exchange, routing_key="k"), number)
            self.expect(octets, (number, (Queue.UnbindOk, {})))

    # -- channels and the connection -----------------------------------------------------------------

    def close_channel(self, number: int) -> None:
        self.model.end_channel(number)
        self.state[number] = "closed"
        octets = frame.marshal(commands.Channel.Close(200, "bye", 0, 0), number)
        if self.chance.random() < 0.3:
            # Anew in the same piece: tags and numbers begin at 1.
            self.model.channels[number] = Channel(number)
            self.state[number] = "open"
            octets += frame.marshal(commands.Channel.Open(), number)
            self.expect(octets, (number, (commands.Channel.CloseOk, {})), (number, (commands.Channel.OpenOk, {})))
        else:
            self.expect(octets, (number, (commands.Channel.CloseOk, {})))

    def heartbeat(self, number: int) -> None:
        self.expect(faults.raw_frame(8, 0, b""))

    def while_closing(self, number: int) -> None:
        """On a channel that waits for the client's close-ok."""
        octets = self.some_of(faults.passed_over(number))
        due: list[tuple[int, Due]] = []
        way = self.chance.randrange(4)
        if way == 0:
            octets += frame.marshal(commands.Channel.Close(200, "both at once", 0, 0), number)
            due.append((number, (commands.Channel.CloseOk, {})))
        elif way > 1:
            octets += frame.marshal(commands.Channel.CloseOk(), number)
            self.state[number] = "closed"
        self.expect(octets, *due)

    def breaks(
        self, octets: bytes, fault: Fault, bounds_lost: bool = False, late: bool = False, alone: bool = False
    ) -> None:
        """This ends the connection, in order. `bounds_lost`: nothing behind it can be read. `late`: not the frame is
        wrong but what it asks for, which is found when the frames behind it have been read. `alone`: nothing is sent
        behind it, which could hide that it was taken."""
        self.model.end_connection()
        numbers = [each for each in CHANNELS if self.state[each] != "closed"]
        if numbers and not bounds_lost and not late and not alone:
            octets += self.some_of(faults.passed_over(self.chance.choice(numbers))) + faults.raw_frame(8, 0, b"")
        values = {"reply_code": fault.code, "ids": fault.ids}
        self.expect(octets, (0, (Connection.Close, values)))
        assert not self.client.closed
        if not bounds_lost:
            self.expect(faults.a_message(self.chance.choice(CHANNELS)) + frame.marshal(commands.Channel.Open(), 3))
            if self.chance.random() < 0.3:
                close = frame.marshal(Connection.Close(200, "both at once", 0, 0), 0)
                self.expect(close, (0, (Connection.CloseOk, {})))
                assert not self.client.closed
        self.expect(frame.marshal(Connection.CloseOk(), 0))
        self.gone()

    def leave(self, number: int) -> None:
        self.model.end_connection()
        if self.chance.random() < 0.5:
            self.client.lose()
            self.connect()
        else:
            close = frame.marshal(Connection.Close(200, "bye", 0, 0), 0)
            behind = faults.a_message(number) if self.chance.random() < 0.5 else b""
            self.expect(close + behind, (0, (Connection.CloseOk, {})))
            self.gone()

    # -- faults ------------------------------------------------------------------------------------------

    def soft_fault(self, number: int) -> None:
        """An error of a channel, some right publishes before it."""
        octets = b""
        channel = self.model.channels[number]
        if not channel.transaction and not channel.consumers:
            for _ in range(self.chance.choice([0, 0, 2])):
                message, _ = self.some_message(self.chance.choice(QUEUES))
                octets += b"".join(self.frames(number, message, False))
                self.published(number, message, False)
                # Others may be given it before they are given what this channel held.
                self.model.queues[message.key].ordered = False
        nothing = self.model.new_message("", "q1", 5)
        strange = self.model.new_message("missing", "q1", 5)
        wrong: list[tuple[bytes, int, Any]] = [
            (frame.marshal(method, number), code, type(method))
            for method, code in [
                (Queue.Declare(queue="missing", passive=True), 404), (Queue.Purge(queue="missing"), 404),
                (Queue.Bind(queue="q1", exchange="missing"), 404), (Queue.Bind(queue="missing", exchange="x"), 404),
                (Queue.Declare(queue="q1", durable=False), 406), (Queue.Declare(queue="amq.mine", durable=True), 403),
                (Queue.Declare(queue="q1", durable=True, arguments={"x-message-ttl": 5}), 406),
                (Exchange.Declare(exchange="x", exchange_type="fanout", durable=True), 406),
                (Exchange.Declare(exchange="missing", passive=True), 404),
                (Exchange.Declare(exchange="y", exchange_type="unknown"), 406),
                (Basic.Get(queue="missing"), 404), (Basic.Consume(queue="missing"), 404),
                (Basic.Ack(channel.next_tag), 406), (Basic.Ack(channel.next_tag, True), 406), (Basic.Ack(0), 406),
                (Basic.Nack(channel.next_tag), 406), (Basic.Reject(channel.next_tag), 406),
                (Basic.Reject(2**63 - 1), 406),
            ]
        ]
        wrong += [
            (b"".join(self.frames(number, strange, False)), 404, Basic.Publish),
            (b"".join(self.frames(number, nothing, False, expiration="soon")), 406, Basic.Publish),
            (b"".join(self.frames(number, nothing, False, user_id="somebody")), 406, Basic.Publish),
            (self.frames(number, nothing, False)[0] + faults.raw_frame(2, number, faults.header(_LARGEST_BODY + 1)),
             406, Basic.Publish),
        ]
        wrong_octets, code, method = self.chance.choice(wrong)
        self.fails(number, octets + wrong_octets, Fault(code, method))

    def hard_fault(self, number: int) -> None:
        """An error of the connection."""
        chance = self.chance
        state = self.state[number]
        way = chance.randrange(10)
        if way == 0:
            _, octets = chance.choice(faults.beyond_its_bounds(number))
            self.breaks(octets, Fault(faults.FRAME_ERROR), True)
            return
        if way == 1:
            number, table = 0, faults.ON_CHANNEL_0
        elif way == 2:
            closed = [each for each in CHANNELS if self.state[each] == "closed"] + [7]
            number, table = chance.choice(closed), faults.ON_A_CLOSED_CHANNEL
        elif state != "open":
            return
        elif way == 3:
            table = faults.WHERE_A_HEADER_IS_DUE
        elif way == 4:
            table = faults.WHERE_A_BODY_IS_DUE
        elif way == 5:
            octets = b"".join(self.frames(number, self.model.new_message("", "q1", 5), False))
            # The bit beside "mandatory".
            octets = octets.replace(b"\x00\x02q1\x00\xce", b"\x00\x02q1\x02\xce", 1)
            self.breaks(octets, Fault(faults.NOT_IMPLEMENTED, Basic.Publish), late=True)
            return
        elif way == 6:
            table = faults.ANYWHERE
        elif way == 7:
            table = faults.ASKED_FOR_IN_VAIN
        else:
            table = faults.ON_AN_OPEN_CHANNEL
        self.say_wrong(number, table, None)

    def say_wrong(self, number: int, table: list[faults.Wrong], wrong: faults.Wrong | None) -> None:
        """One of the table's frames, where those are due; any, if it is not said which."""
        octets = b""
        if table is faults.WHERE_A_HEADER_IS_DUE or table is faults.WHERE_A_BODY_IS_DUE:
            parts = self.frames(number, self.model.new_message("", "q1", 5), False)
            octets = parts[0] if table is faults.WHERE_A_HEADER_IS_DUE else parts[0] + parts[1]
        self.told, kind, code, payload = wrong or self.chance.choice(table)
        octets += faults.raw_frame(kind, number, payload)
        self.breaks(octets, Fault(code), late=table is faults.ASKED_FOR_IN_VAIN, alone=wrong is not None)

    def say_all_that_is_wrong(self) -> None:
        """Each frame of each table, and each content that is wrong as a whole."""
        for table, number in (
            (faults.ANYWHERE, 1), (faults.ON_AN_OPEN_CHANNEL, 1), (faults.ASKED_FOR_IN_VAIN, 1),
            (faults.WHERE_A_HEADER_IS_DUE, 1), (faults.WHERE_A_BODY_IS_DUE, 1), (faults.ON_A_CLOSED_CHANNEL, 7),
            (faults.ON_CHANNEL_0, 0),
        ):  # fmt: skip
            for wrong in table:
                self.open_if_closed(1)
                self.say_wrong(number, table, wrong)
        for place in range(len(faults.beyond_its_bounds(1))):
            self.open_if_closed(1)
            self.told, octets = faults.beyond_its_bounds(1)[place]
            self.breaks(octets, Fault(faults.FRAME_ERROR), True)
        for told, code, octets in faults.wrong_contents(1):
            self.open_if_closed(1)
            self.told = told
            self.breaks(octets, Fault(code), alone=True)

    def open_if_closed(self, number: int) -> None:
        if self.state[number] == "closed":
            self.open(number)

    # -- all of it ---------------------------------------------------------------------------------------

    def step(self) -> None:
        number = self.chance.choice(CHANNELS)
        state = self.state[number]
        if state == "closed":
            if self.chance.random() < 0.2:
                self.hard_fault(number)
            else:
                self.open(number)
        elif state == "closing":
            self.while_closing(number)
        elif state == "content":
            self.go_on(number)
        else:
            weights = [weight for weight, _ in self.actions]
            (_, action), = self.chance.choices(self.actions, weights)
            action(number)
        self.nothing_is_kept()
        kept = self.client.connection.amqp._reader.buffered_bytes
        assert kept < _MOST_KEPT_BYTES, f"{kept} bytes are kept"
        if self.chance.random() < 0.1:
            self.ping()


def walk(seed: int, steps: int = 60) -> None:
    """One walk.  Raises AssertionError, or what the broker raises."""
    walk = Walk(seed)
    for _ in range(steps):
        walk.step()
    walk.end()
