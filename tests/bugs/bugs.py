"""Bugs made on purpose: each breaks one promise by a change of a few characters, and must not get past the checks.

A bug replaces a text in one source file. The text must be there exactly once: when the source has changed so that
it is not, `broken_source` raises, and the bug has to be written anew.
"""

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("cluster", "node")


class Bug:
    """What is changed where, the narrowest check that catches it, and what that check says then."""

    def __init__(self, name: str, path: str, before: str, after: str, check: str, says: str) -> None:
        self.name: str = name
        self.path: str = path
        self.before: str = before
        self.after: str = after
        self.check: str = check
        """A pytest node id, from the root of the repository."""
        self.says: str = says
        """A part of what pytest prints, so that it isn't caught by accident."""

    def __repr__(self) -> str:
        return self.name


PAPER = "tests/raft/test_paper.py::"
HOST = "tests/cluster/test_host.py::"
HOSTS = "tests/simulator/test_host_simulation.py::"
READS = "tests/cluster/test_reads.py::"
AHEAD_FORMAT = "tests/log/test_write_ahead_format.py::"
AHEAD_STORE = "tests/log/test_write_ahead_store.py::"
DIRECT = "tests/log/test_direct_writes.py::"
OTHERS = "tests/simulator/test_regressions_of_others.py::"
LEASE_EDGES = "tests/simulator/test_lease_edges.py::"

RAFT_BUGS = [
    Bug(
        "votes twice in a term",
        "cluster/raft/voting.py",
        "(raft.vote == NO_NODE and raft.lead == NO_LEADER)",
        "raft.lead == NO_LEADER",
        PAPER + "test_figure_2_request_vote_2_one_vote_per_term",
        "where False = Message",
    ),
    Bug(
        "forgets its vote at restart",
        "cluster/raft/raft.py",
        "self.vote: int = hard_state.vote",
        "self.vote: int = NO_NODE",
        PAPER + "test_figure_2_persistent_state_a_vote_survives_a_restart",
        "where False = Message",
    ),
    Bug(
        "says its vote before it is on disk",
        "cluster/raft/voting.py",
        "raft.messages_after_append.append(Message(response, message.from_, raft.id, message.term))",
        "raft.messages.append(Message(response, message.from_, raft.id, message.term))",
        PAPER + "test_figure_2_persistent_state_term_and_vote_are_stored_before_the_answer",
        "ready.messages_now == []",
    ),
    Bug(
        "acknowledges entries before they are on disk",
        "cluster/raft/follower.py",
        "raft.messages_after_append.append(\n        Message(MessageType.APP_RESP, leader",
        "raft.messages.append(\n        Message(MessageType.APP_RESP, leader",
        PAPER + "test_figure_2_persistent_state_entries_are_stored_before_they_are_acknowledged",
        "ready.messages_now == []",
    ),
    Bug(
        "commits an entry of an older term by counting",
        "cluster/raft/replication.py",
        "return raft.raft_log.maybe_commit(raft.tracker.committed(), raft.term)",
        "index = raft.tracker.committed()\n"
        "    return raft.raft_log.maybe_commit(index, raft.raft_log.term_or_zero(index))",
        PAPER + "test_section_5_4_2_entries_of_former_terms_are_not_committed_by_counting",
        "assert 2 == 0",
    ),
    Bug(
        "truncates where nothing conflicts",
        "cluster/raft/log.py",
        "position = self._first_difference(entries)",
        "position = 0",
        PAPER + "test_figure_2_append_entries_3_no_conflict_drops_nothing",
        "assert [1, 1] == [1, 1, 1, 1]",
    ),
    Bug(
        "counts a learner",
        "cluster/raft/tracker.py",
        "matches = [progress[voter].match for voter in self._incoming]",
        "matches = [each.match for each in progress.values()]",
        PAPER + "test_thesis_4_2_1_a_learner_counts_neither_for_commitment_nor_in_an_election",
        "assert 2 == 1",
    ),
    Bug(
        "counts the response of a past term",
        "cluster/raft/step.py",
        "            _answer_lower_term(raft, message)\n            return\n",
        "            if message.type != MessageType.APP_RESP:\n"
        "                _answer_lower_term(raft, message)\n                return\n",
        PAPER + "test_section_5_1_an_acknowledgement_of_a_past_term_commits_nothing",
        "state == StateType.LEADER",
    ),
    Bug(
        "serves a read from a deposed leader",
        "cluster/raft/leader.py",
        "if raft.read_only.option == ReadOnlyOption.LEASE_BASED:\n        _answer_read",
        "if raft.state == StateType.LEADER:\n        _answer_read",
        "tests/raft/test_reads_and_transfer.py::test_a_cut_off_leader_answers_no_read",
        "stale",
    ),
]

