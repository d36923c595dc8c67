"""What the judge of streams objects to."""

from dataclasses import replace

import pytest

from simulation.node.history import CONFIRMED, IN_DOUBT, History, Publish, Read
from tests.reliability.faults import Fault
from tests.reliability.stream_judging import Gathered, Pair, judge_streams, stream_table

SECOND = 1_000_000
PAIR = Pair("s", "m", 2_000)
END_S = 100


def publish(number: int, key: str, ttl_s: int | None = None) -> Publish:
    """Number n at n seconds, confirmed half a second later."""
    return Publish(
        number, 1, number, ("s",), None if ttl_s is None else ttl_s * 1_000, number * SECOND, CONFIRMED,
        number * SECOND + SECOND // 2, key=key,
    )


def read(stream: str, offset: int, what: int | str, key: str, at_s: float = END_S, final: bool = False) -> Read:
    """A message, or a marker if `what` is its reason. The reader began at the first."""
    holder = f"{stream} final" if final else f"{stream} reader"
    is_marker = isinstance(what, str)
    return Read(
        round(at_s * SECOND), holder, -1, offset, -1 if is_marker else int(what), False, final, key, "",
        str(what) if is_marker else "", stream,
    )


@pytest.fixture
def history() -> History:
    """1 and 2 of key a die after 3 s, and leave a marker; 3 of key b stays."""
    made = History()
    made.publishes = {1: publish(1, "a", 3), 2: publish(2, "a", 3), 3: publish(3, "b")}
    in_order: list[tuple[int, int | str, str]] = [(0, 1, "a"), (1, 2, "a"), (2, 3, "b"), (3, "MaxAge", "a")]
    made.reads = [
        read("s", 0, 1, "a", 1.5), read("s", 1, 2, "a", 2.5), read("s", 2, 3, "b", 3.5),
        read("s", 3, "MaxAge", "a", 6.0),
        *(read("m", offset, what, key, 50 + offset) for offset, what, key in in_order),
        read("s", 2, 3, "b", final=True),
        *(read("m", offset, what, key, final=True) for offset, what, key in in_order),
    ]  # fmt: skip
    return made


def rules(made: History, faults: tuple[Fault, ...] = ()) -> list[str]:
    return sorted({violation.rule for violation in judge_streams(made, [PAIR], faults)})


def drop(made: History, **of: object) -> None:
    made.reads = [each for each in made.reads if not all(getattr(each, name) == value for name, value in of.items())]


def test_what_is_read_in_order_and_goes_in_time_is_fine(history: History) -> None:
    assert rules(history) == []
    assert "2 with a TTL; confirmed 3" in "\n".join(stream_table(history, [PAIR], [], []))


def test_a_reader_may_miss_what_has_gone(history: History) -> None:
    for offset in (0, 1):
        drop(history, stream="s", offset=offset)
    history.reads[0] = replace_at(history.reads[0], 5.5)
    assert rules(history) == []


def replace_at(one: Read, at_s: float) -> Read:
    return replace(one, at_us=round(at_s * SECOND))


def test_a_reader_may_not_miss_what_is_there(history: History) -> None:
    drop(history, holder="s reader", offset=1)
    assert rules(history) == ["missing"]


def test_a_reader_of_a_mirror_may_miss_nothing(history: History) -> None:
    drop(history, holder="m reader", offset=1)
    assert rules(history) == ["missing"]


def test_backwards(history: History) -> None:
    history.reads.insert(3, read("s", 0, 1, "a", 3.6))
    assert rules(history) == ["order"]


def test_before_where_it_began(history: History) -> None:
    history.reads[0] = replace(history.reads[0], begins=1)
    assert rules(history) == ["order"]


def test_redelivered(history: History) -> None:
    history.reads[0] = replace(history.reads[0], redelivered=True)
    assert rules(history) == ["twice"]


def test_never_published(history: History) -> None:
    del history.publishes[3]
    assert rules(history) == ["invented"]


