"""The benchmark's table: medians, ratios, aims, what is said of missing figures, and what is checked of faults."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench import comparison_report, load_generator, open_loop
from bench.clusters import BrokerFailed, Cluster
from bench.comparison import (
    JETSTREAM,
    JETSTREAM_LATE,
    MAYFLY,
    PEERS,
    RABBITMQ,
    ROWS,
    AtLeastTimes,
    AtMost,
    AtMostTimes,
    Results,
    compare,
    ratio,
)
from bench.failover import faults_of_order, longest_gap_s
from bench.loads import CLUSTER_LOADS, Timing, stages
from bench.marked_page import END, begin_mark, replaced, write_figures

TIMING = Timing(8, 2)


def results_of(ours: dict[str, list[float]], theirs: dict[str, list[float]]) -> Results:
    about = {
        "date": "2026-11-21 22:00 UTC", "machine": "2 cores", "command": "make bench", "commit": "abc",
        "plan": "3 runs.", "load_before": "0.1", "load_after": "2.0", "commands": "mayfly up\namqpload",
        "took": "19.0 minutes", MAYFLY: "0.1.0", **dict.fromkeys(PEERS, "not run"), RABBITMQ: "4.3.6",
    }
    return Results({MAYFLY: ours, RABBITMQ: theirs}, [], about)


def line_of(lines: list[str], title: str) -> list[str]:
    [line] = [line for line in lines if line.startswith(f"| {title}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_aims_are_met_at_their_bound_and_missed_beyond_it() -> None:
    assert AtLeastTimes(4).met(40, 10) is True
    assert AtLeastTimes(4).met(39.9, 10) is False
    assert AtMostTimes(0.2).met(2, 10) is True
    assert AtMostTimes(0.2).met(2.1, 10) is False
    assert AtMost(20, "ms").met(20, None) is True
    assert AtMost(20, "ms").met(20.1, 1000) is False


def test_nobody_knows_about_a_ratio_to_what_was_not_measured() -> None:
    assert AtLeastTimes(4).met(40, None) is None
    assert AtMostTimes(0.2).met(2, None) is None


def test_figures_are_medians_of_all_runs() -> None:
    results = results_of({"a1k.confirmed_s": [10, 900, 50]}, {})
    results.add(RABBITMQ, {"a1k.confirmed_s": 10.0})
    results.add(RABBITMQ, {"a1k.confirmed_s": 20.0})
    [compared] = compare(results)
    [aim] = compared.row.aims
    assert (compared.ours, compared.theirs, compared.met(aim)) == (50, {RABBITMQ: 15}, False)
    assert results.latest(RABBITMQ, "a1k.confirmed_s") == 20
    assert results.latest(RABBITMQ, "b1k.confirmed_s") is None


def test_less_than_one_keeps_two_decimals() -> None:
    assert ratio(47, 10) == "4.7x"
    assert ratio(1.84, 10) == "0.18x"


def test_the_table_tells_all_figures_ratios_aims_and_verdicts() -> None:
    ours = {"a1k.confirmed_s": [65_000.0], "steady.latency_p50_ms": [1.0], "a1k.other_cores": [0.01, 0.3]}
    theirs = {"a1k.confirmed_s": [13_000.0], "steady.latency_p50_ms": [2.0], "a1k.other_cores": [0.2]}
    results = results_of(ours, theirs)
    results.add(JETSTREAM, {"a1k.confirmed_s": 26_000.0})
    results.add(JETSTREAM_LATE, {"steady.latency_p50_ms": 0.5})
    lines = comparison_report.aims_table(results)
    assert line_of(lines, "1 queue, 1 KB: confirmed")[1:] == [
        "65 000", "13 000 (5.0x)", "26 000 (2.5x)", "-", ">= 4x RabbitMQ", "yes", "0.30, 0.20, -, -"
    ]  # fmt: skip
    assert line_of(lines, "1 000 msg/s, 1 KB: latency p50")[1:7] == [
        "1.00", "2.00 (0.50x)", "-", "0.50 (2.0x)", "<= 1x RabbitMQ; <= 1.2x JetStream, by default", "yes; **no**"
    ]  # fmt: skip
    assert len({line.count("|") for line in lines}) == 1


def test_what_was_not_measured_is_cited_or_left_out_and_never_made_up() -> None:
    results = results_of({"kill.gap_s": [0.2], "a1k.confirmed_s": [5.0]}, {"b1k.confirmed_s": [7.0]})
    lines = comparison_report.aims_table(results)
    assert line_of(lines, "leader killed")[1:7] == ["0.20", "0.28-0.59 (reference)", "-", "-", "<= 0.3 s", "yes"]
    assert line_of(lines, "1 queue, 1 KB: confirmed")[1:7] == ["5", "-", "-", "-", ">= 4x RabbitMQ", "?"]
    assert line_of(lines, "4 queues, 1 KB: confirmed")[1:7] == ["failed", "7", "-", "-", ">= 3x RabbitMQ", "**no**"]
    assert not [line for line in lines if line.startswith("| leader frozen")]


def test_the_page_tells_of_failures_runs_commands_and_lavinmq() -> None:
    results = results_of({"a1k.cpu_us": [27.0, 26.0, 28.0]}, {"a1k.cpu_us": [130.0]})
    assert "Failed" not in "\n".join(comparison_report.page(results))
    results.failures.append("RabbitMQ kill 1: 3 lost")
    text = "\n".join(comparison_report.page(results))
    for part in ("3 lost", "27.0, 26.0, 28.0", "mayfly up", "commit abc", "5.0x that"):
        assert part in text


def test_results_survive_being_kept() -> None:
    results = results_of({"a1k.confirmed_s": [1.5]}, {})
    results.failures.append("x")
    assert Results.from_json(results.to_json()) == results


def test_every_row_has_a_load_or_a_fault_that_gives_it() -> None:
    given = {stage for name in (*CLUSTER_LOADS, "single") for stage in stages(name, TIMING)}
    assert {row.figure.partition(".")[0] for row in ROWS} <= given | {"start", "kill", "freeze"}
    assert set(comparison_report.EXCERPT) <= {row.figure for row in ROWS}


def test_every_run_of_the_load_generator_is_strict() -> None:
    for name in (*CLUSTER_LOADS, "single"):
        for options in stages(name, TIMING).values():
            for scheme, program in load_generator.PROGRAMS.items():
                words = load_generator.command_line("folder", f"{scheme}://uris", "pids", options)
                assert words[0] == f"folder/{program}" and "--strict" in words
                assert ("--queue-type" in words) is (scheme == "amqp")


def test_answers_of_the_load_generator_are_read() -> None:
    answer: dict[str, Any] = json.loads(
        '{"confirmed_s":65000,"consumed_s":64000,"broker_cpu_per_100k":2.5,"other_cores":0.1,'
        '"latency_ms":{"p50":1.5,"p99":9},"confirm_ms":{"p50":0.5,"p99":2}}'
    )
    figures = load_generator.figures(answer)
    assert (figures["confirmed_s"], figures["cpu_us"], figures["confirm_p99_ms"]) == (65_000, 25, 2)


def test_of_runs_at_one_rate_the_worst_figures_count() -> None:
    quiet = dict.fromkeys(("p50", "p90", "p99", "p999", "p9999", "max"), 1.0)
    results = [
        {"latency_ms": {**quiet, "max": 90.0}, "broker_cpu_per_100k": 2.0, "other_cores": 0.1},
        {"latency_ms": {**quiet, "p50": 3.0}, "broker_cpu_per_100k": 1.0, "other_cores": 0.4},
    ]
    figures = open_loop.worst(results)
    assert (figures["p50"], figures["max"], figures["cpu_us"], figures["other_cores"]) == (3.0, 90.0, 20.0, 0.4)
    [row] = open_loop.table({JETSTREAM: [{"share": 50, "rate": 40_000, **figures}]})[2:]
    assert row == "| JetStream, sync always | 50 % | 40 000 | 3.0 | 1.0 | 1.0 | 1.0 | 1.0 | 90.0 | 20 | 0.40 |"


class Rates:
    """A load generator that manages so much, and fails at one rate."""

    def __init__(self, maximum: float, fails_at: float) -> None:
        self._maximum, self._fails_at = maximum, fails_at

    def run(self, cluster: Cluster, load: list[str]) -> dict[str, Any]:
        rate = float(load[load.index("--rate") + 1]) if "--rate" in load else self._maximum
        if rate == self._fails_at:
            raise BrokerFailed("3 lost")
        latencies = dict.fromkeys(("p50", "p90", "p99", "p999", "p9999", "max"), rate / 1000)
        return {
            "confirmed_s": rate + 5000, "consumed_s": rate, "latency_ms": latencies, "broker_cpu_per_100k": 2.0,
            "other_cores": 0.1,
        }  # fmt: skip


class NoNodes:
    name = "a broker"

    @contextmanager
    def three_nodes(self) -> Iterator[Cluster]:
        yield Cluster(self.name, [], [], [])


def test_a_share_that_fails_costs_no_other_and_is_told() -> None:
    failures: list[str] = []
    generator: Any = Rates(40_000, fails_at=20_000)
    broker: Any = NoNodes()
    rows = open_loop.measure(generator, broker, [25, 50, 75], 300, failures)
    # Of what was confirmed and what was consumed the lower is the maximum.
    assert [(row["share"], row["rate"]) for row in rows] == [(25, 10_000), (75, 30_000)]
    assert failures == ["a broker at 50 %, 20000 msg/s: 3 lost"]


@pytest.mark.parametrize(
    ("tails", "said"),
    [
        ({MAYFLY: 14.0, JETSTREAM: 15.0}, ": met (14.0 ms, JetStream, sync always 15.0 ms)"),
        ({MAYFLY: 14.0, JETSTREAM: 13.0}, ": not met"),
        ({MAYFLY: 16.0}, ": not met (16.0 ms)"),
    ],
)
def test_the_tail_at_half_of_the_maximum_is_judged(tails: dict[str, float], said: str) -> None:
    measured = {broker: [{"share": 50.0, "p999": tail}] for broker, tail in tails.items()}
    assert said in open_loop.verdict(measured)
    assert open_loop.verdict({MAYFLY: []}) == ""


def test_five_minutes_are_runs_that_end_by_themselves() -> None:
    assert open_loop.parts(300) == [120, 120, 60]
    assert open_loop.parts(60) == [60]


def test_copies_of_the_load_generators_print_more_percentiles() -> None:
    old = 'printf("\\"p50\\":%.3f,\\"p95\\":%.3f", h_q(h, .5) / 1e3, h_q(h, .95) / 1e3);'
    new = load_generator.with_more_percentiles(old)
    assert new == (
        'printf("\\"p50\\":%.3f,\\"p90\\":%.3f,\\"p9999\\":%.3f,\\"p95\\":%.3f", '
        "h_q(h, .5) / 1e3, h_q(h, .9) / 1e3, h_q(h, .9999) / 1e3, h_q(h, .95) / 1e3);"
    )
    with pytest.raises(BrokerFailed, match="0 times, once expected"):
        load_generator.with_more_percentiles("int main(void) {}")

def test_a_gap_begins_with_the_last_confirm_before_the_fault() -> None:
    moments_s = [1.0, 9.0, 9.9, 10.4, 10.5, 12.5]
    assert longest_gap_s(moments_s, 10.0, 11.0) == pytest.approx(0.5)
    assert longest_gap_s(moments_s, 10.0, 13.0) == pytest.approx(2.0)
    assert longest_gap_s(moments_s, 10.0, 15.0) == pytest.approx(2.5)
    assert longest_gap_s([], 10.0, 11.0) == pytest.approx(1.0)


def test_messages_of_a_fault_that_are_lost_twice_or_disordered_are_found() -> None:
    confirmed = {1: {0, 1, 2}, 2: {0}}
    assert faults_of_order(confirmed, [(1, 0), (2, 0), (1, 1), (1, 2), (1, 3)]) == []
    assert faults_of_order(confirmed, [(1, 0), (1, 2)]) == ["2 lost"]
    assert faults_of_order(confirmed, [(1, 0), (2, 0), (1, 1), (1, 1), (1, 2)]) == ["1 came twice"]
    assert faults_of_order(confirmed, [(1, 0), (2, 0), (1, 2), (1, 1)]) == ["1 out of order"]


def test_figures_go_between_the_marks_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{begin_mark('make bench')}\nold\n{END}\nafter\n")
    write_figures(page, "make bench", ["new"])
    assert page.read_text() == f"before\n{begin_mark('make bench')}\n\nnew\n\n{END}\nafter\n"
    with pytest.raises(ValueError, match="no place for figures"):
        replaced(page.read_text(), "another program", [])


def test_the_documents_have_a_place_for_the_figures() -> None:
    root = Path(__file__).resolve().parent.parent.parent
    for page in (root / "README.md", root / "docs" / "measurements" / "benchmarks.md"):
        assert "new figures" in replaced(page.read_text(), "make bench", ["new figures"])
    latency = (root / "docs" / "measurements" / "latency.md").read_text()
    assert "new figures" in replaced(latency, "bench/open_loop.py", ["new figures"])


def test_an_aim_without_a_figure_of_ours_is_not_met_and_failures_are_told_in_the_excerpt() -> None:
    results = Results(about=dict.fromkeys((MAYFLY, *PEERS, "date", "machine"), "x"))
    results.add(MAYFLY, {"a1k.confirmed_s": 100_000, "single.confirmed_s": 1.0})
    results.add(RABBITMQ, {"a1k.confirmed_s": 10_000, "freeze.gap_s": 9.0})
    results.failures = ["MayflyMQ freeze 1: not within 90 s: confirms flow"]
    text = "\n".join(comparison_report.excerpt(results))
    assert "not met: leader frozen: the same, s" in text
    assert "not known: single node, 1 queue, 1 KB: confirmed msg/s" in text
    assert "1 runs or faults failed" in text
