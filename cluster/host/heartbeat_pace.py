"""With which ticks a node's heartbeats leave, and those for whoever has nothing else to hear of it (pure)."""

from typing import Final

from mayfly.cluster.host.settings import HostSettings

QUIET_WORDS_IN_ELECTION_TIMEOUT: Final = 2
"""How often a peer at least that is told nothing otherwise hears that this node lives."""


class HeartbeatPace:
    """Of one node. Call `tick` with each tick: `is_due` says whether the heartbeats leave with it, `tells_all` whether
    they do to all peers, and `since` how many ticks before it heartbeats were due that nobody at rest leaves out."""

    def __init__(self, settings: HostSettings) -> None:
        self.at_rest: bool = False
        """Whether so little happens here that every second one is left out (`HostSettings.heartbeat_ticks_at_rest`)."""
        self.since: int = 0
        self.is_due: bool = False
        self.tells_all: bool = False
        self._ticks = 0
        self._all_told = 0
        """With which tick all peers heard of this node last."""
        self._usual: int = settings.group.heartbeat_ticks
        self.ticks_at_rest: int = settings.heartbeat_ticks_at_rest
        """The most ticks from one to the next."""
        heartbeats = settings.election_timeout_ms // (self._usual * settings.tick_ms)
        self._quiet_ticks = self._usual * max(1, heartbeats // QUIET_WORDS_IN_ELECTION_TIMEOUT)
        """Within so many ticks all peers hear of this node; in between, those to whom there is something to say."""

    def tick(self) -> None:
        """Time has passed."""
        self.since = self._ticks % self._usual
        self._ticks += 1
        ticks = self.ticks_at_rest if self.at_rest else self._usual
        self.is_due = self._ticks % ticks == 0
        # The next one might come too late for those to whom there is nothing to say.
        self.tells_all = self.is_due and self._ticks + ticks - self._all_told > self._quiet_ticks
        if self.tells_all:
            self._all_told = self._ticks
