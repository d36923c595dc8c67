"""What one entry of a group's log means for the session of one node, as a feed has it, and how that travels."""

from collections.abc import Sequence
from typing import Protocol

from mayfly.cluster.group.sessions import SessionKey, SessionRow
from mayfly.cluster.group.state_machine import Effect


class FedEntry:
    """What one entry of the log means for the session of one node: first the answers, then the effects, then its end.

    `answers` are (sequence, results) of batches; None instead of results: the batch was cut short, nobody can say how
    far it went. `ended` is the row of the session when the entry ended it, else None."""

    __slots__ = ("answers", "effects", "ended", "index", "needs")

    def __init__(self, index: int = 0) -> None:
        self.index: int = index
        self.answers: list[tuple[int, Sequence[object] | None]] = []
        self.effects: list[Effect] = []
        self.ended: SessionRow | None = None
        self.needs: list[int] = []
        """Entries whose payload answers and effects refer to."""

    def __repr__(self) -> str:
        return f"FedEntry({self.index}, {self.answers}, {self.effects}, ended={self.ended})"


class Payloads(Protocol):
    """What answers and effects refer to: `GroupLog`."""

    def data(self, index: int) -> bytes:
        """The payload of an entry."""
        ...

    def views(self, index: int, start: int, length: int) -> list[memoryview]:
        """So many octets of it, where they stand."""
        ...


class FeedCodec(Protocol):
    """How answers and effects travel to a node without a replica."""

    def encode(
        self, entries: list[FedEntry], payloads: Payloads, most_bytes: int
    ) -> list[tuple[int, list[bytes | memoryview]]]:
        """As parts of about so many bytes, in pieces that are to be joined. Each with how many of the entries it
        completes; 0: it is to be read with the ones before it that complete none, and the next. Raises what the log
        raises."""
        ...

    def decode(self, parts: list[bytes], session: SessionKey) -> tuple[list[FedEntry], dict[int, bytes]]:
        """The entries of one or more parts, the last of which completes some, for this session, and the payloads that
        they refer to. Raises MalformedFeed."""
        ...


class MalformedFeed(ValueError):
    """Octets that no codec of feeds wrote."""
