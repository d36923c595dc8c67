"""The checker objects to each kind of broken history, and to none that is merely unlucky."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulation.node.checker import Tolerance, check
from simulation.node.history import (
    ACK,
    CONFIRMED,
    DECLARE,
    DELIVERY_LIMIT,
    EXPIRED,
    GET,
    IN_DOUBT,
    MAXLEN,
    REFUSED,
    REJECT,
    REJECTED,
    REQUEUE,
    RETURNED,
    ROLLED_BACK,
    Attachment,
    Cancel,
    CountedDeath,
    Decision,
    Delivery,
    Disappearance,
    History,
    Publish,
    Removal,
    Renewal,
    Trade,
)
from simulation.node.topology import QueuePlan, RunTopology

SECOND = 1_000_000
TOPOLOGY = RunTopology.of(
    [
        QueuePlan("plain"),
        QueuePlan("timed", message_ttl_ms=1_000),
        QueuePlan("lettered", message_ttl_ms=1_000, dead_letter_targets=("dead", "copy")),
        QueuePlan("worked", dead_letter_targets=("dead",)),
        QueuePlan("dead"),
        QueuePlan("copy"),
        QueuePlan("leased", expires_ms=5_000),
        QueuePlan("short", max_length=2, dead_letter_targets=("dead",)),
        QueuePlan("short.mute", max_length=2),
        QueuePlan("full", max_length=2, refuses=True),
        QueuePlan("tried", delivery_limit=2, dead_letter_targets=("dead",)),
        QueuePlan("ranked", max_priority=2),
    ]
)


def history(*publishes: Publish, ended_s: float = 60) -> History:
    made = History(calm_us=30 * SECOND, ended_us=int(ended_s * SECOND))
    for publish in publishes:
        made.publishes[publish.message_id] = publish
    return made


def published(
    message_id: int,
    *queues: str,
    at_s: float = 1.0,
    ttl_ms: int | None = None,
    stream: int = 1,
    outcome: str = CONFIRMED,
    clocks_ms: tuple[int, ...] = (),
) -> Publish:
    at_us = int(at_s * SECOND)
    return Publish(
        message_id, stream, message_id, queues, ttl_ms, at_us, outcome, at_us + 10_000, clocks_ms
    )


def delivered(
    message_id: int,
    *path: str,
    at_s: float = 55.0,
    holder: str = "drain",
    redelivered: bool = False,
    reason: str = EXPIRED,
    settled: str = "",
    source_clock_ms: int = -1,
) -> Delivery:
    deaths = tuple(CountedDeath(queue, reason, 1) for queue in reversed(path[:-1]))
    delivery = Delivery(int(at_s * SECOND), path[-1], message_id, holder, redelivered, deaths)
    delivery.draining = holder == "drain"
    delivery.settled = settled
    delivery.settled_us = delivery.at_us + 1 if settled else None
    delivery.source_clock_ms = source_clock_ms
    return delivery


def rules(made: History, tolerance: Tolerance | None = None) -> list[str]:
    return [violation.rule for violation in check(made, TOPOLOGY, tolerance or Tolerance())]


def test_a_clean_run_has_no_violations() -> None:
    made = history(published(1, "plain"), published(2, "lettered"), published(3, "timed"))
    made.deliveries = [
        delivered(1, "plain"),
        delivered(2, "lettered", "dead"),
        delivered(2, "lettered", "copy"),
    ]
    assert rules(made) == []


class TestLost:
    def test_a_confirmed_message_that_is_nowhere_is_lost(self) -> None:
        assert rules(history(published(1, "plain"))) == ["lost"]

    def test_an_unconfirmed_one_may_be_anywhere_or_nowhere(self) -> None:
        assert rules(history(published(1, "plain", outcome=REFUSED))) == []

    def test_a_message_is_owed_to_each_queue_it_was_routed_to(self) -> None:
        made = history(published(1, "plain", "dead"))
        made.deliveries = [delivered(1, "plain")]
        assert rules(made) == ["lost"]

    def test_an_acknowledged_message_is_not_missed(self) -> None:
        made = history(published(1, "plain"))
        made.deliveries = [delivered(1, "plain", at_s=2, holder="consumer", settled=ACK)]
        assert rules(made) == []

    def test_a_message_that_was_only_requeued_is_missed(self) -> None:
        made = history(published(1, "plain"))
        made.deliveries = [delivered(1, "plain", at_s=2, holder="consumer", settled=REQUEUE)]
        assert rules(made) == ["lost"]

    def test_d6_an_expired_message_is_owed_to_every_dead_letter_target(self) -> None:
        made = history(published(1, "lettered"))
        made.deliveries = [delivered(1, "lettered", "dead")]
        assert rules(made) == ["lost"]

    def test_d6_a_rejected_message_is_owed_to_the_dead_letter_queue(self) -> None:
        made = history(published(1, "worked"))
        made.deliveries = [delivered(1, "worked", at_s=2, holder="consumer", settled=REJECT)]
        assert rules(made) == ["lost"]
        made.deliveries.append(delivered(1, "worked", "dead", reason=REJECTED))
        assert rules(made) == []

    def test_a_message_may_not_vanish_before_its_ttl(self) -> None:
        assert rules(history(published(1, "plain", ttl_ms=3_600_000))) == ["lost"]
        assert rules(history(published(1, "plain", ttl_ms=1_000))) == []

    def test_a_deleted_queue_takes_its_messages_along(self) -> None:
        made = history(published(1, "plain", at_s=5))
        made.removals = [Removal("plain", 6 * SECOND, 7 * SECOND)]
        assert rules(made) == []

    def test_but_not_those_that_came_after_it_was_declared_again(self) -> None:
        made = history(published(1, "plain", at_s=9))
        made.removals = [Removal("plain", 6 * SECOND, 7 * SECOND)]
        assert rules(made) == []
        made.renewals = [Renewal("plain", DECLARE, 8 * SECOND, 8 * SECOND)]
        assert rules(made) == ["lost"]

    def test_a_client_is_answered_in_the_calm(self) -> None:
        made = history()
        made.given_up = [(20 * SECOND, "publisher", 1)]
        assert rules(made) == []
        made.given_up.append((40 * SECOND, "publisher", 1))
        assert rules(made) == ["unanswered"]


class TestInvented:
    def test_a_message_nobody_published(self) -> None:
        made = history()
        made.deliveries = [delivered(7, "plain")]
        assert "invented" in rules(made)

    def test_a_message_in_a_queue_it_was_not_sent_to(self) -> None:
        made = history(published(1, "plain", outcome=REFUSED))
        made.deliveries = [delivered(1, "dead")]
        assert "invented" in rules(made)

    def test_a_changed_body(self) -> None:
        made = history(published(1, "plain"))
        made.deliveries = [delivered(1, "plain")]
        made.deliveries[0].intact = False
        assert "invented" in rules(made)

    def test_a_death_without_a_ttl(self) -> None:
        made = history(published(1, "worked", outcome=REFUSED))
        made.deliveries = [delivered(1, "worked", "dead", reason=EXPIRED)]
        assert "invented" in rules(made)

    def test_a_rejection_by_nobody(self) -> None:
        made = history(published(1, "worked", ttl_ms=5))
        made.deliveries = [delivered(1, "worked", "dead", reason=REJECTED)]
        assert "invented" in rules(made)

    def test_a_route_that_does_not_exist(self) -> None:
        made = history(published(1, "timed", outcome=REFUSED))
        made.deliveries = [delivered(1, "timed", "dead")]
        assert "invented" in rules(made)


class TestDuplicates:
    def test_d6_two_copies_in_one_dead_letter_queue(self) -> None:
        made = history(published(1, "lettered"))
        made.deliveries = [
            delivered(1, "lettered", "copy"),
            delivered(1, "lettered", "dead"),
            delivered(1, "lettered", "dead", at_s=56),
        ]
        assert rules(made) == ["duplicate", "duplicate"]

    def test_two_holders_that_both_see_a_first_delivery(self) -> None:
        made = history(published(1, "plain"))
        made.deliveries = [
            delivered(1, "plain", at_s=2, holder="a", settled=REQUEUE),
            delivered(1, "plain"),
        ]
        assert rules(made) == ["duplicate"]

    def test_a_redelivery_is_no_duplicate(self) -> None:
        made = history(published(1, "plain"))
        made.deliveries = [
            delivered(1, "plain", at_s=2, holder="a", settled=REQUEUE),
            delivered(1, "plain", redelivered=True),
        ]
        assert rules(made) == []

    def test_a_message_is_not_alive_where_it_died(self) -> None:
        made = history(published(1, "lettered", outcome=REFUSED))
        made.deliveries = [
            delivered(1, "lettered", at_s=51, redelivered=True),
            delivered(1, "lettered", "dead"),
        ]
        assert rules(made) == ["duplicate"]

    def test_the_same_message_by_two_routes_is_two(self) -> None:
        made = history(published(1, "lettered", "dead"))
        made.deliveries = [
            delivered(1, "dead"),
            delivered(1, "lettered", "dead"),
            delivered(1, "lettered", "copy"),
        ]
        assert rules(made) == []


class TestOrder:
    def test_one_publisher_in_order(self) -> None:
        made = history(published(1, "plain"), published(2, "plain", at_s=1.001))
        made.deliveries = [delivered(2, "plain"), delivered(1, "plain")]
        assert rules(made) == ["order"]

    def test_d7_dead_letters_in_the_order_of_their_death(self) -> None:
        made = history(published(1, "lettered"), published(2, "lettered", at_s=1.001))
        made.deliveries = [
            *(delivered(message, "lettered", "dead") for message in (2, 1)),
            *(delivered(message, "lettered", "copy") for message in (1, 2)),
        ]
        assert rules(made) == ["D7"]
        made.touched["lettered"] = None
        assert rules(made) == []

    def test_confirmed_before_published_is_before_for_everyone(self) -> None:
        made = history(published(1, "plain", stream=1), published(2, "plain", stream=2, at_s=1.5))
        made.deliveries = [delivered(2, "plain"), delivered(1, "plain")]
        assert rules(made) == ["order"]

    def test_concurrent_publishers_have_no_order(self) -> None:
        made = history(published(1, "plain", stream=1), published(2, "plain", stream=2, at_s=1.005))
        made.deliveries = [delivered(2, "plain"), delivered(1, "plain")]
        assert rules(made) == []

    def test_redeliveries_may_come_at_any_time(self) -> None:
        made = history(published(1, "plain"), published(2, "plain", at_s=1.001))
        made.deliveries = [delivered(2, "plain"), delivered(1, "plain", redelivered=True)]
        assert rules(made) == []


class TestDeadlines:
    def test_t5_nothing_is_handed_out_past_its_deadline(self) -> None:
        made = history()
        made.decisions = [Decision(SECOND, 1, 3, 1_001, 1_000)]
        assert rules(made) == ["T5"]
        made.decisions = [Decision(SECOND, 1, 3, 1_000, 1_000), Decision(SECOND, 1, 3, 5_000, -1)]
        assert rules(made) == []

    def test_t5_dead_before_its_time_in_true_time(self) -> None:
        made = history(published(1, "lettered", at_s=54.2))
        made.deliveries = [delivered(1, "lettered", "dead"), delivered(1, "lettered", "copy")]
        assert rules(made) == ["T5 early", "T5 early"]
        assert rules(made, Tolerance(early_ms=300)) == []
        assert rules(made, Tolerance(early_ms=None)) == []

    def test_t5_dead_before_its_time_on_the_shard_clock(self) -> None:
        made = history(published(1, "lettered", clocks_ms=(10_000,)))
        made.deliveries = [
            delivered(1, "lettered", "dead", source_clock_ms=10_999),
            delivered(1, "lettered", "copy", source_clock_ms=11_000),
        ]
        assert rules(made) == ["T5 early"]

    def test_t5_late_in_a_calm_cluster(self) -> None:
        made = history(published(1, "timed", at_s=40))
        made.deliveries = [delivered(1, "timed", at_s=43, holder="a", settled=ACK)]
        assert rules(made) == ["T5 late"]
        made.deliveries = [delivered(1, "timed", at_s=40.9, holder="a", settled=ACK)]
        assert rules(made) == []


def gone(at_s: float, queue: str = "leased") -> Disappearance:
    return Disappearance(queue, 9, int(at_s * SECOND), "expired")


class TestLeases:
    @pytest.mark.parametrize("kind", [GET, DECLARE])
    def test_l4_not_before_a_whole_period_after_a_renewal(self, kind: str) -> None:
        made = history()
        made.renewals = [Renewal("leased", kind, 10 * SECOND, 10 * SECOND + 5)]
        made.disappearances = [gone(14.9)]
        assert rules(made) == ["L4"]
        made.disappearances = [gone(15.1)]
        assert rules(made) == []

    def test_l4_clocks_may_drift(self) -> None:
        made = history()
        made.renewals = [Renewal("leased", GET, 10 * SECOND, 10 * SECOND + 5)]
        made.disappearances = [gone(14.998)]
        assert rules(made) == ["L4"]
        assert rules(made, Tolerance(drift_ppm=300)) == []

    def test_l3_not_while_a_consumer_is_attached(self) -> None:
        made = history()
        made.attachments = [Attachment("leased", "c", SECOND, SECOND, None)]
        made.disappearances = [gone(40)]
        assert rules(made) == ["L3"]

    def test_l3_a_whole_period_after_the_last_consumer(self) -> None:
        made = history()
        made.attachments = [Attachment("leased", "c", SECOND, SECOND, 20 * SECOND)]
        made.disappearances = [gone(24)]
        assert rules(made) == ["L3"]
        made.disappearances = [gone(25.1)]
        assert rules(made) == []

    def test_a_queue_declared_anew_says_nothing_of_the_old_one(self) -> None:
        made = history()
        made.renewals = [Renewal("leased", DECLARE, 10 * SECOND, 12 * SECOND)]
        made.disappearances = [gone(11)]
        assert rules(made) == []

    def test_a_queue_without_a_lease_stays(self) -> None:
        made = history()
        made.disappearances = [gone(40, "plain")]
        assert rules(made) == ["L4"]
        made.removals = [Removal("plain", 39 * SECOND, None)]
        assert rules(made) == []

    def test_l4_a_consumer_in_doubt_may_hold_its_queue_until_its_client_lets_go(self) -> None:
        made = history()
        made.present_at_end = ["leased", "plain"]
        held = Attachment("leased", "h", 10 * SECOND, 10 * SECOND, released_us=40 * SECOND)
        made.attachments = [held]
        assert rules(made) == ["L4 late"]
        held.in_doubt = True
        assert rules(made) == []
        held.in_doubt, held.latest_release_us = False, made.ended_us - SECOND // 10
        assert rules(made) == []
        held.latest_release_us = 41 * SECOND
        assert rules(made) == ["L4 late"]

    def test_l4_a_lease_that_ran_out_is_ended(self) -> None:
        made = history()
        made.present_at_end = ["leased", "plain"]
        made.renewals = [Renewal("leased", GET, 40 * SECOND, 40 * SECOND)]
        assert rules(made) == ["L4 late"]
        made.renewals = [Renewal("leased", GET, 56 * SECOND, 56 * SECOND)]
        assert rules(made) == []
        made.renewals = []
        made.attachments = [Attachment("leased", "c", SECOND, SECOND, None)]
        assert rules(made) == []


class TestLimits:
    def test_what_a_limit_kills_is_owed_to_the_dead_letter_queue(self) -> None:
        for queue, reason in (("short", MAXLEN), ("tried", DELIVERY_LIMIT)):
            made = history(published(1, queue))
            assert rules(made) == ["lost"]
            made.deliveries = [delivered(1, queue, "dead", reason=reason)]
            assert rules(made) == []

    def test_without_a_dead_letter_queue_it_may_be_gone(self) -> None:
        assert rules(history(published(1, "short.mute"))) == []

    def test_a_queue_that_refuses_drops_nothing(self) -> None:
        assert rules(history(published(1, "full"))) == ["lost"]

    @pytest.mark.parametrize(("queue", "reason"), [("worked", MAXLEN), ("short", DELIVERY_LIMIT), ("tried", MAXLEN)])
    def test_a_queue_without_that_limit_kills_nobody_with_it(self, queue: str, reason: str) -> None:
        made = history(published(1, queue))
        made.deliveries = [delivered(1, queue, "dead", reason=reason)]
        assert "invented" in rules(made)

    def test_what_was_refused_in_the_calm_must_not_come(self) -> None:
        refused = published(1, "full", at_s=40, outcome=REFUSED)
        made = history(refused)
        assert rules(made) == []
        made.deliveries = [delivered(1, "full")]
        assert rules(made) == ["refused"]

    def test_before_the_calm_a_nack_may_mean_that_nobody_knows(self) -> None:
        made = history(published(1, "full", at_s=20, outcome=REFUSED))
        made.deliveries = [delivered(1, "full")]
        assert rules(made) == []

    def test_the_other_queues_of_a_refused_publish_have_it(self) -> None:
        made = history(published(1, "full", "plain", "short", at_s=40, outcome=REFUSED))
        assert rules(made) == ["refused"]
        made.deliveries = [delivered(1, "plain")]
        assert rules(made) == []

    def test_nobody_is_refused_where_no_queue_refuses(self) -> None:
        made = history(published(1, "plain", at_s=40, outcome=REFUSED))
        made.deliveries = [delivered(1, "plain")]
        assert rules(made) == ["refused"]


class TestTransactions:
    """One that takes message 1 of a queue for message 2, and publishes 3 and 4 to another."""

    @staticmethod
    def traded(outcome: str, *deliveries: Delivery) -> list[str]:
        places = ((2, "plain"), (3, "dead"), (4, "dead"))
        given = [published(number, queue, outcome=outcome) for number, queue in places]
        made = history(published(1, "plain", at_s=0.5), *given)
        made.exchanges = [Trade("plain", None, 1, ()), Trade("plain", 1, 2, (3, 4))]
        taken = delivered(1, "plain", at_s=1, holder="trader", settled=ACK)
        made.deliveries = [taken, *deliveries]
        return rules(made)

    def test_all_of_it_or_nothing(self) -> None:
        everything = [delivered(2, "plain"), delivered(3, "dead"), delivered(4, "dead")]
        assert self.traded(CONFIRMED, *everything) == []
        assert self.traded(IN_DOUBT, *everything) == []
        assert self.traded(IN_DOUBT, delivered(1, "plain", redelivered=True)) == []

    def test_the_other_queue_may_have_its_part_alone(self) -> None:
        part = [delivered(1, "plain", redelivered=True), delivered(3, "dead"), delivered(4, "dead")]
        assert self.traded(IN_DOUBT, *part) == []

    def test_taken_and_nothing_given(self) -> None:
        assert self.traded(IN_DOUBT) == ["transaction"]

    def test_given_and_nothing_taken(self) -> None:
        both = [delivered(1, "plain", redelivered=True), delivered(2, "plain")]
        assert self.traded(IN_DOUBT, *both) == ["transaction"]

    def test_a_part_of_what_goes_to_one_queue(self) -> None:
        part = [delivered(2, "plain"), delivered(3, "dead")]
        assert self.traded(IN_DOUBT, *part) == ["transaction"]

    def test_what_was_rolled_back(self) -> None:
        made = history(published(1, "plain", outcome=ROLLED_BACK))
        assert rules(made) == []
        made.deliveries = [delivered(1, "plain")]
        assert rules(made) == ["transaction"]


def test_order_counts_in_each_priority() -> None:
    first, second, third = (published(number, "ranked") for number in (1, 2, 3))
    first.priority = third.priority = 1
    made = history(first, second, third)
    made.deliveries = [delivered(1, "ranked"), delivered(3, "ranked"), delivered(2, "ranked")]
    assert rules(made) == []
    made.deliveries = [delivered(3, "ranked"), delivered(1, "ranked"), delivered(2, "ranked")]
    assert rules(made) == ["order"]


def test_d6_who_has_a_message_gets_it_again_only_after_its_node_lost_its_session() -> None:
    """A get's answer is on its way when the session of its node ends: the message is got once more by the same one."""
    twice = [
        delivered(1, "plain", at_s=10.0, holder="getter"),
        delivered(1, "plain", at_s=10.1, holder="getter", redelivered=True),
    ]
    for node, shard, lost_s, expected in (
        (2, 3, 9.95, False), (2, 4, 9.95, True), (1, 3, 9.95, True), (2, 3, 9.85, True), (2, 3, 10.06, True)
    ):  # fmt: skip
        made = history(published(1, "plain"))
        for delivery, left_s in zip(twice, (9.9, 10.05), strict=True):
            made.deliveries.append(replace(delivery, node=2, left_us=int(left_s * SECOND)))
        made.shards["plain"] = {3: None}
        made.lost_sessions.append((int(lost_s * SECOND), node, shard))
        assert ("duplicate" in rules(made)) == expected, (node, shard, lost_s)


