"""Every recorded answer of RabbitMQ matches, or docs/deviations.md names the scenario and says why."""

from pathlib import Path
from typing import Any

import pytest

from tests.golden.recordings import (
    DEVIATIONS,
    DIFFERS,
    GOLDEN,
    LISTED,
    MATCH,
    STALE,
    documented,
    judge,
    judged_again,
    play,
    recorded,
    told,
)
from tests.golden.side_by_side import mayfly

recordings_needed = pytest.mark.skipif(not GOLDEN.is_dir(), reason="the recordings are not here")
JOBS = 16


@pytest.mark.slow
@pytest.mark.processes
@recordings_needed
def test_every_scenario_on_three_nodes(tmp_path: Path) -> None:
    wanted = recorded()
    reasons = documented(DEVIATIONS.read_text(encoding="utf-8"))
    with mayfly(tmp_path / "nodes") as (uri, mgmt):
        verdicts = judge(wanted, play(uri, mgmt, tmp_path / "ours.json", jobs=JOBS), reasons)
        verdicts = judged_again(verdicts, uri, mgmt, tmp_path, reasons)
    assert verdicts.keys() == wanted.keys()
    wrong = {name: verdict for name, verdict in verdicts.items() if not verdict.fine}
    assert not wrong, "\n".join(f"{name}: {verdict}" for name, verdict in wrong.items())
    assert sum(verdict.word == MATCH for verdict in verdicts.values()) >= len(wanted) - len(reasons)


@recordings_needed
def test_only_recorded_scenarios_are_documented() -> None:
    assert documented(DEVIATIONS.read_text(encoding="utf-8")).keys() <= recorded().keys()


@recordings_needed
@pytest.mark.parametrize(
    "answer, word, word_if_documented",
    [
        ({"result": {"code": 406, "headers": [["b", 2], ["a", 1]]}}, MATCH, STALE),
        ({"result": {"code": 406, "headers": [["a", 1], ["b", 3]]}}, DIFFERS, LISTED),
        ({"result": {"code": 404, "headers": [["a", 1], ["b", 2]]}}, DIFFERS, LISTED),
        ({"error": "TypeError"}, DIFFERS, LISTED),
        ({"skipped": "needs --mgmt"}, DIFFERS, LISTED),
    ],
)
def test_verdicts(answer: dict[str, Any], word: str, word_if_documented: str) -> None:
    wanted: dict[str, dict[str, Any]]
    wanted = {"args.one": {"result": {"code": 406, "headers": [["a", 1], ["b", 2]]}}, "args.other": {"result": 1}}
    for reasons, expected in (({}, word), ({"args.one": "because"}, word_if_documented)):
        verdicts = judge(wanted, {"args.one": answer}, reasons)
        assert {name: verdict.word for name, verdict in verdicts.items()} == {"args.one": expected}
        assert verdicts["args.one"].fine == (expected in (MATCH, LISTED))


def test_the_table_of_the_document() -> None:
    text = (
        "# D\n\n## Recorded scenarios that differ\n\n| scenario | why |\n|---|---|\n| `a.b` | because: `x` |\n"
        "| `c.d` | |\n\n## Next\n\n| `e.f` | no |\n"
    )
    assert documented(text) == {"a.b": "because: `x`"}
    with pytest.raises(ValueError, match="Recorded scenarios that differ"):
        documented("# D\n")


@recordings_needed
def test_the_document_tells_how_many_are_recorded() -> None:
    assert told(DEVIATIONS.read_text(encoding="utf-8")).of == len(recorded())
