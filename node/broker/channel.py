"""One AMQP channel: its events in order, its operations one at a time.

Publishes and acknowledgements never wait.  Any other method may: while it does,
the channel's later events queue up behind it, whatever they are.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from pamqp.base import Frame
from pamqp.commands import Exchange, Queue

from mayfly.node.amqp.content import Content
from mayfly.node.amqp.events import ACK, REJECT, Event, MethodReceived, PublishesReceived, SettlementsReceived
from mayfly.node.broker.client import Client
from mayfly.node.broker.coming_back import giving_back, nack_outcome
from mayfly.node.broker.consumer_moves import attach_again, detach
from mayfly.node.broker.consumer_timeout import NEVER, DeliveryMarks, holder_timeout_ms, mark_every_ms, timed_out
from mayfly.node.broker.consumers import Consumer
from mayfly.node.broker.node_parts import NodeParts
from mayfly.node.broker.operation import (
    AmqpError,
    BarrierStep,
    Operation,
    RoutingTurnStep,
    Steps,
    known,
    no_room_error,
)
from mayfly.node.broker.operation_channel import Handler, OperationChannel
from mayfly.node.broker.pressure import Pressure
from mayfly.node.broker.publishing import BASIC_CLASS, PUBLISH_METHOD, ConfirmsDue
from mayfly.node.broker.routes import Routes
from mayfly.node.broker.unacknowledged import DeliveryHolder, UnknownTag
from mayfly.node.broker.waiting_events import EVENT_BYTES, waiting_bytes, working_bytes
from mayfly.node.shard.commands import ACK as OUTCOME_ACK
from mayfly.node.shard.commands import REJECT as OUTCOME_REJECT
from mayfly.node.shard.commands import REQUEUE as OUTCOME_REQUEUE
from mayfly.node.shard.commands import encode_detach
from mayfly.node.shard.effects import ConsumerMoved
from mayfly.node.shard.message import FAILED

if TYPE_CHECKING:
    from mayfly.node.catalog import QueueRecord

logger = logging.getLogger(__name__)

_GET_HOLDERS: Final = 8
"""Holders of basic.get, on one channel, before it is looked at whether their queues are there still."""


class Channel(OperationChannel):
    """The broker's side of one channel, from channel.open to its close."""

    def __init__(
        self,
        client: Client,
        channel_id: int,
        node: NodeParts,
        routes: Routes,
        pressure: Pressure,
        confirms_due: ConfirmsDue,
        handlers: dict[int, Handler],
    ) -> None:
        """`routes` and the three behind them are the connection's; `handlers` by the method's index."""
        super().__init__(client, channel_id, node, routes, pressure, confirms_due)
        self._handlers: dict[int, Handler] = handlers
        # Closed by its client: what came before the close and had to wait is still done.
        self._ends_in_order: bool = False
        self._next_tag_at_end: int = 0
        self._former_holders: list[DeliveryHolder] = []
        """Of `get_holders`, in shards in which a queue is no more; and those of `give_back`."""
        self._most_get_holders = _GET_HOLDERS
        self._operation: Operation | None = None
        self._failing_method: tuple[int, int] = (0, 0)
        # Tags of consumers that ended during an operation: its answer goes first, as with RabbitMQ.
        self._cancelled_meanwhile: list[str] = []
        self._waiting: deque[Event] = deque()
        self._waiting_bytes: int = 0
        self._working_bytes: int = 0
        """What is under way takes so much."""
        self._draining = False
        self._delivery_marks: dict[int, DeliveryMarks] = {}
        """By holder, of those that held something at the last look."""
        self._released = False
        self._is_timed_out = False

    # -- events -----------------------------------------------------------------

    def handle(self, event: Event) -> None:
        """Take an event of this channel, now or after what is under way."""
        self.traffic.active_ms = self.traffic.node.now_ms
        if not self.open:
            return
        if self._operation is not None or not self.pressure.takes_answers():
            self._count_waiting(waiting_bytes(event))
            self._waiting.append(event)
            return
        self._process(event)

    def _process(self, event: Event) -> None:
        if isinstance(event, PublishesReceived):
            self._publish(event)
        elif isinstance(event, SettlementsReceived):
            self.settle(event.settlements)
        elif isinstance(event, MethodReceived):
            self._method(event)

    def _publish(self, event: PublishesReceived) -> None:
        contents, flags = event.contents, event.flags
        refused: AmqpError | None = None
        position = len(contents)
        try:
            if self.pressure.has_published is False:
                self.pressure.first_publish()
            position = self.publisher.publish(contents, flags, 0, False)
        except AmqpError as error:
            refused = error
        if self.publisher.large_runs or position < len(contents):
            steps = self._publish_rest(contents, flags, position, refused)
            self.run(steps, BASIC_CLASS, PUBLISH_METHOD, working_bytes(event))
        elif refused is not None:
            self.fail(refused, BASIC_CLASS, PUBLISH_METHOD)

    def _publish_rest(
        self, contents: list[Content], flags: list[int], position: int, refused: AmqpError | None
    ) -> Steps:
        """What is large of an event; then what is left of it, after the catalog replica was brought up to date, or what
        was published to queues that have moved has arrived there, or when it is this connection's turn."""
        publisher = self.publisher
        yield from publisher.send_large()
        fresh = False
        begun = 0
        while refused is None and position < len(contents):
            uncrossed, publisher.uncrossed = publisher.uncrossed, ()
            if uncrossed:
                yield from self.node.routes.crossings.cross(uncrossed)
            elif publisher.waits_for_turn:
                yield RoutingTurnStep(self.client)
            elif not (publisher.stops_behind_large and position > begun):
                known((yield BarrierStep()))
                fresh = True
            if not (self.open or self._ends_in_order):
                break
            begun = position
            try:
                position = publisher.publish(contents, flags, position, fresh)
            except AmqpError as error:
                refused = error
            yield from publisher.send_large()
        if refused is not None:
            raise refused

    def settle(self, settlements: list[tuple[int, int, bool, bool]]) -> None:
        """basic.ack, basic.nack, basic.reject: see `SettlementsReceived`."""
        unacknowledged = self.unacknowledged
        transaction = self.publisher.transaction
        try:
            for kind, tag, multiple, requeue in settlements:
                if not tag and not self.open and unacknowledged.next_tag > self._next_tag_at_end:
                    continue  # All, said by a client that has not seen the last ones.
                if kind == ACK:
                    outcome = OUTCOME_ACK
                elif kind == REJECT:
                    outcome = OUTCOME_REQUEUE if requeue else OUTCOME_REJECT
                else:
                    outcome = nack_outcome(self.cluster.catalog.level, requeue)
                if transaction is not None:
                    transaction.settle(unacknowledged, tag, multiple, outcome)
                else:
                    unacknowledged.settle(tag, multiple, outcome)
        except UnknownTag as unknown:
            self.submit_settlements()
            self.fail(AmqpError(406, f"unknown delivery tag {unknown.tag}"), BASIC_CLASS, kind)
            return
        except AmqpError as error:
            self.fail(error, BASIC_CLASS, kind)
            return
        self.submit_settlements()

    def submit_settlements(self) -> None:
        """See `OperationChannel.submit_settlements`."""
        cluster = self.cluster
        for settlement in self.unacknowledged.take():
            holder = settlement.holder
            shard = cluster.shard(holder.shard_id)
            for watch in self.client.traffic.watches:
                watch.settled(
                    self.client.user, self.client.name, holder.queue_id, settlement.count, settlement.outcome
                )
            if settlement.outcome == OUTCOME_ACK:
                self.traffic.acknowledge(settlement.count)
                shard.acknowledge(holder.queue_id, holder.holder_id, settlement.encode())
            else:
                shard.submit(settlement.encode(), None)

    def _method(self, event: MethodReceived) -> None:
        method = event.decode_table()
        class_id, method_id = method.index >> 16, method.index & 0xFFFF
        if class_id in _CLASSES_WITH_NAMES:
            strip_line_ends(method)
        try:
            steps = self._handlers[method.index](self, method, event.arguments)
        except AmqpError as error:
            self.fail(error, class_id, method_id)
            return
        if steps is not None:
            self.run(steps, class_id, method_id, working_bytes(event))

    @property
    def consumer_count(self) -> int:
        """See `ClientChannel.consumer_count`."""
        return len(self.consumers) + int(self.is_attaching)

    @property
    def reply_address(self) -> str:
        """See `ClientChannel.reply_address`."""
        return "" if self.reply_consumer is None else self.reply_consumer.address

    def give_back(self, holders: Iterable[DeliveryHolder]) -> None:
        """See `OperationChannel.give_back`."""
        self._former_holders += holders

    def get_holder(self, record: QueueRecord) -> DeliveryHolder:
        """See `OperationChannel.get_holder`."""
        holder = self.get_holders.get(record.id)
        if holder is not None and holder.shard_id != record.shard:
            self._former_holders.append(holder)
            holder = None
        if holder is None:
            if len(self.get_holders) >= self._most_get_holders:
                self._forget_get_holders()
            timeout_ms = self.holder_timeout_ms(record, {})
            holder = DeliveryHolder(self.node.consumers.new_id(), record.shard, record.id, timeout_ms)
            self.get_holders[record.id] = holder
        return holder

    def _forget_get_holders(self) -> None:
        """Those of queues that are gone: no shard has them, and deliveries that are open have their own word."""
        catalog = self.cluster.catalog
        gone = [queue_id for queue_id in self.get_holders if catalog.queue_by_id(queue_id) is None]
        for queue_id in gone:
            del self.get_holders[queue_id]
        self._most_get_holders = max(_GET_HOLDERS, 2 * len(self.get_holders))

    def holder_timeout_ms(self, record: QueueRecord, arguments: dict[str, Any]) -> int:
        """See `OperationChannel.holder_timeout_ms`."""
        node_ms = self.node.settings.consumer_timeout_ms
        timeout_ms = holder_timeout_ms(self.cluster.catalog, record, node_ms, arguments)
        self.client.look_times.shorten(timeout_ms)
        return timeout_ms

    def look_at_oldest(self, now_ms: int) -> None:
        """Cancel consumers whose oldest delivery was not acknowledged for too long, or close the channel (RULES Q3)."""
        if not self.open:
            return
        next_tag = self.unacknowledged.next_tag
        known, marks = self._delivery_marks, {}
        late: list[tuple[DeliveryHolder, int]] = []
        if self.unacknowledged.count:
            for holder, tag in self.unacknowledged.oldest_tags().items():
                if holder.timeout_ms == NEVER:
                    continue
                mark = marks[holder.holder_id] = known.get(holder.holder_id) or DeliveryMarks()
                waited_ms = mark.waited_ms(tag, next_tag, now_ms, mark_every_ms(holder.timeout_ms))
                if waited_ms >= holder.timeout_ms:
                    late.append((holder, tag))
        self._delivery_marks = marks
        for holder, tag in late:
            if self.open and holder.alive:
                self._timed_out(holder, tag)

    def _timed_out(self, holder: DeliveryHolder, tag: int) -> None:
        """A delivery was not acknowledged in time."""
        latest = holder.latest
        consumer = next((each for each in self.consumers.values() if each.holder is latest), None)
        cancels = consumer is not None and self.client.takes_cancels
        logger.warning(
            "connection %s, channel %d: delivery %d was not acknowledged for %d ms: %s",
            self.client.name, self.channel_id, tag, holder.timeout_ms,
            f"consumer {consumer.tag!r} cancelled" if consumer is not None and cancels else "channel closed",
        )  # fmt: skip
        if consumer is None or not cancels:
            self._is_timed_out = True
            self.fail(timed_out(self.channel_id, holder.timeout_ms), 0, 0)
            return
        way = giving_back(self.cluster.catalog.level)
        held_by = {each for each in self.unacknowledged.oldest_tags() if each.latest is latest}
        for each in sorted({*held_by, latest}, key=_holder_id):
            each.alive = False
            self.cluster.shard(each.shard_id).submit(encode_detach(each.queue_id, each.holder_id, way), None)
        self.consumer_cancelled(consumer.tag, latest)

    # -- operations -------------------------------------------------------------

    def run(self, steps: Steps, class_id: int, method_id: int, size_bytes: int = EVENT_BYTES) -> None:
        """Start an operation, which takes so much memory; events wait until it is over."""
        self._failing_method = (class_id, method_id)
        self._working_bytes = size_bytes
        self._count_for_connection(size_bytes)
        self._operation = Operation(
            self.cluster, steps, self._operation_failed, self._operation_finished
        )
        self._operation.start()
        if self.is_busy and self.open and self.cluster.no_room is not None:
            self.fail(no_room_error(self.cluster.no_room), class_id, method_id)

    def check_making(self) -> None:
        """See `OperationChannel.check_making`."""
        self.node.made_in_alarm.check(self.client.user, self.cluster.blocked)

    @property
    def owes_answers(self) -> bool:
        """Whether the client waits for something that it has asked for: a method's answer, a confirm."""
        return self._operation is not None or bool(self._waiting) or self.publisher.owes_confirms

    @property
    def transaction_bytes(self) -> int:
        """What waits here for a commit that was not asked for yet."""
        transaction = self.publisher.transaction
        return 0 if transaction is None else transaction.size_bytes

    @property
    def is_busy(self) -> bool:
        """Whether an operation is under way. (The type checker, and so mypyc, would remember an answer of None.)"""
        return self._operation is not None

    def _operation_failed(self, error: AmqpError) -> None:
        self.fail(error, *self._failing_method)

    def _operation_finished(self) -> None:
        self._operation = None
        self._count_for_connection(-self._working_bytes)
        self._working_bytes = 0
        self.client.mark()
        if not self.open:
            self._cancelled_meanwhile.clear()
        for tag in self._cancelled_meanwhile:
            self.client.send_cancel(self.channel_id, tag)
        self._cancelled_meanwhile.clear()
        self.go_on()

    def go_on(self) -> None:
        """See `ClientChannel.go_on`."""
        if self._draining:
            return
        self._draining = True
        try:
            while self._waiting and not self.is_busy and self._may_go_on():
                event = self._waiting.popleft()
                self._count_waiting(-waiting_bytes(event))
                if self.open or _counts_after_close(event):
                    self._process(event)
        except Exception:
            # Whoever has let the channel go on, another client's turn or the node's, is not to end with this client.
            logger.exception("connection %s failed", self.client.name)
            self.client.fail(AmqpError(541, "internal error"), 0, 0)
            self._drop_waiting()
        finally:
            self._draining = False
        if not self.open and not self.is_busy:
            self._release()
        self.pressure.reading_may_change()

    def _may_go_on(self) -> bool:
        return self.pressure.takes_answers() if self.open else self._ends_in_order

    def _drop_waiting(self) -> None:
        self._waiting.clear()
        self._count_waiting(-self._waiting_bytes)

    def _count_waiting(self, more_bytes: int) -> None:
        self._waiting_bytes += more_bytes
        self._count_for_connection(more_bytes)

    def _count_for_connection(self, more_bytes: int) -> None:
        self.pressure.waiting_bytes += more_bytes
        self.node.waiting_events.add(more_bytes)

    # -- what operators do ------------------------------------------------------

    def force_close(self, text: str) -> None:
        """Close the channel for reasons that are not its own (406); what is stored is confirmed before."""
        self.fail(AmqpError(406, text), 0, 0)

    def cancel_consumer(self, tag: str) -> bool:
        """Cancel a consumer, and tell its client, which has to take cancel notices; what it holds stays held. False if
        there is none of that tag."""
        consumer = self.consumers.get(tag)
        if consumer is None or not self.open:
            return False
        Operation(self.cluster, self._cancelling(consumer), self._failed_beside, lambda: None).start()
        return True

    def _cancelling(self, consumer: Consumer) -> Steps:
        yield from detach(consumer)
        self.consumer_cancelled(consumer.tag, consumer.holder)

    # -- output -----------------------------------------------------------------

    def send(self, method: Frame) -> None:
        """See `OperationChannel.send`."""
        if self.open:
            self.client.output.send(self.channel_id, method)
            self.client.mark()

    # -- the end ----------------------------------------------------------------

    def fail(self, error: AmqpError, class_id: int, method_id: int) -> None:
        """See `ClientChannel.fail`."""
        if not self.open:
            self._drop_waiting()
            return
        self.publisher.send_confirms()
        if error.closes_connection:
            self.client.fail(error, class_id, method_id)
            return
        self.client.amqp.close_channel(self.channel_id, error.code, error.text, class_id, method_id)
        self.client.mark()
        self.shut()

    def shut(self, in_order: bool = False) -> None:
        """The channel is over: give back what it holds, once its operation has come to an end.

        `in_order`: the client has closed it. What it published and settled before may wait behind a large publish; that
        is done first, as in RabbitMQ, though nobody is answered."""
        if not self.open:
            return
        self.open = False
        self.client.traffic.channels_closed += 1
        self.publisher.forget()
        self._ends_in_order = in_order
        self._next_tag_at_end = self.unacknowledged.next_tag
        if not in_order:
            self._drop_waiting()
            self.forget_reply_consumer()
            self.publisher.end_transaction()
        self.go_on()

    @property
    def released(self) -> bool:
        """Whether everything the channel held has been given back."""
        return self._released

    def _release(self) -> None:
        if self._released:
            return
        self._released = True
        self.forget_reply_consumer()
        self.publisher.end_transaction()
        cluster = self.cluster
        holders: dict[int, DeliveryHolder] = {}
        consumers = self.consumers
        self.consumers = {}
        for consumer in consumers.values():
            self.node.consumers.forget(consumer.holder.holder_id)
            holders[consumer.holder.holder_id] = consumer.holder
        # Cancelled consumers may hold messages still.
        for holder in [*self.unacknowledged.holders(), *self.get_holders.values(), *self._former_holders]:
            holders[holder.holder_id] = holder
        # A client that holds its messages for too long has not failed with any of them (RULES Q1).
        way = giving_back(self.cluster.catalog.level) if self._is_timed_out else FAILED
        for holder in holders.values():
            if holder.alive:
                cluster.shard(holder.shard_id).submit(encode_detach(holder.queue_id, holder.holder_id, way), None)
        self.get_holders.clear()
        self.publisher.let_go()
        self.client.channel_released(self)

    def forget_reply_consumer(self) -> None:
        """See `OperationChannel.forget_reply_consumer`."""
        if self.reply_consumer is not None:
            self.node.reply_consumers.by_key.pop(self.reply_consumer.key, None)
            self.reply_consumer = None

    # -- what the shards tell ---------------------------------------------------

    def consumer_cancelled(self, tag: str, holder: DeliveryHolder) -> None:
        """See `ClientChannel.consumer_cancelled`."""
        self.node.consumers.forget(holder.holder_id)
        consumer = self.consumers.get(tag)
        if consumer is not None and consumer.holder is holder:
            del self.consumers[tag]
            if self._operation is not None:
                self._cancelled_meanwhile.append(tag)
            elif self.open:
                self.client.send_cancel(self.channel_id, tag)

    def consumer_lost(self, tag: str, holder: DeliveryHolder) -> None:
        """See `ClientChannel.consumer_lost`."""
        consumer = self.consumers.get(tag)
        self.consumer_cancelled(tag, holder)
        if consumer is not None and consumer.holder is holder and not self.client.takes_cancels:
            self.fail(_consumer_lost(tag), 0, 0)

    def consumer_moved(self, tag: str, moved: ConsumerMoved) -> None:
        """See `ClientChannel.consumer_moved`."""
        consumer = self.consumers.get(tag)
        if consumer is not None and consumer.holder.holder_id == moved.consumer_id:
            steps = attach_again(self, self.cluster, self.node.consumers, consumer, moved)
            Operation(self.cluster, steps, self._failed_beside, lambda: None).start()

    def _failed_beside(self, error: AmqpError) -> None:
        self.fail(error, 0, 0)

    def session_lost(self, shard_id: int) -> None:
        """The shard has dropped this node's session: nothing is held there any more."""
        self.unacknowledged.forget_shard(shard_id)
        for holder in [h for h in self.get_holders.values() if h.shard_id == shard_id]:
            holder.alive = False
            del self.get_holders[holder.queue_id]
        for holder in self._former_holders:
            if holder.shard_id == shard_id:
                holder.alive = False
        lost = [consumer for consumer in self.consumers.values() if consumer.holder.shard_id == shard_id]
        for consumer in lost:
            consumer.holder.alive = False
        for consumer in lost:
            self.consumer_lost(consumer.tag, consumer.holder)

    def pause_consumers(self) -> None:
        """See `ClientChannel.pause_consumers`."""
        for consumer in self.consumers.values():
            consumer.set_paused(self.pauses)
            consumer.report_taken()

    @property
    def pauses(self) -> bool:
        """See `ClientChannel.pauses`."""
        return self.node.consumers.stopped or self.pressure.output_blocked


def _holder_id(holder: DeliveryHolder) -> int:
    return holder.holder_id


def _consumer_lost(tag: str) -> AmqpError:
    return AmqpError(406, f"consumer '{tag}' is gone: its node was out of touch with the shard of its queue")


def _counts_after_close(event: Event) -> bool:
    """Whether it does something, also if nobody is there for the answer: deliveries would only come back."""
    return not isinstance(event, MethodReceived) or event.method.index >> 16 != BASIC_CLASS


_CLASSES_WITH_NAMES: Final = frozenset((Exchange.frame_id, Queue.frame_id))
_NAMES: Final = ("queue", "exchange", "source", "destination")


def strip_line_ends(method: Frame) -> None:
    """Take line ends out of the names in a method of class exchange or queue, as RabbitMQ does."""
    for attribute in _NAMES:
        name = getattr(method, attribute, None)
        if name is not None and ("\n" in name or "\r" in name):
            setattr(method, attribute, name.replace("\n", "").replace("\r", ""))
