"""ROUTE_NOTED as bytes: where deaths go of which some are to be noted in journals (RULES R4). HOT.

What ROUTE says of a record anew each time is said once here: which journals there are. A record has no body, goes to
one of them, and its sequence is the next one. It comes behind what else the command brings.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from mayfly.node.shard.commands import NUMBER_PAIR, ROUTE_NOTED, RouteDecision, add_decision

# kind, number of decisions, sequence of the first, number of journals; then for each its shard, 0 for this one, and it
NOTED_HEAD: Final = Struct("<BIQB")
# which journal, counted from 1, key length, header length; 0 and nothing else: what follows is a decision as in a ROUTE
NOTE_HEAD: Final = Struct("<BHI")
A_DECISION: Final = b"\0"
MOST_JOURNALS: Final = 255


class NotedRoute:
    """A ROUTE_NOTED as it comes about: decisions for deaths from the head of ``Shard.unrouted`` on, in order. From
    feature level `cluster.versions.LEVEL_NOTED_ROUTES` on."""

    __slots__ = ("_head", "_header_length", "_journal", "_journals", "_names", "_parts", "count", "first")

    def __init__(self, first: int) -> None:
        """``first``: the sequence of the first death."""
        self.first = first
        self.count = 0
        self._journals: dict[tuple[int, int], int] = {}
        self._parts: list[bytes] = []
        self._journal = (-1, -1)
        self._names = b""
        self._header_length = -1
        self._head = b""
        """Of records for this journal with these names and so long a header."""

    def add(self, decision: RouteDecision) -> None:
        """About the next death, whatever it is."""
        self.count += 1
        self._parts.append(A_DECISION)
        add_decision(self._parts, decision)

    def add_record(
        self, journal: tuple[int, int], exchange_and_key: bytes, header: bytes, middle: bytes = b"", end: bytes = b""
    ) -> bool:
        """The next death is a record, and this goes to the journal: its shard, 0 for this one, and its id. The header
        may be in three parts. False, and nothing is done, where there are too many journals."""
        length = len(header) + len(middle) + len(end)
        if length != self._header_length or journal != self._journal or exchange_and_key != self._names:
            number = self._number(journal)
            if not number:
                return False
            self._journal, self._names, self._header_length = journal, exchange_and_key, length
            self._head = NOTE_HEAD.pack(number, len(exchange_and_key), length) + exchange_and_key
        self.count += 1
        self._parts.append(self._head)
        self._parts.append(header)
        self._parts.append(middle)
        self._parts.append(end)
        return True

    def _number(self, journal: tuple[int, int]) -> int:
        """Of a journal, from 1 on; 0 where there are too many."""
        number = self._journals.get(journal, 0)
        if not number:
            if len(self._journals) >= MOST_JOURNALS:
                return 0
            number = self._journals[journal] = len(self._journals) + 1
        return number

    def encoded(self) -> bytes:
        """The command."""
        head = NOTED_HEAD.pack(ROUTE_NOTED, self.count, self.first, len(self._journals))
        journals: Sequence[bytes] = [NUMBER_PAIR.pack(*journal) for journal in self._journals]
        return b"".join([head, *journals, *self._parts])
