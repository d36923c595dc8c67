"""The octets of write-ahead files: read back as written, torn tails cut off, damage never taken for the end."""

import zlib
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mayfly.cluster.log import records
from mayfly.cluster.log.batch import CorruptStore, MissingEntry, WriteBatch
from mayfly.cluster.log.gathered import GatheredBatches, replay
from mayfly.cluster.log.records import ENTRY_KEY
from mayfly.cluster.log.write_ahead_format import (
    FILE_HEADER_BYTES,
    SECTOR_BYTES,
    decode_record,
    encode_record,
    file_header,
    file_salt,
    may_be_recorded,
    scan,
)
from mayfly.cluster.raft import Entry, HardState
from simulation.cluster.memory_store import MemoryStore
from tests.cluster.store.histories import histories, same

FREE_BYTES = 3000
SALT = 4711

patient = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def image_of(octets: list[bytes], salt: int = SALT, size: int = 0) -> bytes:
    size = size or FILE_HEADER_BYTES + sum(map(len, octets)) + FREE_BYTES
    return b"".join([file_header(size, salt), *octets]).ljust(size, b"\0")


def batch_of(first: int, *payloads: bytes, term: int = 1, group: int = 1) -> WriteBatch:
    batch = WriteBatch()
    batch.group(group).entries = [Entry(term, first + offset, 0, data) for offset, data in enumerate(payloads)]
    return batch


def three_records() -> list[bytes]:
    batches = [batch_of(1, b"a" * 700), batch_of(2, b"b" * 2000, b"c"), batch_of(4, b"d" * 1500)]
    batches[1].group(2).hard_state = HardState(3, 2, 1)
    batches[2].group(1).release = [1]
    return [encode_record(number, batch, SALT) for number, batch in enumerate(batches, 1)]


def recorded(history: list[WriteBatch | None]) -> list[WriteBatch]:
    """What of a history goes into write-ahead files and fits what came before."""
    model, kept = MemoryStore(), []
    for batch in history:
        if batch is None or not may_be_recorded(batch, 1 << 18):
            continue
        try:
            model.write(batch)
        except ValueError:
            continue
        kept.append(batch)
    return kept


def replayed(files: list[tuple[str, bytes]], moved: int = 0) -> tuple[MemoryStore, int]:
    gathered, last = replay(files, moved)
    store = MemoryStore()
    store.write(gathered.batch)
    return store, last


def model_of(batches: list[WriteBatch]) -> MemoryStore:
    model = MemoryStore()
    for batch in batches:
        model.write(batch)
    return model


# --- what is written is read -------------------------------------------------------------------------


@patient
@given(histories(), st.integers(0, (1 << 64) - 1), st.integers(0, 100))
def test_replayed_is_what_was_written_whichever_file_it_is_in(
    history: list[WriteBatch | None], salt: int, cut: int
) -> None:
    batches = recorded(history)
    octets = [encode_record(number, batch, salt) for number, batch in enumerate(batches, 1)]
    cut = min(cut, len(octets))
    files = [("ahead-1", image_of(octets[cut:], salt=salt)), ("ahead-2", image_of(octets[:cut], salt=salt))]
    store, last = replayed(files)
    assert last == len(batches)
    same(store, model_of(batches))


def test_records_that_were_moved_are_passed_over() -> None:
    image = image_of(three_records())
    gathered, last = replay([("ahead-1", image)], moved=2)
    assert (last, list(gathered.batch.groups)) == (3, [1])
    assert [entry.index for entry in gathered.batch.groups[1].entries] == [4]
    assert replay([("ahead-1", image)], moved=3)[0].empty()


def test_a_record_keeps_the_checksums_that_the_log_file_has() -> None:
    image = image_of([encode_record(1, batch_of(5, b"five"), SALT)])
    (record,) = scan(image, "ahead-1", 0)
    write = decode_record(image, record).groups[1]
    (entry,), (checksum,), key = write.entries, write.checksums, ENTRY_KEY.pack(1, 5)
    assert records.encode_entry(key, entry, checksum) == records.encode_entry(key, entry)


def test_snapshots_and_much_payload_are_not_recorded() -> None:
    assert may_be_recorded(batch_of(1, b"x" * 900), 1000)
    assert not may_be_recorded(batch_of(1, b"x" * 500, b"x" * 500), 1000)
    batch = batch_of(1, b"x")
    batch.group(2).install = True
    assert not may_be_recorded(batch, 1000)


