"""Large commands in pieces: no entry of the log, no write, no frame has more of one than a piece (pure).

The last command of what is given may end in a body that nobody needs to read in order to apply it. If it is large, the
node that gives it sends the body ahead, piece by piece, as batches of its session (`PIECE`), and behind them a batch
with all the rest (`WHOLE`). Other batches may go between them, so others' commands never wait for more than what is
under way of pieces.

    entry 7   PIECE  sequence 4: octets 0 to 99        entry 9   PIECE  sequence 6: octets 100 to 180
    entry 8          sequence 5: of somebody else      entry 10  WHOLE  sequence 7: the command without its body

What counts is the entry with WHOLE (10): there the command is applied, and its body is the *rest* of that entry's
payload, which `GroupLog.data` puts together. So a WHOLE is the last batch of its entry. The entries with the pieces
live as long as that one does. Sessions see to it that each piece counts once, and in order; if the session ends before
WHOLE has come, its pieces are forgotten, and whoever gave them gives all of them again in the next one.

From `cluster.versions.LEVEL_PIECES` on.

Of a command with several bodies, such as a transaction, everything is in the pieces, and the WHOLE is empty: then they
are read where it is applied. They stay on disk until it is in a snapshot: after a restart it is applied again. From
`cluster.versions.LEVEL_LARGE_DEAD_LETTERS` on.

What a leader gives by itself may end in a body that stands in the log already, for it is an earlier command's. Then its
batch says where (`BORROWS`), and its entry has the same pieces as the other one: nothing is written twice.

    entry 15  BORROWS  the rest of entry 10: a command without its body

From `cluster.versions.LEVEL_LARGE_DEAD_LETTERS` on.
"""

from collections.abc import Callable, Collection, Iterable
from struct import Struct
from typing import Final

from mayfly.cluster.log.group_log import Piece, part_of

PIECE: Final = 0x10
WHOLE: Final = 0x20
"""Added to the kind of a batch of a session: what of a large command it has."""

BORROWS: Final = 0x40
"""Added to the kind of an internal batch: its commands are behind a `LENT`, and their body stands where that says."""

KIND_MASK: Final = 0x0F

LENT: Final = Struct("<QQQ")
"""The entry that has a body, where it begins there, and its octets."""

ITS_REST: Final = 1 << 63
"""Added to where a body begins: counted in what the other entry has elsewhere."""

PIECE_BYTES: Final = 512 * 1024
"""Of a body in one batch. A megabyte takes a disk 5 to 15 ms where a small write takes 1 or 2, and a network of
1 Gbit/s 8; with a larger number others would wait longer, with a smaller one each message takes more rounds."""

PIECES_UNDER_WAY: Final = 2
"""So many times the octets of a piece a session has on their way of large commands: while one is written, the next one
travels."""

PieceRow = tuple[int, int, int, int, int]
"""Of a group's state: the entry with its WHOLE (0: that has not come), then its node (else 0); its entry, where it
begins there, and its octets."""


