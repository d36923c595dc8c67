"""What a channel's table of deliveries costs, in CPU time for each delivery that is held and settled.

    PYTHONPATH=. python tests/bench/settling.py

Compiled or not is whatever `node.broker.unacknowledged` is imported as; the first line says which. To compare two
versions, run them in turn and take the least of each row.
"""

import random
import time
from collections.abc import Callable

from mayfly.node.broker import unacknowledged
from mayfly.node.broker.unacknowledged import DeliveryHolder, Unacknowledged
from mayfly.node.shard.commands import ACK

COUNT = 200_000
BATCH = 50


def in_order(batch: int = BATCH, held: int = 100, consumers: int = 1) -> None:
    """Acknowledged one by one while more comes; `held` are open."""
    tags = Unacknowledged()
    holders = [DeliveryHolder(number, 1, 1) for number in range(consumers)]
    done = 0
    for turn in range(COUNT // batch):
        tags.hold(holders[turn % consumers], turn // consumers * batch + 1, batch)
        while tags.count > held:
            done += 1
            tags.settle(done, False, ACK)
        tags.take()


def multiple(batch: int = BATCH) -> None:
    """Acknowledged together."""
    tags = Unacknowledged()
    holder = DeliveryHolder(1, 1, 1)
    for turn in range(COUNT // batch):
        tags.hold(holder, turn * batch + 1, batch)
        tags.settle((turn + 1) * batch, True, ACK)
        tags.take()


def mixed_up(held: int, least_open: int = 0) -> None:
    """Acknowledged in any order; `least_open` of the oldest not at all."""
    chance = random.Random(1)
    tags = Unacknowledged()
    holder = DeliveryHolder(1, 1, 1)
    going: list[int] = []
    for turn in range(COUNT // BATCH):
        first = tags.hold(holder, turn * BATCH + 1, BATCH)
        going += range(max(first, least_open + 1), first + BATCH)
        while len(going) > held:
            place = chance.randrange(len(going))
            going[place], going[-1] = going[-1], going[place]
            tags.settle(going.pop(), False, ACK)
        tags.take()


def behind_one(consumers: int) -> None:
    """The first is held, all others are acknowledged in order; then the first is."""
    tags = Unacknowledged()
    holders = [DeliveryHolder(number, 1, 1) for number in range(consumers)]
    for number in range(COUNT):
        tag = tags.hold(holders[number % consumers], number // consumers + 1, 1)
        if tag > 1:
            tags.settle(tag, False, ACK)
        if tag % BATCH == 0:
            tags.take()
    tags.settle(1, False, ACK)


CASES: list[tuple[str, Callable[[], None]]] = [
    ("in order", in_order),
    ("in order, single ones", lambda: in_order(1, 0)),
    ("in order, 2 000 open", lambda: in_order(500, 2000)),
    ("in order, two consumers", lambda: in_order(1, 10, 2)),
    ("multiple", multiple),
    ("multiple, 1 000 at once", lambda: multiple(1000)),
    ("any order, 100 open", lambda: mixed_up(100)),
    ("any order, 2 000 open", lambda: mixed_up(2000)),
    ("in order but for the first", lambda: behind_one(1)),
    ("the same, two consumers", lambda: behind_one(2)),
]


def main() -> None:
    """Run all cases, five times each; the least time of each."""
    print("compiled" if unacknowledged.__file__.endswith(".so") else "interpreted")
    for name, case in CASES:
        least = min(seconds(case) for _ in range(5))
        print(f"{name:30} {least / COUNT * 1e9:8.1f} ns")


def seconds(case: Callable[[], None]) -> float:
    """CPU time of one run."""
    start = time.process_time()
    case()
    return time.process_time() - start


if __name__ == "__main__":
    main()
