"""Queues, lanes and metrics as three whole nodes show them, on leaders and followers alike."""

from __future__ import annotations

import logging
from datetime import datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pamqp import commands

from mayfly.node.duties.port import DutyPort
from mayfly.node.http.metrics import rendered
from mayfly.node.numbers import transient_shard
from mayfly.node.operating import dead_letters
from mayfly.node.operating.ports.metrics import Histogram
from mayfly.node.operating.ports.parked_selection import Selection
from mayfly.node.operating.ports.queue_selection import Figures, QueueSelection
from mayfly.node.operating.views.idle import IDLE_AFTER_MS
from mayfly.node.operating.views.lanes import lane_steps
from mayfly.node.operating.views.queue_metrics import queue_metrics
from mayfly.node.operating.views.queue_views import FORGET_AFTER_MS, INDEXES, LOOKED_AT
from mayfly.node.operating.views.status import LANES_SHOWN
from mayfly.node.shard.lease import CONSUMED, CREATED, DECLARED, GOT, RELEASED
from mayfly.node.shard.message import Message
from mayfly.node.shard.room import ANY_ROOM, Room
from mayfly.node.shard.shard import Shard
from mayfly.node.shard.waiting import CHUNK
from tests.node.broker.three_brokers import NodeWorld, ThreeBrokers
from tests.node.conftest import Client
from tests.node.operating.seeing import Seeing, engine_metrics

SOON_MS = 500
"""Heartbeats and entries have reached everybody by then."""


@pytest.fixture
def brokers() -> ThreeBrokers:
    return ThreeBrokers()


@pytest.fixture
def client(brokers: ThreeBrokers) -> Client:
    return brokers.nodes[1].client()


def pass_ms(brokers: ThreeBrokers, milliseconds: int) -> None:
    until_ms = brokers.now_ms + milliseconds
    brokers.run_until(lambda: brokers.now_ms >= until_ms)


def view(brokers: ThreeBrokers, id: int, name: str) -> dict[str, Any]:
    return Seeing(brokers, id).queue(name)


def shard_of(node: NodeWorld, name: str) -> Shard:
    record = node.engine.catalog.queue("/", name)
    assert record is not None
    return node.engine.shards[record.shard]


def metric(brokers: ThreeBrokers, id: int, name: str, **labels: str) -> float:
    """The sum of the metric's samples with these labels."""
    engine = brokers.nodes[id].engine
    for found, _, _, samples in engine_metrics(engine, brokers.now_ms):
        if found == name:
            chosen = [value for has, value in samples if labels.items() <= has.items()]
            return sum(value if isinstance(value, float) else sum(value.counts) for value in chosen)
    raise AssertionError(f"no metric {name}")


def declare(brokers: ThreeBrokers, client: Client, name: str, **arguments: Any) -> None:
    client.send(1, commands.Queue.Declare(queue=name, durable=True, arguments=arguments))
    brokers.run_until(lambda: client.take(1))


def test_every_node_shows_the_same_of_a_queue(brokers: ThreeBrokers, client: Client) -> None:
    """RULES T6, X5: two of four ready messages are live, behind a head that never expires; one is held."""
    target = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    declare(brokers, client, "q", **target, **{"x-max-length": 9})
    client.publish(1, "q", b"held")
    for ttl in ("", "60000", "600", "600"):
        client.publish(1, "q", b"four", **({"expiration": ttl} if ttl else {}))
    client.send(1, commands.Basic.Get(queue="q"))
    brokers.run_until(lambda: view(brokers, 1, "q").get("unacknowledged"))
    enqueued_ms = brokers.now_ms
    pass_ms(brokers, 2000)
    for id in brokers.ids:
        row = view(brokers, id, "q")
        assert (row["ready"], row["ready_live"], row["ready_bytes"], row["unacknowledged"]) == (4, 2, 16, 1)
        assert (row["enqueued"], row["expired"], row["consumers"], row["exact"]) == (5, 0, 0, True)
        assert 0 <= row["oldest_ready_age_ms"] - (brokers.now_ms - enqueued_ms) <= SOON_MS
        assert row["next_deadline_ms"] is None and row["next_deadline_in_ms"] is None
        assert row["lease"] is None and row["last_use"] == GOT
        assert row["settings"]["dead_letter_routing_key"] == "dead" and row["settings"]["max_length"] == 9
        assert row["applied"] == brokers.nodes[id].engine.host.groups[row["shard"]].applied
        assert row["leader"] != 0 and row["policy"] is None


