"""What went wrong in other brokers with TTL, leases and dead letters must not go wrong here.

Each test says which behaviour of which broker it guards against, where that can be read, and what is promised instead.
Where it takes a cluster, the cluster is simulated: three nodes on virtual time.
"""

from __future__ import annotations

import pytest
from pamqp import commands

from mayfly.node.shard.commands import encode_delete_queue, encode_expire_queue, encode_purge, encode_touch_queue
from simulation.cluster import faults
from simulation.cluster.events import MILLISECOND_US, SECOND_US
from simulation.cluster.faults import Fault
from simulation.node.lease_edges import plan as edges
from simulation.node.lease_edges.course import EdgeRun
from simulation.node.lease_edges.plan import Edge, EdgeFault, EdgePlan
from simulation.node.nodes import NodeProfile
from simulation.simulators import LEASES
from tests.node.shard.driver import A, Driver, attach, publish
from tests.simulation.stage import TICK_MS, Stage

PROMPT_US = 400 * MILLISECOND_US


# ---------------------------------------------------------------------- timers


@pytest.mark.parametrize("end", ["purge", "ack", "delete", "overflow"])
def test_t13_timers_that_leak_after_purge(end: str) -> None:
    """RULES T13. Brokers with a timer for each message or each head leave it behind when the queue is purged or
    deleted under it: it fires for what is gone, or piles up. (LavinMQ wakes its expiry loop for every such change;
    RabbitMQ's quorum queues send a timer message to themselves for each head.) Here a queue has one deadline, derived
    from what it holds, and 10 000 rounds of filling and emptying leave nothing."""
    driver = Driver()
    driver.create(1, message_ttl_ms=60_000, max_length=2 if end == "overflow" else None)
    driver.create(2, message_ttl_ms=60_000)
    driver.run(attach(2, 5, no_ack=True))
    rounds = 10_000 if end == "purge" else 300
    for number in range(rounds):
        driver.pass_ms(1)
        if end == "purge":
            driver.run(publish("m", 1), encode_purge(1))
        elif end == "ack":
            driver.run(publish("m", 2))
        elif end == "delete":
            driver.create(10 + number, message_ttl_ms=60_000, expires_ms=90_000)
            driver.run(publish("m", 10 + number))
            driver.run(encode_delete_queue(10 + number, False, False))
        else:
            driver.run(publish("m", 1))
    timers = driver.shard._state.message_timers
    assert len(timers.due) == (1 if end == "overflow" else 0)
    assert len(timers.heap) <= 2 * len(timers.due) + 64
    assert len(driver.shard._state.lease_timers.due) == 0
    if end != "overflow":
        assert driver.shard.next_message_due_ms() == -1
        assert list(driver.shard.live_entries()) == []


@pytest.mark.parametrize("taken_by", ["get", "ack", "purge", "nack"])
def test_t6_t7_a_head_without_ttl_that_stops_all_later_expiry(taken_by: str) -> None:
    """RULES T6, T7. LavinMQ (cloudamqp/lavinmq#1596): once a message without expiration had been first, the loop that
    expires went to sleep, and what came to be first after it never expired. Here, whatever takes the head away, the
    next one is gone by the next tick after its deadline."""
    stage = Stage()
    stage.declare(1, "q")
    stage.publish(1, "q", b"for ever")
    stage.publish(2, "q", b"short", ttl_ms=600)
    stage.pass_ms(300)
    if taken_by == "get":
        stage.ask(3, commands.Basic.Get(0, "q", no_ack=True))
    elif taken_by == "purge":
        stage.ask(3, commands.Queue.Purge(0, "q"))
        stage.publish(1, "q", b"short", ttl_ms=300)
    else:
        got = stage.ask(3, commands.Basic.Get(0, "q"))
        if taken_by == "ack":
            stage.at[3].settle(commands.Basic.Ack(got.delivery_tag))
        else:
            stage.at[3].settle(commands.Basic.Reject(got.delivery_tag, requeue=False))
    stage.pass_ms(50)
    assert stage.ready("q") == [1, 1, 1]
    stage.pass_ms(300 + 250 + 3 * TICK_MS)
    assert stage.ready("q") == [0, 0, 0]


# ---------------------------------------------------------------------- dead letters