# --- gathered ----------------------------------------------------------------------------------------


def test_what_was_gathered_answers_for_the_log_file_behind_it() -> None:
    gathered = GatheredBatches()
    for number, batch in enumerate([batch_of(5, b"five", b"six", b"seven"), batch_of(6, b"other", term=2)], 1):
        encode_record(number, batch, SALT)
        gathered.add(batch)
    assert gathered.find(1, 4) is None
    assert gathered.find(2, 5) is None
    assert (gathered.find(1, 5), gathered.find(1, 6)) == (Entry(1, 5, 0, b"five"), Entry(2, 6, 0, b"other"))
    with pytest.raises(MissingEntry):
        gathered.find(1, 7)
    batch = WriteBatch()
    batch.group(1).release = [2]
    gathered.add(batch)
    with pytest.raises(MissingEntry):
        gathered.find(1, 2)
    assert gathered.find(1, 3) is None


def test_a_truncation_is_replayed() -> None:
    batches = [batch_of(1, b"one", b"two", b"three"), batch_of(2, b"other", term=2), batch_of(3, b"next", term=2)]
    batches[1].group(1).hard_state = HardState(2, 3, 1)
    octets = [encode_record(number, batch, SALT) for number, batch in enumerate(batches, 1)]
    for count, entries in ((1, [(1, 1), (2, 1), (3, 1)]), (2, [(1, 1), (2, 2)]), (3, [(1, 1), (2, 2), (3, 2)])):
        store, _ = replayed([("ahead-1", image_of(octets[:count]))])
        assert store.load()[1].entries == entries
        assert store.load()[1].hard_state == (HardState(2, 3, 1) if count > 1 else HardState())


# --- torn --------------------------------------------------------------------------------------------


