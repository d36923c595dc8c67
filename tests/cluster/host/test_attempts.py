"""When a stream to a peer is tried again, and what a node says that is none yet."""

from __future__ import annotations

import logging

import pytest

from mayfly.cluster import limits
from mayfly.cluster.host.attempts import Attempts
from mayfly.cluster.transport.join_listener import JoinListener
from mayfly.cluster.transport.joining import JoinAnswer
from tests.cluster.transport.members import members, run, until

NO_END_MS = 600_000


def test_pauses_double_up_to_a_bound_and_begin_anew_once_the_stream_was_up() -> None:
    attempts = Attempts(50, 500, 5_000)
    assert [attempts.ended(refused=False) for _ in range(6)] == [50, 100, 200, 400, 500, 500]
    attempts.was_up()
    assert attempts.ended(refused=False) == 50


def test_a_refusal_is_not_tried_again_soon_and_leaves_the_other_pauses_alone() -> None:
    attempts = Attempts(50, 500, 5_000)
    assert attempts.ended(refused=True) == attempts.ended(refused=True) == 5_000
    assert attempts.ended(refused=False) == 50


def test_a_peer_that_comes_by_itself_is_tried_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listened there, and the next attempt would be in ten minutes."""
    monkeypatch.setattr(limits, "RECONNECT_FIRST_MS", NO_END_MS)
    monkeypatch.setattr(limits, "RECONNECT_LAST_MS", NO_END_MS)
    # A busy machine may keep the peer from answering, and then there is no further attempt.
    monkeypatch.setattr(limits, "CONNECT_TIMEOUT_MS", NO_END_MS)

    async def scenario() -> None:
        async with members() as group:
            one, gone = await group.add(1), await group.add(2)
            address = gone.address
            await gone.transport.stop()
            group.all.remove(gone)
            await one.transport.set_peers({2: address})
            link = one.transport._links[2]
            await until(lambda: link._attempts.count == 1 and bool(link._complaint), "the first attempt to fail")
            two = await group.add(2, port=int(address.rpartition(":")[2]))
            await two.transport.set_peers({1: one.address})
            await until(lambda: 2 in one.up, "the stream back")

    run(scenario())


def test_a_node_that_still_asks_for_a_place_refuses_nobody(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Founders begin one after the other: who is a node already comes again in a moment, and not in five seconds."""
    monkeypatch.setattr(limits, "REFUSED_RETRY_MS", NO_END_MS)
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        async with members() as group:
            one, gone = await group.add(1), await group.add(2)
            address = gone.address
            await gone.transport.stop()
            group.all.remove(gone)
            listener = JoinListener(address, None, lambda _: JoinAnswer.refused("nobody yet", True))
            await listener.open()
            try:
                await one.transport.set_peers({2: address})
                link = one.transport._links[2]
                await until(lambda: link._attempts.count > 2, "more attempts")
            finally:
                await listener.close()

    run(scenario())
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
