"""How fast the counts of queues grow, known before anybody asks. Pure.

Who asks seldom, or another node each time, is told nothing by `rates`. So a node goes round the queues of its replicas
by itself, so many in a step; a shard in which nothing has happened since its last round is passed over. Counts of a
replica are the same on every node: whichever is asked has the rate from some node's rounds.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, Protocol

from mayfly.node.operating.views.queue_columns import RATED
from mayfly.node.operating.views.rates import LEAST_SPAN_MS, SPAN_MS, Counts

STEP_MS: Final = 1_000
"""Between two steps."""
LOOKS_PER_STEP: Final = 1_000
"""Queues that are looked at in one: a millisecond or two. So rates are over some 5 to 10 s where up to 5 000 queues are
in shards with something going on, and over longer where there are more."""
MOST_KEPT: Final = 50_000
"""Queues that have done anything; of others nothing is kept."""
ALWAYS_CHANGED: Final = -1
"""The mark of a shard that has none."""


class Sampled(Protocol):
    """A shard."""

    @property
    def mark(self) -> int:
        """Another one with every change."""

    def queue_ids(self) -> Collection[int]: ...

    def counts(self, queue_id: int) -> Counts | None:
        """None for a queue that is gone."""


class _Sample(NamedTuple):
    """Two looks at the same counts."""

    older_ms: int
    older: Counts
    newer_ms: int
    newer: Counts


class _Rounds:
    """Of one shard."""

    def __init__(self) -> None:
        self.began_ms = -SPAN_MS
        self.mark = ALWAYS_CHANGED
        self.left: list[int] = []
        """Queues of the round that is under way."""
        self.covered_ms: int | None = None
        """When the last whole round began; None before there was one."""
        self.quiet_ms = -SPAN_MS
        """When nothing had happened since the last whole round, as was seen last."""
        self.samples: dict[int, _Sample] = {}
        self.coming: dict[int, _Sample] = {}
        self.is_whole = True
        """Whether all that did something are in `samples`."""
        self.all_fit = True

    def begin(self, now_ms: int, shard: Sampled) -> None:
        """A round."""
        self.began_ms, self.mark = now_ms, shard.mark
        self.left = list(shard.queue_ids())
        self.coming, self.all_fit = {}, True

    def end(self) -> None:
        """The round that is under way."""
        self.samples, self.coming = self.coming, {}
        self.is_whole, self.covered_ms = self.all_fit, self.began_ms

    def visit(self, now_ms: int, queue_id: int, counts: Counts, has_room: bool) -> None:
        """In the course of a round."""
        before = self.samples.get(queue_id)
        if before is None and not any(counts):
            return
        if before is None and not has_room:
            self.all_fit = False
            return
        known = self.base(now_ms, queue_id, is_visit=True)
        if known is None or _went_back(known[1], counts):
            known = now_ms, counts
        self.coming[queue_id] = _Sample(*known, now_ms, counts)

    def base(self, now_ms: int, queue_id: int, is_visit: bool = False) -> tuple[int, Counts] | None:
        """What a rate is counted from, and since when. For a visit: the look before."""
        sample = None if is_visit else self.coming.get(queue_id)
        sample = sample or self.samples.get(queue_id)
        if sample is None:
            if self.covered_ms is None or not self.is_whole:
                return None
            return self._still(now_ms, self.covered_ms), _NOTHING
        if is_visit or now_ms - sample.newer_ms >= SPAN_MS:
            return self._still(now_ms, sample.newer_ms), sample.newer
        return sample.older_ms, sample.older

    def _still(self, now_ms: int, looked_ms: int) -> int:
        """Until when the counts were as at that look, but for the last SPAN_MS: a rate over less says little."""
        return max(looked_ms, min(self.quiet_ms, now_ms - SPAN_MS))


_NOTHING: Final[Counts] = (0,) * len(RATED)


class SampledRates:
    """Of the queues of one node's shards, each with what `RATED` counts."""

    def __init__(self) -> None:
        self._rounds: dict[int, _Rounds] = {}

    def step(self, now_ms: int, shards: Mapping[int, Sampled]) -> None:
        """Go on with the rounds; a shard's begins at least SPAN_MS after the one before."""
        for gone in self._rounds.keys() - shards.keys():
            del self._rounds[gone]
        for id in shards:
            self._rounds.setdefault(id, _Rounds())
        kept = sum([len(rounds.samples) for rounds in self._rounds.values()])
        looks = LOOKS_PER_STEP
        for id, rounds in sorted(self._rounds.items(), key=lambda item: item[1].began_ms):
            if not rounds.left and not _begins(now_ms, rounds, shards[id]):
                continue
            some, rounds.left = rounds.left[:looks], rounds.left[looks:]
            for queue_id in some:
                counts = shards[id].counts(queue_id)
                if counts is not None:
                    rounds.visit(now_ms, queue_id, counts, kept + len(rounds.coming) < MOST_KEPT)
            if not rounds.left:
                rounds.end()
            looks -= len(some)
            if looks <= 0:
                break

    def rate(self, now_ms: int, shard_id: int, queue_id: int, counts: Counts) -> tuple[float, ...] | None:
        """What each of the counts, as they are now, grows by in a second; None where that is not known."""
        rounds = self._rounds.get(shard_id)
        known = None if rounds is None else rounds.base(now_ms, queue_id)
        if known is None or now_ms - known[0] < LEAST_SPAN_MS or _went_back(known[1], counts):
            return None
        return tuple((now - then) * 1000 / (now_ms - known[0]) for now, then in zip(counts, known[1], strict=True))


def _begins(now_ms: int, rounds: _Rounds, shard: Sampled) -> bool:
    """Whether a round begins now: not while nothing happens."""
    if rounds.covered_ms is not None and shard.mark == rounds.mark != ALWAYS_CHANGED:
        rounds.quiet_ms = now_ms
        return False
    if now_ms - rounds.began_ms < SPAN_MS:
        return False
    rounds.begin(now_ms, shard)
    return True


def _went_back(then: Counts, now: Counts) -> bool:
    return any(one < other for one, other in zip(now, then, strict=True))