AWAITED = RunTopology.of([QueuePlan("awaited", allow_schedule=True)])


def cancelled(outcome: str, at_s: float, *messages: Delivery, delay_ms: int = 5_000) -> list[str]:
    """What is wrong where message 1, published at 1 s, is delivered like this and cancelled at a time."""
    publish = published(1, "awaited")
    publish.delay_ms = delay_ms
    made = history(publish)
    made.deliveries += messages
    made.cancels.append(Cancel(1, "awaited", int(at_s * SECOND), outcome, int(at_s * SECOND) + 10_000))
    return [violation.rule for violation in check(made, AWAITED, Tolerance())]


def test_s4_what_is_cancelled_may_be_missing_and_must_not_come() -> None:
    """S4."""
    came = delivered(1, "awaited", at_s=7, settled=ACK)
    assert cancelled(CONFIRMED, 2) == []
    assert cancelled(IN_DOUBT, 2) == []
    assert cancelled(IN_DOUBT, 2, came) == []
    assert cancelled(RETURNED, 2) == ["lost"]
    assert cancelled(CONFIRMED, 2, came) == ["S4 cancelled"]


def test_s4_what_must_have_waited_is_not_answered_as_unknown() -> None:
    """S4."""
    came = delivered(1, "awaited", at_s=7, settled=ACK)
    assert cancelled(RETURNED, 2, came) == ["S4 waiting"]
    assert cancelled(RETURNED, 6.5, came) == []
    assert cancelled(RETURNED, 0.5, came) == []


