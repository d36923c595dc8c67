"""One run: a cluster of containers under load, one fault after the other, calm, and the judgement.

The load: messages that are consumed, messages that expire into queues of other nodes, and queues whose lease runs out.
Clients and judges are those of `make chaos` and `make chaos-deadletters`.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from simulation.node.checker import Violation
from tests.failover.containers import NODES, ContainerNetwork, ContainerNodes
from tests.failover.engine import IMAGE, release_of_image, version_of_image
from tests.failover.faults import KINDS, carry_out, choose_victims
from tests.failover.leases import EXPIRES_MS, Leases
from tests.failover.releases import Upgrade
from tests.failover.upgrade import ROLLING_UPGRADE, UPGRADES, upgrade, upgrade_and_go_back
from tests.integration.nodes import wait_for
from tests.reliability.chaos import (
    LOGIN,
    MOVED_WITHIN_S,
    WHOLE_WITHIN_S,
    Run,
    calm,
    clients_of,
    declare_queues,
    have_all_moved,
    have_one_placed,
    have_some_moved,
    is_whole,
    leaders_of,
)
from tests.reliability.clients import consumers_of, publishers_of
from tests.reliability.dead_letter_judging import judge_dead_letters
from tests.reliability.dead_letters import (
    DeadLetterRun,
    calm_dead_letters,
    dead_letter_consumers,
    dead_letter_publishers,
    declare_sources,
)
from tests.reliability.faults import Fault
from tests.reliability.figures import Waits, notes_of, percentile, waits_by_kind
from tests.reliability.judging import judge

_LEASES_GONE_WITHIN_S: Final = 60.0
# What faults make nodes say at the level of errors.
_EXPECTED: Final = ("stopped by itself: ", "stopping: ")


@dataclass(slots=True)
class FailoverRun:
    """What is to be run, and what has come of it."""

    seed: int
    rounds: int = 1
    kinds: Sequence[str] = tuple(KINDS)
    rate: float = 300.0
    minutes: float = math.inf
    """No other fault begins after so long."""
    nodes: int = NODES
    """Shards have three replicas, however many there are."""
    moves: bool = False
    """Whether queues are on their way to other shards, and replicas to other nodes, when a fault comes."""
    image: str = IMAGE
    next_image: str = ""
    """What a rolling upgrade leads to."""
    build: str = ""
    faults: list[Fault] = field(default_factory=list)
    impossible: dict[str, str] = field(default_factory=dict)
    """Kinds that this machine can't do, and why."""
    violations: list[Violation] = field(default_factory=list)
    seconds: float = 0.0
    streams: Run = field(init=False)
    dead: DeadLetterRun = field(init=False)
    leases: Leases | None = None

    @property
    def way(self) -> Upgrade:
        """From the image to the next."""
        return Upgrade(release_of_image(self.image), release_of_image(self.next_image))

    def __post_init__(self) -> None:
        self.streams = Run(self.seed, 0, [], self.rate)
        self.dead = DeadLetterRun(self.seed + 1, 0, [], self.rate / 2)


def carry_out_run(run: FailoverRun, folder: Path, say: bool = True) -> None:
    """The whole run. Logs stay in the folder."""
    run.build = version_of_image(run.image)
    network = ContainerNetwork()
    try:
        nodes = ContainerNodes(folder, network, {}, run.image, run.nodes)
        nodes.expected_errors += _EXPECTED
        try:
            nodes.serve()
            began_s = time.monotonic()
            _under_load(run, nodes, say)
            run.seconds = time.monotonic() - began_s
        finally:
            run.violations += [Violation("end", end.describe()) for end in nodes.ends()]
            nodes.close()
            run.violations += [Violation("log", line) for line in nodes.log_faults()]
    finally:
        network.close()