def test_a_queue_says_since_when_it_is_idle(brokers: ThreeBrokers, client: Client) -> None:
    """At every node alike; not while something happens, and not where the replica has not seen when it was."""
    declare(brokers, client, "q")

    def since_ms(id: int, figures: Figures = "all") -> int | None:
        seeing = Seeing(brokers, id)
        (row,) = seeing.run(seeing.queues.managed([("/", "q")], figures))
        told = row.get("idle_since")
        assert told is None or told.endswith("+00:00")
        return None if told is None else round(datetime.fromisoformat(told).timestamp() * 1000)

    def happens(at_ms: int) -> None:
        assert since_ms(1) is None, "right after it"
        pass_ms(brokers, IDLE_AFTER_MS + SOON_MS)
        told = [since_ms(id) for id in brokers.ids]
        assert told[0] is not None and at_ms - SOON_MS <= told[0] <= at_ms + SOON_MS and len(set(told)) == 1
        assert since_ms(1, "totals") is None

    happens(brokers.now_ms)
    for does in (
        lambda: client.publish(1, "q", b"message"),
        lambda: client.send(1, commands.Basic.Get(queue="q")),
        lambda: client.send(1, commands.Basic.Ack(delivery_tag=1)),
        lambda: client.declare("q", passive=True),
    ):
        does()
        at_ms = brokers.now_ms
        brokers.run_until(lambda: since_ms(1) is None)
        happens(at_ms)
    shard = shard_of(brokers.nodes[2], "q")
    shard.restore(shard.snapshot())
    assert since_ms(2) is None and since_ms(3) is not None


def test_the_next_deadline_is_the_heads_and_may_have_passed(brokers: ThreeBrokers, client: Client) -> None:
    """RULES T6: the second message is earlier and has to wait."""
    declare(brokers, client, "q")
    client.publish(1, "q", expiration="5000")
    client.publish(1, "q", expiration="1000")
    brokers.run_until(lambda: view(brokers, 2, "q").get("ready") == 2)
    pass_ms(brokers, SOON_MS)
    queue = shard_of(brokers.nodes[1], "q").queue(view(brokers, 1, "q")["id"])
    assert queue is not None
    (head, _) = queue.ready.live()
    for id in brokers.ids:
        row = view(brokers, id, "q")
        assert row["next_deadline_ms"] == head.deadline_ms
        assert row["next_deadline_in_ms"] == head.deadline_ms - row["time_ms"]
        assert 0 < row["next_deadline_in_ms"] <= 5000
    brokers.cut = set(brokers.ids)
    brokers.now_ms += 6000
    assert view(brokers, 1, "q")["next_deadline_in_ms"] < 0
    assert view(brokers, 1, "q")["ready_live"] == 0


def test_the_lease_is_shown_as_it_runs(brokers: ThreeBrokers, client: Client) -> None:
    """RULES L2, L3, L7: on followers too, while nothing happens in the shard."""
    declare(brokers, client, "q", **{"x-expires": 60_000})
    pass_ms(brokers, 10_000)
    for id in brokers.ids:
        row = view(brokers, id, "q")
        assert (row["lease"]["period_ms"], row["lease"]["suspended"], row["last_use"]) == (60_000, False, CREATED)
        assert abs(row["lease"]["remaining_ms"] - 50_000) <= 2 * SOON_MS
        assert abs(row["last_use_age_ms"] - 10_000) <= SOON_MS
    declare(brokers, client, "q", **{"x-expires": 60_000})
    client.send(1, commands.Basic.Consume(queue="q", consumer_tag="c"))
    brokers.run_until(lambda: all(view(brokers, id, "q")["consumers"] for id in brokers.ids))
    for id in brokers.ids:
        row = view(brokers, id, "q")
        assert row["lease"] == {"period_ms": 60_000, "remaining_ms": None, "suspended": True, "kept": False}
        assert row["last_use"] == CONSUMED
    client.send(1, commands.Basic.Cancel(consumer_tag="c"))
    brokers.run_until(lambda: all(not view(brokers, id, "q")["consumers"] for id in brokers.ids))
    pass_ms(brokers, SOON_MS)
    for id in brokers.ids:
        row = view(brokers, id, "q")
        assert row["last_use"] == RELEASED and row["lease"]["remaining_ms"] >= 60_000 - 2 * SOON_MS
    declare(brokers, client, "q", **{"x-expires": 60_000})
    assert view(brokers, 1, "q")["last_use"] == DECLARED


