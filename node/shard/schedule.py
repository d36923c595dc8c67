"""Messages of a queue that wait for their time: in order of due times, then of publishing (RULES S2, S5). HOT.

While a message waits its ``enqueued_ms`` is its due time: from then on it counts as enqueued, so its TTL counts from
there (S3). What makes two messages with the same due time differ is where their contents stand in the log.

The next ones are *young*: objects in a list, which is put in order when somebody asks for it. When there are many, the
later half of them becomes a *run*: a line in order of time, packed but for its first messages. So any due time is put
in its place by looking at the young alone, and a million that wait are a few hundred runs, about twenty bytes a
message.

Of messages with an id a digest is kept (`node.shard.message_id`), 16 bytes, and an index leads from it to the run, so
that one that waits among a million is found at once (S4): about a hundred bytes a message altogether.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from typing import Final

from mayfly.node.shard.line import Line
from mayfly.node.shard.message import Message, is_before
from mayfly.node.shard.message_id import DIGEST_BYTES, NO_DIGEST
from mayfly.node.shard.run import TIME_SHIFT, ScheduleRun, joined, piece_of, place_of, run_of, split
from mayfly.node.shard.timers import NEVER

_SMALL: Final = 4
"""A run with less of its messages left than one in so many is put together with others."""
NO_END: Final = 1 << 63
"""A time behind all others."""
_FEW: Final = 16
"""So many runs are put in order; to find the first of more all runs are gone through. So many of the young are put in
their places one by one; with more all are put in order together."""
_NO_KEY: Final = 0
"""That of a message without an id; others may have it, too."""
_KEY_BYTES: Final = 8
_KEY_SHIFT: Final = 4
"""60 bits of a digest are its key: a number that takes no more memory than it must."""


def key_of(digest: bytes) -> int:
    """Under what a message with this digest is in the index."""
    return int.from_bytes(digest[:_KEY_BYTES], "little") >> _KEY_SHIFT


def keys_in(digests: bytes) -> list[int]:
    """The keys of digests as they stand in a run."""
    numbers = array("Q", digests)
    if sys.byteorder == "big":
        numbers.byteswap()
    return [number >> _KEY_SHIFT for number in numbers[:: DIGEST_BYTES // _KEY_BYTES]]


def _due_ms_of(message: Message) -> int:
    return message.enqueued_ms


def _place_of_first(run: ScheduleRun) -> int:
    return place_of(run.first())


def _is_rising(messages: list[Message]) -> bool:
    """Whether each comes after the one before, of messages in order of their due times."""
    before: Message | None = None
    for message in messages:
        if before is not None and before.enqueued_ms == message.enqueued_ms and not is_before(before, message):
            return False
        before = message
    return True


class Schedule:
    """The waiting messages of one queue: ``young``, and ``runs`` in order, by the places of their first messages.

    Where it is cut follows from what happened to it alone, so all replicas cut at the same places. ``digests`` are
    those of the young. Of these the first, so many as are ``_ordered``, are in order; no other is due before
    ``_loose_ms``. ``_with_id`` of the young have a digest.

    The index: ``named`` has how many of the young have a digest, once somebody has asked (``_is_filed``), until the
    next run is made; ``where`` the run of the message with a key; of keys that several have, ``shared`` says how many
    are in which run. Nothing but speed depends on it, and on what is in order yet.
    """

    __slots__ = (
        "_digests", "_is_filed", "_loose_ms", "_ordered", "_with_id", "_young", "body_bytes", "count", "half", "named",
        "run_places", "runs", "shared", "where",
    )  # fmt: skip

    def __init__(self, piece: int) -> None:
        """``piece``: at most so many are young; tests lower it."""
        self.half = max(1, piece // 2)
        self._young: list[Message] = []
        self._digests: list[bytes] = []
        self._with_id = 0
        self._ordered = 0
        self._loose_ms = NO_END
        self.runs: list[ScheduleRun] = []
        self.run_places: list[int] = []
        self.where: dict[int, ScheduleRun] = {}
        self.shared: dict[int, dict[ScheduleRun, int]] = {}
        self.named: dict[bytes, int] = {}
        self._is_filed = False
        self.count = 0
        """How many wait."""
        self.body_bytes = 0
        """Bytes of their bodies."""

    @property
    def young(self) -> list[Message]:
        """The young, in order. Not to be changed."""
        self._put_in_order()
        return self._young

    @property
    def digests(self) -> list[bytes]:
        """Those of the young, in their order. Not to be changed."""
        self._put_in_order()
        return self._digests

    def put(self, message: Message, digest: bytes = NO_DIGEST) -> None:
        """One more waits, until its ``enqueued_ms``; with the digest of its id it can be found."""
        young = self._young
        due_ms = message.enqueued_ms
        if self._ordered == len(young) and (not young or is_before(young[-1], message)):
            self._ordered += 1
        elif due_ms < self._loose_ms:
            self._loose_ms = due_ms
        young.append(message)
        self._digests.append(digest)
        if digest:
            self._with_id += 1
            if self._is_filed:
                self.named[digest] = self.named.get(digest, 0) + 1
        self.count += 1
        self.body_bytes += message.body_length
        if len(young) >= 2 * self.half:
            self._make_run()

    def _put_in_order(self) -> None:
        """The young are in order from now on. Of those in the same place the last that came is the first."""
        young = self._young
        ordered = self._ordered
        count = len(young)
        if ordered == count:
            return
        self._ordered = count
        self._loose_ms = NO_END
        if count - ordered <= _FEW:
            self._insert(ordered)
            return
        # By due times alone first, as floats, which are compared much faster than places.
        due_ms: list[float] = [float(message.enqueued_ms) for message in young]
        order = sorted(range(count), key=due_ms.__getitem__)
        arranged = [young[each] for each in order]
        if not _is_rising(arranged):
            places = [place_of(message) for message in young]
            order = list(range(count - 1, ordered - 1, -1))
            order += range(ordered)
            order.sort(key=places.__getitem__)
            arranged = [young[each] for each in order]
        self._young = arranged
        if self._with_id:
            digests = self._digests
            self._digests = [digests[each] for each in order]

    def _insert(self, ordered: int) -> None:
        """Those of the young behind the first so many are put in their places one by one."""
        young, digests = self._young, self._digests
        for number in range(ordered, len(young)):
            message = young.pop(number)
            digest = digests.pop(number)
            low, high = 0, number
            while low < high:
                middle = (low + high) // 2
                if is_before(young[middle], message):
                    low = middle + 1
                else:
                    high = middle
            young.insert(low, message)
            digests.insert(low, digest)

    def _file(self) -> None:
        """``named`` is known from now on."""
        if self._is_filed:
            return
        self._is_filed = True
        named = self.named = {}
        if self._with_id:
            for digest in self._digests:
                if digest:
                    named[digest] = named.get(digest, 0) + 1

    def _forget_young(self, digests: list[bytes]) -> None:
        """Young messages with these digests have left."""
        if not self._with_id:
            return
        named = self.named
        for digest in digests:
            if digest:
                self._with_id -= 1
                if self._is_filed:
                    count = named[digest] - 1
                    if count:
                        named[digest] = count
                    else:
                        del named[digest]

    def _note(self, digests: list[bytes], run: ScheduleRun) -> None:
        """The run, whose messages have these digests, is in the index from now on."""
        where, shared = self.where, self.shared
        keys = keys_in(run.digests)
        entries = dict.fromkeys(keys, run)
        if not shared and _NO_KEY not in entries and len(entries) == len(keys) and where.keys().isdisjoint(entries):
            where.update(entries)  # As it is nearly always.
            return
        for digest in digests:
            if not digest:
                continue
            key = key_of(digest)
            if key in where:
                shared[key] = {where.pop(key): 1}
            elif key not in shared:
                where[key] = run
                continue
            holders = shared[key]
            holders[run] = holders.get(run, 0) + 1

    def _forget(self, digests: list[bytes], run: ScheduleRun) -> None:
        """Messages with these digests have left the run."""
        for digest in digests:
            if not digest:
                continue
            key = key_of(digest)
            holders = self.shared.get(key)
            if holders is None:
                del self.where[key]
                continue
            count = holders[run] - 1
            if count:
                holders[run] = count
            else:
                del holders[run]
            if len(holders) == 1:
                for last, left in holders.items():
                    if left == 1:
                        self.where[key] = last
                        del self.shared[key]

    def _make_run(self) -> None:
        """The later half of the young becomes a run, with what little is left of others."""
        self._put_in_order()
        half = self.half
        messages = self._young[half:]
        digests = self._digests[half:]
        del self._young[half:]
        del self._digests[half:]
        self._ordered = half
        self.named = {}
        self._is_filed = False
        if self._with_id:
            self._with_id = half - self._digests.count(NO_DIGEST)
        taken = 0
        number = 0
        while number < len(self.runs) and taken < half:
            run = self.runs[number]
            count = run.count()
            if count * _SMALL < half:
                messages += run.live()
                left = run.digest_list()
                self._forget(left, run)
                digests += left
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
            self._note(digests, run)

    def _enter(self, run: ScheduleRun) -> None:
        place = place_of(run.first())
        at = bisect_left(self.run_places, place)
        self.run_places.insert(at, place)
        self.runs.insert(at, run)

    def next_due_ms(self) -> int:
        """When the first is due; NEVER when none waits."""
        due_ms = self._loose_ms
        if self._ordered:
            due_ms = min(due_ms, self._young[0].enqueued_ms)
        if self.run_places:
            due_ms = min(due_ms, self.run_places[0] >> TIME_SHIFT)
        return due_ms if due_ms < NO_END else NEVER

    def is_due(self, now_ms: int) -> bool:
        """Whether the first is due."""
        return 0 <= self.next_due_ms() <= now_ms

    def take(self, until_ms: int, most: int, digests: list[bytes] | None = None) -> list[Message]:
        """The first ones, at most so many, that are due then; they leave. Their ids' digests go into ``digests``."""
        taken: list[Message] = []
        if not self.count or self.next_due_ms() > until_ms:
            return taken  # After every entry somebody asks.
        self._put_in_order()
        while len(taken) < most:
            left = most - len(taken)
            if self.run_places and (not self._young or self.run_places[0] < place_of(self._young[0])):
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
        young = self._young
        stop = min(most, len(young))
        if self.run_places:
            # Those at the same place, too: retries of what comes of one message that recurs may stand at one (S5, S6).
            stop = min(stop, bisect_right(young, self.run_places[0], key=place_of))
        if stop and young[stop - 1].enqueued_ms > until_ms:
            stop = bisect_left(young, until_ms + 1, 0, stop, key=_due_ms_of)
        taken += young[:stop]
        left = self._digests[:stop]
        self._forget_young(left)
        if digests is not None:
            digests += left
        del young[:stop]
        del self._digests[:stop]
        self._ordered -= stop
        return stop

    def _take_from_run(self, until_ms: int, most: int, taken: list[Message], digests: list[bytes] | None) -> int:
        """How many of the first run come next."""
        run = self.runs.pop(0)
        self.run_places.pop(0)
        limit = place_of(self._young[0]) if self._young else -1
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
        self._file()
        if digest in self.named:
            self._remove_young(digest, most, removed)
        if len(removed) < most:
            for run in self._runs_of(digest, self._holders(digest), most):
                self._remove_from_run(run, digest, most - len(removed), removed)
                if len(removed) == most:
                    break
        self.count -= len(removed)
        for message in removed:
            self.body_bytes -= message.body_length
        removed.sort(key=place_of)
        return removed

    def _holders(self, digest: bytes) -> dict[ScheduleRun, int]:
        """In which runs messages with this digest are, or with another one with the same key, and how many."""
        key = key_of(digest)
        holders = self.shared.get(key)
        if holders is not None:
            return holders
        return {self.where[key]: 1} if key in self.where else {}

    def _runs_of(self, digest: bytes, holders: dict[ScheduleRun, int], most: int) -> list[ScheduleRun]:
        """The first of these runs in which there are messages with this digest, in order; ``most`` and maybe a few."""
        runs: list[ScheduleRun] = []
        if len(holders) <= _FEW:
            runs = list(holders)
            runs.sort(key=_place_of_first)
            return runs
        for run in self.runs:
            if run in holders and run.places_of(digest, 1):
                runs.append(run)
                if len(runs) == most:
                    break
        return runs

    def _remove_young(self, digest: bytes, most: int, removed: list[Message]) -> None:
        self._put_in_order()
        numbers = [number for number, each in enumerate(self._digests) if each == digest][:most]
        for number in reversed(numbers):
            removed.append(self._young.pop(number))
            del self._digests[number]
        self._ordered = len(self._young)
        self._forget_young([digest] * len(numbers))

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
        self._file()
        return len(holders) > than or self.named.get(digest, 0) + sum(holders.values()) > than

    def has(self, digest: bytes) -> bool:
        """Whether a message with this digest waits."""
        self._file()
        if digest in self.named:
            return True
        return any(run.places_of(digest, 1) for run in self._runs_of(digest, self._holders(digest), 1))

    def find(self, digest: bytes, most: int, place: int = -1, until_ms: int = NO_END) -> list[Message]:
        """At most so many messages with this digest that stand behind a ``place_of`` and are due until then, in order;
        they stay."""
        found: list[Message] = []
        self._file()
        if digest in self.named:
            self._put_in_order()
            start = bisect_right(self._young, place, key=place_of)
            found = [
                self._young[number] for number in range(start, len(self._young)) if self._digests[number] == digest
            ]
            del found[most:]
        for run in self._runs_of(digest, self._holders(digest), len(self.runs)):
            first = place_of(run.first())
            if first >> TIME_SHIFT > until_ms or (len(found) >= most and place_of(found[most - 1]) < first):
                break
            found += run.named_behind(digest, place, most)
            found.sort(key=place_of)
            del found[most:]
        return [message for message in found if message.enqueued_ms <= until_ms]

    def behind(self, place: int, until_ms: int, most: int) -> list[Message]:
        """At most so many of those that stand behind a ``place_of`` and are due until then, in order; they stay."""
        self._put_in_order()
        start = bisect_right(self._young, place, key=place_of)
        found = self._young[start : start + most]
        for first, run in zip(self.run_places, self.runs, strict=True):
            if first >> TIME_SHIFT > until_ms or (len(found) >= most and place_of(found[most - 1]) < first):
                break
            found += run.behind(place, most)
            found.sort(key=place_of)
            del found[most:]
        return [message for message in found if message.enqueued_ms <= until_ms]

    def _be_young(self, messages: list[Message], digests: list[bytes]) -> None:
        """These are the young from now on, in order."""
        self._young = messages
        self._digests = digests
        self._with_id = len(digests) - digests.count(NO_DIGEST)
        self._ordered = len(messages)
        self._loose_ms = NO_END

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
        self._be_young(young, split(digests, len(young)))
        self.count = len(young)
        self.body_bytes = body_bytes

    def restore_run(self, run: ScheduleRun, body_bytes: int) -> None:
        """The next run of the snapshot."""
        self.runs.append(run)
        self.run_places.append(place_of(run.first()))
        self.count += run.count()
        self.body_bytes += body_bytes
        if run.digests:
            self._note(run.digest_list(), run)
