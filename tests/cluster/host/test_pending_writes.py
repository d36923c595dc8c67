"""What groups want written is one batch, unless much of it is: then nobody waits for more than one large write."""

from random import Random

from mayfly.cluster.host.pending_writes import PendingWrites
from mayfly.cluster.limits import KIB, LARGE_WRITE_BYTES, MIB
from mayfly.cluster.log.batch import GroupWrite, StoredSnapshot
from mayfly.cluster.raft import ConfState, Entry, SnapshotMetadata


def write(group: int, size_bytes: int, index: int = 1) -> GroupWrite:
    made = GroupWrite(group)
    made.entries = [Entry(1, index, data=bytes(size_bytes))]
    return made


def gathered(*writes: GroupWrite) -> PendingWrites:
    pending = PendingWrites()
    for each in writes:
        pending.gather(each)
        pending.waiting.append(each.group)
    return pending


def batches(pending: PendingWrites) -> list[tuple[list[int], int]]:
    """All that is written: the groups of each batch, and its size. Who waits for it goes on after it, and only then."""
    found = []
    while (batch := pending.begin()) is not None:
        groups = list(batch.groups)
        size_bytes = sum(len(entry.data) for each in batch.groups.values() for entry in each.entries)
        assert pending.begin() is None
        assert pending.under_way_bytes == size_bytes
        found.append((groups, size_bytes))
        assert pending.ended() == [group for group in groups if group in WAITING]
        assert pending.under_way is None
    assert not pending.waiting and not pending.has_gathered
    return found


WAITING = range(1, 100)


def test_what_is_small_is_one_batch() -> None:
    pending = gathered(*[write(group, LARGE_WRITE_BYTES // 16) for group in range(1, 17)])
    assert batches(pending) == [(list(range(1, 17)), LARGE_WRITE_BYTES)]


def test_sixteen_large_messages_are_sixteen_batches() -> None:
    pending = gathered(*[write(group, 16 * MIB) for group in range(1, 17)])
    assert batches(pending) == [([group], 16 * MIB) for group in range(1, 17)]


def test_small_writes_wait_for_one_large_write_at_most() -> None:
    """They come while a large one is under way, again and again; the large ones get their turn as well."""
    pending = gathered(*[write(group, 16 * MIB) for group in range(1, 4)])
    found: list[list[int]] = []
    index = 0
    while (batch := pending.begin()) is not None:
        found.append(list(batch.groups))
        if len(found) < 6:
            for group in (50, 51):
                index += 1
                pending.gather(write(group, KIB, index))
                pending.waiting.append(group)
        pending.ended()
    assert found == [[1], [50, 51], [2], [50, 51], [3], [50, 51]]


def test_small_writes_go_before_a_large_one_that_gathered_with_them() -> None:
    pending = gathered(write(1, 16 * MIB), write(50, KIB), write(2, 16 * MIB), write(51, KIB))
    assert batches(pending) == [([50, 51], 2 * KIB), ([1], 16 * MIB), ([2], 16 * MIB)]


def test_much_of_many_groups_is_written_in_bounded_steps() -> None:
    pending = gathered(*[write(group, 3 * MIB) for group in range(1, 6)])
    assert [size_bytes for _, size_bytes in batches(pending)] == [3 * MIB] * 5


def test_a_groups_write_is_never_divided() -> None:
    pending = gathered(write(1, 3 * MIB), write(2, KIB), write(1, 3 * MIB, 2))
    pending.waiting.remove(1)
    assert batches(pending) == [([2], KIB), ([1], 6 * MIB)]


def test_snapshots_count_and_take_the_place_of_what_gathered() -> None:
    pending = gathered(write(1, 16 * MIB), write(2, KIB))
    install = GroupWrite(1)
    install.install = True
    install.snapshot = StoredSnapshot(SnapshotMetadata(7, 1, ConfState()), bytes(MIB))
    pending.gather(install)
    assert (batch := pending.begin()) is not None and set(batch.groups) == {1, 2}
    assert pending.under_way_bytes == MIB + KIB


CONTENTS = {size: bytes(size) for size in (KIB, 3 * MIB, 16 * MIB)}


def some(random: Random, sizes: list[int], first: int, index: int) -> list[GroupWrite]:
    made = [GroupWrite(first + number) for number in range(random.randrange(1, 5))]
    for each in made:
        each.entries = [Entry(1, index, data=CONTENTS[random.choice(sizes)])]
    return made


def test_what_has_come_is_on_disk_after_the_writes_that_are_told_whatever_comes_meanwhile() -> None:
    for seed in range(300):
        random = Random(seed)
        pending = PendingWrites()
        sizes = random.choice(([KIB], [16 * MIB], [KIB, 3 * MIB, 16 * MIB]))

        for each in some(random, [KIB, 16 * MIB], 50, 1):
            pending.gather(each)
        if random.random() < 0.5:
            pending.begin()
        assert pending.until_stored
        awaited = some(random, sizes, random.choice((1, 50)), 2)
        for each in awaited:
            pending.gather(each)
        missing = {each.group for each in awaited}
        writes = pending.until_stored
        while missing:
            writes -= 1
            batch = pending.under_way or pending.begin()
            assert batch is not None
            entries = [(group, entry.index) for group, write in batch.groups.items() for entry in write.entries]
            missing -= {group for group, index in entries if index == 2}
            for each in some(random, [KIB, 16 * MIB], random.choice((1, 50, 90)), 3):
                pending.gather(each)
            pending.ended()
        assert writes >= 0
        while pending.begin() is not None:
            pending.ended()
        assert pending.until_stored == 0
