"""The demonstration finds a broken promise: it checks what it narrates."""

import io
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from mayfly.node.demonstration import expiry_scene, lease_scene, stage
from mayfly.node.demonstration.expiry_scene import MESSAGES, TTL_MS, Arrival, death_faults
from mayfly.node.demonstration.lease_scene import Kill
from mayfly.node.demonstration.narrator import Narrator
from mayfly.node.demonstration.traffic import NumberedPublisher
from mayfly.node.local_nodes.local_cluster import LocalCluster, plan_cluster
from mayfly.node.settings import NodeSettings


@pytest.fixture
def narrator() -> Narrator:
    return Narrator(Console(file=io.StringIO(), width=200))


def told(narrator: Narrator) -> str:
    assert isinstance(narrator.console.file, io.StringIO)
    return narrator.console.file.getvalue()


def broken(narrator: Narrator) -> list[str]:
    return [promise.text for promise in narrator.promises if not (promise.kept and promise.in_time)]


class Properties:
    """The part of a message's properties that is looked at."""

    def __init__(self, headers: dict[str, Any]) -> None:
        self.headers = headers


def headers(**changes: Any) -> dict[str, Any]:
    """The headers of a message that expired in `q` (D3, D4)."""
    death = {
        "count": 1,
        "reason": "expired",
        "queue": "q",
        "time": datetime.now(UTC).replace(tzinfo=None),
        "exchange": "",
        "routing-keys": ["q"],
    }
    first = {f"x-first-death-{key}": death[key] for key in ("reason", "queue", "exchange")}
    last = {f"x-last-death-{key}": death[key] for key in ("reason", "queue", "exchange")}
    return {"x-death": [death | changes], **first, **last}


def test_correct_death_headers_have_no_faults() -> None:
    assert death_faults(headers(), "q") == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("count", 2),
        ("reason", "rejected"),
        ("queue", "other"),
        ("exchange", "x"),
        ("routing-keys", []),
        ("time", None),
        ("time", datetime.now(UTC) - timedelta(hours=1)),
    ],
)
def test_a_wrong_entry_in_x_death_is_found(key: str, value: object) -> None:
    faults = death_faults(headers(**{key: value}), "q")
    assert len(faults) == 1
    assert f"x-death {key} is" in faults[0]


def test_missing_death_headers_are_found() -> None:
    assert "x-death is None" in death_faults({}, "q")[0]
    assert "x-death is None" in death_faults(None, "q")[0]
    incomplete = headers()
    del incomplete["x-first-death-reason"]
    assert death_faults(incomplete, "q") == ["x-first-death-reason is None, expected 'expired'"]


def arrivals(age_ms: int = TTL_MS + 100) -> list[Arrival]:
    return [
        Arrival(1000 * number + age_ms, Properties(headers()), f"message {number}".encode())
        for number in range(1, MESSAGES + 1)
    ]


SENT_MS = [1000 * number for number in range(1, MESSAGES + 1)]


def test_expiry_as_promised_is_kept(narrator: Narrator) -> None:
    expiry_scene._judge(narrator, "q", SENT_MS, arrivals())
    assert narrator.all_kept


def early(arrived: list[Arrival]) -> None:
    arrived[:] = arrivals(TTL_MS - 1)


def late(arrived: list[Arrival]) -> None:
    arrived[:] = arrivals(TTL_MS + 2000)


def swapped(arrived: list[Arrival]) -> None:
    arrived[2], arrived[3] = arrived[3], arrived[2]


def lost(arrived: list[Arrival]) -> None:
    del arrived[-1]


def doubled(arrived: list[Arrival]) -> None:
    arrived.append(arrived[-1])


def undead(arrived: list[Arrival]) -> None:
    arrived[4] = arrived[4]._replace(properties=Properties({}))


