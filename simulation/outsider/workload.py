"""What the outsider's clients do: queues of all kinds, and for each client a list of steps, drawn from a seed.

Plain data. Whoever drives clients, simulated or real, takes the steps one after the other; what a client does with
messages that come to a consumer follows from its manners.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from simulation.outsider.judging.history import (
    CANCEL,
    CONSUME,
    DECLARE,
    DELETE,
    GET,
    PASSIVE,
    PURGE,
    DeclaredQueue,
    FanoutExchange,
)

PUBLISH, DROP = "publish", "drop"
"""Steps besides the calls of histories: to send some messages, and to let go of the connection without a word."""
EXCHANGE, BIND = "exchange", "bind"
"""Only before all others: to declare a fanout exchange, and to bind a queue to it."""

BAD_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {"x-message-ttl": -1},
    {"x-message-ttl": "60"},
    {"x-message-ttl": 315_360_000_001},
    {"x-expires": 0},
    {"x-expires": -5},
    {"x-expires": "soon"},
    {"x-expires": 315_360_000_001},
    {"x-dead-letter-routing-key": "nowhere"},
)
"""RULES T1, L1, D1."""
LONGEST_MS = 315_360_000_000
BAD_EXPIRATIONS = ("soon", "-1", "1.5", "315360000001", " 7")
"""RULES T2."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to be sent."""

    message: int
    exchange: str
    routing_key: str
    expiration: str | None = None
    delay_ms: int | None = None
    priority: int | None = None
    size: int = 10


@dataclass(frozen=True, slots=True)
class ClientStep:
    """One thing to do, after a pause."""

    pause_us: int
    kind: str
    queue: str = ""
    outgoing: tuple[Outgoing, ...] = ()
    prefetch: int = 0
    no_ack: bool = False
    exchange: str = ""
    bad: int = -1
    """Of a declare: which of `BAD_ARGUMENTS`."""


@dataclass(frozen=True, slots=True)
class Manners:
    """How often (0 to 1) a client gives back, refuses or fails at what it gets, and how long it thinks about it."""

    requeue: float = 0.0
    reject: float = 0.0
    hold_us: int = 20_000
    fail: float = 0.0


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """One client: where it connects first, what it does."""

    name: str
    first_node: int
    steps: tuple[ClientStep, ...]
    manners: Manners = Manners()


@dataclass(frozen=True, slots=True)
class Workload:
    """All of it. `declared` are there from the beginning."""

    queues: tuple[DeclaredQueue, ...]
    exchanges: tuple[FanoutExchange, ...]
    clients: tuple[ClientPlan, ...]
    declared: tuple[str, ...]


def arguments_of(queue: DeclaredQueue) -> dict[str, Any]:
    """What to declare a queue with."""
    known: dict[str, Any] = {
        "x-queue-type": None if queue.max_priority is not None else "quorum",
        "x-message-ttl": queue.ttl_ms,
        "x-expires": queue.expires_ms,
        "x-dead-letter-exchange": queue.dead_letter_exchange,
        "x-dead-letter-routing-key": queue.dead_letter_key,
        "x-max-length": queue.max_length,
        "x-overflow": "reject-publish" if queue.refuses else None,
        "x-delivery-limit": queue.delivery_limit,
        "x-max-priority": queue.max_priority,
        "x-allow-schedule": queue.allow_schedule or None,
        "x-delayed-retry-type": None if queue.retry_min_ms is None else "all",
        "x-delayed-retry-min": queue.retry_min_ms,
        "x-delayed-retry-max": queue.retry_max_ms,
        "x-expires-dead-letter": queue.leaves_dead_letters or None,
    }
    return {name: value for name, value in known.items() if value is not None}


def body_of(message: int, size: int) -> bytes:
    """What a message carries: its number, its size, and filling that both determine."""
    return b"%d:%d:" % (message, size) + bytes((message + place) % 251 for place in range(size))


