"""How far groups' clocks are ahead of the process clock, kept in the data folder (`cluster.host.clocks_ahead`)."""

import logging
from typing import Final

from mayfly.cluster.host.clocks_ahead import ClocksAhead, is_to_be_kept
from mayfly.node.shell.data_folder import DataFolder
from mayfly.node.shell.process_clock import ProcessClock

log = logging.getLogger(__name__)

_NOTHING: Final[ClocksAhead] = {}


class KeptAhead:
    """What one process finds kept, and keeps."""

    def __init__(self, folder: DataFolder, boot: str, clock: ProcessClock) -> None:
        """`boot` is as of `this_boot`. What was kept on another one, or beside another clock, is passed over."""
        self._folder = folder
        self._beside = (boot, clock.origin_ns)
        self._boot = boot
        found = folder.kept_ahead(*self._beside) if boot else None
        self.kept: ClocksAhead = _NOTHING if found is None else found

    def wants(self, found: ClocksAhead) -> bool:
        """Whether this is worth a write."""
        return bool(self._boot) and is_to_be_kept(found, self.kept)

    def keep(self, found: ClocksAhead) -> None:
        """Keep this, if it is worth a write."""
        if not self.wants(found):
            return
        self.kept = found
        try:
            self._folder.keep_ahead(*self._beside, found)
        except OSError as error:
            log.warning("how far clocks are ahead can't be kept in %s: %s", self._folder.path, error)
