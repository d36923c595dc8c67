"""What a run of streams has to answer for (RULES J1 to J4), and its figures.

Each stream has a mirror in another shard that keeps what expires: what was ever in the stream is in the mirror in the
end, at its offset, so the mirror tells what a reader of the stream may have missed. It lacks what left the stream
before it was copied, while the mirror's shard had no leader. One more stream has all of them as its sources, and keeps
what expires, too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

from simulation.node.checker import Violation
from simulation.node.history import CONFIRMED, REFUSED, History, Publish, Read
from tests.reliability.faults import Fault
from tests.reliability.figures import broken_line, faults_line

CLOCKS_DIFFER_BY_US: Final = 20_000
LATE_AFTER_US: Final = 10_000_000
"""What comes so long after its deadline was handed out late, if no fault was in between: clients share a busy machine
with the nodes."""
COPIED_WITHIN_US: Final = 1_000_000
"""Of when all is well again after a fault: what expires before may have left the stream before it was copied."""
MAX_AGE: Final = "MaxAge"
RULES_NAMED: Final = ("invented", "order", "another", "twice", "missing", "late", "lost", "markers")


@dataclass(frozen=True, slots=True)
class Pair:
    """A stream with markers, and its mirror that has none of its own and honours no TTL."""

    stream: str
    mirror: str
    marker_ttl_ms: int

    @property
    def names(self) -> tuple[str, str]:
        """Both."""
        return self.stream, self.mirror


@dataclass(frozen=True, slots=True)
class Gathered:
    """A stream with `x-sources`, the streams of these pairs, that honours no TTL."""

    name: str
    sources: Sequence[Pair]


def judge_streams(
    history: History, pairs: Sequence[Pair], faults: Sequence[Fault], gathered: Gathered | None = None
) -> list[Violation]:
    """Every broken promise. Each consumer is given each offset that is there when it is its turn, in order, none of
    them twice; what is at an offset is there for all, and was published; nothing comes long after its deadline; in the
    end all that was confirmed is in the mirror, but for what expired in a fault, and in the stream what has no TTL;
    each key that has died out has one marker behind its last message. What is gathered comes from its sources, each
    once, in the order of its source, and all of it but for what expired in a fault."""
    found: list[Violation] = []
    there: dict[str, dict[int, Read]] = {}
    for pair in pairs:
        reads = [read for read in history.reads if read.stream in pair.names]
        at = there[pair.stream] = {}
        found += _invented(history, [(read, pair.stream) for read in reads])
        found += _another(reads, at)
        own, copies = ([read for read in reads if read.stream == name] for name in pair.names)
        found += _order(own, at, partial(_may_have_gone, history, pair))
        found += _order(copies, {read.offset: read for read in copies}, _stays)
        found += _late(history, pair, reads, faults)
        found += _lost(history, pair, reads, faults)
        found += _markers(history, pair, at)
    if gathered is not None:
        found += _gathered(history, gathered, there, faults)
    return found


def _permanent(publish: Publish) -> bool:
    return publish.ttl_ms is None


def _what(read: Read) -> tuple[int, str, str]:
    return read.message_id, read.marker, read.key


def _invented(history: History, reads: Iterable[tuple[Read, str]]) -> Iterator[Violation]:
    """Of reads and the streams in which they are said to have been published."""
    for read, stream in reads:
        if read.redelivered:
            yield Violation("twice", f"{read} is said to be redelivered")
        if read.marker:
            if read.marker != MAX_AGE:
                yield Violation("invented", f"{read}: nobody has deleted anything")
            continue
        publish = history.publishes.get(read.message_id)
        if publish is None or publish.queues[0] != stream or publish.key != read.key:
            yield Violation("invented", f"{read}, of {publish}")


def _another(reads: Sequence[Read], at: dict[int, Read]) -> Iterator[Violation]:
    """The same at each offset for all, and each message at one offset. Notes what is `at` each."""
    places: dict[int, int] = {}
    for read in reads:
        first = at.setdefault(read.offset, read)
        if _what(first) != _what(read):
            yield Violation("another", f"{read}, where {first} was")
        elif not read.marker and places.setdefault(read.message_id, read.offset) != read.offset:
            yield Violation("twice", f"{read}, which is at {places[read.message_id]} as well")


def _order(
    reads: Sequence[Read], at: dict[int, Read], may_have_gone: Callable[[Read, int], bool]
) -> Iterator[Violation]:
    """Of each consumer: upwards, and nothing left out of what is `at` its offsets but what may have gone by then."""
    offsets = sorted(at)
    last: dict[str, int] = {}
    for read in reads:
        expected = last[read.holder] + 1 if read.holder in last else max(read.begins, 0)
        if read.offset < expected:
            yield Violation("order", f"{read}, where {expected} or a later one was next")
        for offset in _between(offsets, expected, read.offset):
            if not may_have_gone(at[offset], read.at_us):
                yield Violation("missing", f"before {read}: {at[offset]}")
        last[read.holder] = max(read.offset, last.get(read.holder, -1))


def _between(offsets: list[int], first: int, end: int) -> list[int]:
    return offsets[bisect_left(offsets, first) : bisect_left(offsets, end)]


def _may_have_gone(history: History, pair: Pair, what: Read, now_us: int) -> bool:
    """Whether it may have left the stream by then. When a marker came is not known: it may have been long before."""
    if what.marker:
        return True
    publish = history.publishes.get(what.message_id)
    if publish is None or publish.ttl_ms is None:
        return publish is None
    return now_us >= _earliest_us(publish, pair) - CLOCKS_DIFFER_BY_US


def _stays(what: Read, now_us: int) -> bool:
    """Nothing goes from what keeps what expires."""
    return False


def _earliest_us(publish: Publish, pair: Pair) -> int:
    """Its deadline, if it was stored when it was sent."""
    assert publish.ttl_ms is not None
    return publish.invoked_us + 1_000 * max(publish.ttl_ms, pair.marker_ttl_ms)


def _late(history: History, pair: Pair, reads: Sequence[Read], faults: Sequence[Fault]) -> Iterator[Violation]:
    """From the stream alone: the mirror keeps all."""
    for read in reads:
        publish = history.publishes.get(read.message_id)
        if read.stream != pair.stream or read.marker or publish is None or publish.ttl_ms is None:
            continue
        stored_us = publish.invoked_us if publish.completed_us is None else publish.completed_us
        deadline_us = stored_us + 1_000 * max(publish.ttl_ms, pair.marker_ttl_ms)
        if read.at_us > deadline_us + LATE_AFTER_US and not any(
            fault.at_us < read.at_us and (fault.whole_us or read.at_us) > deadline_us for fault in faults
        ):
            yield Violation("late", f"{read}, {(read.at_us - deadline_us) / 1e6:.1f} s after its deadline")


def _lost(history: History, pair: Pair, reads: Sequence[Read], faults: Sequence[Fault]) -> Iterator[Violation]:
    """By the last readers, who have read all there is; and each publisher's in its order."""
    finals = {name: [read for read in reads if read.final and read.stream == name] for name in pair.names}
    kept = {read.message_id: read.offset for read in finals[pair.mirror] if not read.marker}
    left = {read.message_id for read in finals[pair.stream] if not read.marker}
    before: dict[int, tuple[int, int]] = {}
    for publish in history.publishes.values():
        if publish.queues[0] != pair.stream:
            continue
        offset = kept.get(publish.message_id, -1)
        if publish.outcome == CONFIRMED and offset < 0 and not _may_be_uncopied(publish, pair, faults):
            yield Violation("lost", f"{publish} is not in {pair.mirror}")
        if publish.outcome == CONFIRMED and _permanent(publish) and publish.message_id not in left:
            yield Violation("lost", f"{publish} is not in {pair.stream}")
        if publish.message_id in left and not _permanent(publish):
            yield Violation("late", f"{publish} is in {pair.stream} in the end")
        if offset >= 0:
            earlier, its_offset = before.get(publish.stream, (0, -1))
            if offset < its_offset:
                yield Violation("order", f"{publish} is at {offset}, and message {earlier} of before at {its_offset}")
            before[publish.stream] = (publish.message_id, offset)


