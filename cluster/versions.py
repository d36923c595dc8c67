"""Every version that one release of MayflyMQ and the next have to agree on. All of them are changed here.

Three things can change, each for itself:

- *how nodes talk*: a connection uses the highest protocol version that both ends speak;
- *what the log means*: commands, what they do, what snapshots hold. All replicas must apply a log alike, so nothing new
  is written before all members can read it. The cluster has a *feature level* for that, kept in the catalog and raised
  when every member has said that it knows a higher one. Whoever proposes what is new asks `Catalog.level` first;
- *how a node's folder is laid out*: its own matter. A node reads what the release before it wrote, and converts it.
"""

from typing import Final


class VersionRange:
    """The versions of something that one node knows: all from `lowest` to `highest`."""

    __slots__ = ("highest", "lowest")

    def __init__(self, lowest: int, highest: int) -> None:
        if not 0 < lowest <= highest:
            raise ValueError(f"versions {lowest} to {highest}")
        self.lowest: int = lowest
        self.highest: int = highest

    def knows(self, version: int) -> bool:
        """Whether a version is one of these."""
        return self.lowest <= version <= self.highest

    def common(self, other: "VersionRange") -> int:
        """The highest version that is in both; 0: there is none."""
        highest = min(self.highest, other.highest)
        return highest if highest >= max(self.lowest, other.lowest) else 0

    def limited(self, most: int) -> "VersionRange":
        """These without those above `most`, but for the lowest, which stays; 0: all."""
        return VersionRange(self.lowest, max(self.lowest, min(self.highest, most))) if most else self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VersionRange) and (self.lowest, self.highest) == (other.lowest, other.highest)

    def __hash__(self) -> int:
        return hash((self.lowest, self.highest))

    def __repr__(self) -> str:
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest} to {self.highest}"


def range_of_peer(lowest: int, highest: int) -> VersionRange | None:
    """The range that a node says it knows; None if that is none. One from before there were ranges says nothing of
    `highest` (0): it knows `lowest` alone, and, where it says nothing at all, the first version."""
    lowest = lowest or 1
    highest = highest or lowest
    return VersionRange(lowest, highest) if lowest <= highest else None


# --- how nodes talk ------------------------------------------------------------------------------------

PROTOCOL_LOWEST: Final = 6
PROTOCOL_HIGHEST: Final = 8
"""Of frames, hellos and snapshots on their way. To be raised with every change that the release before can't read;
what is sent then goes by the version of the connection. 6 is the first with ranges."""

PROTOCOL_CHECKSUMS: Final = 7
"""From here on frames carry checksums where no TLS does it, and greetings always do."""

PROTOCOL_DIVIDED_NOTICES: Final = 8
"""From here on a notice that is too large for a frame goes in pieces (`cluster.host.divided_notices`)."""

# --- what the log means --------------------------------------------------------------------------------

LEVEL_LOWEST: Final = 1
LEVEL_HIGHEST: Final = 10
"""Feature levels. To be raised with every new command, every other meaning of one, every new form of a snapshot; what
is new then is written where `Catalog.level` has come so far, and not before.

1: what nodes wrote before there were levels. 2: the catalog's snapshot says the level (its format 6). 3: new queues go
to shards that the declaring node leads, `DeclareQueue.leader_locator` counts, and policies have keys for it. 4: ATTACH
may give a consumer a window, TAKEN moves it, and a shard with such consumers has a snapshot of another version.
5: returns are counted as RabbitMQ 4.3 counts them, and the log decides what was decided before it (the constants with 5
below say what). 6: shards are added while the cluster runs, and queues move to other shards; the plan of who votes
where is changed step by step, by the catalog's leader, and silent members are replaced in it. 7: a shard has replicas
on the nodes of the plan alone, and the others are fed. 8: quorum queues have priorities, and timeouts of their
own for consumers; there are switches, and dialects of TTLs; messages of a queue, or of an exchange, may wait for their
time; there are streams; large messages are in the log in pieces; vhosts are described, and global parameters kept.
9: large dead letters travel and are in the log in pieces; queues may have a brake; records of journals are routed
many at a time; a mirror may be of a stream in another cluster; what recurs is not taken by a queue that is on its way
between shards. 10: moves of queues are numbered, and what a
queue that comes back has in its lane counts."""

