"""What a queue would take now, for who sends it dead letters."""

from typing import Final, NamedTuple

from mayfly.node.shard.consumers import NO_WINDOW, UNLIMITED


class Room(NamedTuple):
    """So many messages, with so many bytes of bodies together. Those that go on to consumers with a window must be
    there before ``counted_bytes``, as `Message.counted_bytes` counts, are used up: the last one may go beyond."""

    messages: int
    body_bytes: int
    counted_bytes: int = NO_WINDOW


ANY_ROOM: Final = Room(UNLIMITED, UNLIMITED)
NO_ROOM: Final = Room(0, 0, 0)
