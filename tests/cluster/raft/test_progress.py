"""What a leader makes of a follower's answers (figure 2: nextIndex, matchIndex), how far it sends ahead."""

import pytest

from mayfly.cluster.raft.inflights import Inflights
from mayfly.cluster.raft.messages import NO_LIMIT
from mayfly.cluster.raft.progress import Progress, ProgressState


def progress_at(match: int, following: int, state: int = ProgressState.PROBE) -> Progress:
    progress = Progress(match, following, Inflights(2, NO_LIMIT), is_learner=False)
    progress.state = state
    return progress


def test_probing_sends_one_message_at_a_time() -> None:
    progress = progress_at(0, 5)
    progress.sent_entries(0, 0)
    assert not progress.is_paused(), "an empty one doesn't count"
    progress.sent_entries(3, 30)
    assert progress.is_paused()
    assert progress.next == 5
    assert progress.acknowledge(7)
    assert not progress.is_paused()
    assert (progress.match, progress.next) == (7, 8)


def test_replicating_sends_ahead_until_the_window_is_full() -> None:
    progress = progress_at(4, 5, ProgressState.REPLICATE)
    progress.sent_entries(1, 10)
    assert (progress.next, progress.is_paused()) == (6, False)
    progress.sent_entries(2, 10)
    assert (progress.next, progress.is_paused()) == (8, True)
    progress.inflights.free_to(5)
    assert not progress.inflights.full()


def test_an_old_acknowledgement_changes_nothing() -> None:
    progress = progress_at(4, 9, ProgressState.REPLICATE)
    assert not progress.acknowledge(4)
    assert not progress.acknowledge(3)
    assert (progress.match, progress.next) == (4, 9)


@pytest.mark.parametrize(
    ("state", "match", "following", "rejected", "hint", "expected"),
    [
        (ProgressState.REPLICATE, 5, 10, 5, 5, None),  # acknowledged meanwhile
        (ProgressState.REPLICATE, 5, 10, 9, 9, 6),
        (ProgressState.PROBE, 0, 10, 8, 8, None),  # speaks of another message
        (ProgressState.PROBE, 0, 10, 9, 9, 9),
        (ProgressState.PROBE, 0, 10, 9, 2, 3),
        (ProgressState.PROBE, 0, 1, 0, 0, None),  # nothing is before it
        (ProgressState.PROBE, 4, 5, 4, 2, None),  # it has lost what it acknowledged: not asked again at once
        (ProgressState.PROBE, 4, 10, 9, 1, 5),  # never back behind what matched
    ],
)
def test_refusals(
    state: int, match: int, following: int, rejected: int, hint: int, expected: int | None
) -> None:
    progress = progress_at(match, following, state)
    assert progress.refuse(rejected, hint) == (expected is not None)
    assert progress.next == (following if expected is None else expected)


def test_after_a_snapshot_probing_goes_on_behind_it() -> None:
    progress = progress_at(1, 2)
    progress.become_snapshot(10)
    assert progress.is_paused()
    progress.become_probe()
    assert (progress.next, progress.pending_snapshot) == (11, 0)


def test_after_a_failed_snapshot_probing_goes_on_from_the_match() -> None:
    progress = progress_at(1, 2)
    progress.become_snapshot(10)
    progress.pending_snapshot = 0
    progress.become_probe()
    assert progress.next == 2


def test_commit_indices_are_told_only_when_news() -> None:
    progress = progress_at(4, 6, ProgressState.REPLICATE)
    progress.sent_commit = 3
    assert progress.can_bump_commit(4)
    assert not progress.can_bump_commit(3)
    progress.sent_commit = 5
    assert not progress.can_bump_commit(9), "all that was sent is told to be committed"


def test_a_copy_shares_nothing_unless_asked_to() -> None:
    progress = progress_at(4, 5, ProgressState.REPLICATE)
    twin = progress.copy(share_inflights=False)
    progress.sent_entries(1, 10)
    assert twin.inflights.count() == 0
    assert progress.copy(share_inflights=True).inflights.count() == 1


def test_the_window_counts_messages_and_bytes() -> None:
    window = Inflights(3, 100)
    window.add(5, 60)
    assert not window.full()
    window.add(6, 60)
    assert window.full(), "the message that crosses the limit still goes"
    window.free_to(4)
    assert window.count() == 2
    window.free_to(5)
    assert (window.count(), window.full()) == (1, False)
    window.add(7, 1)
    window.add(8, 1)
    assert window.full()
    window.free_to(9)
    assert window.count() == 0