def _may_be_uncopied(publish: Publish, pair: Pair, faults: Sequence[Fault]) -> bool:
    """Whether it may have expired before its copy could be made."""
    return publish.ttl_ms is not None and any(
        fault.at_us < _earliest_us(publish, pair)
        and (not fault.whole_us or fault.whole_us + COPIED_WITHIN_US > publish.invoked_us)
        for fault in faults
    )


def _markers(history: History, pair: Pair, at: dict[int, Read]) -> Iterator[Violation]:
    """One behind the last message of each key that has died out, and never two without a message between them. None
    where a message of the key stays, or is still to go."""
    of_key: dict[str, list[Read]] = defaultdict(list)
    for offset in sorted(at):
        of_key[at[offset].key].append(at[offset])
    for key, reads in of_key.items():
        for before, read in pairwise(reads):
            if before.marker and read.marker and at.keys() >= set(range(before.offset, read.offset)):
                yield Violation("markers", f"two of {key} in {pair.stream}: {before}, {read}")
        stays = False
        for place, read in enumerate(reads):
            if not read.marker:
                publish = history.publishes.get(read.message_id)
                stays = stays or publish is None or _permanent(publish)
                continue
            if stays or (not place and at.keys() >= set(range(read.offset))):
                yield Violation("markers", f"{read}: a message of {key} is still there, or there was none")
                continue
            for earlier in reads[:place]:
                publish = history.publishes.get(earlier.message_id)
                if not earlier.marker and publish is not None and publish.ttl_ms is not None:
                    due_us = _earliest_us(publish, pair) - CLOCKS_DIFFER_BY_US
                    if read.at_us < due_us:
                        early_s = (due_us - read.at_us) / 1e6
                        yield Violation("markers", f"{read} behind {earlier}, {early_s:.3f} s early")
        if not stays and not reads[-1].marker:
            yield Violation("markers", f"none behind {reads[-1]}, the last of {key}")


