"""The judge of streams finds what is wrong with what readers were given, and nothing else (RULES J1-J3, J5)."""

import pytest

from simulation.node.checker.streams import check_streams
from simulation.node.history import CONFIRMED, History, Publish, Read

SECOND_US = 1_000_000


def history(*reads: Read) -> History:
    """Messages 1 to 4, published a second apart: 2 and 3 live 2 s, the others stay; 3 has the key b, the others a."""
    made = History()
    for id, ttl_ms in ((1, None), (2, 2000), (3, 2000), (4, None)):
        made.appended[id] = Publish(
            id, 1, id, ("streamed",), ttl_ms, id * SECOND_US, CONFIRMED, key="b" if id == 3 else "a"
        )
    made.reads.extend(reads)
    return made


def read(second: float, offset: int, id: int, holder: str = "r", **more: object) -> Read:
    key = "b" if id == 3 else "a"
    return Read(int(second * SECOND_US), holder, -1, offset, id, False, **{"key": key, **more})  # type: ignore[arg-type]


ALL = [read(5, 0, 1), read(5, 1, 2), read(5, 2, 3), read(5, 3, 4)]
END = [read(90, 0, 1, "f", final=True), read(90, 3, 4, "f", final=True)]


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
