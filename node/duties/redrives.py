"""What the leader of a shard does for queues that are redriven (RULES R1).

    a redrive is running   -> REDRIVE: the next messages that match, as many as the rate and an entry allow

One command is under way for each redrive, so where it goes on is what the log says; a new leader goes on there. Nobody
moves anything before the catalog here is as new as the lead: where a message has no route it stays, and is passed.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from mayfly.node.catalog import QueueRecord
from mayfly.node.dead_letter import RedriveRouter, RedriveTerms, terms_of
from mayfly.node.duties.contents import content_of
from mayfly.node.duties.large_bodies import LargeBodies
from mayfly.node.duties.port import DutyPort
from mayfly.node.duties.redrive_judge import MOVES, NOT_ITS_OWN, Judged, RedriveJudge
from mayfly.node.duties.tenure import Tenure
from mayfly.node.limits import (
    DEAD_LETTERS_PER_ENTRY,
    DEAD_LETTERS_ROUTED_AHEAD,
    REDRIVE_LOOKS,
    TRANSFER_BYTES,
)
from mayfly.node.shard import commands
from mayfly.node.shard.message import Message
from mayfly.node.shard.queue import Queue
from mayfly.node.shard.redrive import Place, Redrive
from mayfly.node.shard.redrive_commands import CANCEL, Redriven, encode_change_redrive, encode_redrive
from mayfly.node.shard.redrive_scan import LineAhead, ahead_of
from mayfly.node.shard.shard import Shard

logger = logging.getLogger(__name__)

AGAIN_MS: Final = 1000
"""A command without effect for so long is given again."""

REDRIVES_PER_LOOK: Final = 4
"""Of several in a shard so many have their turn in one go."""


class _Progress:
    """Of one redrive, as far as this leader has come: what it has read ahead, and which step is under way."""

    __slots__ = ("ahead", "at", "given_ms", "lanes", "place", "redrive_id", "step", "tag", "terms")

    def __init__(self, redrive_id: int, terms: RedriveTerms, step: int) -> None:
        self.redrive_id = redrive_id
        self.terms = terms
        self.step = step
        self.tag = 0
        self.given_ms = 0
        self.ahead: LineAhead | None = None
        self.at = 0
        self.place = Place(False, 0, 0, 0, 0, 0)
        self.lanes: set[int] = set()
        """The queues to which messages went that may have to wait for them in a lane."""

    def begin(self, ahead: LineAhead, place: Place | None) -> None:
        """These come next, behind the place."""
        self.ahead = ahead
        self.at = 0
        self.place = ahead.place_of(None)
        if place is not None and (place.is_back, place.priority) == ahead.name:
            self.place = place

    def next(self) -> Message | None:
        """What has been read and not looked at."""
        ahead = self.ahead
        return ahead.messages[self.at] if ahead is not None and self.at < len(ahead.messages) else None


def _content(
    entry: Callable[[int], bytes], large: LargeBodies | None
) -> Callable[[Message], commands.LetterContent]:
    """What reads a message; of what is large without the body."""
    return large.in_shard if large is not None else lambda message: content_of(entry(message.index), message)


class RedriveDuty:
    """The duty for one shard."""

    def __init__(
        self,
        shard: Shard,
        port: DutyPort,
        give: Callable[[bytes], object],
        entry: Callable[[int], bytes],
        clock: Callable[[int], int],
        large: LargeBodies | None = None,
        tenure: Tenure | None = None,
    ) -> None:
        """`give`, `entry`, `clock`, `large` and `tenure` as in `node.duties.shard_duties`."""
        self.looks: int = REDRIVE_LOOKS
        """Messages that are looked at in one go."""
        self.most_in_lanes: int = DEAD_LETTERS_ROUTED_AHEAD
        """While so many wait for other queues nothing is moved. Tests lower these."""
        self._shard = shard
        self._port = port
        self._catalog = port.catalog
        self._give = give
        self._clock = clock
        self._large = large
        self._judge = RedriveJudge(RedriveRouter(port.catalog), _content(entry, large))
        self._tenure = tenure or Tenure()
        self._given = 0
        self._now_ms = 0
        self.forget()

    def forget(self) -> None:
        """Begin anew: what was given before may never have arrived."""
        self._progress: dict[int, _Progress] = {}
        self._turn = 0
        self._fresh: set[int] = set()
        """Redrives since whose start the catalog here was brought up to date."""
        self._barrier_under_way = False
        self._is_in_line = False

    def _turn_came(self, tenure: int) -> None:
        """There is a turn to route in, for which it has stood in line."""
        if self._tenure.is_still(tenure):
            self._is_in_line = False
            self.perform(self._now_ms)

    def perform(self, now_ms: int) -> None:
        """Give what is due."""
        self._now_ms = now_ms
        running = self._shard.running_redrives()
        if not running:
            if self._progress:
                self._progress.clear()
                self._fresh.clear()
            return
        first = self._turn % len(running)
        for queue, redrive in [*running[first:], *running[:first]][:REDRIVES_PER_LOOK]:
            self._turn += 1
            if redrive.redrive_id not in self._fresh:
                self._freshen([each.redrive_id for _, each in running])
            if redrive.redrive_id in self._fresh:
                self._go_on(queue, redrive, now_ms)

    def _freshen(self, redrive_ids: list[int]) -> None:
        if self._barrier_under_way:
            return
        self._barrier_under_way = True
        tenure = self._tenure.number

        def fresh() -> None:
            if self._tenure.is_still(tenure):
                self._barrier_under_way = False
                self._fresh.update(redrive_ids)

        self._port.barrier(fresh)

    def _go_on(self, queue: Queue, redrive: Redrive, now_ms: int) -> None:
        progress = self._progress_of(queue, redrive)
        if progress is None:
            return
        if progress.step > redrive.step:
            if now_ms - progress.given_ms < AGAIN_MS:
                return
            progress.step, progress.ahead = redrive.step, None
        elif redrive.tag != progress.tag:
            # An earlier one, which came late, was this step: what was read ahead may not be what follows.
            progress.ahead = None
        if queue.is_returning() or self._is_held_up(progress):
            return
        most = redrive.may_move(self._clock(now_ms), DEAD_LETTERS_PER_ENTRY)
        if not most:
            return
        turns = self._catalog.routing_turns
        if turns.is_over:
            if not self._is_in_line:
                self._is_in_line = True
                turns.enter(self, partial(self._turn_came, self._tenure.number))
            return
        self._given += 1
        progress.tag = self._given
        command, large = self._look(queue, redrive, progress, most, self._clock(now_ms))
        progress.step, progress.given_ms = redrive.step + 1, now_ms
        if self._large is not None and large is not None:
            self._large.give(command, large)
        else:
            self._give(command)

    def _is_held_up(self, progress: _Progress) -> bool:
        """Whether as much waits in lanes of this redrive as may. What waits for other queues, such as a journal that
        takes nothing, does not hold it up."""
        if self._shard.in_lanes < self.most_in_lanes:
            return False
        lanes = [self._shard.lane(queue_id) for queue_id in progress.lanes]
        return sum([len(lane.items) for lane in lanes if lane is not None]) >= self.most_in_lanes

    def _progress_of(self, queue: Queue, redrive: Redrive) -> _Progress | None:
        progress = self._progress.get(queue.queue_id)
        if progress is None or progress.redrive_id != redrive.redrive_id:
            try:
                terms = terms_of(redrive.terms)
            except msgspec.MsgspecError as error:
                logger.error(
                    "the redrive of queue %r in vhost %r can't be read, and is cancelled: %s",
                    queue.name, queue.vhost, error,
                )  # fmt: skip
                self._give(encode_change_redrive(queue.queue_id, CANCEL, redrive.redrive_id))
                return None
            progress = self._progress[queue.queue_id] = _Progress(redrive.redrive_id, terms, redrive.step)
        return progress

    def _look(
        self, queue: Queue, redrive: Redrive, progress: _Progress, most: int, time_ms: int
    ) -> tuple[bytes, Message | None]:
        """The next REDRIVE: what of the next messages moves, at most so many, and how far that is. And the message, if
        that is a large one, which goes alone: its body is not in the command."""
        if progress.next() is None:
            progress.begin(ahead_of(queue, redrive.place, redrive.started_ms), redrive.place)
        ahead = progress.ahead
        assert ahead is not None
        done = progress.next() is None
        going: list[Redriven] = []
        stayed = redrive.stayed
        looked = size = 0
        large: Message | None = None
        turns = self._catalog.routing_turns
        while looked < self.looks and len(going) < most and size < TRANSFER_BYTES:
            message = progress.next()
            if message is None or (looked and turns.is_over):
                break
            is_large = self._large is not None and self._large.has(message)
            if is_large and going:
                break
            progress.at += 1
            looked += 1
            judged = self._judge.judge(queue, redrive, progress.terms, message, time_ms)
            if judged.fate == MOVES:
                redriven = self._redriven(message, judged)
                going.append(redriven)
                progress.lanes.update(redriven.local_targets)
                for _, target in redriven.remote_targets:
                    progress.lanes.add(target)
                size += message.content_length
                if is_large:
                    large = message
                    break
            else:
                progress.place = ahead.place_of(message)
                stayed += judged.fate != NOT_ITS_OWN
        command = encode_redrive(
            queue.queue_id, redrive.redrive_id, redrive.step + 1, going, stayed, progress.place, done, progress.tag
        )
        return command, large

    def _redriven(self, message: Message, judged: Judged) -> Redriven:
        decision, original = judged.decision, judged.original
        assert decision is not None
        found = decision.content
        assert found is not None
        assert original is not None
        letter = commands.LetterContent(
            found.exchange_and_key, found.header, found.body, body_elsewhere=original.body_elsewhere
        )
        local, remote = self._split(decision.targets)
        return Redriven(message.index, message.offset, message.enqueued_ms, local, remote, letter)

    def _split(self, targets: Sequence[QueueRecord]) -> tuple[list[int], list[tuple[int, int]]]:
        own = self._shard.shard_id
        local = [queue.id for queue in targets if queue.shard == own]
        return local, [(queue.shard, queue.id) for queue in targets if queue.shard != own]