@patient
@given(histories(), st.data())
def test_a_torn_record_is_cut_off_and_all_before_it_is_there(
    history: list[WriteBatch | None], data: st.DataObject
) -> None:
    """Any sectors of the last record may be missing, at least one that had something in it."""
    batches = recorded(history)
    if not batches:
        return
    octets = [encode_record(number, batch, SALT) for number, batch in enumerate(batches, 1)]
    whole, before = image_of(octets), image_of(octets[:-1], size=len(image_of(octets)))
    start = FILE_HEADER_BYTES + sum(map(len, octets[:-1]))
    end = start + len(octets[-1])
    sectors = range(start // SECTOR_BYTES * SECTOR_BYTES, end, SECTOR_BYTES)
    missing = data.draw(st.sets(st.sampled_from(sectors), min_size=1))
    torn = bytearray(whole)
    for at in missing:
        torn[at : at + SECTOR_BYTES] = before[at : at + SECTOR_BYTES]
    assert bytes(torn) != whole
    store, last = replayed([("ahead-1", bytes(torn)), ("ahead-2", image_of([]))])
    assert last == len(batches) - 1
    same(store, model_of(batches[:-1]))


def test_every_cut_of_a_file_in_a_sector_shows_a_prefix() -> None:
    octets = three_records()
    whole = image_of(octets)
    ends = [FILE_HEADER_BYTES]
    for record in octets:
        ends.append(ends[-1] + len(record))
    for cut in range(FILE_HEADER_BYTES, ends[-1] + SECTOR_BYTES, SECTOR_BYTES):
        _, last = replay([("ahead-1", whole[:cut].ljust(len(whole), b"\0"))], 0)
        assert last == sum(end <= cut for end in ends[1:])


# --- damage ------------------------------------------------------------------------------------------


def flipped(image: bytes, place: int, bit: int = 4) -> bytes:
    changed = bytearray(image)
    changed[place] ^= bit
    return bytes(changed)


def outcome(image: bytes) -> str:
    """What a file with one flipped bit comes to: refused, or the groups' damage."""
    try:
        gathered, last = replay([("ahead-1", image)], 0)
    except CorruptStore:
        return "refused"
    bad = [
        entry.index
        for number, write in gathered.batch.groups.items()
        for entry, checksum in zip(write.entries, write.checksums, strict=True)
        if records.entry_checksum(ENTRY_KEY.pack(number, entry.index), entry) != checksum
    ]
    return f"{last} records, damaged {bad}"


def test_a_flipped_bit_anywhere_is_never_taken_for_the_end() -> None:
    """In a payload it is left to the entry's own checksum; elsewhere the file is refused, also in the last record."""
    octets = three_records()
    image = image_of(octets)
    end = FILE_HEADER_BYTES + sum(map(len, octets))
    outcomes = {outcome(flipped(image, place)) for place in range(FILE_HEADER_BYTES, end)}
    assert outcomes == {
        "refused",
        "3 records, damaged []",  # an end mark, which says only that the record is whole
        "3 records, damaged [1]",
        "3 records, damaged [2]",
        "3 records, damaged [3]",
        "3 records, damaged [4]",
    }
    harmless = [p for p in range(FILE_HEADER_BYTES, end) if outcome(flipped(image, p)) == "3 records, damaged []"]
    assert len(harmless) == 3 * 4


def test_a_lost_sector_before_a_later_record_is_damage_and_not_the_end() -> None:
    octets = three_records()
    for start in range(FILE_HEADER_BYTES, FILE_HEADER_BYTES + len(octets[0]), SECTOR_BYTES):
        image = bytearray(image_of(octets))
        image[start : start + SECTOR_BYTES] = bytes(SECTOR_BYTES)
        assert outcome(bytes(image)) in ("refused", "3 records, damaged [1]", "3 records, damaged [1, 2]")


def test_records_that_are_missing_between_files_are_noticed() -> None:
    octets = three_records()
    with pytest.raises(CorruptStore, match="goes on with record 3, but record 2 is missing"):
        replay([("ahead-1", image_of(octets[:1])), ("ahead-2", image_of(octets[2:]))], 0)
    with pytest.raises(CorruptStore, match="record 1 is missing"):
        replay([("ahead-1", image_of(octets[1:])), ("ahead-2", image_of([]))], 0)


def test_a_file_that_was_being_cleared_is_no_damage() -> None:
    image = bytearray(image_of(three_records()))
    image[FILE_HEADER_BYTES : FILE_HEADER_BYTES + 1024] = bytes(1024)
    assert replay([("ahead-1", bytes(image))], 3)[0].empty()
    with pytest.raises(CorruptStore, match="no record can be read at byte 512"):
        replay([("ahead-1", bytes(image))], 2)


def test_a_payload_that_looks_like_a_record_is_none() -> None:
    """Whoever sends messages does not know the salt; with it, the file would be refused."""
    for salt, refused in ((SALT + 1, False), (SALT, True)):
        fake = encode_record(9, batch_of(1, b"fake"), salt)
        octets = encode_record(1, batch_of(1, b"x" * 1000, fake, b"y" * 3000), SALT)
        image = bytearray(image_of([octets]))
        image[FILE_HEADER_BYTES : FILE_HEADER_BYTES + SECTOR_BYTES] = bytes(SECTOR_BYTES)  # torn
        if refused:
            with pytest.raises(CorruptStore, match="there is record 9"):
                replay([("ahead-1", bytes(image))], 0)
        else:
            assert replay([("ahead-1", bytes(image))], 0)[1] == 0


def header_with(change: Callable[[bytearray], None], mend: bool) -> bytes:
    image = bytearray(image_of([]))
    change(image)
    if mend:
        image[36:40] = zlib.crc32(image[:36]).to_bytes(4, "big")
    return bytes(image)


def test_other_files_are_refused_by_name() -> None:
    assert file_salt(image_of([]), "ahead-1") == SALT
    with pytest.raises(CorruptStore, match="ahead-1 is cut off: it has 1000 bytes of 3512"):
        file_salt(image_of([])[:1000], "ahead-1")
    with pytest.raises(CorruptStore, match="ahead-1 is cut off"):
        file_salt(b"", "ahead-1")
    with pytest.raises(CorruptStore, match="not a write-ahead file"):
        file_salt(header_with(lambda image: image.__setitem__(0, 1), True), "ahead-1")
    with pytest.raises(CorruptStore, match="header doesn't match"):
        file_salt(header_with(lambda image: image.__setitem__(30, 1), False), "ahead-1")
    with pytest.raises(CorruptStore, match="has version 2, written by a newer MayflyMQ"):
        file_salt(header_with(lambda image: image.__setitem__(19, 2), True), "ahead-1")
