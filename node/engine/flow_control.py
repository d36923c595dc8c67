"""What keeps this node from taking more from publishers (pure): its own backlog, alarms of any node, a full disk."""

from collections.abc import Callable

from mayfly.cluster.group.sessions import SessionSender
from mayfly.cluster.host.host import Host
from mayfly.node.broker.cluster_facade import ClusterEvents
from mayfly.node.duties.alarms import DISK, NAMES, Alarms
from mayfly.node.limits import (
    NO_ROOM_AFTER_MS,
    PENDING_BYTES_HIGH,
    PENDING_BYTES_LOW,
    TRANSIENT_BYTES_HIGH,
    TRANSIENT_BYTES_LOW,
)
from mayfly.node.transient.transient_shards import TransientShards


class FlowControl:
    """Tells the broker when to stop reading from publishers, and when to go on."""

    def __init__(
        self, host: Host, transient: TransientShards, broker: Callable[[], ClusterEvents | None]
    ) -> None:
        """`broker()`: this node's, once there is one."""
        self.alarms: Alarms = Alarms(lambda: host.peers, host.send_notice, self._alarms_changed)
        self.overloaded: bool = False
        """See `ClusterFacade.overloaded`."""
        self.no_room: str | None = None
        """See `ClusterFacade.no_room`."""
        self._host = host
        self._transient = transient
        self._broker = broker
        self._senders: list[SessionSender] = [session.sender for session in host.sessions.values()]
        self._disk_short = False
        self._full_since_ms = -1

    def group_added(self, id: int) -> None:
        """The host has got a session with one more group."""
        self._senders.append(self._host.sessions[id].sender)

    def tick(self, now_ms: int) -> None:
        """Call every tick."""
        self.alarms.tick(now_ms)
        if self.no_room is None and 0 <= self._full_since_ms <= now_ms - NO_ROOM_AFTER_MS:
            self._set_no_room("its disk is full", now_ms)

    # ------------------------------------------------------------------ the backlog

    def pending_bytes(self) -> int:
        """Bytes of commands given and not yet applied here, over all groups, and of publishes that are to be given."""
        broker = self._broker()
        pending = 0 if broker is None else broker.kept_bytes()
        for sender in self._senders:
            pending += sender.pending_bytes
        return pending

    def backlog_changed(self) -> None:
        """Something was given to a group, or applied."""
        pending, stored = (PENDING_BYTES_LOW, TRANSIENT_BYTES_LOW) if self.overloaded else (
            PENDING_BYTES_HIGH, TRANSIENT_BYTES_HIGH
        )
        overloaded = self.pending_bytes() > pending or self._transient.stored_bytes > stored
        if overloaded != self.overloaded:
            self.overloaded = overloaded
            broker = self._broker()
            if broker is not None:
                broker.pressure_changed(overloaded)

    # ------------------------------------------------------------------ the disk

    def persisted(self, now_ms: int) -> None:
        """A batch is on disk."""
        self._full_since_ms = -1
        if self.no_room is not None:
            self._set_no_room(None, now_ms)
        if self._host.short_of_disk and not self._disk_short:
            self._set_disk_alarm(None)

    def disk_full(self, text: str, now_ms: int) -> None:
        """A batch could not be written for lack of room."""
        self._set_disk_alarm(text)
        if self._full_since_ms < 0:
            self._full_since_ms = now_ms

    def disk_space(self, text: str | None) -> None:
        """A look at the disk: why publishers must be blocked, or None when there is room."""
        self._disk_short = text is not None
        if text is not None or not self._host.writing:
            self._set_disk_alarm(text)

    def _set_disk_alarm(self, text: str | None) -> None:
        self._host.short_of_disk = text is not None
        self.alarms.set(DISK, text)

    def _set_no_room(self, text: str | None, now_ms: int) -> None:
        self.no_room = text
        host = self._host
        others = [peer for peer in host.peers if host.liveness.is_there(peer, now_ms)]
        elsewhere = any(NAMES[DISK] not in self.alarms.of_peer(peer) for peer in others)
        broker = self._broker()
        if broker is not None:
            broker.no_room_changed(elsewhere)

    def _alarms_changed(self) -> None:
        broker = self._broker()
        if broker is not None:
            broker.alarm_changed(self.alarms.reason)