def rescheduled(*changes: Cancel, came: Delivery) -> list[str]:
    """What is wrong where message 1, published at 1 s to be due at 6 s, is changed like this and comes."""
    publish = published(1, "awaited")
    publish.delay_ms = 5_000
    made = history(publish)
    made.cancels += changes
    made.deliveries.append(came)
    return [violation.rule for violation in check(made, AWAITED, Tolerance())]


def change(at_s: float, delay_ms: int, outcome: str = CONFIRMED, clock_ms: int = -1) -> Cancel:
    at_us = int(at_s * SECOND)
    return Cancel(1, "awaited", at_us, outcome, at_us + 10_000, delay_ms, clock_ms)


def test_s3_s4_what_is_rescheduled_comes_no_sooner_than_it_is_due_then() -> None:
    """S3, S4: not by its first time; of several changes by the last, or by one that is in doubt."""
    at_4_s = delivered(1, "awaited", at_s=4, settled=ACK)
    assert rescheduled(came=at_4_s) == ["S3 early"]
    assert rescheduled(change(2, 1_500), came=at_4_s) == []
    assert rescheduled(change(2, 2_500), came=at_4_s) == ["S3 early"]
    assert rescheduled(change(2, 1_500, RETURNED), came=at_4_s) == ["S3 early", "S4 waiting"]
    assert rescheduled(change(2, 9_000), change(3, 500), came=at_4_s) == []
    assert rescheduled(change(2, 500), change(2.4, 9_000), came=at_4_s) == ["S3 early"]
    assert rescheduled(change(2, 500, IN_DOUBT), change(2.4, 9_000), came=at_4_s) == []
    at_7_s = delivered(1, "awaited", at_s=7, settled=ACK)
    assert rescheduled(change(2, 9_000), came=at_7_s) == ["S3 early"]


