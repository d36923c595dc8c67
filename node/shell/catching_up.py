"""How far a node has come since its start: whether it serves, and which of its replicas are not up to date yet."""

import asyncio
from collections.abc import Callable
from typing import Final

from mayfly.cluster.host.host import Host
from mayfly.node.shell.ending import Ending

ASK_AGAIN_S: Final = 1.0
"""A replica that could not say whether it is up to date is asked again after this."""


class CatchingUp:
    """Of one node."""

    def __init__(self, host: Host, pump: Callable[[], None], ending: Ending) -> None:
        """`pump` has the engine pumped soon."""
        self.serving = False
        self.behind: set[int] = set()
        """Groups whose replicas here have not been up to date since the start."""
        self._host = host
        self._pump = pump
        self._ending = ending

    def begin(self) -> None:
        """Ask the leader of every group that has a replica here what that may lack."""
        self.behind = set(self._host.groups)
        for group in sorted(self.behind):
            self._ask(group)

    def _ask(self, group: int) -> None:
        """Until the replica here has what was committed before, its vote stands in for no other one, and whoever stops
        nodes one after the other, when the one before is ready, would be too early."""

        def answered(result: object) -> None:
            if result is None:
                self.behind.discard(group)
            else:
                asyncio.get_running_loop().call_later(ASK_AGAIN_S, self._ask, group)

        if group not in self._host.groups:
            self.behind.discard(group)
        elif not self._ending.stopped.is_set():
            self._host.read_index(group, answered)
            self._pump()
