"""Views of shards that this node has no replica of: as those of a node that has one, or said to be unknown."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from pamqp import commands

from mayfly.node.broker import peer_questions
from mayfly.node.broker.client_socket import ClientSocket
from mayfly.node.catalog import MoveQueue
from mayfly.node.limits import SHARDS
from mayfly.node.numbers import CATALOG_GROUP
from mayfly.node.operating import dead_letters, groups, shard_sources
from mayfly.node.operating.node_questions import SILENT_FOR_MS
from mayfly.node.operating.ports.client_selection import ClientSelection
from mayfly.node.operating.ports.management import PolicyWish
from mayfly.node.operating.ports.outlook import ForecastWish
from mayfly.node.operating.ports.parked_selection import Selection
from mayfly.node.operating.ports.queue_selection import QueueSelection
from mayfly.node.operating.shard_sources import unknown_text
from mayfly.node.operating.views import local_dead_letters
from mayfly.node.operating.views.local_dead_letters import LocalDeadLetters
from mayfly.node.operating.views.members import (
    GroupReplicas,
    ReplicaStanding,
    group_rows,
    member_rows,
    replica_rows,
)
from mayfly.node.operating.views.overview import totals_of_all
from mayfly.node.operating.views.status import engine_status
from tests.node.broker.three_brokers import ThreeBrokers
from tests.node.conftest import Client
from tests.node.operating.seeing import Seeing

ALL = [1, 2]
ANSWERS_WITHIN_MS = 2_000

# It listens to what a node asks, in the place of a method of a class that is compiled where there is a compiler.
pytestmark = pytest.mark.skipif(
    peer_questions.__file__.endswith(".so"), reason="a method of a compiled class stays what it is"
)



class Cluster:
    """Three nodes with all replicas, of which the views of the third show only what they are told to have."""

    def __init__(self) -> None:
        self.brokers = ThreeBrokers()
        self.client: Client = self.brokers.nodes[1].client()
        self.nodes = {id: Seeing(self.brokers, id) for id in self.brokers.ids}
        self.asked: list[tuple[int, dict[str, Any]]] = []
        """Questions of the third node: whom it asked what."""
        questions = self.brokers.nodes[3].engine.questions
        ask = questions.ask

        def noted(node_id: int, question: bytes, answered: Any) -> None:
            self.asked.append((node_id, msgspec.msgpack.decode(question)))
            ask(node_id, question, answered)

        questions.ask = noted  # type: ignore[method-assign]

    @property
    def third(self) -> Seeing:
        return self.nodes[3]

    def lacks(self, *shards: int) -> None:
        self.third.lacks.clear()
        self.third.lacks.update(shards)

    def declare(self, name: str, **arguments: Any) -> None:
        self.client.send(1, commands.Queue.Declare(queue=name, durable=True, arguments=arguments))
        self.brokers.run_until(lambda: self.client.take(1))

    def pass_ms(self, milliseconds: int) -> None:
        until_ms = self.brokers.now_ms + milliseconds
        self.brokers.run_until(lambda: self.brokers.now_ms >= until_ms)

    def shard_of(self, name: str) -> int:
        record = self.third.engine.catalog.queue("/", name)
        assert record is not None
        return record.shard

    def lead(self, shard: int, node: int) -> None:
        """Have that node lead the shard."""
        def group() -> Any:
            return self.brokers.nodes[self.third.engine.leader_of(shard)].engine.host.groups[shard]

        if self.third.engine.leader_of(shard) != node:
            group().raw.transfer_leader(node)
        self.brokers.run_until(
            lambda: all(each.engine.leader_of(shard) == node for each in self.brokers.nodes.values())
        )


@pytest.fixture
def cluster() -> Cluster:
    """With a queue of two messages in each shard."""
    cluster = Cluster()
    for number in range(4):
        cluster.declare(f"q{number}", **{"x-expires": 600_000})
        for _ in range(2):
            cluster.client.publish(1, f"q{number}", b"four")
    cluster.pass_ms(1000)
    assert {cluster.shard_of(f"q{number}") for number in range(4)} == set(ALL)
    return cluster


MOVING = ("applied", "commit", "last_use_age_ms", "lease", "oldest_ready_age_ms", "time_ms")
"""What goes on while it is asked for."""


def steady(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in MOVING}


@pytest.mark.parametrize("lacks", [(), (1, 2)])
def test_the_first_who_asks_any_node_is_told_rates(cluster: Cluster, lacks: tuple[int, ...]) -> None:
    """Whoever asks each node in turn, minutes apart, is told as much by each."""
    cluster.lacks(*lacks)

    def second() -> None:
        cluster.client.publish(1, "q0", b"four")
        cluster.pass_ms(1000)
        for node in cluster.nodes.values():
            node.queues.sample_once()

    for _ in range(15):
        second()
    for node in cluster.nodes.values():
        (row,) = node.run(node.queues.managed([("/", "q0")]))
        assert row["message_stats"]["publish_details"]["rate"] == pytest.approx(1, rel=0.3)
        assert row["message_stats"]["ack_details"]["rate"] == 0
        (row,) = node.run(node.queues.timed([("/", "q0")]))
        assert row["rates"]["enqueued"] == pytest.approx(1, rel=0.3)
        assert [row["rates"][name] for name in ("delivered", "acknowledged", "expired")] == [0, 0, 0]
        for column in ("rates.enqueued", "message_stats.publish_details.rate"):
            names = node.run(node.queues.names_by(column, ["/"]))
            assert names is not None and names[-1] == ("/", "q0")


WITHOUT = pytest.mark.parametrize("lacks", [(1,), (2,), (1, 2)])


@WITHOUT
def test_a_queue_is_shown_as_where_its_replica_is(cluster: Cluster, lacks: tuple[int, ...]) -> None:
    def shown() -> list[dict[str, Any]]:
        rows, left_out = cluster.third.run(cluster.third.queues.some(QueueSelection()))
        assert left_out == 0
        return [*rows, cluster.third.queue("q1")]

    before = shown()
    assert cluster.asked == []
    cluster.lacks(*lacks)
    after = shown()
    assert list(map(steady, after)) == list(map(steady, before))
    assert [row["name"] for row in before] == ["q0", "q1", "q2", "q3", "q1"]
    for was, now in zip(before, after, strict=True):
        assert was.keys() == now.keys() and was["ready"] == 2
        assert abs(was["lease"]["remaining_ms"] - now["lease"]["remaining_ms"]) < 1000
        assert abs(now["time_ms"] - was["time_ms"]) < 1000
    assert {shard for _, question in cluster.asked for shard in question["queues"]} == set(lacks)


@WITHOUT
def test_what_a_queue_that_moved_has_left_behind_is_shown_as_where_that_is(
    cluster: Cluster, lacks: tuple[int, ...]
) -> None:
    cluster.client.send(1, commands.Basic.Get(queue="q1", no_ack=False))
    cluster.brokers.run_until(lambda: bool(cluster.client.take(1)))
    source = cluster.shard_of("q1")
    cluster.third.engine.submit_catalog(MoveQueue("/", "q1", 3 - source), lambda _: None)
    cluster.brokers.run_until(lambda: cluster.shard_of("q1") != source)
    cluster.pass_ms(1000)
    before = cluster.third.queue("q1")
    assert (before["shard"], before["ready"], before["unacknowledged"]) == (3 - source, 1, 0)
    assert (before["moving_to"], before["move"]) == (None, "")
    assert (before["left_behind"], before["held_behind"]) == (0, 1)
    cluster.lacks(*lacks)
    assert steady(cluster.third.queue("q1")) == steady(before)
    assert "left_behind" not in cluster.third.queue("q0")


@WITHOUT
def test_r2_a_forecast_is_of_all_shards(cluster: Cluster, lacks: tuple[int, ...]) -> None:
    """R2: also where the node has no replica, in as many questions as it takes; and then it happens."""
    for number in range(4):
        cluster.client.send(1, commands.Queue.Purge(queue=f"q{number}"))
        cluster.brokers.run_until(lambda: cluster.client.take(1))
        cluster.client.publish(1, f"q{number}", b"gone", expiration="30000")
    cluster.pass_ms(1000)

    def foretold() -> dict[str, Any]:
        return cluster.third.run(cluster.third.outlooks.forecast(ForecastWish(None)))

    before = foretold()
    cluster.lacks(*lacks)
    after = foretold()
    assert before["totals"] == after["totals"]
    assert [(it["expire"], it["leases"]) for it in after["totals"]] == [(4, 0), (4, 4), (4, 4)]
    assert [row["name"] for row in after["queues"]] == ["q0", "q1", "q2", "q3"]
    assert {shard for _, question in cluster.asked for shard in question["afters"]} == set(lacks)
    wish = PolicyWish("/", "p", "^q[01]$", {"max-length": 0}, None, None, False)
    status, tried = cluster.third.run(cluster.third.outlooks.try_policy(wish))
    assert (status, [(row["name"], row["drop"]) for row in tried["queues"]]) == (200, [("q0", 1), ("q1", 1)])
    cluster.pass_ms(16_000)
    cluster.pass_ms(16_000)
    assert [cluster.third.queue(f"q{number}")["expired"] for number in range(4)] == [1] * 4


def test_r2_r3_through_a_change_of_leader_what_is_foretold_stays_and_happens(cluster: Cluster) -> None:
    """R2, R3: any replica foretells the same, before and after the lead moves."""
    cluster.lead(1, 1)
    cluster.lead(2, 1)
    for number in range(4):
        for expiration in ("8000", "20000"):
            cluster.client.publish(1, f"q{number}", b"gone", expiration=expiration)
        cluster.client.send(1, commands.Basic.Get(queue=f"q{number}", no_ack=True))
        cluster.client.send(1, commands.Basic.Get(queue=f"q{number}", no_ack=True))
    cluster.pass_ms(1000)
    wish = ForecastWish(None, [1_000, 12_000, 60_000])
    policy = PolicyWish("/", "p", "", {"message-ttl": 1, "ttl-applies": "retroactive"}, None, None, False)

    def foretold(node: int) -> tuple[object, object]:
        seen = cluster.nodes[node]
        forecast = seen.run(seen.outlooks.forecast(wish))
        return [it["expire"] for it in forecast["totals"]], seen.run(seen.outlooks.try_policy(policy))[1]["totals"]

    before = foretold(1)
    assert before[0] == [0, 4, 8]
    assert isinstance(before[1], dict) and (before[1]["expire"], before[1]["queues"]) == (8, 4)
    assert foretold(2) == foretold(3) == before
    cluster.lead(1, 2)
    cluster.lead(2, 3)
    assert [foretold(node) for node in (1, 2, 3)] == [before] * 3
    cluster.pass_ms(12_000)
    assert [cluster.third.queue(f"q{number}")["expired"] for number in range(4)] == [1] * 4


def test_r2_what_nobody_has_told_is_said_to_be_unknown(cluster: Cluster) -> None:
    """R2, R3: it is not shown as nothing."""
    for node in cluster.nodes.values():
        node.lacks.add(1)
    found = cluster.third.run(cluster.third.outlooks.forecast(ForecastWish(None)))
    assert found["unknown_shards"] == [1]
    wish = PolicyWish("/", "p", "", {"max-length": 0}, None, None, False)
    _, tried = cluster.third.run(cluster.third.outlooks.try_policy(wish))
    unknown = {row["name"] for row in tried["queues"] if "unknown" in row}
    assert tried["unknown_shards"] == [1] and unknown == {f"q{n}" for n in range(4) if cluster.shard_of(f"q{n}") == 1}


@WITHOUT
def test_the_status_is_of_all_shards(cluster: Cluster, lacks: tuple[int, ...]) -> None:
    def shown() -> dict[str, Any]:
        rows = cluster.third.run(cluster.third.groups.rows())
        return engine_status(cluster.third.engine, "third", cluster.brokers.now_ms, rows)

    cluster.lead(1, 1)
    cluster.lead(2, 1)
    before = shown()
    cluster.lacks(*lacks)
    after = shown()
    assert len(cluster.asked) == 1, "one question for all shards of that node"
    for was, now in zip(before["groups"], after["groups"], strict=True):
        if was["group"] in lacks:
            assert (was.pop("role"), now.pop("role")) == ("follower", "leader")
            assert [now.pop("stream_copies"), now.pop("upstreams")] == [[], []], "which leaders tell alone"
        assert steady(was) == steady(now) and was.keys() == now.keys()
    totals = {"queues": 4, "ready": 8, "scheduled": 0, "unacknowledged": 0, "outbox": 0}
    assert after["queues"] == before["queues"] == totals
    assert after["unknown_shards"] == []


@WITHOUT
def test_totals_members_and_shards_are_of_all(cluster: Cluster, lacks: tuple[int, ...]) -> None:
    third = cluster.third

    def shown() -> list[Any]:
        totals, unknown = third.run(third.groups.totals())
        replicas = third.run(third.groups.replicas())
        assert unknown == [] and list(replicas) == [0, 1, 2]
        return [
            totals_of_all(third.engine, totals), member_rows(third.engine, replicas, cluster.brokers.now_ms),
            group_rows(third.engine, third.groups.all(), replicas),
        ]  # fmt: skip

    before = shown()
    assert before[0]["queue_totals"]["messages"] == 8 and [row["votes"] for row in before[1]] == [3, 3, 3]
    cluster.lacks(*lacks)
    assert shown() == before


@WITHOUT
def test_rabbitmqs_pages_are_of_all(cluster: Cluster, lacks: tuple[int, ...]) -> None:
    names = [("/", name) for name in ("q3", "none", "q0", "q1", "q2")]
    before = cluster.third.run(cluster.third.queues.managed(names))
    assert [(row["name"], row["messages"], row["message_bytes"]) for row in before] == [
        (name, 2, 8) for name in ("q3", "q0", "q1", "q2")
    ]
    cluster.lacks(*lacks)
    assert cluster.third.run(cluster.third.queues.managed(names)) == before
    assert before[0]["members"] == ["node1", "node2", "node3"] and "unknown" not in before[0]


def by_nodes(cluster: Cluster) -> dict[int, dict[int, dict[str, Any]]]:
    """By shard and node, with who leads by what nodes themselves say."""
    rows = cluster.third.run(cluster.third.groups.by_nodes())
    assert [row["group"] for row in rows] == [0, 1, 2]
    for row in rows:
        assert [each["node"] for each in row["replicas"] if each.get("leads")] in ([row["leader"]], [])
    return {row["group"]: {each["node"]: each for each in row["replicas"]} for row in rows}


def test_which_node_has_which_shard_and_how_far_each_is(cluster: Cluster) -> None:
    shards = by_nodes(cluster)
    for shard, replicas in shards.items():
        leader = cluster.third.engine.leader_of(shard)
        assert {node: (each["role"], each["leads"]) for node, each in replicas.items()} == {
            node: ("voter", node == leader) for node in cluster.brokers.ids
        }
        assert len({each["term"] for each in replicas.values()}) == 1
    cluster.lacks(1)
    assert by_nodes(cluster)[1][3] == {"node": 3, "role": "voter", "unknown": "it has told nothing of its replica"}
    cluster.lacks()
    cluster.lead(1, 1)
    cluster.brokers.cut = {2}
    for number in range(20):
        cluster.client.publish(1, f"q{number % 4}", b"more")
        cluster.brokers.step()
    shards = by_nodes(cluster)
    assert all("unknown" in replicas[2] for replicas in shards.values())
    behind = {shard: replicas[3]["behind"] for shard, replicas in shards.items()}
    cluster.brokers.cut = set()
    assert all(lag >= 0 for lag in behind.values()) and shards[1][1]["behind"] == 0


def test_a_replica_that_lags_is_told_by_how_much() -> None:
    """Of those that are committed as far as any replica knows; one that is not a member's is told as well."""
    replicas = {3: GroupReplicas(1, [1, 2], [4], [])}
    told = {
        1: {3: ReplicaStanding(True, 7, 100, 100)}, 2: {3: ReplicaStanding(False, 6, 60, 58)},
        4: {3: ReplicaStanding(False, 7, 90, 90)}, 5: {3: ReplicaStanding(False, 2, 10, 10)},
    }  # fmt: skip
    (row,) = replica_rows(replicas, told, [3])
    assert (row["leader"], row["term"], row["committed"]) == (1, 7, 100)
    assert [(each["node"], each["role"], each["behind"], each["term"]) for each in row["replicas"]] == [
        (1, "voter", 0, 7), (2, "voter", 42, 6), (4, "learner", 10, 7), (5, "extra", 90, 2),
    ]  # fmt: skip


