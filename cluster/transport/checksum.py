"""Checksums of the messages with which nodes greet each other: a bit that flips on the way would otherwise be taken for
other data of a node, or another id. They go apart from the message: in it a bit could hide them.
"""

import zlib
from collections.abc import Iterable
from typing import Final

CHECKSUM: Final = "mayfly-checksum"
"""Metadata of a call: the CRC-32 of the first message that the sender of the metadata sends, in hex."""

Metadata = tuple[tuple[str, str], ...]


def checksum_of(data: bytes) -> Metadata:
    """Of this message, as the metadata to send with it."""
    return ((CHECKSUM, _written(data)),)


def is_damaged(data: bytes, metadata: Iterable[tuple[str, str | bytes]]) -> bool:
    """Whether the message is not the one that its checksum was made of. One without a checksum comes from an older
    node, and is taken as it is."""
    return any(key == CHECKSUM and value != _written(data) for key, value in metadata)


def _written(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}"