GROUP_BUGS = [
    Bug(
        "lets answers leave before the write",
        "cluster/group.py",
        "messages = ready.messages_now\n",
        "messages = ready.messages_now + ready.messages_after_append\n",
        HOST + "test_nothing_that_waits_for_the_disk_leaves_before_it_is_written",
        "== []",
    ),
    Bug(
        "applies out of order",
        "cluster/group.py",
        "        for entry in entries:\n            if entry.type != EntryType.NORMAL:",
        "        for entry in reversed(entries):\n            if entry.type != EntryType.NORMAL:",
        HOST + "test_the_log_is_applied_in_its_order_after_a_restart",
        "Error",
    ),
    Bug(
        "reuses a sequence number",
        "cluster/sessions.py",
        "if state != OPEN or sequence != last_sequence + 1:",
        "if state != OPEN or sequence not in (last_sequence, last_sequence + 1):",
        "tests/cluster/test_sessions.py::test_a_repeat_and_a_gap_are_skipped",
        "(False, None)",
    ),
    Bug(
        "takes what a batch that was cut short had for done",
        "cluster/applying.py",
        "self.sender.skip(sequence - 1 if state == CUT else sequence)",
        "self.sender.skip(sequence)",
        HOST + "test_what_a_snapshot_tells_is_taken_for_done_unless_its_batch_was_cut_short",
        "[False, False, False] == ",
    ),
    Bug(
        "goes on in the session that was closed",
        "cluster/applying.py",
        "self.sender.restart(self.sender.incarnation + 1)",
        "self.sender.restart(self.sender.incarnation)",
        HOST + "test_a_partitioned_node_loses_its_session_and_its_commands_go_on_in_a_new_one",
        "did not come true",
    ),
    Bug(
        "answers a read from what a deposed leader knows",
        "cluster/group.py",
        "                self.raw.read_index(context)",
        "                if self.leads:\n                    self.reads.answered(context, self.committed)\n"
        "                else:\n                    self.raw.read_index(context)",
        READS + "test_a_cut_off_leader_answers_nobody_and_later_with_what_it_missed",
        "assert not reading.done",
    ),
    Bug(
        "takes the answer to an earlier read for that of a later one",
        "cluster/reads.py",
        "if not self._under_way or context != self._context():",
        "if not self._under_way:",
        READS + "test_an_answer_to_an_earlier_request_says_nothing",
        "assert",
    ),
    Bug(
        "reads without what the node itself wrote before",
        "cluster/reads.py",
        "if read.index <= applied and read.batches <= batches:",
        "if read.index <= applied:",
        READS + "test_a_node_reads_what_it_wrote_before",
        "Right contains",
    ),
    Bug(
        "answers a bind before the other nodes know of it",
        "node/duties/catalog_spread.py",
        "        if self._lagging(index):\n            self._waiting.append",
        "        if index < 0:\n            self._waiting.append",
        "tests/broker/test_three_nodes.py::test_the_answer_to_a_bind_waits_for_a_node_that_is_behind",
        "Left contains one more item: <Queue.BindOk",
    ),
    Bug(
        "loses a session batch when the leader changes",
        "cluster/sessions.py",
        "        for batch in self._unapplied:\n            batch.sent_ms = -1\n\n",
        "        self._unapplied.clear()\n\n",
        HOST + "test_a_killed_leader_is_replaced_and_nothing_is_lost_or_repeated",
        "Error",
    ),
]

