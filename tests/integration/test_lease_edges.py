"""Leases at their edges with real processes, once each; tests/simulation/test_lease_edges.py does it by the
thousand.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiormq
import pytest

from tests.integration.clients import PERSISTENT, Consumer, Publisher, channel, judge, url
from tests.integration.nodes import Nodes, wait_for
from tests.integration.operators import ask, put_policy
from tests.integration.wall_clocks import WallClocks
from tests.waiting import BOUND_S, wait_until_s

pytestmark = [pytest.mark.processes]

SESSION_TIMEOUT_MS: Final = 20_000
"""A consumer of a node that a busy machine lets wait keeps its place; a process that has ended is told by its port."""
EXPIRY_TICK_S: Final = 0.25
HOUR_S: Final = 3_600
CLOCK_SLACK_S: Final = 5.0
"""What heartbeats that came late on a busy machine may put off a shard's clock."""
CHANNELS: Final = 8
"""So many queues are declared at once."""
USES: Final = ("attach", "get", "redeclare", "passive")
# How long the judge waits for an answer; only how long, for every answer is judged by when it came.
PATIENCE_S: Final = 2 * BOUND_S


@pytest.fixture(scope="module")
def settings() -> dict[str, object]:
    return {"session_timeout_ms": SESSION_TIMEOUT_MS}


@dataclass
class Use:
    """One use of one queue at about the end of its lease."""

    queue: str
    kind: str
    node: int
    renewed_s: float = 0.0
    """When the last renewal before it was sent."""
    sent_s: float = 0.0
    answered_s: float = 0.0
    answer: str = ""
    after: str = ""
    """What became of a message that was published after an ok: "taken", "returned"; "consumed" for an attach."""
    events: list[str] = field(default_factory=list)


async def renew_all(nodes: Nodes, node: int, uses: list[Use], lease_ms: int) -> None:
    """Declare the queues, on some channels at once, and renew each lease once more at once, noting when."""
    connection = await aiormq.connect(url(nodes, node))
    waiting = iter(uses)

    async def some() -> None:
        opened = await connection.channel()
        for use in waiting:
            arguments: Any = {"x-expires": lease_ms}
            for _ in ("made", "renewed, or made again where this took a whole lease"):
                use.renewed_s = time.monotonic()
                await opened.queue_declare(use.queue, durable=True, arguments=arguments)
        await opened.close()

    await asyncio.gather(*(some() for _ in range(CHANNELS)))
    await connection.close()


async def use_at_the_edge(connection: Any, use: Use, at_s: float, lease_ms: int) -> None:
    """One use on a channel of its own, and what its answer promised."""
    opened = await connection.channel(publisher_confirms=True)
    consumed = asyncio.Event()

    async def on_message(message: Any) -> None:
        consumed.set()

    await asyncio.sleep(max(0.0, at_s - time.monotonic()))
    use.sent_s = time.monotonic()
    try:
        if use.kind == "attach":
            await opened.basic_consume(use.queue, on_message, no_ack=True)
        elif use.kind == "get":
            await opened.basic_get(use.queue, no_ack=True)
        elif use.kind == "redeclare":
            await opened.queue_declare(use.queue, durable=True, arguments={"x-expires": lease_ms})
        else:
            await opened.queue_declare(use.queue, passive=True)
        use.answered_s, use.answer = time.monotonic(), "ok"
    except aiormq.exceptions.ChannelNotFoundEntity:
        use.answered_s, use.answer = time.monotonic(), "404"
        return
    published = await opened.basic_publish(b"after", routing_key=use.queue, mandatory=True)
    if time.monotonic() - use.sent_s > lease_ms / 1000:
        use.after = "too late to tell"
    elif isinstance(published, aiormq.spec.Basic.Ack):
        use.after = "taken"
    else:
        use.after = "returned"
    if use.kind == "attach":
        await asyncio.wait_for(consumed.wait(), PATIENCE_S)
        use.after = "consumed"
        # Well past the lease that ended when it came.
        await asyncio.sleep(max(0.0, use.sent_s + 2 * lease_ms / 1000 - time.monotonic()))
        assert not opened.is_closed
        use.events.append("still attached")
    await opened.close()


