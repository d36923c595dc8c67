"""A bounded part of `make fuzz`: conversations from fixed seeds. What once failed stands here by name."""

from tests.fuzz.conversations import fuzz

SEEDS = range(300)


def test_hostile_conversations() -> None:
    seeds = iter(SEEDS)
    told: list[str] = []
    assert not fuzz(lambda: next(seeds, None), told.append), "\n".join(told)
