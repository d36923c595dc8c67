"""A cluster that was lost, begun anew from copies of its nodes' data: `mayfly restore`. No node runs meanwhile."""

import shutil
from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from mayfly.cluster.group.applying import Applying
from mayfly.cluster.group.own_session import OwnSession
from mayfly.cluster.group.restoring import begun_anew, best_copy, log_end, unused
from mayfly.cluster.group.settings import GroupSettings
from mayfly.cluster.group.state_machine import BadSnapshot
from mayfly.cluster.host.first_state import is_given_up
from mayfly.cluster.log.batch import LogError, StoredGroup, StoreRefused
from mayfly.cluster.raft import EntryType
from mayfly.cluster.store.folder import make_folder, sync_folder
from mayfly.cluster.store.write_ahead_store import WriteAheadStore
from mayfly.node.catalog import Catalog
from mayfly.node.catalog.machine import CatalogMachine
from mayfly.node.membership.identity import Identity, KnownMembers, MalformedIdentity
from mayfly.node.numbers import CATALOG_GROUP
from mayfly.node.shell.data_folder import DataFolder, OwnRecord, random_name, unfinished

_NOBODY: Final = 0
"""The number of no node: as whom the log is read here, so that nothing in it is told."""
_SETTINGS: Final = GroupSettings(1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
"""They matter to a session that is used."""


class RestoreRefused(Exception):
    """The copies can't be used; the text names the folder and what would be right."""


class Restored(NamedTuple):
    """What was made: of which node, in which cluster, and from which copy each group came."""

    identity: Identity
    taken: dict[int, Path]
    behind: dict[int, list[Path]]
    """Copies whose log of a group ends earlier than that of the one taken; those that have none are in `without`."""
    without: dict[int, list[Path]]
    empty: list[int]
    """Shards that had been added, and had taken nothing yet: they begin once more."""


class _Copy(NamedTuple):
    folder: Path
    store: WriteAheadStore
    record: OwnRecord
    identity: Identity
    groups: dict[int, StoredGroup]


def restore(copies: Sequence[Path], data_dir: Path, map_bytes: int) -> Restored:
    """Make the data of the first node of a new cluster, with all that the copies have. It is the node of the first
    copy, under its id and name; the cluster has another id, so that nodes of the old one stay away. Raises
    RestoreRefused, OSError."""
    if data_dir.exists() and any(data_dir.iterdir()):
        raise RestoreRefused(f"{data_dir} is not empty: name a folder that is not there yet")
    draft = unfinished(data_dir)
    make_folder(draft, may_exist=False)
    try:
        with ExitStack() as stack:
            opened = [_open(folder, map_bytes, stack) for folder in copies]
            _check(opened)
            target = stack.enter_context(closing(WriteAheadStore(DataFolder(draft).log, map_bytes)))
            restored = _write(opened, target)
        draft.replace(data_dir)
        sync_folder(data_dir.parent)
    except (LogError, StoreRefused) as error:
        raise RestoreRefused(str(error)) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return restored


def _open(folder: Path, map_bytes: int, stack: ExitStack) -> _Copy:
    log = DataFolder(folder).log
    if not log.is_dir():
        raise RestoreRefused(f"{folder} holds no data of a node: what mayfly snapshot made, or a data_dir, is expected")
    store = stack.enter_context(closing(WriteAheadStore(log, map_bytes)))
    record = OwnRecord(store)
    try:
        identity = record.identity()
        if identity is None:
            raise RestoreRefused(f"{folder} is the data of a node that was in no cluster yet")
        return _Copy(folder, store, record, identity, store.load())
    except MalformedIdentity as error:
        raise RestoreRefused(f"{folder}: {error}") from None


def _check(copies: Sequence[_Copy]) -> None:
    first = copies[0]
    for copy in copies[1:]:
        if copy.identity.cluster != first.identity.cluster:
            raise RestoreRefused(
                f"{copy.folder} is of cluster {copy.identity.cluster}, {first.folder} of {first.identity.cluster}: "
                "copies of one cluster are expected"
            )


def _best(catalog: Catalog, copies: Sequence[_Copy]) -> tuple[dict[int, _Copy], list[int]]:
    """The copy to take each group from, and the groups that begin once more: a node has a copy of the shards that it
    has replicas of, so one need not have all. Raises RestoreRefused with all that is missing."""
    groups = range(catalog.shard_count + 1)
    numbers = {group: best_copy([copy.groups.get(group) for copy in copies]) for group in groups}
    empty = [group for group, number in numbers.items() if number is None and _is_unused(group, catalog, copies)]
    missing = [group for group, number in numbers.items() if number is None and group not in empty]
    if missing:
        shards = ", ".join(f"shard {group}" for group in missing)
        raise RestoreRefused(
            f"{shards}: missing or damaged in every copy; copies of nodes that had replicas of what is missing are "
            f"expected as well{_where_begun(missing, catalog)}"
        )
    return {group: copies[number] for group, number in numbers.items() if number is not None}, empty


def _has(copy: _Copy, group: int) -> bool:
    stored = copy.groups.get(group)
    return stored is not None and not is_given_up(stored)


def _is_unused(group: int, catalog: Catalog, copies: Sequence[_Copy]) -> bool:
    """Whether nothing can be in a group that no copy has: one that was added, and that a majority of its first voters
    had not begun."""
    voters = catalog.members.first_voters(group)
    if voters is None or any(group in copy.groups for copy in copies):
        return False
    return 2 * len({copy.identity.node for copy in copies} & {*voters}) > len(voters)


def _where_begun(missing: Sequence[int], catalog: Catalog) -> str:
    """Which of these shards were added, and where they began: copies of most of these nodes may show that there is
    nothing in them."""
    text = ""
    for group in missing:
        records = map(catalog.members.get, catalog.members.first_voters(group) or ())
        names = [record.name for record in records if record is not None]
        text += f"; shard {group}, which was added, began on {', '.join(names)}" if names else ""
    return text


def _write(copies: Sequence[_Copy], target: WriteAheadStore) -> Restored:
    first = copies[0]
    identity = msgspec.structs.replace(first.identity, cluster=random_name(), founded="", joined=True)
    taken: dict[int, Path] = {}
    behind: dict[int, list[Path]] = {}
    without: dict[int, list[Path]] = {}
    best, empty = _best(_catalog(copies), copies)
    for group in empty:
        target.write(unused(group, identity.node))
    for group, chosen in best.items():
        taken[group] = chosen.folder
        ends = {copy.folder: log_end(copy.groups[group]) for copy in copies if _has(copy, group)}
        behind[group] = [folder for folder, end in ends.items() if end < ends[chosen.folder]]
        without[group] = [copy.folder for copy in copies if not _has(copy, group)]
        stored, read = chosen.groups[group], partial(chosen.store.read_entry, group)
        for batch in begun_anew(group, stored, read, identity.node):
            target.write(batch)
    known_members = first.record.members() or KnownMembers(0, {})
    itself = {id: known_members.members.get(id, (identity.name, "")) for id in (identity.node,)}
    record = OwnRecord(target)
    record.keep_store_name(identity.store)
    record.keep_starts(first.record.starts())
    levels = [level for copy in copies if (level := copy.record.level()) is not None]
    if levels:
        record.keep_level(max(levels))
    record.arrived(identity, KnownMembers(0, itself, {identity.node: identity.store}))
    return Restored(identity, taken, behind, without, empty)


def _catalog(copies: Sequence[_Copy]) -> Catalog:
    """As the copy that is taken of it says to the end of its log, all of which will count."""
    number = best_copy([copy.groups.get(CATALOG_GROUP) for copy in copies])
    stored = None if number is None else copies[number].groups[CATALOG_GROUP]
    if number is None or stored is None or stored.snapshot is None:
        raise RestoreRefused("the catalog: missing or damaged in every copy")
    copy = copies[number]
    machine = CatalogMachine(Catalog(copy.identity.shards), lambda: None)
    applying = Applying(OwnSession(CATALOG_GROUP, _NOBODY, 0, _SETTINGS, _Nobody(), None), machine, None)
    try:
        if stored.snapshot.state:
            reading = applying.reading(stored.snapshot.state)
            while not reading.step():
                pass
            applying.restore(reading, stored.snapshot.metadata.index)
    except BadSnapshot as error:
        raise RestoreRefused(f"{copy.folder}: the catalog can't be read: {error}") from None
    for index, _ in stored.entries:
        entry = copy.store.read_entry(CATALOG_GROUP, index)
        if entry.type == EntryType.NORMAL and entry.data:
            applying.apply(index, entry.data)
    return machine.catalog


class _Nobody:
    """Who hears of what a catalog that nobody uses applies."""

    def group_effects(self, group: int, effects: Sequence[object]) -> None:
        """See `GroupEvents`."""

    def group_session_lost(self, group: int) -> None:
        """See `GroupEvents`."""

    def group_proposes(self, group: int) -> None:
        """See `GroupEvents`."""

    def group_applied(self, group: int) -> None:
        """See `GroupEvents`."""

    def group_taken_up(self, group: int) -> None:
        """See `GroupEvents`."""

    def group_given_up(self, group: int) -> None:
        """See `GroupEvents`."""
