"""A large message on its way to a client: its body stays where it is, and leaves a part at a time."""

import struct
from typing import Final

from mayfly.node.amqp.content import Content
from mayfly.node.amqp.frame_writer import FRAME_OVERHEAD_BYTES
from mayfly.node.amqp.octet_views import OctetViews
from mayfly.node.limits import OUTPUT_PART_BYTES

_BODY_FRAME: Final = struct.Struct(">BHI")
_BODY: Final = 3
_END: Final = b"\xce"


class LargeContent(Content):
    """A message whose body is not together: `body` is empty, `views` has it."""

    __slots__ = ("views",)

    def __init__(self, exchange_and_key: bytes, header: bytes, views: OctetViews) -> None:
        super().__init__(exchange_and_key, header, b"")
        self.views: OctetViews = views


def in_parts(content: Content) -> Content:
    """The same, as one that leaves in parts if it is large."""
    if len(content.body) <= OUTPUT_PART_BYTES:
        return content
    return LargeContent(content.exchange_and_key, content.header, OctetViews([content.body]))


class LargeBody:
    """Body frames that are made as they are taken.  left_bytes: octets not taken, those of the frames included."""

    def __init__(self, channel_id: int, views: OctetViews, frame_max_bytes: int) -> None:
        self._channel_id = channel_id
        self._largest = frame_max_bytes - FRAME_OVERHEAD_BYTES
        self._views = views
        frames = -(-views.left_bytes // self._largest)
        self.left_bytes: int = views.left_bytes + frames * FRAME_OVERHEAD_BYTES

    def take(self, most_bytes: int) -> bytes:
        """The next frames: one, and more up to so many octets."""
        parts: list[bytes | memoryview] = []
        taken = 0
        while self._views.left_bytes and (not taken or taken + self._largest <= most_bytes):
            size = min(self._largest, self._views.left_bytes)
            parts.append(_BODY_FRAME.pack(_BODY, self._channel_id, size))
            parts += self._views.take(size)
            parts.append(_END)
            taken += size + FRAME_OVERHEAD_BYTES
        self.left_bytes -= taken
        return b"".join(parts)
