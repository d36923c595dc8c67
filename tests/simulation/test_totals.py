"""What has been tried is added up in a file, and shown on a page."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from simulation.totals import BEGIN, END, add_real, add_simulated, faults_of, hours_of, load, tables, write_tables

ROOT = Path(__file__).resolve().parents[2]
TOTALS = ROOT / "docs" / "measurements" / "totals.json"
PAGE = ROOT / "docs" / "measurements" / "reliability.md"


def test_runs_add_up_also_when_they_end_at_once(tmp_path: Path) -> None:
    file = tmp_path / "totals.json"
    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            pool.submit(add_simulated, file, "raft", 10, 1, 3_600_000_000, 36.0)
            pool.submit(add_real, file, "power-cuts", {"cut": 2, "cut all": 1}, 0, 100, 0)
    totals = load(file)
    assert totals["simulated"] == {"raft": {"seeds": 200, "failed": 20, "virtual_s": 72_000, "cpu_s": 720}}
    assert hours_of(totals) == 20
    assert faults_of(totals, ("cut", "cut all")) == 60
    assert totals["real"]["power-cuts"]["runs"] == 20 and totals["real"]["power-cuts"]["confirmed"] == 2_000


def test_they_are_shown_on_the_page_and_the_rest_of_it_stays(tmp_path: Path) -> None:
    file, page = tmp_path / "totals.json", tmp_path / "page.md"
    add_simulated(file, "long", 3, 0, 7_200_000_000, 1.0)
    add_simulated(file, "ages", 1, 0, 3_600_000_000_000, 2.0)
    add_real(file, "chaos", {"kill two": 3}, 6, 12_345, 0)
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_tables(file, page)
    text = page.read_text()
    assert "| damage |" not in text
    add_real(file, "damage", {"flip": 3}, 0, 10, 0, {("flip", "clock", "found"): 2, ("flip", "data.mdb", "unread"): 1})
    add_real(file, "damage", {"flip": 1}, 0, 10, 0, {("flip", "clock", "found"): 1})
    write_tables(file, page)
    text = page.read_text()
    rows = ["| damage | file | found | unread |", "|---|---|---|---|", "| flip | clock | 3 | 0 |"]
    assert "\n".join([*rows, "| flip | data.mdb | 0 | 1 |"]) in text
    assert text.startswith(f"before\n{BEGIN}\n| what") and text.endswith(f"{END}\nafter\n") and "old" not in text
    assert "| simulated cluster-hours | 2 | 1 000 000 |\n| beside them, of nodes slower than any" in text
    assert "(`ages`) | 1 000 | |" in text, "hours of nodes that could not be are told apart"
    assert "| ages (slower nodes) | 1 | 0 | 1000.0 | 1 800 000 |" in text
    assert "| long | 3 | 0 | 2.0 | 7 200 |" in text
    assert "| `make chaos` | 1 | 12 345 | 6 | kill two 3 | 0 |" in text
    page.write_text("no marks")
    with pytest.raises(ValueError, match="has no lines"):
        write_tables(file, page)


def test_the_published_page_shows_the_file_as_it_is() -> None:
    assert tables(load(TOTALS)) in PAGE.read_text(encoding="utf-8")


def test_a_soak_as_make_runs_it_adds_its_hours(tmp_path: Path) -> None:
    """With what is installed, from any folder: that is how `make soak` begins it."""
    file, page = tmp_path / "totals.json", tmp_path / "page.md"
    page.write_text(f"{BEGIN}\n{END}\n")
    soaked = subprocess.run(
        [
            *(sys.executable, "-P", ROOT / "simulation" / "with_installed.py", "soak", "--only", "raft"),
            *("--workers", "1", "--hours", "0.002", "--totals", file, "--page", page),
        ],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert soaked.returncode == 0, soaked.stderr
    row = load(file)["simulated"]["raft"]
    assert row["seeds"] > 0 and row["virtual_s"] >= 10 * row["seeds"], soaked.stdout
    assert f"| raft (no clients) | {row['seeds']} |" in page.read_text()
