"""Questions between nodes: answered once, or given up in time."""

from __future__ import annotations

from typing import Any

import pytest

from mayfly.node.broker.peer_questions import PeerQuestions, Respond
from mayfly.node.notice_kinds import ANSWER, ASK, QUESTION, TOLD
from tests.node.broker.three_brokers import ThreeBrokers

WITHIN_MS = 700


class Two:
    """Nodes 1 and 2; what they send waits for `carry`."""

    def __init__(self) -> None:
        self.mail: list[tuple[int, int, bytes]] = []
        self.nodes = {1: self._node(2), 2: self._node(1)}
        self.answers: list[bytes | None] = []
        for id, node in self.nodes.items():
            node.peer_up(3 - id)
        self.nodes[2].answer = lambda question, respond: respond(question.upper())

    def _node(self, other: int) -> PeerQuestions:
        def send(to: int, kind: int, data: bytes) -> None:
            assert to == other
            self.mail.append((to, kind, data))

        return PeerQuestions(send, QUESTION, ANSWER, WITHIN_MS)

    def ask(self, question: bytes = b"what") -> None:
        self.nodes[1].ask(2, question, self.answers.append)

    def carry(self) -> None:
        mail, self.mail = self.mail, []
        for to, kind, data in mail:
            self.nodes[to].notice(3 - to, kind, data)


@pytest.fixture
def two() -> Two:
    return Two()


def test_a_question_is_answered_once(two: Two) -> None:
    two.ask(b"one")
    two.ask(b"two")
    two.carry()
    answers = list(two.mail)
    two.carry()
    two.mail = answers
    two.carry()
    assert two.answers == [b"ONE", b"TWO"]


def test_an_answer_may_come_later_but_in_time(two: Two) -> None:
    later: list[Respond] = []
    two.nodes[2].answer = lambda question, respond: later.append(respond)
    two.ask(b"one")
    two.ask(b"two")
    two.carry()
    assert two.mail == [] and two.answers == []
    later[1](b"second")
    two.carry()
    two.nodes[1].tick(WITHIN_MS)
    assert two.answers == [b"second", None]
    later[0](b"first")
    two.carry()
    assert two.answers == [b"second", None]


@pytest.mark.parametrize("lost", [QUESTION, ANSWER])
def test_what_gets_lost_is_given_up(two: Two, lost: int) -> None:
    two.nodes[1].tick(1_000)
    two.ask()
    if lost == ANSWER:
        two.carry()
    late, two.mail = two.mail, []
    two.nodes[1].tick(1_000 + WITHIN_MS - 1)
    assert two.answers == []
    two.nodes[1].tick(1_000 + WITHIN_MS)
    assert two.answers == [None]
    two.mail = late
    two.carry()
    two.carry()
    assert two.answers == [None]


def test_a_node_that_goes_has_no_answer(two: Two) -> None:
    two.ask()
    two.nodes[1].peer_down(2)
    two.ask()
    assert two.answers == [None, None]


def test_a_node_that_cannot_answer_says_nothing(two: Two) -> None:
    two.nodes[2].answer = None
    two.ask()
    two.carry()
    assert two.mail == []


def test_who_is_reached(two: Two) -> None:
    node = two.nodes[1]
    assert node.can_reach(2) and not node.can_reach(3)
    node.peer_down(2)
    assert not node.can_reach(2)


def test_answers_of_others_and_nonsense_are_dropped(two: Two) -> None:
    two.ask()
    ((_, _, question),) = two.mail
    two.nodes[1].notice(3, ANSWER, question)
    two.nodes[1].notice(2, ANSWER, b"short")
    two.nodes[1].notice(2, ANSWER, bytes(8) + b"nobody asked")
    two.nodes[1].notice(2, TOLD, question)
    two.nodes[2].notice(1, ASK, question)
    assert two.mail == [(2, QUESTION, question)]
    assert two.answers == []


def test_between_whole_nodes() -> None:
    brokers = ThreeBrokers()
    answers: list[Any] = []
    brokers.nodes[2].engine.questions.answer = lambda question, respond: respond(question * 2)
    brokers.nodes[1].engine.questions.ask(2, b"ab", answers.append)
    brokers.nodes[1].engine.questions.ask(3, b"ab", answers.append)
    brokers.settle()
    assert answers == [b"abab"]
    brokers.run_until(lambda: len(answers) == 2)
    assert answers[1] is None
