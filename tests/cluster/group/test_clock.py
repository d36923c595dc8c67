"""The clocks of a group: RULES C2, C3, L6, L7, L8."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mayfly.cluster.group.clock import GroupClock, MemberClocks
from mayfly.cluster.host.clocks_ahead import KEPT_ANEW_MS
from mayfly.node.shell.data_folder import DataFolder
from mayfly.node.shell.kept_ahead import KeptAhead
from mayfly.node.shell.process_clock import ProcessClock, forget_clock, kept_clock, this_boot
from tests.cluster.host.three_hosts import Cluster


@pytest.mark.parametrize("hours", [-5, 5])
def test_the_process_clock_ignores_steps_of_the_wall_clock(hours: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """RULES C2, T5: nothing expires early or late because somebody set the machine's clock."""
    clock = ProcessClock()
    before_ms, wall_ns = clock.now_ms(), time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns + hours * 3_600_000_000_000)
    assert 0 <= clock.now_ms() - before_ms < 60_000


@pytest.mark.parametrize("hours", [-5, 5])
def test_t14_a_process_goes_on_with_the_clock_of_the_one_before(
    hours: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the same boot; after another start of the machine, or with the file gone, the wall clock is read."""
    folder = DataFolder(tmp_path)
    clock = kept_clock(folder, "boot-1")
    wall_ns = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns + hours * 3_600_000_000_000)
    assert 0 <= kept_clock(folder, "boot-1").now_ms() - clock.now_ms() < 60_000
    step_ms = hours * 3_600_000
    assert abs(kept_clock(folder, "boot-2").now_ms() - clock.now_ms() - step_ms) < 60_000
    assert abs(kept_clock(folder, "boot-2").now_ms() - clock.now_ms() - step_ms) < 60_000, "it was kept"
    forget_clock(folder)
    assert not folder.clock.exists()
    folder.clock.write_text("boot-3 nonsense")
    assert abs(kept_clock(folder, "boot-3").now_ms() - clock.now_ms() - step_ms) < 60_000
    assert abs(kept_clock(DataFolder(tmp_path / "no folder"), "boot-3").now_ms() - clock.now_ms() - step_ms) < 60_000
    assert abs(kept_clock(folder, "").now_ms() - clock.now_ms() - step_ms) < 60_000, "nothing is known of the boot"


def test_t14_a_boot_has_a_name() -> None:
    assert this_boot() == this_boot() != ""


def test_C3_a_clock_that_most_others_contradict() -> None:
    clocks = MemberClocks(bound_ms=2000)
    for offset_ms, contradicted in ((-2001, True), (-1999, False), (1999, False), (2001, True)):
        clocks.observe(2, 10_000_000 + offset_ms, 10_000_000)
        clocks.observe(3, 10_000_000 + offset_ms, 10_000_000)
        assert clocks.contradicted() is contradicted
    clocks.observe(3, 10_000_000, 10_000_000)
    assert not clocks.contradicted(), "one of three is wrong, and it is another"


def test_C3_a_node_far_ahead_of_both_peers_stamps_without_the_excess() -> None:
    clocks = MemberClocks(bound_ms=2000)
    now = 10_000_000
    clocks.observe(2, now - 3_600_000, now)
    clocks.observe(3, now - 3_600_010, now)
    assert clocks.excess_ms() == 3_600_000 - 2000
    assert clocks.trusted(now) == now - 3_600_000 + 2000


def test_C3_one_peer_that_is_behind_holds_nobody_back() -> None:
    clocks = MemberClocks(bound_ms=2000)
    clocks.observe(2, 0, 10_000_000)
    clocks.observe(3, 10_000_001, 10_000_000)
    assert clocks.excess_ms() == 0


def test_C3_with_one_peer_the_lower_clock_counts() -> None:
    clocks = MemberClocks(bound_ms=2000)
    clocks.observe(2, 5_000, 10_000)
    assert clocks.excess_ms() == 3000
    clocks.away(2)
    assert clocks.excess_ms() == 3000
    clocks.forget(2)
    assert clocks.excess_ms() == 0


def test_C3_a_member_that_has_gone_holds_a_clock_back_but_outvotes_nobody() -> None:
    """Its vote may be what makes this node lead; its replica can't be what is waited for."""
    clocks = MemberClocks(bound_ms=2000)
    for peer in (2, 3):
        clocks.observe(peer, 5_000, 3_600_000)
    assert clocks.outvoted([1, 2, 3])
    for peer in (2, 3):
        clocks.away(peer)
        assert not clocks.outvoted([1, 2, 3])
        assert clocks.offset_ms(peer) is None
    assert not clocks.contradicted()
    assert clocks.trusted(3_600_000) == 5_000 + 2000
    clocks.observe(2, 3_600_100, 3_600_100)
    assert clocks.trusted(3_600_100) == 3_600_100, "set right meanwhile"


def test_C3_a_leader_whose_voters_have_died_does_not_go_by_its_own_clock() -> None:
    cluster = Cluster(3)
    cluster.run_until(lambda: cluster.leader() != 0)
    host, now_ms = cluster.nodes[1].host, cluster.now + 3_600_000
    for peer in (2, 3):
        host.clocks.observe(peer, cluster.now, now_ms)
        host.peer_down(peer, now_ms)
    assert host.clocks.excess_ms() == 3_600_000 - 2000


def test_C3_a_voter_whose_replica_is_damaged_outvotes_nobody() -> None:
    """It won't lead: were its clock to count, the one log that can win might never be allowed to stand."""
    clocks = MemberClocks(bound_ms=2000)
    for peer in (2, 3):
        clocks.observe(peer, 5_000, 10_000)
    assert clocks.outvoted([1, 2, 3])
    assert not clocks.outvoted([1, 2, 3], silent=[2])


def test_L7_a_follower_shows_the_led_clock_of_its_leaders_heartbeats() -> None:
    """RULES L7: in a quiet shard nothing is applied, and leases run all the same; a new leader's word counts alone."""
    clock = GroupClock()
    clock.applied(1_000, 500)
    assert clock.known_led_ms == 500
    clock.observed(1_200, 700, now_ms=9_000_000, term=3)
    assert (clock.known_led_ms, clock.led_ms) == (700, 500)
    clock.observed(1_300, 650, now_ms=9_000_100, term=4)
    assert clock.known_led_ms == 650
    clock.lead(now_ms=9_000_300, trusted_ms=9_000_300, term=5, last_term=5)
    clock.advance_led(9_000_310)
    assert clock.known_led_ms == clock.led_ms == 510


def test_C2_a_new_leader_continues_the_clock_it_has_heard_not_its_own() -> None:
    clock = GroupClock()
    clock.applied(1_000, 500)
    clock.observed(1_200, 700, now_ms=9_000_000)
    clock.lead(now_ms=9_000_300, trusted_ms=9_000_300)
    assert clock.current_ms(9_000_300) == 1_500
    assert clock.current_ms(9_000_400) == 1_600


def test_t14_a_heartbeat_that_waited_does_not_hold_the_clock_up() -> None:
    """RULES T14: what a frozen node finds when it goes on is old; the time since counts, though it leads next."""
    clock = GroupClock()
    clock.observed(1_000, 500, now_ms=5_000, term=2)
    clock.observed(1_100, 550, now_ms=5_900, term=2)
    assert clock.known_led_ms == 550
    clock.lead(now_ms=6_000, trusted_ms=6_000, term=3, last_term=2)
    assert clock.current_ms(6_000) == 2_000


@pytest.mark.parametrize(("later_ms", "term"), [(GroupClock.BEST_KEPT_MS + 1, 2), (100, 3)])
def test_C2_clocks_that_drift_and_new_leaders_are_followed(later_ms: int, term: int) -> None:
    clock = GroupClock()
    clock.observed(1_000, 500, now_ms=5_000, term=2)
    clock.observed(990 + later_ms, 600, now_ms=5_000 + later_ms, term=term)
    assert clock.current_ms(5_000 + later_ms) == 990 + later_ms


def test_C2_a_leader_without_any_word_of_the_clock_starts_from_the_trusted_one() -> None:
    clock = GroupClock()
    clock.lead(now_ms=5_000, trusted_ms=4_000)
    assert clock.current_ms(5_100) == 4_100


def test_L7_time_without_a_leader_is_not_charged() -> None:
    clock = GroupClock()
    clock.lead(0, 0)
    clock.advance_led(400)
    clock.follow()
    clock.lead(10_000, 10_000)
    clock.advance_led(10_100)
    assert clock.led_ms == 500


def test_L7_a_frozen_leader_charges_no_more_than_one_step() -> None:
    clock = GroupClock()
    clock.lead(0, 0)
    clock.advance_led(60_000)
    assert clock.led_ms == GroupClock.LONGEST_LED_STEP_MS


def test_L6_a_new_leader_continues_the_led_clock_of_the_old_one() -> None:
    clock = GroupClock()
    clock.applied(10, 1_000)
    clock.observed(4_000, 4_000, 50)
    clock.lead(60, 60)
    clock.advance_led(160)
    assert clock.led_ms == 4_100


def test_L4_the_led_clock_of_a_leader_that_others_came_after_does_not_count() -> None:
    clock = GroupClock()
    clock.observed(4_000, 4_000, 50, term=3)
    clock.applied(4_100, 3_600)  # by the leader of term 4, which had last heard of 3 500
    clock.lead(200, 200, term=5, last_term=4)
    assert clock.led_ms == 3_600
    clock.advance_led(300)
    clock.follow()
    assert clock.led_ms == 3_600
    clock.lead(400, 400, term=6, last_term=5)
    assert clock.led_ms == 3_700


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["apply", "observe", "lead", "follow", "led"]), st.integers(0, 10**7), st.integers(0, 500)
        ),
        max_size=40,
    )
)
def test_C2_the_clock_never_goes_back_for_a_leader(steps: list[tuple[str, int, int]]) -> None:
    clock = GroupClock()
    now, last = 0, 0
    leading = False
    for what, value, passed in steps:
        now += passed
        if what == "apply":
            clock.applied(value, value)
        elif what == "observe" and not leading:
            clock.observed(value, value, now)
        elif what == "lead" and not leading:
            clock.lead(now, value)
            leading, last = True, clock.time_ms
        elif what == "follow":
            clock.follow()
            leading = False
        elif what == "led":
            before = clock.led_ms
            clock.advance_led(now)
            assert clock.led_ms >= before
        if leading:
            assert clock.current_ms(now) >= last
            assert clock.current_ms(now) >= clock.time_ms
            last = clock.current_ms(now)