DISK_BUGS = [
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
        "cluster/log/write_ahead_store.py",
        "        moving = self._moving\n        if moving is not None:",
        "        moving = self._moving\n        self._files.clear_other()\n        if moving is not None:",
        AHEAD_STORE + "test_a_file_is_cleared_only_once_the_log_file_holds_it",
        "is missing",
    ),
    Bug(
        "takes a write for done before its sync",
        "cluster/log/write_ahead_files.py",
        "            _sync(self._descriptors[number])\n",
        "            pass\n",
        AHEAD_STORE + "test_a_small_write_is_one_append_and_one_sync_and_the_log_file_is_left_alone",
        "assert",
    ),
    Bug(
        "has the kernel write without a sync",
        "cluster/log/direct_writes.py",
        "os.O_DIRECT | os.O_DSYNC",
        "os.O_DIRECT",
        DIRECT + "test_a_direct_write_is_a_synced_one",
        "assert",
    ),
    Bug(
        "takes a direct write for done when it has begun",
        "cluster/log/write_ahead_store.py",
        "if not direct.ended(wait):",
        "if not direct.ended(wait) and wait:",
        DIRECT + "test_what_has_not_ended_is_not_noted",
        "assert",
    ),
    Bug(
        "writes over the octets that stand before a record",
        "cluster/log/direct_writes.py",
        "buffer[:inside] = before",
        "buffer[:inside] = bytes(inside)",
        DIRECT + "test_records_end_where_the_next_begin",
        "assert",
    ),
    Bug(
        "writes the log without a sync",
        "cluster/log/lmdb_tables.py",
        "map_size=map_size_bytes, max_dbs=4)",
        "map_size=map_size_bytes, max_dbs=4, sync=False)",
        "tests/log/test_torn_writes.py::test_lmdb_syncs_data_before_the_meta_page_that_makes_them_count",
        "MDB_NOSYNC",
    ),
    Bug(
        "lets a replica with a damaged log take part",
        "cluster/group.py",
        "if self.rebuild is not None and not self.rebuild.is_ended_by(message):",
        "if self.rebuild is None and message is None:",
        "tests/cluster/test_rebuild.py::test_it_neither_votes_nor_leads_nor_acknowledges_until_then",
        "Error",
    ),
    Bug(
        "has a snapshot that it can't read sent again at once",
        "cluster/snapshot_intake.py",
        "return self._message is not None or self.is_refused(node, now_ms)",
        "return self._message is not None",
        "tests/cluster/test_snapshots.py::test_a_snapshot_that_cannot_be_read_is_not_stored_and_asked_for_again_later",
        "assert 2 <= (1 + ",
    ),
    Bug(
        "takes any snapshot for a rebuild",
        "cluster/rebuild.py",
        "return index >= self.last_index or term == leader_term > self.term",
        "return True",
        "tests/cluster/test_rebuild.py::test_which_snapshots_cover_what_was_acknowledged",
        "is False",
    ),
    Bug(
        "elects a disk that hangs",
        "cluster/host.py",
        "if message.type == MessageType.TIMEOUT_NOW and not self.disk.may_lead(now_ms):",
        "if message.type == MessageType.TIMEOUT_NOW and now_ms < 0:",
        "tests/cluster/test_stuck_disk.py::test_who_has_not_heard_of_it_hands_over_in_vain",
        ".leads",
    ),
    Bug(
        "asks one to lead whose disk was late",
        "cluster/elections.py",
        " and progress.recent_active and node not in late",
        " and progress.recent_active",
        "tests/cluster/test_stuck_disk.py::test_who_resigns_asks_nobody_whose_disk_was_late",
        "assert [2] == [3]",
    ),
]

