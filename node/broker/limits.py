"""Bounds of what one client can make this node hold, and the times it is given."""

from __future__ import annotations

from typing import Final

HANDSHAKE_SECONDS: Final = 10.0
"""From the first byte to connection.open-ok."""

CLOSE_OK_SECONDS: Final = 5.0
"""How long a client may take to answer connection.close."""

CONNECTIONS: Final = 50_000
"""Connections on one node."""

OUTPUT_HIGH_WATER_BYTES: Final = 4 * 1024 * 1024
"""Unsent bytes of one connection above which its consumers are paused."""

OUTPUT_LOW_WATER_BYTES: Final = 1024 * 1024
"""Unsent bytes of one connection below which its consumers go on."""

WAITING_EVENTS_BYTES: Final = 8 * 1024 * 1024
"""Bytes of events behind a waiting operation above which the connection is not read."""

ROUTES_CACHED: Final = 20_000
"""Remembered routes per vhost and user."""

DECLARE_ATTEMPTS: Final = 8
"""How often a declare starts again when the queue was deleted under it."""
