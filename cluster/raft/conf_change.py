"""A membership change as it is proposed, and as it travels in an entry (thesis chapter 4)."""

import struct
from typing import Final

from mayfly.cluster.raft.errors import RaftError
from mayfly.cluster.raft.messages import MAX_NODE_ID, Entry, EntryType


class ConfChangeType:
    """What one step of a membership change does to one node."""

    ADD_NODE: Final = 0
    REMOVE_NODE: Final = 1
    UPDATE_NODE: Final = 2
    ADD_LEARNER_NODE: Final = 3


class ConfChangeTransition:
    """How a membership change is carried out (thesis chapter 4).

    AUTO takes the simple way when at most one voter changes, else a joint configuration that is left
    by itself. JOINT_IMPLICIT always goes through a joint configuration and leaves it by itself;
    JOINT_EXPLICIT stays in it until an empty change is proposed.
    """

    AUTO: Final = 0
    JOINT_IMPLICIT: Final = 1
    JOINT_EXPLICIT: Final = 2


class ConfChangeSingle:
    """One step of a membership change."""

    __slots__ = ("node_id", "type")

    def __init__(self, type: int, node_id: int) -> None:
        self.type: int = type
        self.node_id: int = node_id

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ConfChangeSingle)
            and self.type == other.type
            and self.node_id == other.node_id
        )

    def __hash__(self) -> int:
        return hash((self.type, self.node_id))

    def __repr__(self) -> str:
        return f"ConfChangeSingle({self.type}, {self.node_id})"


class ConfChange:
    """A membership change of one node, applied the simple way (entry type CONF_CHANGE)."""

    __slots__ = ("context", "node_id", "type")

    def __init__(self, type: int, node_id: int, context: bytes = b"") -> None:
        self.type: int = type
        self.node_id: int = node_id
        self.context: bytes = context

    def as_v2(self) -> "ConfChangeV2":
        changes = [ConfChangeSingle(self.type, self.node_id)]
        return ConfChangeV2(ConfChangeTransition.AUTO, changes, self.context)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ConfChange)
            and self.type == other.type
            and self.node_id == other.node_id
            and self.context == other.context
        )

    def __hash__(self) -> int:
        return hash((self.type, self.node_id, self.context))

    def __repr__(self) -> str:
        return f"ConfChange({self.type}, {self.node_id})"


class ConfChangeV2:
    """A membership change of any number of nodes (entry type CONF_CHANGE_V2).

    Without changes, and with transition AUTO, it asks to leave a joint configuration.
    """

    __slots__ = ("changes", "context", "transition")

    def __init__(
        self,
        transition: int = ConfChangeTransition.AUTO,
        changes: list[ConfChangeSingle] | None = None,
        context: bytes = b"",
    ) -> None:
        self.transition: int = transition
        self.changes: list[ConfChangeSingle] = changes if changes is not None else []
        self.context: bytes = context

    def as_v2(self) -> "ConfChangeV2":
        return self

    def leaves_joint(self) -> bool:
        """Whether this is the empty change that ends a joint configuration."""
        return not self.changes and self.transition == ConfChangeTransition.AUTO

    def enters_joint(self) -> bool:
        """Whether this change goes through a joint configuration."""
        return self.transition != ConfChangeTransition.AUTO or len(self.changes) > 1

    def auto_leave(self) -> bool:
        """Whether the joint configuration that this change enters is left without being asked."""
        return self.transition != ConfChangeTransition.JOINT_EXPLICIT

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ConfChangeV2)
            and self.transition == other.transition
            and self.changes == other.changes
            and self.context == other.context
        )

    def __hash__(self) -> int:
        return hash((self.transition, tuple(self.changes), self.context))

    def __repr__(self) -> str:
        return f"ConfChangeV2({self.transition}, {self.changes!r})"


_SINGLE: Final = struct.Struct(">BQ")
_HEADER: Final = struct.Struct(">BH")


def encode_conf_change(change: ConfChange | ConfChangeV2) -> Entry:
    """An entry without term and index that carries the change.

    The change that leaves a joint configuration has no bytes at all, so that no size limit can refuse it.
    """
    if isinstance(change, ConfChange):
        data = _SINGLE.pack(change.type, change.node_id) + change.context
        return Entry(type=EntryType.CONF_CHANGE, data=data)
    if change.leaves_joint() and not change.context:
        return Entry(type=EntryType.CONF_CHANGE_V2)
    parts = [_HEADER.pack(change.transition, len(change.changes))]
    parts.extend(_SINGLE.pack(single.type, single.node_id) for single in change.changes)
    parts.append(change.context)
    return Entry(type=EntryType.CONF_CHANGE_V2, data=b"".join(parts))


def decode_conf_change(entry: Entry) -> ConfChange | ConfChangeV2:
    """The change that an entry of a CONF_CHANGE type carries. Raises `RaftError` when it is damaged."""
    data = entry.data
    if entry.type == EntryType.CONF_CHANGE:
        if len(data) < _SINGLE.size:
            raise RaftError("a membership change is cut short")
        single = _decode_single(data, 0)
        return ConfChange(single.type, single.node_id, data[_SINGLE.size :])
    if entry.type != EntryType.CONF_CHANGE_V2:
        raise RaftError(f"an entry of type {entry.type} is no membership change")
    if not data:
        return ConfChangeV2()
    if len(data) < _HEADER.size:
        raise RaftError("a membership change is cut short")
    transition, count = _HEADER.unpack_from(data)
    end = _HEADER.size + count * _SINGLE.size
    if len(data) < end or transition > ConfChangeTransition.JOINT_EXPLICIT:
        raise RaftError("a membership change is damaged")
    changes = [_decode_single(data, offset) for offset in range(_HEADER.size, end, _SINGLE.size)]
    return ConfChangeV2(transition, changes, data[end:])


def _decode_single(data: bytes, offset: int) -> ConfChangeSingle:
    kind, node_id = _SINGLE.unpack_from(data, offset)
    if kind > ConfChangeType.ADD_LEARNER_NODE or node_id > MAX_NODE_ID:
        raise RaftError(f"a membership change names kind {kind} and node {node_id}")
    return ConfChangeSingle(kind, node_id)
