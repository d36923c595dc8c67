"""A node follows the members and the level that the catalog has: its connections do, and what the next start knows."""

import asyncio
import logging
from collections.abc import Callable

from mayfly.cluster.log.batch import DiskFull, LogError
from mayfly.cluster.transport.peer_transport import PeerTransport
from mayfly.cluster.versions import LEVELS, level_fault
from mayfly.node.engine.engine import Engine
from mayfly.node.membership.identity import KnownMembers
from mayfly.node.shell.data_folder import OwnRecord
from mayfly.node.shell.drive import RETRY_FULL_DISK_S
from mayfly.node.shell.ending import Ending
from mayfly.node.shell.tasks import Tasks

log = logging.getLogger("mayfly.node")


class Following:
    """Of one node. `members_changed` and `level_changed` are what its engine's membership calls."""

    def __init__(
        self,
        engine: Engine,
        name: str,
        record: OwnRecord,
        transport: PeerTransport,
        ending: Ending,
        tasks: Tasks,
        leaving: Callable[[], None],
        level_limit: int,
    ) -> None:
        """`leaving()` is called when the catalog has this node on its way out; `level_limit` is the setting
        `feature_level_limit`."""
        self._engine = engine
        self._name = name
        self._record = record
        self._transport = transport
        self._ending = ending
        self._tasks = tasks
        self._leaving = leaving
        self._level_limit = level_limit
        self._known = record.members() or KnownMembers(0, {})
        """The members when they changed last."""
        self._one_change = asyncio.Lock()
        self._one_level = asyncio.Lock()

    # ------------------------------------------------------------------ members

    def members_changed(self) -> None:
        """The catalog has other members: connections follow, and the next start knows them."""
        node_id, members = self._engine.node_id, self._engine.catalog.members
        if self._engine.membership.removed:
            self._ending.send_away(f"this node (node {node_id}, {self._name}) was removed from the cluster", True)
            return
        own = members.get(node_id)
        if own is not None and own.state == "leaving":
            self._leaving()
        present = members.with_replicas()
        known = {record.id: (record.name, record.address) for record in present}
        stores = {record.id: record.store for record in present if record.store}
        # While it catches up the catalog has starts that are earlier than those that were known before.
        known_starts, starts = self._known.starts, self._engine.membership.starts
        latest = {id: max(known_starts.get(id, 0), starts.get(id, 0)) for id in known}
        self._known = KnownMembers(members.version, known, stores, latest)
        self._tasks.begin(self._follow_members())

    async def _follow_members(self) -> None:
        """Those that there are by then, one change after the other: the next start must not find older ones."""
        async with self._one_change:
            while True:
                known = self._known
                addresses = {id: address for id, (_, address) in known.members.items() if address}
                ids = [record.id for record in self._engine.catalog.members.all()]
                # Whoever has greeted this node and came after all that the catalog here knows stays until it knows
                # better.
                newcomers = {id: at for id, at in self._transport.peers().items() if id > max(ids)}
                await self._transport.set_peers(newcomers | addresses)
                try:
                    await asyncio.get_running_loop().run_in_executor(None, self._record.keep_members, known)
                    return
                except DiskFull as error:
                    log.warning("the members were not noted for the next start, tried again: %s", error)
                except LogError as error:
                    log.warning("the members were not noted for the next start: %s", error)
                    return
                await asyncio.sleep(RETRY_FULL_DISK_S)

    # ------------------------------------------------------------------ the level

    def level_changed(self, level: int) -> None:
        """The cluster's feature level is known here, or was raised: the next start knows it, and so does an older node
        that is started on this data."""
        fault = level_fault(LEVELS, level)
        if fault:
            self._ending.send_away(f"this node can't go on: {fault}")
            return
        log.info("the cluster is at feature level %d%s", level, _held_back(level, self._level_limit))
        self._tasks.begin(self._keep_level())

    async def _keep_level(self) -> None:
        """The one that it is by then: two that are raised quickly may come here in any order."""
        async with self._one_level:
            level = self._engine.catalog.level
            try:
                await asyncio.get_running_loop().run_in_executor(None, self._record.keep_level, level)
            except LogError as error:
                log.warning("the feature level was not noted for the next start: %s", error)


def _held_back(level: int, limit: int) -> str:
    """For the log: that a setting of this node keeps the cluster's feature level from rising; "" if it does not."""
    held = level < LEVELS.highest and LEVELS.limited(limit) != LEVELS
    return f"; feature_level_limit = {limit} keeps it from {LEVELS.highest}" if held else ""