def test_another_key(history: History) -> None:
    history.publishes[3].key = "c"
    assert rules(history) == ["invented"]


def test_a_marker_of_what_nobody_did(history: History) -> None:
    for place, each in enumerate(history.reads):
        if each.marker:
            history.reads[place] = replace(each, marker="Purge")
    assert rules(history) == ["invented"]


def test_another_message_at_an_offset(history: History) -> None:
    history.publishes[4] = replace(publish(4, "b"), outcome=IN_DOUBT)
    history.reads[2] = replace(history.reads[2], message_id=4)
    assert rules(history) == ["another"]


def test_a_message_at_two_offsets(history: History) -> None:
    for name in ("s", "m"):
        history.reads.append(read(name, 4, 3, "b", final=True))
    assert "twice" in rules(history)


def test_confirmed_and_not_in_the_mirror(history: History) -> None:
    history.publishes[4] = publish(4, "a", 3)
    assert rules(history) == ["lost"]
    history.publishes[4].outcome = IN_DOUBT
    assert rules(history) == []


def test_what_expired_in_a_fault_may_be_in_no_mirror(history: History) -> None:
    history.publishes[4] = publish(4, "a", 3)
    history.reads.insert(0, replace(read("s", 4, 4, "a", 6.0), holder="s another", begins=4))
    history.reads.append(read("m", 5, "MaxAge", "a", final=True))
    fault = Fault("mute", (1,), (), 6 * SECOND, 8 * SECOND, 9 * SECOND)
    assert rules(history, (fault,)) == []
    history.publishes[4].ttl_ms = None
    assert rules(history, (fault,)) == ["lost", "markers"]


def test_confirmed_and_not_in_the_stream(history: History) -> None:
    drop(history, holder="s final")
    assert rules(history) == ["lost"]


def test_a_publisher_out_of_order(history: History) -> None:
    history.publishes = dict(sorted(history.publishes.items(), reverse=True))
    assert rules(history) == ["order"]


def test_long_after_its_deadline_but_for_faults(history: History) -> None:
    history.reads[0] = replace_at(history.reads[0], 15)
    assert rules(history) == ["late"]
    fault = Fault("freeze", (1,), (), 14 * SECOND, 16 * SECOND, 17 * SECOND)
    assert rules(history, (fault,)) == []


def test_there_in_the_end(history: History) -> None:
    history.reads.insert(-5, read("s", 1, 2, "a", 5.0, final=True))
    assert rules(history) == ["late"]


def test_no_marker(history: History) -> None:
    drop(history, marker="MaxAge")
    assert rules(history) == ["markers"]


def test_two_markers(history: History) -> None:
    history.reads.append(read("m", 4, "MaxAge", "a", final=True))
    assert rules(history) == ["markers"]


def test_a_marker_of_a_key_that_stays(history: History) -> None:
    history.reads.append(read("m", 4, "MaxAge", "b", final=True))
    assert rules(history) == ["markers"]


def test_a_marker_too_early(history: History) -> None:
    history.reads[3] = replace_at(history.reads[3], 4.9)
    assert rules(history) == ["markers"]


# ------------------------------------------------------------------------------------------------ sources

OTHER = Pair("t", "u", 2_000)
GATHERED = Gathered("g", (PAIR, OTHER))
IN_GATHERED: list[tuple[str, int, int | str, str]] = [
    ("s", 0, 1, "a"), ("t", 0, 11, "c"), ("s", 1, 2, "a"), ("s", 2, 3, "b"), ("t", 1, 12, "c"), ("s", 3, "MaxAge", "a"),
]  # fmt: skip
"""Source, offset there, what, key."""


def of_source(offset: int, final: bool = True, row: tuple[str, int, int | str, str] | None = None) -> Read:
    source, source_offset, what, key = row or IN_GATHERED[offset]
    one = read("g", offset, what, key, END_S if final else 20 + offset, final)
    return replace(one, source=source, source_offset=source_offset)