def test_an_expired_queue_is_told_and_counted(
    brokers: ThreeBrokers, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """RULES L10: the leader tells once, with the last activity; every replica counts."""
    declare(brokers, client, "short", **{"x-expires": 1000})
    declare(brokers, client, "other")
    client.publish(1, "short", b"m")
    with caplog.at_level(logging.INFO, "mayfly.node.duties.lost_queues"):
        client.send(1, commands.Queue.Delete(queue="other"))
        catalogs = [node.engine.catalog for node in brokers.nodes.values()]
        brokers.run_until(lambda: all(catalog.queue("/", "short") is None for catalog in catalogs))
        pass_ms(brokers, 2000)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "mayfly.node.duties.lost_queues"]
    assert "queue 'short' in vhost '/' is gone, reason expired; last activity 1970-01-01T00:" in line
    assert "(created)" in line and line.endswith("1 messages went with it")
    for id in brokers.ids:
        assert metric(brokers, id, "mayfly_queues_gone", reason="expired") == 1
        assert metric(brokers, id, "mayfly_queues_gone", reason="deleted") == 1


def test_a_transient_queue_is_shown_where_it_lives(brokers: ThreeBrokers, client: Client) -> None:
    client.send(1, commands.Queue.Declare(queue="t", exclusive=True))
    brokers.run_until(lambda: all(node.engine.catalog.queue("/", "t") for node in brokers.nodes.values()))
    client.publish(1, "t", expiration="300")
    brokers.run_until(lambda: view(brokers, 1, "t").get("ready") == 1)
    here = view(brokers, 1, "t")
    assert (here["node"], here["ready_live"]) == (1, 1) and 0 < here["next_deadline_in_ms"] <= 300
    assert metric(brokers, 1, "mayfly_ready", shard="transient") == 1
    assert metric(brokers, 1, "mayfly_message_timers", shard="transient") == 1
    there = view(brokers, 2, "t")
    assert there["node"] == 1 and "ready" not in there
    pass_ms(brokers, 1000)
    assert metric(brokers, 1, "mayfly_expiry_lag_seconds", shard="transient") == 1
    assert metric(brokers, 2, "mayfly_expiry_lag_seconds", shard="transient") == 0


def test_queues_are_listed_by_name_as_far_as_asked_for(brokers: ThreeBrokers, client: Client) -> None:
    names = [f"q{number:02}" for number in range(12)]
    for name in (*reversed(names), "other"):
        declare(brokers, client, name)
    pass_ms(brokers, SOON_MS)
    seeing = Seeing(brokers, 2)

    def listed(selection: QueueSelection) -> tuple[list[str], int]:
        rows, left_out = seeing.run(seeing.queues.some(selection))
        assert all("looked_at" not in row for row in rows)
        return [row["name"] for row in rows], left_out

    assert listed(QueueSelection()) == (["other", *names], 0)
    assert listed(QueueSelection(part="q", limit=5)) == (names[-5:], 7)  # which were declared first
    assert listed(QueueSelection(names=frozenset({"q03", "none"}))) == (["q03"], 0)
    assert listed(QueueSelection(vhost="none")) == ([], 0)


def fill(brokers: ThreeBrokers, client: Client, name: str, count: int) -> None:
    client.send_bytes(b"".join(client.publish_bytes(1, name, expiration="700") for _ in range(count)))
    brokers.run_until(lambda: view(brokers, 1, name)["ready"] >= count)


