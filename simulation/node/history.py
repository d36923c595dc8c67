"""What the clients of a run did and saw, with the true time of each event in microseconds.

A record says what a client knows, no more: a publish is invoked at one moment and confirmed, refused or
left in doubt at a later one. Clients never publish a message twice, so that each id stands for one
message.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from simulation.node.topology import STREAM

IN_DOUBT = "in doubt"
CONFIRMED = "confirmed"
REFUSED = "refused"
RETURNED = "returned"
ROLLED_BACK = "rolled back"

ACK = "ack"
REQUEUE = "requeue"
REJECT = "reject"

DECLARE = "declare"
PASSIVE = "passive"
GET = "get"

OK = "ok"
NOT_FOUND = "404"
BROKEN = "broken"

EXPIRED = "expired"
REJECTED = "rejected"
MAXLEN = "maxlen"
DELIVERY_LIMIT = "delivery_limit"


@dataclass(slots=True)
class Publish:
    """One message. `stream` is one channel of one connection: what it publishes is ordered by `sequence`."""

    message_id: int
    stream: int
    sequence: int
    queues: tuple[str, ...]
    ttl_ms: int | None
    invoked_us: int
    outcome: str = IN_DOUBT
    completed_us: int | None = None
    """When the answer came, or when the connection broke and none could come any more."""
    clocks_ms: tuple[int, ...] = ()
    """The newest shard clock known anywhere when it was invoked, per queue; empty if not probed."""
    priority: int = 0
    """Its property; where no queue has priorities it counts nothing."""
    delay_ms: int = 0
    """For so long it was to wait from its enqueue on, at least, in queues that allow it."""
    exact: bool = True
    """Whether ``delay_ms`` counts from the enqueue, and not from some moment before."""
    key: str = ""
    """Its routing key, in a stream."""


@dataclass(slots=True)
class Cancel:
    """A publish that cancels what waits under an id in a queue, or with a delay has it be due then. `outcome`
    CONFIRMED: that is done; RETURNED: nothing was waiting."""

    message_id: int
    queue: str
    invoked_us: int
    outcome: str = IN_DOUBT
    completed_us: int | None = None
    delay_ms: int = -1
    """For so long it was to wait from then on; -1: it was to be cancelled."""
    clock_ms: int = -1
    """The newest shard clock known anywhere when it was invoked; -1 if not probed."""

    @property
    def reschedules(self) -> bool:
        """Whether what waits was to be due at another time."""
        return self.delay_ms >= 0


@dataclass(slots=True)
class Recurring:
    """A publish that recurs, every so many ms. `clock_ms` is the newest clock of its shard known anywhere when it was
    invoked, `cancelled_ms` the same when the answer came that it is cancelled, or that nothing was waiting; -1 if not
    probed, or before that."""

    message_id: int
    every_ms: int
    invoked_us: int
    clock_ms: int
    outcome: str = IN_DOUBT
    completed_us: int = -1
    cancelling_us: int = -1
    """When it was asked first that it be cancelled."""
    cancelled_us: int = -1
    cancelled_ms: int = -1
    key: int = 0
    """Its message id, if that is another one's, whose place it takes; else 0."""
    replaced_us: int = -1
    """When the answer came that another one has taken its place."""


@dataclass(slots=True)
class Occurrence:
    """A message that came of one that recurs, and the newest clock of its shard known anywhere when it did."""

    message_id: int
    at_us: int
    clock_ms: int
    redelivered: bool


@dataclass(frozen=True, slots=True)
class CountedDeath:
    """One row of a message's x-death header."""

    queue: str
    reason: str
    count: int


@dataclass(slots=True)
class Delivery:
    """A message reached a client through `basic.deliver` or `basic.get-ok`.

    `holder` names one consumer, or one channel's gets, for its whole life. `deaths` are newest first.
    `draining` marks deliveries of the last phase, whose holders keep everything until the end. What the
    client answered is in `settled`; whether the broker ever heard of it, the client can't know.
    """

    at_us: int
    queue: str
    message_id: int
    holder: str
    redelivered: bool
    deaths: tuple[CountedDeath, ...] = ()
    intact: bool = True
    draining: bool = False
    settled: str = ""
    settled_us: int | None = None
    settled_clock_ms: int = -1
    """The newest clock of the queue's shard at that moment; -1 if not probed."""
    source_clock_ms: int = -1
    """The newest clock of the shard of the queue it died in last, or else came from, when it arrived here; -1 if not
    probed."""
    node: int = -1
    """Whose client got it."""
    left_us: int = -1
    """When that node gave it to the client's socket, from where it can't be taken back."""

    @property
    def path(self) -> tuple[str, ...]:
        """The queues it died in, oldest first, and the one it came from now."""
        return (*(death.queue for death in reversed(self.deaths)), self.queue)


@dataclass(slots=True)
class Read:
    """A message of a stream reached a client. `begins` is where its consumer began: an offset, or -1 for the first."""

    at_us: int
    holder: str
    begins: int
    offset: int
    message_id: int
    redelivered: bool
    final: bool = False
    """By the last reader, who reads all there is once nothing is published any more."""
    key: str = ""
    only_key: str = ""
    """The key of the messages that its consumer is given, "" for all."""
    marker: str = ""
    """Why it is there if it is a marker; then it is no message of anybody."""
    stream: str = STREAM
    source: str = ""
    """From which stream it has come, "" for none, and..."""
    source_offset: int = -1
    """...at which offset it is there."""


@dataclass(slots=True)
class Decision:
    """A replica decided to hand out a message: the shard clock at that moment and the message's deadline."""

    at_us: int
    node: int
    shard: int
    time_ms: int
    deadline_ms: int


