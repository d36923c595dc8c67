"""What a replica begins with where the log store has nothing for its group, or nothing that may be used."""

from mayfly.cluster.group.rebuilding import Rebuild
from mayfly.cluster.group.settings import BOOTSTRAP_INDEX, BOOTSTRAP_TERM
from mayfly.cluster.host.placement import learners, voters
from mayfly.cluster.host.settings import HostSettings
from mayfly.cluster.log.batch import CorruptStore, GroupWrite, StoredGroup, StoredSnapshot
from mayfly.cluster.raft import ConfState, HardState, SnapshotMetadata


def bootstrap(settings: HostSettings, write: GroupWrite) -> StoredGroup:
    """A group that begins with the first members; `write` becomes what has to be stored."""
    conf = _first_members(settings, write.group)
    snapshot = StoredSnapshot(SnapshotMetadata(BOOTSTRAP_INDEX, BOOTSTRAP_TERM, conf), b"")
    hard_state = HardState(BOOTSTRAP_TERM, 0, BOOTSTRAP_INDEX)
    write.install = True
    write.snapshot = snapshot
    write.hard_state = hard_state
    return StoredGroup(hard_state, snapshot, [], [])


def set_aside(settings: HostSettings, group: int, known: StoredGroup, alone: bool) -> tuple[StoredGroup, Rebuild]:
    """A replica that knows nothing but its term and vote, in place of one whose log is damaged (see
    `cluster.group.rebuilding`). What is on disk stays until the rebuilt state replaces it. `alone`: there are no other
    nodes. Raises CorruptStore when there is nobody to rebuild it from."""
    conf = _first_members(settings, group) if known.snapshot is None else known.snapshot.metadata.conf_state
    if alone or not {*conf.voters, *conf.voters_outgoing} - {settings.node}:
        raise CorruptStore(f"{known.damage}; no other node has this group, it can't be rebuilt: restore a backup")
    hard_state = known.hard_state
    nothing = StoredSnapshot(SnapshotMetadata(BOOTSTRAP_INDEX, BOOTSTRAP_TERM, conf), b"")
    blank = StoredGroup(HardState(hard_state.term, hard_state.vote, BOOTSTRAP_INDEX), nothing, [], [])
    return blank, Rebuild(known.damage, max(known.last_index, hard_state.commit), hard_state.term)


def _first_members(settings: HostSettings, group: int) -> ConfState:
    nodes, factor = settings.nodes, settings.replication_factor
    return ConfState(voters=sorted(voters(group, nodes, factor)), learners=learners(group, nodes, factor))
