"""What an outsider saw, in the words of the first judge (`simulation.node.checker`), so that one run has two verdicts.

It is used to more: it is told what no client sees (shard clocks, sessions, tombstones), and has no word for some
of what outsiders do. Nothing is invented for it. A clock that nobody has read is -1; a queue is gone where somebody was
told so; a session may be lost while something is done to the cluster. Queues whose dead it knows no reason for (RULES
L11) are left out, and so are messages that were to be refused for their properties.
"""

from __future__ import annotations

from collections.abc import Iterator

from simulation.node.checker import Tolerance, Violation, check
from simulation.node.history import (
    ACK,
    CONFIRMED,
    IN_DOUBT,
    REFUSED,
    REJECT,
    REQUEUE,
    RETURNED,
    Attachment,
    CountedDeath,
    Delivery,
    Disappearance,
    History,
    Publish,
    Removal,
    Renewal,
)
from simulation.node.topology import QueuePlan, RunTopology
from simulation.outsider.client import PATIENCE_US
from simulation.outsider.judging import history as outside
from simulation.outsider.judging.history import Call, Handed, OutsiderHistory, OutsiderPublish
from simulation.outsider.judging.view import View, is_good_expiration

DRAINER = "drainer"
"""The client that takes out what is left, and keeps it."""
NEVER_LATE_MS = 1 << 40
_OUTCOMES = {outside.CONFIRMED: CONFIRMED, outside.REFUSED: REFUSED, outside.RETURNED: RETURNED}
_SETTLED = {outside.ACK: ACK, outside.REQUEUE: REQUEUE, outside.FAIL: REQUEUE, outside.REJECT: REJECT}
_NOT_FOUND = 404
_REFUSED_FOR_ITS_PROPERTIES = 406


def verdict_of_first(history: OutsiderHistory, patience_us: int = PATIENCE_US) -> list[Violation]:
    """What the first judge finds in a history, whose clients wait so long for an answer."""
    setting = history.setting
    tolerance = Tolerance(
        early_ms=setting.clock_ms,
        late_ms=NEVER_LATE_MS if setting.late_ms is None else setting.late_ms + setting.tick_ms + setting.clock_ms,
        settle_ms=setting.settle_ms,
    )
    return check(*in_other_words(history, patience_us), tolerance)


def in_other_words(history: OutsiderHistory, patience_us: int = PATIENCE_US) -> tuple[History, RunTopology]:
    """The same for the first judge."""
    translation = _Translation(history)
    translation.publishes()
    translation.deliveries()
    translation.calls()
    translation.given_up(patience_us)
    return translation.made, translation.topology


