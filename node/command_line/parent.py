"""A node that was started by a supervisor ends with it, however the supervisor ends."""

import ctypes
import os
import signal
import sys
import threading
import time
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_POLL_S: Final = 0.5


def stop_with_parent(parent_id: int) -> None:
    """Send SIGTERM to this process when the process that started it, `parent_id`, is gone."""
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM) == 0:
        # It may have gone before the system knew that we want to be told.
        if os.getppid() != parent_id:
            os.kill(os.getpid(), signal.SIGTERM)
        return
    threading.Thread(target=_watch, args=(parent_id,), name="parent watch", daemon=True).start()


def _watch(parent_id: int) -> None:
    while os.getppid() == parent_id:
        time.sleep(_POLL_S)
    os.kill(os.getpid(), signal.SIGTERM)