LEVEL_SNAPSHOT_SAYS_LEVEL: Final = 2
LEVEL_LEADER_LOCATORS: Final = 3
LEVEL_CONSUMER_WINDOWS: Final = 4
LEVEL_PUBLISHER_HEADERS: Final = 5
"""Messages are stored with BCC, and say whether their x-death is a client's (`node.dead_letter.publisher_headers`)."""
LEVEL_ROUTING_WEIGHT: Final = 5
"""A bind that would make routing too dear is refused by the log."""
LEVEL_RIGHTS: Final = 5
"""Commands for the catalog say with which permissions they were checked, and are refused if others count by then."""
LEVEL_FAILED_DELIVERIES: Final = 5
"""Shards are told the level (RAISE_LEVEL). From there on a return counts towards the delivery limit only where the
delivery failed (RULES Q1), a dead letter that was delivered before arrives as redelivered, and a single active consumer
yields to one of a higher priority."""
LEVEL_QUEUE_MOVES: Final = 6
"""A queue may move to another shard: the catalog takes MoveQueue, shards MOVE_OUT and what follows from it."""

SHARD_SNAPSHOT_WITH_MOVES: Final = 10
"""Of a shard's snapshot, where a queue has moved into it or out of it: with `LEVEL_QUEUE_MOVES`."""

LEVEL_SHARDS_ADDED: Final = 6
"""The catalog takes AddShards, and its snapshot says who the first voters of the added shards were (its format 7)."""

LEVEL_PLANS: Final = 6
"""MEMBER_AWAY, MEMBER_BACK and PLAN_GROUPS count, the log itself changes the plan only while there are no queues, and
failure domains are paths."""

LEVEL_FEEDS: Final = 7
"""A shard has replicas on the nodes that the plan names alone; the others' sessions with it are fed (batches of
KIND_FED). Below it every node has a replica of every group."""

LEVEL_QUORUM_PRIORITIES: Final = 8
"""Shards are told of the priorities of quorum queues: 32, and which of them messages have that name none (RULES Q2)."""

LEVEL_CONSUMER_TIMEOUTS: Final = 8
"""The catalog takes consumer timeouts as arguments of quorum queues, and in policies (RULES Q3)."""

LEVEL_SWITCHES: Final = 8
"""The catalog takes SetSwitch, and where something is off its snapshot says so (RULES X3)."""

LEVEL_TTL_DIALECTS: Final = 8
"""The catalog takes `x-ttl-dialect` and `ttl-dialect`, and shards are told of them (RULES X1)."""

LEVEL_EXPIRE_SCOPE: Final = 8
"""Messages may expire wherever they are in their queue (RULES X2): `x-expire-scope` and `expire-scope`, and settings of
queues that say so."""

LEVEL_SCHEDULES: Final = 8
"""Messages wait in a queue until they are due (RULES S): PUBLISH_LATER, NEXT_TIMES, settings of queues that say so, and
the arguments and policy keys for them. Shards note when they had no leader."""

LEVEL_CATALOG_CLOCK: Final = 8
"""The catalog's times are its group's clock, which never goes back (RULES C2); before they are its entries' stamps."""

LEVEL_DELAYED_EXCHANGES: Final = 8
"""The catalog takes exchanges of the type `x-delayed-message`, and makes the queue in which their messages wait (RULES
S1)."""

LEVEL_STREAMS: Final = 8
"""A queue may be a stream: the catalog takes the type, policies have keys for it, and ATTACH may say where in it a
consumer begins."""

LEVEL_REDRIVES: Final = 8
"""Messages of a queue may be redriven (RULES R1): START_REDRIVE, CHANGE_REDRIVE, REDRIVE, and rows of such queues."""

LEVEL_JOURNALS: Final = 8
"""Queues may have a journal (RULES R4): the catalog takes `x-journal` and policies with `journal`, shards are told of
them, and have deaths that are to be noted there (`node.shard.outbox.RECORDS`)."""

LEVEL_VHOST_METADATA: Final = 8
"""The catalog takes DescribeVhost: vhosts have tags, a default type of queues, and may be protected from deletion."""

LEVEL_GLOBAL_PARAMETERS: Final = 8
"""The catalog takes SetGlobalParameter and ClearGlobalParameter, and its snapshot has what was set."""

LEVEL_PIECES: Final = 8
"""Batches of sessions may be pieces of a large command (`cluster.group.pieces`), and while any are needed a group's
state is of version 2."""

LEVEL_LARGE_DEAD_LETTERS: Final = 9
"""Shards take ROUTE and TRANSFER from the sessions of nodes, so that a large dead letter is in their logs in
pieces; what is in pieces altogether is read where it is applied."""

