"""The specifications hold in all their states, and the mutants of them do not (specifications)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.specifications import tlc
from tests.specifications.models import MODELS, MUTANTS, Model, Mutant, check, check_mutant
from tests.specifications.raft_runs import SPECIFICATIONS

NEEDS_TLC = pytest.mark.skipif(bool(tlc.why_not()) and not tlc.DEMANDED, reason=tlc.why_not())


@pytest.mark.slow
@NEEDS_TLC
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_a_specification_holds_in_all_states(model: Model, tmp_path: Path) -> None:
    answer = check(tmp_path, model)
    assert answer.is_complete, answer.last_lines
    assert answer.states == model.states, f"{answer.states} states: the README and `MODELS` say another number"


@pytest.mark.slow
@NEEDS_TLC
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_mutant_is_found(mutant: Mutant, tmp_path: Path) -> None:
    answer = check_mutant(tmp_path, mutant)
    assert answer.violated == mutant.violates, answer.last_lines


def test_the_place_of_each_mutant_is_there_once() -> None:
    for mutant in MUTANTS:
        texts = [file.read_text(encoding="utf-8") for file in (SPECIFICATIONS / mutant.model.folder).glob("*.tla")]
        assert sum(text.count(mutant.before) for text in texts) == 1, f"{mutant}: {mutant.before}"


def test_each_specification_has_mutants() -> None:
    assert {mutant.model.folder for mutant in MUTANTS} == {model.folder for model in MODELS}


def test_the_readme_has_the_figures() -> None:
    readme = (SPECIFICATIONS / "README.md").read_text(encoding="utf-8")
    for model in MODELS:
        assert f"[{model}]({model}) | " in readme, model
        assert f" | {model.states:,} |".replace(",", " ") in readme, model
    for mutant in MUTANTS:
        assert f"| {mutant.name} | {mutant.violates} |" in readme, mutant