def test_long_queues_are_looked_at_only_when_asked_for_by_name(brokers: ThreeBrokers, client: Client) -> None:
    """A list says at most and at least; what is kept of long queues is bounded and forgotten."""
    declare(brokers, client, "long")
    client.publish(1, "long")
    fill(brokers, client, "long", 2 * CHUNK)
    pass_ms(brokers, 1000)
    seeing = Seeing(brokers, 1)
    views = seeing.queues._views

    def some(*names: str) -> dict[str, Any]:
        return seeing.run(seeing.queues.some(QueueSelection(names=frozenset(names))))[0][0]

    row = some()
    assert (row["ready"], row["ready_live"], row["exact"]) == (2 * CHUNK + 1, 2 * CHUNK + 1, False)
    assert row["oldest_ready_age_ms"] > 0 and not views._indexes
    row = some("long")
    assert (row["ready_live"], row["exact"]) == (1, True) and len(views._indexes) == 1
    assert some()["exact"]
    brokers.now_ms += FORGET_AFTER_MS
    some()
    assert not views._indexes and not views._used_ms
    for number in range(INDEXES + 4):
        declare(brokers, client, f"q{number}")
        seeing.queue(f"q{number}")
    some()
    assert len(views._indexes) == len(views._used_ms) == INDEXES
    assert LOOKED_AT > 2 * CHUNK


def test_a_restored_queue_is_looked_at_anew(brokers: ThreeBrokers, client: Client) -> None:
    """What was known is known of the queue that was there before the snapshot."""
    declare(brokers, client, "q")
    client.publish(1, "q")
    brokers.run_until(lambda: view(brokers, 1, "q")["ready"] == 1)
    shard = shard_of(brokers.nodes[1], "q")
    seeing = Seeing(brokers, 1)
    seeing.queue("q")
    before = shard.snapshot()
    client.send(1, commands.Queue.Purge(queue="q"))
    brokers.run_until(lambda: view(brokers, 1, "q")["ready"] == 0)
    assert seeing.queue("q")["oldest_ready_age_ms"] is None
    shard.restore(before)
    assert seeing.queue("q")["oldest_ready_age_ms"] is not None


