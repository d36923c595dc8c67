"""Writes the core's values the way the recorded transcripts do."""

import json

from mayfly.cluster.raft import (
    LOCAL_APPEND_THREAD,
    LOCAL_APPLY_THREAD,
    ConfChangeSingle,
    ConfChangeTransition,
    ConfState,
    Entry,
    EntryType,
    HardState,
    RaftMessage,
    Ready,
    Snapshot,
    SoftState,
    decode_conf_change,
)
from mayfly.cluster.raft.progress import Progress
from mayfly.cluster.raft.tracker import Configuration

ENTRY_TYPES = ("EntryNormal", "EntryConfChange", "EntryConfChangeV2")
STATES = ("StateFollower", "StateCandidate", "StateLeader", "StatePreCandidate")
PROGRESS_STATES = ("StateProbe", "StateReplicate", "StateSnapshot")
MESSAGE_TYPES = (
    "MsgHup",
    "MsgBeat",
    "MsgProp",
    "MsgApp",
    "MsgAppResp",
    "MsgVote",
    "MsgVoteResp",
    "MsgSnap",
    "MsgHeartbeat",
    "MsgHeartbeatResp",
    "MsgUnreachable",
    "MsgSnapStatus",
    "MsgCheckQuorum",
    "MsgTransferLeader",
    "MsgTimeoutNow",
    "MsgReadIndex",
    "MsgReadIndexResp",
    "MsgPreVote",
    "MsgPreVoteResp",
    "MsgStorageAppend",
    "MsgStorageAppendResp",
    "MsgStorageApply",
    "MsgStorageApplyResp",
    "MsgForgetLeader",
)
CHANGE_LETTERS = "vrul"
TRANSITIONS = {
    "auto": ConfChangeTransition.AUTO,
    "implicit": ConfChangeTransition.JOINT_IMPLICIT,
    "explicit": ConfChangeTransition.JOINT_EXPLICIT,
}


def parse_changes(text: str) -> list[ConfChangeSingle]:
    """`v1 l2 r3 u4`: add a voter, add a learner, remove, update."""
    return [ConfChangeSingle(CHANGE_LETTERS.index(word[0]), int(word[1:])) for word in text.split()]


def describe_changes(changes: list[ConfChangeSingle]) -> str:
    return " ".join(f"{CHANGE_LETTERS[change.type]}{change.node_id}" for change in changes)


def describe_ids(ids: set[int]) -> str:
    return "(" + " ".join(f"{node_id:x}" for node_id in sorted(ids)) + ")"


def describe_configuration(configuration: Configuration) -> str:
    text = f"voters={describe_ids(configuration.incoming)}"
    if configuration.outgoing:
        text += f"&&{describe_ids(configuration.outgoing)}"
    if configuration.learners:
        text += f" learners={describe_ids(configuration.learners)}"
    if configuration.learners_next:
        text += f" learners_next={describe_ids(configuration.learners_next)}"
    return text + (" autoleave" if configuration.auto_leave else "")


def describe_progress(progress: Progress) -> str:
    text = f"{PROGRESS_STATES[progress.state]} match={progress.match} next={progress.next}"
    if progress.is_learner:
        text += " learner"
    if progress.is_paused():
        text += " paused"
    if progress.pending_snapshot:
        text += f" pendingSnap={progress.pending_snapshot}"
    if not progress.recent_active:
        text += " inactive"
    if progress.inflights.count():
        text += f" inflight={progress.inflights.count()}"
        if progress.inflights.full():
            text += "[full]"
    return text


def describe_all_progress(all_progress: dict[int, Progress]) -> list[str]:
    return [f"{node_id}: {describe_progress(all_progress[node_id])}" for node_id in sorted(all_progress)]


def describe_entry(entry: Entry) -> str:
    text = f"{entry.term}/{entry.index} {ENTRY_TYPES[entry.type]}"
    if entry.type == EntryType.NORMAL:
        return f"{text} {json.dumps(entry.data.decode())}"
    changes = describe_changes(decode_conf_change(entry).as_v2().changes)
    return f"{text} {changes}" if changes else text


def describe_list(ids: list[int]) -> str:
    return "[" + " ".join(map(str, ids)) + "]"


def describe_conf_state(state: ConfState) -> str:
    return (
        f"Voters:{describe_list(state.voters)} VotersOutgoing:{describe_list(state.voters_outgoing)} "
        f"Learners:{describe_list(state.learners)} LearnersNext:{describe_list(state.learners_next)} "
        f"AutoLeave:{str(state.auto_leave).lower()}"
    )


def describe_snapshot(snapshot: Snapshot) -> str:
    metadata = snapshot.metadata
    return f"Index:{metadata.index} Term:{metadata.term} ConfState:{describe_conf_state(metadata.conf_state)}"


def describe_hard_state(state: HardState) -> str:
    vote = f" Vote:{state.vote}" if state.vote else ""
    return f"HardState Term:{state.term}{vote} Commit:{state.commit}"


def describe_soft_state(state: SoftState) -> str:
    return f"Lead:{state.lead} State:{STATES[state.state]}"


def describe_node(node_id: int) -> str:
    named = {LOCAL_APPEND_THREAD: "AppendThread", LOCAL_APPLY_THREAD: "ApplyThread", 0: "None"}
    return named.get(node_id, f"{node_id:x}")


def describe_message(message: RaftMessage, indent: str = "") -> list[str]:
    """A message in one or more lines."""
    text = (
        f"{indent}{describe_node(message.from_)}->{describe_node(message.to)} {MESSAGE_TYPES[message.type]} "
        f"Term:{message.term} Log:{message.log_term}/{message.index}"
    )
    if message.reject:
        text += f" Rejected (Hint: {message.reject_hint})"
    if message.commit:
        text += f" Commit:{message.commit}"
    if message.vote:
        text += f" Vote:{message.vote}"
    if len(message.entries) == 1:
        text += f" Entries:[{describe_entry(message.entries[0])}]"
    elif message.entries:
        text += " Entries:["
        text += "".join(f"\n{indent}  {describe_entry(entry)}" for entry in message.entries)
        text += f"\n{indent}]"
    if message.snapshot is not None and not message.snapshot.is_empty():
        text += f"\n{indent}  Snapshot: {describe_snapshot(message.snapshot)}"
    if message.responses:
        text += " Responses:["
        for response in message.responses:
            text += "\n" + "\n".join(describe_message(response, indent + "  "))
        text += f"\n{indent}]"
    return text.split("\n")


def describe_ready(ready: Ready) -> list[str]:
    lines = []
    if ready.soft_state is not None:
        lines.append(describe_soft_state(ready.soft_state))
    if ready.hard_state is not None:
        lines.append(describe_hard_state(ready.hard_state))
    if ready.read_states:
        lines.append(f"ReadStates {ready.read_states}")
    if ready.entries:
        lines.append("Entries:")
        lines.extend(map(describe_entry, ready.entries))
    if ready.snapshot is not None:
        lines.append(f"Snapshot {describe_snapshot(ready.snapshot)}")
    if ready.committed_entries:
        lines.append("CommittedEntries:")
        lines.extend(map(describe_entry, ready.committed_entries))
    if ready.messages:
        lines.append("Messages:")
        for message in ready.messages:
            lines.extend(describe_message(message))
    if not lines:
        return ["<empty Ready>"]
    return [f"Ready MustSync={str(ready.must_sync).lower()}:", *lines]
