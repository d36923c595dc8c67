"""Notices that are too large for a frame (pure): they go in pieces, and are whole again before anybody is told.

    DIVIDED   kind u8, last u8, octets     the next piece of a notice of this kind

Pieces of one notice follow each other on a stream, and nothing of it is on another: what is missing of one that was
begun, when a stream breaks, is lost with it as a whole notice would be.

From `cluster.versions.PROTOCOL_DIVIDED_NOTICES` on.
"""

import struct
from typing import Final

from mayfly.cluster import limits, notice_kinds
from mayfly.cluster.host.frame import ITEM_OVERHEAD_BYTES, Frame

_HEAD: Final = struct.Struct("<BB")


class DividedNotices:
    """Those that have come on one stream, as far as they have."""

    def __init__(self) -> None:
        self._kind = 0
        self._pieces: list[bytes] = []
        self._size_bytes = 0

    def join(self, frame: Frame) -> None:
        """Put the notices that are whole now in the place of their last pieces. Raises ValueError for what no node
        sends."""
        for kind, _ in frame.notices:
            if kind == notice_kinds.DIVIDED:
                break
        else:
            return
        notices, frame.notices = frame.notices, []
        for kind, data in notices:
            if kind == notice_kinds.DIVIDED:
                self._piece(data, frame)
            else:
                frame.notices.append((kind, data))

    def _piece(self, data: bytes, frame: Frame) -> None:
        if len(data) <= _HEAD.size:
            raise ValueError(f"a piece of a notice in {len(data)} bytes, it has more than {_HEAD.size}")
        kind, last = _HEAD.unpack_from(data)
        if kind == notice_kinds.DIVIDED or (self._pieces and kind != self._kind):
            raise ValueError(f"a piece of a notice of kind {kind} among those of one of kind {self._kind}")
        self._size_bytes += ITEM_OVERHEAD_BYTES + len(data)
        if self._size_bytes > limits.MAX_PEER_MESSAGE_BYTES:
            raise ValueError(f"a notice of more than {limits.MAX_PEER_MESSAGE_BYTES} bytes in pieces")
        self._kind = kind
        self._pieces.append(data[_HEAD.size :])
        if last:
            frame.notices.append((kind, b"".join(self._pieces)))
            self._pieces.clear()
            self._size_bytes = 0


def divide_large(frame: Frame, most_bytes: int) -> None:
    """Put pieces of about so many octets in the place of notices that are larger."""
    for _, notice in frame.notices:
        if len(notice) > most_bytes:
            break
    else:
        return
    notices, frame.notices = frame.notices, []
    for kind, notice in notices:
        if len(notice) <= most_bytes:
            frame.notices.append((kind, notice))
            continue
        octets = memoryview(notice)
        for start in range(0, len(notice), most_bytes):
            head = _HEAD.pack(kind, start + most_bytes >= len(notice))
            piece = b"".join([head, octets[start : start + most_bytes]])
            frame.notices.append((notice_kinds.DIVIDED, piece))
