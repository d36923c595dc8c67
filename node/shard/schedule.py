"""Messages of a queue that wait for their time: in order of due times, then of publishing (RULES S2, S5). HOT.

While a message waits its ``enqueued_ms`` is its due time: from then on it counts as enqueued, so its TTL counts from
there (S3). What makes two messages with the same due time differ is where their contents stand in the log.

The next ones are *young*: objects in a sorted list. When there are many, the later half of them becomes a *run*: a line
in order of time, packed but for its first messages. So any due time is put in its place by looking at the young alone,
and a million that wait are a few hundred runs, about twenty bytes a message.

Of messages with an id a digest is kept (`node.shard.message_id`), 16 bytes, and an index leads from it to the run, so
that one that waits among a million is found at once (S4): about a hundred bytes a message altogether.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from typing import Final

from mayfly.node.shard.line import Line
from mayfly.node.shard.message import Message
from mayfly.node.shard.message_id import NO_DIGEST
from mayfly.node.shard.run import TIME_SHIFT, ScheduleRun, joined, piece_of, place_of, run_of, split
from mayfly.node.shard.timers import NEVER

_SMALL: Final = 4
"""A run with less of its messages left than one in so many is put together with others."""
NO_END: Final = 1 << 63
"""A time behind all others."""
_FEW: Final = 16
"""So many runs are put in order; to find the first of more all runs are gone through."""
_KEY_BYTES: Final = 8
_KEY_SHIFT: Final = 4
"""60 bits of a digest are its key: a number that takes no more memory than it must."""


def key_of(digest: bytes) -> int:
    """Under what a message with this digest is in the index."""
    return int.from_bytes(digest[:_KEY_BYTES], "little") >> _KEY_SHIFT


def _take_one(holders: dict[ScheduleRun | None, int], run: ScheduleRun | None) -> None:
    count = holders[run] - 1
    if count:
        holders[run] = count
    else:
        del holders[run]


def _place_of_first(run: ScheduleRun) -> int:
    return place_of(run.first())


class Schedule:
    """The waiting messages of one queue: ``young`` and ``runs``, both in order, by the places of their first messages.

    Where it is cut follows from what happened to it alone, so all replicas cut at the same places. ``digests`` are
    those of the young. ``where`` is the index: the run of the message with a key, None for one that is young. Of keys
    that several have, ``shared`` says how many are in which run, or young. Nothing but speed depends on the index.
    """

    __slots__ = (
        "body_bytes", "count", "digests", "half", "places", "run_places", "runs", "shared", "where", "young",
    )  # fmt: skip

    def __init__(self, piece: int) -> None:
        """``piece``: at most so many are young; tests lower it."""
        self.half = max(1, piece // 2)
        self.young: list[Message] = []
        self.places: list[int] = []
        self.digests: list[bytes] = []
        self.runs: list[ScheduleRun] = []
        self.run_places: list[int] = []
        self.where: dict[int, ScheduleRun | None] = {}
        self.shared: dict[int, dict[ScheduleRun | None, int]] = {}
        self.count = 0
        """How many wait."""
        self.body_bytes = 0
        """Bytes of their bodies."""

    def put(self, message: Message, digest: bytes = NO_DIGEST) -> None:
        """One more waits, until its ``enqueued_ms``; with the digest of its id it can be found."""
        place = place_of(message)
        places = self.places
        if not places or place > places[-1]:
            places.append(place)
            self.young.append(message)
            self.digests.append(digest)
        else:
            at = bisect_left(places, place)
            places.insert(at, place)
            self.young.insert(at, message)
            self.digests.insert(at, digest)
        if digest:
            self._note(digest, None)
        self.count += 1
        self.body_bytes += message.body_length
        if len(places) >= 2 * self.half:
            self._make_run()

    def _note(self, digest: bytes, run: ScheduleRun | None) -> None:
        """A message with this digest is there, in a run or young."""
        key = key_of(digest)
        holders = self.shared.get(key)
        if holders is None:
            if key not in self.where:
                self.where[key] = run
                return
            holders = self.shared[key] = {self.where.pop(key): 1}
        holders[run] = holders.get(run, 0) + 1

    def _forget(self, digests: list[bytes], run: ScheduleRun | None) -> None:
        """Messages with these digests have left the run, or the young."""
        for digest in digests:
            if not digest:
                continue
            key = key_of(digest)
            holders = self.shared.get(key)
            if holders is None:
                del self.where[key]
                continue
            _take_one(holders, run)
            if len(holders) == 1:
                for last, count in holders.items():
                    if count == 1:
                        self.where[key] = last
                        del self.shared[key]

    def _move(self, digests: list[bytes], before: ScheduleRun | None, run: ScheduleRun) -> None:
        """Messages with these digests are in another run now."""
        for digest in digests:
            if not digest:
                continue
            key = key_of(digest)
            holders = self.shared.get(key)
            if holders is None:
                self.where[key] = run
            else:
                _take_one(holders, before)
                holders[run] = holders.get(run, 0) + 1

    def _make_run(self) -> None:
        """The later half of the young becomes a run, with what little is left of others."""
        half = self.half
        messages = self.young[half:]
        digests = self.digests[half:]
        moved: list[tuple[list[bytes], ScheduleRun | None]] = [(digests.copy(), None)]
        del self.young[half:]
        del self.places[half:]
        del self.digests[half:]
        taken = 0
        number = 0
        while number < len(self.runs) and taken < half:
            run = self.runs[number]
            count = run.count()
            if count * _SMALL < half:
                messages += run.live()
                moved.append((run.digest_list(), run))
                digests += moved[-1][0]
                taken += count
                del self.runs[number]
                del self.run_places[number]
            else:
                number += 1
        if taken:
            places = [place_of(message) for message in messages]
            order = sorted(range(len(messages)), key=places.__getitem__)
            messages = [messages[each] for each in order]
            digests = [digests[each] for each in order]
        run = run_of(messages, digests, half)
        self._enter(run)
        if run.digests:
            for some, before in moved:
                self._move(some, before, run)

    def _enter(self, run: ScheduleRun) -> None:
        place = place_of(run.first())
        at = bisect_left(self.run_places, place)
        self.run_places.insert(at, place)
        self.runs.insert(at, run)

    def next_due_ms(self) -> int:
        """When the first is due; NEVER when none waits."""
        if self.run_places and (not self.places or self.run_places[0] < self.places[0]):
            return self.run_places[0] >> TIME_SHIFT
        return self.young[0].enqueued_ms if self.young else NEVER

    def take(self, until_ms: int, most: int, digests: list[bytes] | None = None) -> list[Message]:
        """The first ones, at most so many, that are due then; they leave. Their ids' digests go into ``digests``."""
        taken: list[Message] = []
        while len(taken) < most:
            left = most - len(taken)
            if self.run_places and (not self.places or self.run_places[0] < self.places[0]):
                before = self._take_from_run(until_ms, left, taken, digests)
            else:
                before = self._take_young(until_ms, left, taken, digests)
            if not before:
                break
        self.count -= len(taken)
        for message in taken:
            self.body_bytes -= message.body_length
        return taken

    def _take_young(self, until_ms: int, most: int, taken: list[Message], digests: list[bytes] | None) -> int:
        """How many of the young come next."""
        young = self.young
        stop = min(most, len(young))
        if self.run_places:
            # Those at the same place, too: retries of what comes of one message that recurs may stand at one (S5, S6).
            stop = min(stop, bisect_right(self.places, self.run_places[0]))
        if stop and young[stop - 1].enqueued_ms > until_ms:
            stop = bisect_left(self.places, until_ms + 1 << TIME_SHIFT, 0, stop)
        taken += young[:stop]
        left = self.digests[:stop]
        self._forget(left, None)
        if digests is not None:
            digests += left
        del young[:stop]
        del self.places[:stop]
        del self.digests[:stop]
        return stop

    def _take_from_run(self, until_ms: int, most: int, taken: list[Message], digests: list[bytes] | None) -> int:
        """How many of the first run come next."""
        run = self.runs.pop(0)
        self.run_places.pop(0)
        limit = self.places[0] if self.places else -1
        if self.run_places and (limit < 0 or self.run_places[0] < limit):
            limit = self.run_places[0]
        limit_ms = limit >> TIME_SHIFT
        total = 0
        more = True
        while more and total < most and run.items:
            items = run.items
            position = run.head
            stop = min(len(items), position + most - total)
            timed = 0
            while position < stop:
                message = items[position]
                due_ms = message.enqueued_ms
                if due_ms > until_ms or (limit >= 0 and due_ms >= limit_ms and place_of(message) > limit):
                    more = False
                    break
                if message.deadline_ms >= 0:
                    timed += 1
                position += 1
            count = position - run.head
            taken += items[run.head : position]
            run.timed -= timed
            total += count
            if count:
                run.advance(count)
        if run.digests or digests is not None:
            left = run.take_digests(total)
            self._forget(left, run)
            if digests is not None:
                digests += left
        if run.items:
            self._enter(run)
        return total

    def remove(self, digest: bytes, most: int) -> list[Message]:
        """At most so many messages with this digest leave; in order of due times if they are all of them."""
        removed: list[Message] = []
        holders = self._holders(digest)
        if None in holders:
            self._remove_young(digest, most, removed)
        for run in self._runs_of(digest, holders, most):
            if len(removed) == most:
                break
            self._remove_from_run(run, digest, most - len(removed), removed)
        self.count -= len(removed)
        for message in removed:
            self.body_bytes -= message.body_length
        removed.sort(key=place_of)
        return removed

    def _holders(self, digest: bytes) -> dict[ScheduleRun | None, int]:
        """Where messages with this digest are, or with another one with the same key; None stands for the young."""
        key = key_of(digest)
        holders = self.shared.get(key)
        if holders is not None:
            return holders
        return {self.where[key]: 1} if key in self.where else {}

    def _runs_of(self, digest: bytes, holders: dict[ScheduleRun | None, int], most: int) -> list[ScheduleRun]:
        """The first of these runs in which there are messages with this digest, in order; ``most`` and maybe a few."""
        runs: list[ScheduleRun] = []
        if len(holders) <= _FEW:
            runs = [run for run in holders if run is not None]
            runs.sort(key=_place_of_first)
            return runs
        for run in self.runs:
            if run in holders and run.places_of(digest, 1):
                runs.append(run)
                if len(runs) == most:
                    break
        return runs

    def _remove_young(self, digest: bytes, most: int, removed: list[Message]) -> None:
        numbers = [number for number, each in enumerate(self.digests) if each == digest][:most]
        for number in reversed(numbers):
            removed.append(self.young.pop(number))
            del self.places[number]
            del self.digests[number]
        self._forget([digest] * len(numbers), None)

    def _remove_from_run(self, run: ScheduleRun, digest: bytes, most: int, removed: list[Message]) -> None:
        places = run.places_of(digest, most)
        if not places:
            return
        number = bisect_left(self.run_places, place_of(run.first()))
        while self.runs[number] is not run:
            number += 1  # Where what recurs waits beside a retry of what came of it, two have one place.
        del self.runs[number]
        del self.run_places[number]
        removed += run.remove(places)
        self._forget([digest] * len(places), run)
        if run.items:
            self._enter(run)

    def has_more(self, digest: bytes, than: int) -> bool:
        """Whether more wait with this digest. Others with the same key count too: who finds such has tried 2^30."""
        holders = self._holders(digest)
        return len(holders) > than or sum(holders.values()) > than

    def has(self, digest: bytes) -> bool:
        """Whether a message with this digest waits."""
        holders = self._holders(digest)
        if None in holders and digest in self.digests:
            return True
        return any(run.places_of(digest, 1) for run in self._runs_of(digest, holders, 1))

    def find(self, digest: bytes, most: int, place: int = -1, until_ms: int = NO_END) -> list[Message]:
        """At most so many messages with this digest that stand behind a ``place_of`` and are due until then, in order;
        they stay."""
        holders = self._holders(digest)
        found: list[Message] = []
        if None in holders:
            start = bisect_right(self.places, place)
            found = [self.young[number] for number in range(start, len(self.young)) if self.digests[number] == digest]
            del found[most:]
        for run in self._runs_of(digest, holders, len(self.runs)):
            first = place_of(run.first())
            if first >> TIME_SHIFT > until_ms or (len(found) >= most and place_of(found[most - 1]) < first):
                break
            found += run.named_behind(digest, place, most)
            found.sort(key=place_of)
            del found[most:]
        return [message for message in found if message.enqueued_ms <= until_ms]

    def behind(self, place: int, until_ms: int, most: int) -> list[Message]:
        """At most so many of those that stand behind a ``place_of`` and are due until then, in order; they stay."""
        start = bisect_right(self.places, place)
        found = self.young[start : start + most]
        for first, run in zip(self.run_places, self.runs, strict=True):
            if first >> TIME_SHIFT > until_ms or (len(found) >= most and place_of(found[most - 1]) < first):
                break
            found += run.behind(place, most)
            found.sort(key=place_of)
            del found[most:]
        return [message for message in found if message.enqueued_ms <= until_ms]

    def retime(self, queue_ttl_ms: int) -> None:
        """The deadlines of all are by this TTL of the queue from now on, -1 for none (RULES T12)."""
        young = Line()
        young.put_together(self.young, deque(), [], 0)
        young.retime(queue_ttl_ms)
        for run in self.runs:
            run.retime(queue_ttl_ms)

    def lines(self) -> list[Line]:
        """Lines that together have all that waits; for who takes them over."""
        young = Line()
        young.put_together(self.young, deque(), [], sum([1 for message in self.young if message.deadline_ms >= 0]))
        return [young, *self.runs]

    def digest_rows(self) -> list[bytes]:
        """The digests as a snapshot has them: of the young, and of each run; nothing if there are none."""
        rows = [joined(self.digests), *[run.digests for run in self.runs]]
        return rows if any(rows) else []

    def empty_run(self) -> ScheduleRun:
        """A run, to be filled in."""
        return ScheduleRun(piece_of(self.half))

    def restore_young(self, young: list[Message], digests: bytes, body_bytes: int) -> None:
        """Begin to be what a snapshot says; its runs follow."""
        self.young = young
        self.places = [place_of(message) for message in young]
        self.digests = split(digests, len(young))
        for digest in self.digests:
            if digest:
                self._note(digest, None)
        self.count = len(young)
        self.body_bytes = body_bytes

    def restore_run(self, run: ScheduleRun, body_bytes: int) -> None:
        """The next run of the snapshot."""
        self.runs.append(run)
        self.run_places.append(place_of(run.first()))
        self.count += run.count()
        self.body_bytes += body_bytes
        if run.digests:
            for digest in run.digest_list():
                if digest:
                    self._note(digest, run)
