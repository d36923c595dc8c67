"""A node's data is opened: who it is by it, or becomes, and its engine with what the log holds."""

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from mayfly.cluster.host.clocks_ahead import go_on
from mayfly.cluster.log.batch import CorruptStore, StoreDamaged
from mayfly.cluster.store.folder import make_folder
from mayfly.cluster.store.write_ahead_store import WriteAheadStore
from mayfly.cluster.transport.cluster_secret import ClusterSecrets
from mayfly.node.engine.engine import Engine
from mayfly.node.membership.identity import Identity, KnownMembers
from mayfly.node.numbers import STARTS_SHIFT
from mayfly.node.operating.own_token import OwnToken
from mayfly.node.settings import NodeSettings
from mayfly.node.shell.arrival import establish_identity, next_start
from mayfly.node.shell.data_folder import DataFolder, OwnRecord
from mayfly.node.shell.ending import Ending
from mayfly.node.shell.engine_assembly import make_engine
from mayfly.node.shell.kept_ahead import KeptAhead
from mayfly.node.shell.private_files import make_private
from mayfly.node.shell.process_clock import ProcessClock, kept_clock, this_boot
from mayfly.node.shell.reading_back import EntryReader
from mayfly.node.shell.store_opening import forget_damaged_file, open_store

log = logging.getLogger("mayfly.node")

_FEW: Final = 3


@dataclass(frozen=True, slots=True)
class OpenedNode:
    """A node that nobody can reach yet."""

    store: WriteAheadStore
    record: OwnRecord
    clock: ProcessClock
    identity: Identity
    name: str
    """What it is called; one that joined keeps the name under which it did."""
    members: KnownMembers
    """As it knew them when it started."""
    starts: int
    """The count of its starts now."""
    earlier_starts: tuple[int, ...]
    """The counts at the last starts before, the oldest first."""
    engine: Engine
    ahead: KeptAhead
    own_token: OwnToken | None


async def open_node(
    settings: NodeSettings, known: ClusterSecrets, ending: Ending, ends: AsyncExitStack
) -> OpenedNode:
    """Open the log, come into a cluster, take in what is stored. Raises NodeRefused, LogError, OSError.

    What is to be closed is noted in `ends`, also where this raises or is cancelled. `known` is the cluster secret."""
    loop = asyncio.get_running_loop()
    opening = loop.run_in_executor(None, _open_store, settings)
    ends.push_async_callback(_close_store, opening)
    # Shielded: the thread opens it whoever is cancelled meanwhile, and it is to be closed.
    store = await asyncio.shield(opening)
    record = OwnRecord(store)
    folder = DataFolder(settings.data_dir)
    clock = await loop.run_in_executor(None, kept_clock, folder, this_boot())
    ahead = await loop.run_in_executor(None, KeptAhead, folder, this_boot(), clock)
    try:
        identity, members = await establish_identity(settings, record, known)
        ending.unproven = record.is_unproven()
        earlier_starts, starts = next_start(record)
        stored = await loop.run_in_executor(None, store.load)
        if not any(group.damage for group in stored.values()):
            await loop.run_in_executor(None, forget_damaged_file, settings)
        name = identity.name if identity.joined else settings.name
        reader = EntryReader(store, loop, ending.fail, lambda: bool(engine.host.peers))
        engine = make_engine(settings, identity, members, name, reader.read, starts << STARTS_SHIFT)
        first = engine.start(stored, clock.now_ms())
        go_on(engine.host.groups, ahead.kept)
        if first is not None:
            await loop.run_in_executor(None, store.write, first)
    except CorruptStore as error:
        raise StoreDamaged(f"the data in {settings.data_dir} is damaged: {error}") from error
    own_token = await loop.run_in_executor(None, _own_token, settings)
    return OpenedNode(store, record, clock, identity, name, members, starts, earlier_starts, engine, ahead, own_token)


def _open_store(settings: NodeSettings) -> WriteAheadStore:
    make_folder(settings.data_dir)
    open_to_others = make_private(settings.data_dir)
    if open_to_others:
        log.warning("others may read what is in %s, and it is not this user's to change: %s",
                    settings.data_dir, ", ".join(open_to_others[:_FEW]))  # fmt: skip
    return open_store(settings)


async def _close_store(opening: asyncio.Future[WriteAheadStore]) -> None:
    """Close the store, once it is open; there is nothing to close where it could not be opened."""
    await asyncio.wait([opening])
    if not opening.cancelled() and opening.exception() is None:
        # It waits for whoever is in the store, on a disk that may hang.
        await asyncio.get_running_loop().run_in_executor(None, opening.result().close)


def _own_token(settings: NodeSettings) -> OwnToken | None:
    try:
        return OwnToken(DataFolder(settings.data_dir).write_own_token())
    except OSError as error:
        log.warning("the node's own token can't be written: its hooks need a login: %s", error)
        return None
