"""What a replica begins with where the log store has nothing for its group, or nothing that may be used."""

from mayfly.cluster.group.rebuilding import Rebuild
from mayfly.cluster.group.settings import BOOTSTRAP_INDEX, BOOTSTRAP_TERM
from mayfly.cluster.host.placement import EVERYWHERE, learners, voters
from mayfly.cluster.host.settings import HostSettings
from mayfly.cluster.log.batch import CorruptStore, GroupWrite, StoredGroup, StoredSnapshot
from mayfly.cluster.raft import ConfState, HardState, SnapshotMetadata


def bootstrap(first: ConfState, write: GroupWrite) -> StoredGroup:
    """A group that begins with these members; `write` becomes what has to be stored."""
    snapshot = StoredSnapshot(SnapshotMetadata(BOOTSTRAP_INDEX, BOOTSTRAP_TERM, first), b"")
    hard_state = HardState(BOOTSTRAP_TERM, 0, BOOTSTRAP_INDEX)
    write.install = True
    write.snapshot = snapshot
    write.hard_state = hard_state
    return StoredGroup(hard_state, snapshot, [], [])


def given_up(group: int, promised: HardState, vouched: tuple[int, int]) -> GroupWrite:
    """What is stored of a replica that is given up: nothing but its term and vote (Raft 5.2), and term and index of the
    last entry that it `vouched` for (5.4.1): they bind this node should it ever vote in the group again."""
    write = GroupWrite(group)
    write.install = True
    term, index = max(vouched, (BOOTSTRAP_TERM, BOOTSTRAP_INDEX))
    write.snapshot = StoredSnapshot(SnapshotMetadata(index, term, ConfState()), b"")
    write.hard_state = HardState(promised.term, promised.vote, BOOTSTRAP_INDEX)
    return write


def nothing_left(stored: StoredGroup | None) -> StoredGroup:
    """What a replica begins with of which at most a word is stored: the log is gone, or was never there."""
    if stored is None:
        return StoredGroup(HardState(), None, [], [])
    nothing = StoredGroup(HardState(stored.hard_state.term, stored.hard_state.vote, 0), None, [], [])
    if stored.snapshot is not None:
        nothing.given_up = (stored.snapshot.metadata.term, stored.snapshot.metadata.index)
    return nothing


def is_given_up(stored: StoredGroup) -> bool:
    """Whether that is what is stored."""
    snapshot = stored.snapshot
    return snapshot is not None and not snapshot.metadata.conf_state.voters and not stored.damage


def set_aside(node: int, first: ConfState, known: StoredGroup, alone: bool) -> tuple[StoredGroup, Rebuild]:
    """A replica that knows nothing but its term and vote, in place of one whose log is damaged (see
    `cluster.group.rebuilding`). What is on disk stays until the rebuilt state replaces it. `alone`: there are no other
    nodes. `first` are the members that the group began with. Raises CorruptStore when there is nobody to rebuild it
    from."""
    conf = first if known.snapshot is None else known.snapshot.metadata.conf_state
    if alone or not {*conf.voters, *conf.voters_outgoing} - {node}:
        raise CorruptStore(f"{known.damage}; no other node has this group, it can't be rebuilt: restore a backup")
    hard_state = known.hard_state
    nothing = StoredSnapshot(SnapshotMetadata(BOOTSTRAP_INDEX, BOOTSTRAP_TERM, conf), b"")
    blank = StoredGroup(HardState(hard_state.term, hard_state.vote, BOOTSTRAP_INDEX), nothing, [], [])
    return blank, Rebuild(known.damage, max(known.last_index, hard_state.commit), hard_state.term)


def founding_members(settings: HostSettings, group: int) -> ConfState:
    """Who is in a group that is there since the founding, at first."""
    nodes, factor = settings.nodes, settings.replication_factor
    others = learners(group, nodes, factor) if group == EVERYWHERE or settings.everywhere else []
    return ConfState(voters=sorted(voters(group, nodes, factor)), learners=others)
