"""How soon what is due has gone, from outside of a quiet cluster on virtual time (RULES T7, S3)."""

from __future__ import annotations

from simulation.cluster.events import MILLISECOND_US
from tests.simulation.stage import TICK_MS, Stage

EXPIRY_TICK_MS = 250
COMMIT_MS = 40
"""An entry is committed, applied and seen everywhere within this."""


def gone_after_ms(stage: Stage, since_us: int, deadlines_ms: list[int]) -> list[int]:
    """How long after their deadlines (from that moment on, rising) messages of `q` have left it at its leader."""
    late_ms: list[int] = []
    while len(late_ms) < len(deadlines_ms):
        stage.pass_ms(1)
        left = stage.ready("q")[stage.leader_of(1) - 1]
        now_ms = (stage.queue.now_us - since_us) // MILLISECOND_US
        late_ms += [now_ms - due_ms for due_ms in deadlines_ms[len(late_ms) : len(deadlines_ms) - left]]
        assert now_ms < deadlines_ms[-1] + 1_000
    return late_ms


def test_t7_what_is_due_after_a_quiet_while_goes_at_the_next_tick_of_the_node() -> None:
    """T7: nobody waits for the rest of an expiry tick in which nothing was due."""
    stage = Stage()
    stage.declare(1, "q")
    late_ms: list[int] = []
    for number in range(8):
        sent_us = stage.queue.now_us
        stage.publish(1, "q", b"m", ttl_ms=400 + 17 * number)
        confirmed_us = stage.queue.now_us
        late_ms += gone_after_ms(stage, confirmed_us, [400 + 17 * number])
        assert stage.queue.now_us - sent_us >= (400 + 17 * number) * MILLISECOND_US
    assert max(late_ms) <= TICK_MS + COMMIT_MS


def test_t7_what_is_due_all_the_time_is_gone_within_an_expiry_tick_committed() -> None:
    """T7: the tick is how late what is due has gone at the most, not how late somebody looks for it; and what is due in
    between goes together."""
    stage = Stage()
    stage.declare(1, "q")
    since_us = stage.queue.now_us
    deadlines_ms = [600 + 20 * number for number in range(100)]
    # Each is published at the same moment, so that its TTL is its deadline.
    for due_ms in deadlines_ms:
        stage.at[1].publish("", "q", b"m", stage.expiring(due_ms))
    before = sum(stage.applied())
    late_ms = gone_after_ms(stage, since_us, deadlines_ms)
    assert max(late_ms) <= EXPIRY_TICK_MS * 80 // 100 + COMMIT_MS
    entries = sum(stage.applied()) - before
    assert entries < 100 // 4, "each went alone"