def test_s3_what_is_rescheduled_comes_no_sooner_on_the_shard_clock() -> None:
    """S3: true time says nothing where clocks were stepped."""
    for clock_ms, expected in ((2_499, ["S3 early"]), (2_500, [])):
        came = delivered(1, "awaited", at_s=7, settled=ACK, source_clock_ms=clock_ms)
        assert rescheduled(change(2, 1_500, clock_ms=1_000), came=came) == expected


def test_s4_what_is_cancelled_is_not_rescheduled() -> None:
    """S4."""
    publish = published(1, "awaited")
    publish.delay_ms = 5_000
    made = history(publish)
    made.cancels += [change(2, -1), change(3, 1_000)]
    assert [violation.rule for violation in check(made, AWAITED, Tolerance())] == ["S4 cancelled"]
    made.cancels = [change(2, 1_000), change(2.5, -1)]
    assert [violation.rule for violation in check(made, AWAITED, Tolerance())] == []
    made.cancels = [change(2, 1_000)]
    assert [violation.rule for violation in check(made, AWAITED, Tolerance())] == ["lost"]


WAITING = RunTopology.of(
    [
        QueuePlan("awaited", allow_schedule=True),
        QueuePlan("late", delayed_by="delaying"),
        QueuePlan("retried", retry_ms=400),
        QueuePlan("scoped", dead_letter_targets=("dead",), expires_anywhere=True),
        QueuePlan("dead"),
    ]
)