@pytest.fixture
def gathering(history: History) -> History:
    """11 and 12 of key c stay in the second stream; a third one has both streams as its sources."""
    for place, number in enumerate((11, 12)):
        history.publishes[number] = replace(publish(number, "c"), queues=("t",))
        history.reads += [read(name, place, number, "c", final=True) for name in OTHER.names]
    for final in (False, True):
        history.reads += [of_source(offset, final) for offset in range(len(IN_GATHERED))]
    return history


def rules_of_sources(made: History, faults: tuple[Fault, ...] = ()) -> list[str]:
    return sorted({violation.rule for violation in judge_streams(made, [PAIR, OTHER], faults, GATHERED)})


def test_j4_what_is_gathered_from_each_source_in_its_order_is_fine(gathering: History) -> None:
    assert rules_of_sources(gathering) == []
    table = stream_table(gathering, [PAIR, OTHER], [], [], GATHERED)
    assert "| 1 stream of 2 sources | 10 | 2 | 2 |" in table


def test_j4_a_reader_may_miss_nothing_that_is_gathered(gathering: History) -> None:
    drop(gathering, holder="g reader", offset=2)
    assert rules_of_sources(gathering) == ["missing"]


def test_j4_gathered_backwards_for_a_reader(gathering: History) -> None:
    gathering.reads.append(of_source(2, final=False))
    assert rules_of_sources(gathering) == ["order"]


def test_j4_one_that_is_gathered_twice(gathering: History) -> None:
    gathering.reads.append(of_source(6, row=("t", 1, 12, "c")))
    assert rules_of_sources(gathering) == ["twice"]


def test_j4_one_that_is_gathered_behind_what_came_later(gathering: History) -> None:
    gathering.reads.append(of_source(6, row=("s", 1, 2, "a")))
    assert rules_of_sources(gathering) == ["order"]


def test_j4_another_than_its_source_has(gathering: History) -> None:
    gathering.reads.append(of_source(6, row=("t", 2, 12, "c")))
    gathering.reads += [read(name, 2, 13, "c", final=True) for name in OTHER.names]
    gathering.publishes[13] = replace(publish(13, "c"), queues=("t",), outcome=IN_DOUBT)
    assert "another" in rules_of_sources(gathering)


def test_j4_another_for_another_reader(gathering: History) -> None:
    gathering.reads[-1] = replace(gathering.reads[-1], key="b")
    assert rules_of_sources(gathering) == ["another"]


@pytest.mark.parametrize("source", ["", "u", "nowhere"])
def test_j4_from_nowhere(gathering: History, source: str) -> None:
    gathering.reads.append(of_source(6, row=(source, 9, "MaxAge", "a")))
    assert rules_of_sources(gathering) == ["invented"]


def test_j4_published_to_another_source(gathering: History) -> None:
    gathering.publishes[14] = replace(publish(14, "c"), queues=("t",), outcome=IN_DOUBT)
    gathering.reads.append(of_source(6, row=("s", 9, 14, "c")))
    assert rules_of_sources(gathering) == ["invented"]


def test_j4_not_gathered_but_for_what_expired_in_a_fault(gathering: History) -> None:
    gathering.reads = [each for each in gathering.reads if each.stream != "g" or each.message_id != 2]
    assert rules_of_sources(gathering) == ["lost"]
    fault = Fault("mute", (1,), (), 3 * SECOND, 6 * SECOND, 7 * SECOND)
    assert rules_of_sources(gathering, (fault,)) == []
    gathering.reads = [each for each in gathering.reads if each.stream != "g" or each.message_id != 12]
    assert rules_of_sources(gathering, (fault,)) == ["lost"]


def test_j4_what_a_reader_saw_in_a_source_is_gathered_though_it_was_never_confirmed(gathering: History) -> None:
    gathering.publishes[12].outcome = IN_DOUBT
    gathering.reads = [each for each in gathering.reads if each.stream != "g" or each.message_id != 12]
    assert rules_of_sources(gathering) == ["lost"]
