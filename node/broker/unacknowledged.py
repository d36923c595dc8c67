"""The deliveries of one channel that the client has not settled yet.

Delivery tags count up from 1 per channel (AMQP 0-9-1, 1.8.3.9), delivery ids count
up from 1 per holder (a consumer, or the channel's basic.get), so a run of
deliveries is four numbers however long it is.  Settling in order moves one
number; settling out of order marks tags in a set until the gap closes.
"""

from __future__ import annotations

from bisect import bisect_right

from node.shard.commands import NUMBER_PAIR, RANGE, SETTLE, SETTLE_HEAD, encode_settle


class Holder:
    """Who holds deliveries in a shard: a consumer, or a channel's basic.get on a queue."""

    def __init__(self, holder_id: int, shard_id: int, queue_id: int, by_get: bool = False) -> None:
        self.holder_id: int = holder_id
        self.shard_id: int = shard_id
        self.queue_id: int = queue_id
        self.by_get: bool = by_get
        # False once the shard has dropped the session: settling means nothing any more.
        self.alive: bool = True


class Run:
    """Consecutive delivery tags with consecutive delivery ids of one holder."""

    def __init__(self, first_tag: int, count: int, holder: Holder, first_delivery_id: int) -> None:
        self.lowest_tag: int = first_tag
        self.end_tag: int = first_tag + count
        # delivery id = tag + offset, for every tag of the run
        self.offset: int = first_delivery_id - first_tag
        self.holder: Holder = holder
        # Settled tags above lowest_tag; None while everything was settled in order.
        self.settled: set[int] | None = None


class Settlement:
    """Delivery ids of one holder with one outcome, in the order in which they were settled."""

    def __init__(self, holder: Holder, outcome: int, first: int, last: int) -> None:
        self.holder: Holder = holder
        self.outcome: int = outcome
        self.first: int = first
        self.last: int = last
        # All ids, once they are no rising run first..last any more.
        self.scattered: list[int] | None = None

    def add(self, first: int, last: int) -> None:
        """The ids first..last are settled as well."""
        scattered = self.scattered
        if scattered is not None:
            scattered.extend(range(first, last + 1))
        elif first == self.last + 1:
            self.last = last
        else:
            self.scattered = [*range(self.first, self.last + 1), *range(first, last + 1)]

    def encode(self) -> bytes:
        """The SETTLE command."""
        holder = self.holder
        if self.scattered is not None:
            return encode_settle(holder.queue_id, holder.holder_id, self.outcome, self.scattered)
        return SETTLE_HEAD.pack(
            SETTLE, self.outcome, RANGE, 0, holder.queue_id, holder.holder_id
        ) + NUMBER_PAIR.pack(self.first, self.last)


class UnknownTag(Exception):
    """A delivery tag that is not outstanding on the channel (406)."""

    def __init__(self, tag: int) -> None:
        super().__init__(tag)
        self.tag = tag


