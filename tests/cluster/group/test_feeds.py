"""What replicas keep for sessions of nodes without one: the same on all of them, and enough to go on anywhere."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mayfly.cluster.group.applying import Applying
from mayfly.cluster.group.fed_entry import FedEntry
from mayfly.cluster.group.feeds import Feeds, can_resume
from mayfly.cluster.group.own_session import OwnSession
from mayfly.cluster.group.sessions import (
    ENDED,
    ENTRY_HEADER,
    ENTRY_VERSION,
    FED,
    KIND_CLOSE,
    KIND_FED,
    KIND_SESSION,
    OPEN,
    encode_batch,
)
from simulation.cluster.host_machine import COMMAND, ChainMachine, Echo, encode_command
from tests.cluster.group.own_sessions import SETTINGS

DISTANT = 7
"""A node without a replica."""


class Nobody:
    def group_effects(self, group: int, effects: Any) -> None: ...
    def group_session_lost(self, group: int) -> None: ...
    def group_proposes(self, group: int) -> None: ...
    def group_applied(self, group: int) -> None: ...
    def group_taken_up(self, group: int) -> None: ...
    def group_given_up(self, group: int) -> None: ...


class Listener(Nobody):
    """Notes the numbers of the commands that it is told of."""

    def __init__(self, told: list[int]) -> None:
        self.told = told

    def group_effects(self, group: int, effects: Any) -> None:
        self.told += [echo.number for echo in effects]


def replica(node: int) -> Applying:
    session = OwnSession(1, node, 1, SETTINGS, Nobody(), None)
    session.is_told_by_replica()
    return Applying(session, ChainMachine(None, lambda index, data: None, lambda index, digest: None), None)


def payload(*batches: bytes) -> bytes:
    return ENTRY_HEADER.pack(ENTRY_VERSION, 1000, 1000) + b"".join(batches)


def batch(sequence: int, number: int, kind: int = KIND_FED, incarnation: int = 5, node: int = DISTANT) -> bytes:
    return encode_batch(kind, node, incarnation, sequence, encode_command(COMMAND, node * 100 + incarnation, number))


def shown(entries: Sequence[FedEntry]) -> list[object]:
    """Fed entries as what they say."""
    return [
        (it.index, it.answers, [(e.session, e.number, e.index) for e in it.effects if isinstance(e, Echo)], it.ended)
        for it in entries
    ]


def test_every_replica_keeps_the_same_from_the_first_fed_batch_on() -> None:
    first, second = replica(1), replica(2)
    for it in (first, second):
        it.apply(2, payload(batch(1, 1), batch(1, 1, KIND_SESSION, node=1)))
        it.apply(3, payload(batch(1, 1, KIND_SESSION, node=2)))
        it.apply(4, payload(batch(2, 2), batch(3, 3)))
    feeds = [it.feeds.get(DISTANT) for it in (first, second)]
    assert feeds[0] is not None and feeds[1] is not None
    assert shown(feeds[0].entries) == shown(feeds[1].entries)
    assert [(it.index, [sequence for sequence, _ in it.answers]) for it in feeds[0].entries] == [(2, [1]), (4, [2, 3])]
    assert [it.index for it in feeds[0].behind(2)] == [4]
    assert [it.index for it in feeds[0].behind(1)] == [2, 4]
    assert first.feeds.nodes() == [DISTANT], "nothing is kept for sessions that their own replicas tell"


def test_what_a_node_was_told_goes_and_the_rest_stays() -> None:
    it = replica(1)
    for number in range(1, 5):
        it.apply(number + 1, payload(batch(number, number)))
    it.feeds.is_told((DISTANT, 4), 5)
    it.feeds.is_told((DISTANT, 5), 3)
    feed = it.feeds.get(DISTANT)
    assert feed is not None and (feed.base, [entry.index for entry in feed.entries]) == (3, [4, 5])


def test_a_replica_from_a_snapshot_tells_from_there_on_and_not_from_before() -> None:
    it, other = replica(1), replica(2)
    it.apply(2, payload(batch(1, 1)))
    it.apply(3, payload(batch(2, 2)))
    state = None
    steps = it.state_steps()
    while state is None:
        state = steps.step()
    reading = other.reading(state)
    while not reading.step():
        pass
    other.restore(reading, 3)
    row, session = other.row(DISTANT), (DISTANT, 5)
    assert not can_resume(other.feeds.get(DISTANT), row, session, 2), "the entry at 3 is not kept here"
    assert can_resume(other.feeds.get(DISTANT), row, session, 3)
    for replicas in (it, other):
        replicas.apply(4, payload(batch(3, 3)))
    feeds = it.feeds.get(DISTANT), other.feeds.get(DISTANT)
    assert feeds[0] is not None and feeds[1] is not None
    assert shown(feeds[0].behind(3)) == shown(feeds[1].behind(3)) != []


def test_a_session_that_has_not_begun_misses_nothing_and_one_that_is_over_is_not_gone_on_with() -> None:
    session = (DISTANT, 5)
    assert can_resume(None, None, session, 0)
    assert can_resume(None, (DISTANT, 4, 9, OPEN), session, 0), "an earlier life of the node"
    assert not can_resume(None, (DISTANT, 5, 9, FED), session, 0)
    assert not can_resume(None, (DISTANT, 5, 9, ENDED), session, 0)


def test_the_end_of_a_session_is_told_behind_its_answers() -> None:
    it = replica(1)
    it.apply(2, payload(batch(1, 1), encode_batch(KIND_CLOSE, DISTANT, 5, 0, b"")))
    feed = it.feeds.get(DISTANT)
    assert feed is not None
    (entry,) = feed.entries
    assert [sequence for sequence, _ in entry.answers] == [1]
    assert entry.ended == (DISTANT, 5, 1, ENDED)


def test_a_session_that_its_own_replica_tells_again_is_kept_no_more() -> None:
    it = replica(1)
    it.apply(2, payload(batch(1, 1)))
    it.apply(3, payload(batch(2, 2, KIND_SESSION)))
    assert it.feeds.get(DISTANT) is None
    it.apply(4, payload(batch(3, 3)))
    feed = it.feeds.get(DISTANT)
    assert feed is not None and feed.base == 4, "that entry, and what came before, was told by the replica"


def test_a_life_of_the_node_is_not_told_what_the_one_before_did_in_the_same_entry() -> None:
    it = replica(1)
    it.apply(2, payload(batch(1, 1)))
    it.apply(3, payload(batch(2, 2), batch(1, 1, incarnation=6)))
    feed = it.feeds.get(DISTANT)
    assert feed is not None and feed.incarnation == 6
    (entry,) = feed.entries
    assert [sequence for sequence, _ in entry.answers] == [1]
    assert [e.session for e in entry.effects if isinstance(e, Echo)] == [(DISTANT, 6)]


def needs(told: object, found: list[int]) -> None:
    if isinstance(told, Echo):
        found.append(told.index)


def test_what_is_not_told_yet_stays_readable() -> None:
    """The machine needs no entry any more; a feed refers to it until the node was told."""
    feeds = Feeds(lambda nodes: None, needs)
    session = (DISTANT, 5)
    feeds.batch(session, 1, True, 2)
    feeds.effects([Echo(session, 1, 1, 2)])
    feeds.finish(2)
    assert feeds.withhold([2]) == []
    assert feeds.withholds and list(feeds.needed()) == [2]
    assert feeds.withhold([1]) == [1]
    feeds.is_told(session, 2)
    assert feeds.withhold([]) == [2]
    assert not feeds.withholds and list(feeds.needed()) == []


def test_nothing_stays_readable_for_a_life_of_the_node_that_ended_in_the_same_entry() -> None:
    feeds = Feeds(lambda nodes: None, needs)
    feeds.batch((DISTANT, 5), 1, True, 2)
    feeds.answered(DISTANT, 1, [Echo((DISTANT, 5), 1, 1, 2)])
    feeds.batch((DISTANT, 6), 1, True, 2)
    feeds.answered(DISTANT, 1, [])
    feeds.finish(2)
    feed = feeds.get(DISTANT)
    assert feed is not None and [entry.answers for entry in feed.entries] == [[(1, [])]]
    assert list(feeds.needed()) == []


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_answers_and_effects_are_a_function_of_the_log_alone(data: st.DataObject) -> None:
    """Whichever replica tells a node, from whatever index it has kept: it is the same, and it is everything."""
    replicas = [replica(1), replica(2)]
    sequences = {5: 0}
    incarnation, index = 5, 1
    for _ in range(data.draw(st.integers(2, 20))):
        index += data.draw(st.integers(1, 3))
        batches: list[bytes] = []
        for _ in range(data.draw(st.integers(0, 3))):
            if data.draw(st.integers(0, 9)) == 0 and sequences[incarnation]:
                batches.append(encode_batch(KIND_CLOSE, DISTANT, incarnation, 0, b""))
                incarnation += 1
                sequences[incarnation] = 0
                continue
            sequences[incarnation] += 1
            sequence = sequences[incarnation]
            batches.append(batch(sequence, sequence, incarnation=incarnation))
        for it in replicas:
            it.apply(index, payload(*batches))
        if data.draw(st.integers(0, 5)) == 0:
            young, steps, state = replica(3), replicas[0].state_steps(), None
            while state is None:
                state = steps.step()
            reading = young.reading(state)
            while not reading.step():
                pass
            young.restore(reading, index)
            replicas.append(young)
    known = [it.feeds.get(DISTANT) for it in replicas]
    whole = known[0]
    for feed in known[1:]:
        # Of a session that has ended a replica made from a snapshot keeps nothing: its end is in the table.
        if feed is not None and whole is not None and feed.incarnation == whole.incarnation:
            from_there = max(feed.base, whole.base)
            assert shown(feed.behind(from_there)) == shown(whole.behind(from_there))
    if whole is not None and whole.base == 0:
        told = [sequence for entry in whole.entries for sequence, _ in entry.answers]
        assert told == list(range(1, sequences[whole.incarnation] + 1))


@pytest.mark.parametrize("stays", [False, True])
def test_who_asked_to_be_fed_in_what_a_snapshot_hides_is_fed_behind_it(stays: bool) -> None:
    """What the snapshot has is told by the replica that it came to; what comes then, by whoever has kept it."""
    told: list[int] = []
    heard: list[object] = []
    here, leader = replica(DISTANT), replica(2)
    session = here.session
    session.events = Listener(told)
    client = DISTANT * 100 + 1

    def say(number: int) -> bytes:
        command = encode_command(COMMAND, client, number)
        session.give([command], len(command), True, heard.append)
        return b"".join(session.route(2, number, 0))

    entry = payload(say(1))
    here.apply(1, entry)
    leader.apply(1, entry)
    session.ask_to_be_fed()
    leader.apply(2, payload(say(2)))
    if stays:
        session.stay_with_replica()
    making = leader.state_steps()
    state = None
    while state is None:
        state = making.step()
    reading = here.reading(state)
    while not reading.step():
        pass
    here.install(reading, 2)
    assert told == [1, 2] and heard == [(COMMAND, client, 1), (COMMAND, client, 2)]
    feed = here.feeds.get(DISTANT)
    assert session.is_fed is not stays
    if stays:
        assert feed is None and here.feeds.told_here == DISTANT
    else:
        assert feed is not None and (feed.base, session.cursor, here.feeds.told_here) == (2, 2, 0)
        kept = leader.feeds.get(DISTANT)
        assert kept is not None and can_resume(kept, leader.row(DISTANT), session.key, session.cursor)
