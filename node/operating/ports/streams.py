"""Streams and their messages, as users of the management API see and change them (RULES J3, J5, R4)."""

from typing import Protocol

from mayfly.node.catalog.token_user import AnyUser
from mayfly.node.operating.ports.answers import Answer


class StreamPort(Protocol):
    """Who asks is a user with rights: to see takes reading from the queue, to remove configuring it. 404 where there is
    no such queue, or no such message."""

    async def stream(self, user: AnyUser, vhost: str, queue: str) -> Answer:
        """Its offsets, sizes and keys, what expires next, how many markers were made; where its consumers have got to;
        which streams it copies and which copy it, and how far they are."""

    async def latest(self, user: AnyUser, vhost: str, queue: str, key: str) -> Answer:
        """The latest message with this routing key, found without reading the stream."""

    async def journal(
        self, user: AnyUser, vhost: str, stream: str, queue: str | None, before: int, limit: int
    ) -> Answer:
        """What is noted in a stream that is a journal, the newest first (RULES R4): `records`, of a queue if one is
        named, before an offset (-1: from the newest on); `before`: where to go on, None at the end. There may be more
        though there are fewer than `limit`, even none."""

    async def delete_message(self, user: AnyUser, vhost: str, queue: str, offset: int) -> Answer:
        """The message at this offset goes."""

    async def purge_key(self, user: AnyUser, vhost: str, queue: str, key: str) -> Answer:
        """All messages with this routing key that are there now go; `purged`: how many."""
