"""What the growth benchmark calls worse than linear."""

from bench.growth_curves import FLAT, LINEAR, series_points, steps


def test_a_step_is_too_steep_when_it_outgrows_its_exponent_and_the_noise() -> None:
    linear = [(10, 5.0), (100, 50.0), (1000, 500.0)]
    assert [round(step.exponent, 6) for step in steps(linear, LINEAR)] == [1, 1, 1]
    assert not any(step.too_steep for step in steps(linear, LINEAR))
    assert all(step.too_steep for step in steps(linear, FLAT))
    assert not any(step.too_steep for step in steps(linear, None))
    assert [step.too_steep for step in steps([(10, 5.0), (100, 6.4)], FLAT)] == [False]
    assert [step.too_steep for step in steps([(10, 5.0), (100, 6.6)], FLAT)] == [True]


def test_growth_that_hides_in_the_noise_of_each_step_shows_between_the_ends() -> None:
    found = steps([(10**n, 1.25**n) for n in range(6)], FLAT)
    assert [step.too_steep for step in found] == [False] * 5 + [True]


def test_points_are_in_the_order_of_their_numbers_and_those_without_the_field_are_left_out() -> None:
    figures = {"1000": {"cpu_us": 3.0}, "20": {"cpu_us": 2.0}, "100": {"rate": 1.0}}
    assert series_points(figures, "cpu_us") == [(20, 2.0), (1000, 3.0)]
