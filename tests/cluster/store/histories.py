"""Random histories of a log store, for Hypothesis; and what two stores show, compared."""

from hypothesis import strategies as st

from mayfly.cluster.log.batch import GroupWrite, LogStore, MissingEntry, StoredSnapshot, WriteBatch
from mayfly.cluster.raft import ConfState, Entry, HardState, SnapshotMetadata

MAP_BYTES = 64 * 1024 * 1024
GROUPS = 3
HIGHEST_INDEX = 60

payloads = st.one_of(
    st.binary(max_size=40), st.sampled_from([1_500, 2_100, 5_000, 70_000]).map(lambda size: b"p" * size)
)


class Shape:
    """What a model has to know of a group to draw writes that make sense."""

    def __init__(self) -> None:
        self.snapshot_index = 0
        self.last_index = 0


def draw_entries(draw: st.DrawFn, first: int, most: int) -> list[Entry]:
    return [
        Entry(draw(st.integers(1, 5)), first + offset, draw(st.integers(0, 2)), draw(payloads))
        for offset in range(draw(st.integers(1, most)))
    ]


def draw_write(draw: st.DrawFn, write: GroupWrite, shape: Shape) -> None:
    if draw(st.booleans()):
        number = st.integers(0, 99)
        write.hard_state = HardState(draw(number), draw(number), draw(number))
    kind = draw(st.sampled_from(["append", "append", "append", "compact", "install", "release"]))
    if kind == "install":
        write.install = True
        shape.snapshot_index = shape.last_index = draw(st.integers(1, HIGHEST_INDEX))
        indices = draw(st.sets(st.integers(1, shape.snapshot_index), max_size=4))
        write.live_entries = [Entry(1, index, 0, draw(payloads)) for index in sorted(indices)]
    elif kind == "compact":
        shape.snapshot_index = draw(st.integers(shape.snapshot_index, shape.last_index))
    if kind in ("install", "compact"):
        metadata = SnapshotMetadata(shape.snapshot_index, draw(st.integers(1, 5)), ConfState([1, 2], [3]))
        write.snapshot = StoredSnapshot(metadata, draw(payloads))
    if kind == "append" or draw(st.booleans()):
        first = draw(st.integers(shape.snapshot_index + 1, shape.last_index + 1))
        write.entries = draw_entries(draw, first, 6)
        shape.last_index = write.entries[-1].index
    if kind != "append" and shape.snapshot_index:
        write.release = draw(st.lists(st.integers(1, shape.snapshot_index), max_size=20))


@st.composite
def histories(draw: st.DrawFn) -> list[WriteBatch | None]:
    """Batches to write in order; None is a reopening."""
    shapes = {group: Shape() for group in range(GROUPS)}
    history: list[WriteBatch | None] = []
    for _ in range(draw(st.integers(1, 12))):
        if draw(st.integers(0, 3)) == 0:
            history.append(None)
            continue
        batch = WriteBatch()
        for group in draw(st.sets(st.integers(0, GROUPS - 1), min_size=1)):
            draw_write(draw, batch.group(group), shapes[group])
        history.append(batch)
    return history


def shown_groups(store: LogStore) -> dict[int, object]:
    """What `load` tells. A group of which nothing is stored may be listed or not."""
    return {
        number: group
        for number, group in store.load().items()
        if group.entries or group.retained or group.snapshot or group.damage or not group.hard_state.is_empty()
    }


def same(left: LogStore, right: LogStore) -> None:
    assert shown_groups(left) == shown_groups(right)
    for group in range(GROUPS):
        for index in range(1, HIGHEST_INDEX + 80):
            entries: list[Entry | None] = []
            for store in (left, right):
                try:
                    entries.append(store.read_entry(group, index))
                except MissingEntry:
                    entries.append(None)
            assert entries[0] == entries[1]
