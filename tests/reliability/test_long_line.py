"""What `make long-line` calls flat."""

from __future__ import annotations

import pytest

from tests.reliability.run_long_line import GROWTH, LEASES_ALIVE, PARTS, Sample, overdue, parts_of, table, what_grew


def samples_of(name: str, values: list[float]) -> list[Sample]:
    return [
        Sample(float(place), {**dict.fromkeys(GROWTH, 100.0), name: value}) for place, value in enumerate(values)
    ]


@pytest.mark.parametrize("name", list(GROWTH))
def test_what_grows_on_is_told_and_what_settles_is_not(name: str) -> None:
    growing = parts_of(samples_of(name, [100.0 * 1.05**place for place in range(60)]))
    assert [each.split(":")[0] for each in what_grew(growing)] == [name]
    settling = parts_of(samples_of(name, [100.0 - 90.0 * 0.8**place for place in range(60)]))
    assert what_grew(settling) == []


def test_each_part_is_a_row() -> None:
    rows = table(parts_of(samples_of("files", [7.0] * 60)), 120.0)
    assert len(rows) == 2 + PARTS and rows[2].startswith("| 0 to 20 | 100.0 | 100.0 | 7.0 |")


def test_a_lease_that_does_not_end_is_told_and_the_last_few_are_not() -> None:
    alive = [f"leased-{number}" for number in range(100 - LEASES_ALIVE, 100)]
    assert overdue(["line", "aging", *alive], 100) == []
    assert overdue([*alive, "leased-20", "leased-3", "line"], 100) == ["leased-3", "leased-20"]
