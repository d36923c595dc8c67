"""What it costs that deaths are noted in a journal (RULES R4), in CPU time.

    PYTHONPATH=. python tests/bench/journals.py [--deaths 100000] [--rounds 5]

Messages of 200 bytes with ids and a `traceparent` expire in a queue: with nothing, with a journal, with a dead-letter
exchange, and with both; the journal and the dead-letter queue are in the same shard, or in another one. For each, in us
a death:

    die       the state machine lets them die
    decide    the leader's duties: headers read, records and letters written, targets found
    route     the state machine puts what was decided into queues of the same shard, or into lanes
    send      the leader's duties: what is in lanes is written once more
    arrive    the state machine of the other shard puts that into queues
    settle    what has arrived leaves the lanes

`decide` and `send` are one node's, the others each replica's: `on three nodes` is what all of it comes to there. The
least of some rounds. Compiled or not is whatever `mayfly` is imported as.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any, Final

from pamqp import commands as amqp
from pamqp import header

from mayfly.cluster.group.pieces import PIECE_BYTES
from mayfly.cluster.versions import LEVEL_HIGHEST
from mayfly.node.catalog import Catalog, DeclareQueue, FoundCluster, QueueDeclared, QueueRecord
from mayfly.node.catalog.shard_settings import shard_settings
from mayfly.node.duties.large_bodies import LargeBodies
from mayfly.node.duties.large_transfers import LargeTransfers
from mayfly.node.duties.shard_duties import ShardDuties
from mayfly.node.limits import LARGE_BODY_BYTES
from mayfly.node.shard import commands
from mayfly.node.shard.room import ANY_ROOM, Room
from mayfly.node.shard.shard import Shard

BODY: Final = bytes(200)
BATCH: Final = 200
NOW_MS: Final = 1_000_000_000_000
TTL_MS: Final = 1000
TRACE: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
HERE, ELSEWHERE = 1, 2
NOTED: Final = {"x-journal": "j"}
DEAD: Final = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
CASES: Final[dict[str, tuple[int, dict[str, Any]]]] = {
    "nothing": (HERE, {}),
    "journal": (HERE, NOTED),
    "dead letters": (HERE, DEAD),
    "both": (HERE, {**DEAD, **NOTED}),
    "journal elsewhere": (ELSEWHERE, NOTED),
    "dead letters elsewhere": (ELSEWHERE, DEAD),
    "both elsewhere": (ELSEWHERE, {**DEAD, **NOTED}),
}
LEADERS: Final = ("decide", "send")
REPLICAS: Final = 3


def properties(number: int) -> bytes:
    """The content header of a message."""
    given = amqp.Basic.Properties(delivery_mode=2, message_id=f"id-{number:08}", headers={"traceparent": TRACE})
    return header.ContentHeader(0, len(BODY), given).marshal()


class Log:
    """A shard, and the payloads of its entries: what `LargeBodies` reads."""

    def __init__(self, number: int) -> None:
        self.shard = Shard(number, 1)
        self.shard.shard_id = number
        self.payloads: dict[int, bytes] = {}
        self.entry(commands.encode_raise_level(LEVEL_HIGHEST), NOW_MS, True)

    def entry(self, data: bytes, time_ms: int, leader: bool = False) -> float:
        """Apply an entry; the seconds of CPU that it took."""
        index = len(self.payloads) + 1
        self.payloads[index] = data
        start = time.process_time()
        self.shard.begin(index, time_ms, time_ms, data)
        self.shard.apply(None if leader else (1, 1), 0, len(data))
        self.shard.finish()
        spent_s = time.process_time() - start
        self.shard.take_released()
        self.shard.take_effects()
        return spent_s

    def head(self, index: int) -> bytes:
        return self.payloads[index]

    def data(self, index: int) -> bytes:
        return self.payloads[index]

    def elsewhere(self, index: int, start: int) -> int:
        return -1

    def octets(self, index: int, start: int, length: int) -> bytes:
        return self.payloads[index][start : start + length]


class Round:
    """Two shards, in the first of which all messages die once; the duties' port to the second."""

    is_waited_for = True

    def __init__(self, deaths: int, place: int, arguments: dict[str, Any]) -> None:
        self.catalog = Catalog(2)
        self.catalog.apply(FoundCluster(((1, "n1", "h:1"),), 2, LEVEL_HIGHEST))
        self.declared = 0
        self.logs = {HERE: Log(HERE), ELSEWHERE: Log(ELSEWHERE)}
        self.declare("dead", place, {})
        self.declare("j", place, {"x-queue-type": "stream"})
        self.timed = self.declare("q", HERE, {"x-message-ttl": TTL_MS, **arguments})
        self.given: list[bytes] = []
        self.sent: list[bytes] = []
        here = self.logs[HERE]
        transfers = LargeTransfers(lambda shard: 1, lambda *_: None, PIECE_BYTES)
        large = LargeBodies(here, lambda *_: None, transfers, self.catalog, LARGE_BODY_BYTES)
        self.duties = ShardDuties(
            here.shard, HERE, self, self.given.append, here.head, lambda now_ms: now_ms, large
        )  # fmt: skip
        for start in range(0, deaths, BATCH):
            parts: list[bytes] = []
            for number in range(start, min(deaths, start + BATCH)):
                commands.encode_publish(parts, (self.timed.id,), -1, b"\x00\x01q", properties(number), BODY)
            here.entry(b"".join(parts), NOW_MS)
        self.deaths = deaths
        self.spent_s = dict.fromkeys(("die", "decide", "route", "send", "arrive", "settle"), 0.0)

    def declare(self, name: str, place: int, arguments: dict[str, Any]) -> QueueRecord:
        """A queue in this shard: the catalog takes the emptiest, so one more may have to be in the other."""
        queue = self._declare(name if self.declared % 2 == place - 1 else f"beside-{name}", arguments)
        if queue.name != name:
            queue = self._declare(name, arguments)
        made = commands.encode_create_queue(queue.id, shard_settings(self.catalog, queue))
        self.logs[place].entry(made, NOW_MS)
        return queue

    def _declare(self, name: str, arguments: dict[str, Any]) -> QueueRecord:
        self.declared += 1
        result = self.catalog.apply(DeclareQueue("/", name, durable=True, arguments=arguments))
        assert isinstance(result, QueueDeclared)
        return result.queue

    def run(self) -> dict[str, float]:
        """Let all die and arrive; us a death."""
        here, now_ms = self.logs[HERE], NOW_MS + TTL_MS
        while here.shard.due_messages(now_ms):
            self.spent_s["die"] += here.entry(commands.encode_expire_due(), now_ms, True)
        while here.shard.unrouted(1) or here.shard.has_lanes:
            now_ms += 1
            self.catalog.routing_turns.begin()
            start = time.process_time()
            if here.shard.unrouted(1):
                self.duties._route(now_ms)
                step = "decide"
            else:
                self.duties.lanes.move(now_ms)
                step = "send"
            self.spent_s[step] += time.process_time() - start
            for command in self.sent:
                self.spent_s["arrive"] += self.logs[ELSEWHERE].entry(command, now_ms, True)
            for command in self.given:
                self.spent_s["route" if step == "decide" else "settle"] += here.entry(command, now_ms, True)
            self.sent.clear()
            self.given.clear()
        found = here.shard.queue_statistics(self.timed.id)
        assert found is not None
        assert (found.ready, found.expired) == (0, self.deaths)
        return {name: spent_s / self.deaths * 1e6 for name, spent_s in self.spent_s.items()}

    # ------------------------------------------------------------------ the duties' port

    def transfer(self, target_shard: int, command: bytes) -> None:
        assert target_shard == ELSEWHERE
        self.sent.append(command)

    def received_up_to(self, target_shard: int, queue: int, source: int) -> int:
        return self.logs[target_shard].shard.received_up_to(queue, source)

    def room(self, target_shard: int, queue: int, source: int, next_bytes: int) -> Room:
        return ANY_ROOM

    def barrier(self, done: Callable[[], None]) -> None:
        done()

    def ask_again(self, target_shard: int, queue: int, source: int) -> None:
        raise AssertionError("nothing goes in pieces")

    def has_leader(self, shard: int) -> bool:
        return True

    def queue_moved(self, queue: int, source: int, target: int, number: int) -> None:
        raise AssertionError("no queue moves")

    def remove_queues(self, ids: tuple[int, ...], done: Callable[[bool], None]) -> None:
        raise AssertionError("no queue goes")


def on_three_nodes_us(found: dict[str, float]) -> float:
    """What leaders do once, and replicas each."""
    return sum([spent_us * (1 if step in LEADERS else REPLICAS) for step, spent_us in found.items()])


def main() -> None:
    """Measure it all, and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--deaths", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    least: dict[str, dict[str, float]] = {}
    for _ in range(arguments.rounds):
        for name, (place, queue) in CASES.items():
            found = Round(arguments.deaths, place, queue).run()
            known = least.setdefault(name, found)
            least[name] = {step: min(known[step], found[step]) for step in found}
    for name, found in least.items():
        steps = ", ".join(f"{step} {spent_us:.2f}" for step, spent_us in found.items())
        print(f"{name:22} {steps}: {on_three_nodes_us(found):.1f} us a death on three nodes")
    for where in ("", " elsewhere"):
        without, beside = (on_three_nodes_us(least[name + where]) for name in ("dead letters", "both"))
        print(f"a journal beside dead letters{where}: {(beside / without - 1) * 100:.1f} % more")


if __name__ == "__main__":
    main()