def message_of(body: bytes) -> int:
    """The number of the message with this body; -1 if it is none of ours, or was changed."""
    parts = body.split(b":", 2)
    if len(parts) != 3 or not parts[0].isdigit() or not parts[1].isdigit():
        return -1
    return int(parts[0]) if body_of(int(parts[0]), int(parts[1])) == body else -1


TTLS_MS = (60, 200, 500, 900)


class Drawing:
    """A workload that grows, family by family."""

    def __init__(self, random: Random, nodes: int, length_us: int, gap_us: int, stretch: int = 1) -> None:
        """Clients work for `length_us`, with pauses of `gap_us` on average; all that they ask the cluster to wait for
        is `stretch` times as long."""
        self.random = random
        self.stretch = stretch
        self._nodes = nodes
        self._length_us = length_us
        self._gap_us = gap_us
        self.queues: list[DeclaredQueue] = []
        self.exchanges: list[FanoutExchange] = []
        self.clients: list[ClientPlan] = []
        self.not_declared: set[str] = set()
        self._messages = 0

    def workload(self) -> Workload:
        """What has been drawn."""
        declared = tuple(queue.name for queue in self.queues if queue.name not in self.not_declared)
        return Workload(tuple(self.queues), tuple(self.exchanges), tuple(self.clients), declared)

    def ttl(self) -> int:
        """Some time to live."""
        return self.choice_ms(TTLS_MS)

    def choice_ms(self, times_ms: tuple[int, ...]) -> int:
        """One of these times."""
        return self.random.choice(times_ms) * self.stretch

    def dead_letters_to(self, name: str, **arguments: Any) -> None:
        """A queue, and a plain one for its dead."""
        self.queues.append(DeclaredQueue(name, dead_letter_exchange="", dead_letter_key=f"{name}.dead", **arguments))
        self.queues.append(DeclaredQueue(f"{name}.dead"))

    def message(self, exchange: str, key: str, **properties: Any) -> Outgoing:
        """The next one."""
        self._messages += 1
        return Outgoing(self._messages, exchange, key, size=self.random.choice((0, 10, 10, 300)), **properties)

    def client(self, name: str, steps: Callable[[], ClientStep], manners: Manners = Manners()) -> None:
        """A client that goes on drawing steps until its time is over."""
        drawn: list[ClientStep] = []
        passed_us = 0
        while True:
            step = steps()
            passed_us += step.pause_us + 5_000
            if passed_us > self._length_us:
                break
            drawn.append(step)
        self.clients.append(ClientPlan(name, self.random.randint(1, self._nodes), tuple(drawn), manners))

    def pause_us(self, times: float = 1.0) -> int:
        """A pause of this many gaps on average."""
        return int(self.random.uniform(0.1, 1.9) * self._gap_us * times)

    def publisher(
        self,
        name: str,
        exchange: str,
        key: str,
        times: float = 1.0,
        properties: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        """A client that sends one message, or a few at once."""

        def step() -> ClientStep:
            count = self.random.choice((1, 1, 2, 4))
            outgoing = tuple(self.message(exchange, key, **properties()) for _ in range(count))
            return ClientStep(self.pause_us(times), PUBLISH, outgoing=outgoing)

        self.client(f"publisher of {name}", step)

    def consumer(
        self, queue: str, manners: Manners = Manners(), prefetch: int | None = None, drops: float = 0.0
    ) -> None:
        """A client that consumes, stops and begins again."""
        consuming = [False]

        def step() -> ClientStep:
            if consuming[0] and self.random.random() < drops:
                consuming[0] = False
                return ClientStep(self.pause_us(5), self.random.choice((CANCEL, DROP)), queue)
            room = self.random.choice((1, 1, 3, 10)) if prefetch is None else prefetch
            consuming[0] = True
            return ClientStep(self.pause_us(3), CONSUME, queue, prefetch=room)

        self.client(f"consumer of {queue}", step, manners)

    def getter(self, queue: str, manners: Manners = Manners(), no_ack: bool = False, times: float = 1.0) -> None:
        """A client that gets."""
        self.client(
            f"getter of {queue}", lambda: ClientStep(self.pause_us(times), GET, queue, no_ack=no_ack), manners
        )


def draw_workload(
    random: Random, nodes: int, length_us: int, gap_us: int, most: int = 9, stretch: int = 1, hurries: bool = False
) -> Workload:
    """Some of the families below; with one whose clients hurry, if asked for."""
    drawing = Drawing(random, nodes, length_us, gap_us, stretch)
    for family in random.sample(FAMILIES, min(most, len(FAMILIES))):
        family(drawing)
    if hurries:
        _hurried(drawing)
    return drawing.workload()


HURRIED = ("hurried", "hurried too")


def _hurried(drawing: Drawing) -> None:
    """Messages one after the other, each as soon as the one before is confirmed; some age."""
    plain, ageing = HURRIED
    drawing.queues.append(DeclaredQueue(plain))
    drawing.dead_letters_to(ageing, ttl_ms=drawing.ttl())
    for queue in HURRIED:

        def step(queue: str = queue) -> ClientStep:
            pause_us = drawing.random.choice((0, 0, 0, 0, 1_000, 4_000, 90_000))
            return ClientStep(pause_us, PUBLISH, outgoing=(drawing.message("", queue),))

        drawing.client(f"publisher of {queue}", step)
    drawing.consumer(plain, prefetch=0)
    drawing.consumer(f"{ageing}.dead", prefetch=0)


def _fifo(drawing: Drawing) -> None:
    """A queue that comes and goes, and whose messages are taken by gets: an object to be linearized."""
    drawing.queues.append(DeclaredQueue("fifo"))
    random = drawing.random

    def step() -> ClientStep:
        kind = random.choices((PUBLISH, GET, PASSIVE, DECLARE, PURGE, DELETE), (8, 8, 2, 3, 1, 1))[0]
        outgoing = (drawing.message("", "fifo"),) if kind == PUBLISH else ()
        return ClientStep(drawing.pause_us(1.5), kind, "fifo", outgoing, no_ack=True)

    for number in range(3):
        drawing.client(f"fifo {number}", step)


def _leased(drawing: Drawing) -> None:
    """Queues with leases that several clients use, or leave alone for about as long as the period."""
    random = drawing.random
    for name in ("leased.1", "leased.2"):
        period_ms = drawing.choice_ms((300, 500, 800, 1_600))
        drawing.queues.append(DeclaredQueue(name, expires_ms=period_ms))
        consumes = name == "leased.2"

        def step(name: str = name, period_ms: int = period_ms, consumes: bool = consumes) -> ClientStep:
            kinds = (PASSIVE, GET, DECLARE, PUBLISH, DELETE, CONSUME, CANCEL, DROP)
            weights = (4, 4, 5, 2, 1, 4, 2, 1) if consumes else (4, 4, 5, 4, 1, 0, 0, 0)
            kind = random.choices(kinds, weights)[0]
            pause_us = int(random.choice((0.2, 0.6, 0.98, 1.02, 1.4, 2.0)) * period_ms * 1_000)
            outgoing = (drawing.message("", name),) if kind == PUBLISH else ()
            return ClientStep(pause_us, kind, name, outgoing, no_ack=True)

        for number in range(2):
            drawing.client(f"user {number} of {name}", step)


def _plain(drawing: Drawing) -> None:
    """Nothing but messages and consumers who take, give back and refuse."""
    drawing.queues.append(DeclaredQueue("plain"))
    drawing.publisher("plain", "", "plain")
    drawing.publisher("plain too", "", "plain")
    drawing.consumer("plain", Manners(0.2, 0.1, 60_000, 0.1), drops=0.3)
    drawing.consumer("plain", Manners(0.2, 0.0, 10_000), drops=0.1)


def _chain(drawing: Drawing) -> None:
    """Dead letters of dead letters, to two queues at the end, across shards; nobody touches those between."""
    drawing.queues += [
        DeclaredQueue("chain.1", drawing.ttl(), dead_letter_exchange="", dead_letter_key="chain.2"),
        DeclaredQueue("chain.2", drawing.ttl(), dead_letter_exchange="chain"),
        DeclaredQueue("chain.3"),
        DeclaredQueue("chain.4"),
    ]
    drawing.exchanges.append(FanoutExchange("chain", ("chain.3", "chain.4")))

    def properties() -> dict[str, Any]:
        expiration = drawing.random.choice((None, None, None, str(drawing.ttl()), "0", str(10 * drawing.ttl())))
        return {"expiration": expiration}

    drawing.publisher("chain", "", "chain.1", properties=properties)
    drawing.publisher("chain too", "", "chain.1", 2.0)
    drawing.consumer("chain.3", prefetch=0, drops=0.05)


def _aging(drawing: Drawing) -> None:
    """One queue whose messages only age, with a consumer for the dead."""
    drawing.dead_letters_to("aging", ttl_ms=drawing.ttl())
    drawing.publisher("aging", "", "aging")
    drawing.consumer("aging.dead", prefetch=0)


def _work(drawing: Drawing) -> None:
    """Messages that age while clients take, hold, give back and refuse them."""
    drawing.dead_letters_to("work", ttl_ms=drawing.ttl())
    drawing.publisher("work", "", "work", 0.6)
    drawing.consumer("work", Manners(0.3, 0.2, 250_000), drops=0.3)
    drawing.getter("work", Manners(0.3, 0.2, 150_000), times=2.0)
    drawing.consumer("work.dead", Manners(0.1), drops=0.1)


def _looked(drawing: Drawing) -> None:
    """Messages that age while somebody gets them one by one."""
    drawing.queues.append(DeclaredQueue("looked", drawing.ttl()))
    drawing.publisher("looked", "", "looked", 1.5)
    drawing.getter("looked", no_ack=True, times=2.0)


def _short(drawing: Drawing) -> None:
    """Queues that drop the oldest, and one that refuses."""
    drawing.dead_letters_to("short", max_length=drawing.random.choice((0, 1, 4)))
    drawing.queues.append(DeclaredQueue("full", max_length=drawing.random.choice((1, 3)), refuses=True))
    drawing.publisher("short", "", "short")
    drawing.publisher("full", "", "full", 1.5)
    drawing.getter("full", times=3.0)
    drawing.consumer("short.dead", prefetch=0)


def _tried(drawing: Drawing) -> None:
    """What is given back too often dies."""
    drawing.dead_letters_to("tried", delivery_limit=drawing.random.choice((0, 1, 3)))
    drawing.publisher("tried", "", "tried", 2.0)
    drawing.consumer("tried", Manners(0.1, 0.0, 10_000, 0.6))


def _cycle(drawing: Drawing) -> None:
    """Dead letters that would go round and round."""
    drawing.queues += [
        DeclaredQueue("cycle.1", drawing.ttl(), dead_letter_exchange="", dead_letter_key="cycle.2"),
        DeclaredQueue("cycle.2", drawing.ttl(), dead_letter_exchange="", dead_letter_key="cycle.1"),
    ]
    drawing.publisher("cycle", "", "cycle.1", 2.0)
    drawing.getter("cycle.2", times=4.0)


def _ranked(drawing: Drawing) -> None:
    """Priorities, with a time to live."""
    drawing.dead_letters_to("ranked", ttl_ms=drawing.ttl(), max_priority=3)
    drawing.publisher("ranked", "", "ranked", properties=lambda: {"priority": drawing.random.randint(0, 3)})
    drawing.getter("ranked", Manners(0.2), times=2.0)


def _awaited(drawing: Drawing) -> None:
    """Messages for later."""
    drawing.queues.append(DeclaredQueue("awaited", allow_schedule=True))

    def properties() -> dict[str, Any]:
        delay_ms = drawing.random.choice((None, 0, 100, 400, 900))
        return {"delay_ms": delay_ms and delay_ms * drawing.stretch}

    drawing.publisher("awaited", "", "awaited", properties=properties)
    drawing.consumer("awaited", prefetch=0, drops=0.05)


def _retried(drawing: Drawing) -> None:
    """What is given back comes again later."""
    least_ms = drawing.choice_ms((60, 300))
    drawing.queues.append(DeclaredQueue("retried", retry_min_ms=least_ms, retry_max_ms=4 * least_ms))
    drawing.publisher("retried", "", "retried", 2.0)
    drawing.consumer("retried", Manners(0.2, 0.0, 10_000, 0.4))


def _left(drawing: Drawing) -> None:
    """A queue that leaves its messages to another when its lease ends."""
    drawing.dead_letters_to("left", expires_ms=drawing.choice_ms((300, 600)), leaves_dead_letters=True)
    drawing.not_declared.add("left")
    kinds = (DECLARE, PUBLISH)
    turn = [0]

    def step() -> ClientStep:
        kind = kinds[turn[0] % 2]
        turn[0] += 1
        outgoing = tuple(drawing.message("", "left") for _ in range(3)) if kind == PUBLISH else ()
        pause_us = 1_000 if kind == PUBLISH else drawing.choice_ms((200, 900)) * 1_000
        return ClientStep(pause_us, kind, "left", outgoing)

    drawing.client("heir", step)
    drawing.consumer("left.dead", prefetch=0)


def _squeezed(drawing: Drawing) -> None:
    """Dead letters for a queue without room and one with."""
    drawing.queues += [
        DeclaredQueue("squeezed", drawing.ttl(), dead_letter_exchange="squeeze"),
        DeclaredQueue("narrow", max_length=1, refuses=True),
        DeclaredQueue("wide"),
    ]
    drawing.exchanges.append(FanoutExchange("squeeze", ("narrow", "wide")))
    drawing.publisher("squeezed", "", "squeezed", 1.5)
    drawing.consumer("wide", prefetch=0)


def _zero(drawing: Drawing) -> None:
    """No time at all."""
    drawing.dead_letters_to("zero", ttl_ms=0)
    drawing.publisher("zero", "", "zero", 2.0)
    drawing.getter("zero", times=3.0)
    drawing.consumer("zero.dead", prefetch=0)


def _many(drawing: Drawing) -> None:
    """One message in several queues, with a life in each."""
    drawing.dead_letters_to("many.1", ttl_ms=drawing.ttl())
    drawing.queues += [DeclaredQueue("many.2"), DeclaredQueue("many.3", drawing.ttl())]
    drawing.exchanges.append(FanoutExchange("many", ("many.1", "many.2", "many.3")))
    drawing.publisher(
        "many", "many", "some key", 1.5,
        properties=lambda: {"expiration": drawing.random.choice((None, None, str(drawing.ttl())))},
    )  # fmt: skip
    drawing.consumer("many.2", Manners(0.2), drops=0.2)


def _bad(drawing: Drawing) -> None:
    """What must be refused."""
    drawing.queues.append(DeclaredQueue("asked"))
    random = drawing.random

    def step() -> ClientStep:
        if random.random() < 0.5:
            return ClientStep(drawing.pause_us(4), DECLARE, "never", bad=random.randrange(len(BAD_ARGUMENTS)))
        expiration = random.choice((*BAD_EXPIRATIONS, str(min(1_000_000 * drawing.stretch, LONGEST_MS))))
        outgoing = (drawing.message("", "asked", expiration=expiration),)
        return ClientStep(drawing.pause_us(4), PUBLISH, outgoing=outgoing)

    drawing.client("asker", step)


FAMILIES: tuple[Callable[[Drawing], None], ...] = (
    _fifo, _leased, _plain, _chain, _aging, _work, _looked, _short, _tried, _cycle, _ranked, _awaited, _retried,
    _left, _squeezed, _zero, _many, _bad,
)  # fmt: skip