LEVEL_BRAKES: Final = 9
"""Queues may have a brake (RULES R5): the catalog takes the arguments and policy keys for it, and shards are told of
them."""

SHARD_SNAPSHOT_WITH_BRAKES: Final = 12
"""Of a shard's snapshot, where something of a queue's brake is to be kept: with `LEVEL_BRAKES`."""

LEVEL_NOTED_ROUTES: Final = 9
"""Shards take ROUTE_NOTED: decisions about records of journals among others, without what they have in common (RULES
R4)."""

LEVEL_FED_MARKS: Final = 9
"""What nodes without a replica are told of a stream's marker says that it is one."""

LEVEL_UPSTREAMS: Final = 9
"""A mirror may be of a stream in another cluster: the catalog takes `x-upstream`."""

LEVEL_RECURRING_IN_ORDER: Final = 9
"""A publish that recurs is refused while its queue is on its way between shards (RULES S6): else what was published
before it could arrive after it and take its place."""

LEVEL_NUMBERED_MOVES: Final = 10
"""Each move of a queue has a number: QueueMoved counts for the move that it names alone, MoveQueue for the queue that
it names, and shards take MOVE_OUT_NUMBERED instead of MOVE_OUT."""

LEVEL_RETURNS_COUNTED: Final = 10
"""What a queue has in its lane, in a shard to which it has come back, counts as being on its way to it."""

LEVEL_RELEASES_GET_THROUGH: Final = 10
"""A full queue takes dead letters from a shard in which it was until it knows that its lease is not held there any
more, which stands behind them; shards know where that stands."""

LEVEL_LETTERS_NOT_CROSSED: Final = 10
"""Who asks whether all that it has published has arrived in a queue's new shard (CROSS) does not wait for dead letters
behind that."""

LEVEL_LETTERS_BEHIND_ARRIVALS: Final = 10
"""A dead letter for a queue that is arriving in the letter's own shard waits until all that was in the queue is there:
what died before may be among that (RULES D7)."""

LEVEL_PLACES_KEPT: Final = 10
"""A queue takes no exclusive consumer while those of the shard from which it has come may still be on their way."""

SHARD_SNAPSHOT_WITH_MOVE_NUMBERS: Final = 13
"""Of a shard's snapshot, where a queue knows the number of its last move, or where the end of its lease stands in its
lane: with `LEVEL_NUMBERED_MOVES` and `LEVEL_RELEASES_GET_THROUGH`."""

SHARD_SNAPSHOT_WITH_SPECIAL_ROWS: Final = 11
"""Of a shard's snapshot, where messages of a queue wait for their time, a queue is a stream, or is or was redriven:
with `LEVEL_SCHEDULES`, `LEVEL_STREAMS` and `LEVEL_REDRIVES`."""

SHARD_SNAPSHOT_VERSION: Final = 9
"""The same where none has. All replicas have to read it, so another one comes with a level: this one with
`LEVEL_FAILED_DELIVERIES`."""

SHARD_SNAPSHOT_WITHOUT_LEVEL: Final = 8
"""The same of a shard that was told no level."""

SHARD_SNAPSHOT_WITHOUT_WINDOWS: Final = 7
"""The same of one in which no consumer has a window either: as all levels read it."""

# --- how a folder is laid out ---------------------------------------------------------------------------

LAYOUT_VERSION: Final = 6
LAYOUT_OLDEST: Final = 6
"""Of the data folder: one of an older layout, from `LAYOUT_OLDEST` on, is converted at start (`cluster.store.layouts`);
any other is refused. What stood in logs before 6 did other things, without a level that says so."""

PROTOCOLS: Final = VersionRange(PROTOCOL_LOWEST, PROTOCOL_HIGHEST)
LEVELS: Final = VersionRange(LEVEL_LOWEST, LEVEL_HIGHEST)


def level_fault(known: VersionRange, level: int) -> str:
    """Why a node that knows these levels can't be in a cluster of that level; "" if it can."""
    if level > known.highest:
        return f"it knows feature levels up to {known.highest}, the cluster is at {level}: it needs a newer MayflyMQ"
    if level < known.lowest:
        return (
            f"it knows feature levels from {known.lowest} on, the cluster is at {level}: upgrade all members to a "
            "release in between first"
        )
    return ""


def protocol_fault(here: int, ours: VersionRange, there: int, theirs: VersionRange) -> str:
    """Why two nodes can't talk."""
    return f"node {here} speaks protocol version {ours!r}, node {there} version {theirs!r}"