@pytest.mark.parametrize(
    ("damage", "promise"),
    [
        (early, "none before its TTL"),
        (late, "all within"),
        (swapped, "in the order"),
        (lost, "each message arrives once"),
        (doubled, "each message arrives once"),
        (undead, "x-death tells"),
        (list.clear, "each message arrives once"),
    ],
)
def test_a_broken_promise_of_expiry_is_found(
    narrator: Narrator, damage: Callable[[list[Arrival]], None], promise: str
) -> None:
    arrived = arrivals()
    damage(arrived)
    expiry_scene._judge(narrator, "q", SENT_MS, arrived)
    assert any(text.startswith(promise) for text in broken(narrator))
    assert not narrator.all_kept


class Traffic:
    """A publisher or a consumer that has done its work."""

    def __init__(self, numbers: list[int]) -> None:
        self.sent = numbers
        self.confirmed = list(numbers)
        self.confirmed_at_s = [float(number) for number in numbers]
        self.received = list(numbers)
        self.error: str | None = None
        self.pause_ms = 300

    def stop(self, timeout_s: float) -> None:
        pass

    def longest_pause_ms(self, from_s: float, to_s: float) -> int:
        return self.pause_ms


@pytest.mark.parametrize(
    ("change", "promise"),
    [
        ({}, None),
        ({"received": [1, 2, 4]}, "nothing confirmed is missing"),
        ({"received": [1, 2, 3, 4, 4]}, "nothing arrives twice"),
        ({"received": [2, 1, 3, 4]}, "nothing arrives twice"),
        ({"received": [1, 2, 3, 4, 99]}, "nothing arrives twice"),
        ({"error": "ConnectionResetError"}, "clients of the surviving nodes see a pause"),
        ({"pause_ms": 2500}, "clients of the surviving nodes see a pause"),
        ({"confirmed_at_s": [0.1, 0.2]}, "nothing confirmed is missing"),
    ],
)
def test_a_broken_promise_of_traffic_is_found(
    narrator: Narrator, change: dict[str, Any], promise: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_scene, "_PATIENCE_S", 0.1)
    publisher: Any = Traffic([1, 2, 3, 4])
    consumer: Any = Traffic([1, 2, 3, 4])
    for key, value in change.items():
        for side in (publisher, consumer):
            setattr(side, key, value)
    lease_scene._judge_traffic(narrator, publisher, consumer, Kill(at_s=1.5, leaderless_ms=400))
    assert [text for text in broken(narrator) if promise is None or not text.startswith(promise)] == []
    assert narrator.all_kept == (promise is None)


def test_the_longest_pause_between_confirms() -> None:
    publisher = NumberedPublisher(plan_cluster(1, 5672, Path("unused"))[0], NodeSettings(), "q")
    publisher.confirmed_at_s = [0.5, 1.0, 1.2, 2.5, 2.6]
    assert publisher.longest_pause_ms(1.1, 2.7) == 1300
    assert publisher.longest_pause_ms(2.55, 9.6) == 7000


def test_without_promises_nothing_is_kept(narrator: Narrator) -> None:
    assert not narrator.all_kept


def test_the_summary_counts_what_is_broken(narrator: Narrator) -> None:
    narrator.promise("one", True, "1 ms")
    narrator.promise("two", False, "2 ms")
    narrator.summary()
    assert "BROKEN" in told(narrator)
    assert "1 of 2 promises broken" in told(narrator)


def test_a_scene_that_breaks_off_is_a_broken_promise(
    narrator: Narrator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object) -> None:
        raise ConnectionResetError("gone")

    monkeypatch.setattr(expiry_scene, "play", fail)
    monkeypatch.setattr(lease_scene, "play", fail)
    stage._play(narrator, LocalCluster(plan_cluster(3, 5672, tmp_path)), NodeSettings())
    assert len(broken(narrator)) == 2
    assert "broke off with ConnectionResetError: gone" in told(narrator)


def test_every_line_has_the_time(narrator: Narrator) -> None:
    narrator.say("hello")
    line = told(narrator).splitlines()[-1]
    moment = datetime.strptime(line.split("  ")[0], "%H:%M:%S.%f")  # noqa: DTZ007  # a time of day, no date
    assert moment.hour < 24
    assert line.endswith("  hello")
