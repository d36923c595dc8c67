"""The deadlines of a stream's messages that have TTLs of their own (RULES J2), by the messages' offsets. HOT.

In order of deadlines, then of offsets. A deadline with its offset is one number, a *key* (`key_of`). The ones that came
last are *young*: a list that is put in order when somebody looks at it. When there are many, the later half of them
becomes a *run*: in order, and packed. So any deadline is put in its place by looking at the young alone: six to twelve
bytes a message, and what each costs does not depend on how many there are.

Each of many runs has a few that are due in any tick. So what the runs have is looked up for several ticks at once, and
is *near* then: a list in order, from which each tick takes a part. The runs still have it until somebody looks at them;
what is near is of this replica, and no part of the state.

Where it is cut follows from what happened to it alone, as with a queue's schedule (`node.shard.schedule`): replicas of
releases in which streams had one of those know these runs as theirs.
"""

from array import array
from bisect import bisect_left, bisect_right
from heapq import merge
from itertools import islice
from typing import Final

from mayfly.node.shard.timers import NEVER

_SHIFT: Final = 63
_OFFSETS: Final = (1 << _SHIFT) - 1
_SMALL: Final = 4
"""A run with less of its deadlines left than one in so many is put together with others."""
_FEW: Final = 8
"""To put less than one of so many runs in their places they are moved one by one."""
_NEAR_MS: Final = 1000
"""So far ahead what is due is looked up at most, ..."""
_NEAR_PIECES: Final = 8
"""...so many pieces of it at most, ..."""
_MOST_OFFSET_BITS: Final = 40
"""...and if all of its offsets are within that. Mostly far fewer bits do: such numbers are sooner put in order."""
_NONE: Final = -1


def key_of(deadline_ms: int, offset: int) -> int:
    """The number that stands for both."""
    return deadline_ms << _SHIFT | offset


def deadline_of(key: int) -> int:
    """The deadline of a key."""
    return key >> _SHIFT


def offset_of(key: int) -> int:
    """The offset of a key."""
    return key & _OFFSETS


def _packed(numbers: list[int], least: int, most: int) -> "array[int]":
    """How much each is above the least."""
    span = most - least
    kind = "H" if span < 1 << 16 else "I" if span < 1 << 32 else "Q"
    return array(kind, [number - least for number in numbers])


class DeadlineRun:
    """Keys in order, of which those before ``head`` have left."""

    __slots__ = ("_first_ms", "_first_offset", "_last_offset", "_offsets", "_times", "head")

    def __init__(self, deadlines_ms: list[int], offsets: list[int]) -> None:
        """At least one, in order."""
        self.head = 0
        self._first_ms = deadlines_ms[0]
        self._first_offset = min(offsets)
        self._last_offset = max(offsets)
        self._times = _packed(deadlines_ms, self._first_ms, deadlines_ms[-1])
        self._offsets = _packed(offsets, self._first_offset, self._last_offset)

    def count(self) -> int:
        """How many are there."""
        return len(self._times) - self.head

    def first(self) -> int:
        """The first key."""
        head = self.head
        return key_of(self._first_ms + self._times[head], self._first_offset + self._offsets[head])

    def due(self, until_ms: int) -> int:
        """How many have their deadline then or before."""
        return bisect_right(self._times, until_ms - self._first_ms, self.head) - self.head

    def before(self, key: int) -> int:
        """How many come before this key."""
        start, stop = self._at(deadline_of(key))
        return bisect_left(self._offsets, offset_of(key) - self._first_offset, start, stop) - self.head

    def _at(self, deadline_ms: int) -> tuple[int, int]:
        """From where to where this deadline stands."""
        above_ms = deadline_ms - self._first_ms
        start = bisect_left(self._times, above_ms, self.head)
        return start, bisect_right(self._times, above_ms, start)

    def offsets_at(self, deadline_ms: int) -> list[int]:
        """The offsets with this deadline, in order."""
        start, stop = self._at(deadline_ms)
        first = self._first_offset
        return [first + above for above in self._offsets[start:stop]]

    def keys(self, count: int) -> list[int]:
        """The first so many of those that are there."""
        start, stop = self.head, self.head + count
        base = key_of(self._first_ms, 0) + self._first_offset
        return [
            base + (above_ms << _SHIFT) + above
            for above_ms, above in zip(self._times[start:stop], self._offsets[start:stop], strict=True)
        ]

    def first_ms(self) -> int:
        """The first deadline."""
        return self._first_ms + self._times[self.head]

    def reach(self) -> tuple[int, int]:
        """No offset is below the first of these, and none above the second."""
        return self._first_offset, self._last_offset

    def near(self, count: int, from_ms: int, from_offset: int, offset_bits: int, found: list[int]) -> None:
        """The first so many of those that are there are added to these: how much each deadline is above the one, and
        behind that, in so many bits, its offset above the other."""
        start, stop = self.head, self.head + count
        base = (self._first_ms - from_ms << offset_bits) + self._first_offset - from_offset
        found += [
            base + (above_ms << offset_bits) + above
            for above_ms, above in zip(self._times[start:stop], self._offsets[start:stop], strict=True)
        ]

    def leave(self, count: int) -> None:
        """The first so many leave, and not all."""
        self.head += count
        if 2 * self.head >= len(self._times):
            del self._times[: self.head]
            del self._offsets[: self.head]
            self.head = 0

    def copy(self) -> "DeadlineRun":
        """As it is now, whatever becomes of this one."""
        copied = DeadlineRun([0], [0])
        copied._first_ms, copied._first_offset = self._first_ms, self._first_offset
        copied._last_offset = self._last_offset
        copied._times, copied._offsets = self._times[self.head :], self._offsets[self.head :]
        return copied

    def columns(self) -> tuple[list[int], list[int]]:
        """Deadlines and offsets of those that are there."""
        head = self.head
        first_ms, first_offset = self._first_ms, self._first_offset
        deadlines_ms = [first_ms + above_ms for above_ms in self._times[head:]]
        return deadlines_ms, [first_offset + above for above in self._offsets[head:]]


