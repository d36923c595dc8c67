"""Large bodies of a shard's messages: how they go elsewhere, and, where there is a log, what of them need not be read
or written a second time (pure).

For duties whose commands have content with them: a body is most of it, and stands in the log already.
"""

from collections.abc import Callable
from typing import Protocol

from mayfly.cluster.versions import LEVEL_LARGE_DEAD_LETTERS
from mayfly.node.catalog import Catalog
from mayfly.node.duties.contents import content_of, names_and_header_of
from mayfly.node.duties.large_transfers import LargeTransfers
from mayfly.node.shard import commands
from mayfly.node.shard.message import Message


class PayloadReader(Protocol):
    """The log of a group, as far as payloads of its entries are read: see `cluster.log.group_log.GroupLog`."""

    def data(self, index: int) -> bytes:
        """The payload of an entry."""
        ...

    def head(self, index: int) -> bytes:
        """The payload of an entry as far as it stands in that entry itself."""
        ...

    def elsewhere(self, index: int, start: int) -> int:
        """Not negative if that of the payload of an entry which begins there does not stand in the entry itself."""
        ...

    def octets(self, index: int, start: int, length: int) -> bytes:
        """Of the payload of an entry so many octets, which stand in the entry itself or all elsewhere."""
        ...


class LargeLetters:
    """Of the messages of one shard: those that leave it."""

    def __init__(
        self,
        entry: Callable[[int], bytes],
        transfers: LargeTransfers,
        catalog: Catalog,
        larger_than_bytes: int,
    ) -> None:
        """`entry(index)`: the payload of an entry in which a message lives. Bodies `larger_than_bytes` are large."""
        self.transfers: LargeTransfers = transfers
        """The way to other shards."""
        self._entry = entry
        self._catalog = catalog
        self._larger_than_bytes = larger_than_bytes

    def has(self, message: Message) -> bool:
        """Whether the message has one, and the cluster knows what to do with it."""
        return message.body_length > self._larger_than_bytes and self._catalog.level >= LEVEL_LARGE_DEAD_LETTERS

    def content(self, message: Message) -> commands.LetterContent:
        """Its content, to be given away."""
        return content_of(self._entry(message.index), message)


class LargeBodies(LargeLetters):
    """Of the messages of a shard with a log."""

    def __init__(
        self,
        log: PayloadReader,
        give: Callable[[bytes, int, int, int], object],
        transfers: LargeTransfers,
        catalog: Catalog,
        larger_than_bytes: int,
    ) -> None:
        """`give`: see `cluster.group.group.Group.propose_borrowing`; it may get lost."""
        super().__init__(log.data, transfers, catalog, larger_than_bytes)
        self._log = log
        self._give = give

    def head(self, index: int) -> bytes:
        """What an entry has itself: the names and headers of its messages, unless they stand elsewhere."""
        return self._log.head(index)

    def is_whole(self, index: int) -> bool:
        """Whether an entry has all of its messages itself."""
        return self._log.elsewhere(index, len(self._log.head(index))) < 0

    def has_names_elsewhere(self, message: Message) -> bool:
        """Whether also the names and the header of a message do not stand in its own entry."""
        return self._log.elsewhere(message.index, message.offset) >= 0

    def names_and_header(self, message: Message) -> tuple[bytes, bytes]:
        """Of any message: they stand together, wherever its body is."""
        if not self.has_names_elsewhere(message):
            return names_and_header_of(self._log.head(message.index), message)
        octets = self._log.octets(message.index, message.offset, message.key_length + message.header_length)
        return octets[: message.key_length], octets[message.key_length :]

    def in_shard(self, message: Message) -> commands.LetterContent:
        """Its content, for a command of its own shard: of what is large without the body."""
        if self.has(message):
            return self.without_body(message)
        if self.has_names_elsewhere(message):
            return self.content(message)
        return content_of(self._entry(message.index), message)

    def without_body(self, message: Message) -> commands.LetterContent:
        """Its content but for the body, which is said to be elsewhere."""
        names, header = self.names_and_header(message)
        return commands.LetterContent(names, header, b"", message.redelivered, message.body_length)

    def content(self, message: Message) -> commands.LetterContent:
        """As of any shard; nothing of the body is kept here."""
        names, header = self.names_and_header(message)
        body = self._log.octets(message.index, _body_at(message), message.body_length)
        return commands.LetterContent(names, header, body, message.redelivered)

    def give(self, command: bytes, message: Message) -> None:
        """A command for the shard whose body, which is not in it, is the message's."""
        self._give(command, message.index, _body_at(message), message.body_length)


def _body_at(message: Message) -> int:
    """Where the body begins in the payload of the message's entry."""
    return message.offset + message.key_length + message.header_length
