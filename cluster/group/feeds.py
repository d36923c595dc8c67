"""What a replica keeps for nodes that have none: the answers and effects of their sessions (pure).

Both are a function of the log alone. So every replica of the group keeps the same, for each session whose last batch
was of KIND_FED, and whichever of them leads tells it (`cluster.host.feeding`). It is kept until the node has said that
it was told so far (its *cursor*), so that the next leader can go on at any cursor that the node may have by then.

    base                    the index behind which this replica has kept everything
    cursor of the node      base <= cursor: it can be told from here; cursor < base: its session has to end

A replica that was made from a snapshot has kept nothing from before it. What is kept is bounded: if a node does not
say how far it was told, the oldest goes and the base rises.

What answers and effects refer to stays readable for as long (`withheld`): a message that its consumer need not
acknowledge is dead in the log before it has travelled.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from mayfly.cluster.group.fed_entry import FedEntry
from mayfly.cluster.group.sessions import FED, SessionKey, SessionRow
from mayfly.cluster.group.state_machine import Effect

MOST_KEPT: Final = 200_000
"""Answers and effects that are kept for one node: some 40 MB of memory."""


class Feed:
    """What is kept of one session."""

    __slots__ = ("base", "count", "entries", "incarnation", "last", "made")

    def __init__(self, incarnation: int, base: int) -> None:
        self.incarnation: int = incarnation
        self.base: int = base
        self.entries: deque[FedEntry] = deque()
        self.count: int = 0
        """Answers and effects in them."""
        self.last: int = 0
        """The index of the newest entry that was ever kept."""
        self.made: FedEntry | None = None
        """Of the entry that is being applied."""

    def behind(self, index: int) -> list[FedEntry]:
        """What is kept from behind this index, in order."""
        entries = self.entries
        if self.last <= index or not entries:
            return []
        if len(entries) == 1 or entries[-2].index <= index:
            return [entries[-1]]
        found: list[FedEntry] = []
        for entry in reversed(entries):
            if entry.index <= index:
                break
            found.append(entry)
        found.reverse()
        return found


class Feeds:
    """The feeds of one replica."""

    def __init__(self, listen: Callable[[Collection[int]], None], needs: Callable[[object, list[int]], None]) -> None:
        """`listen` and `needs`: of the state machine."""
        self._listen = listen
        self._needs = needs
        self._feeds: dict[int, Feed] = {}
        self._making: list[Feed] = []
        """Those for which the entry that is being applied has something."""
        self._needed: dict[int, int] = {}
        """Entry -> how many fed entries refer to it."""
        self._withheld: dict[int, None] = {}
        """Entries that nothing but feeds needs any more."""
        self._free: list[int] = []
        """Of these, what no feed needs any more either: to be told by the next `withhold`."""
        self.told_here: int = 0
        """The node whose session this replica tells itself; 0: it tells none."""
        self._listeners_changed()

    def __bool__(self) -> bool:
        return bool(self._feeds)

    def get(self, node: int) -> Feed | None:
        """The feed of a node."""
        return self._feeds.get(node)

    def nodes(self) -> list[int]:
        """Whose sessions have feeds."""
        return list(self._feeds)

    # ------------------------------------------------------------------ what the log says

    def restore(self, rows: Iterable[SessionRow], index: int) -> None:
        """The state at this index was taken over: nothing from before it is here."""
        for node in list(self._feeds):
            self._drop(node)
        self._making.clear()
        self._withheld.clear()
        self._free.clear()
        for node, incarnation, _, state in rows:
            if state == FED:
                self._feeds[node] = Feed(incarnation, index)
        self._listeners_changed()

    def batch(self, session: SessionKey, sequence: int, fed: bool, index: int) -> None:
        """A batch of a session is applied in this entry."""
        node, incarnation = session
        feed = self._feeds.get(node)
        if feed is not None and (feed.incarnation != incarnation or not fed):
            self._drop(node)
            # What this entry had for a session before it is nobody's answer in this one.
            feed.made = None
            feed = None
            self._listeners_changed()
        if fed and feed is None and node != self.told_here:
            # Of a session that begins nothing can be missed. One that goes on was told by its own replica so far, with
            # all that this entry had for it before: that is not kept.
            self._feeds[node] = Feed(incarnation, 0 if sequence == 1 else index)
            self._listeners_changed()

    def begin(self, session: SessionKey, index: int) -> None:
        """This node's own session, which was told up to this index by the replica here, is fed from now on."""
        self.told_here = 0
        self._drop(session[0])
        self._feeds[session[0]] = Feed(session[1], index)
        self._listeners_changed()

    def tells(self, node: int) -> None:
        """This replica tells the session of its own node from now on."""
        self._drop(node)
        self.told_here = node
        self._listeners_changed()

    def answered(self, node: int, sequence: int, results: Sequence[object] | None) -> None:
        """A batch of a fed session has these results."""
        feed = self._feeds.get(node)
        if feed is None:
            return
        made = feed.made or self._make(feed)
        made.answers.append((sequence, results))
        if results:
            for result in results:
                self._needs(result, made.needs)

    def ended(self, row: SessionRow) -> None:
        """A session ended in this entry, with this row."""
        feed = self._feeds.get(row[0])
        if feed is not None and feed.incarnation == row[1]:
            made = feed.made or self._make(feed)
            made.ended = row

    def effects(self, effects: Sequence[Effect]) -> list[Effect]:
        """Keep the effects for fed sessions; those for the session that is told here."""
        here: list[Effect] = []
        for effect in effects:
            node, incarnation = effect.session
            if node == self.told_here:
                here.append(effect)
                continue
            feed = self._feeds.get(node)
            if feed is not None and feed.incarnation == incarnation:
                made = feed.made or self._make(feed)
                made.effects.append(effect)
                self._needs(effect, made.needs)
        return here

    def finish(self, index: int) -> None:
        """The entry is applied."""
        counts = self._needed
        for feed in self._making:
            made = feed.made
            if made is None:
                continue
            feed.made = None
            made.index = feed.last = index
            feed.entries.append(made)
            feed.count += _weight(made)
            for needed in made.needs:
                counts[needed] = counts.get(needed, 0) + 1
            while feed.count > MOST_KEPT and len(feed.entries) > 1:
                self._forget_first(feed)
        self._making.clear()

    def _make(self, feed: Feed) -> FedEntry:
        """Begin what this entry has for a feed."""
        made = feed.made = FedEntry()
        self._making.append(feed)
        return made

    # ------------------------------------------------------------------ what nodes say

    def is_told(self, session: SessionKey, index: int) -> None:
        """A node says that it was told everything up to this index."""
        feed = self._feeds.get(session[0])
        if feed is None or feed.incarnation != session[1]:
            return
        while feed.entries and feed.entries[0].index <= index:
            self._forget_first(feed)
        feed.base = max(feed.base, index)

    def _forget_first(self, feed: Feed) -> None:
        entry = feed.entries.popleft()
        feed.count -= _weight(entry)
        feed.base = max(feed.base, entry.index)
        counts = self._needed
        for needed in entry.needs:
            count = counts[needed] - 1
            if count:
                counts[needed] = count
            else:
                del counts[needed]
                if needed in self._withheld:
                    del self._withheld[needed]
                    self._free.append(needed)

    def _drop(self, node: int) -> None:
        feed = self._feeds.pop(node, None)
        if feed is not None:
            while feed.entries:
                self._forget_first(feed)

    def _listeners_changed(self) -> None:
        nodes = set(self._feeds)
        if self.told_here:
            nodes.add(self.told_here)
        self._listen(nodes)

    # ------------------------------------------------------------------ what is needed of the log

    def withhold(self, released: list[int]) -> list[int]:
        """Of entries that the state machine needs no more, and of those withheld before, the ones that no feed
        needs."""
        if not self._needed and not self._free:
            return released
        free, self._free = self._free, []
        for index in released:
            if index in self._needed:
                self._withheld[index] = None
            else:
                free.append(index)
        return free

    @property
    def withholds(self) -> bool:
        """Whether entries are kept readable for feeds alone, or were until now."""
        return bool(self._withheld or self._free)

    def needed(self) -> Collection[int]:
        """The entries that feeds need."""
        return self._needed.keys()


def _weight(entry: FedEntry) -> int:
    return 1 + len(entry.answers) + len(entry.effects) + len(entry.needs)


def can_resume(feed: Feed | None, row: SessionRow | None, session: SessionKey, cursor: int) -> bool:
    """Whether a session that was told up to `cursor` can be told the rest from here: `row` is that of its node in the
    table of sessions."""
    if feed is not None and feed.incarnation == session[1]:
        return cursor >= feed.base
    return row is None or row[1] < session[1]  # It has not begun here: nothing was missed.