HOST_BUGS = [
    Bug(
        "carries on after a failed sync as if it had synced",
        "cluster/simulator/machine.py",
        '        self._end(SYNC_FAILED, "what is on the disk is not known")',
        "        self._input(self._persisted)",
        HOSTS + "test_after_a_failed_sync_the_process_has_ended_and_started_anew",
        "Error",
    ),
    Bug(
        "serves a damaged entry",
        "cluster/log/records.py",
        "if crc32(payload, zlib.crc32(value[: _ENTRY_HEAD.size], zlib.crc32(key))) != checksum:",
        "if checksum < 0:",
        "tests/log/test_memory_store.py::test_a_flipped_bit_is_found_by_its_checksum_wherever_it_is",
        "DID NOT RAISE",
    ),
    Bug(
        "starts with a damaged vote",
        "cluster/log/records.py",
        "if zlib.crc32(value[: _HARD_STATE.size], zlib.crc32(key)) != checksum:",
        "if checksum < 0:",
        "tests/log/test_memory_store.py::test_a_flipped_bit_is_found_by_its_checksum_wherever_it_is",
        "DID NOT RAISE",
    ),
    Bug(
        "frees an entry on a full disk before it says why",
        "cluster/log/batch.py",
        "part.hard_state = HardState(state.term, state.vote, min(state.commit, stored))",
        "part.hard_state = None",
        "tests/log/test_memory_store.py::test_what_is_given_up_for_want_of_room_takes_the_commit_with_it",
        "HardState",
    ),
    Bug(
        "frees an entry before it says why",
        "cluster/log_upkeep.py",
        "            write.hard_state = hard_state\n        else:",
        "            pass\n        else:",
        HOSTS + "test_seeds_that_find_bugs",
        "MissingEntry",
    ),
    Bug(
        "lets a wiped node vote",
        "cluster/simulator/host_node.py",
        'return "it has other data than it had" if named and named != store else ""',
        'return ""',
        HOSTS + "test_a_wiped_node_makes_no_majority",
        "leader completeness",
    ),
    Bug(
        "lets the clock of a silent replica count against the only one that can lead",
        "cluster/clock.py",
        "if voter not in silent and self._offsets",
        "if self._offsets",
        HOSTS + "test_a_wrong_clock_and_a_rotten_replica_leave_a_leader",
        "no calm",
    ),
]

