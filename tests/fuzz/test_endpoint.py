"""A bounded part of the walks against the model, from fixed seeds."""

from tests.fuzz.endpoint_walks import walk

SEEDS = range(250)


def test_walks_hold_against_the_model() -> None:
    for seed in SEEDS:
        try:
            walk(seed)
        except Exception as error:
            raise AssertionError(f"walk({seed}): {type(error).__name__}: {error}") from error
