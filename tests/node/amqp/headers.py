"""Content headers of messages that tests publish."""

import struct

from pamqp.commands import Basic


def build_header(properties: Basic.Properties, body_size_bytes: int) -> bytes:
    """The payload of a header frame, encoded by pamqp. TypeError for values that pamqp cannot encode."""
    return struct.pack(">HHQ", Basic.frame_id, 0, body_size_bytes) + properties.marshal()
