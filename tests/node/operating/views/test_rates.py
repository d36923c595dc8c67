"""How fast counts grow, by looks at them."""

from mayfly.node.operating.views.rates import KEPT_MS, Rates, message_stats


def test_a_rate_is_what_came_since_some_seconds_ago() -> None:
    rates = Rates()
    assert rates.look(0, "q", (100, 7)) is None, "nothing is known yet"
    assert rates.look(999, "q", (110, 7)) is None, "over so little it says nothing"
    assert rates.look(2_000, "q", (136, 7)) == (18.0, 0.0)
    assert rates.look(5_000, "q", (190, 7)) == (18.0, 0.0)
    assert rates.look(10_000, "q", (190, 17)) == (0.0, 2.0), "since the look at 5 s"
    assert rates.look(12_500, "q", (190, 17)) == (0.0, 10 / 7.5), "since then still"
    assert rates.look(40_000, "q", (490, 17)) == (10.0, 0.0), "since the look before, where that was long ago"


def test_what_went_back_is_another_thing() -> None:
    rates = Rates()
    rates.look(0, "q", (100,))
    assert rates.look(5_000, "q", (3,)) is None
    assert rates.look(10_000, "q", (53,)) == (10.0,)


def test_what_nobody_looks_at_is_forgotten() -> None:
    rates = Rates()
    rates.look(0, "q", (100,))
    rates.look(KEPT_MS + 1, "r", (1,))
    assert rates.look(KEPT_MS + 2, "q", (100,)) is None
    assert rates.look(KEPT_MS + 2_002, "r", (3,)) is not None


def test_what_is_not_known_is_left_out() -> None:
    names = ("publish", "ack")
    assert message_stats(names, (5, 3), None) == {"publish": 5, "ack": 3}
    known = {"publish": 5, "ack": 3, "publish_details": {"rate": 0.333}, "ack_details": {"rate": 0.0}}
    assert message_stats(names, (5, 3), (1 / 3, 0.0)) == known
