"""What the AMQP layer needs from the cluster, and what it offers to it.

The broker of a node speaks to the catalog and to the shards through the two
protocols `ClusterFacade` and `ShardHandle`; the cluster reports back through
`ClusterEvents`, which the node's `Broker` implements.  Nothing here blocks:
every answer is a call of a `OnDone`.

The order of calls is part of the promise:

* Commands given to one handle (`submit` and `publish` together) are applied in
  the order in which they were given, each exactly once, whatever leaders do.
* `done` is called after the LOCAL replica has applied the command.  For one log
  entry the results of its commands are reported first, then its effects
  (`ClusterEvents.shard_effects`), so that a consumer is known to be attached
  before its first delivery arrives.  What a snapshot hides comes in this order:
  deliveries for consumers that are known, results, all other effects.
* `done` is not called before `submit` or `publish` returns, except with
  SESSION_LOST; it may itself give new commands.
* Effects of an earlier session of this node (another incarnation, replayed from
  the log) are for nobody: the cluster leaves them out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from mayfly.node.amqp.content import Content
    from mayfly.node.broker.access_counts import AccessCounts
    from mayfly.node.catalog import Catalog, CatalogCommand, QueueRecord
    from mayfly.node.shard.message import Message



class SessionLost:
    """The answer to a command whose fate is unknown: the node's session with the
    shard (or with the node that hosts a transient shard) ended before the answer, or
    a snapshot took the place of the entry that says it and its state does not tell."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "SESSION_LOST"


SESSION_LOST: Final = SessionLost()

OnDone = Callable[[object], None]
"""Called once with the command's result, or with SESSION_LOST."""


class UnreadableMessage(Exception):
    """What the log has of a live message is damaged, or gone. Whoever reads the log stops the node for that."""


class ShardHandle(Protocol):
    """One shard as this node sees it: its own replica, and a sequenced way in."""

    @property
    def shard_id(self) -> int:
        """See `node.numbers`."""
        ...

    def submit(self, command: bytes, done: OnDone | None) -> None:
        """Give one encoded session command (node.shard.commands).

        `done(result)` is called with what `Shard.apply` answered for it, None for
        commands that do not answer, or SESSION_LOST.
        """
        ...

    def submit_in_pieces(self, command: bytes, done: OnDone | None) -> None:
        """The same for a large one, once `Catalog.level` is LEVEL_LARGE_DEAD_LETTERS: it goes a piece at a time; what
        is given later may overtake it."""
        ...

    def acknowledge(self, queue_id: int, holder_id: int, command: bytes) -> None:
        """Give a SETTLE with the outcome ACK. It keeps its place among the commands, but may wait a few ms for others
        while the holder's prefetch leaves room for messages."""
        ...

    def publish(self, parts: list[bytes], size_bytes: int, done: OnDone | None) -> None:
        """Give a run of encoded PUBLISH commands, as parts that are joined once.

        The list belongs to the handle from here on.  `done(None)` is called when
        the local replica has applied the whole run (it is durable then if the shard
        is replicated); `done(SESSION_LOST)` if that cannot be known any more.  A run
        whose first part is a PUBLISH_GUARDED that announces all of it is answered with
        its Published instead of None.
        """
        ...

    def publish_in_pieces(self, parts: list[bytes], size_bytes: int, done: OnDone | None) -> None:
        """The same for one PUBLISH, whose body is the last part, once `Catalog.level` is LEVEL_PIECES. The body goes a
        piece at a time; what is given later may overtake it."""
        ...

    def content(self, message: Message) -> tuple[bytes, int]:
        """Data that has the content of a live message, and where in it that begins: at the message's ``offset`` in the
        payload of its entry, as that of all others in it; or at 0 if it is alone.

        Must answer during `shard_effects` and during `done` for every message they
        mention; afterwards only while the message lives.  Raises LookupError, or
        UnreadableMessage.
        """
        ...

    def views(self, message: Message) -> list[memoryview]:
        """The same for a large message: the octets of its content where they stand, without putting them together."""
        ...


