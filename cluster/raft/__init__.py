"""A Raft core without input or output: ticks and messages go in, a `Ready` comes out."""

from cluster.raft.conf_change import (
    ConfChange,
    ConfChangeSingle,
    ConfChangeTransition,
    ConfChangeType,
    ConfChangeV2,
    decode_conf_change,
    encode_conf_change,
)
from cluster.raft.config import Config, ReadOnlyOption
from cluster.raft.errors import (
    Compacted,
    ConfChangeError,
    ProposalDropped,
    RaftError,
    SnapshotOutOfDate,
    SnapshotTemporarilyUnavailable,
    StorageError,
    Unavailable,
    UnknownPeer,
)
from cluster.raft.memory_storage import MemoryStorage
from cluster.raft.messages import (
    LOCAL_APPEND_THREAD,
    LOCAL_APPLY_THREAD,
    NO_LEADER,
    NO_LIMIT,
    ConfState,
    Entry,
    EntryType,
    HardState,
    Message,
    MessageType,
    Snapshot,
    SnapshotMetadata,
    SoftState,
    StateType,
    entry_bytes,
    limit_entries,
)
from cluster.raft.raw_node import RawNode
from cluster.raft.ready import ReadState, Ready
from cluster.raft.status import Status
from cluster.raft.storage import Storage

__all__ = [
    "LOCAL_APPEND_THREAD",
    "LOCAL_APPLY_THREAD",
    "NO_LEADER",
    "NO_LIMIT",
    "Compacted",
    "ConfChange",
    "ConfChangeError",
    "ConfChangeSingle",
    "ConfChangeTransition",
    "ConfChangeType",
    "ConfChangeV2",
    "ConfState",
    "Config",
    "Entry",
    "EntryType",
    "HardState",
    "MemoryStorage",
    "Message",
    "MessageType",
    "ProposalDropped",
    "RaftError",
    "RawNode",
    "ReadOnlyOption",
    "ReadState",
    "Ready",
    "Snapshot",
    "SnapshotMetadata",
    "SnapshotOutOfDate",
    "SnapshotTemporarilyUnavailable",
    "SoftState",
    "StateType",
    "Status",
    "Storage",
    "StorageError",
    "Unavailable",
    "UnknownPeer",
    "decode_conf_change",
    "encode_conf_change",
    "entry_bytes",
    "limit_entries",
]
