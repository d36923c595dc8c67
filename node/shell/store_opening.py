"""The log of a node as it starts: opened, or, where its file is damaged and other nodes have all of it, made anew."""

import logging

from mayfly.cluster.log.batch import StoreDamaged
from mayfly.cluster.store.salvage import Promises, salvage
from mayfly.cluster.store.write_ahead_store import WriteAheadStore
from mayfly.node.membership.identity import MalformedIdentity
from mayfly.node.settings import NodeSettings
from mayfly.node.shell.data_folder import DataFolder, stored_identity, stored_members

log = logging.getLogger("mayfly.node")


def open_store(settings: NodeSettings) -> WriteAheadStore:
    """The log in the data folder. Raises `StoreRefused`, `StoreDamaged`; OSError."""
    folder = DataFolder(settings.data_dir)
    try:
        return WriteAheadStore(folder.log, settings.disk_map_bytes)
    except StoreDamaged as damage:
        if not salvage(folder.log, str(damage), others_have_it):
            raise
        log.error(
            "%s; what this node has promised could be read, all else is rebuilt from the other nodes (the damaged "
            "file is %s until a start that finds all rebuilt)", damage, folder.damaged_file,
        )  # fmt: skip
    return WriteAheadStore(folder.log, settings.disk_map_bytes)


def others_have_it(promises: Promises) -> bool:
    """Whether every group of this node has replicas elsewhere, as far as the node knew when it last ran."""
    try:
        identity, members = stored_identity(promises.value), stored_members(promises.value)
    except MalformedIdentity:
        return False
    if identity is None or members is None:
        return False
    return identity.replication_factor > 1 and bool(set(members.members) - {identity.node})


def forget_damaged_file(settings: NodeSettings) -> None:
    """All is rebuilt: nobody needs the damaged file any more. Raises OSError."""
    file = DataFolder(settings.data_dir).damaged_file
    if file.exists():
        file.unlink()
        log.info("%s is deleted: all that it held was rebuilt", file)
