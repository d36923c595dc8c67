"""What nodes log as failures during a run: an exception in a callback ends one client or one operation in the product,
which goes on. Here it is a promise that was broken."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from mayfly.cluster.log.batch import CorruptEntry

LEFT_ALONE: Final = "group %d is left alone: most of its voters are away"
"""An error that is the operator's to mend: runs have so many nodes away on purpose."""

NOT_UNDERSTOOD: Final = re.compile(
    r"sent what can't be used: (?!\w+ came from \d+, which is not a member)"
    "|a batch of session .* (was cut short|is of the unknown form)|its body .* is passed over"
)
"""Nodes of a run are all sound, and so are the octets between them. But one that was removed may not know it yet."""

_told: Final = logging.getLogger("mayfly.told")


def hear(text: str) -> None:
    """What a node tells its operators beside its log: an error if it is about octets that it does not understand."""
    if NOT_UNDERSTOOD.search(text):
        _told.error("%s", text)


class LoggedFailures(logging.Handler):
    """Keeps what is logged as an error in `texts`, each once, but for what a run does on purpose."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Note what has failed and where."""
        error = record.exc_info[1] if record.exc_info else None
        # Whoever reads an entry that has rotted may fail: the process ends in the same moment.
        if record.msg == LEFT_ALONE or isinstance(error, CorruptEntry):
            return
        text = record.getMessage()
        if error is not None:
            place = traceback.extract_tb(error.__traceback__)[-1]
            text += f": {error!r} in {place.name}, {place.filename}:{place.lineno}"
        self.texts[text] = None


@contextmanager
def logged_failures() -> Iterator[LoggedFailures]:
    """Listen to all nodes of this process meanwhile, also where logging is off."""
    failures, logger = LoggedFailures(), logging.getLogger("mayfly")
    before = logging.root.manager.disable
    logging.disable(min(before, logging.WARNING))
    logger.addHandler(failures)
    try:
        yield failures
    finally:
        logger.removeHandler(failures)
        logging.disable(before)
