"""Bugs made on purpose in the log on disk."""

from tests.bugs.bug import Bug

HOSTS = "tests/simulation/test_host_simulation.py::"
AHEAD_FORMAT = "tests/cluster/log/test_write_ahead_format.py::"
AHEAD_STORE = "tests/cluster/store/test_write_ahead_store.py::"

FLIPS = "tests/cluster/store/test_flipped_bits.py::"
LAST_COMMIT = "tests/cluster/store/test_last_commit.py::"

LOG_BUGS = [
    Bug(
        "gives up pieces that a restart reads again",
        "cluster/group/log_upkeep.py",
        "        if not read_at:\n",
        "        if True:\n",
        HOSTS + "test_seeds_that_find_bugs",
        "MissingEntry",
    ),
    Bug(
        "tells of a commit that is not noted",
        "cluster/store/lmdb_store.py",
        "            self._tables.note_commit()\n        except (lmdb.Error, OSError) as error:\n"
        "            raise self._write_failure(error) from error\n        self._extents.update(extents)",
        "        except (lmdb.Error, OSError) as error:\n"
        "            raise self._write_failure(error) from error\n        self._extents.update(extents)",
        LAST_COMMIT + "test_a_lost_meta_page_loses_nothing_that_was_confirmed[1-_not_written]",
        "assert",
    ),
    Bug(
        "believes a commit by its number",
        "cluster/store/last_commit.py",
        "    if any(renumbered(note, newest.transaction) == newest.octets for note in notes):",
        "    if not notes:",
        LAST_COMMIT + "test_a_number_that_a_flip_makes_the_next_one_is_not_believed",
        "assert",
    ),
    Bug(
        "trusts the pages of the log file",
        "cluster/store/last_commit.py",
        "            check_pages(descriptor, meta)\n        except CorruptStore as misfit:",
        "            pass\n        except CorruptStore as misfit:",
        FLIPS + "test_some_flips_in_pages_of_every_kind",
        "AssertionError",
    ),
    Bug(
        "takes free pages as they are listed",
        "cluster/store/lmdb_file.py",
        "        look.take_free(listed)",
        "        pass",
        "tests/cluster/store/test_lmdb_file.py::test_a_free_page_that_is_in_use_or_listed_twice_is_told",
        "DID NOT RAISE",
    ),
    Bug(
        "replays no truncation",
        "cluster/log/gathered.py",
        "keep = max(0, write.entries[0].index - all_of_it.entries[0].index)",
        "keep = len(all_of_it.entries)",
        AHEAD_FORMAT + "test_a_truncation_is_replayed",
        "ValueError: group 1",
    ),
    Bug(
        "replays no hard state",
        "cluster/log/gathered.py",
        "all_of_it.hard_state = write.hard_state",
        "pass",
        AHEAD_FORMAT + "test_a_truncation_is_replayed",
        "assert",
    ),
    Bug(
        "takes a torn record for a whole one",
        "cluster/log/write_ahead_format.py",
        "if found and not _is_whole(image, found[-1]) and _misses",
        "if found and not image and _misses",
        AHEAD_FORMAT + "test_every_cut_of_a_file_in_a_sector_shows_a_prefix",
        "assert",
    ),
    Bug(
        "takes damage for the end",
        "cluster/log/write_ahead_format.py",
        "    if later is not None:",
        "    if later is not None and moved < 0:",
        AHEAD_FORMAT + "test_a_lost_sector_before_a_later_record_is_damage_and_not_the_end",
        "assert",
    ),
    Bug(
        "clears a write-ahead file before the log file holds it",
        "cluster/store/write_ahead_store.py",
        "        moving = self._moving\n        if moving is not None:",
        "        moving = self._moving\n        self._files.clear_other()\n        if moving is not None:",
        AHEAD_STORE + "test_a_file_is_cleared_only_once_the_log_file_holds_it",
        "is missing",
    ),
    Bug(
        "takes a write for done before its sync",
        "cluster/store/write_ahead_files.py",
        "            _sync(self._descriptors[number])\n",
        "            pass\n",
        AHEAD_STORE + "test_a_small_write_is_one_append_and_one_sync_and_the_log_file_is_left_alone",
        "assert",
    ),
    Bug(
        "writes the log without a sync",
        "cluster/store/lmdb_tables.py",
        "max_dbs=4, mode=0o600)",
        "max_dbs=4, mode=0o600, sync=False)",
        "tests/cluster/store/test_torn_writes.py::test_lmdb_syncs_data_before_the_meta_page_that_makes_them_count",
        "MDB_NOSYNC",
    ),
    Bug(
        "serves a damaged entry",
        "cluster/log/records.py",
        "if crc32(payload, zlib.crc32(value[: _ENTRY_HEAD.size], zlib.crc32(key))) != checksum:",
        "if checksum < 0:",
        "tests/simulation/test_memory_store.py::test_a_flipped_bit_is_found_by_its_checksum_wherever_it_is",
        "DID NOT RAISE",
    ),
    Bug(
        "starts with a damaged vote",
        "cluster/log/records.py",
        "if zlib.crc32(value[: _HARD_STATE.size], zlib.crc32(key)) != checksum:",
        "if checksum < 0:",
        "tests/simulation/test_memory_store.py::test_a_flipped_bit_is_found_by_its_checksum_wherever_it_is",
        "DID NOT RAISE",
    ),
    Bug(
        "frees an entry on a full disk before it says why",
        "cluster/log/batch.py",
        "part.hard_state = HardState(state.term, state.vote, min(state.commit, stored))",
        "part.hard_state = None",
        "tests/simulation/test_memory_store.py::test_what_is_given_up_for_want_of_room_takes_the_commit_with_it",
        "HardState",
    ),
    Bug(
        "frees an entry before it says why",
        "cluster/group/log_upkeep.py",
        "            write.hard_state = hard_state\n        else:",
        "            pass\n        else:",
        HOSTS + "test_seeds_that_find_bugs",
        "MissingEntry",
    ),
]