def run_of(keys: list[int]) -> DeadlineRun:
    """A run of these keys, which are in order and at least one."""
    return DeadlineRun([key >> _SHIFT for key in keys], [key & _OFFSETS for key in keys])


class Near:
    """All that runs have until some time and that has not left, in order, from the place ``at`` on."""

    __slots__ = ("at", "deadlines_ms", "offsets", "until_ms")

    def __init__(self, deadlines_ms: list[int], offsets: list[int], until_ms: int) -> None:
        self.deadlines_ms = deadlines_ms
        self.offsets = offsets
        self.until_ms = until_ms
        self.at = 0

    def end(self) -> int:
        """The key before which runs have nothing any more."""
        if self.at < len(self.offsets):
            return key_of(self.deadlines_ms[self.at], self.offsets[self.at])
        return key_of(self.until_ms + 1, 0)

    def place_from(self, key: int, start: int) -> int:
        """The first place, from this one on, that comes behind the key."""
        deadline_ms, offset = deadline_of(key), offset_of(key)
        place = bisect_left(self.deadlines_ms, deadline_ms, start)
        count = len(self.offsets)
        while place < count and self.deadlines_ms[place] == deadline_ms and self.offsets[place] < offset:
            place += 1
        return place


_NOT_NEAR: Final = Near([], [], NEVER)


class Taken:
    """Deadlines that have left together: the places ``start`` to ``stop`` of ``near``, and the keys ``others``, each of
    these before the place ``before`` of the others."""

    __slots__ = ("before", "near", "others", "start", "stop")

    def __init__(self, near: Near, start: int, stop: int, others: list[int], before: list[int]) -> None:
        self.near = near
        self.start = start
        self.stop = stop
        self.others = others
        self.before = before

    def count(self) -> int:
        """How many they are."""
        return self.stop - self.start + len(self.others)

    def columns(self) -> tuple[list[int], list[int]]:
        """The deadlines and the offsets of all of them, in order; in lists that are the caller's."""
        near = self.near
        deadlines_ms: list[int] = []
        offsets: list[int] = []
        start = self.start
        for number, key in enumerate(self.others):
            stop = self.before[number]
            deadlines_ms += near.deadlines_ms[start:stop]
            offsets += near.offsets[start:stop]
            deadlines_ms.append(deadline_of(key))
            offsets.append(offset_of(key))
            start = stop
        return deadlines_ms + near.deadlines_ms[start : self.stop], offsets + near.offsets[start : self.stop]

    def in_order(self) -> list[int]:
        """The keys of all of them."""
        near = self.near
        keys = [key_of(near.deadlines_ms[place], near.offsets[place]) for place in range(self.start, self.stop)]
        if not self.others:
            return keys
        keys += self.others
        keys.sort()
        return keys


