"""What a broker owes one client: channels, consumers, confirms and transactions over a few queues, in some lines.

Written from AMQP 0-9-1 (section 1, with RabbitMQ's extensions) and not from the code: it keeps lists where the broker
keeps ranges, and knows nothing of shards. What a client does is told to it first, and answers what is due at once or
raises `Fault`; then it is told each frame that came, and raises AssertionError for one that may not come. In the end
`nothing_is_missing` says whether everything has come that had to.
"""

from typing import Any, Final

from pamqp import commands
from pamqp.commands import Basic

ACK, REQUEUE, FAIL, DROP = "ack", "requeue", "fail", "drop"
"""FAIL: back to the queue as REQUEUE, but as a delivery that failed."""
Due = tuple[type[Any], dict[str, Any]]
"""A frame that has to come next on its channel, and the arguments it must have."""


class Fault(Exception):
    """What the client did is an error: its code, and class and method at fault (None: any)."""

    def __init__(self, code: int, method: type[Any] | None = None) -> None:
        super().__init__(code, method)
        self.code = code
        self.ids = None if method is None else (method.index >> 16, method.index & 0xFFFF)


class Message:
    """A published message; each queue has its own."""

    def __init__(self, exchange: str, key: str, body: bytes, name: str) -> None:
        self.exchange, self.key, self.body, self.name = exchange, key, body, name
        self.returns = self.failures = 0

    def check(self, what: Any) -> None:
        """It came as it was published, with the numbers of its returns and of deliveries that failed."""
        assert (what.method.exchange, what.method.routing_key) == (self.exchange, self.key), what.method
        assert what.body == self.body, (len(what.body), len(self.body), what.body[:20], self.body[:20])
        assert what.properties.message_id == self.name, (what.properties, self.name)
        if not isinstance(what.method, Basic.Return):
            assert what.method.redelivered == (self.returns > 0), (self.name, self.returns)
            counts = {"x-acquired-count": self.returns, "x-delivery-count": self.failures}
            headers = {name: count for name, count in counts.items() if count} or None
            assert what.properties.headers == headers, (self.name, what.properties.headers, counts)


class Queue:
    """Messages in line, and who consumes. `most`: more are refused."""

    def __init__(self, name: str, most: int | None = None) -> None:
        self.name, self.most = name, most
        self.returned: list[Message] = []
        self.fresh: list[Message] = []
        self.consumers: list[Consumer] = []
        # Whether the protocol says in what order they come: not when several gave back theirs at once.
        self.ordered = True
        self.seen: list[Message] = []
        self.taken: list[Message] = []

    @property
    def line(self) -> list[Message]:
        return self.returned + self.fresh

    def take(self, name: str) -> Message:
        """The message of this name leaves the line."""
        for messages in (self.returned, self.fresh):
            for place, message in enumerate(messages):
                if message.name == name:
                    self.taken.append(message)
                    return messages.pop(place)
        raise AssertionError(f"{name!r} came from {self.name!r}, where it is not in line")

    def give_back(self, messages: list[Message]) -> None:
        """Of a holder that is gone: before what was never delivered, as deliveries that failed."""
        for message in messages:
            message.returns += 1
            message.failures += 1
        self.returned += messages

    def in_order(self) -> None:
        """What was taken in this step was the beginning of the line, whoever got it."""
        if self.ordered and self.taken:
            due = self.seen[: len(self.taken)]
            assert {id(message) for message in due} == {id(message) for message in self.taken}, (
                f"out of order from {self.name!r}: {[m.name for m in self.taken]}, due {[m.name for m in due]}"
            )
        self.taken = []
        self.ordered = self.ordered or not self.line


class Consumer:
    """Somebody who is given messages; `held` of them are not settled yet."""

    def __init__(self, tag: str, queue: Queue, no_ack: bool, prefetch: int, exclusive: bool) -> None:
        self.tag, self.queue, self.no_ack, self.prefetch, self.exclusive = tag, queue, no_ack, prefetch, exclusive
        self.held = 0
        self.last = -1

    @property
    def has_room(self) -> bool:
        return self.no_ack or self.prefetch == 0 or self.held < self.prefetch