def test_d6_d8_a_dead_letter_worker_that_restarts_in_a_loop() -> None:
    """RULES D6, D8. RabbitMQ's at-least-once dead-lettering has a worker process per queue that starts with each leader
    and registers by a command: with leaders that come and go, workers failed and restarted by the dozen until the
    supervisor gave up and queues stayed without a leader (rabbitmq/rabbitmq-server#16652; #7677, two workers at once).
    Here there is no worker: what is to be done is read off the shard's state by whoever leads it. Leaders change ten
    times a second for four seconds; every dead letter arrives once, and when it is over nothing goes on."""
    stage = Stage(shards=2)
    stage.declare(1, "dead")
    timed = {
        "x-message-ttl": 500, "x-dead-letter-exchange": "amq.fanout", "x-queue-leader-locator": "balanced",
    }
    stage.ask(1, commands.Queue.Bind(0, "dead", "amq.fanout", ""))
    for name in ("s1", "s2", "s3", "s4"):
        stage.declare(3, name, **timed)
    assert {stage.history.shard_of(name) for name in ("s1", "s2", "s3", "s4")} == {1, 2}
    stage.consume_dead(2, "dead")
    now_us = stage.queue.now_us
    storm = [Fault(now_us + n * 100 * MILLISECOND_US, faults.TRANSFER, (n % 3 + 1,), 0, n % 3) for n in range(40)]
    stage.cluster.schedule(storm)
    wanted = []
    for round in range(8):
        for name in ("s1", "s2", "s3", "s4"):
            body = f"{name} {round}".encode()
            wanted.append(body)
            stage.publish(1, name, body)
        stage.pass_ms(200)
    stage.until(lambda: len(stage.dead) >= len(wanted))
    stage.pass_ms(3_000)
    assert sorted(stage.dead) == sorted(wanted)
    quiet = stage.applied()
    stage.pass_ms(5_000)
    assert stage.applied() == quiet, "something goes on although there is nothing to do"


def test_d8_dead_letters_without_a_way_do_no_work_over_and_over() -> None:
    """RULES D8. RabbitMQ keeps a dead letter without a route at its worker, which looks again and again
    (rabbitmq/rabbitmq-server#12625 shows how little is told then). Here it is parked: an idle cluster writes nothing
    for it, and it goes as soon as there is a route."""
    stage = Stage(shards=2)
    stage.declare(1, "q", **{"x-message-ttl": 200, "x-dead-letter-exchange": "amq.direct"})
    stage.publish(1, "q", b"1", b"2", b"3")
    stage.pass_ms(3_000)
    quiet = stage.applied()
    stage.pass_ms(10_000)
    assert stage.applied() == quiet
    stage.declare(2, "dead")
    stage.ask(2, commands.Queue.Bind(0, "dead", "amq.direct", "q"))
    stage.consume_dead(3, "dead")
    stage.until(lambda: len(stage.dead) >= 3)
    assert stage.dead == [b"1", b"2", b"3"]


# ---------------------------------------------------------------------- leases against TTL

DELAY = {"x-dead-letter-exchange": "amq.fanout", "x-message-ttl": 500, "x-expires": 1_000}
"""As delay queues are made by job libraries: the queue lives twice as long as its messages."""


def test_l2_l4_d6_a_lease_racing_a_ttl_and_losing_jobs() -> None:
    """RULES L2, L4, D6. Job libraries delay by a queue with a TTL, a dead-letter exchange, and an `x-expires` of twice
    the TTL, declared again for each job. RabbitMQ's quorum queues did not renew the lease by that declare
    (rabbitmq/rabbitmq-server#5894), and jobs were deleted with the queue (vyuldashev/laravel-queue-rabbitmq#601, #633).
    Here each declare gives the full period, so every job dies of its TTL first; through leader changes too."""
    stage = Stage(shards=2)
    stage.declare(1, "jobs")
    stage.ask(1, commands.Queue.Bind(0, "jobs", "amq.fanout", ""))
    stage.consume_dead(1, "jobs")
    wanted = []
    for number in range(20):
        stage.declare(2, "delay", **DELAY)
        wanted.append(b"%d" % number)
        stage.publish(2, "delay", wanted[-1])
        # In time for the lease, past the last job's TTL, and just at the end of the lease, in turn.
        stage.pass_ms((300, 700, 990, 1_000, 1_300)[number % 5])
        if number % 7 == 3:
            stage.cluster.schedule([Fault(stage.queue.now_us, faults.TRANSFER, (number % 3 + 1,), 0, number % 3)])
    stage.until(lambda: stage.ready("delay") == [-1, -1, -1])
    stage.pass_ms(1_000)
    assert stage.dead == wanted


