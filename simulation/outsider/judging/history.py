"""What clients of a cluster saw, as records, and as lines of JSON.

One line is one record: an object whose `record` names its kind, and whose other names are the fields below. The first
line is the `setting`, the others come in any order. Times are whole microseconds of the one clock of whoever watched
all clients; an answer that never came has the time None.

    {"record": "publish", "client": "publisher-1", "connection": 3, "message": 17, ...}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any

CONFIRMED = "confirmed"
REFUSED = "refused"
RETURNED = "returned"
"""Of a publish: acknowledged; refused (nack); unroutable, though acknowledged."""
OK = "ok"
EMPTY = "empty"
"""Of a call: answered; of a get: nothing there."""
CLOSED = "closed"
UNKNOWN = "unknown"
"""Of both: the channel or connection was closed instead (with a code); no answer came."""

DECLARE, PASSIVE, DELETE, PURGE, GET, CONSUME, CANCEL = (
    "declare", "passive", "delete", "purge", "get", "consume", "cancel"
)  # fmt: skip
ACK, REQUEUE, FAIL, REJECT = "ack", "requeue", "fail", "reject"
"""How a client settles a message: takes it, gives it back (basic.nack), gives it back as one that it failed at
(basic.reject, which counts towards a delivery limit, RULES Q1), refuses it for good."""


@dataclass(frozen=True, slots=True)
class DeclaredQueue:
    """A queue by its arguments. Durations in milliseconds, None where the argument is absent."""

    name: str
    ttl_ms: int | None = None
    expires_ms: int | None = None
    dead_letter_exchange: str | None = None
    dead_letter_key: str | None = None
    max_length: int | None = None
    refuses: bool = False
    """With `max_length`: publishes that are too much are refused; else the oldest are dropped."""
    delivery_limit: int | None = None
    max_priority: int | None = None
    allow_schedule: bool = False
    retry_min_ms: int | None = None
    retry_max_ms: int | None = None
    leaves_dead_letters: bool = False
    """Whether what is left when its lease ends is dead-lettered (RULES L11)."""


@dataclass(frozen=True, slots=True)
class FanoutExchange:
    """A fanout exchange and the queues bound to it from the beginning."""

    name: str
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known of a run besides what the clients saw."""

    seed: int
    queues: tuple[DeclaredQueue, ...]
    exchanges: tuple[FanoutExchange, ...]
    tick_ms: int
    """The expiry tick of the nodes."""
    clock_ms: int
    """So far apart may the clocks of any two nodes be, and so far may shard time jump when leaders change."""
    late_ms: int | None
    """So much later than promised may a client see something while all is quiet; None: lateness is not judged."""
    epoch_ms: int
    """The time since 1970 at time 0 of this history."""
    settle_ms: int = 2_000
    """How long a cluster may take after trouble until it is quiet."""
    behind_ms: int = 0
    """So far may shard time fall behind: a new leader goes on with what it heard of it, as late as that came."""
    moved: tuple[str, ...] = ()
    """Queues that an operator had move between shards, at any time."""


@dataclass(frozen=True, slots=True)
class Phases:
    """From `drain_us` on all other clients are gone, and one takes whatever is left out of all queues; nothing was done
    to the cluster after `calm_us`; at `end_us` the history ends."""

    calm_us: int
    drain_us: int
    end_us: int


