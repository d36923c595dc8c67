"""Recorded answers of RabbitMQ: scenarios played against a broker, compared, and which differences are documented."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
SHARED: Final = Path(os.environ.get("MAYFLY_SHARED", ROOT.parent / "shared"))
GOLDEN: Final = SHARED / "golden"
QUEUE_TYPES: Final = ("quorum", "classic")
VERSION: Final = "4.3.6"
BEFORE: Final = "3.10.8"
"""What people come from: for what the reference can't play."""
DEVIATIONS: Final = ROOT / "docs" / "deviations.md"
SECTION: Final = "## Recorded scenarios that differ"

MATCH: Final = "match"
LISTED: Final = "in docs/deviations.md"
DIFFERS: Final = "differs"
STALE: Final = "match, but in docs/deviations.md"

_PLAY_WITHIN_S: Final = 1_800.0
_MORE_ROUNDS: Final = 3
_ROW: Final = re.compile(r"^\| `(\w+\.\w+)` \| (both|quorum|classic) \| *(\S.*?) *\|$")


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one scenario compares with its recording."""

    word: str
    details: tuple[str, ...] = ()

    @property
    def fine(self) -> bool:
        """Whether the answer matches, or stands in the document with the reason, and not both."""
        return self.word in (MATCH, LISTED)


Scenarios = Mapping[str, Mapping[str, Any]]


def recorded(queue_type: str) -> Scenarios:
    """What RabbitMQ 4.3.6 answered with queues of this type, by scenario; what it can't play, as 3.10.8 answered."""
    now, before = (_scenarios(GOLDEN / f"rabbitmq-{version}-{queue_type}.json") for version in (VERSION, BEFORE))
    return {name: scenario if "result" in scenario else before[name] for name, scenario in now.items()}


def changed_since(queue_type: str) -> list[str]:
    """The scenarios that 4.3.6 answered in another way than 3.10.8, or could not play; field tables are unordered, and
    headers that came after 3.10.8 don't count."""
    compare = _compare_golden()
    now, before = (_scenarios(GOLDEN / f"rabbitmq-{version}-{queue_type}.json") for version in (VERSION, BEFORE))
    return [
        name
        for name, scenario in before.items()
        if compare.canonical(scenario.get("result")) != compare.canonical(now[name].get("result"))
    ]


def play(uri: str, mgmt: str, out: Path, queue_type: str, only: str = "", jobs: int = 8) -> Scenarios:
    """What a broker answers with queues of this type, by scenario. `only`: those whose names have this."""
    command = [sys.executable, str(GOLDEN / "ttl_golden.py"), "--uri", uri, "--mgmt", mgmt, "--queue-type", queue_type]
    command += ["--jobs", str(jobs), "--out", str(out), *(["--only", only] if only else [])]
    # Its exit code says only that some scenario had no result; the comparison says which.
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PLAY_WITHIN_S, check=False)
    if not out.is_file():
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return _scenarios(out)


def documented(text: str, queue_type: str) -> dict[str, str]:
    """Scenario -> why it differs with queues of this type: the table in docs/deviations.md. Raises ValueError if there
    is none."""
    _, found, rest = text.partition(f"\n{SECTION}\n")
    if not found:
        raise ValueError(f"docs/deviations.md has no section {SECTION!r}")
    rows = [match for line in rest.partition("\n## ")[0].splitlines() if (match := _ROW.match(line))]
    return {row[1]: row[3] for row in rows if row[2] in (queue_type, "both")}


class Told(NamedTuple):
    """What docs/deviations.md says of all scenarios of one type of queue together."""

    of: int
    as_recorded: int
    different: int


def told(text: str, queue_type: str) -> Told:
    """The numbers in docs/deviations.md. Raises ValueError where it has none."""
    result = re.search(rf"(\d+)\s+on\s+{queue_type}\s+queues,\s+(\d+)\s+as\s+recorded\s+and\s+(\d+)\s+below", text)
    if result is None:
        raise ValueError(f"docs/deviations.md does not say how many scenarios on {queue_type} queues are as recorded")
    return Told(int(result[1]), int(result[2]), int(result[3]))


def judge(wanted: Scenarios, given: Scenarios, reasons: Mapping[str, str]) -> dict[str, Verdict]:
    """A verdict for each scenario that was played. Field tables are unordered."""
    compare = _compare_golden()
    verdicts = {}
    for name, scenario in wanted.items():
        if name not in given:
            continue
        expected = compare.canonical(scenario["result"], later=())
        got = given[name]
        answer = compare.canonical(got.get("result", {"error": got.get("error", got.get("skipped"))}), later=())
        if answer == expected:
            verdicts[name] = Verdict(STALE if name in reasons else MATCH)
            continue
        details = tuple(
            f"{path}: recorded {json.dumps(a, ensure_ascii=False)}, here {json.dumps(b, ensure_ascii=False)}"
            for path, a, b in compare.differences(expected, answer)
        )
        verdicts[name] = Verdict(LISTED if name in reasons else DIFFERS, details)
    return verdicts


def judged_again(
    verdicts: dict[str, Verdict], uri: str, mgmt: str, folder: Path, queue_type: str, reasons: Mapping[str, str]
) -> dict[str, Verdict]:
    """The same, with what differed played again, alone, some times: a busy machine may have made an answer late."""
    verdicts = dict(verdicts)
    wanted = recorded(queue_type)
    for round in range(_MORE_ROUNDS):
        for name in [name for name, verdict in verdicts.items() if verdict.word == DIFFERS]:
            given = play(uri, mgmt, folder / f"{queue_type}-{name}-{round}.json", queue_type, name, jobs=1)
            verdicts[name] = judge(wanted, {name: given[name]}, reasons)[name]
    return verdicts


def _scenarios(file: Path) -> Scenarios:
    scenarios: Scenarios = json.loads(file.read_text(encoding="utf-8"))["scenarios"]
    return scenarios


def _compare_golden() -> ModuleType:
    """The program beside the recordings, for its rules of comparison."""
    spec = importlib.util.spec_from_file_location("compare_golden", GOLDEN / "compare_golden.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
