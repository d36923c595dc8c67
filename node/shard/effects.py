"""What clients are to be told after entries were applied. HOT.

Every replica applies every delivery; there are effects for consumers of the nodes that listen to it.
``session`` is (node id, incarnation): effects of an earlier incarnation, replayed after a restart, are
for nobody and can be skipped.
"""

from mayfly.node.shard.message import Message


class Deliver:
    """Messages for one consumer; the i-th has delivery id ``first_delivery_id + i``."""

    __slots__ = ("consumer_id", "first_delivery_id", "messages", "session")

    def __init__(
        self, consumer_id: int, first_delivery_id: int, messages: list[Message], session: tuple[int, int]
    ) -> None:
        self.consumer_id = consumer_id
        self.first_delivery_id = first_delivery_id
        self.messages = messages
        self.session = session

    def __repr__(self) -> str:
        return f"Deliver({self.session}, {self.consumer_id}, {self.first_delivery_id}: {self.messages})"


class ConsumerCancelled:
    """The queue of an attached consumer is gone; what the consumer held is gone with it."""

    __slots__ = ("consumer_id", "queue_id", "session")

    def __init__(self, consumer_id: int, queue_id: int, session: tuple[int, int]) -> None:
        self.consumer_id = consumer_id
        self.queue_id = queue_id
        self.session = session

    def __repr__(self) -> str:
        return f"ConsumerCancelled({self.session}, consumer {self.consumer_id}, queue {self.queue_id})"


class Missing:
    """A consumer was given messages that its node was not told of, and that are not there any more: it needs no
    acknowledgements, and a snapshot has taken the place of the entries. It is to be cancelled, and to be detached: it
    goes on taking messages until then."""

    __slots__ = ("consumer_id", "queue_id", "session")

    def __init__(self, consumer_id: int, queue_id: int, session: tuple[int, int]) -> None:
        self.consumer_id = consumer_id
        self.queue_id = queue_id
        self.session = session

    def __repr__(self) -> str:
        return f"Missing({self.session}, consumer {self.consumer_id}, queue {self.queue_id})"


class ConsumerMoved:
    """The queue of an attached consumer has moved to ``shard``: the consumer is to be attached there, and then detached
    here, where what it holds is settled. Until then the queue's lease is held for it. ``prefetch``, ``exclusive`` and
    ``priority`` are what it was attached with."""

    __slots__ = ("consumer_id", "exclusive", "prefetch", "priority", "queue_id", "session", "shard")

    def __init__(
        self, consumer_id: int, queue_id: int, session: tuple[int, int], shard: int, prefetch: int, exclusive: bool,
        priority: int,
    ) -> None:
        self.consumer_id = consumer_id
        self.queue_id = queue_id
        self.session = session
        self.shard = shard
        self.prefetch = prefetch
        self.exclusive = exclusive
        self.priority = priority

    def __repr__(self) -> str:
        return f"ConsumerMoved({self.session}, consumer {self.consumer_id}, queue {self.queue_id} to {self.shard})"
