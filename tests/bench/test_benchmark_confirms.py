"""What the benchmarks' client makes of confirms, whose order is the broker's choice."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from bench.amqp_pipeline import Confirms


def test_one_alone_ahead_of_a_confirm_of_several() -> None:
    confirms = Confirms()
    for tag, bits in ((5, 0), (4, 1)):
        confirms.take(tag, bits)
    assert confirms.count == 5


@given(st.lists(st.tuples(st.integers(1, 30), st.booleans()), max_size=40))
def test_as_a_set_of_tags(acks: list[tuple[int, bool]]) -> None:
    """Whatever is said, as often as it is said: the tags that were named or stand below one of several."""
    confirms, tags, counts = Confirms(), set[int](), [0]
    for tag, multiple in acks:
        confirms.take(tag, int(multiple))
        tags |= set(range(1, tag + 1)) if multiple else {tag}
        assert confirms.count == len(tags)
        counts.append(confirms.count)
    assert all(before <= after for before, after in pairwise(counts))
