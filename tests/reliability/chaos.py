"""One run: a cluster of real nodes under load, one fault after the other, calm, and the judgement."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import pika

from mayfly.node.numbers import CATALOG_GROUP
from mayfly.node.settings.kinds import Address
from mayfly.node.shell.build import describe_version
from simulation.node.checker import Violation
from tests.integration.clients import connect, declare_led_by
from tests.integration.nodes import Nodes, wait_for
from tests.integration.operators import ask_to_move, ask_to_place
from tests.reliability.clients import CONSUMING, Clients, consumers_of, publishers_of
from tests.reliability.clocks import Clocks
from tests.reliability.damage import Damages, expect_words_of_damage
from tests.reliability.disks import Disks
from tests.reliability.failing_disks import FailingDisks
from tests.reliability.faults import (
    CLOCK,
    DAMAGE,
    DISK,
    JEPSEN,
    KINDS,
    MEMORY,
    PARTITION,
    POWER,
    PROVOKED,
    WEATHER,
    Fault,
    Surroundings,
    carry_out,
    choose_victims,
    deck,
)
from tests.reliability.judging import judge
from tests.reliability.memory_groups import MemoryGroups
from tests.reliability.network import Network
from tests.reliability.read_back import KeptStreams

MOVED_AT_ONCE: Final = 3
"""Queues that are asked to move before each fault of a run with moves. The replicas of one shard are, too, where there
are more nodes than it has."""
MOVED_WITHIN_S: Final = 180.0
QUEUES_PER_LEADER: Final = 2
SLOW_SNAPSHOTS: Final = "8MiB"
WHOLE_WITHIN_S: Final = 180.0
ENDED_WITHIN_S: Final = 180.0
"""Clients that have nothing to wait for."""
# Not guest, who may come from loopback only: where there are partitions, clients come over the network.
LOGIN: Final = ("chaos", "chaos")


@dataclass(slots=True)
class Run:
    """What is to be run, and what has come of it."""

    seed: int
    seconds: float
    kinds: list[str]
    rate: float = 600.0
    least_faults: int = 0
    """It goes on for longer than `seconds` until there were so many."""
    nodes: int = 3
    """Shards have `replicas`, however many there are."""
    moves: bool = False
    """Whether queues are on their way to other shards, and replicas to other nodes, when a fault comes."""
    moves_asked: int = 0
    places_asked: int = 0
    """Shards that were to have their replicas on other nodes."""
    replicas: int = 3
    """Of each shard."""
    partition_s: float | None = None
    """How long partitions last, if that is not drawn."""
    between_s: tuple[float, float] = (0.5, 5.0)
    """How long it is calm between faults, least and most."""
    how_they_consume: str = CONSUMING
    """CONSUMING, POLLING or MIXED: what the consumers of a queue do."""
    build: str = ""
    executable: list[str] = field(default_factory=list)
    """What stands for `mayfly`, if not that of this Python."""
    damages: Damages | None = None
    """Of what nodes had on disk, if that is among the faults."""
    faults: list[Fault] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    clients: Clients | None = None
    replicas_of: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Queue -> the nodes with a replica of its shard when the faults began."""
    settled_s: float = 0.0
    """How long after the last fault the consumers had everything."""

    def needs(self, *groups: str) -> bool:
        """Whether there are faults of one of these groups in it."""
        return any(KINDS[kind][0] in groups for kind in self.kinds)

    @property
    def is_hit_enough(self) -> bool:
        """Whether there were as many faults as there have to be, one of them at a node that led something."""
        some_led = not self.least_faults or any(fault.led for fault in self.faults)
        return some_led and len(self.faults) >= self.least_faults


class HostedNodes(Nodes):
    """Nodes on hosts of a network instead of on loopback."""

    def __init__(self, folder: Path, count: int, network: Network, settings: dict[str, object]) -> None:
        super().__init__(folder, count, {"http_open_pages": "all", **settings})
        seeds = tuple(Address(network.address(id), 25672) for id in self.ids)
        self.plans = [
            dataclasses.replace(
                plan,
                amqp=Address(network.address(id), 5672),
                http=Address(network.address(id), 15672),
                peer=seeds[id - 1],
                frames=Address(network.address(id), 30672),
                seeds=seeds,
            )
            for id, plan in enumerate(self.plans, 1)
        ]
        self.start_behind(network.inside)


def carry_out_run(run: Run, folder: Path, say: bool = True) -> None:
    """The whole run. Its data and logs stay in the folder."""
    with_nodes(run, folder, partial(_under_load, run, say=say))


