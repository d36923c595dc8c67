"""A bounded part of the walks against the model, from fixed seeds; what must surely be said is said in order."""

from tests.fuzz.endpoint_walks import Walk, walk

SEEDS = range(250)


def test_walks_hold_against_the_model() -> None:
    for seed in SEEDS:
        try:
            walk(seed)
        except Exception as error:
            raise AssertionError(f"walk({seed}): {type(error).__name__}: {error}") from error


def test_all_that_is_wrong_ends_the_connection_with_its_code() -> None:
    """Each fault in one piece, and in several."""
    for cuts in (0, 1, 3):
        walk = Walk(cuts, (cuts,))
        try:
            walk.say_all_that_is_wrong()
        except Exception as error:
            raise AssertionError(f"{walk.told}, cut {cuts} times: {type(error).__name__}: {error}") from error
        walk.end()
