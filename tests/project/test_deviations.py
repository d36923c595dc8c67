"""docs/deviations.md counts the recorded scenarios that differ: held against the table that lists them."""

import pytest

from tests.golden.recordings import DEVIATIONS, QUEUE_TYPES, documented, told


@pytest.mark.parametrize("queue_type", QUEUE_TYPES)
def test_the_numbers_are_those_of_the_table(queue_type: str) -> None:
    text = DEVIATIONS.read_text(encoding="utf-8")
    numbers = told(text, queue_type)
    assert numbers.different == len(documented(text, queue_type))
    assert numbers.as_recorded + numbers.different == numbers.of


def test_the_reading_of_the_numbers() -> None:
    text = "played: 9 on quorum queues, 7\nas recorded and 2 below; 8 on classic queues, 8 as recorded and 0 below."
    assert [told(text, queue_type) for queue_type in QUEUE_TYPES] == [(9, 7, 2), (8, 8, 0)]
    for wrong in (text.replace("quorum", "other"), text.replace("below", ""), ""):
        with pytest.raises(ValueError, match="scenarios on quorum queues"):
            told(wrong, "quorum")