def test_d6_l4_what_is_due_with_its_queue_is_dead_lettered_first() -> None:
    """RULES L4, D6. The same race at its end: TTL and lease run out in the same millisecond. What has outlived its own
    deadline died of that, and is owed to the dead-letter queue; the lease takes only what is alive."""
    driver = Driver(expiries=3)
    driver.create(1, message_ttl_ms=1_000, expires_ms=1_000, dead_letter_exchange="dlx")
    driver.run(*(publish(f"{number}", 1) for number in range(5)), publish("alive", 1, ttl_ms=999_999))
    driver.pass_ms(1_000)
    decision = encode_expire_queue(1, driver.shard.due_leases(driver.led_ms)[0][1])
    driver.lead(decision)
    assert driver.exists(1), "there is more than an entry may expire"
    driver.lead(decision)
    assert not driver.exists(1)
    assert [driver.body(death.message) for death in driver.shard.unrouted(9)] == ["0", "1", "2", "3", "4", "alive"]


def test_l3_a_consumer_that_leaves_late_takes_the_queue_along() -> None:
    """RULES L3. LavinMQ (cloudamqp/lavinmq#924): a consumer that had been there for longer than `x-expires` left, and
    the queue was deleted at once, as its period had been counted all the time. Here the full period begins when the
    last one goes."""
    stage = Stage()
    stage.declare(1, "q", **{"x-expires": 500})
    stage.ask(2, commands.Basic.Consume(0, "q", "c"))
    stage.pass_ms(2_000)
    stage.ask(2, commands.Basic.Cancel("c"))
    stage.pass_ms(450)
    assert stage.ready("q") == [0, 0, 0]
    stage.until(lambda: stage.ready("q") == [-1, -1, -1], PROMPT_US)


# ---------------------------------------------------------------------- starts, clocks, leaders


def test_l7_t14_queues_expiring_while_the_server_starts() -> None:
    """RULES L7, T14. Brokers that compare the last use with the wall clock when they start delete queues nobody could
    have used meanwhile; others took what they had not loaded yet for very old (cloudamqp/lavinmq#1759: all but the last
    segment of a stream gone), or forgot the lease in a restart (vernemq/vernemq#1071). Here an outage of three leases
    is not charged, and no lease is lost: each goes after what was left of it."""
    drawn = tuple(Edge(f"edge{number}", edges.NOTHING, edges.DEADLINE, 0, True) for number in range(3))
    fault = EdgeFault(edges.OUTAGE, edges.ALL, -200 * MILLISECOND_US, 2_100 * MILLISECOND_US)
    profile = NodeProfile(shards=2, tick_ms=20, heartbeat_ms=60, election_timeout_ms=300, expiry_tick_ms=100)
    run = EdgeRun(EdgePlan(5, profile, 700, drawn, fault, (0, 0, 0), (0, 0, 0)))
    LEASES.kept(run)
    for life in run.history.lives.values():
        assert life.gone_us is not None and life.gone_us > run.history.fault_us[1] + 200 * MILLISECOND_US


def test_t14_d6_messages_that_died_while_the_server_was_down_are_dead_lettered() -> None:
    """RULES T14, D6. RabbitMQ (rabbitmq/rabbitmq-server#37): messages whose TTL ran out while the server was down were
    dropped at its start instead of being dead-lettered. Here they arrive at the first tick after it, once."""
    stage = Stage(shards=2)
    stage.declare(1, "dead")
    stage.declare(1, "q", **{"x-dead-letter-exchange": "amq.fanout"})
    stage.ask(1, commands.Queue.Bind(0, "dead", "amq.fanout", ""))
    stage.publish(1, "q", b"1", b"2", b"3", ttl_ms=800)
    for node in (1, 2, 3):
        stage.cluster.crash(node)
    stage.pass_ms(3_000)
    stage.cluster.start_all()
    stage.until(stage._is_ready)
    stage.until(lambda: stage.ready("dead") == [3, 3, 3], 2 * SECOND_US)
    stage.connect(2)
    stage.consume_dead(2, "dead")
    stage.pass_ms(2_000)
    assert stage.dead == [b"1", b"2", b"3"]