class Deadlines:
    """The deadlines of one stream: ``young`` and ``runs``, these in the order of their first keys. ``count``: how many
    there are."""

    __slots__ = (
        "_ahead_ms", "_first_young", "_firsts", "_half", "_in_order", "_most_near", "_near", "_runs", "_young", "count",
    )  # fmt: skip

    def __init__(self, piece: int) -> None:
        """``piece``: at most so many are young; tests lower it."""
        self._half = max(1, piece // 2)
        self._young: list[int] = []
        self._in_order = True
        self._first_young = _NONE
        self._runs: list[DeadlineRun] = []
        self._firsts: list[int] = []
        self.count = 0
        self._near = _NOT_NEAR
        self._most_near = _NEAR_PIECES * piece
        self._ahead_ms = _NEAR_MS

    @property
    def runs(self) -> list[DeadlineRun]:
        """As they are now. Not to be changed."""
        self._settle()
        return self._runs

    def put(self, deadline_ms: int, offset: int) -> None:
        """One more; no two have one offset."""
        key = key_of(deadline_ms, offset)
        young = self._young
        if not young:
            self._first_young = key
        elif key < young[-1]:
            self._in_order = False
            if key < self._first_young:
                self._first_young = key
        young.append(key)
        self.count += 1
        if len(young) >= 2 * self._half:
            self._make_run()

    def young(self) -> list[int]:
        """The keys of the young, in order. Not to be changed."""
        if not self._in_order:
            self._young.sort()
            self._in_order = True
        return self._young

    def _make_run(self) -> None:
        """The later half of the young becomes a run, with what little is left of others."""
        self._settle()
        half = self._half
        young = self.young()
        keys = young[half:]
        del young[half:]
        if deadline_of(keys[0]) <= self._near.until_ms:
            self._near = _NOT_NEAR
        taken = 0
        number = 0
        while number < len(self._runs) and taken < half:
            run = self._runs[number]
            count = run.count()
            if count * _SMALL < half:
                keys += run.keys(count)
                taken += count
                del self._runs[number]
                del self._firsts[number]
            else:
                number += 1
        if taken:
            keys.sort()
        self._enter(run_of(keys))

    def _enter(self, run: DeadlineRun) -> None:
        first = run.first()
        at = bisect_left(self._firsts, first)
        self._firsts.insert(at, first)
        self._runs.insert(at, run)

    def next_due_ms(self) -> int:
        """The first deadline; NEVER when there is none."""
        near = self._near
        due_ms = NEVER
        if near is not _NOT_NEAR:
            due_ms = near.deadlines_ms[near.at]
        elif self._firsts:
            due_ms = deadline_of(self._firsts[0])
        if self._young:
            young_ms = deadline_of(self._first_young)
            if due_ms == NEVER or young_ms < due_ms:
                return young_ms
        return due_ms

    def take(self, until_ms: int, most: int) -> Taken:
        """The first, at most so many, with deadlines then or before; they leave."""
        if most <= 0 or not self.count or self.next_due_ms() > until_ms:
            return Taken(_NOT_NEAR, 0, 0, [], [])
        if not self._look_ahead(until_ms):
            keys = self._take_at_once(until_ms, most)
            return Taken(_NOT_NEAR, 0, 0, keys, [0] * len(keys))
        near = self._near
        start = near.at
        stop = bisect_right(near.deadlines_ms, until_ms, start)
        young = self.young()
        others = young[: bisect_left(young, key_of(until_ms + 1, 0))]
        before: list[int] = []
        place = start
        for key in others:
            place = near.place_from(key, place)
            if place - start + len(before) >= most:
                break
            before.append(place)
        if len(before) < len(others):
            del others[len(before) :]
        stop = min(stop, start + most - len(others))
        if others:
            del young[: len(others)]
            if young:
                self._first_young = young[0]
        near.at = stop
        self.count -= stop - start + len(others)
        if stop == len(near.offsets):
            self._settle()
            self._near = _NOT_NEAR
        return Taken(near, start, stop, others, before)

    def _look_ahead(self, until_ms: int) -> bool:
        """Have near what runs have until then; whether that could be done: not of too much."""
        near = self._near
        if near is not _NOT_NEAR:
            if until_ms <= near.until_ms:
                return True
            self._settle()
            self._near = _NOT_NEAR
        ahead_ms = self._ahead_ms
        while True:
            last_ms = until_ms + ahead_ms
            reached = bisect_left(self._firsts, key_of(last_ms + 1, 0))
            count = 0
            for run in self._runs[:reached]:
                count += run.due(last_ms)
                if count > self._most_near:
                    break
            if count <= self._most_near:
                break
            if not ahead_ms:
                self._ahead_ms = 0
                return False
            ahead_ms //= 2
        self._ahead_ms = min(2 * ahead_ms + 1, _NEAR_MS) if 4 * count < self._most_near else ahead_ms
        return not reached or self._bring_near(reached, last_ms)

    def _bring_near(self, reached: int, until_ms: int) -> bool:
        """What the first so many runs have until then is near, if one number can say each of it."""
        runs = self._runs[:reached]
        from_ms = runs[0].first_ms()
        from_offset, to_offset = runs[0].reach()
        for run in runs:
            first, last = run.reach()
            from_offset = min(from_offset, first)
            to_offset = max(to_offset, last)
        offset_bits = (to_offset - from_offset).bit_length()
        if offset_bits > _MOST_OFFSET_BITS:
            return False
        found: list[int] = []
        for run in runs:
            run.near(run.due(until_ms), from_ms, from_offset, offset_bits, found)
        found.sort()
        above = (1 << offset_bits) - 1
        self._near = Near(
            [from_ms + (each >> offset_bits) for each in found], [from_offset + (each & above) for each in found],
            until_ms,
        )
        return True

    def _settle(self) -> None:
        """What has left of what is near leaves the runs."""
        if self._near is not _NOT_NEAR:
            self._leave_runs(self._near.end(), None)

    def _take_at_once(self, until_ms: int, most: int) -> list[int]:
        """The keys of the first so many, where there are too many to look further ahead."""
        young = self.young()
        end = key_of(until_ms + 1, 0)
        # Those behind so many, and one more, have none of the first so many.
        reached = min(bisect_left(self._firsts, end), most + 1)
        due = bisect_left(young, end)
        for run in self._runs[:reached]:
            due += run.due(until_ms)
        if due > most:
            end = self._end_of(most, reached, until_ms)
        taken = young[: bisect_left(young, end)]
        if taken:
            del young[: len(taken)]
            if young:
                self._first_young = young[0]
        from_young = len(taken)
        self._leave_runs(end, taken)
        if len(taken) > from_young:
            taken.sort()
        self.count -= len(taken)
        return taken

    def _leave_runs(self, end: int, taken: list[int] | None) -> None:
        """What comes before this key leaves the runs; its keys are added to these."""
        reached = bisect_left(self._firsts, end)
        if not reached:
            return
        left: list[DeadlineRun] = []
        for run in self._runs[:reached]:
            count = run.before(end)
            if taken is not None:
                taken += run.keys(count)
            if count < run.count():
                run.leave(count)
                left.append(run)
        del self._runs[:reached]
        del self._firsts[:reached]
        if len(left) * _FEW < len(self._runs):
            for run in left:
                self._enter(run)
            return
        runs = left + self._runs
        firsts = [run.first() for run in left] + self._firsts
        order = sorted(range(len(runs)), key=firsts.__getitem__)
        self._runs = [runs[each] for each in order]
        self._firsts = [firsts[each] for each in order]

    def _end_of(self, most: int, reached: int, until_ms: int) -> int:
        """The key behind the first so many, of which there are more until then in the young and the first runs."""
        young = self._young
        runs = self._runs[:reached]
        # Before ``low_ms`` there are not too many, until ``high_ms`` there are.
        low_ms, high_ms = self.next_due_ms(), until_ms
        before = 0
        while low_ms < high_ms:
            middle_ms = (low_ms + high_ms) // 2
            count = bisect_left(young, key_of(middle_ms + 1, 0))
            for run in runs:
                if count > most:
                    break
                count += run.due(middle_ms)
            if count > most:
                high_ms = middle_ms
            else:
                low_ms = middle_ms + 1
                before = count
        if before == most:
            return key_of(low_ms, 0)
        at_once = [[offset_of(key) for key in young if deadline_of(key) == low_ms]]
        at_once += [run.offsets_at(low_ms) for run in runs]
        last = list(islice(merge(*at_once), most - before))[-1]
        return key_of(low_ms, last + 1)

    def next_run(self, after: int) -> list[int]:
        """A run leaves, the first that begins with this key or behind it, or the first of all: all of it. The young if
        there is no run."""
        self._settle()
        self._near = _NOT_NEAR
        if not self._runs:
            young = self.young()
            self._young = []
            self.count -= len(young)
            return young
        at = bisect_left(self._firsts, after)
        if at == len(self._runs):
            at = 0
        del self._firsts[at]
        run = self._runs.pop(at)
        self.count -= run.count()
        return run.keys(run.count())

    def put_run(self, keys: list[int]) -> None:
        """What is left of a run, or of the young, that `next_run` gave is back."""
        if not keys:
            return
        self.count += len(keys)
        if self._runs or self._young or len(keys) >= self._half:
            self._enter(run_of(keys))
        else:
            self._young = keys
            self._in_order = True
            self._first_young = keys[0]

    def restore(self, young: list[int], runs: list[DeadlineRun]) -> None:
        """Be what a snapshot says: the keys of the young, and the runs in order."""
        self._young = young
        self._in_order = True
        if young:
            self._first_young = young[0]
        self._runs = runs
        self._near = _NOT_NEAR
        self._firsts = [run.first() for run in runs]
        self.count = len(young) + sum([run.count() for run in runs])
