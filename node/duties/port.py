"""What whoever sees to a shard's duties needs of the node around the shard.

Written once: for the leader of a replicated shard (`node.duties.shard_leader`), the host of a transient one
(`node.transient.local_shard`), and the duties of both (`node.duties.shard_duties`). The node's engine implements it.
What a duty needs of the shard itself - a way to give it commands, and its entries - is given to it apart from this.
"""

from collections.abc import Callable
from typing import Protocol

from mayfly.node.catalog import Catalog
from mayfly.node.shard.room import Room


class DutyPort(Protocol):
    """The catalog and the other shards, as duties see them."""

    @property
    def catalog(self) -> Catalog:
        """The local catalog replica; the same object for as long as the node runs."""
        ...

    def transfer(self, target_shard: int, command: bytes) -> None:
        """A TRANSFER for another shard; it may get lost."""
        ...

    def received_up_to(self, target_shard: int, queue: int, source: int) -> int:
        """The highest sequence the target is known to have from `source`, 0 for none; -1 if it has no such queue."""
        ...

    def ask_again(self, target_shard: int, queue: int, source: int) -> None:
        """Something from `source` may have come to the target: let what is known of it be new soon."""
        ...

    def room(self, target_shard: int, queue: int, source: int, next_bytes: int) -> Room:
        """How many messages and bytes of bodies the target is known to take now from `source`, large numbers for no
        limit (D8). The first has a body of `next_bytes`, which alone may be more than the limit."""
        ...

    def has_leader(self, shard: int) -> bool:
        """Whether somebody leads a replicated shard, as far as is known here."""
        ...

    def queue_moved(self, queue: int, source: int, target: int, number: int) -> None:
        """Tell the catalog that a queue which moves from shard `source` for the `number`th time is in shard `target`;
        that may get lost."""
        ...

    def remove_queues(self, ids: tuple[int, ...], done: Callable[[bool], None]) -> None:
        """Take queues out of the catalog; `done(True)` once that is applied here, `done(False)` when it is not known
        whether it ever is: ask again."""
        ...

    @property
    def is_waited_for(self) -> bool:
        """Whether changes of the catalog are answered, on any node, only when they are here."""
        ...

    def barrier(self, done: Callable[[], None]) -> None:
        """`done` once the local catalog has everything that was committed before now; never if this node was
        removed."""
        ...