TIME_BUGS = [
    Bug(
        "expires by a wall clock that was stepped",
        "node/process_clock.py",
        "return (self.origin_ns + _elapsed_ns()) // 1_000_000",
        "return time.time_ns() // 1_000_000",
        "tests/cluster/test_clock.py::test_the_process_clock_ignores_steps_of_the_wall_clock",
        "assert",
    ),
    Bug(
        "stamps by a clock that runs far ahead of the others",
        "cluster/clock.py",
        "return now_ms - self.excess_ms()",
        "return now_ms",
        "tests/cluster/test_clock.py::test_C3_a_node_far_ahead_of_both_peers_stamps_without_the_excess",
        "clocks.trusted(now)",
    ),
    Bug(
        "delivers past the deadline",
        "node/shard/delivery.py",
        "if deadline_ms < now_ms or (deadline_ms == now_ms and message.index != fresh_index):",
        "if deadline_ms < 0:",
        "tests/shard/test_message_ttl.py::test_t5_never_early_never_delivered_late",
        "assert 'b' is None",
    ),
    Bug(
        "resets a lease when the leader changes",
        "cluster/clock.py",
        "if self._claimed_term >= last_term and self._claimed_led_ms > self.led_ms:",
        "if self._claimed_led_ms < 0:",
        "tests/cluster/test_clock.py::test_L6_a_new_leader_continues_the_led_clock_of_the_old_one",
        "led_ms == 4_100",
    ),
    Bug(
        "ends a lease without a second look",
        "node/shard/queues.py",
        "if queue is None or not queue.lease.has_run_out(epoch, queue.expires_ms, state.led_ms):",
        "if queue is None:",
        LEASE_EDGES + "test_l2_l3_l4_seeds_that_find_bugs",
        "L4: queue edge",
    ),
    Bug(
        "starts leases anew with each leader",
        "cluster/clock.py",
        "            self.led_ms = self._claimed_led_ms\n        self._led_seen_ms = now_ms",
        "            self.led_ms = self.applied_led_ms\n        self._led_seen_ms = now_ms",
        LEASE_EDGES + "test_l2_l3_l4_seeds_that_find_bugs",
        "L6: edge",
    ),
    Bug(
        "charges an outage to leases",
        "cluster/clock.py",
        "self.led_ms = self.applied_led_ms\n        if self._claimed_term",
        "self.led_ms = self.applied_led_ms + max(0, trusted_ms - self.time_ms)\n        if self._claimed_term",
        LEASE_EDGES + "test_l2_l3_l4_seeds_that_find_bugs",
        "L7: edge",
    ),
    Bug(
        "ends leases by the wall clock",
        "cluster/clock.py",
        "            self.led_ms += min(now_ms - self._led_seen_ms, self.LONGEST_LED_STEP_MS)\n",
        "            self.led_ms = max(self.led_ms, self.current_ms(now_ms))\n",
        LEASE_EDGES + "test_l2_l3_l4_seeds_that_find_bugs",
        "L4: queue edge",
    ),
    Bug(
        "stamps a renewal with the time of the last tick",
        "cluster/group.py",
        "        self.clock.advance_led(now_ms)\n        for batches in",
        "        for batches in",
        LEASE_EDGES + "test_l2_l3_l4_seeds_that_find_bugs",
        "L4: queue edge",
    ),
    Bug(
        "forgets in an outage how far leases have come",
        "node/duties/shard_leader.py",
        "elif self.shard.next_lease_due_ms() >= 0 and led_ms - self.shard.led_ms >= LEASES_RECORDED_EVERY_MS:",
        "elif led_ms < 0:",
        LEASE_EDGES + "test_l6_l7_an_outage_of_all_adds_no_whole_period_to_a_quiet_lease",
        "L6: edge",
    ),
    Bug(
        "lets a queue go with jobs that are due",
        "node/shard/queues.py",
        "    if queue.dead_letters:\n        serve(state, queue)",
        "    if queue.dead_letters and epoch < 0:\n        serve(state, queue)",
        "tests/simulator/test_regressions_of_others.py::test_d6_l4_what_is_due_with_its_queue_is_dead_lettered_first",
        "an entry may expire",
    ),
    Bug(
        "leaves the timer of a queue that goes",
        "node/shard/queues.py",
        "    state.message_timers.cancel(queue_id)\n    state.lease_timers.cancel(queue_id)\n    state.unserved",
        "    state.lease_timers.cancel(queue_id)\n    state.unserved",
        OTHERS + "test_t13_timers_that_leak_after_purge",
        "test_t13_timers_that_leak_after_purge[delete]",
    ),
    Bug(
        "looks at no deadline behind a head that is got",
        "node/shard/holders.py",
        "    state.touch(queue)\n    if message is None:",
        "    if message is None:",
        OTHERS + "test_t6_t7_a_head_without_ttl_that_stops_all_later_expiry",
        "[1, 1, 1] == [0, 0, 0]",
    ),
    Bug(
        "expires under its first leader alone",
        "node/duties/shard_leader.py",
        "            self._term = self._group.term\n        return True",
        "            self._term = self._group.term\n        return self._group.leader_index < 5",
        OTHERS + "test_l6_t7_expiry_that_never_rearms_after_a_leader_change",
        "assert all(",
    ),
    Bug(
        "judges by a clock of its own",
        "cluster/applying.py",
        "machine.begin(index, time_ms, led_ms, data)",
        "machine.begin(index, time_ms + 100 * self._node, led_ms, data)",
        OTHERS + "test_c1_t4_each_replica_judging_by_its_own_clock",
        "Error",
    ),
    Bug(
        "shows what its limit will drop",
        "node/shard/delivery.py",
        "(queue.consumers.bands or (queue.drops and queue.is_over_limit()))",
        "queue.consumers.bands",
        "tests/shard/test_length_limits.py::"
        "test_d2_nobody_sees_more_than_the_limit_behind_publishes_of_the_same_entry",
        "assert 100 == 3",
    ),
    Bug(
        "goes on in a session that missed its answers",
        "cluster/group.py",
        "        broken = self.broken_session()\n        if lead == 0",
        "        broken = None\n        if lead == 0",
        HOST + "test_what_is_given_again_after_a_snapshot_goes_into_a_new_session",
        "IndexError",
    ),
    Bug(
        "moves a dead letter twice",
        "node/shard/dead_letters.py",
        "repeats = min(highest + 1 - first_sequence, count)",
        "repeats = 0",
        "tests/shard/test_dead_letters.py::test_d6_transfers_arrive_once_and_in_order",
        "assert (",
    ),
    Bug(
        "drops a dead letter that finds its queue full",
        "node/shard/dead_letters.py",
        "queue.note_received(source, highest + taken)",
        "queue.note_received(source, highest + count - repeats)",
        "tests/shard/test_length_limits.py::test_d8_a_full_target_takes_what_fits_and_the_rest_comes_again",
        "received_up_to",
    ),
    Bug(
        "refuses a publish and says that it is stored",
        "node/shard/publish.py",
        "refused.append(number)",
        "refused.append(-1)",
        "tests/broker/test_length_limits.py::test_d2_a_full_queue_nacks_each_publish_it_refuses",
        "assert",
    ),
    Bug(
        "lets a later dead letter overtake those that wait",
        "node/shard/dead_letters.py",
        "if (lane is not None and lane.items) or not _take_in(state, queue, content):",
        "if not _take_in(state, queue, content):",
        "tests/shard/test_length_limits.py::test_d8_a_full_target_in_the_same_shard_gets_a_lane",
        "assert",
    ),
    Bug(
        "gives a consumer more than its window",
        "node/shard/delivery.py",
        "            window_left = holder.window_left()\n",
        "",
        "tests/shard/test_windows.py::test_a_consumer_is_given_what_its_window_takes",
        "['0', '1', '2']",
    ),
    Bug(
        "says that a client took what it does not read",
        "node/broker/consumers.py",
        "        if self.channel.pauses(self):\n            return\n        self._reported_bytes",
        "        self._reported_bytes",
        "tests/broker/test_consumer_windows.py::test_nothing_is_told_while_the_client_does_not_read",
        "said.taken() == []",
    ),
]

BUGS = RAFT_BUGS + GROUP_BUGS + DISK_BUGS + HOST_BUGS + TIME_BUGS


def sound_source(folder: Path) -> None:
    """A copy of the source tree as it is, with the tests as they are beside it."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    (folder / "tests").symlink_to(ROOT / "tests", target_is_directory=True)
    shutil.copy(ROOT / "pyproject.toml", folder)


def broken_source(bug: Bug, folder: Path) -> None:
    """A copy of the source tree with the bug in it. Raises LookupError when the source has changed."""
    sound_source(folder)
    source = folder / bug.path
    text = source.read_text(encoding="utf-8")
    if text.count(bug.before) != 1:
        raise LookupError(
            f"the bug {bug.name!r} replaces a text that is {text.count(bug.before)} times in {bug.path}, once is "
            f"right: write the bug anew for the source as it is now\n{bug.before}"
        )
    source.write_text(text.replace(bug.before, bug.after), encoding="utf-8")
