"""What can go wrong in a Raft group, as exceptions."""


class RaftError(Exception):
    """A message or a call contradicts what the group has agreed on, or makes no sense.

    The node's state is as it was before: the caller drops the message (and may count it).
    """


class ProposalDropped(RaftError):
    """The proposal was not taken: no leader is known, leadership is being handed over, the limit of
    uncommitted bytes is reached, or this node is not a member. Nothing was appended; try again later."""


class StorageError(Exception):
    """Storage can't answer a question about the log."""


class Compacted(StorageError):
    """The asked-for index lies before the first one that is kept."""


class Unavailable(StorageError):
    """The asked-for index lies after the last one."""


class SnapshotOutOfDate(StorageError):
    """A snapshot was offered that is older than the one in place."""


class SnapshotTemporarilyUnavailable(StorageError):
    """A snapshot is being made and isn't ready yet; ask again later."""