class _Translation:
    def __init__(self, history: OutsiderHistory) -> None:
        self._seen = history
        self._view = View(history)
        self._left_out = {
            name
            for queue in history.setting.queues
            if queue.leaves_dead_letters
            for name in (queue.name, queue.dead_letter_key)
        }
        plans = [self._plan(queue) for queue in history.setting.queues if queue.name not in self._left_out]
        self.topology = RunTopology.of(plans)
        self.made = History(
            calm_us=history.phases.calm_us if history.troubles else 0, ended_us=history.phases.end_us,
            moved=dict.fromkeys(history.setting.moved),
        )
        self._ends_us = {ended.connection: ended.at_us for ended in history.ended}

    def _plan(self, queue: outside.DeclaredQueue) -> QueuePlan:
        targets: tuple[str, ...] = ()
        if queue.dead_letter_exchange is not None:
            key = queue.name if queue.dead_letter_key is None else queue.dead_letter_key
            targets = self._view.targets(queue.dead_letter_exchange, key)
        return QueuePlan(
            queue.name, queue.ttl_ms, queue.expires_ms, queue.dead_letter_exchange, queue.dead_letter_key, targets,
            queue.max_length, queue.refuses, queue.delivery_limit, queue.max_priority, queue.allow_schedule,
            retry_ms=queue.retry_min_ms,
        )  # fmt: skip

    def publishes(self) -> None:
        """In the order of sending: clients number their messages so."""
        for publish in sorted(self._seen.publishes, key=lambda each: (each.sent_us, each.message)):
            queues = tuple(name for name in self._view.routed(publish) if name in self.topology.queues)
            if not queues or publish.code == _REFUSED_FOR_ITS_PROPERTIES:
                continue
            self.made.publishes[publish.message] = Publish(
                publish.message, publish.connection, publish.message, queues, _ttl_ms(publish), publish.sent_us,
                _OUTCOMES.get(publish.outcome, IN_DOUBT), publish.answered_us,
                priority=publish.priority or 0, delay_ms=publish.delay_ms or 0,
            )  # fmt: skip

    def deliveries(self) -> None:
        """What came, and where it may have come twice as the broker gave up a node in between."""
        settles = {settle.handed: settle for settle in self._seen.settles}
        for handed in sorted(self._seen.handed, key=lambda each: (each.at_us, each.number)):
            if handed.queue in self._left_out:
                continue
            delivery = Delivery(
                handed.at_us, handed.queue, handed.message, _holder(handed), handed.redelivered,
                tuple(CountedDeath(row.queue, row.reason, row.count) for row in handed.deaths),
                self._is_intact(handed), handed.client == DRAINER, node=handed.node, left_us=handed.at_us,
            )  # fmt: skip
            settle = settles.get(handed.number)
            if settle is not None:
                delivery.settled, delivery.settled_us = _SETTLED[settle.how], settle.sent_us
            elif handed.no_ack and not delivery.draining:
                delivery.settled, delivery.settled_us = ACK, handed.at_us
            self.made.deliveries.append(delivery)
            if not self._view.is_quiet(handed.at_us, handed.at_us):
                self.made.lost_sessions.append((handed.at_us, handed.node, 0))
        self.made.shards = {name: {0: None} for name in self.topology.queues}
        settle_us = self._seen.setting.settle_ms * 1_000
        nodes = {handed.node for handed in self._seen.handed}
        self.made.lost_sessions += [
            (trouble.to_us + settle_us, node, 0) for trouble in self._seen.troubles for node in sorted(nodes)
        ]

    def _is_intact(self, handed: Handed) -> bool:
        publish = self._view.publishes.get(handed.message)
        return publish is None or handed.expiration == (None if handed.deaths else publish.expiration)

    def calls(self) -> None:
        """Who used a queue, deleted it, or was told that there is none."""
        for call in self._seen.calls:
            queue = self.topology.queues.get(call.queue)
            if queue is None:
                continue
            if call.kind in (outside.GET, outside.CONSUME) and call.client != DRAINER:
                self.made.touched.setdefault(call.queue)
            if call.kind in (outside.DELETE, outside.PURGE) and not call.code:
                purges = call.kind == outside.PURGE
                self.made.removals.append(Removal(call.queue, call.sent_us, call.answered_us, purges))
            if call.answered_us is None:
                continue
            if call.code == _NOT_FOUND and not self._may_be_new(call):
                self.made.disappearances.append(Disappearance(call.queue, 0, call.answered_us, "404"))
            elif call.outcome in (outside.OK, outside.EMPTY):
                if call.kind in (outside.DECLARE, outside.PASSIVE, outside.GET):
                    self.made.renewals.append(Renewal(call.queue, call.kind, call.sent_us, call.answered_us))
                elif call.kind == outside.CONSUME:
                    self.made.attachments.append(self._attachment(call, call.answered_us))
        end_us = self._seen.phases.end_us
        for queue in self.topology.queues.values():
            if queue.expires_ms is not None:
                # It may have gone and come unseen, with all that was in it: nothing of it is surely lost.
                self.made.removals.append(Removal(queue.name, end_us, end_us))

    def _may_be_new(self, gone: Call) -> bool:
        """Whether somebody used it, or may have declared it, while another one was told that it is not there."""
        return any(
            call.queue == gone.queue
            and call.sent_us <= (gone.answered_us or 0)
            and (call.answered_us is None or gone.sent_us <= call.answered_us)
            for call in self._view.calls.get(gone.queue, ())
            if call is not gone and (call.outcome in (outside.OK, outside.EMPTY) or call.answered_us is None)
        )

    def _attachment(self, call: Call, attached_us: int) -> Attachment:
        ends_us = [
            *(each.sent_us for each in self._view.calls[call.queue] if _cancels(each, call)),
            *(each.at_us for each in self._seen.cancelled if _names(each, call)),
            *self._releases_us(call, attached_us),
        ]
        holder = f"{call.connection} {call.tag}"
        return Attachment(call.queue, holder, call.sent_us, attached_us, min(ends_us, default=None))

    def _releases_us(self, call: Call, attached_us: int) -> Iterator[int]:
        """When its connection ended, or the cluster may have given up its node."""
        if call.connection in self._ends_us:
            yield self._ends_us[call.connection]
        settle_us = self._seen.setting.settle_ms * 1_000
        for trouble in self._seen.troubles:
            if trouble.to_us + settle_us >= attached_us:
                yield max(trouble.from_us, attached_us)

    def given_up(self, patience_us: int) -> None:
        """Who waited for an answer until a client's patience was over."""
        waiting: list[OutsiderPublish | Call] = [*self._seen.publishes, *self._seen.calls]
        for each in waiting:
            ended_us = self._ends_us.get(each.connection, 0)
            if each.outcome == outside.UNKNOWN and ended_us - each.sent_us >= patience_us:
                self.made.given_up.append((each.sent_us, each.client, each.node))


def _ttl_ms(publish: OutsiderPublish) -> int | None:
    good = publish.expiration is not None and is_good_expiration(publish.expiration)
    return int(publish.expiration or 0) if good else None


def _holder(handed: Handed) -> str:
    return f"{handed.connection} {handed.tag or 'gets'}"


def _names(one: Call | outside.Cancelled, consume: Call) -> bool:
    return (one.connection, one.tag) == (consume.connection, consume.tag)


def _cancels(call: Call, consume: Call) -> bool:
    return call.kind == outside.CANCEL and _names(call, consume)
