"""Whether a node goes on, and if not, why: what its parts tell who started it."""

import asyncio
import logging
from pathlib import Path

log = logging.getLogger("mayfly.node")


class Ending:
    """Of one life of a node; there from before its start until after its stop. Implements `Failing` of its drive."""

    def __init__(self, data_dir: Path) -> None:
        self.stopped: asyncio.Event = asyncio.Event()
        """Set once the node has failed, or was stopped."""
        self.failure: str | None = None
        self.unproven = False
        """Whether it began as a founder and has never served with this data."""
        self._data_dir = data_dir
        self._sent_away = False
        self._removed = False

    def fail(self, text: str) -> None:
        """The node can't go on without breaking a promise: stop at once, without writing anything more."""
        if self.failure is not None:
            return
        log.critical("stopping: %s", text)
        self.failure = text
        self.stopped.set()

    def lost_log(self, why: str) -> None:
        """See `Failing.lost_log`."""
        self.send_away(
            f"the data in {self._data_dir} was lost or is an older copy ({why}); put the right data back, or "
            "see 'A node whose data is lost' in docs/operations/troubleshoot.md"
        )

    def send_away(self, text: str, removed: bool = False) -> None:
        """The node fails because it is not, or no longer, a member with this data: it would fail again."""
        self._removed = self._removed or (removed and self.failure is None)
        self._sent_away = self._sent_away or self.failure is None
        self.fail(text)

    def may_join_anew(self) -> bool:
        """Whether a node that could not start was sent away as a founder that came too late: it never served, so its
        data is nothing, and it can join the cluster that is there. Not one that an operator has removed."""
        return self._sent_away and self.unproven and not self._removed

    def may_not_go_on(self) -> bool:
        """Whether a node that has ended, or could not start, would do the same when started again."""
        return self._sent_away or self.failure is None
