"""The deliveries of one channel that the client has not settled yet.

Delivery tags count up from 1 per channel (AMQP 0-9-1, 1.8.3.9), delivery ids count
up from 1 per holder (a consumer, or the channel's basic.get), so a run of up to
MOST_IN_RUN deliveries is a few numbers.  Settling in order moves one of them;
settling out of order sets a bit until the gap closes.  A run goes when all of it is
settled, wherever it stands: what is kept goes by what is outstanding, not by what
came after the oldest delivery.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from mayfly.node.shard.commands import NUMBER_PAIR, RANGE, SETTLE, SETTLE_HEAD, encode_settle

MOST_IN_RUN: Final = 512
"""Tags from the lowest outstanding one of a run to its end: as many bits are the most that one open delivery keeps."""

_SLACK_RUNS: Final = 16
"""Runs that are over may stay up to this number, or up to the number of the others."""


class DeliveryHolder:
    """Who holds deliveries in a shard: a consumer, or a channel's basic.get on a queue."""

    def __init__(self, holder_id: int, shard_id: int, queue_id: int, timeout_ms: int = -1) -> None:
        """`timeout_ms` is how long it may hold a delivery, -1 for ever."""
        self.holder_id: int = holder_id
        self.shard_id: int = shard_id
        self.queue_id: int = queue_id
        # False once the shard has dropped the session: settling means nothing any more.
        self.alive: bool = True
        self.timeout_ms: int = timeout_ms
        self.successor: DeliveryHolder | None = None
        """Who gets the same consumer's deliveries now, in the shard to which the queue has moved."""

    @property
    def latest(self) -> DeliveryHolder:
        """Who gets the consumer's deliveries now: itself, or the last of its successors."""
        holder = self
        while holder.successor is not None:
            holder = holder.successor
        return holder


class DeliveryRun:
    """Consecutive delivery tags with consecutive delivery ids of one holder; over when all are settled."""

    def __init__(self, first_tag: int, count: int, holder: DeliveryHolder, first_delivery_id: int) -> None:
        self.lowest_tag: int = first_tag
        self.end_tag: int = first_tag + count
        # delivery id = tag + offset, for every tag of the run
        self.offset: int = first_delivery_id - first_tag
        self.holder: DeliveryHolder = holder
        # Bit n: lowest_tag + n was settled out of order. Never bit 0: lowest_tag is outstanding, or the run is over.
        self.settled: int = 0


