"""Why strangers were turned away, in the log: once for each host and reason."""

import logging
from typing import Final

from mayfly.cluster.transport.peer_text import printable

log = logging.getLogger(__name__)

MOST_COMPLAINTS: Final = 1000
"""Remembered refusals; at this many the memory starts afresh."""


class Complaints:
    """What was said last about each host."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def say(self, host: str, text: str) -> None:
        """Log it, unless it was the last that was logged about the host."""
        if self._last.get(host) == text:
            return
        if len(self._last) >= MOST_COMPLAINTS:
            self._last.clear()
        self._last[host] = text
        log.warning("turned away a peer at %s: %s (more of the same are not logged)", printable(host), printable(text))

    def say_first(self, host: str, text: str) -> None:
        """Log it, unless something was logged about the host already: for what anybody can provoke in many ways."""
        if host not in self._last:
            self.say(host, text)

    def forget(self, host: str) -> None:
        """All is well with the host again."""
        self._last.pop(host, None)