def _gathered(
    history: History, gathered: Gathered, there: dict[str, dict[int, Read]], faults: Sequence[Fault]
) -> Iterator[Violation]:
    """Each reader sees all of it, in order; what is from an offset of a source is what is `there`, once, behind what
    was before it; in the end all is in it that the sources are known to have had. A marker alone may lack: it stays for
    so short a time that any fault may have kept it from being copied."""
    reads = [read for read in history.reads if read.stream == gathered.name]
    yield from _invented(history, [(read, read.source) for read in reads])
    at: dict[int, Read] = {}
    for read in reads:
        first = at.setdefault(read.offset, read)
        if (first.source, first.source_offset, _what(first)) != (read.source, read.source_offset, _what(read)):
            yield Violation("another", f"{read}, where {first} was")
        if read.source not in there:
            yield Violation("invented", f"{read} is from nowhere")
        elif _what(there[read.source].get(read.source_offset, read)) != _what(read):
            yield Violation("another", f"{read}, of {there[read.source][read.source_offset]}")
    yield from _order(reads, at, _stays)
    before: dict[str, Read] = {}
    for _, read in sorted(at.items()):
        earlier = before.get(read.source)
        if earlier is not None and read.source_offset <= earlier.source_offset:
            rule = "twice" if read.source_offset == earlier.source_offset else "order"
            yield Violation(rule, f"{read}, behind {earlier}")
        else:
            before[read.source] = read
    kept = {read.message_id for read in reads if read.final}
    seen = {read.message_id for of_source in there.values() for read in of_source.values()}
    pair_of = {pair.stream: pair for pair in gathered.sources}
    for publish in history.publishes.values():
        pair = pair_of.get(publish.queues[0])
        if pair is None or publish.message_id in kept or _may_be_uncopied(publish, pair, faults):
            continue
        if publish.outcome == CONFIRMED or publish.message_id in seen:
            yield Violation("lost", f"{publish} is not in {gathered.name}")


# ------------------------------------------------------------------------------------------------ figures


def stream_table(
    history: History,
    pairs: Sequence[Pair],
    faults: Sequence[Fault],
    violations: Sequence[Violation],
    gathered: Gathered | None = None,
) -> list[str]:
    """Markdown: what was published and read, and what was broken."""
    streams = {pair.stream for pair in pairs}
    outcomes = Counter(publish.outcome for publish in history.publishes.values())
    lines = [
        "| | messages read | markers read | consumers |",
        "|---|---|---|---|",
    ]
    all_of_them = [("streams", streams), ("mirrors", {pair.mirror for pair in pairs})]
    if gathered is not None:
        all_of_them.append((f"stream of {len(gathered.sources)} sources", {gathered.name}))
    for name, chosen in all_of_them:
        reads = [read for read in history.reads if read.stream in chosen]
        markers = sum(bool(read.marker) for read in reads)
        holders = len({read.holder for read in reads})
        lines.append(f"| {len(chosen)} {name} | {len(reads) - markers} | {markers} | {holders} |")
    with_ttl = sum(not _permanent(publish) for publish in history.publishes.values())
    different = len({(read.stream, read.offset) for read in history.reads if read.marker and read.stream in streams})
    lines += [
        "",
        f"Published: {len(history.publishes)}, {with_ttl} with a TTL; confirmed {outcomes[CONFIRMED]}, refused "
        f"{outcomes[REFUSED]}. Different markers that readers of the streams saw: {different}.",
        "",
        broken_line(RULES_NAMED, (violation.rule for violation in violations)),
        "",
        faults_line(faults),
    ]
    return lines