def test_the_leader_is_asked_and_then_another_that_should_have_it(cluster: Cluster) -> None:
    """A node that has not got the replica says so at once; its word is not waited for twice."""
    cluster.lacks(1)
    name = next(name for name in ("q0", "q1") if cluster.shard_of(name) == 1)
    cluster.lead(1, 2)
    before_ms = cluster.brokers.now_ms
    assert cluster.third.queue(name)["ready"] == 2
    assert [node for node, _ in cluster.asked] == [2]
    cluster.nodes[2].lacks.add(1)
    cluster.asked.clear()
    assert cluster.third.queue(name)["ready"] == 2
    assert [node for node, _ in cluster.asked] == [2, 1]
    cluster.nodes[1].lacks.add(1)
    assert cluster.third.queue(name)["unknown"] == unknown_text(1)
    assert cluster.brokers.now_ms - before_ms < ANSWERS_WITHIN_MS, "nobody was waited for"


def test_what_no_node_has_told_in_time_is_unknown_and_not_nothing(cluster: Cluster) -> None:
    third = cluster.third
    cluster.lacks(1)
    cluster.brokers.cut = {1, 2}
    rows, _ = third.run(third.queues.some(QueueSelection()))
    for row in rows:
        assert (row.get("unknown"), row.get("ready")) == (
            (unknown_text(1), None) if row["shard"] == 1 else (None, 2)
        )  # fmt: skip
    groups = third.run(third.groups.rows())
    status = engine_status(third.engine, "third", cluster.brokers.now_ms, groups)
    assert status["unknown_shards"] == [1] and status["queues"]["ready"] == 4
    assert "ready" not in status["groups"][1] and status["groups"][1]["unknown"] == unknown_text(1)
    totals, unknown = third.run(third.groups.totals())
    assert unknown == [1] and sum(each.ready for each in totals) == 4
    replicas = third.run(third.groups.replicas())
    assert list(replicas) == [0, 2]
    managed = third.run(third.queues.managed([("/", f"q{number}") for number in range(4)]))
    assert {row.get("messages") for row in managed if "unknown" in row} == {None}
    assert {row.get("messages") for row in managed if "unknown" not in row} == {2}
    listed = third.run(third.dead_letters.listed(Selection()))
    assert listed["unknown_shards"] == [1]
    status_code, answer = third.run(third.dead_letters.settle(True, Selection()))
    assert status_code == 504 and "shards 1" in answer["error"] and answer["released"] == 0


