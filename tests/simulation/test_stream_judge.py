"""The judge of streams finds what is wrong with what readers were given, and nothing else (RULES J)."""

import pytest

from simulation.node.checker.streams import check_streams
from simulation.node.checker.tolerance import Tolerance
from simulation.node.history import CONFIRMED, History, Publish, Read
from simulation.node.topology import GATHERED, MIRROR, STREAM

SECOND_US = 1_000_000


def history(*reads: Read, copies: list[Read] | None = None) -> History:
    """Messages 1 to 4, published a second apart: 2 and 3 live 2 s, the others stay; 3 has the key b, the others a."""
    made = History()
    for id, ttl_ms in ((1, None), (2, 2000), (3, 2000), (4, None)):
        made.appended[id] = Publish(
            id, 1, id, ("streamed",), ttl_ms, id * SECOND_US, CONFIRMED, id * SECOND_US + 1, key="b" if id == 3 else "a"
        )
    made.reads.extend([*reads, *(COPIES if copies is None else copies)])
    return made


def read(second: float, offset: int, id: int, holder: str = "r", **more: object) -> Read:
    key = "b" if id == 3 else "a"
    return Read(int(second * SECOND_US), holder, -1, offset, id, False, **{"key": key, **more})  # type: ignore[arg-type]


ALL = [read(5, 0, 1), read(5, 1, 2), read(5, 2, 3), read(5, 3, 4)]
END = [read(90, 0, 1, "f", final=True), read(90, 3, 4, "f", final=True)]


def copied(place: int, offset: int, source: str, stream: str = GATHERED, holder: str = "g", **more: object) -> Read:
    """The message that the stream has at this offset."""
    from_where = {"source": source, "source_offset": offset} if stream == GATHERED else {}
    return read(91, place, offset + 1, holder, stream=stream, final=True, **from_where, **more)


MIRRORED = [copied(place, place, "", MIRROR, "m") for place in range(4)]
GATHER = [copied(0, 0, STREAM), copied(1, 1, STREAM), copied(2, 0, MIRROR), copied(3, 2, STREAM), copied(4, 3, STREAM)]
GATHER += [copied(5, 1, MIRROR), copied(6, 3, MIRROR)]
COPIES = [*MIRRORED, *GATHER]


def marker(second: float, offset: int, key: str = "b") -> Read:
    return Read(int(second * SECOND_US), f"m{offset}", offset, offset, 0, False, key=key, marker="MaxAge")


@pytest.mark.parametrize(
    "reads",
    [
        [*ALL, *END],
        [*ALL, read(30, 0, 1, "s"), read(30, 3, 4, "s"), *END],
        [*ALL, read(30, 2, 3, "k", only_key="b"), *END],
        [*ALL, marker(30, 4), *END],
        [*ALL, marker(30, 4), marker(60, 6), *END],
    ],
)
def test_nothing_is_wrong(reads: list[Read]) -> None:
    assert check_streams(history(*reads)) == []


@pytest.mark.parametrize(
    ("reads", "told"),
    [
        ([*ALL, *END[:1]], "message 4 was confirmed, and is not in the stream"),
        ([*ALL, read(3, 0, 1, "s"), read(3, 2, 3, "s"), *END], "message 2 at offset 1 was next"),
        ([*ALL, read(30, 3, 4, "s"), *END], "message 1 at offset 0 was next"),
        ([*ALL, read(30, 3, 4, "k", only_key="b"), *END], "has the key a, and b was asked for"),
        ([*ALL, read(30, 2, 9, "s"), *END], "was never published there"),
        ([*ALL, marker(4, 4), *END], "stands behind message 3 at 2, whose time is not over"),
        ([*ALL, marker(90, 4, "a"), *END], "stands behind message 1 at 0, whose time is not over"),
        ([*ALL, marker(30, 4), marker(60, 5), *END], "follows one at 4 without a message of the key between them"),
        ([*ALL, marker(30, 3), *END], "where (4, '') was"),
    ],
)
def test_something_is_wrong(reads: list[Read], told: str) -> None:
    assert any(told in violation.text for violation in check_streams(history(*reads)))


def test_j3_the_last_message_of_a_key_has_a_marker_behind_it_once_its_time_is_over() -> None:
    """As the mirror has it, of what left the stream in a calm cluster."""
    there = Read(91 * SECOND_US, "m", 4, 4, 0, False, True, "b", "", "MaxAge", MIRROR)
    made = history(*ALL, *END)
    assert check_streams(made) == [], "it is not over"
    made.ended_us = 92 * SECOND_US
    (told,) = check_streams(made)
    assert told.text == "message 3 at offset 2 at 91.000000s, for m, is the last of b, whose time is over: no marker"
    assert check_streams(made, Tolerance(early_ms=None)) == [], "clocks were stepped"
    assert check_streams(history(*ALL, *END, copies=[*COPIES, there])) == []
    made.calm_us = 6 * SECOND_US
    assert check_streams(made) == [], "it went while faults went on"
    made.calm_us = 0
    made.ended_us = 7 * SECOND_US
    assert check_streams(made) == [], "it may still come"
    made.ended_us = 92 * SECOND_US
    made.appended[3].ttl_ms = None
    made.reads.append(read(90, 2, 3, "f", final=True))
    assert [each for each in check_streams(made) if "no marker" in each.text] == [], "it stays"


@pytest.mark.parametrize(
    ("copies", "told"),
    [
        ([*MIRRORED[:3], *GATHER], "message 4 was confirmed, and is not in the stream"),
        ([copied(0, 1, "", MIRROR, "m"), *MIRRORED, *GATHER], "message 2 at offset 0"),
        ([*MIRRORED, MIRRORED[0], copied(2, 2, "", MIRROR, "n"), *GATHER], "message 2 at offset 1 was next"),
        ([*MIRRORED, *GATHER[:6]], "message 4 was confirmed, and is not in the stream"),
        ([*MIRRORED, *GATHER, copied(7, 3, MIRROR)], "offset 3 of mirrored at offset 7 at 91.000000s, for g, behind 3"),
        ([*MIRRORED, *GATHER, copied(7, 2, MIRROR)], "offset 2 of mirrored at offset 7 at 91.000000s, for g, behind 3"),
        ([*MIRRORED, *GATHER, copied(7, 9, MIRROR)], "was never published there"),
        ([*MIRRORED, *GATHER, copied(7, 3, "")], "is from nowhere"),
        ([*MIRRORED, *GATHER, copied(6, 3, STREAM, holder="h")], "where another one was"),
        (
            [*MIRRORED, *GATHER, copied(0, 0, STREAM, holder="h"), copied(2, 0, MIRROR, holder="h")],
            "message 2 at offset 1 was next",
        ),
    ],
)  # fmt: skip
def test_j4_something_is_wrong_with_copies(copies: list[Read], told: str) -> None:
    texts = [violation.text for violation in check_streams(history(*ALL, *END, copies=copies))]
    assert any(told in text for text in texts), texts
