"""What a node makes of an entry that its log does not give back: it stops, and the next start has the group rebuilt."""

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mayfly.cluster.log.batch import CorruptEntry, LogError, MissingEntry
from mayfly.node.shell.reading_back import EntryReader

THEN = "started again, this node has group 4 rebuilt from the others"


class Log:
    """Gives nothing back."""

    def __init__(self, error: LogError) -> None:
        self.error = error
        self.marked: list[int] = []

    def read_entry(self, group: int, index: int) -> None:
        raise self.error

    def mark_damaged(self, group: int, text: str) -> None:
        self.marked.append(group)


def reading(error: LogError, peers: list[int], in_loop: bool) -> tuple[list[int], list[str]]:
    """Which groups are marked, and why the node stops."""
    failures, log = list[str](), Log(error)
    loop = SimpleNamespace(call_soon_threadsafe=lambda call, text: call(text))
    reader = EntryReader(cast(Any, log), cast(Any, loop), failures.append, lambda: bool(peers))

    def read() -> None:
        with pytest.raises(type(error)):
            reader.read(4, 17)

    if in_loop:
        read()
    else:
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
    return log.marked, failures


@pytest.mark.parametrize("in_loop", [True, False])
@pytest.mark.parametrize("peers", [[], [2, 3]])
def test_a_damaged_entry_is_noted_and_stops_the_node(peers: list[int], in_loop: bool) -> None:
    marked, failures = reading(CorruptEntry(4, 17, "bits"), peers, in_loop)
    assert marked == [4]
    assert failures == [f"entry 17 of group 4 is corrupt: bits; {THEN}"]


def test_so_does_one_that_is_gone_where_others_have_it() -> None:
    """A flipped bit in its key: every start would end alike, with the same entry."""
    marked, failures = reading(MissingEntry(4, 17), [2, 3], in_loop=True)
    assert marked == [4]
    assert failures == [f"entry 17 of group 4 is not stored; {THEN}"]


@pytest.mark.parametrize(("peers", "in_loop"), [([], True), ([2], False)])
def test_one_that_was_released_before_a_snapshot_was_read_is_no_damage(peers: list[int], in_loop: bool) -> None:
    """And a node alone has nobody to rebuild it from: it is not kept from starting again."""
    assert reading(MissingEntry(4, 17), peers, in_loop) == ([], [])
