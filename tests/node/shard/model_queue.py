"""A queue of the naive shard in `model.py`: its messages, and who holds them."""

from collections.abc import Iterator, Sequence

PRIORITIES = (5, 4, 3, 2, 1, 0)
_SAID = (0, 3, 2, 5)
"""Below the usual priority of quorum queues and above it, and 0 for none."""


def priority_in(body: str) -> int:
    """The priority property of a message: bodies are numbers behind some letters, and tell it."""
    return _SAID[int(body.lstrip("b")) % len(_SAID)]


class Item:
    """A message of the model: a name instead of a place in a log."""

    def __init__(
        self, entry: int, body: str, deadline: int, count: int = 0, priority: int = 0, born: int = 0,
        ttl: int | None = None, acquired: int = 0,
    ) -> None:
        self.entry = entry
        self.born = born
        self.ttl = ttl
        self.body = body
        self.deadline = deadline
        self.count = count
        self.acquired = acquired
        self.priority = priority


class Person:
    """A consumer, or the gets of a channel."""

    def __init__(self, session: tuple[int, int], number: int, order: int) -> None:
        self.session = session
        self.number = number
        self.order = order
        self.consumer = False
        self.attached = False
        self.active = True
        self.prefetch = 0
        self.no_ack = False
        self.exclusive = False
        self.priority = 0
        self.last = 0
        self.held: dict[int, Item] = {}
        self.window = self.given = self.taken = 0

    def window_left(self) -> int:
        return self.window - (self.given - self.taken) if self.window else 1 << 60

    def has_room(self) -> bool:
        return self.window_left() > 0 and self._may_hold_more()

    def _may_hold_more(self) -> bool:
        return self.no_ack or self.prefetch == 0 or len(self.held) < self.prefetch


class Row:
    """A queue of the model."""

    def __init__(self, number: int, settings: dict[str, object], led: int) -> None:
        self.number = number
        self.settings = settings
        self.returned: list[Item] = []
        self.ready: list[Item] = []
        self.people: list[Person] = []
        self.waiting: list[Person] = []
        self.single: Person | None = None
        self.received: dict[int, int] = {}
        self.epoch = 1
        self.started = led
        self.kept = False
        self.single_active = bool(settings.get("single_active_consumer"))
        self.overflowed = self.refused = self.delivery_limited = 0
        self.failures: list[list[int]] = []
        """When a run of failures began, and how many they are."""
        self.braked = False

    @property
    def dialect(self) -> str:
        """In whose way its TTLs count."""
        return str(self.settings.get("ttl_dialect", "rabbitmq"))

    @property
    def usual(self) -> int:
        """The priority of messages that name none, where queues are as RabbitMQ's quorum queues."""
        return self.setting("default_priority") or 0

    def setting(self, name: str) -> int | None:
        value = self.settings.get(name)
        assert value is None or isinstance(value, int)
        return value

    def deadline(self, born: int, ttl: int | None) -> int:
        """Of a message enqueued then, with that TTL of its own; -1 for none."""
        ttls = [value for value in (ttl, self.setting("message_ttl_ms")) if value is not None]
        if self.dialect == "ottermq":
            ttls = ttls[:1]
        due = born + min(ttls) if ttls else -1
        return max(born, due // 100 * 100) if self.dialect == "lavinmq" and ttls else due

    def limited(self, drops: bool) -> bool:
        """Whether it has a limit, and drops (or else refuses) what is too much."""
        limits = (self.setting("max_length"), self.setting("max_length_bytes"))
        return limits != (None, None) and (self.settings.get("overflow", "drop-head") == "drop-head") == drops

    def is_over(self, more: Sequence[int] = ()) -> bool:
        """Whether more is ready than may be, with bodies of these lengths on top."""
        sizes = [len(item.body) for item in self.returned + self.ready] + list(more)
        longest, largest = self.setting("max_length"), self.setting("max_length_bytes")
        return (longest is not None and len(sizes) > longest) or (largest is not None and sum(sizes) > largest)

    def lines(self) -> Iterator[tuple[list[Item], list[Item]]]:
        """What leaves one after the other, in this order: a part of a list, and that list."""
        if self.usual:
            # Those of the usual priority are at place 0, all others at one more than theirs.
            yield list(self.returned), self.returned
            for priority in PRIORITIES:
                place = 0 if priority == self.usual else priority + 1
                yield [item for item in self.ready if item.priority == place], self.ready
            return
        for priority in PRIORITIES:
            for line in (self.returned, self.ready):
                yield [item for item in line if item.priority == priority], line

    def judge(self, now: int) -> None:
        """What failed too long ago is forgotten; the brake ends where no more is left than may be."""
        window = self.setting("brake_window_ms") or 0
        self.failures = [run for run in self.failures if run[0] + window > now]
        if self.failed() <= (self.setting("brake_limit") or 0):
            self.braked = False

    def failed(self) -> int:
        return sum(count for _, count in self.failures)

    def fail(self, now: int) -> None:
        """One message more has failed."""
        window = self.setting("brake_window_ms") or 0
        self.failures = [run for run in self.failures if run[0] + window > now]
        if not self.failures or now - self.failures[-1][0] >= max(1, window // 20):
            self.failures.append([now, 0])
        self.failures[-1][1] += 1
        self.braked = self.braked or self.failed() > (self.setting("brake_limit") or 0)

    def brake_ends(self) -> int:
        """When it does if nothing more fails."""
        window, limit = self.setting("brake_window_ms") or 0, self.setting("brake_limit") or 0
        ends = (start + window for start, _ in self.failures)
        return next(end for end in ends if sum(n for start, n in self.failures if start + window > end) <= limit)

    def is_empty(self) -> bool:
        return not (self.ready or self.returned or any(person.held for person in self.people))

    def consumers(self) -> list[Person]:
        return [person for person in self.people if person.attached]

    def suspended(self) -> bool:
        return any(person.consumer for person in self.people)
