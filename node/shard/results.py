"""Answers to commands: plain objects, the same on every replica."""

from typing import Final

from mayfly.node.shard.message import Message

EXCLUSIVE: Final = "exclusive"
IN_USE: Final = "in-use"
NOT_EMPTY: Final = "not-empty"
DUPLICATE_CONSUMER: Final = "duplicate-consumer"
FULL: Final = "full"
NOT_HELD: Final = "not-held"
NO_KEYS: Final = "no-keys"
NO_REDRIVE: Final = "no-redrive"
NOT_READY: Final = "not-ready"
NOT_BRAKED: Final = "not-braked"


class Gone:
    """The queue is not here. ``reason`` is its tombstone's, or "" when this shard never had it (or forgot
    it).
    """

    __slots__ = ("queue_id", "reason")

    def __init__(self, queue_id: int, reason: str) -> None:
        self.queue_id = queue_id
        self.reason = reason


class Moved:
    """Answer to any command for a queue that has moved: it is in ``shard`` by now. If that is the shard that was asked:
    its messages are still on their way there, so ask again in a moment.
    """

    __slots__ = ("queue_id", "shard")

    def __init__(self, queue_id: int, shard: int) -> None:
        self.queue_id = queue_id
        self.shard = shard


class Crossed:
    """Answer to CROSS: whether all that had been published here for a queue has arrived where the queue is now; if not,
    ask again with ``up_to`` (0: that is not known yet)."""

    __slots__ = ("done", "up_to")

    def __init__(self, up_to: int, done: bool) -> None:
        self.up_to = up_to
        self.done = done


class QueueCounts:
    """Answer to CREATE_QUEUE and TOUCH_QUEUE: ready messages and attached consumers; ``created`` when it is
    new.
    """

    __slots__ = ("consumers", "created", "ready")

    def __init__(self, ready: int, consumers: int, created: bool) -> None:
        self.ready = ready
        self.consumers = consumers
        self.created = created


class Published:
    """Answer to PUBLISH_GUARDED: the positions, from 0 and rising, of the publishes that a full queue, or a mirror,
    refused, and of those that are nowhere.

    Other queues of the same publish have it all the same, as in RabbitMQ. A CHANGE_SCHEDULED is ``refused`` where it is
    not decided: the queue is on its way between shards, or more waits under the id than one command may change.
    ``nowhere``: none of its queues is here, as it has not come yet or is gone (one that has moved is a way to where it
    is now). Of a CHANGE_SCHEDULED: nothing waits under its id in any of its queues. Nodes of older releases say it of
    these alone.
    """

    __slots__ = ("nowhere", "refused")

    def __init__(self, refused: list[int], nowhere: list[int] | None = None) -> None:
        self.refused = refused
        self.nowhere = nowhere or []


class GetResult:
    """Answer to GET: a message with its delivery id, or None when nothing can be had.

    ``ready_count`` is what stays ready after it. ``try_again``: the entry's bound of expiry work (RULES C4)
    ran out before a live message was found, so an empty answer says nothing yet: send the GET once more.
    """

    __slots__ = ("delivery_id", "message", "ready_count", "try_again")

    def __init__(self, message: Message | None, delivery_id: int, ready_count: int, try_again: bool) -> None:
        self.message = message
        self.delivery_id = delivery_id
        self.ready_count = ready_count
        self.try_again = try_again


class Attached:
    """The consumer is attached; ``consumers`` counts it."""

    __slots__ = ("consumers",)

    def __init__(self, consumers: int) -> None:
        self.consumers = consumers


class Detached:
    """Answer to DETACH, whether or not there was something to detach."""

    __slots__ = ()


class Refused:
    """ATTACH, DELETE_QUEUE, TRANSACTION, PURGE_KEY, START_REDRIVE, CHANGE_REDRIVE or RELEASE_BRAKE refused: EXCLUSIVE,
    DUPLICATE_CONSUMER, IN_USE, NOT_EMPTY, FULL, NOT_HELD, NO_KEYS, NO_REDRIVE, NOT_READY or NOT_BRAKED. Nothing
    changed.
    """

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


class RedriveState:
    """Answer to START_REDRIVE and CHANGE_REDRIVE: which redrive it is, and in which state (`node.shard.redrive`)."""

    __slots__ = ("redrive_id", "state")

    def __init__(self, redrive_id: int, state: int) -> None:
        self.redrive_id = redrive_id
        self.state = state


class Purged:
    """Answer to PURGE and DELETE_OFFSET: how many ready messages were dropped."""

    __slots__ = ("messages",)

    def __init__(self, messages: int) -> None:
        self.messages = messages


class PurgedKey:
    """Answer to PURGE_KEY: how many messages were dropped, and how many of those that were meant are ``left``."""

    __slots__ = ("left", "messages")

    def __init__(self, messages: int, left: int) -> None:
        self.messages = messages
        self.left = left


class Deleted:
    """Answer to DELETE_QUEUE: how many ready messages went with the queue."""

    __slots__ = ("messages",)

    def __init__(self, messages: int) -> None:
        self.messages = messages


class Applied:
    """Answer to NOOP, TRANSACTION and RELEASE_BRAKE: it and everything before it in the session is applied.
    ``nowhere``: of a TRANSACTION, what `Published` has under the name."""

    __slots__ = ("nowhere",)

    def __init__(self, nowhere: list[int] | None = None) -> None:
        self.nowhere = nowhere or []


Result = (
    Gone | Moved | Crossed | QueueCounts | GetResult | Attached | Detached | Refused | Purged | PurgedKey | Deleted
    | Published | Applied | RedriveState
)