class Pieces:
    """The replicated part: where the pieces are of what is alive, and of what is still to come."""

    def __init__(self) -> None:
        self.rests: dict[int, list[Piece]] = {}
        """Entry with a WHOLE -> where the rest of its payload is."""
        self.held: dict[int, int] = {}
        """Entry -> how many pieces in it are needed."""
        self.read_at: dict[int, int] = {}
        """Entry with pieces -> the one where they were read to be applied: whoever applies that again needs them."""
        self._begun: dict[int, list[Piece]] = {}
        """Node -> what has come of its session's command."""
        self._fresh: list[int] = []
        """Entries with a WHOLE of which it was not asked yet whether anything in them lives."""
        self._dead: dict[int, None] = {}
        """Of `rests`: what nothing but feeds needs, which are not part of the state."""
        self._dropped: list[int] = []
        """Entries with pieces that nobody needs, to be told by `released`."""

    def __bool__(self) -> bool:
        return bool(self.held or self._dropped or self._fresh)

    # ------------------------------------------------------------------ what the log says

    def add(self, node: int, index: int, start: int, length: int) -> None:
        """A piece of the command that this node's session is giving."""
        self._begun.setdefault(node, []).append((index, start, length))
        self.held[index] = self.held.get(index, 0) + 1

    def complete(self, node: int, index: int) -> int:
        """The WHOLE behind them is in this entry; the octets of all pieces."""
        rest = self._begun.pop(node, [])
        if not rest:
            return 0
        self.rests[index] = rest
        self._fresh.append(index)
        return sum([length for _, _, length in rest])

    def note_read(self, index: int) -> None:
        """What is elsewhere of the entry at `index` is read to be applied."""
        for at, _, _ in self.rests[index]:
            self.read_at[at] = index

    def forget_reads(self, index: int) -> None:
        """Nothing up to this entry will be applied again."""
        if self.read_at:
            self.read_at = {at: reader for at, reader in self.read_at.items() if reader > index}

    def borrow(self, index: int, entry: int, start: int, length: int) -> bool:
        """The rest of the entry at `index` is what stands in another one, which is alive (see LENT); False if that has
        no such octets."""
        if start & ITS_REST:
            rest = part_of(self.rests.get(entry, ()), start - ITS_REST, length)
            if not rest:
                return False
        else:
            rest = [(entry, start, length)]
        for at, _, _ in rest:
            self.held[at] = self.held.get(at, 0) + 1
        self.rests[index] = rest
        self._fresh.append(index)
        return True

    def forget(self, node: int) -> None:
        """The session of this node is over."""
        for index, _, _ in self._begun.pop(node, ()):
            self._let_go(index)

    def rows(self) -> list[PieceRow]:
        """All of it, for snapshots."""
        begun = [(0, node, *piece) for node in sorted(self._begun) for piece in self._begun[node]]
        alive = [index for index in sorted(self.rests) if index not in self._dead]
        return begun + [(index, 0, *piece) for index in alive for piece in self.rests[index]]

    def restore(self, rows: Collection[PieceRow]) -> None:
        """Become what another one's `rows` say."""
        self.rests.clear()
        self.held.clear()
        self.read_at.clear()
        self._begun.clear()
        self._fresh.clear()
        self._dead.clear()
        self._dropped.clear()
        for whole, node, index, start, length in rows:
            if whole:
                self.rests.setdefault(whole, []).append((index, start, length))
            else:
                self._begun.setdefault(node, []).append((index, start, length))
            self.held[index] = self.held.get(index, 0) + 1

    def named(self) -> set[int]:
        """The entries that `rows` name."""
        return {index for _, _, index, _, _ in self.rows()}

    # ------------------------------------------------------------------ what is needed of the log

    def released(
        self,
        released: list[int],
        live: Iterable[int],
        withhold: Callable[[list[int]], list[int]],
        fed: Collection[int],
    ) -> list[int]:
        """Of entries that the state machine has released, the ones that nothing needs, with those whose pieces nobody
        needs any more. `live`: what the state machine needs still; `withhold` and `fed`: of feeds, see there."""
        fresh, self._fresh = self._fresh, []
        known = set(released)
        for index in fresh:
            if index not in live and index not in known:
                released = [*released, index]
        for index in released:
            if index in self.rests:
                self._dead[index] = None
        free = withhold(released)
        for index in free:
            self._dead.pop(index, None)
            for at, _, _ in self.rests.pop(index, ()):
                self._let_go(at)
        dropped = [index for index in self._dropped if index not in live and index not in fed]
        self._dropped = []
        return list(dict.fromkeys([index for index in [*free, *dropped] if index not in self.held]))

    def _let_go(self, index: int) -> None:
        left = self.held[index] - 1
        if left:
            self.held[index] = left
        else:
            del self.held[index]
            self._dropped.append(index)


class LargeCommand:
    """The other end: a command on its way in pieces. `behind`: how many batches go before its WHOLE."""

    __slots__ = ("answers", "applied_bytes", "behind", "body", "counts", "cut_bytes", "head", "head_bytes", "waiter")

    def __init__(
        self, head: list[bytes], body: bytes, answers: bool, waiter: Callable[[object], None] | None, behind: int,
        counts: bool,
    ) -> None:
        self.head = head
        self.head_bytes = sum(map(len, head))
        self.body = body
        self.answers = answers
        self.waiter = waiter
        self.behind = behind
        self.counts = counts
        """Whether it is part of the session's backlog, `SessionSender.pending_bytes`."""
        self.cut_bytes = 0
        """Of the body, in batches of this session."""
        self.applied_bytes = 0
        """Of these, applied."""