class Unacknowledged:
    """Maps delivery tags to what they stand for in the shards."""

    def __init__(self) -> None:
        self.next_tag: int = 1
        self.count: int = 0
        self.got: int = 0
        """Those of them that came by basic.get."""
        self._runs: list[Run] = []
        self._head: int = 0
        # What was settled since `take`, by holder in order of outcome changes.
        self._settlements: list[Settlement] = []
        self._last_of: dict[int, Settlement] = {}
        self._last: Settlement | None = None

    # -- deliveries -----------------------------------------------------------

    def skip(self, count: int) -> int:
        """Tags for deliveries that need no acknowledgement; the first of them."""
        first = self.next_tag
        self.next_tag = first + count
        return first

    def hold(self, holder: Holder, first_delivery_id: int, count: int) -> int:
        """Tags for `count` deliveries that stay outstanding; the first of them."""
        first = self.next_tag
        self.next_tag = first + count
        self.count += count
        if holder.by_get:
            self.got += count
        runs = self._runs
        if runs:
            last = runs[-1]
            if last.holder is holder and last.end_tag == first and last.offset == first_delivery_id - first:
                last.end_tag = first + count
                return first
        runs.append(Run(first, count, holder, first_delivery_id))
        return first

    # -- settlements ----------------------------------------------------------

    def settle(self, tag: int, multiple: bool, outcome: int) -> None:
        """Settle one tag, or all up to and with it (0: all).

        Raises UnknownTag if the tag is not outstanding; nothing is settled then.
        """
        runs = self._runs
        head = self._head
        if not multiple and head < len(runs):
            # The hot way: settled one by one in the order of delivery.
            run = runs[head]
            if run.lowest_tag == tag and run.settled is None:
                delivery_id = tag + run.offset
                last = self._last
                if (
                    last is not None
                    and last.last + 1 == delivery_id
                    and last.holder is run.holder
                    and last.outcome == outcome
                    and last.scattered is None
                ):
                    last.last = delivery_id
                else:
                    self._note(run.holder, outcome, delivery_id, delivery_id)
                self.count -= 1
                if run.holder.by_get:
                    self.got -= 1
                run.lowest_tag = tag + 1
                if run.lowest_tag == run.end_tag:
                    self._pop_head()
                return
        if multiple and tag == 0:
            self._settle_up_to(self.next_tag - 1, outcome)
            return
        position = self._find(tag)
        if multiple:
            self._settle_up_to(tag, outcome)
            return
        run = runs[position]
        self._note(run.holder, outcome, tag + run.offset, tag + run.offset)
        self._gone(run.holder, 1)
        self._mark(run, tag)
        if run.lowest_tag == run.end_tag and position == self._head:
            self._pop_head()

    def outstanding(self, tag: int, multiple: bool, after: int = 0) -> list[int]:
        """The tags that `settle` would settle, in order; of several only those above `after`, and the others take no
        time.  Raises UnknownTag as `settle` does."""
        if not multiple:
            self._find(tag)
            return [tag]
        if tag:
            self._find(tag)
        else:
            tag = self.next_tag - 1
        tags: list[int] = []
        runs = self._runs
        first = bisect_right(runs, after + 1, lo=self._head, key=_lowest_tag) - 1
        for position in range(max(first, self._head), len(runs)):
            run = runs[position]
            if run.lowest_tag > tag:
                break
            settled = run.settled or ()
            lowest = max(run.lowest_tag, after + 1)
            tags += [each for each in range(lowest, min(tag + 1, run.end_tag)) if each not in settled]
        return tags

    def holder_of(self, tag: int) -> Holder:
        """Who holds an outstanding delivery.  Raises UnknownTag."""
        return self._runs[self._find(tag)].holder

    def take(self) -> list[Settlement]:
        """What was settled since the last call; per holder in the order of the calls."""
        settlements = self._settlements
        self._settlements = []
        self._last_of = {}
        self._last = None
        return settlements

    # -- the end of holders ---------------------------------------------------

    def forget_shard(self, shard_id: int) -> None:
        """The shard dropped this node's session: its tags stay known to the client but
        settle nothing (the messages were returned there)."""
        for run in self._runs[self._head :]:
            if run.holder.shard_id == shard_id:
                run.holder.alive = False

    def holders(self) -> list[Holder]:
        """Who holds anything on this channel, each once, in the order of first delivery."""
        seen: dict[int, Holder] = {}
        for run in self._runs[self._head :]:
            if run.lowest_tag < run.end_tag:
                seen.setdefault(run.holder.holder_id, run.holder)
        return list(seen.values())

    # -- inside ---------------------------------------------------------------

    def _gone(self, holder: Holder, count: int) -> None:
        """So many deliveries of this holder are outstanding no more."""
        self.count -= count
        if holder.by_get:
            self.got -= count

    def _note(self, holder: Holder, outcome: int, first: int, last: int) -> None:
        """The holder's delivery ids first..last have this outcome."""
        if not holder.alive:
            return
        settlement = self._last_of.get(holder.holder_id)
        if settlement is not None and settlement.outcome == outcome:
            settlement.add(first, last)
        else:
            settlement = Settlement(holder, outcome, first, last)
            self._last_of[holder.holder_id] = settlement
            self._settlements.append(settlement)
        self._last = settlement

    def _find(self, tag: int) -> int:
        """The index of the run in which the tag is outstanding."""
        position = bisect_right(self._runs, tag, lo=self._head, key=_lowest_tag) - 1
        if position < self._head:
            raise UnknownTag(tag)
        run = self._runs[position]
        if tag >= run.end_tag or (run.settled is not None and tag in run.settled):
            raise UnknownTag(tag)
        return position

    def _mark(self, run: Run, tag: int) -> None:
        settled = run.settled
        if tag != run.lowest_tag:
            if settled is None:
                settled = run.settled = set()
            settled.add(tag)
            return
        lowest = tag + 1
        if settled is not None:
            while lowest in settled:
                settled.discard(lowest)
                lowest += 1
            if not settled:
                run.settled = None
        run.lowest_tag = lowest

    def _settle_up_to(self, tag: int, outcome: int) -> None:
        runs = self._runs
        while self._head < len(runs):
            run = runs[self._head]
            if run.lowest_tag > tag:
                return
            end = min(tag + 1, run.end_tag)
            offset = run.offset
            settled = run.settled
            if settled is None:
                self._gone(run.holder, end - run.lowest_tag)
                self._note(run.holder, outcome, run.lowest_tag + offset, end - 1 + offset)
                run.lowest_tag = end
            else:
                for each in range(run.lowest_tag, end):
                    if each in settled:
                        settled.discard(each)
                    else:
                        self._note(run.holder, outcome, each + offset, each + offset)
                        self._gone(run.holder, 1)
                while end in settled:
                    settled.discard(end)
                    end += 1
                if not settled:
                    run.settled = None
                run.lowest_tag = end
            if run.lowest_tag < run.end_tag:
                return
            self._pop_head()

    def _pop_head(self) -> None:
        """Drop the run at the head and those after it that were settled out of order: an
        exhausted run must not stand at the head, its end is another run's first tag."""
        runs = self._runs
        head = self._head + 1
        while head < len(runs) and runs[head].lowest_tag == runs[head].end_tag:
            head += 1
        if head == len(runs):
            runs.clear()
            head = 0
        elif head > 64 and head * 2 > len(runs):
            del runs[:head]
            head = 0
        self._head = head


def _lowest_tag(run: Run) -> int:
    return run.lowest_tag
