"""What one connection counts for in the limits of its user and its vhost, and the limit of the node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mayfly.node.broker.access_counts import CHANNELS_OF_USER, CONNECTIONS_OF_USER, CONNECTIONS_OF_VHOST
from mayfly.node.catalog import Refusal, VhostRecord, refusals
from mayfly.node.catalog.access_limits import MAX_CHANNELS, MAX_CONNECTIONS, allowed

if TYPE_CHECKING:
    from mayfly.node.broker.cluster_facade import ClusterFacade


class ConnectionLimits:
    """The limits that hold for one connection, and what it counts for in them."""

    def __init__(self, cluster: ClusterFacade, limit_reached: int | None, is_counted: bool = True) -> None:
        """`limit_reached`: the limit of the node, if it was reached before this connection. One that is not counted
        has no limits either."""
        self._cluster = cluster
        self._limit_reached = limit_reached
        self._is_counted = is_counted
        self._user = ""
        self._vhost = ""
        self._is_open = False
        self._channels_counted = 0

    def refusal(self, user: str, vhost: VhostRecord) -> Refusal | None:
        """Why there may be no more connections of this user to this vhost, or None."""
        if self._limit_reached is not None:
            return refusals.node_connection_limit(self._limit_reached)
        if not self._is_counted:
            return None
        cluster = self._cluster
        counts = cluster.access_counts
        most = allowed(vhost, MAX_CONNECTIONS)
        if most is not None and counts.total(CONNECTIONS_OF_VHOST, vhost.name) >= most:
            return refusals.vhost_connection_limit(vhost.name, user, most)
        most = allowed(cluster.catalog.user(user), MAX_CONNECTIONS)
        if most is not None and counts.total(CONNECTIONS_OF_USER, user) >= most:
            return refusals.user_connection_limit(user, most)
        return None

    def begin(self, user: str, vhost: str) -> None:
        """The connection is open: it counts from now on."""
        self._user, self._vhost, self._is_open = user, vhost, self._is_counted
        if not self._is_counted:
            return
        self._count_connection(1)

    def end(self) -> None:
        """The connection is over, if it ever was open, and all its channels with it."""
        self.count_channels(0)
        if self._is_open:
            self._count_connection(-1)

    def _count_connection(self, by: int) -> None:
        counts = self._cluster.access_counts
        counts.add(CONNECTIONS_OF_VHOST, self._vhost, by)
        counts.add(CONNECTIONS_OF_USER, self._user, by)

    def channel_refusal(self, channels: int) -> str | None:
        """Why this connection with so many channels may not open one more."""
        cluster = self._cluster
        most = allowed(cluster.catalog.user(self._user), MAX_CHANNELS)
        if most is None or not self._is_counted:
            return None
        uncounted = channels - self._channels_counted
        if cluster.access_counts.total(CHANNELS_OF_USER, self._user) + uncounted < most:
            return None
        return refusals.user_channel_limit(self._user, most).text

    def count_channels(self, channels: int) -> None:
        """The connection has so many channels now."""
        added = channels - self._channels_counted
        if added and self._is_counted:
            self._channels_counted = channels
            self._cluster.access_counts.add(CHANNELS_OF_USER, self._user, added)
