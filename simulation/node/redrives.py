"""A dead-letter queue that is redriven while everything else goes on (RULES R1), with a judge of its own.

Nobody consumes from its queues, so at the end the replicas have what was moved and what has stayed, in order. What died
is noted in a journal (R4), which has to have as much in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from pamqp import commands

from mayfly.cluster.group.group import Group
from mayfly.cluster.log.batch import CorruptStore
from mayfly.node.amqp.content import decode_properties
from mayfly.node.catalog import QueueRecord
from mayfly.node.dead_letter import RedriveTerms
from mayfly.node.duties.contents import content_of as content_of_entry
from mayfly.node.operating.views.redrive_views import PreviewPart, preview_steps
from mayfly.node.shard.commands import LetterContent
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.redrive import DONE, PAUSED, RUNNING, Redrive
from mayfly.node.shard.redrive_commands import PAUSE, RESUME, encode_change_redrive, encode_start_redrive
from mayfly.node.shard.results import IN_USE, RedriveState, Refused
from simulation.cluster.events import MILLISECOND_US, SECOND_US
from simulation.cluster.randomness import stream
from simulation.node.actor import Actor
from simulation.node.world import World, content_of, id_of
from simulation.simulator import Violation

if TYPE_CHECKING:
    from simulation.node.nodes import SimulatedNode

WORK = "redriven.work"
DEAD = "redriven.dead"
JOURNAL = "redriven.journal"
MESSAGES = 90
_AGAIN_US = 2 * SECOND_US
_LOOK_US = 50 * MILLISECOND_US
_EVERYTHING = 1 << 30
_PICK = "pick"


class Buried(Actor):
    """Publishes messages that die at once; each again, under another number, until it is confirmed."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.left = MESSAGES
        self._under_way: dict[int, None] = {}

    def is_done(self) -> bool:
        """Whether all are confirmed."""
        return self.left <= 0

    def begin(self) -> None:
        arguments: Any = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD, "x-journal": JOURNAL}
        self._declare([(DEAD, {}), (JOURNAL, {"x-queue-type": "stream"}), (WORK, arguments)])

    def _declare(self, queues: list[tuple[str, dict[str, Any]]]) -> None:
        """These queues, one after the other; then it publishes."""
        if not queues:
            self._publish()
            return
        name, arguments = queues[0]
        declare = commands.Queue.Declare(0, name, durable=True, arguments=arguments)
        self.call(declare, lambda _: self._declare(queues[1:]))

    def ended(self) -> None:
        self._under_way.clear()

    def on_confirm(self, tag: int, acknowledged: bool) -> None:
        if self._under_way.pop(tag, 0) is None and acknowledged:
            self.left -= 1
        if not self.is_done() and not self._under_way:
            self.later(5 * MILLISECOND_US, self._publish)

    def _publish(self) -> None:
        client = self.client
        for _ in range(min(10, self.left)):
            if client is None:
                return
            self.world.next_message += 1
            number = self.world.next_message
            properties = commands.Basic.Properties(
                delivery_mode=2, expiration="1", message_id=str(number),
                headers={_PICK: "yes" if number % 3 else "no"},
            )  # fmt: skip
            tag = client.publish("", WORK, content_of(number, self.random.choice((0, 30, 400))), properties)
            self._under_way[tag] = None
        self.give_up_unless(lambda: not self._under_way)


class _Seen:
    """A queue as the replica has it that is furthest ahead."""

    def __init__(self, program: SimulatedNode, group: Group, record: QueueRecord, queue: Queue) -> None:
        self.program = program
        self.record = record
        self.queue = queue
        self._group = group

    def numbers(self) -> list[int]:
        """What is in it, in order."""
        return [id_of(content.body) for content in self._contents()]

    def noted(self) -> list[int]:
        """What its records are of, in order, if it is a journal."""
        headers: list[Any] = [decode_properties(content.header).headers for content in self._contents()]
        return [int(each["message-id"]) for each in headers]

    def _contents(self) -> Iterator[LetterContent]:
        for line in self.queue.lines():
            for message in line.live():
                yield content_of_entry(self._group.log.data(message.index), message)