def test_t14_a_clock_that_is_ahead_goes_on_where_the_process_before_had_it() -> None:
    """What the last entry says is older by the outage."""
    clock = GroupClock()
    clock.applied(5_000_000, 0)
    clock.kept(term=3, ahead_ms=3_000_000)
    assert clock.ahead(2_500_000) == (3, 3_000_000), "for the process after this one, should it hear of no leader"
    clock.lead(now_ms=2_500_000, trusted_ms=2_500_000, term=4, last_term=3)
    assert clock.current_ms(2_500_100) == 5_500_100
    assert clock.ahead(2_500_100) == (4, 3_000_000)


def test_t5_what_was_kept_does_not_count_once_another_has_led() -> None:
    """That one may have gone on from less: messages that came under it would die early."""
    clock = GroupClock()
    clock.applied(5_000_000, 0)
    clock.kept(term=3, ahead_ms=3_000_000)
    clock.lead(now_ms=2_500_000, trusted_ms=2_500_000, term=5, last_term=4)
    assert clock.current_ms(2_500_100) == 5_000_100


def test_t5_what_was_kept_does_not_count_once_a_leader_was_heard() -> None:
    clock = GroupClock()
    clock.kept(term=3, ahead_ms=3_000_000)
    clock.observed(5_000_000, 0, now_ms=2_500_000, term=3)
    assert clock.ahead(2_500_000) == (3, 2_500_000)
    clock.lead(now_ms=2_500_100, trusted_ms=2_500_100, term=4, last_term=3)
    assert clock.current_ms(2_500_100) == 5_000_100


