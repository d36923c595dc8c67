"""docs/deviations.md counts the recorded scenarios that differ: held against the table that lists them."""

import pytest

from tests.golden.recordings import DEVIATIONS, documented, told


def test_the_numbers_are_those_of_the_table() -> None:
    text = DEVIATIONS.read_text(encoding="utf-8")
    numbers = told(text)
    assert numbers.different == len(documented(text))
    assert numbers.as_recorded + numbers.different == numbers.of


def test_the_reading_of_the_numbers() -> None:
    text = "all 9 scenarios: MayflyMQ 7 as recorded\nand the 2 below; 9\nscenarios"
    assert told(text) == (7, 2, 9)
    for wrong in (text.replace("9\n", "8\n"), text.replace("below", ""), ""):
        with pytest.raises(ValueError, match="scenarios"):
            told(wrong)