def test_metrics_of_queues_leave_out_what_is_not_known(brokers: ThreeBrokers, client: Client) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    declare(brokers, client, "q", **{"x-expires": 90_000})
    client.publish(1, "q", expiration="5000")
    client.send(1, commands.Queue.Declare(queue="t", exclusive=True))
    pass_ms(brokers, 1000)
    seeing = Seeing(brokers, 2)
    rows, left_out = seeing.run(seeing.queues.some(QueueSelection()))
    page = rendered(queue_metrics(rows, left_out)).decode()
    samples = {
        (sample.name, sample.labels.get("queue")): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    assert samples["mayfly_queue_ready", "q"] == samples["mayfly_queue_ready_live", "q"] == 1
    assert 3 < samples["mayfly_queue_next_deadline_seconds", "q"] < 5
    assert 0.5 < samples["mayfly_queue_oldest_ready_seconds", "q"] < 2
    assert 88 < samples["mayfly_queue_lease_remaining_seconds", "q"] < 90
    assert samples["mayfly_queue_lease_suspended", "q"] == 0
    assert samples["mayfly_queue_enqueued_total", "q"] == 1
    assert samples["mayfly_queues_left_out", None] == 0
    assert not [name for name, queue in samples if queue == "t"]


def dead_letters_into(brokers: ThreeBrokers, client: Client) -> None:
    """Queue `source`, whose dead letters go to `target` in the other shard."""
    declare(brokers, client, "target")
    number = 0
    while True:
        declare(brokers, client, f"source{number}", **{
            "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "target", "x-message-ttl": 100,
        })  # fmt: skip
        if shard_of(brokers.nodes[1], f"source{number}") is not shard_of(brokers.nodes[1], "target"):
            break
        number += 1
    client.publish(1, f"source{number}")
    client.publish(1, f"source{number}")


def test_a_lane_says_how_much_how_old_and_what_it_waits_for(brokers: ThreeBrokers, client: Client) -> None:
    """RULES D8."""
    dead_letters_into(brokers, client)
    engine = brokers.nodes[1].engine
    target = shard_of(brokers.nodes[1], "target")
    source = next(shard for shard in engine.shards.values() if shard is not target)

    def rows() -> list[dict[str, Any]]:
        return list(lane_steps(engine, source, brokers.now_ms))

    # What is sent to the target's leader is lost.
    for node in brokers.nodes.values():
        for leader in node.engine._leaders.values():
            leader._duties.lanes._port = cast(DutyPort, LosesTransfers(leader._duties.lanes._port))
    brokers.run_until(lambda: sum(row["messages"] for row in rows()) == 2)
    pass_ms(brokers, 1000)
    (row,) = rows()
    assert (row["queue"], row["target_shard"], row["waits_for"]) == ("target", target.shard_id, "")
    assert 500 <= row["oldest_age_ms"] <= 3000
    labels = {"queue": "target", "target_shard": str(target.shard_id), "vhost": "/"}
    assert metric(brokers, 1, "mayfly_lane_messages", **labels) == 2
    assert metric(brokers, 1, "mayfly_lanes") == 1
    assert metric(brokers, 1, "mayfly_lane_oldest_seconds", **labels) == pytest.approx(row["oldest_age_ms"] / 1000)
    assert metric(brokers, 1, "mayfly_lane_waits") == 0
    assert metric(brokers, 1, "mayfly_deaths", reason="expired") == 2
    brokers.cut = set(brokers.ids)
    pass_ms(brokers, 3000)
    (row,) = rows()
    assert row["waits_for"] == "own leader"
    assert metric(brokers, 1, "mayfly_lane_waits", waits_for="own leader", **labels) == 1


class LosesTransfers:
    """What leaders need of the node around them, without the way to other shards."""

    def __init__(self, port: DutyPort) -> None:
        self._port = port

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def transfer(self, target_shard: int, command: bytes) -> None:
        """It does not arrive."""


class SomeCluster:
    """As much of an engine as a lane asks about: who leads what, which queues there are, which nodes are heard."""

    def __init__(self, leaders: dict[int, int], queues: set[int], heard: set[int]) -> None:
        self._leaders = leaders
        self._queues = queues
        self._heard = heard
        self.catalog = self.host = self.liveness = self.settings = self
        self.election_timeout_ms = 500

    def leader_of(self, id: int) -> int:
        return self._leaders[id]

    @property
    def groups(self) -> dict[int, Any]:
        clock = SimpleNamespace(current_ms=lambda now_ms: now_ms + 500, known_led_ms=0)
        return dict.fromkeys(self._leaders, SimpleNamespace(clock=clock))

    def room(self, shard: int, queue: int, source: int, next_bytes: int) -> Room:
        return Room(0, 0) if queue == 82 else Room(5, 2) if queue == 83 else ANY_ROOM

    def queue_by_id(self, id: int) -> Any:
        return SimpleNamespace(vhost="/", name=f"q{id}") if id in self._queues else None

    def heard_within(self, node: int, now_ms: int, period_ms: int) -> bool:
        return node in self._heard


@pytest.mark.parametrize(
    ("target_shard", "target_queue", "waits_for"),
    [
        (2, 80, ""), (3, 80, "leader"), (3, 81, "queue"), (2, 82, "room"), (2, 83, "room"),
        (transient_shard(7), 80, ""), (transient_shard(8), 80, "node"),
    ],
)  # fmt: skip
def test_a_lane_waits_for_what_is_missing(target_shard: int, target_queue: int, waits_for: str) -> None:
    engine: Any = SomeCluster({1: 9, 2: 9, 3: 0}, {80, 82, 83}, {7})
    shard = Shard(1, 1)
    message = Message(1, 0, 0, 0, 3, 1000, -1, 0)
    shard._state.outbox.lane(target_shard, target_queue).items.append(message)
    shard._state.outbox.lane(target_shard, 99)
    (row,) = lane_steps(engine, shard, 1000)
    assert (row["messages"], row["oldest_age_ms"], row["waits_for"]) == (1, 500, waits_for)
    engine = SomeCluster({1: 0, 2: 9, 3: 0}, {80, 82, 83}, {7})
    assert next(lane_steps(engine, shard, 1000))["waits_for"] == "own leader"


def test_the_fullest_lanes_have_metrics_of_their_own(brokers: ThreeBrokers) -> None:
    """However many there are, a page stays a page."""
    engine = brokers.nodes[1].engine
    message = Message(1, 0, 0, 0, 0, 1000, -1, 0)
    for queue_id in range(LANES_SHOWN + 30):
        engine.shards[1]._state.outbox.lane(2, 1000 + queue_id).items.extend([message] * (queue_id + 1))
    metrics = {name: samples for name, _, _, samples in engine_metrics(engine, brokers.now_ms)}
    assert sorted(float(str(value)) for _, value in metrics["mayfly_lane_messages"])[0] == 31
    assert len(metrics["mayfly_lane_messages"]) == len(metrics["mayfly_lane_oldest_seconds"]) == LANES_SHOWN
    assert metric(brokers, 1, "mayfly_lanes") == LANES_SHOWN + 30


def test_what_is_parked_has_an_age(brokers: ThreeBrokers, client: Client) -> None:
    """RULES D8."""
    declare(brokers, client, "q", **{"x-dead-letter-exchange": "nowhere", "x-message-ttl": 100})
    client.publish(1, "q")
    brokers.run_until(lambda: metric(brokers, 2, "mayfly_parked") == 1)
    pass_ms(brokers, 3000)
    for id in brokers.ids:
        assert 2.5 <= metric(brokers, id, "mayfly_parked_oldest_seconds") <= 4
        assert metric(brokers, id, "mayfly_unrouted_oldest_seconds") == 0


def test_d8_a_listing_reads_so_many_keys_and_bytes(
    brokers: ThreeBrokers, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is beyond shows without a key, and nothing that is read takes the place of others in the cache."""
    declare(brokers, client, "q", **{"x-dead-letter-exchange": "nowhere", "x-message-ttl": 100})
    for _ in range(6):
        client.publish(1, "q", body=b"." * 1000)
        pass_ms(brokers, 50)  # an entry each
    brokers.run_until(lambda: metric(brokers, 1, "mayfly_parked") == 6)
    engine = brokers.nodes[1].engine
    log = engine.host.groups[shard_of(brokers.nodes[1], "q").shard_id].log
    log._cache.discard_group(log.group)

    seeing = Seeing(brokers, 1)

    def listed() -> dict[str | None, int]:
        rows = seeing.run(seeing.dead_letters.listed(Selection()))["parked"]
        return {row["routing_key"]: row["messages"] for row in rows}

    before = log._cache.used_bytes
    assert listed() == {"q": 6}
    assert log._cache.used_bytes == before
    monkeypatch.setattr(dead_letters, "BYTES_READ", 2500)
    assert listed() == {"q": 3, None: 3}, "the third goes beyond"
    monkeypatch.setattr(dead_letters, "KEYS_READ", 2)
    assert listed() == {"q": 2, None: 4}


def test_the_lag_is_in_seconds_and_in_buckets(brokers: ThreeBrokers, client: Client) -> None:
    """RULES T7: with a tick of 250 ms nothing is later than the bucket that ends at 0.5 s."""
    declare(brokers, client, "q", **{"x-message-ttl": 330})
    for _ in range(5):
        client.publish(1, "q")
        pass_ms(brokers, 400)
    brokers.run_until(lambda: metric(brokers, 3, "mayfly_expired") == 5)
    shard = shard_of(brokers.nodes[3], "q")
    found = [
        value
        for name, _, kind, samples in engine_metrics(brokers.nodes[3].engine, brokers.now_ms)
        for labels, value in samples
        if name == "mayfly_expiry_lag_seconds" and kind == "histogram" and labels["shard"] == str(shard.shard_id)
    ]
    (lag,) = found
    assert isinstance(lag, Histogram)
    in_time = [count for bound, count in zip(lag.bounds, lag.counts, strict=False) if bound <= 0.5]
    assert sum(lag.counts) == sum(in_time) == 5
    assert lag.sum == shard.expiry_lag.sum_ms() / 1000
