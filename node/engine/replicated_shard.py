"""What this node's clients do with a shard that is a Raft group."""

from collections.abc import Mapping

from mayfly.cluster.host.host import Host
from mayfly.cluster.log.batch import LogError
from mayfly.node.broker.cluster_facade import OnDone, UnreadableMessage
from mayfly.node.shard import commands
from mayfly.node.shard.message import Message
from mayfly.node.shard.shard import Shard


class ReplicatedShard:
    """The `ShardHandle` of a shard under Raft, whether this node has a replica of it or not."""

    __slots__ = ("_held_for", "_host", "_session", "_shards", "shard_id")

    def __init__(self, shard_id: int, host: Host, shards: Mapping[int, Shard]) -> None:
        """`shards`: the replicas of this node, as they are at any time."""
        self.shard_id: int = shard_id
        self._shards = shards
        self._session = host.sessions[shard_id]
        self._held_for: dict[tuple[int, int], None] = {}
        """Holders, by queue and id, whose acknowledgements may be waiting for company."""
        self._host = host

    def submit(self, command: bytes, done: OnDone | None) -> None:
        """See `ShardHandle.submit`."""
        self._host.submit(self.shard_id, [command], len(command), command[0] in commands.ANSWERING, done)

    def acknowledge(self, queue_id: int, holder_id: int, command: bytes) -> None:
        """See `ShardHandle.acknowledge`."""
        can_wait = self._has_room(queue_id, holder_id)
        if can_wait:
            if not self._session.sender.is_holding:
                self._held_for.clear()
            self._held_for[(queue_id, holder_id)] = None
        self._host.submit(self.shard_id, [command], len(command), False, None, not can_wait)

    def delivered(self) -> None:
        """Consumers of this node were given messages: what would make room for more goes before they need it."""
        if not self._held_for:
            return
        if not self._session.sender.is_holding:
            self._held_for.clear()
        elif not all(self._has_room(*holder) for holder in self._held_for):
            self._host.hurry(self.shard_id)

    def _has_room(self, queue_id: int, holder_id: int) -> bool:
        # What is known of a shard elsewhere is how it was: nothing waits for company there.
        shard = None if self._session.is_fed else self._shards.get(self.shard_id)
        return shard is not None and shard.has_room(*self._session.key, queue_id, holder_id)

    def publish(self, parts: list[bytes], size_bytes: int, done: OnDone | None) -> None:
        """See `ShardHandle.publish`."""
        self._host.submit(self.shard_id, parts, size_bytes, parts[0][0] == commands.PUBLISH_GUARDED, done)

    def publish_in_pieces(self, parts: list[bytes], size_bytes: int, done: OnDone | None) -> None:
        """See `ShardHandle.publish_in_pieces`."""
        self._host.submit_large(self.shard_id, parts, size_bytes, parts[0][0] == commands.PUBLISH_GUARDED, done)

    def submit_in_pieces(self, command: bytes, done: OnDone | None) -> None:
        """See `ShardHandle.submit_in_pieces`."""
        self._host.submit_large(self.shard_id, [command], len(command), True, done)

    def content(self, message: Message) -> tuple[bytes, int]:
        """See `ShardHandle.content`."""
        session = self._session
        if session.is_fed:
            return session.payload(message.index), message.offset
        log = self._host.groups[self.shard_id].log
        try:
            return log.containing(message.index, message.offset, message.content_length)
        except LogError as error:
            raise UnreadableMessage(str(error)) from error

    def views(self, message: Message) -> list[memoryview]:
        """See `ShardHandle.views`."""
        start, length = message.offset, message.content_length
        if self._session.is_fed:
            return [memoryview(self._session.payload(message.index))[start : start + length]]
        try:
            return self._host.groups[self.shard_id].log.views(message.index, start, length)
        except LogError as error:
            raise UnreadableMessage(str(error)) from error
