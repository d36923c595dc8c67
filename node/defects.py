"""What becomes of a defect: the node stops, it does not go on with a state that may be half changed."""

import logging
from collections.abc import Callable

from cluster.log.batch import CorruptEntry

log = logging.getLogger("mayfly.node")


class DefectsStopTheNode:
    """An exception out of the engine is a defect: its state may be half changed, so this process must not go on.

    One object for all turns of the loop, because contextlib makes three for each."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if error is None:
            return False
        if isinstance(error, CorruptEntry):
            self._fail(str(error))
        elif isinstance(error, Exception):
            log.error("defect in the engine", exc_info=error)
            self._fail(f"defect in the engine: {error}")
        else:
            return False
        return True