def with_nodes(run: Run, folder: Path, work: Callable[[Nodes, Surroundings], None]) -> None:
    """Do the work on nodes that serve, with the network and the disks that the run needs; nodes that end or complain
    are told of."""
    run.build = describe_version()
    settings: dict[str, object] = {
        "default_user": LOGIN[0], "default_pass": LOGIN[1], "replication_factor": run.replicas,
    }  # fmt: skip
    if run.needs(DAMAGE):
        # Else a snapshot that is on its way is there before anybody can damage it.
        settings["replica_move_bytes_per_second"] = SLOW_SNAPSHOTS
    with ExitStack() as ends:
        network = None
        if run.needs(PARTITION, JEPSEN, WEATHER):
            network = Network(run.nodes, soft=run.needs(WEATHER))
            ends.callback(network.close)
            nodes: Nodes = HostedNodes(folder, run.nodes, network, settings)
        else:
            nodes = Nodes(folder, run.nodes, settings, run.executable or None)
        around = Surroundings(network, *_disks_of(run, nodes, folder, ends))
        ends.callback(lambda: run.violations.extend(Violation("log", line) for line in nodes.log_faults()))
        ends.callback(nodes.release_ports)
        ends.callback(nodes.stop)
        ends.callback(lambda: run.violations.extend(Violation("end", end.describe()) for end in nodes.ends()))
        nodes.serve()
        work(nodes, around)


def _disks_of(
    run: Run, nodes: Nodes, folder: Path, ends: ExitStack
) -> tuple[Disks | None, Damages | None, FailingDisks | None, MemoryGroups | None, Clocks | None]:
    """What nodes that do not run yet have around them beside the network, as far as the run needs it."""
    disks, failing, memory, clocks = None, None, None, None
    if run.needs(POWER):
        disks = Disks(folder, nodes.ids)
        ends.callback(disks.close)
        for id in nodes.ids:
            nodes.move_data(id, disks.data_folder(id))
    if run.needs(DAMAGE):
        run.damages = Damages(folder / "copies", KeptStreams(LOGIN))
        expect_words_of_damage(nodes)
    if run.needs(MEMORY):
        memory = MemoryGroups(nodes.ids)
        ends.callback(memory.close)
        # Inside a network namespace of `ip` control groups are not mounted.
        nodes.start_behind(memory.words, before_others=True)
    if run.needs(DISK):
        failing = FailingDisks(folder / "switches", lambda id: nodes.plan(id).data_dir)
        nodes.start_behind(failing.words)
        nodes.expected_errors += PROVOKED
    if run.needs(CLOCK):
        clocks = Clocks(folder / "clocks", nodes.ids)
        nodes.start_behind(clocks.words)
    return disks, run.damages, failing, memory, clocks


def _under_load(run: Run, nodes: Nodes, around: Surroundings, say: bool) -> None:
    queues = declare_queues(nodes)
    clients = run.clients = clients_of(nodes, run.seed)
    run.replicas_of = {queue: nodes.planned_replicas(queue) for queue in queues}
    consumers = consumers_of(clients, queues, run.seed, run.how_they_consume)
    clients.begin(publishers_of(clients, queues, run.seed, run.rate), consumers)
    try:
        wait_for(lambda: len(clients.history.deliveries) > 200, "messages that come and go")
        ends_s = time.monotonic() + run.seconds
        hit_until(lambda: time.monotonic() > ends_s and run.is_hit_enough, run, nodes, around, clients, queues, say)
        calm(run, nodes, clients, queues)
    except AssertionError as error:
        # What was not found may still be there: only a run that came to its end can be judged.
        run.violations.append(Violation("recovery", str(error)))
    else:
        clients.end()
        run.violations += judge(clients.history, queues, clients.proven)
    finally:
        clients.end()


def clients_of(nodes: Nodes, seed: int) -> Clients:
    """Clients for these nodes, without work yet."""
    return Clients({id: nodes.plan(id).amqp for id in nodes.ids}, LOGIN, seed)


def declare_queues(nodes: Nodes) -> list[str]:
    """As many queues led by each node."""
    connection = connect(nodes, 1, credentials=pika.PlainCredentials(*LOGIN))
    channel = connection.channel()
    queues = [
        declare_led_by(nodes, channel, f"led-{id}-{number}", lambda leader, id=id: leader == id)  # type: ignore[misc]
        for id in nodes.ids
        for number in range(QUEUES_PER_LEADER)
    ]
    connection.close()
    return queues


