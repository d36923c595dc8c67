"""The log of a node as it starts: opened, or, where its file is damaged and other nodes have all of it, made anew."""

import logging

from mayfly.cluster.log.batch import StoreDamaged
from mayfly.cluster.store.salvage import DAMAGED_FILE, Promises, salvage
from mayfly.cluster.store.write_ahead_store import WriteAheadStore
from mayfly.node.membership.identity import MalformedIdentity, decode_identity, decode_members
from mayfly.node.settings import NodeSettings

log = logging.getLogger("mayfly.node")


def open_store(settings: NodeSettings) -> WriteAheadStore:
    """The log in the data folder. Raises `StoreRefused`, `StoreDamaged`; OSError."""
    folder = settings.data_dir / "log"
    try:
        return WriteAheadStore(folder, settings.disk_map_bytes)
    except StoreDamaged as damage:
        if not salvage(folder, str(damage), others_have_it):
            raise
        log.error(
            "%s; what this node has promised could be read, all else is rebuilt from the other nodes (the damaged "
            "file is %s until a start that finds all rebuilt)", damage, folder / DAMAGED_FILE,
        )  # fmt: skip
    return WriteAheadStore(folder, settings.disk_map_bytes)


def others_have_it(promises: Promises) -> bool:
    """Whether every group of this node has replicas elsewhere, as far as the node knew when it last ran."""
    stored, members = promises.value("identity"), promises.value("members")
    if stored is None or members is None:
        return False
    try:
        identity = decode_identity(stored)
        others = set(decode_members(members).members) - {identity.node}
    except MalformedIdentity:
        return False
    return identity.replication_factor > 1 and bool(others)


def forget_damaged_file(settings: NodeSettings) -> None:
    """All is rebuilt: nobody needs the damaged file any more. Raises OSError."""
    file = settings.data_dir / "log" / DAMAGED_FILE
    if file.exists():
        file.unlink()
        log.info("%s is deleted: all that it held was rebuilt", file)