def test_t14_how_far_clocks_are_ahead_is_kept_for_the_boot_and_beside_its_clock(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    clock = kept_clock(folder, "boot-1")
    ahead = KeptAhead(folder, "boot-1", clock)
    ahead.keep({})
    assert (ahead.kept, os.listdir(tmp_path)) == ({}, ["clock"]), "nothing is worth a file"
    ahead.keep({0: (3, 3_600_000), 7: (5, 9_000)})
    again = KeptAhead(folder, "boot-1", kept_clock(folder, "boot-1"))
    assert again.kept == {0: (3, 3_600_000), 7: (5, 9_000)}
    again.keep({0: (3, 3_600_000 + KEPT_ANEW_MS), 7: (5, 9_000)})
    assert KeptAhead(folder, "boot-1", clock).kept == {0: (3, 3_600_000), 7: (5, 9_000)}, "not worth a write"
    again.keep({0: (4, 3_600_000)})
    assert KeptAhead(folder, "boot-1", clock).kept == {0: (4, 3_600_000)}
    assert KeptAhead(folder, "boot-2", clock).kept == {}
    assert KeptAhead(folder, "boot-1", ProcessClock(clock.origin_ns + 1)).kept == {}
    assert KeptAhead(folder, "", clock).kept == {}
    (tmp_path / "clocks-ahead").write_text(f"boot-1 {clock.origin_ns}\n0 nonsense\n")
    assert KeptAhead(folder, "boot-1", clock).kept == {}
