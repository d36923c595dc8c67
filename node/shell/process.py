"""A node as a process: the life of the asyncio shell around `node.engine.engine.Engine`.

    sockets (AMQP, gRPC, HTTP) -> engine -> pump once per turn of the loop -> frames to peers, one batch to the disk

The shell decides nothing. Its data is opened in `node.shell.opening`, its parts are put together in
`node.shell.assembly`, its turns are in `node.shell.drive`; here it is started and stopped. Each step of the start takes
what the one before has made, so there is one order of them.
"""

import asyncio
import gc
import logging
import sys
from contextlib import AsyncExitStack
from typing import Final

from mayfly.cluster.transport.cluster_secret import ClusterSecrets
from mayfly.node.settings import NodeSettings, SettingsError
from mayfly.node.shell.arrival import NodeRefused
from mayfly.node.shell.assembly import Node, assemble
from mayfly.node.shell.certificates_watch import check_files
from mayfly.node.shell.ending import Ending
from mayfly.node.shell.library_pages import let_go_of_libraries
from mayfly.node.shell.open_files import allowed_files, share_out
from mayfly.node.shell.opening import open_node
from mayfly.node.shell.peer_protection import cluster_secrets, peer_warnings
from mayfly.node.shell.process_memory import give_back

log = logging.getLogger("mayfly.node")

MANY_OBJECTS: Final = 100_000
"""Objects made before the youngest are looked at for cycles: there are hardly any, and each look holds the loop up."""
RARELY_OLDER: Final = (1, 2000)
"""After so many looks at the youngest those that were left are looked at, after so many of these all. The next to
youngest are few then: of twenty times as many, as a large snapshot makes when it is read, a look takes 0.2 s."""

SWITCH_INTERVAL_S: Final = 0.0005
"""How long the loop may keep the interpreter from the disk thread; at Python's 5 ms a write took ten times as long."""


class NodeProcess:
    """One life of a node, for one `start` and one `stop`."""

    def __init__(self, settings: NodeSettings) -> None:
        self.ending: Ending = Ending(settings.data_dir)
        self.node: Node | None = None
        """What has been assembled; None before that."""
        self._settings = settings
        self._ends: AsyncExitStack = AsyncExitStack()
        """How each part ends that was opened, in the order of their beginnings; `stop` goes through it backwards."""

    async def start(self) -> Node:
        """Open the log, join the cluster, listen; the node that serves. Raises NodeRefused, LogError or OSError with a
        clear text.

        Where it raises, or is cancelled, whatever was opened is closed: the same data can be started again."""
        try:
            return await self._start()
        except BaseException:
            try:
                await self.stop()
            except Exception:
                # Why it could not start is what is to be told.
                log.exception("a node that could not start did not end in order")
            raise

    async def _start(self) -> Node:
        gc.enable()
        gc.set_threshold(MANY_OBJECTS, *RARELY_OLDER)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        files = share_out(allowed_files())
        if files.fault is not None:
            raise NodeRefused(files.fault)
        known = _checked(self._settings)
        opened = await open_node(self._settings, known, self.ending, self._ends)
        node = self.node = assemble(self._settings, opened, known, files, self.ending, self._ends)
        await self._serve(node)
        gc.collect()
        gc.freeze()
        # What the start needed, and nobody will for long.
        give_back()
        let_go_of_libraries()
        return node

    async def _serve(self, node: Node) -> None:
        """Other nodes first, then those who ask about its health, and clients once the catalog here is what it was
        anywhere. Raises NodeRefused, OSError."""
        await node.transport.start()

        def at_each_tick() -> None:
            node.control.ticked()
            node.upstreams.ticked()

        node.drive.begin_ticks(at_each_tick)
        node.tasks.begin(node.watch.watch_disk_and_memory())
        node.tasks.begin(node.watch.watch_clock())
        node.tasks.begin(node.watch.watch_clocks_ahead(node.opened.ahead))
        node.tasks.begin(node.certificates.watch())
        if node.tokens is not None:
            node.tasks.begin(node.tokens.watch())
        node.tasks.begin(node.sample())
        node.drive.schedule_pump()
        await node.http.start()
        await node.at_start.wait()
        if self.ending.unproven:
            self.ending.unproven = False
            await asyncio.get_running_loop().run_in_executor(None, node.opened.record.keep_proven)
        node.catching_up.begin()
        await node.listener.start_listening()
        node.tasks.begin(node.at_start.load_when_raised())
        node.catching_up.serving = True

    async def stop(self) -> None:
        """Stop serving; what is on disk stays. Also for a node that was started in part; a second time it does nothing.
        A part that fails to end keeps no other one from it; then this raises what that raised."""
        try:
            await self._ends.aclose()
        finally:
            self.ending.stopped.set()

    def reload_certificates(self) -> None:
        """Read the certificates' files again, for connections from here on."""
        if self.node is not None:
            self.node.certificates.reload("asked for")


def _checked(settings: NodeSettings) -> ClusterSecrets:
    """The cluster secret of settings whose files can be used. Raises NodeRefused, OSError."""
    check_files(settings)
    try:
        known = cluster_secrets(settings)
    except SettingsError as error:
        raise NodeRefused(f"settings: {error}") from None
    for warning in peer_warnings(settings):
        log.warning("%s", warning)
    return known
