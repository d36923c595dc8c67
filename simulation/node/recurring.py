"""Clients of a queue in which messages recur: one publishes, replaces and cancels them, the other is given what comes
(RULES S6)."""

from __future__ import annotations

from typing import Any, Final

from pamqp import commands

from simulation.cluster.events import MILLISECOND_US
from simulation.node.actor import Actor
from simulation.node.amqp_client import ReceivedMessage
from simulation.node.history import CONFIRMED, Occurrence, Recurring
from simulation.node.world import World, content_of, id_of

RECURRENT: Final = "recurrent"
_MOST_AT_ONCE: Final = 4
_EVERY_S: Final = (1, 1, 2)
_ON_ITS_WAY_US: Final = 700 * MILLISECOND_US


def _declaration() -> commands.Queue.Declare:
    return commands.Queue.Declare(0, RECURRENT, durable=True, arguments={"x-allow-schedule": True})


def _key(recurring: Recurring) -> int:
    """Its message id."""
    return recurring.key or recurring.message_id


def _clock_ms(world: World) -> int:
    """The clock of its queue's shard; -1 where the queue moves, as each shard has one of its own."""
    return -1 if RECURRENT in world.history.moved else world.shard_clock_ms(RECURRENT)


class Recurrer(Actor):
    """Has some messages recur, and cancels some; from a time on it cancels all until none is left. Where their queue
    moves it also publishes others in the place of some."""

    def __init__(self, world: World, name: str, until_us: int) -> None:
        super().__init__(world, name)
        self.until_us = until_us
        self.publishing: dict[int, Recurring] = {}
        self.cancelling: dict[int, Recurring] = {}
        self.replacing: dict[int, Recurring] = {}
        """By tag, in whose place what is published is to come."""

    def begin(self) -> None:
        self.publishing, self.cancelling, self.replacing = {}, {}, {}
        self.call(_declaration(), lambda result: self._next())

    def _next(self) -> None:
        alive = [each for each in self.world.history.recurring.values() if each.cancelled_us < 0]
        wanted = [each for each in alive if each.cancelling_us < 0]
        if self.world.queue.now_us >= self.until_us:
            if not alive and not self.publishing:
                self.finish()
                return
            for each in alive:
                self._cancel(each)
        elif len(wanted) >= _MOST_AT_ONCE or (alive and self.random.random() < 0.3):
            self._cancel(self.random.choice(alive))
        else:
            self._publish()
        self.later(300 * MILLISECOND_US, self._next)

    def _publish(self) -> None:
        """Something new, or something in the place of what recurs."""
        world = self.world
        if self.client is None:
            return
        before = self._to_replace()
        world.next_message += 1
        every_s = self.random.choice(_EVERY_S)
        made = Recurring(
            world.next_message, 1000 * every_s, world.queue.now_us, _clock_ms(world), key=_key(before) if before else 0
        )
        world.history.recurring[made.message_id] = made
        world.cluster.trace.add("recurs", made.message_id, every_s)
        headers: dict[str, Any] = {"x-schedule": f"@every {every_s}s"}
        if self.random.random() < 0.3:
            headers["x-schedule-missed"] = "one"
        properties = commands.Basic.Properties(message_id=str(_key(made)), delivery_mode=2, headers=headers)
        tag = self.client.publish("", RECURRENT, content_of(made.message_id, 20), properties)
        self.publishing[tag] = made
        if before is not None:
            before.cancelling_us = world.queue.now_us
            self.replacing[tag] = before
        self.give_up_unless(lambda: tag not in self.publishing)

    def _to_replace(self) -> Recurring | None:
        """One that is known to recur, if its queue moves: what was there before may still be on its way then."""
        if RECURRENT not in self.world.history.moved or self.random.random() < 0.5:
            return None
        there = self.world.history.recurring.values()
        known = [each for each in there if each.outcome == CONFIRMED and each.cancelling_us < 0]
        return self.random.choice(known) if known else None

    def _cancel(self, recurring: Recurring) -> None:
        """In doubt it is asked again; then nothing may be waiting any more."""
        if self.client is None or recurring in self.cancelling.values():
            return
        for each in self.world.history.recurring.values():
            if _key(each) == _key(recurring) and each.cancelling_us < 0:
                each.cancelling_us = self.world.queue.now_us
        properties = commands.Basic.Properties(headers={"x-schedule-cancel": str(_key(recurring))})
        tag = self.client.publish("", RECURRENT, b"", properties)
        self.cancelling[tag] = recurring
        self.give_up_unless(lambda: tag not in self.cancelling)

    def on_confirm(self, tag: int, acknowledged: bool) -> None:
        world = self.world
        made = self.publishing.pop(tag, None)
        before = self.replacing.pop(tag, None)
        if made is not None and acknowledged:
            made.outcome, made.completed_us = CONFIRMED, world.queue.now_us
            if before is not None:
                before.replaced_us = before.cancelled_us = world.queue.now_us
                before.cancelled_ms = _clock_ms(world)
        cancelled = self.cancelling.pop(tag, None)
        if cancelled is None or not acknowledged:
            return
        # What was published in doubt may still be on its way, but not for long once all is calm.
        if cancelled.outcome == CONFIRMED or world.queue.now_us > self.until_us + _ON_ITS_WAY_US:
            cancelled.cancelled_us = world.queue.now_us
            cancelled.cancelled_ms = _clock_ms(world)
            world.cluster.trace.add("recurs no more", cancelled.message_id)


class Watcher(Actor):
    """Consumes what comes."""

    def begin(self) -> None:
        self.call(_declaration(), lambda result: self.consume(RECURRENT, 50, lambda tag: None))

    def _on_message(self, message: ReceivedMessage) -> None:
        world = self.world
        occurrence = Occurrence(
            id_of(message.body), world.queue.now_us, _clock_ms(world), message.redelivered
        )
        world.history.occurrences.append(occurrence)
        world.cluster.trace.add("came", occurrence.message_id, message.redelivered)
        if self.client is not None:
            self.client.settle(commands.Basic.Ack(message.delivery_tag))
