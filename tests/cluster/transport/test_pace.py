"""Snapshots go no faster than they may, all peers' together."""

import asyncio
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.transport.pace import SAVED_UP_S, BytePace
from tests.cluster.transport.members import Members, members, run, until
from tests.cluster.transport.snapshots import GROUP, MadeSnapshot

MB = 1 << 20


@given(
    st.integers(1, 1000),
    st.lists(st.tuples(st.integers(1, 500), st.floats(0, 2)), min_size=1, max_size=40),
    st.integers(1, 5),
)
def test_in_no_period_more_goes_than_may(rate: int, pieces: list[tuple[int, float]], senders: int) -> None:
    """Several who each wait before they send, and then for a while of their own."""
    pace, now_s = BytePace(rate), 0.0
    free_s, sent = [0.0] * senders, list[tuple[float, int]]()
    for size, pause_s in pieces:
        sender = min(range(senders), key=lambda one: free_s[one])
        now_s = max(now_s, free_s[sender])
        goes_s = now_s + pace.take(size, now_s)
        sent.append((goes_s, size))
        free_s[sender] = goes_s + pause_s
    largest = max(size for size, _ in pieces)
    for first, (begin_s, _) in enumerate(sent):
        for last in range(first, len(sent)):
            period_s = sent[last][0] - begin_s
            if period_s >= 0:
                total = sum(size for at_s, size in sent if begin_s <= at_s <= sent[last][0])
                assert total <= rate * (period_s + SAVED_UP_S) + largest + 1e-6


def test_a_piece_waits_for_those_before_it_and_no_longer() -> None:
    pace = BytePace(100)
    assert [pace.take(50, 10.0) for _ in range(3)] == [0.0, 0.25, 0.75]
    assert pace.take(50, 11.25) == 0.0, "all were through by then"
    assert pace.take(1000, 100.0) == 0.0, "the first after a rest goes at once, however large"
    assert pace.take(1, 100.0) == 10 - SAVED_UP_S


def test_without_a_limit_nothing_waits() -> None:
    pace = BytePace(0)
    assert not any(pace.take(1 << 40, 0.0) for _ in range(100))


def test_two_snapshots_share_the_pace(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with members() as group:
            took_s, sent_bytes = await seconds_for_two(group, tmp_path, 8 * MB)
            # What was saved up, and the last piece of each, wait for nobody.
            assert took_s >= (sent_bytes - 2 * MB) / (8 * MB) - SAVED_UP_S

    run(scenario())


async def seconds_for_two(group: Members, folder: Path, rate: int) -> tuple[float, int]:
    """How long snapshots of 4 MB to two peers take, and how much they were."""
    sender = await group.add(1, snapshot_bytes_per_second=rate)
    for id in (2, 3):
        await group.add(id, folder=folder / str(id))
    await group.introduce()
    await until(lambda: len(sender.up) == 2, "connections")
    made, loop = MadeSnapshot(64), asyncio.get_running_loop()
    began_s = loop.time()
    for peer in (2, 3):
        frame = Frame(2)
        frame.raft.append((GROUP, made.message(receiver=peer)))
        sender.transport.send(peer, frame)
    await until(lambda: len(sender.snapshots) == 2, "both snapshots")
    assert all(arrived for _, _, arrived in sender.snapshots)
    return loop.time() - began_s, 2 * made.body.total_bytes