def judged(made: History, tolerance: Tolerance | None = None) -> list[str]:
    return [violation.rule for violation in check(made, WAITING, tolerance or Tolerance())]


@pytest.mark.parametrize("queue", ["awaited", "late"])
def test_s3_what_waits_comes_no_sooner_than_it_is_due(queue: str) -> None:
    """S3, S1: in true time as far as clocks may jump, and exactly on the clock of the shard."""
    for at_s, expected in ((5.9, ["S3 early"]), (6.0, [])):
        publish = published(1, queue)
        publish.delay_ms = 5_000
        made = history(publish)
        made.deliveries = [delivered(1, queue, at_s=at_s, settled=ACK)]
        assert judged(made) == expected
        assert judged(made, Tolerance(early_ms=200)) == []
        assert judged(made, Tolerance(early_ms=None)) == []
    for clock_ms, expected in ((5_999, ["S3 early"]), (6_000, [])):
        publish = published(1, queue, clocks_ms=(1_000,))
        publish.delay_ms = 5_000
        made = history(publish)
        made.deliveries = [delivered(1, queue, at_s=9, settled=ACK, source_clock_ms=clock_ms)]
        assert judged(made) == expected


@pytest.mark.parametrize("queue", ["awaited", "late"])
def test_s2_what_is_due_first_comes_first(queue: str) -> None:
    """S2, S1: of the same due time what was published first; whoever is due sooner may overtake."""
    for delays_ms, order, expected in (
        ((300, 300), (2, 1), ["S2 order"]), ((300, 300), (1, 2), []), ((300, 900), (2, 1), ["S2 order"]),
        ((900, 300), (2, 1), []),
    ):  # fmt: skip
        publishes = [published(1, queue), published(2, queue, at_s=1.001)]
        for publish, delay_ms in zip(publishes, delays_ms, strict=True):
            publish.delay_ms = delay_ms
        made = history(*publishes)
        made.deliveries = [delivered(number, queue) for number in order]
        assert judged(made) == expected, (delays_ms, order)
        for publish in publishes:
            publish.exact = False
        assert judged(made) == []