class Settlement:
    """Delivery ids of one holder with one outcome, in the order in which they were settled."""

    def __init__(self, holder: DeliveryHolder, outcome: int, first: int, last: int) -> None:
        self.holder: DeliveryHolder = holder
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

    @property
    def count(self) -> int:
        """How many ids."""
        return self.last - self.first + 1 if self.scattered is None else len(self.scattered)

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
        self._runs: list[DeliveryRun] = []
        # Those before the head are over, and so are this many behind it, neither first nor last.
        self._head: int = 0
        self._spent: int = 0
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

    def hold(self, holder: DeliveryHolder, first_delivery_id: int, count: int) -> int:
        """Tags for `count` deliveries that stay outstanding; the first of them."""
        first = self.next_tag
        self.next_tag = first + count
        self.count += count
        runs = self._runs
        if runs:
            last = runs[-1]
            if (
                last.holder is holder
                and last.end_tag == first
                and last.offset == first_delivery_id - first
                and first + count - last.lowest_tag <= MOST_IN_RUN
            ):
                last.end_tag = first + count
                return first
        tag = first
        while count > MOST_IN_RUN:
            runs.append(DeliveryRun(tag, MOST_IN_RUN, holder, first_delivery_id))
            tag += MOST_IN_RUN
            first_delivery_id += MOST_IN_RUN
            count -= MOST_IN_RUN
        runs.append(DeliveryRun(tag, count, holder, first_delivery_id))
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
            if run.lowest_tag == tag and run.settled == 0:
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
        self.count -= 1
        if tag != run.lowest_tag:
            run.settled |= 1 << (tag - run.lowest_tag)
            return
        self._advance(run, tag + 1)
        if run.lowest_tag == run.end_tag:
            self._drop(position)

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
            each = max(run.lowest_tag, after + 1)
            end = min(tag + 1, run.end_tag)
            while each < end:
                open_up_to = _end_of_gap(run, each, end)
                tags.extend(range(each, open_up_to))
                each = _end_of_settled(run, open_up_to)
        return tags

    def holder_of(self, tag: int) -> DeliveryHolder:
        """Who holds an outstanding delivery.  Raises UnknownTag."""
        return self._runs[self._find(tag)].holder

    def take(self) -> list[Settlement]:
        """What was settled since the last call; per holder in the order of the calls."""
        settlements = self._settlements
        self._settlements = []
        self._last_of = {}
        self._last = None
        return settlements

    def oldest_tags(self) -> dict[DeliveryHolder, int]:
        """The lowest outstanding tag of each holder whose settlements mean something still."""
        oldest: dict[DeliveryHolder, int] = {}
        for run in self._runs[self._head :]:
            if run.lowest_tag < run.end_tag and run.holder.alive:
                oldest.setdefault(run.holder, run.lowest_tag)
        return oldest

    # -- the end of holders ---------------------------------------------------

    def forget_shard(self, shard_id: int) -> None:
        """The shard dropped this node's session: its tags stay known to the client but
        settle nothing (the messages were returned there)."""
        for run in self._runs[self._head :]:
            if run.holder.shard_id == shard_id:
                run.holder.alive = False

    def holders(self) -> list[DeliveryHolder]:
        """Who holds anything on this channel, each once, in the order of first delivery."""
        seen: dict[int, DeliveryHolder] = {}
        for run in self._runs[self._head :]:
            if run.lowest_tag < run.end_tag:
                seen.setdefault(run.holder.holder_id, run.holder)
        return list(seen.values())

    # -- inside ---------------------------------------------------------------

    def _note(self, holder: DeliveryHolder, outcome: int, first: int, last: int) -> None:
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
        if tag >= run.end_tag or (run.settled >> (tag - run.lowest_tag)) & 1:
            raise UnknownTag(tag)
        return position

    def _advance(self, run: DeliveryRun, lowest: int) -> None:
        """All below this tag is settled: the next one that is outstanding, or the end, is the run's lowest."""
        if run.settled != 0:
            settled = run.settled >> (lowest - run.lowest_tag)
            # As many ones as it ends with.
            closed = (~settled & (settled + 1)).bit_length() - 1
            run.settled = settled >> closed
            lowest += closed
        run.lowest_tag = lowest

    def _settle_up_to(self, tag: int, outcome: int) -> None:
        runs = self._runs
        while self._head < len(runs):
            run = runs[self._head]
            if run.lowest_tag > tag:
                return
            end = min(tag + 1, run.end_tag)
            each = run.lowest_tag
            if run.settled == 0:
                self.count -= end - each
                self._note(run.holder, outcome, each + run.offset, end - 1 + run.offset)
                run.lowest_tag = end
            else:
                while each < end:
                    open_up_to = _end_of_gap(run, each, end)
                    self.count -= open_up_to - each
                    self._note(run.holder, outcome, each + run.offset, open_up_to - 1 + run.offset)
                    each = _end_of_settled(run, open_up_to)
                self._advance(run, end)
            if run.lowest_tag < run.end_tag:
                return
            self._pop_head()

    def _pop_head(self) -> None:
        """The run at the head is over.  Those after it that were settled out of order go with it: an exhausted run
        must not stand at the head, its end is another run's first tag."""
        runs = self._runs
        head = self._head + 1
        if self._spent != 0:
            while runs[head].lowest_tag == runs[head].end_tag:
                head += 1
                self._spent -= 1
        if head == len(runs):
            runs.clear()
            head = 0
        self._head = head
        over = head + self._spent
        if over > _SLACK_RUNS and over * 2 > len(runs):
            self._forget_spent()

    def _drop(self, position: int) -> None:
        """A run is over, wherever it stands."""
        runs = self._runs
        if position == self._head:
            self._pop_head()
            return
        if position < len(runs) - 1:
            self._spent += 1
        else:
            # At the end none stays, or what is held next would go on with it.
            runs.pop()
            while runs[-1].lowest_tag == runs[-1].end_tag:
                runs.pop()
                self._spent -= 1
        over = self._head + self._spent
        if over > _SLACK_RUNS and over * 2 > len(runs):
            self._forget_spent()

    def _forget_spent(self) -> None:
        """Take out the runs that are over."""
        runs = self._runs
        if self._spent == 0:
            del runs[: self._head]
        else:
            runs[:] = [run for run in runs[self._head :] if run.lowest_tag < run.end_tag]
        self._head = self._spent = 0


def _end_of_gap(run: DeliveryRun, tag: int, end: int) -> int:
    """The first tag above this one, which is outstanding, that was settled; `end` if that is below."""
    settled = run.settled >> (tag - run.lowest_tag)
    if settled == 0:
        return end
    return min(end, tag + (settled & -settled).bit_length() - 1)


def _end_of_settled(run: DeliveryRun, tag: int) -> int:
    """The first tag from this one on that was not settled."""
    settled = run.settled >> (tag - run.lowest_tag)
    return tag + (~settled & (settled + 1)).bit_length() - 1


def _lowest_tag(run: DeliveryRun) -> int:
    return run.lowest_tag
