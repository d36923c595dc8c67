"""The verdict on a history, from the rules alone."""

from __future__ import annotations

from dataclasses import dataclass

from simulation.outsider.judging.deaths import judge_deaths
from simulation.outsider.judging.deliveries import judge_deliveries
from simulation.outsider.judging.fates import judge_fates
from simulation.outsider.judging.history import OutsiderHistory
from simulation.outsider.judging.order import judge_order
from simulation.outsider.judging.promptness import judge_promptness
from simulation.outsider.judging.queue_object import judge_objects
from simulation.outsider.judging.refusals import judge_refusals
from simulation.outsider.judging.view import Finding, View


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was broken; and how many queues were too tangled to say whether what they did is linearizable."""

    findings: tuple[Finding, ...]
    undecided: int


def judge(history: OutsiderHistory) -> Judgement:
    """Hold a history against all rules that a client can see."""
    view = View(history)
    findings: list[Finding] = []
    for rules in (judge_deliveries, judge_deaths, judge_fates, judge_order, judge_promptness, judge_refusals):
        findings.extend(rules(view))
    objects, undecided = judge_objects(view)
    return Judgement((*findings, *objects), undecided)
