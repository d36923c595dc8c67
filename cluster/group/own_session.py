"""This node's session with one group, for as long as the node runs: what is given to the group, and what it answers.

Whoever tells it what became of its batches is one of two:

* the node's own replica, which applies the log here (`cluster.group.applying`); or
* *feeds* of another node's replica, where this node has none, or one that is only coming (`cluster.group.feeds`).

Which of the two it is changes at an index of the log, so that nothing is told twice or missed. `cursor` is the index up
to which everything was told. To be fed, the node says so through the log: with a batch of KIND_FED, from which on all
replicas keep what they will have to tell it. Its own replica tells it up to that batch, the feed goes on behind it.
To be told by its own replica, that one has to keep what comes after `cursor`: then it goes on there.
"""

from collections.abc import Callable, Sequence

from mayfly.cluster.group.fed_entry import FedEntry
from mayfly.cluster.group.sessions import (
    CUT,
    KIND_CLOSE,
    KIND_FED,
    KIND_SESSION,
    SessionKey,
    SessionRow,
    SessionSender,
    Waiter,
    encode_batch,
)
from mayfly.cluster.group.settings import GroupSettings
from mayfly.cluster.group.state_machine import UNKNOWN, Effect, GroupEvents, Missed


class OwnSession:
    """The session of this node with group `group`; `lost` is what a waiter is called with when its answer can't be
    known."""

    def __init__(
        self, group: int, node: int, incarnation: int, settings: GroupSettings, events: GroupEvents, lost: object
    ) -> None:
        self.group: int = group
        self.node: int = node
        self.events: GroupEvents = events
        self.lost: object = lost
        self.sender: SessionSender = SessionSender(
            node, incarnation, settings.session_window, settings.batch_bytes, settings.unhurried_ms,
            settings.piece_bytes,
        )  # fmt: skip
        self.sender.kind = KIND_FED
        self.is_fed: bool = True
        """Whether feeds tell it what became of its batches, and not this node's own replica."""
        self.cursor: int = 0
        """While it is fed: the index of the log up to which everything was told."""
        self.is_broken: bool = False
        """Whether it missed effects that nobody has, and therefore has to be ended through the log."""
        self.payload: Callable[[int], bytes] = _no_payload
        """While it is fed, and is being told something: the payload that a message in it refers to by its index."""
        self._repeat_after_ms: int = settings.repeat_after_ms
        self._lead_seen: tuple[int, int] = (0, 0)
        self._closed_ms: int = -1 << 40

    @property
    def key(self) -> SessionKey:
        """Its name in the log."""
        return self.node, self.sender.incarnation

    # ------------------------------------------------------------------ the way in

    def give(
        self, parts: list[bytes], size_bytes: int, answers: bool, waiter: Waiter | None, hurried: bool = True
    ) -> None:
        """Commands for the group; see `SessionSender.add`."""
        self.sender.add(parts, size_bytes, answers, waiter, hurried)

    def give_large(
        self, parts: list[bytes], size_bytes: int, answers: bool, waiter: Waiter | None, counts: bool
    ) -> None:
        """A command with a large body for the group; see `SessionSender.add_large`."""
        self.sender.add_large(parts, size_bytes, answers, waiter, counts)

    def route(self, leader: int, term: int, now_ms: int) -> list[bytes]:
        """Batches that go to the group's leader now."""
        sender = self.sender
        if (leader, term) != self._lead_seen:
            self._lead_seen = (leader, term)
            sender.forget_sent()
        sender.hold(now_ms)
        if leader == 0 or (sender.idle and not self.is_broken):
            return []
        if not self.is_broken:
            return sender.unsent(now_ms, self._repeat_after_ms)
        if now_ms - self._closed_ms < self._repeat_after_ms:
            return []
        # It ends first: what is given again for want of an answer must not meet what it did before, unseen.
        self._closed_ms = now_ms
        return [close_batch(self.key)]

    # ------------------------------------------------------------------ who tells it

    def ask_to_be_fed(self) -> None:
        """Say in the log that this node will be told by feeds: behind the batch that says so, that is how it is."""
        if self.sender.kind != KIND_FED:
            self.sender.kind = KIND_FED
            # If nothing is given there has to be a batch all the same.
            self.sender.add([b""], 0, False, None)

    def stay_with_replica(self) -> None:
        """Unsay `ask_to_be_fed`, if that has had no effect yet."""
        self.sender.kind = KIND_SESSION

    @property
    def wants_feeds(self) -> bool:
        """Whether `ask_to_be_fed` was called since the replica here began to tell it."""
        return self.sender.kind == KIND_FED

    def is_told_by_replica(self) -> None:
        """This node's own replica has told it everything up to where it is, and goes on with it."""
        self.is_fed = False
        if self.sender.kind == KIND_FED:
            self.sender.kind = KIND_SESSION
            if self.sender.has_given:
                # So that the others need not keep any more what is told here.
                self.sender.add([b""], 0, False, None)

    def is_told_by_feeds(self, index: int) -> None:
        """The replica here has told it everything up to the entry at `index`; the rest comes by feeds."""
        self.is_fed = True
        self.cursor = index

    # ------------------------------------------------------------------ what it is told

    def answered(self, sequence: int, results: Sequence[object] | None) -> None:
        """A batch was applied, with these results of the commands that answer; None: it was cut short."""
        position = 0
        for answers, waiter in self.sender.applied(sequence):
            result: object = None
            if results is None:
                result = self.lost
            elif answers:
                result = results[position] if position < len(results) else self.lost
                position += 1
            if waiter is not None:
                waiter(result)

    def has_effects(self, effects: Sequence[Effect]) -> None:
        """What an entry, all of whose answers were given, means for clients of this node."""
        if effects and not self.is_broken:
            self.events.group_effects(self.group, effects)

    def tell_all(self, entries: list[FedEntry], up_to: int, payload: Callable[[int], bytes]) -> None:
        """Entries of a feed, in order, and nothing more up to this index. What was told before is passed over; if one
        of them ends the session, the rest is nobody's."""
        incarnation = self.sender.incarnation
        self.payload = payload
        try:
            for entry in entries:
                if entry.index > self.cursor:
                    self.tell(entry)
                if self.sender.incarnation != incarnation:
                    return
            self.cursor = max(self.cursor, up_to)
        finally:
            self.payload = _no_payload

    def tell(self, entry: FedEntry) -> None:
        """An entry of a feed of this session, the next one for it."""
        for sequence, results in entry.answers:
            self.answered(sequence, results)
        self.has_effects(entry.effects)
        self.cursor = entry.index
        if entry.ended is not None and entry.ended[1] == self.sender.incarnation:
            self.ended(entry.ended)

    def unseen(self, row: SessionRow) -> list[bytes]:
        """The commands of its batches that this row has, and that were not answered here (`SessionSender.unseen`)."""
        return self.sender.unseen(row[2])

    def has_missed(self, missed: Missed) -> None:
        """A leader's snapshot took the place of the replica that tells it, and it is open there: this is what happened
        before, with an answer for each batch of `unseen`."""
        self.has_effects(missed.effects_before)
        for results in missed.answers:
            self.answered(self.sender.oldest_sequence, [self.lost if it is UNKNOWN else it for it in results])
        self.has_effects(missed.effects)

    def ended(self, row: SessionRow | None) -> None:
        """It is over, with this row in the table of sessions: what is not applied goes into a new one."""
        if row is not None and row[1] == self.sender.incarnation:
            self._skip_unseen(row)
        self._restart()

    def _skip_unseen(self, row: SessionRow) -> None:
        """What was applied where this node could not see it gets no answer: what has none is known to be done, unless
        its batch was cut short."""
        _, _, sequence, state = row
        for answers, waiter in self.sender.skip(sequence - 1 if state == CUT else sequence):
            if waiter is not None:
                waiter(self.lost if answers else None)
        for _, waiter in self.sender.skip(sequence):
            if waiter is not None:
                waiter(self.lost)

    def _restart(self) -> None:
        self.sender.restart(self.sender.incarnation + 1)
        self.is_broken = False
        self.events.group_session_lost(self.group)


def _no_payload(index: int) -> bytes:
    raise LookupError(f"nothing is being told, entry {index} is past")


def close_batch(session: SessionKey) -> bytes:
    """The batch that ends a session."""
    return encode_batch(KIND_CLOSE, session[0], session[1], 0, b"")
