"""What the transport counts."""


class PeerCounters:
    """Traffic with one peer since the start of the process."""

    __slots__ = (
        "bytes_received",
        "bytes_sent",
        "connects",
        "damaged",
        "frames_dropped",
        "frames_received",
        "frames_sent",
        "snapshots_resumed",
    )

    def __init__(self) -> None:
        self.frames_sent = 0
        """gRPC messages written; several frames may have been merged into one."""
        self.bytes_sent = 0
        self.frames_received = 0
        self.bytes_received = 0
        self.frames_dropped = 0
        """Frames not sent because the peer was away, or its queue full."""
        self.connects = 0
        self.damaged = 0
        """Frames and pieces of snapshots of the peer that were not what it had sent, by their checksums. None was used,
        and what was in them is sent again."""
        self.snapshots_resumed = 0
        """Transfers that went on where an earlier one stopped."""