def test_s5_what_was_given_back_comes_no_sooner_than_its_retry() -> None:
    """S5: on the shard's clock; earlier only where the session of its node was lost."""
    for clock_ms, lost, expected in ((1_399, False, ["S5 early"]), (1_400, False, []), (1_399, True, [])):
        made = history(published(1, "retried"))
        first = delivered(1, "retried", at_s=2, holder="worker", settled=REQUEUE)
        first.settled_clock_ms, first.node, first.left_us = 1_000, 2, first.at_us
        made.deliveries = [first, delivered(1, "retried", redelivered=True, source_clock_ms=clock_ms)]
        if lost:
            made.lost_sessions.append((first.at_us + 1, 2, 1))
        assert judged(made) == expected


def test_x2_what_dies_anywhere_dies_in_order_of_deadlines() -> None:
    """X2: of the same channel, or where the first was confirmed before the second was published."""
    for ttls_ms, stream, order, expected in (
        ((300, 300), 1, (2, 1), ["X2 order"]), ((300, 900), 1, (2, 1), ["X2 order"]), ((900, 300), 1, (2, 1), []),
        ((300, 300), 1, (1, 2), []), ((300, 300), 2, (2, 1), ["X2 order"]),
    ):  # fmt: skip
        one, other = ttls_ms
        made = history(
            published(1, "scoped", ttl_ms=one), published(2, "scoped", ttl_ms=other, at_s=1.5, stream=stream)
        )
        made.deliveries = [delivered(number, "scoped", "dead") for number in order]
        assert judged(made) == expected, (ttls_ms, stream, order)
        made.touched["scoped"] = None
        assert judged(made) == []