def _under_load(run: FailoverRun, nodes: ContainerNodes, say: bool) -> None:
    queues = declare_queues(nodes)
    run.dead.sources = declare_sources(nodes)
    streams = run.streams.clients = clients_of(nodes, run.seed)
    dead = run.dead.clients = clients_of(nodes, run.seed + 1)
    leases = run.leases = Leases([nodes.plan(id).amqp for id in nodes.ids], LOGIN, _asking(nodes), (1, 2))
    streams.begin(publishers_of(streams, queues, run.seed, run.rate), consumers_of(streams, queues, run.seed))
    watched = [target.queue for target in run.dead.targets if target.consumed]
    dead.begin(dead_letter_publishers(run.dead, dead), dead_letter_consumers(run.dead, dead, watched))
    leases.start()
    try:
        wait_for(lambda: len(streams.proven) > 200, "messages that come and go")
        wait_for(lambda: len(dead.history.deliveries) > 100, "dead letters")
        _hit(run, nodes, queues, say)
        leases.enough()
        # Nodes agree on what is applied only when nobody publishes.
        dead.stop_publishing(within_s=30)
        calm(run.streams, nodes, streams, queues)
        calm_dead_letters(run.dead, nodes, dead)
        leases.join(_LEASES_GONE_WITHIN_S + max(EXPIRES_MS) / 1e3)
        if leases.failure is not None:
            raise leases.failure
    except AssertionError as error:
        # What was not found may still be there: only a run that came to its end can be judged.
        run.violations.append(Violation("recovery", str(error)))
    else:
        streams.end()
        dead.end()
        run.violations += judge(streams.history, queues, streams.proven)
        run.violations += [*run.dead.violations, *judge_dead_letters(dead.history, run.dead.sources)]
        run.violations += leases.judge()
    finally:
        leases.enough()
        streams.end()
        dead.end()


def _asking(nodes: ContainerNodes) -> Callable[[int, str], tuple[int, str]]:
    def ask(witness: int, queue: str) -> tuple[int, str]:
        code, page = nodes.page(witness, f"/queues/%2F/{queue}?fresh=true")
        return code, str(page.get("error", ""))

    return ask


def _hit(run: FailoverRun, nodes: ContainerNodes, queues: Sequence[str], say: bool) -> None:
    """Each kind once a round, in an order of chance but for upgrades; the next when all is well again, and a little
    later."""
    random = Random(run.seed)
    clients = run.streams.clients
    assert clients is not None
    last_s = time.monotonic() + run.minutes * 60
    for _ in range(run.rounds):
        for kind in run.kinds if run.next_image else random.sample(run.kinds, len(run.kinds)):
            if kind in run.impossible or time.monotonic() > last_s:
                continue
            time.sleep(random.uniform(0.5, 3.0))
            leaders = leaders_of(nodes, queues)
            led = Counter(leaders.values())
            busiest = random.choice([id for id in nodes.ids if led[id] == max(led.values())] or list(nodes.ids))
            fault = Fault(kind, choose_victims(kind, nodes, busiest, random))
            fault.led = tuple(queue for queue, leader in leaders.items() if leader in fault.victims)
            if run.moves:
                run.streams.moves_asked += have_some_moved(nodes, clients, queues, random)
                run.streams.places_asked += have_one_placed(nodes, run.streams.replicas, random)
            try:
                if kind in UPGRADES:
                    play = upgrade if kind == ROLLING_UPGRADE else upgrade_and_go_back
                    play(fault, nodes, run.way, clients.now_us)
                else:
                    carry_out(fault, nodes, random, clients.now_us)
            except OSError as error:
                run.impossible[kind] = str(error)
                continue
            run.faults.append(fault)
            wait_for(lambda: is_whole(nodes), f"a whole cluster after {fault}", WHOLE_WITHIN_S, every_s=0.05)
            fault.whole_us = clients.now_us()
            clients.check()
            if say:
                print(f"  {fault}; whole {(fault.whole_us - fault.healed_us) / 1e6:.1f} s later", flush=True)
    if run.moves:
        wait_for(lambda: have_all_moved(nodes, queues), "the end of all moves", MOVED_WITHIN_S, every_s=0.1)


# ------------------------------------------------------------------------------------------------ figures


def messages_checked(run: FailoverRun) -> int:
    """Messages whose way was judged."""
    return sum(len(each.clients.history.publishes) for each in (run.streams, run.dead) if each.clients is not None)


def waits_of(run: FailoverRun) -> dict[str, Waits]:
    """How long publishers of the streams were without confirms, by kind of fault."""
    clients = run.streams.clients
    assert clients is not None
    notes = notes_of(clients.homes, clients.confirms, clients.moves)
    return waits_by_kind(run.faults, notes, clients.history.calm_us)


def table(run: FailoverRun) -> list[str]:
    """Markdown."""
    lines = [
        "| fault | times | clients of other nodes: p50 / p99 ms (n) | clients of the node itself: p50 / p99 ms (n) "
        "| whole again: p50 / max ms |",
        "|---|---|---|---|---|",
    ]
    for kind, waits in sorted(waits_of(run).items()):
        whole = f"{percentile(waits.whole_ms, 0.5):.0f} / {max(waits.whole_ms):.0f}" if waits.whole_ms else "-"
        lines.append(f"| {kind} | {waits.faults} | {_spread(waits.survivors_ms)} | {_spread(waits.own_ms)} | {whole} |")
    return lines


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    return f"{percentile(values, 0.5):.0f} / {percentile(values, 0.99):.0f} ({len(values)})"