@dataclass(slots=True)
class Renewal:
    """An operation that renews a lease (RULES L2) and succeeded."""

    queue: str
    kind: str
    invoked_us: int
    completed_us: int


@dataclass(slots=True)
class Attachment:
    """A consumer from its consume-ok until its client, or its node, let go of it."""

    queue: str
    holder: str
    invoked_us: int
    attached_us: int
    released_us: int | None = None
    """When the client asked for the cancel or the connection died; None while it still holds."""
    in_doubt: bool = False
    """Whether it may be held although `released_us` says otherwise: its node's session with a shard ended, and the
    queue moves between shards."""
    latest_release_us: int | None = None
    """When such a one was let go of by its client."""


@dataclass(slots=True)
class Removal:
    """A client's queue.delete or queue.purge. `completed_us` is None when no answer came."""

    queue: str
    invoked_us: int
    completed_us: int | None = None
    purge: bool = False


@dataclass(slots=True)
class Trade:
    """A transaction: it acknowledges `taken`, a message of a queue (None: nothing), and publishes `given` to the same
    queue and `further` to another."""

    queue: str
    taken: int | None
    given: int
    further: tuple[int, ...]


@dataclass(slots=True)
class Disappearance:
    """A queue was seen to be gone at a replica of its shard; `queue_id` tells incarnations apart."""

    queue: str
    queue_id: int
    at_us: int
    reason: str


@dataclass(slots=True)
class LeaseUse:
    """A client's request that bears on a lease. `answer` is `OK`, `NOT_FOUND`, `BROKEN` (the connection went first),
    the text of another refusal, or "" while none has come."""

    queue: str
    kind: str
    invoked_us: int
    completed_us: int = -1
    answer: str = ""


@dataclass(slots=True)
class Sent:
    """A message that a client published to a queue whose existence it had just been told of."""

    queue: str
    after: LeaseUse
    completed_us: int = -1
    returned: bool = False
    consumed: bool = False


@dataclass(slots=True)
class Life:
    """One incarnation of a queue: from its first appearance in any catalog to its end at the first replica."""

    queue: str
    queue_id: int
    shard: int
    born_us: int
    gone_us: int | None = None
    reason: str = ""


@dataclass(slots=True)
class History:
    """Everything of one run, each list in the order of time."""

    publishes: dict[int, Publish] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    appended: dict[int, Publish] = field(default_factory=dict)
    """What was published to the stream."""
    reads: list[Read] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    renewals: list[Renewal] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)
    removals: list[Removal] = field(default_factory=list)
    exchanges: list[Trade] = field(default_factory=list)
    cancels: list[Cancel] = field(default_factory=list)
    recurring: dict[int, Recurring] = field(default_factory=dict)
    occurrences: list[Occurrence] = field(default_factory=list)
    disappearances: list[Disappearance] = field(default_factory=list)
    touched: dict[str, None] = field(default_factory=dict)
    """Queues that anyone tried to consume or get from before the drain."""
    moved: dict[str, None] = field(default_factory=dict)
    """Queues that were to move to another shard: of those no shard's clock tells all, and nodes go over at different
    moments."""
    shards: dict[str, dict[int, None]] = field(default_factory=dict)
    """Where the queues of a name were, or were to move, as any catalog had it."""
    lost_sessions: list[tuple[int, int, int]] = field(default_factory=list)
    """When which node learned that its session with which shard was over: in the order of that shard's log among what
    the node tells its clients."""
    given_up: list[tuple[int, str, int]] = field(default_factory=list)
    """Since when, who and at which node: clients that got no answer for as long as their patience lasts."""
    present_at_end: list[str] = field(default_factory=list)
    """Queues that some replica still knew when the run ended."""
    uses: list[LeaseUse] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    lives: dict[int, Life] = field(default_factory=dict)
    cancelled: list[tuple[int, str, str]] = field(default_factory=list)
    """When, of which queue and whose consumer the broker cancelled."""
    leading: list[tuple[int, int, int, bool]] = field(default_factory=list)
    """When, of which shard, who began or ceased to lead; a process that dies ceases."""
    established: list[tuple[int, int, int, bool]] = field(default_factory=list)
    """The same for leaders that may decide, and can (not frozen, not cut off)."""
    fault_us: tuple[int, int] = (-1, -1)
    """When something went wrong, and until when."""
    final: dict[str, str] = field(default_factory=dict)
    """What clients were told at the end, when all was to be gone."""
    left_behind: list[str] = field(default_factory=list)
    """What replicas still had at the end."""
    calm_us: int = 0
    """From here on nothing went wrong."""
    ended_us: int = 0

    def shard_of(self, queue: str) -> int:
        """Where the latest queue of that name is, or was."""
        return max((life for life in self.lives.values() if life.queue == queue), key=lambda life: life.queue_id).shard

    def counts(self) -> dict[str, int]:
        """How much happened, for the summary of a run."""
        outcomes = [publish.outcome for publish in self.publishes.values()]
        return {
            "published": len(outcomes),
            "confirmed": outcomes.count(CONFIRMED),
            "refused": outcomes.count(REFUSED),
            "deliveries": len(self.deliveries),
            "dead": sum(1 for delivery in self.deliveries if delivery.deaths),
            "renewals": len(self.renewals),
            "removed": len(self.disappearances),
            "transactions": len(self.exchanges),
            "cancels": sum(1 for each in self.cancels if each.outcome == CONFIRMED and not each.reschedules),
            "rescheduled": sum(1 for each in self.cancels if each.outcome == CONFIRMED and each.reschedules),
            "recurring": len(self.recurring),
            "came": len(self.occurrences),
            "appended": len(self.appended),
            "read": len(self.reads),
        }