@dataclass(frozen=True, slots=True)
class OutsiderPublish:
    """A message sent, mandatory and with confirms. Its body says its number."""

    client: str
    connection: int
    node: int
    message: int
    exchange: str
    routing_key: str
    sent_us: int
    answered_us: int | None
    outcome: str
    code: int = 0
    expiration: str | None = None
    delay_ms: int | None = None
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A method that is answered. A get that brought a message names it; `no_ack`: the queue has it no more."""

    client: str
    connection: int
    node: int
    kind: str
    queue: str
    sent_us: int
    answered_us: int | None
    outcome: str
    code: int = 0
    message: int | None = None
    tag: str = ""
    no_ack: bool = False
    prefetch: int = 0
    bad: bool = False
    """A declare whose arguments must be refused."""


@dataclass(frozen=True, slots=True)
class DeathRow:
    """A row of `x-death`, `time_s` since 1970."""

    queue: str
    reason: str
    count: int
    time_s: int
    exchange: str
    routing_keys: tuple[str, ...]
    original_expiration: str | None = None


@dataclass(frozen=True, slots=True)
class Handed:
    """A message that came to a client, by a consumer (`tag`) or a get (no tag)."""

    number: int
    client: str
    connection: int
    node: int
    queue: str
    message: int
    """-1: the body is none that was sent."""
    tag: str
    at_us: int
    since_us: int
    """It cannot have been given before: when the get was sent, the consumer began, or room was made for it."""
    redelivered: bool
    no_ack: bool = False
    expiration: str | None = None
    deaths: tuple[DeathRow, ...] = ()
    first_death: tuple[str, str] | None = None
    last_death: tuple[str, str] | None = None
    """Queue and reason, as `x-first-death-*` and `x-last-death-*` say."""


@dataclass(frozen=True, slots=True)
class Settle:
    """What a client did with the message of that number."""

    handed: int
    how: str
    sent_us: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A connection is over, as its client sees it. `polite`: closed by the client, and answered."""

    client: str
    connection: int
    node: int
    at_us: int
    polite: bool


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The cluster took a consumer away."""

    connection: int
    queue: str
    tag: str
    at_us: int


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something was done to nodes (none named: to all) in that time."""

    kind: str
    nodes: tuple[int, ...]
    from_us: int
    to_us: int


@dataclass(slots=True)
class OutsiderHistory:
    """All records of a run."""

    setting: Setting
    phases: Phases = Phases(0, 0, 0)
    publishes: list[OutsiderPublish] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    handed: list[Handed] = field(default_factory=list)
    settles: list[Settle] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    cancelled: list[Cancelled] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)


_LISTS: dict[str, tuple[type[Any], str]] = {
    "publish": (OutsiderPublish, "publishes"),
    "call": (Call, "calls"),
    "handed": (Handed, "handed"),
    "settle": (Settle, "settles"),
    "ended": (Ended, "ended"),
    "cancelled": (Cancelled, "cancelled"),
    "trouble": (Trouble, "troubles"),
}


def lines_of(history: OutsiderHistory) -> Iterator[str]:
    """The history as lines of JSON, without line ends."""
    yield json.dumps({"record": "setting", **asdict(history.setting)})
    yield json.dumps({"record": "phases", **asdict(history.phases)})
    for name, (_, place) in _LISTS.items():
        for each in getattr(history, place):
            yield json.dumps({"record": name, **asdict(each)})


def history_of(lines: Iterable[str]) -> OutsiderHistory:
    """The history that these lines hold. Raises ValueError with the number of the line that is wrong."""
    history: OutsiderHistory | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            kind = row.pop("record")
            if kind == "setting":
                row["queues"] = tuple(DeclaredQueue(**each) for each in row["queues"])
                row["exchanges"] = tuple(
                    FanoutExchange(each["name"], tuple(each["queues"])) for each in row["exchanges"]
                )
                row["moved"] = tuple(row.get("moved", ()))
                history = OutsiderHistory(Setting(**row))
            elif history is None:
                raise ValueError("the first record must be the setting")
            elif kind == "phases":
                history.phases = Phases(**row)
            else:
                made, place = _LISTS[kind]
                getattr(history, place).append(made(**_values(made, row)))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"line {number}: {type(error).__name__}: {error}") from error
    if history is None:
        raise ValueError("no setting: the history is empty")
    return history


def _values(made: type[Any], row: dict[str, Any]) -> dict[str, Any]:
    """Tuples where JSON has lists."""
    names = {each.name for each in fields(made)}
    if not names >= row.keys():
        raise ValueError(f"a {made.__name__} has no {sorted(row.keys() - names)}")
    deaths = row.get("deaths")
    if deaths is not None:
        row["deaths"] = tuple(DeathRow(**{**each, "routing_keys": tuple(each["routing_keys"])}) for each in deaths)
    return {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
