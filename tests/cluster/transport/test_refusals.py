"""When a peer that refuses connections has ended."""

from mayfly.cluster import limits
from mayfly.cluster.transport.refusals import Refusals

LONG_MS = limits.GONE_AFTER_MS


def broken() -> Refusals:
    """The stream was up once."""
    refusals = Refusals()
    assert not refusals.sought, "a peer that was never reached is not looked for"
    refusals.was_up()
    return refusals


def test_a_peer_that_refuses_for_long_has_ended_and_is_said_so_once() -> None:
    refusals = broken()
    assert [refusals.was_refused(1_000 + ms, 7) for ms in (0, 50, 150, LONG_MS - 1)] == [False] * 4
    assert refusals.sought
    assert refusals.was_refused(1_000 + LONG_MS, 7)
    assert not refusals.sought


def test_one_refusal_says_nothing_however_late_it_comes() -> None:
    refusals = broken()
    assert not refusals.was_refused(10 * LONG_MS, 0)
    assert refusals.sought


def test_a_frame_between_refusals_begins_the_wait_anew() -> None:
    refusals = broken()
    assert not refusals.was_refused(0, 7)
    assert not refusals.was_refused(LONG_MS, 8)
    assert not refusals.was_refused(2 * LONG_MS - 1, 8)
    assert refusals.was_refused(2 * LONG_MS, 8)


def test_an_attempt_that_is_not_refused_begins_the_wait_anew() -> None:
    refusals = broken()
    assert not refusals.was_refused(0, 7)
    refusals.was_taken()
    assert not refusals.was_refused(LONG_MS, 7)
    assert refusals.was_refused(2 * LONG_MS, 7)


def test_a_stream_that_was_up_again_begins_the_wait_anew() -> None:
    refusals = broken()
    assert not refusals.was_refused(0, 7)
    refusals.was_up()
    assert not refusals.was_refused(LONG_MS, 7)
    refusals.was_refused(2 * LONG_MS, 7)
    refusals.was_up()
    assert refusals.sought, "it may end again"
