"""Streams and their messages, as users of the management API see and change them (RULES J3, J5)."""

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

    async def delete_message(self, user: AnyUser, vhost: str, queue: str, offset: int) -> Answer:
        """The message at this offset goes."""

    async def purge_key(self, user: AnyUser, vhost: str, queue: str, key: str) -> Answer:
        """All messages with this routing key that are there now go; `purged`: how many."""
