"""What `make long-line` calls flat."""

from __future__ import annotations

import pytest

from tests.reliability.run_long_line import GROWTH, PARTS, Sample, parts_of, table, what_grew


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