async def meet_the_edge(nodes: Nodes, uses: list[Use], lease_ms: int, kill: int) -> None:
    """Use every queue around the end of its lease; kill a node in the middle of that."""
    connections = {node: await aiormq.connect(url(nodes, node)) for node in nodes.ids if node != kill}
    await renew_all(nodes, next(iter(connections)), uses, lease_ms)
    chance = random.Random(7)
    # The leader looks every quarter of a second: around the deadline, and until it has looked.
    moments_s = [use.renewed_s + lease_ms / 1000 + chance.uniform(-0.1, EXPIRY_TICK_S + 0.1) for use in uses]
    tasks = [
        asyncio.ensure_future(use_at_the_edge(connections[use.node], use, moment_s, lease_ms))
        for use, moment_s in zip(uses, moments_s, strict=True)
    ]
    if kill:
        middle_s = sorted(use.renewed_s for use in uses)[len(uses) // 2] + lease_ms / 1000
        await asyncio.sleep(max(0.0, middle_s - time.monotonic()))
        nodes.kill(kill)
    await asyncio.wait_for(asyncio.gather(*tasks), 3 * PATIENCE_S)
    for connection in connections.values():
        await connection.close()


def judge_uses(uses: list[Use], lease_s: float) -> None:
    """Every use was answered; 404 only after a whole period; what was ok was there, and a consumer stays."""
    for use in uses:
        assert use.answer in ("ok", "404"), use
        if use.answer == "404":
            assert use.answered_s - use.renewed_s >= lease_s, f"gone early: {use}"
            assert use.kind != "redeclare", use
        else:
            assert use.after in ("taken", "consumed", "too late to tell"), use
        if use.kind == "attach" and use.answer == "ok":
            assert use.events == ["still attached"], use


@pytest.mark.parametrize("kill", [pytest.param(0, marks=pytest.mark.slow), 3])
def test_l5_l6_uses_at_the_deadline(whole: Nodes, kill: int) -> None:
    """L2, L4, L5, L6: attach, get, redeclare and passive declare around the end of 160 leases, through every node; and
    once more while a node that leads a third of them is killed in the midst of it."""
    lease_ms = 3_000
    clients = [node for node in whole.ids if node != kill]
    uses = [Use(f"edge-{kill}-{n}", USES[n % 4], clients[n // 4 % len(clients)]) for n in range(160)]
    asyncio.run(meet_the_edge(whole, uses, lease_ms, kill))
    judge_uses(uses, lease_ms / 1000)
    counts = Counter((use.kind, use.answer) for use in uses)
    assert counts[("redeclare", "ok")] == 40, counts
    for use in uses:
        whole.until_nowhere(use.queue)


# ---------------------------------------------------------------------- clocks


@pytest.fixture(scope="module")
def stepped(folder: Path, settings: dict[str, object]) -> Iterator[tuple[Nodes, WallClocks]]:
    """Three nodes with clocks of their own, whose machines start anew with them set."""
    yield from nodes_with_clocks(folder / "stepped", settings)


@pytest.fixture(scope="module")
def stepped_on_one_boot(folder: Path, settings: dict[str, object]) -> Iterator[tuple[Nodes, WallClocks]]:
    """The same, and their machines never start anew: no shard's clock is ahead of theirs."""
    yield from nodes_with_clocks(folder / "stepped-on-one-boot", settings)


@pytest.fixture
def hurried(folder: Path, settings: dict[str, object]) -> Iterator[tuple[Nodes, WallClocks]]:
    """Three nodes whose wall clocks were an hour ahead when their shards took the time from them, and are right since
    their machines started anew: the shards' clocks are an hour ahead of theirs."""
    for nodes, clocks in nodes_with_clocks(folder / "hurried", settings, hours=1):
        clocks.step(0, *nodes.ids)
        nodes.kill(*nodes.ids)
        clocks.restart_machines(*nodes.ids)
        clocks.start(*nodes.ids)
        nodes.until_serving()
        nodes.until_balanced()
        yield nodes, clocks


def nodes_with_clocks(
    folder: Path, settings: dict[str, object], hours: int = 0
) -> Iterator[tuple[Nodes, WallClocks]]:
    """Three nodes that serve, so many hours ahead, and stop at the end."""
    nodes = Nodes(folder, 3, settings)
    try:
        clocks = WallClocks(nodes, folder)
        clocks.step(hours * HOUR_S, *nodes.ids)
        clocks.start(*nodes.ids)
        nodes.until_serving()
        nodes.until_balanced()
        yield nodes, clocks
    except BaseException:
        nodes.stop()
        raise
    nodes.close()


@pytest.mark.slow
@pytest.mark.parametrize("hours", [-1, 1])
@pytest.mark.parametrize("whom", [(2,), (1, 2, 3)], ids=["one", "all"])
def test_l8_clocks_stepped_by_an_hour(stepped: tuple[Nodes, WallClocks], whom: tuple[int, ...], hours: int) -> None:
    """L7, L8, C3: under nodes that run, then with a restart; one node, which leads a third of the queues, or all of
    them. No lease ends early, and each ends."""
    nodes, clocks = stepped
    lease_s = 6.0
    names = [f"clock-{len(whom)}-{hours}-{number}" for number in range(24)]
    arguments = {"x-expires": int(lease_s * 1000), "x-queue-leader-locator": "balanced"}
    with channel(nodes, 1) as declaring:
        for _ in ("made", "renewed, or made again where this took a whole lease"):
            renewed_s = time.monotonic()
            for name in names:
                declaring.queue_declare(name, durable=True, arguments=arguments)
    leaders = {nodes.planned_leader(name) for name in names}
    # What is gone has none.
    assert leaders == {1, 2, 3} or time.monotonic() >= renewed_s + lease_s, leaders
    wait_until_s(renewed_s + 1.5)
    clocks.step(hours * HOUR_S, *whom)
    assert all(abs(clocks.shown_s(id) - hours * HOUR_S) < HOUR_S / 2 for id in whom)
    wait_until_s(renewed_s + 2.5)
    are_there = all(nodes.queue(1, name) is not None for name in names)
    # What is gone by then is judged below.
    assert are_there or time.monotonic() >= renewed_s + lease_s, "gone when the clock was stepped"
    nodes.kill(*whom)
    killed_s = time.monotonic()
    clocks.restart_machines(*whom)
    started_s = time.monotonic()
    clocks.start(*whom)
    nodes.until_serving()
    down_s = started_s - killed_s if len(whom) == 3 else 0.0
    gone_s: dict[str, float] = {}
    served_s = time.monotonic()
    while len(gone_s) < len(names):
        assert time.monotonic() < served_s + lease_s + BOUND_S, f"not gone: {set(names) - gone_s.keys()}"
        for name in names:
            # What is found gone had gone at that moment, or earlier.
            if name not in gone_s and nodes.queue(1, name) is None:
                gone_s[name] = time.monotonic()
        time.sleep(0.02)
    if hours > 0 and len(whom) == 1:
        # It learns so from the others' frames, and says so (C3).
        wait_for(lambda: nodes.status(2)["clock_excess_ms"] > 3_000_000, "a node that knows that its clock is wrong")
        assert nodes.metric(2, "mayfly_clock_excess_ms") > 3_000_000 and nodes.status(1)["clock_excess_ms"] == 0
    early = {name: at_s - renewed_s for name, at_s in gone_s.items() if at_s - renewed_s - down_s < lease_s}
    assert not early, early
    clocks.step(0, *nodes.ids)
    nodes.kill(*whom)
    clocks.restart_machines(*whom)
    clocks.start(*whom)
    nodes.until_serving()
    nodes.until_balanced()


@pytest.mark.slow
@pytest.mark.parametrize("hours", [-1, 1])
def test_t14_an_outage_with_all_wall_clocks_set_is_as_long_as_it_was(
    stepped_on_one_boot: tuple[Nodes, WallClocks], hours: int
) -> None:
    """T5, T14: all processes die and start again, no machine does. What was due meanwhile goes, the rest keeps its
    deadline."""
    nodes, clocks = stepped_on_one_boot
    count_an_outage(nodes, clocks, hours)
    wait_for(lambda: "the wall clock was set by" in nodes.log_text(1), "a node that has noticed its wall clock")
    clocks.step(0, *nodes.ids)
    nodes.until_balanced()


@pytest.mark.slow
def test_t14_an_outage_counts_where_shard_clocks_are_ahead(hurried: tuple[Nodes, WallClocks]) -> None:
    """T5, T14: the nodes' own clocks say nothing of the time since the last entry there."""
    nodes, clocks = hurried
    wait_for(lambda: all(len(rows_ahead(nodes, id)) == len(nodes.groups(id)) for id in nodes.ids), "what is kept")
    count_an_outage(nodes, clocks, 0, down_s=2 * CLOCK_SLACK_S)


def rows_ahead(nodes: Nodes, id: int) -> list[str]:
    """What the node keeps of groups whose clocks are ahead, in the terms of now."""
    file = nodes.plan(id).data_dir / "clocks-ahead"
    terms = {group: row["term"] for group, row in nodes.groups(id).items()}
    rows = file.read_text().splitlines()[1:] if file.exists() else []
    return [row for row in rows if int(row.split()[1]) == terms[int(row.split()[0])]]


def count_an_outage(nodes: Nodes, clocks: WallClocks, hours: int, down_s: float = 2.0) -> None:
    """All processes die, wall clocks are set by some hours, and all start again after a while."""
    ttl_s = {"short": 2.0, "long": 600.0}
    names = {each: f"outage-{each}-{hours}" for each in ttl_s}
    began_s = time.monotonic()
    with channel(nodes, 1, confirms=True) as declaring:
        for each, name in names.items():
            declaring.queue_declare(name, durable=True, arguments={"x-message-ttl": int(1000 * ttl_s[each])})
            declaring.basic_publish("", name, b"0", PERSISTENT)
    published_s = time.monotonic()
    clocks.step(hours * HOUR_S, *nodes.ids)
    nodes.kill(*nodes.ids)
    wait_until_s(published_s + down_s)
    clocks.start(*nodes.ids)
    nodes.until_serving()
    wait_for(lambda: all(nodes.ready(id, names["short"]) == 0 for id in nodes.ids), "the end of what was due")

    def is_as_long() -> bool:
        before_s = time.monotonic()
        info = nodes.queue(1, names["long"])
        after_s = time.monotonic()
        assert info is not None and info["ready"] == 1
        left_s = info["next_deadline_in_ms"] / 1000
        assert began_s + ttl_s["long"] - after_s - CLOCK_SLACK_S <= left_s, "early"
        return bool(left_s <= published_s + ttl_s["long"] - before_s + CLOCK_SLACK_S)

    # A leader that has not heard its peers' clocks yet is two seconds at most ahead of what it last heard (C3).
    wait_for(is_as_long, "a clock that has counted the outage")


# ---------------------------------------------------------------------- ten thousand


async def declare_many(nodes: Nodes, names: list[str]) -> None:
    """Plain queues, through all nodes, on many channels at once."""
    waiting = iter(names)

    async def some(connection: Any) -> None:
        opened = await connection.channel()
        for name in waiting:
            await opened.queue_declare(name, durable=True)
        await opened.close()

    connections = [await aiormq.connect(url(nodes, node)) for node in nodes.ids]
    await asyncio.gather(*(some(connection) for connection in connections for _ in range(40)))
    for connection in connections:
        await connection.close()


def queues(nodes: Nodes, id: int) -> int:
    return int(nodes.status(id)["queues"]["queues"])


@pytest.mark.slow
def test_l4_l9_c4_ten_thousand_leases_end_in_the_same_second(whole: Nodes) -> None:
    """L4, L9, L10, C4: a policy gives 10 000 queues the same lease at once. None goes early, all go, and a queue that
    is published to and consumed all the time serves on."""
    count, lease_s = 10_000, 10.0
    before = queues(whole, 1)
    asyncio.run(declare_many(whole, [f"crowd-{number}" for number in range(count)]))
    with channel(whole, 1) as declaring:
        declaring.queue_declare("beside", durable=True)
    wait_for(lambda: all(queues(whole, id) == before + count + 1 for id in whole.ids), "all queues on all nodes")
    consumer = Consumer(whole, 2, "beside").begin()
    publisher = Publisher(whole, 3, "beside", rate=100)
    publisher.start()
    publisher.until_confirmed(20)
    set_s = time.monotonic()
    put_policy(whole, 1, "crowd", "^crowd-", {"expires": int(lease_s * 1000)})
    wait_until_s(set_s + lease_s - 1.0)
    seen = queues(whole, 1)
    confirmed_before = len(publisher.confirmed)
    in_time = time.monotonic() < set_s + lease_s
    if in_time:
        assert seen == before + count + 1, "gone early"
    wait_for(lambda: all(queues(whole, id) == before + 1 for id in whole.ids), "the end of all", every_s=0.1)
    wait_for(lambda: whole.queue(1, "crowd-0") is None, "the end of their names")
    # Who came to look when all were gone can't say.
    assert len(publisher.confirmed) > confirmed_before or not in_time, "nobody was served meanwhile"
    publisher.until_confirmed(20)
    publisher.finish()
    consumer.until_received(publisher.sent)
    consumer.finish()
    judge(publisher, [consumer])
    assert ask(whole, 1, "DELETE", "policies/%2F/crowd")[0] == 204