def hit_until(
    enough: Callable[[], bool],
    run: Run,
    nodes: Nodes,
    around: Surroundings,
    clients: Clients,
    queues: Sequence[str],
    say: bool,
) -> None:
    """Fault after fault until it is enough; the next when all is well again, and a little later."""
    random = Random(run.seed)
    kinds = deck(run.kinds, random)
    ids = list(nodes.ids)
    while not enough():
        time.sleep(random.uniform(*run.between_s))
        sought_us = clients.now_us()
        leaders = leaders_of(nodes, queues)
        led = Counter(leaders.values())
        busiest = random.choice([id for id in ids if led[id] == max(led.values())] or ids)
        kind = next(kinds)
        fault = Fault(kind, choose_victims(kind, ids, busiest, random), sought_us=sought_us)
        fault.led = tuple(queue for queue, leader in leaders.items() if leader in fault.victims)
        run.faults.append(fault)
        if run.moves:
            run.moves_asked += have_some_moved(nodes, clients, queues, random)
            run.places_asked += have_one_placed(nodes, run.replicas, random)
        carry_out(fault, nodes, around, random, clients.now_us, run.partition_s)
        wait_for(partial(is_whole, nodes), f"a whole cluster after {fault}", WHOLE_WITHIN_S, every_s=0.05)
        fault.whole_us = clients.now_us()
        clients.check()
        if say:
            print(f"  {fault}; whole {(fault.whole_us - fault.healed_us) / 1e6:.1f} s later", flush=True)
    if run.moves:
        wait_for(partial(have_all_moved, nodes, queues), "the end of all moves", MOVED_WITHIN_S, every_s=0.1)


def have_some_moved(nodes: Nodes, clients: Clients, queues: Sequence[str], random: Random) -> int:
    """Some queues are on their way to other shards from now on; how many were taken."""
    shards = [group for group in nodes.groups(1) if group != CATALOG_GROUP]
    taken = 0
    for queue in random.sample(list(queues), MOVED_AT_ONCE):
        # Who has heard of the move and who has not publish to two shards: that is no order to be judged.
        clients.history.moved.setdefault(queue)
        taken += ask_to_move(nodes, random.choice(nodes.ids), queue, random.choice(shards), LOGIN) < 300
    return taken


def have_one_placed(nodes: Nodes, replicas: int, random: Random) -> int:
    """Some shard's replicas are on their way to other nodes from now on, if there are others; how many were taken."""
    if len(nodes.ids) <= replicas:
        return 0
    shard = random.choice([group for group in nodes.groups(1) if group != CATALOG_GROUP])
    voters = [nodes.plan(id).name for id in random.sample(nodes.ids, replicas)]
    return int(ask_to_place(nodes, random.choice(nodes.ids), shard, voters, LOGIN) < 300)


def have_all_moved(nodes: Nodes, queues: Sequence[str]) -> bool:
    """Whether no queue is on its way, nor anything of it, and each shard votes where it is planned."""
    rows = [nodes.queue(1, queue) or {} for queue in queues]
    shards = nodes.page(1, "/shards")[1]["shards"]
    return not any(row.get("moving_to") or row.get("left_behind") for row in rows) and all(
        set(row["voters"]) == set(row["plan"]) and not row["changing"] for row in shards
    )


def leaders_of(nodes: Nodes, queues: Sequence[str]) -> dict[str, int]:
    """Who leads each queue now, as node 1 knows it."""
    return {queue: nodes.leader_of(queue) for queue in queues}


def is_whole(nodes: Nodes) -> bool:
    """Whether all nodes are ready and know the same leader of every group. One that ended will never be."""
    ends = [end.describe() for end in nodes.ends()]
    assert not ends, f"{ends}; {[nodes.log_text(id)[-500:] for id in nodes.ids if not nodes.runs(id)]}"
    try:
        if any(nodes.page(id, "/health/ready")[0] != 200 for id in nodes.ids):
            return False
        views = [{group: row["leader"] for group, row in nodes.groups(id).items()} for id in nodes.ids]
    except OSError:
        return False
    return 0 not in views[0].values() and all(view == views[0] for view in views)


def calm(run: Run, nodes: Nodes, clients: Clients, queues: list[str]) -> None:
    """No more faults: everything is answered, consumers take what there is, and the rest is taken and kept."""
    clients.history.calm_us = clients.now_us()
    began_s = time.monotonic()
    clients.stop_publishing(within_s=ENDED_WITHIN_S)
    # What nobody acknowledges by then is looked for in the queues.
    deadline_s = time.monotonic() + 30
    while clients.outstanding() and time.monotonic() < deadline_s:
        clients.check()
        time.sleep(0.2)
    run.settled_s = time.monotonic() - began_s
    clients.stop_consuming(within_s=ENDED_WITHIN_S)
    nodes.until_well()
    clients.drain(queues)
    wait_for(lambda: all(is_drained(nodes, queue) for queue in queues), "empty queues", ENDED_WITHIN_S, 0.1)
    clients.stop_consuming(within_s=ENDED_WITHIN_S)


def is_drained(nodes: Nodes, queue: str) -> bool:
    """Whether there is a consumer and nothing is left for it."""
    info = nodes.queue(1, queue)
    return info is not None and info.get("consumers", 0) > 0 and info["ready"] == 0