def test_a_node_that_hangs_is_waited_for_once(cluster: Cluster) -> None:
    """Its shards are unknown for one page; the next ones ask another node, and it again when it had time to recover."""
    cluster.lacks(1, 2)
    cluster.lead(1, 1)
    cluster.lead(2, 1)
    questions = cluster.brokers.nodes[1].engine.questions
    answer = questions.answer
    questions.answer = lambda question, respond: None
    before_ms = cluster.brokers.now_ms
    names = [("/", f"q{number}") for number in range(4)] * 500
    rows = cluster.third.run(cluster.third.queues.managed(names))
    assert ANSWERS_WITHIN_MS <= cluster.brokers.now_ms - before_ms < 2 * ANSWERS_WITHIN_MS
    told = ["messages" in row for row in rows]
    assert len(rows) == 2000 and told == sorted(told) and told[-1], "what comes later is told by another node"
    assert cluster.third.queue("q0")["ready"] == 2
    questions.answer = answer
    cluster.asked.clear()
    cluster.third.queue("q0")
    cluster.pass_ms(SILENT_FOR_MS)
    cluster.lead(cluster.shard_of("q0"), 1)
    cluster.third.queue("q0")
    assert [node for node, _ in cluster.asked] == [2, 1]


def test_an_older_node_refuses_a_question_that_it_does_not_know(cluster: Cluster) -> None:
    """It says so at once (`PeerQuestions`), and another one is asked."""
    cluster.lacks(1, 2)
    cluster.lead(1, 1)
    cluster.lead(2, 1)
    cluster.brokers.nodes[1].engine.questions.answer = lambda question, respond: respond(b"")
    before_ms = cluster.brokers.now_ms
    assert cluster.third.queue("q0")["ready"] == 2
    assert cluster.brokers.now_ms - before_ms < ANSWERS_WITHIN_MS
    assert [node for node, _ in cluster.asked] == [1, 2]


