"""What can go wrong in a Raft group, as exceptions."""

from typing import Final


class RaftError(Exception):
    """A message or a call contradicts what the group has agreed on, or makes no sense.

    The node's state is as it was before: the caller drops the message (and may count it).
    """


class LogLost(RaftError):
    """A leader has this node's word that it stored entries which are not there: its log was lost or set back."""


class ProposalDropped(RaftError):
    """The proposal was not taken: no leader is known, leadership is being handed over, the limit of
    uncommitted bytes is reached, or this node is not a member. Nothing was appended; try again later."""


class UnknownPeer(RaftError):
    """A response came from a node that is not, or no longer, a member of the group."""


class ConfChangeError(RaftError):
    """A membership change can't be made from the present membership; ``reason`` is one of the constants."""

    ALREADY_JOINT: Final = "already joint"
    NOT_JOINT: Final = "not joint"
    EMPTY_GROUP: Final = "no voters to begin with"
    SIMPLE_IN_JOINT: Final = "simple change in a joint configuration"
    NO_VOTERS_LEFT: Final = "no voters left"
    TOO_MANY_VOTERS_CHANGED: Final = "more than one voter changes"
    UNKNOWN_KIND: Final = "unknown kind of change"
    INCONSISTENT: Final = "contradicts itself"

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason: str = reason


class StorageError(Exception):
    """Storage can't answer a question about the log."""


class Compacted(StorageError):
    """The asked-for index lies before the first one that is kept."""


class Unavailable(StorageError):
    """The asked-for index lies after the last one."""


class SnapshotTemporarilyUnavailable(StorageError):
    """A snapshot is being made and isn't ready yet; ask again later."""
