"""What a message from outside must look like before the core takes it.

The rules of the algorithm presume that members keep to them. A message that no member can have sent is
refused here, before anything has changed: a damaged frame, another group's message, a peer that lost part
of its log. What merely comes late or twice is no error; the core deals with it.
"""

from typing import Final

from mayfly.cluster.raft.conf_change import decode_conf_change
from mayfly.cluster.raft.errors import LogLost, RaftError, UnknownPeer
from mayfly.cluster.raft.membership import restored_membership
from mayfly.cluster.raft.messages import (
    LOCAL_APPEND_THREAD,
    LOCAL_APPLY_THREAD,
    MAX_NODE_ID,
    MESSAGE_TYPE_NAMES,
    NO_LIMIT,
    EntryType,
    MessageType,
    RaftMessage,
    StateType,
)
from mayfly.cluster.raft.raft import Raft
from mayfly.cluster.raft.read_only import CONTEXT_BYTES

_PEER: Final = 0
_RESPONSE: Final = 1
_TERMLESS: Final = 2
_STORAGE: Final = 3
_LOCAL: Final = 4

_KINDS: Final = [_LOCAL] * len(MESSAGE_TYPE_NAMES)
"""Who may send which type."""

for _type in (
    MessageType.APP,
    MessageType.VOTE,
    MessageType.SNAP,
    MessageType.HEARTBEAT,
    MessageType.TRANSFER_LEADER,
    MessageType.TIMEOUT_NOW,
    MessageType.PRE_VOTE,
):
    _KINDS[_type] = _PEER
for _type in (
    MessageType.APP_RESP,
    MessageType.VOTE_RESP,
    MessageType.HEARTBEAT_RESP,
    MessageType.READ_INDEX_RESP,
    MessageType.PRE_VOTE_RESP,
):
    _KINDS[_type] = _RESPONSE
_KINDS[MessageType.PROP] = _TERMLESS
_KINDS[MessageType.READ_INDEX] = _TERMLESS
_KINDS[MessageType.STORAGE_APPEND_RESP] = _STORAGE
_KINDS[MessageType.STORAGE_APPLY_RESP] = _STORAGE


def check_message(raft: Raft, message: RaftMessage, async_storage_writes: bool) -> None:
    """Raises `RaftError` for what no member can have sent, `UnknownPeer` for answers of non-members."""
    kind = message.type
    if not 0 <= kind < len(_KINDS):
        raise RaftError(f"unknown message type {kind}")
    sender = _KINDS[kind]
    if sender == _STORAGE:
        _check_storage(raft, message, async_storage_writes)
        return
    if sender == _LOCAL:
        raise RaftError(f"{MESSAGE_TYPE_NAMES[kind]} is not for other nodes to send")
    from_ = message.from_
    if not 0 < from_ <= MAX_NODE_ID or (message.to != raft.id and message.to != 0):
        raise RaftError(f"a message from {from_} to {message.to} came to {raft.id}")
    if sender == _RESPONSE and from_ not in raft.tracker.progress:
        raise UnknownPeer(f"{MESSAGE_TYPE_NAMES[kind]} came from {from_}, which is not a member")
    if from_ == raft.id and not (
        kind == MessageType.TRANSFER_LEADER or (sender == _RESPONSE and async_storage_writes)
    ):
        raise RaftError(f"{MESSAGE_TYPE_NAMES[kind]} claims to come from this node itself")
    if (
        not 0 <= message.term < NO_LIMIT
        or not 0 <= message.log_term <= message.term
        or not 0 <= message.index < NO_LIMIT
        or not 0 <= message.commit < NO_LIMIT
        or not 0 <= message.reject_hint < NO_LIMIT
    ):
        raise RaftError(f"impossible numbers in {message!r}")
    if (message.term == 0) != (sender == _TERMLESS):
        raise RaftError(f"{MESSAGE_TYPE_NAMES[kind]} has term {message.term}")
    _check_content(raft, message)


def _check_content(raft: Raft, message: RaftMessage) -> None:
    kind = message.type
    if kind == MessageType.APP:
        if message.entries:
            _check_entries(message)
    elif kind == MessageType.APP_RESP:
        _check_append_response(raft, message)
    elif kind == MessageType.HEARTBEAT:
        if message.term >= raft.term and message.commit > raft.raft_log.last_index():
            raise LogLost(
                f"leader {message.from_} knows of {message.commit} entries here, but there are "
                f"{raft.raft_log.last_index()}: was the log lost?"
            )
    elif kind == MessageType.HEARTBEAT_RESP:
        if len(message.context) not in (0, CONTEXT_BYTES):
            raise RaftError("the context of a heartbeat is damaged")
    elif kind == MessageType.SNAP:
        _check_snapshot(raft, message)
    elif kind == MessageType.PROP:
        _check_proposal(message)
    elif (
        kind == MessageType.READ_INDEX or kind == MessageType.READ_INDEX_RESP
    ) and len(message.entries) != 1:
        raise RaftError(f"a read request with {len(message.entries)} contexts")


def _check_entries(message: RaftMessage) -> None:
    """Entries follow each other, with terms that never fall and never exceed the leader's."""
    index = message.index
    term = message.log_term
    for entry in message.entries:
        index += 1
        if entry.index != index or entry.term < term:
            raise RaftError(f"entry {entry.term}/{entry.index} follows {term}/{index - 1}")
        term = entry.term
    if term > message.term or message.entries[0].term == 0:
        raise RaftError(f"a leader of term {message.term} sends entries of term {term}")


def _check_append_response(raft: Raft, message: RaftMessage) -> None:
    if message.term != raft.term or raft.state != StateType.LEADER:
        return
    last = raft.raft_log.last_index()
    if message.index > last or message.reject_hint > last:
        raise RaftError(
            f"{message.from_} answers for entry {max(message.index, message.reject_hint)}, but the last one is {last}: "
            "one of the two has data of another moment (docs/operations/backup.md)"
        )


def _check_snapshot(raft: Raft, message: RaftMessage) -> None:
    snapshot = message.snapshot
    if snapshot is None:
        raise RaftError("a snapshot message without a snapshot")
    metadata = snapshot.metadata
    if not 0 < metadata.index < NO_LIMIT or not 0 < metadata.term <= message.term:
        raise RaftError(f"a snapshot of {metadata.term}/{metadata.index} came at term {message.term}")
    restored_membership(metadata.conf_state, metadata.index, raft.limits)


def _check_proposal(message: RaftMessage) -> None:
    if not message.entries:
        raise RaftError("a proposal of nothing")
    for entry in message.entries:
        if entry.type != EntryType.NORMAL:
            decode_conf_change(entry)


def _check_storage(raft: Raft, message: RaftMessage, async_storage_writes: bool) -> None:
    expected = (
        LOCAL_APPEND_THREAD if message.type == MessageType.STORAGE_APPEND_RESP else LOCAL_APPLY_THREAD
    )
    if not async_storage_writes or message.from_ != expected or message.to != raft.id:
        raise RaftError(f"{message!r} doesn't come from this node's storage")
    log = raft.raft_log
    if message.entries and not log.applied <= message.entries[-1].index <= log.committed:
        raise RaftError(f"{message.entries[-1].index} can't have been applied: {log!r}")