@pytest.mark.parametrize("answer", [b"\xc1", b"\x01", b"\x80", b"\x81\x01\x01", b"\x81\x63\x80"])
def test_a_wrong_answer_is_none(cluster: Cluster, answer: bytes) -> None:
    """Also one about shards that were not asked about."""
    cluster.lacks(1, 2)
    for id in (1, 2):
        cluster.brokers.nodes[id].engine.questions.answer = lambda question, respond: respond(answer)
    rows, _ = cluster.third.run(cluster.third.queues.some(QueueSelection()))
    assert [row.get("unknown") for row in rows] == [unknown_text(row["shard"]) for row in rows]


def test_a_question_that_cannot_be_answered_is_refused(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once or in steps: whatever is wrong with a replica, the frame with the question goes on, and another node is
    asked."""
    cluster.lacks(1, 2)
    cluster.lead(1, 1)
    cluster.lead(2, 1)

    def broken(engine: object, ids: list[int], *_: object) -> dict[int, Any]:
        if ids == [CATALOG_GROUP]:  # which is asked for here
            return {}
        raise LookupError("a replica that cannot be read")

    asked: dict[str, Any] = {"replicas_here": cluster.third.groups.replicas, "group_steps": cluster.third.groups.rows}
    for name, asking in asked.items():
        monkeypatch.setattr(groups, name, broken)
        found = cluster.third.run(asking())
        assert found == {} or {row["unknown"] for row in found} == {unknown_text(1), unknown_text(2)}
        monkeypatch.undo()
    assert [node for node, _ in cluster.asked] == [1, 2, 1, 2]
    assert "could not be answered" in caplog.text


def test_a_question_about_many_shards_comes_in_parts(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_sources, "SHARDS_AT_ONCE", 1)
    cluster.lacks(1, 2)
    cluster.lead(1, 1)
    cluster.lead(2, 1)
    rows = cluster.third.run(cluster.third.groups.rows())
    assert [row["group"] for row in rows] == [0, 1, 2] and not any("unknown" in row for row in rows)
    assert [question["groups"] for _, question in cluster.asked] == [[1], [2]]


def test_fresh_pages_bring_the_replica_up_to_date_of_which_they_are_made(cluster: Cluster) -> None:
    third = cluster.third
    cluster.lacks(1)
    assert third.run(third.freshness.of_all()) == {"current": True}
    assert third.run(third.freshness.of_queue("/", "q0")) == {"current": True}
    assert [question["type"] for _, question in cluster.asked].count("BringUpToDate") >= 1
    cluster.brokers.silent = {1}
    cluster.brokers.run_until(lambda: not any(n.engine.leader_of(1) for n in cluster.brokers.nodes.values()))
    known = third.run(third.freshness.of_all())
    assert known == {
        "current": False, "reason": "no leader answered for groups 1; they are shown as a replica has them"
    }  # fmt: skip
    assert third.run(third.freshness.of_replicas_here()) == {"current": True}
    for id in (1, 2):
        cluster.nodes[id].lacks.add(1)
    known = third.run(third.freshness.of_all())
    assert known["reason"] == "no node with a replica has answered for groups 1; what is in them is unknown"


@pytest.mark.parametrize("small_parts", [False, True])
def test_d8_dead_letters_of_other_shards(
    cluster: Cluster, small_parts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RULES D8: listed, released and dropped where they wait, however little fits into a part."""
    if small_parts:
        monkeypatch.setattr(local_dead_letters, "LOOKED_AT", 3)
        monkeypatch.setattr(local_dead_letters, "ROWS_AT_ONCE", 2)
    third = cluster.third
    for number in range(4):
        arguments = {"x-dead-letter-exchange": f"nowhere{number}", "x-message-ttl": 50}
        cluster.declare(f"d{number}", **arguments)
        for _ in range(3 + number):
            cluster.client.publish(1, f"d{number}")
    cluster.pass_ms(2000)
    before = third.run(third.dead_letters.listed(Selection()))
    cluster.lacks(1, 2)
    listed = third.run(third.dead_letters.listed(Selection()))
    for page in (before, listed):
        for row in page["parked"]:
            del row["oldest_ms"]
    assert listed == before
    assert sorted((row["queue"], row["messages"]) for row in listed["parked"]) == [
        (f"d{number}", 3 + number) for number in range(4)
    ]
    assert [row["shard"] for row in listed["parked"]] == sorted(row["shard"] for row in listed["parked"])
    chosen = Selection(queue="d1")
    assert third.run(third.dead_letters.settle(False, chosen)) == (200, {"dropped": 4})
    (kept,) = (row for row in listed["parked"] if row["queue"] == "d2")
    cluster.declare("found")
    cluster.client.call(1, commands.Exchange.Declare(exchange="nowhere2"))
    cluster.client.call(1, commands.Queue.Bind(queue="found", exchange="nowhere2", routing_key=kept["routing_key"]))
    assert third.run(third.dead_letters.settle(True, Selection(shard=kept["shard"])))[0] == 200
    cluster.brokers.run_until(lambda: cluster.nodes[1].queue("found").get("ready") == 5)
    left = third.run(third.dead_letters.listed(Selection()))["parked"]
    assert sorted(row["queue"] for row in left) == ["d0", "d3"]


@pytest.mark.parametrize("lacks", [(), (1, 2)])
def test_d8_what_is_parked_again_is_not_dropped(cluster: Cluster, lacks: tuple[int, ...]) -> None:
    """RULES D8: a release without a route ends when all that were parked have been tried once, and counts them once."""
    cluster.declare("d", **{"x-dead-letter-exchange": "nowhere", "x-message-ttl": 50})
    for _ in range(3):
        cluster.client.publish(1, "d")
    cluster.pass_ms(2000)
    third = cluster.third
    shard, everything = cluster.shard_of("d"), Selection()
    local = LocalDeadLetters(third.engine)
    ((_, (newest, count)),) = local.left(everything, {shard: -1}).items()
    assert count == 3
    cluster.lacks(*lacks)
    assert third.run(third.dead_letters.settle(True, everything)) == (200, {"released": 3})
    cluster.pass_ms(1000)
    cluster.lacks()
    assert local.left(everything, {shard: newest}) == {shard: (newest, 0)}
    local.give(False, everything, {shard: newest})
    cluster.pass_ms(1000)
    assert [row["messages"] for row in third.run(third.dead_letters.listed(Selection()))["parked"]] == [3]


def test_a_listing_looks_at_so_many(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """RULES D8."""
    monkeypatch.setattr(local_dead_letters, "LOOKED_AT", 2)
    cluster.declare("d", **{"x-dead-letter-exchange": "nowhere", "x-message-ttl": 50})
    for _ in range(6):
        cluster.client.publish(1, "d")
    cluster.pass_ms(2000)
    for most, more in ((4, True), (6, False), (7, False)):
        monkeypatch.setattr(dead_letters, "MOST_LOOKED_AT", most)
        listed = cluster.third.run(cluster.third.dead_letters.listed(Selection()))
        assert ([row["messages"] for row in listed["parked"]], listed["more"]) == ([min(most, 6)], more)


@pytest.mark.parametrize("page", ["list", "channel"])
def test_who_is_the_single_active_consumer_of_a_queue_elsewhere(cluster: Cluster, page: str) -> None:
    third = cluster.third
    clients = [cluster.client, cluster.brokers.nodes[3].client()]
    clients[1].connection.socket = ClientSocket(("other", 1), ("node3", 5672), False, 0)
    arguments = {"x-single-active-consumer": True}
    cluster.declare("single", **arguments)
    for client, tag in zip(clients, ("first", "second"), strict=True):
        client.consume("single", tag)
    cluster.pass_ms(500)

    def found() -> dict[str, Any]:
        if page == "list":
            rows = third.run(third.clients.some("consumers", ClientSelection(), 0, 100))[1]
        else:
            name = third.run(third.clients.some("channels", ClientSelection(), 0, 100))[1][-1]["name"]
            row = third.run(third.clients.one("channels", name))
            assert row is not None
            rows = row["consumer_details"]
        assert not any("whose" in row for row in rows)
        return {row["consumer_tag"]: (row["active"], row["activity_status"]) for row in rows}

    before = found()
    assert before["second"] == (False, "waiting")
    cluster.lacks(1, 2)
    assert found() == before
    for id in (1, 2):
        cluster.nodes[id].lacks.update(ALL)
    assert found()["second"] == (None, "unknown")


def test_a_replica_that_goes_while_it_is_told_of_is_asked_for_elsewhere(cluster: Cluster) -> None:
    third = cluster.third
    asking = third.queues.some(QueueSelection())

    async def meanwhile() -> Any:
        task = asyncio.ensure_future(asking)
        await asyncio.sleep(0)
        third.lacks.update(ALL)
        return await task

    rows, _ = third.run(meanwhile())
    assert [row["ready"] for row in rows] == [2, 2, 2, 2]


def test_a_question_may_name_every_shard_that_there_can_be() -> None:
    """And the transient one of whoever asks; what it names beyond that is left out."""
    brokers = ThreeBrokers()
    asked = Seeing(brokers, 1).groups
    absent = list(range(1000, 1000 + SHARDS - 1))
    told = asyncio.run(asked._tell_totals(groups._Totals([*absent, 1, 2, 1])))
    assert list(told) == [1, 2]
    assert list(asyncio.run(asked._tell_totals(groups._Totals([*absent, 999, 1, 2])))) == [1]