def test_c1_t4_each_replica_judging_by_its_own_clock() -> None:
    """RULES C1, T4. NATS JetStream's replicas each expired by their own clock; followers then differed from the
    leader's snapshot, and reset their streams (nats-io/nats-server#3516, #3567, #3596). Here clocks are seconds apart,
    leaders change while messages live, and every replica expires at the same place of the log: none early, none
    alone."""
    stage = Stage(clock_offsets_ms=(0, 1_800, -1_800))
    stage.declare(1, "q", **{"x-message-ttl": 1_000})
    stage.publish(1, "q", *(b"%d" % number for number in range(10)))
    began_us = stage.queue.now_us
    for number in range(6):
        stage.cluster.schedule([Fault(stage.queue.now_us, faults.TRANSFER, (number % 3 + 1,), 0, 1)])
        stage.pass_ms(150)
        assert stage.ready("q") == [10, 10, 10], f"early, {(stage.queue.now_us - began_us) / 1e3} ms after the confirms"
    stage.until(lambda: stage.ready("q") == [0, 0, 0], 2 * PROMPT_US)
    for program in stage.programs():
        stage.world.probe.compare(program, 1)
    assert stage.world.probe.digests_compared > 0


@pytest.mark.parametrize("how", [faults.CRASH, faults.TRANSFER, faults.FREEZE])
def test_l6_t7_expiry_that_never_rearms_after_a_leader_change(how: str) -> None:
    """RULES L6, T7. Where the leader alone keeps timers, a new one has to arm them anew, for what it never saw arrive:
    RabbitMQ has had quorum queues whose messages stayed beyond their TTL with nobody to look at them
    (rabbitmq/rabbitmq-server#10718). Here deadlines are part of every replica's state, and whoever leads looks at them,
    without any client."""
    stage = Stage()
    stage.declare(1, "q")
    stage.declare(1, "leased", **{"x-expires": 1_500})
    stage.publish(2, "q", b"1", b"2", ttl_ms=1_500)
    old = stage.leader_of(1)
    fault = Fault(stage.queue.now_us + 200 * MILLISECOND_US, how, (old if how != faults.TRANSFER else old % 3 + 1,),
                  0 if how == faults.TRANSFER else 4 * SECOND_US, 1)  # fmt: skip
    stage.cluster.schedule([fault])
    stage.pass_ms(1_000)
    stage.until(lambda: stage.leader_of(1) not in (0, old))
    others = [place for place, program in enumerate(stage.programs()) if program.machine.id != old]
    assert all(stage.ready("q")[place] == 2 for place in others)
    # Both within a tick of their deadlines, but for what the change of the leader took from the lease.
    stage.pass_ms(500 + 250 + 3 * TICK_MS)
    assert all(stage.ready("q")[place] == 0 for place in others)
    stage.pass_ms(1_200)
    assert all(stage.ready("leased")[place] == -1 for place in others)


def test_l10_a_publish_to_an_expired_queue_is_not_refused_for_its_bindings_sake() -> None:
    """RULES L10. RabbitMQ (rabbitmq/rabbitmq-server#15333): a quorum queue that expired was stopped before its bindings
    went, and publishers to its exchange were nacked meanwhile. Here what is published all the time while leases end is
    confirmed, every message."""
    stage = Stage(shards=2)
    stage.declare(1, "stays")
    stage.ask(1, commands.Queue.Bind(0, "stays", "amq.fanout", ""))
    for number in range(6):
        stage.declare(1, f"goes{number}", **{"x-expires": 400 + 50 * number})
        stage.ask(1, commands.Queue.Bind(0, f"goes{number}", "amq.fanout", ""))
    answers: list[bool] = []
    sent = 0
    for node in (1, 2, 3):
        stage.at[node].on_confirm = lambda tag, good: answers.append(good)
    while max(stage.ready("goes5")) >= 0:
        for node in (1, 2, 3):
            stage.at[node].publish("amq.fanout", "", b"m", commands.Basic.Properties())
            sent += 1
        stage.pass_ms(5)
    stage.until(lambda: len(answers) == sent)
    assert all(answers)
    # A replica without clients of the shard hears of the last commit up to a heartbeat later.
    stage.until(lambda: stage.ready("stays") == [sent, sent, sent])


def test_l2_l5_a_quorum_queue_that_expires_although_it_is_redeclared() -> None:
    """RULES L2, L5. RabbitMQ (rabbitmq/rabbitmq-server#5894): redeclaring a quorum queue did not renew its lease. Here
    it does, active or passive, at any node, and voids a decision that was made before."""
    driver = Driver()
    driver.create(1, expires_ms=1_000)
    driver.pass_ms(1_000)
    ((queue_id, epoch),) = driver.shard.due_leases(driver.led_ms)
    driver.entry((A, encode_touch_queue(1)), (None, encode_expire_queue(queue_id, epoch)))
    assert driver.exists(1)
    stage = Stage()
    for number in range(12):
        stage.declare(number % 3 + 1, "q", **{"x-expires": 400})
        stage.pass_ms(350)
    assert stage.ready("q") == [0, 0, 0]