class ClusterFacade(Protocol):
    """The cluster as one node's broker sees it."""

    @property
    def node_id(self) -> int:
        """The id of this node, from 1."""
        ...

    @property
    def incarnation(self) -> int:
        """Grows with every start of the node; transient queues belong to one of them."""
        ...

    @property
    def catalog(self) -> Catalog:
        """The local catalog replica; read only, and possibly behind its leader."""
        ...

    def submit_catalog(self, command: CatalogCommand, done: OnDone) -> None:
        """Give a catalog command; `done(result)` when it has been applied locally."""
        ...

    def catalog_barrier(self, done: OnDone) -> None:
        """`done(None)` once the local replica has applied all that was committed on any
        node when this was called, and all catalog commands given here before;
        `done(SESSION_LOST)` if this node was removed from the cluster.

        Writes nothing.  Without a leader that a majority follows it waits for one."""
        ...

    def catalog_spread(self, done: OnDone) -> None:
        """`done(None)`, perhaps at once, when the other nodes that have clients have applied the catalog commands
        given here that were answered by now.

        A node that is not connected is not waited for, one that takes too long not for long."""
        ...

    def later(self, done: OnDone) -> None:
        """`done(None)` in a moment, for whoever is to ask again."""
        ...

    def serve(self, done: OnDone) -> None:
        """A client comes: `done(None)`, perhaps at once, when the catalog here has what clients of other nodes were
        answered, and from then on gets it before they are."""
        ...

    def await_owner(self, queue_id: int, done: OnDone) -> None:
        """`done(True)`, perhaps at once, when a queue can be asked again: it has left the catalog, or its owner is
        reached; `done(False)` if neither happens for longer than a node that died stays in the catalog."""
        ...

    def reply(self, address: str, content: Content) -> None:
        """Send a direct reply to the channel of this address (`node.broker.direct_replies`), wherever it is; it may
        get lost."""
        ...

    def ask_for_reply_address(self, address: str, done: OnDone) -> None:
        """`done(True)`, perhaps at once, if the channel of this address is there; else, or if its node does not
        answer, `done(False)`."""
        ...

    def shard(self, shard_id: int) -> ShardHandle:
        """The handle of a shard, replicated or transient.  A transient shard that
        cannot be reached answers every command with SESSION_LOST."""
        ...

    def leads(self, shard_id: int) -> bool:
        """Whether this node leads a shard, as far as it knows, or has it in its memory."""
        ...

    @property
    def access_counts(self) -> AccessCounts:
        """Connections and channels over all nodes; the broker counts those of this one."""
        ...

    @property
    def now_ms(self) -> int:
        """About what time it is, in ms since 1970; 0 if that isn't known yet. (What a client is ticked with counts from
        when the machine started.)"""
        ...

    @property
    def overloaded(self) -> bool:
        """Whether publishers should not be read from for the moment."""
        ...

    @property
    def blocked(self) -> str | None:
        """Why publishers are not read from, in words for a client: an alarm, here or on another node; None when all is
        well."""
        ...

    @property
    def no_room(self) -> str | None:
        """Why this node cannot do what its clients ask for, in words behind "this node can do nothing": its log could
        not be written for a while. What is given to the cluster then is answered when it can. None when all is well."""
        ...


class ClusterEvents(Protocol):
    """What the cluster tells the broker of its node (implemented by `Broker`)."""

    def ticked(self, now_ms: int) -> None:
        """It is this time of the process clock, in ms, from each tick to the next."""
        ...

    def shard_effects(self, shard_id: int, effects: Sequence[object]) -> None:
        """Effects of the local replica for consumers of this node, in order."""
        ...

    def session_lost(self, shard_id: int) -> None:
        """The shard has dropped this node's session: consumers are gone there, what
        they held has been returned.  Called after the pending `done(SESSION_LOST)`."""
        ...

    def reply_came(self, key: str, content: Content) -> None:
        """A direct reply to the channel with this key; it may be gone."""
        ...

    def awaits_reply(self, key: str) -> bool:
        """Whether a channel of this node has this key."""
        ...

    def has_clients(self) -> bool:
        """Whether any connection is open."""
        ...

    def consumes_from(self, shard_id: int) -> bool:
        """Whether a consumer of this node is attached to a queue of the shard."""
        ...

    def queues_removed(self, queues: Sequence[QueueRecord]) -> None:
        """The local catalog replica has dropped these queues. Those that a snapshot hides are not told."""
        ...

    def catalog_changed(self) -> None:
        """The local catalog replica has applied commands."""
        ...

    def alarm_changed(self, text: str | None) -> None:
        """`ClusterFacade.blocked` has become `text`."""
        ...

    def no_room_changed(self, elsewhere: bool) -> None:
        """`ClusterFacade.no_room` has changed; `elsewhere`: another node has room."""
        ...

    def pressure_changed(self, overloaded: bool) -> None:
        """`ClusterFacade.overloaded` has changed."""
        ...

    def kept_bytes(self) -> int:
        """Bytes of what clients have published and no shard was given yet."""
        ...
