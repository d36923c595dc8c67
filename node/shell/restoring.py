"""A cluster that was lost, begun anew from copies of its nodes' data: `mayfly restore`. No node runs meanwhile."""

import shutil
from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from mayfly.cluster.group.restoring import begun_anew, best_copy, log_end
from mayfly.cluster.log.batch import LogError, StoredGroup, StoreRefused
from mayfly.cluster.store.folder import make_folder, sync_folder
from mayfly.cluster.store.write_ahead_store import WriteAheadStore
from mayfly.node.membership.identity import Identity, KnownMembers, MalformedIdentity
from mayfly.node.shell.data_folder import DataFolder, OwnRecord, random_name, unfinished


class RestoreRefused(Exception):
    """The copies can't be used; the text names the folder and what would be right."""


class Restored(NamedTuple):
    """What was made: of which node, in which cluster, and from which copy each group came."""

    identity: Identity
    taken: dict[int, Path]
    behind: dict[int, list[Path]]
    """Copies whose log of a group ends earlier than that of the one taken."""


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


def _write(copies: Sequence[_Copy], target: WriteAheadStore) -> Restored:
    first = copies[0]
    identity = msgspec.structs.replace(first.identity, cluster=random_name(), founded="", joined=True)
    taken: dict[int, Path] = {}
    behind: dict[int, list[Path]] = {}
    for group in range(identity.shards + 1):
        known = [copy.groups.get(group) for copy in copies]
        number = best_copy(known)
        stored = None if number is None else known[number]
        if number is None or stored is None:
            raise RestoreRefused(f"group {group} is missing or damaged in every copy")
        chosen = copies[number]
        taken[group] = chosen.folder
        ends = [(0, 0) if each is None else log_end(each) for each in known]
        behind[group] = [copy.folder for copy, end in zip(copies, ends, strict=True) if end < ends[number]]
        for batch in begun_anew(group, stored, partial(chosen.store.read_entry, group), identity.node):
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
    return Restored(identity, taken, behind)
