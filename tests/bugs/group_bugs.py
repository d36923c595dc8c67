"""Bugs made on purpose in a group: its order, its sessions and its reads."""

from tests.bugs.bug import Bug

HOST = "tests/cluster/host/test_host.py::"
READS = "tests/cluster/group/test_reads.py::"
FEEDS = "tests/cluster/group/test_feeds.py::"
FEEDING = "tests/cluster/host/test_feeding.py::"

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
        "if not is_open(last_state) or sequence != last_sequence + 1:",
        "if not is_open(last_state) or sequence not in (last_sequence, last_sequence + 1):",
        "tests/cluster/group/test_sessions.py::test_a_repeat_and_a_gap_are_skipped",
        "(False, None)",
    ),
    Bug(
        "takes what a batch that was cut short had for done",
        "cluster/group/own_session.py",
        "self.sender.skip(sequence - 1 if state == CUT else sequence)",
        "self.sender.skip(sequence)",
        HOST + "test_what_a_snapshot_tells_is_taken_for_done_unless_its_batch_was_cut_short",
        "[False, False, False] == ",
    ),
    Bug(
        "goes on in the session that was closed",
        "cluster/group/own_session.py",
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
        "cluster/group/own_session.py",
        "        if not self.is_broken:\n            return sender.unsent",
        "        if True:\n            return sender.unsent",
        HOST + "test_what_is_given_again_after_a_snapshot_goes_into_a_new_session",
        "IndexError",
    ),
    Bug(
        "leaves an entry out when it goes on for another leader",
        "cluster/host/feeding.py",
        "entries = feed.behind(cursor)\n        if entries:",
        "entries = feed.behind(cursor + 1)\n        if entries:",
        FEEDING + "test_when_the_leader_dies_the_next_one_goes_on_where_it_was",
        "expected",
    ),
    Bug(
        "goes on behind a hole",
        "cluster/group/feeds.py",
        "return cursor >= feed.base",
        "return True",
        FEEDS + "test_a_replica_from_a_snapshot_tells_from_there_on_and_not_from_before",
        "is not kept here",
    ),
    Bug(
        "keeps nothing readable for those who were not told yet",
        "cluster/group/feeds.py",
        "free = [index for index in self._withheld if index not in self._needed]",
        "free = list(self._withheld)",
        FEEDS + "test_what_is_not_told_yet_stays_readable",
        "== []",
    ),
    Bug(
        "answers a life of a node with what the one before did",
        "cluster/group/feeds.py",
        "            self._made.pop(node, None)\n",
        "",
        FEEDS + "test_a_life_of_the_node_is_not_told_what_the_one_before_did_in_the_same_entry",
        "== [1]",
    ),
    Bug(
        "gives a replica up for an old word",
        "cluster/host/feeding.py",
        "return term >= group.term and self._said_out.get(group.id, -1) >= group.raw.last_index",
        "return term >= group.term",
        FEEDING + "test_an_old_word_that_a_node_is_out_takes_nothing_from_it",
        "in host.groups",
    ),
    Bug(
        "forgets its vote with its replica",
        "cluster/host/first_state.py",
        "write.hard_state = HardState(promised.term, promised.vote, BOOTSTRAP_INDEX)",
        "write.hard_state = HardState(0, 0, BOOTSTRAP_INDEX)",
        FEEDING + "test_a_replica_that_was_given_up_leaves_its_word_and_nothing_else",
        ">= term",
    ),
    Bug(
        "is told by its own replica before that is as far",
        "cluster/group/group.py",
        "if self.applied < self.session.cursor or not self._applying.can_tell():",
        "if not self._applying.can_tell():",
        FEEDING + "test_a_replica_that_is_behind_what_its_node_was_told_does_not_tell_it_again",
        "assert not True",
    ),
]