class Channel:
    """An open channel."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.next_tag = 1
        self.held: dict[int, tuple[Message, Queue, Consumer | None]] = {}
        self.consumers: dict[str, Consumer] = {}
        self.prefetch = 0
        self.confirms = False
        self.published = 0
        self.unconfirmed: set[int] = set()
        self.refused: set[int] = set()
        self.unreturned: list[int] = []
        self.transaction = False
        self.kept: list[tuple[Message, bool, list[str]]] = []
        self.settled: list[tuple[int, str]] = []


class Endpoint:
    """All of it: what one client may expect, alone with the broker."""

    LARGEST_LINE: Final = 60

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        self.bindings: set[tuple[str, str, str]] = set()
        self.fanouts = {"f"}
        self.exchanges = {"x", "f"}
        self.channels: dict[int, Channel] = {}
        self.cancels: list[tuple[int, str]] = []
        self.serial = 0

    # -- a step ---------------------------------------------------------------------

    def look(self) -> None:
        """All that the client does in this step was told: what comes now comes from these lines."""
        for queue in self.queues.values():
            queue.seen = queue.line

    def nothing_is_missing(self) -> None:
        """The broker has had its time: nothing that is due is missing."""
        for channel in self.channels.values():
            assert not channel.unconfirmed, f"never confirmed: {sorted(channel.unconfirmed)}"
            assert not channel.refused, f"confirmed, though refused: {sorted(channel.refused)}"
        for queue in self.queues.values():
            queue.in_order()
            waiting = [consumer.tag for consumer in queue.consumers if consumer.has_room]
            assert not (waiting and queue.line), f"{len(queue.line)} in {queue.name!r} wait, and so does {waiting}"
            for consumer in queue.consumers:
                consumer.last = -1
        assert not self.cancels, f"not cancelled: {self.cancels}"

    # -- publishing -----------------------------------------------------------------

    def new_message(self, exchange: str, key: str, size: int) -> Message:
        self.serial += 1
        name = str(self.serial)
        return Message(exchange, key, (name + ":").encode().ljust(size, b".")[:size], name)

    def publish(self, channel: Channel, message: Message, mandatory: bool) -> list[Due]:
        """A message has come whole."""
        if message.exchange and message.exchange not in self.exchanges:
            raise Fault(404, Basic.Publish)
        targets = self.route(message)
        if channel.transaction:
            channel.kept.append((message, mandatory, [queue.name for queue in targets]))
            return []
        refused = False
        for queue in targets:
            refused = refused or (queue.most is not None and len(queue.line) >= queue.most)
        if channel.confirms:
            channel.published += 1
            (channel.refused if refused else channel.unconfirmed).add(channel.published)
        if not refused:
            self.enqueue(message, targets)
        if mandatory and not targets:
            if channel.confirms:
                channel.unreturned.append(channel.published)
            return [(Basic.Return, {"reply_code": 312, "message": message})]
        return []

    def route(self, message: Message) -> list[Queue]:
        if not message.exchange:
            return [self.queues[message.key]] if message.key in self.queues else []
        names = {
            queue
            for exchange, key, queue in self.bindings
            if exchange == message.exchange and (exchange in self.fanouts or key == message.key)
        }
        return [self.queues[name] for name in sorted(names)]

    def enqueue(self, message: Message, targets: list[Queue]) -> None:
        for queue in targets:
            queue.fresh.append(Message(message.exchange, message.key, message.body, message.name))

    def confirmed(self, channel: Channel, tag: int, multiple: bool, refused: bool) -> None:
        """basic.ack or basic.nack has come."""
        known = channel.refused if refused else channel.unconfirmed
        other = channel.unconfirmed if refused else channel.refused
        told = {number for number in known if number <= tag} if multiple else {tag} & known
        assert tag in told or (multiple and told), f"confirm of {tag}, which is not open: {sorted(known)}"
        assert not (multiple and any(number <= tag for number in other)), f"{tag} multiple covers others: {other}"
        known -= told
        assert not told & set(channel.unreturned), f"confirmed before they are returned: {channel.unreturned}"

    # -- consuming ------------------------------------------------------------------

    def queue(self, name: str, method: type[Any]) -> Queue:
        if name not in self.queues:
            raise Fault(404, method)
        return self.queues[name]

    def may_consume(self, channel: Channel, name: str, tag: str, exclusive: bool) -> Queue:
        if tag in channel.consumers:
            raise Fault(530, Basic.Consume)
        queue = self.queue(name, Basic.Consume)
        if any(consumer.exclusive for consumer in queue.consumers) or (exclusive and queue.consumers):
            raise Fault(403, Basic.Consume)
        return queue

    def consumes(self, channel: Channel, name: str, tag: str, no_ack: bool, exclusive: bool) -> None:
        """consume-ok has come, or is not awaited."""
        consumer = Consumer(tag, self.queues[name], no_ack, channel.prefetch, exclusive)
        channel.consumers[tag] = consumer
        consumer.queue.consumers.append(consumer)

    def cancel(self, channel: Channel, tag: str) -> None:
        consumer = channel.consumers.pop(tag, None)
        if consumer is not None:
            consumer.queue.consumers.remove(consumer)

    def delivered(self, channel: Channel, what: Any) -> None:
        """basic.deliver has come with its content."""
        consumer = channel.consumers.get(what.method.consumer_tag)
        assert consumer is not None, f"delivered to {what.method.consumer_tag!r}, which does not consume"
        assert consumer.has_room, f"{consumer.tag!r} holds {consumer.held}, its limit is {consumer.prefetch}"
        message = self._handed_out(channel, consumer.queue, consumer, consumer.no_ack, what)
        if consumer.queue.ordered and message in consumer.queue.seen:
            place = consumer.queue.seen.index(message)
            assert place > consumer.last, f"{message.name} came late to {consumer.tag!r}"
            consumer.last = place

    def got(self, channel: Channel, queue: Queue, no_ack: bool, what: Any) -> None:
        """get-ok has come with its content."""
        self._handed_out(channel, queue, None, no_ack, what)
        assert what.method.message_count == len(queue.line), (what.method.message_count, len(queue.line))

    def _handed_out(
        self, channel: Channel, queue: Queue, consumer: Consumer | None, no_ack: bool, what: Any
    ) -> Message:
        assert what.method.delivery_tag == channel.next_tag, (what.method.delivery_tag, channel.next_tag)
        channel.next_tag += 1
        message = queue.take(what.properties.message_id)
        message.check(what)
        if not no_ack:
            channel.held[what.method.delivery_tag] = (message, queue, consumer)
            if consumer is not None:
                consumer.held += 1
        return message

    # -- settling -------------------------------------------------------------------

    def settle(self, channel: Channel, method: type[Any], tag: int, multiple: bool, outcome: str) -> None:
        in_transaction = {settled for settled, _ in channel.settled}
        open_tags = [each for each in channel.held if each not in in_transaction]
        if multiple:
            tags = [each for each in open_tags if tag == 0 or each <= tag]
            if tag and tag not in open_tags:
                raise Fault(406, method)
        elif tag not in open_tags:
            raise Fault(406, method)
        else:
            tags = [tag]
        if channel.transaction:
            channel.settled += [(each, outcome) for each in tags]
        else:
            self.settled(channel, [(each, outcome) for each in tags])

    def settled(self, channel: Channel, settled: list[tuple[int, str]]) -> None:
        back: dict[str, list[Queue]] = {}
        for tag, outcome in settled:
            message, queue, consumer = channel.held.pop(tag)
            if consumer is not None:
                consumer.held -= 1
            if outcome in (REQUEUE, FAIL) and self.queues.get(queue.name) is queue:
                message.returns += 1
                message.failures += outcome == FAIL
                queue.returned.append(message)
                back.setdefault(queue.name, []).append(queue)
        for queues in back.values():
            # Several come back in the order of their tags to each holder, whichever holder comes first.
            queues[0].ordered = queues[0].ordered and len(queues) == 1

    def recover(self, channel: Channel) -> None:
        in_transaction = {settled for settled, _ in channel.settled}
        self.settled(channel, [(tag, REQUEUE) for tag in list(channel.held) if tag not in in_transaction])

    # -- modes ----------------------------------------------------------------------

    def select_confirms(self, channel: Channel) -> None:
        if channel.transaction:
            raise Fault(406, commands.Confirm.Select)
        channel.confirms = True

    def select_transactions(self, channel: Channel) -> None:
        if channel.confirms:
            raise Fault(406, commands.Tx.Select)
        channel.transaction = True

    def commit(self, channel: Channel) -> list[Due]:
        if not channel.transaction:
            raise Fault(406, commands.Tx.Commit)
        kept, channel.kept = channel.kept, []
        settled, channel.settled = channel.settled, []
        due: list[Due] = []
        for message, mandatory, names in kept:
            # Routed when it was published, to names: whatever queue has one of them now gets it.
            targets = [self.queues[name] for name in names if name in self.queues]
            self.enqueue(message, targets)
            if mandatory and not targets:
                due.append((Basic.Return, {"reply_code": 312, "message": message}))
        touched = {queue for tag, _ in settled for queue in [channel.held[tag][1]]}
        self.settled(channel, settled)
        if settled and kept:
            for queue in touched:
                queue.ordered = False
        return [*due, (commands.Tx.CommitOk, {})]

    def roll_back(self, channel: Channel) -> None:
        if not channel.transaction:
            raise Fault(406, commands.Tx.Rollback)
        channel.kept, channel.settled = [], []

    # -- queues ---------------------------------------------------------------------

    def declare(self, name: str, most: int | None = None) -> Queue:
        return self.queues.setdefault(name, Queue(name, most))

    def delete(self, name: str) -> int:
        queue = self.queues.pop(name)
        self.bindings = {binding for binding in self.bindings if binding[2] != name}
        for channel in self.channels.values():
            for consumer in [each for each in channel.consumers.values() if each.queue is queue]:
                del channel.consumers[consumer.tag]
                self.cancels.append((channel.number, consumer.tag))
        return len(queue.line)

    # -- ends -----------------------------------------------------------------------

    def end_channel(self, number: int) -> None:
        """A channel has ended, in whatever way: what it held goes back, what it kept for a commit is forgotten."""
        channel = self.channels.pop(number)
        for tag in list(channel.consumers):
            self.cancel(channel, tag)
        holders: dict[str, set[int]] = {}
        for message, queue, consumer in channel.held.values():
            if self.queues.get(queue.name) is queue:
                holders.setdefault(queue.name, set()).add(id(consumer))
                queue.give_back([message])
                queue.ordered = queue.ordered and len(holders[queue.name]) == 1

    def end_connection(self) -> None:
        for number in list(self.channels):
            self.end_channel(number)
        for queue in self.queues.values():
            # Channels end in whatever order.
            queue.ordered = queue.ordered and len(queue.returned) < 2
