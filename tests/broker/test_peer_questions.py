"""Questions between nodes: answered once, or given up in time."""

from __future__ import annotations

from typing import Any

import pytest

from node.datagram_kinds import ANSWER, QUESTION
from node.duties.peer_questions import ANSWER_WITHIN_MS, PeerQuestions
from tests.broker.three_brokers import ThreeBrokers


class Two:
    """Nodes 1 and 2; what they send waits for `carry`."""

    def __init__(self) -> None:
        self.mail: list[tuple[int, int, bytes]] = []
        self.nodes = {1: self._node(2), 2: self._node(1)}
        self.answers: list[bytes | None] = []
        for id, node in self.nodes.items():
            node.peer_up(3 - id)
        self.nodes[2].answer = lambda question: question.upper()

    def _node(self, other: int) -> PeerQuestions:
        def send(to: int, kind: int, data: bytes) -> None:
            assert to == other
            self.mail.append((to, kind, data))

        return PeerQuestions(send)

    def ask(self, question: bytes = b"what") -> None:
        self.nodes[1].ask(2, question, self.answers.append)

    def carry(self) -> None:
        mail, self.mail = self.mail, []
        for to, kind, data in mail:
            self.nodes[to].datagram(3 - to, kind, data)


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


@pytest.mark.parametrize("lost", [QUESTION, ANSWER])
def test_what_gets_lost_is_given_up(two: Two, lost: int) -> None:
    two.nodes[1].tick(1_000)
    two.ask()
    if lost == ANSWER:
        two.carry()
    late, two.mail = two.mail, []
    two.nodes[1].tick(1_000 + ANSWER_WITHIN_MS - 1)
    assert two.answers == []
    two.nodes[1].tick(1_000 + ANSWER_WITHIN_MS)
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


def test_answers_of_others_and_nonsense_are_dropped(two: Two) -> None:
    two.ask()
    ((_, _, question),) = two.mail
    two.nodes[1].datagram(3, ANSWER, question)
    two.nodes[1].datagram(2, ANSWER, b"short")
    two.nodes[1].datagram(2, ANSWER, bytes(8) + b"nobody asked")
    assert two.answers == []


def test_between_whole_nodes() -> None:
    brokers = ThreeBrokers()
    answers: list[Any] = []
    brokers.nodes[2].engine.questions.answer = lambda question: question * 2
    brokers.nodes[1].engine.questions.ask(2, b"ab", answers.append)
    brokers.nodes[1].engine.questions.ask(3, b"ab", answers.append)
    brokers.settle()
    assert answers == [b"abab"]
    brokers.run_until(lambda: len(answers) == 2)
    assert answers[1] is None
