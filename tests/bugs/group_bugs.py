"""Bugs made on purpose in a group: its order, its sessions and its reads."""

from tests.bugs.bug import Bug

HOST = "tests/cluster/host/test_host.py::"
READS = "tests/cluster/group/test_reads.py::"

GROUP_BUGS = [
    Bug(
        "lets answers leave before the write",
        "cluster/group/group.py",
        "messages = ready.messages_now\n",
        "messages = ready.messages_now + ready.messages_after_append\n",
        HOST + "test_nothing_that_waits_for_the_disk_leaves_before_it_is_written",
        "== []",
    ),
    Bug(
        "applies out of order",
        "cluster/group/group.py",
        "        for entry in entries:\n            if entry.type != EntryType.NORMAL:",
        "        for entry in reversed(entries):\n            if entry.type != EntryType.NORMAL:",
        HOST + "test_the_log_is_applied_in_its_order_after_a_restart",
        "Error",
    ),
    Bug(
        "reuses a sequence number",
        "cluster/group/sessions.py",
        "if state != OPEN or sequence != last_sequence + 1:",
        "if state != OPEN or sequence not in (last_sequence, last_sequence + 1):",
        "tests/cluster/group/test_sessions.py::test_a_repeat_and_a_gap_are_skipped",
        "(False, None)",
    ),
    Bug(
        "takes what a batch that was cut short had for done",
        "cluster/group/applying.py",
        "self.sender.skip(sequence - 1 if state == CUT else sequence)",
        "self.sender.skip(sequence)",
        HOST + "test_what_a_snapshot_tells_is_taken_for_done_unless_its_batch_was_cut_short",
        "[False, False, False] == ",
    ),
    Bug(
        "goes on in the session that was closed",
        "cluster/group/applying.py",
        "self.sender.restart(self.sender.incarnation + 1)",
        "self.sender.restart(self.sender.incarnation)",
        HOST + "test_a_partitioned_node_loses_its_session_and_its_commands_go_on_in_a_new_one",
        "did not come true",
    ),
    Bug(
        "answers a read from what a deposed leader knows",
        "cluster/group/group.py",
        "                self.raw.read_index(context)",
        "                if self.leads:\n                    self.reads.answered(context, self.committed)\n"
        "                else:\n                    self.raw.read_index(context)",
        READS + "test_a_cut_off_leader_answers_nobody_and_later_with_what_it_missed",
        "assert not reading.done",
    ),
    Bug(
        "takes the answer to an earlier read for that of a later one",
        "cluster/group/reads.py",
        "if not self._under_way or context != self._context():",
        "if not self._under_way:",
        READS + "test_an_answer_to_an_earlier_request_says_nothing",
        "assert",
    ),
    Bug(
        "reads without what the node itself wrote before",
        "cluster/group/reads.py",
        "if read.index <= applied and read.batches <= batches:",
        "if read.index <= applied:",
        READS + "test_a_node_reads_what_it_wrote_before",
        "Right contains",
    ),
    Bug(
        "loses a session batch when the leader changes",
        "cluster/group/sessions.py",
        "        for batch in self._unapplied:\n            batch.sent_ms = -1\n\n",
        "        self._unapplied.clear()\n\n",
        HOST + "test_a_killed_leader_is_replaced_and_nothing_is_lost_or_repeated",
        "Error",
    ),
    Bug(
        "goes on in a session that missed its answers",
        "cluster/group/group.py",
        "        broken = self.broken_session()\n        if lead == 0",
        "        broken = None\n        if lead == 0",
        HOST + "test_what_is_given_again_after_a_snapshot_goes_into_a_new_session",
        "IndexError",
    ),
]