class RedrivingOperator:
    """Waits until all are dead, previews, starts, pauses and resumes; asks again whatever is not answered."""

    def __init__(self, world: World, seed: int, programs: Callable[[], list[SimulatedNode]]) -> None:
        self._world = world
        self._random: Random = stream(seed, "redrives")
        self._programs = programs
        self._buried = Buried(world, "buried")
        self._rate = self._random.choice((0, 15, 25, 50))
        self._terms = RedriveTerms(headers=((_PICK, "yes"),)).encoded()
        self._pauses = self._random.choice((0, 1, 3))
        self._asked_us = -_AGAIN_US
        self._steady_us = -1
        self._count = -1
        self.before: list[int] = []
        """What was dead at the preview, in order."""
        self.ahead: PreviewPart | None = None
        self.redrive_id = 0
        self._starts = 0
        """How often it was asked for one: more than one may have run where the first was not answered in time."""

    def start(self) -> None:
        """Begin."""
        self._buried.start()
        self._later()

    def finish(self) -> None:
        """No more messages."""
        self._buried.finish()

    def is_done(self) -> bool:
        """Whether the redrive is over."""
        redrive = self._redrive()
        return redrive is not None and redrive.state == DONE

    def is_settled(self) -> bool:
        """Whether all that it has moved has arrived besides."""
        return self.is_done() and not any(
            shard.has_lanes for program in self._programs() for shard in program.engine.shards.values()
        )

    def _later(self) -> None:
        self._world.queue.after(_LOOK_US, self._look)

    def _look(self) -> None:
        if self.is_done():
            return
        self._later()
        now_us = self._world.queue.now_us
        seen = self._seen(DEAD)
        if seen is None or now_us - self._asked_us < _AGAIN_US:
            return
        redrive = seen.queue.redrive
        if redrive is not None:
            self.redrive_id = redrive.redrive_id
        if self.redrive_id:
            self._change(seen)
        elif self._buried.is_done() and self._is_steady(seen, now_us):
            self._begin(seen)

    def _is_steady(self, seen: _Seen, now_us: int) -> bool:
        """Whether nothing more dies."""
        if seen.queue.ready_count() != self._count:
            self._count, self._steady_us = seen.queue.ready_count(), now_us
        return self._count >= MESSAGES and now_us - self._steady_us >= SECOND_US // 2

    def _begin(self, seen: _Seen) -> None:
        engine, record = seen.program.engine, seen.record
        now_ms = seen.program.machine.now_ms()
        try:
            self.before = seen.numbers()
            steps = preview_steps(
                engine, record.shard, record.id, self._terms, None, _EVERYTHING, _EVERYTHING, now_ms
            )
            self.ahead = next(step for step in steps if step is not None)
        except (CorruptStore, LookupError):
            return  # a disk that has lost something: its node finds out before long
        self._starts += 1
        self._ask(record, encode_start_redrive(record.id, self._terms, self._rate))

    def _change(self, seen: _Seen) -> None:
        redrive = seen.queue.redrive
        if redrive is None:
            return
        if redrive.state == PAUSED:
            self._ask(seen.record, encode_change_redrive(seen.record.id, RESUME))
        elif redrive.state == RUNNING and self._pauses and self._random.random() < 0.1:
            self._pauses -= 1
            self._ask(seen.record, encode_change_redrive(seen.record.id, PAUSE))
            self._asked_us -= round(_AGAIN_US * 0.8)

    def _ask(self, record: QueueRecord, command: bytes) -> None:
        self._asked_us = self._world.queue.now_us
        program = self._random.choice(self._programs())

        def answered(result: object) -> None:
            if isinstance(result, RedriveState):
                self.redrive_id = result.redrive_id
            elif isinstance(result, Refused) and result.reason == IN_USE:
                redrive = self._redrive()
                self.redrive_id = 0 if redrive is None else redrive.redrive_id
            self._asked_us = min(self._asked_us, self._world.queue.now_us - _AGAIN_US)

        self._world.cluster.trace.add("redrive", record.name, len(command))
        program.machine.call(partial(self._submit, program, record, command, answered))

    @staticmethod
    def _submit(
        program: SimulatedNode, record: QueueRecord, command: bytes, answered: Callable[[object], None]
    ) -> None:
        program.engine.shard(record.shard).submit(command, answered)

    def _redrive(self) -> Redrive | None:
        seen = self._seen(DEAD)
        return None if seen is None else seen.queue.redrive

    def _seen(self, name: str) -> _Seen | None:
        best: tuple[int, _Seen] | None = None
        for program in self._programs():
            record = program.engine.catalog.queue("/", name)
            group = None if record is None else program.engine.host.groups.get(record.shard)
            if record is None or group is None:
                continue
            queue = program.engine.shards[record.shard].queue(record.id)
            if queue is not None and (best is None or group.applied > best[0]):
                best = (group.applied, _Seen(program, group, record, queue))
        return None if best is None else best[1]

    # ------------------------------------------------------------------ the verdict

    def judge(self) -> list[Violation]:
        """None lost, none twice, in order, no other than the preview has said, and counted right."""
        dead, work = self._seen(DEAD), self._seen(WORK)
        if dead is None or work is None or self.ahead is None or dead.queue.redrive is None:
            return [Violation("redrive", "it could not be started in time")]
        redrive = dead.queue.redrive
        if redrive.state != DONE:
            return [Violation("redrive", f"it is not over: {redrive.moved} moved, {redrive.stayed} stayed")]
        moved, left = work.numbers(), dead.numbers()
        faults = [Violation("redrive", text) for text in self._faults(redrive, moved, left)]
        journal = self._seen(JOURNAL)
        noted = [] if journal is None else journal.noted()
        known = set(self.before)
        if sorted(noted) != sorted(moved + left):
            faults.append(Violation("R4", f"{sorted(moved + left)} have died once each, and {sorted(noted)} are noted"))
        elif [number for number in noted if number in known] != self.before:
            faults.append(Violation("R4", f"{self.before} have died in this order, and {noted} are noted"))
        return faults

    def _faults(self, redrive: Redrive, moved: list[int], left: list[int]) -> list[str]:
        assert self.ahead is not None
        picked = [number for number in self.before if number % 3]
        known = set(self.before)
        faults = []
        if len(set(moved)) != len(moved):
            faults.append(f"some came twice: {moved}")
        if [number for number in moved if number in known] != picked:
            faults.append(f"{picked} were to move in this order, and {moved} have")
        if [number for number in left if number in known] != [number for number in self.before if not number % 3]:
            faults.append(f"{left} are left of {self.before}")
        if redrive.moved != len(moved) and self._starts == 1:
            faults.append(f"{redrive.moved} are said to have moved, and {len(moved)} have")
        if self.ahead.moves != len(picked) or len(self.ahead.rows) != len(picked):
            faults.append(f"the preview has said {self.ahead.moves}, and {len(picked)} were to move")
        return faults
