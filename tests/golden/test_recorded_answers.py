"""Every recorded answer of RabbitMQ 4.3.6 matches, or docs/deviations.md names the scenario and says why."""

from pathlib import Path
from typing import Any

import pytest

from tests.golden.recordings import (
    DEVIATIONS,
    DIFFERS,
    GOLDEN,
    LISTED,
    MATCH,
    QUEUE_TYPES,
    STALE,
    changed_since,
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
    text = DEVIATIONS.read_text(encoding="utf-8")
    wrong: list[str] = []
    with mayfly(tmp_path / "nodes") as (uri, mgmt):
        for queue_type in QUEUE_TYPES:
            wanted = recorded(queue_type)
            reasons = documented(text, queue_type)
            given = play(uri, mgmt, tmp_path / f"{queue_type}.json", queue_type, jobs=JOBS)
            verdicts = judge(wanted, given, reasons)
            verdicts = judged_again(verdicts, uri, mgmt, tmp_path, queue_type, reasons)
            assert verdicts.keys() == wanted.keys()
            wrong += [f"{queue_type} {name}: {verdict}" for name, verdict in verdicts.items() if not verdict.fine]
    assert not wrong, "\n".join(wrong)


@recordings_needed
@pytest.mark.parametrize("queue_type", QUEUE_TYPES)
def test_only_recorded_scenarios_are_documented(queue_type: str) -> None:
    assert documented(DEVIATIONS.read_text(encoding="utf-8"), queue_type).keys() <= recorded(queue_type).keys()


@recordings_needed
@pytest.mark.parametrize("queue_type", QUEUE_TYPES)
def test_what_has_changed_since_the_release_before_is_documented_by_name(queue_type: str) -> None:
    """But for headers that came since then, which a row is about."""
    text = DEVIATIONS.read_text(encoding="utf-8")
    changed = changed_since(queue_type)
    assert len(changed) > 5
    assert [name for name in changed if f"`{name}`" not in text] == []


@recordings_needed
@pytest.mark.parametrize("queue_type", QUEUE_TYPES)
def test_what_the_reference_cannot_play_is_as_before(queue_type: str) -> None:
    assert all("result" in scenario for scenario in recorded(queue_type).values())


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
        "# D\n\n## Recorded scenarios that differ\n\n| scenario | queues | why |\n|---|---|---|\n"
        "| `a.b` | both | because: `x` |\n| `c4.d` | quorum | why |\n| `c.d` | both | |\n\n## Next\n\n"
        "| `e.f` | both | no |\n"
    )
    assert documented(text, "quorum") == {"a.b": "because: `x`", "c4.d": "why"}
    assert documented(text, "classic") == {"a.b": "because: `x`"}
    with pytest.raises(ValueError, match="Recorded scenarios that differ"):
        documented("# D\n", "quorum")


@recordings_needed
@pytest.mark.parametrize("queue_type", QUEUE_TYPES)
def test_the_document_tells_how_many_are_recorded(queue_type: str) -> None:
    text = DEVIATIONS.read_text(encoding="utf-8")
    numbers = told(text, queue_type)
    assert numbers.of == len(recorded(queue_type)) == numbers.as_recorded + numbers.different
    assert numbers.different == len(documented(text, queue_type))
