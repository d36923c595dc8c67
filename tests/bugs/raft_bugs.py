"""Bugs made on purpose in consensus."""

from tests.bugs.bug import Bug

PAPER = "tests/cluster/raft/test_paper.py::"

RAFT_BUGS = [
    Bug(
        "votes twice in a term",
        "cluster/raft/voting.py",
        "(raft.vote == NO_NODE and raft.lead == NO_LEADER)",
        "raft.lead == NO_LEADER",
        PAPER + "test_figure_2_request_vote_2_one_vote_per_term",
        "where False = RaftMessage",
    ),
    Bug(
        "forgets its vote at restart",
        "cluster/raft/raft.py",
        "self.vote: int = hard_state.vote",
        "self.vote: int = NO_NODE",
        PAPER + "test_figure_2_persistent_state_a_vote_survives_a_restart",
        "where False = RaftMessage",
    ),
    Bug(
        "says its vote before it is on disk",
        "cluster/raft/voting.py",
        "raft.messages_after_append.append(RaftMessage(response, message.from_, raft.id, message.term))",
        "raft.messages.append(RaftMessage(response, message.from_, raft.id, message.term))",
        PAPER + "test_figure_2_persistent_state_term_and_vote_are_stored_before_the_answer",
        "ready.messages_now == []",
    ),
    Bug(
        "acknowledges entries before they are on disk",
        "cluster/raft/follower.py",
        "raft.messages_after_append.append(\n        RaftMessage(MessageType.APP_RESP, leader",
        "raft.messages.append(\n        RaftMessage(MessageType.APP_RESP, leader",
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
        "if raft.lead != NO_LEADER:\n        _answer_read",
        "tests/cluster/raft/test_reads_and_transfer.py::test_a_cut_off_leader_answers_no_read",
        "stale",
    ),
]
