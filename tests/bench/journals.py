"""What it costs that deaths are noted in a journal (RULES R4), in CPU time.

    PYTHONPATH=. python tests/bench/journals.py [--deaths 100000] [--rounds 5]

Messages of 200 bytes with ids and a `traceparent` expire in a queue: with nothing, with a journal, with a dead-letter
exchange, and with both. For each, in us a death: what it takes the state machine to let them die (`die`), its leader to
decide (`decide`: headers read, records or dead letters written, targets found), and the state machine to put what was
decided into queues of the same shard (`arrive`). The least of some rounds. Compiled or not is whatever `mayfly` is
imported as. With --off the one case alone of which an earlier release knows as well.
"""

import argparse
import time
from typing import Any

from pamqp import commands as amqp
from pamqp import header

from mayfly.cluster.versions import LEVEL_HIGHEST
from mayfly.node.catalog import Catalog, DeclareQueue, RaiseLevel
from mayfly.node.dead_letter import DeadLetterRouter
from mayfly.node.duties.contents import content_of, names_and_header_of
from mayfly.node.limits import DEAD_LETTERS_PER_ENTRY
from mayfly.node.shard import commands
from mayfly.node.shard.outbox import REASONS, Death
from mayfly.node.shard.settings import ShardQueueSettings
from mayfly.node.shard.shard import Shard

KEY = b"\x00\x01q"
BODY = bytes(200)
BATCH = 200
TTL_MS = 1000
NOW_MS = 1_000_000_000_000
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
QUEUE, DEAD, JOURNAL = 1, 2, 3
CASES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "journal": {"journal": "j"},
    "dead letters": {"dead_letter_exchange": "", "dead_letter_routing_key": "dead"},
    "both": {"dead_letter_exchange": "", "dead_letter_routing_key": "dead", "journal": "j"},
}


def properties(number: int) -> bytes:
    """The content header of a message."""
    given = amqp.Basic.Properties(delivery_mode=2, message_id=f"id-{number:08}", headers={"traceparent": TRACE})
    return header.ContentHeader(0, len(BODY), given).marshal()


class Round:
    """One shard in which all messages die once."""

    def __init__(self, deaths: int, settings: dict[str, Any]) -> None:
        self.shard = Shard(1, 1)
        self.index = 0
        self.log: dict[int, bytes] = {}
        self.catalog = Catalog(1)
        self.catalog.apply(RaiseLevel(LEVEL_HIGHEST, ()))
        for name, arguments in (("q", {}), ("dead", {}), ("j", {"x-queue-type": "stream"})):
            self.catalog.apply(DeclareQueue("/", name, durable=True, arguments=arguments))
        self.router = DeadLetterRouter(self.catalog)
        self.records: Any = None
        if "journal" in settings:
            from mayfly.node.dead_letter.journal import JournalRecords

            self.records = JournalRecords(self.catalog)
        self.entry(commands.encode_raise_level(LEVEL_HIGHEST), NOW_MS, True)
        for queue_id, made in (
            (QUEUE, ShardQueueSettings(name="q", message_ttl_ms=TTL_MS, **settings)),
            (DEAD, ShardQueueSettings(name="dead")),
            (JOURNAL, ShardQueueSettings(name="j", is_stream=True, ttl_retroactive=True)),
        ):
            self.entry(commands.encode_create_queue(queue_id, made), NOW_MS, True)
        for start in range(0, deaths, BATCH):
            parts: list[bytes] = []
            for number in range(start, min(deaths, start + BATCH)):
                commands.encode_publish(parts, (QUEUE,), -1, KEY, properties(number), BODY)
            self.entry(b"".join(parts), NOW_MS)
        self.deaths = deaths
        self.spent_s = {"die": 0.0, "decide": 0.0, "arrive": 0.0}

    def entry(self, data: bytes, time_ms: int, leader: bool = False) -> float:
        """Apply an entry; the seconds of CPU that it took."""
        self.index += 1
        self.log[self.index] = data
        start = time.process_time()
        self.shard.begin(self.index, time_ms, time_ms, data)
        self.shard.apply(None if leader else (1, 1), 0, len(data))
        self.shard.finish()
        spent_s = time.process_time() - start
        self.shard.take_released()
        self.shard.take_effects()
        return spent_s

    def run(self) -> dict[str, float]:
        """Let all die and arrive; us a death."""
        now_ms = NOW_MS + TTL_MS
        while self.shard.due_messages(now_ms):
            self.spent_s["die"] += self.entry(commands.encode_expire_due(), now_ms, True)
        while waiting := self.shard.unrouted(DEAD_LETTERS_PER_ENTRY):
            start = time.process_time()
            route = self._route(waiting)
            self.spent_s["decide"] += time.process_time() - start
            self.spent_s["arrive"] += self.entry(route, now_ms, True)
        found = self.shard.queue_statistics(QUEUE)
        assert found is not None
        assert (found.ready, found.expired) == (0, self.deaths)
        return {name: spent_s / self.deaths * 1e6 for name, spent_s in self.spent_s.items()}

    def _route(self, waiting: list[Death]) -> bytes:
        """As the duties have it: records by themselves where there are any."""
        if self.records is None:
            return commands.encode_route([self._decide(death) for death in waiting])
        from mayfly.node.shard.noted_commands import NotedRoute

        route = NotedRoute(waiting[0].sequence)
        journal = (0, JOURNAL)
        for death in waiting:
            if death.reason in REASONS:
                route.add(self._decide(death))
                continue
            names, header = names_and_header_of(self.log[death.message.index], death.message)
            record = self.records.record(death, names, header)
            route.add_record(journal, record.exchange_and_key, record.header)
        return route.encoded()

    def _decide(self, death: Death) -> commands.RouteDecision:
        original = content_of(self.log[death.message.index], death.message)
        decision = self.router.decide(death.settings, original, death.reason, death.time_ms // 1000)
        made = decision.content
        content = commands.LetterContent(made.exchange_and_key, made.header, made.body)
        return commands.RouteDecision(death.sequence, commands.ROUTED, [decision.targets[0].id], (), content)


def main() -> None:
    """Measure it all, and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--deaths", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--off", action="store_true")
    arguments = parser.parse_args()
    cases = {name: settings for name, settings in CASES.items() if not (arguments.off and "journal" in settings)}
    least: dict[str, dict[str, float]] = {}
    for _ in range(arguments.rounds):
        for name, settings in cases.items():
            found = Round(arguments.deaths, settings).run()
            known = least.setdefault(name, found)
            least[name] = {step: min(known[step], found[step]) for step in found}
    for name, found in least.items():
        steps = ", ".join(f"{step} {spent_us:.2f}" for step, spent_us in found.items())
        print(f"{name:13} {steps}: {sum(found.values()):.2f} us a death")


if __name__ == "__main__":
    main()
