"""Bugs made on purpose in what a host does about disks, replicas and clocks that are not as they should be."""

from tests.bugs.bug import Bug

HOSTS = "tests/simulation/test_host_simulation.py::"

HOST_BUGS = [
    Bug(
        "is slow by one long write",
        "cluster/host/disk_pace.py",
        "median_ms = sorted(self._took_ms)[WRITES // 2]",
        "median_ms = max(self._took_ms)",
        "tests/cluster/host/test_slow_disk.py::test_some_long_writes_are_not_a_slow_disk",
        "assert",
    ),
    Bug(
        "is quick again at once",
        "cluster/host/disk_pace.py",
        "        if self.slow and now_ms < self._since_ms + self._least_ms:",
        "        if self.slow and now_ms < self._since_ms:",
        "tests/cluster/host/test_slow_disk.py::test_each_time_it_is_slow_for_longer_and_after_a_good_while_as_the_first_time",
        "assert",
    ),
    Bug(
        "lets a replica with a damaged log take part",
        "cluster/group/group.py",
        "if self.rebuild is not None and not self.rebuild.is_ended_by(message):",
        "if self.rebuild is None and message is None:",
        "tests/cluster/group/test_rebuilding.py::test_it_neither_votes_nor_leads_nor_acknowledges_until_then",
        "Error",
    ),
    Bug(
        "has a snapshot that it can't read sent again at once",
        "cluster/group/snapshot_intake.py",
        "return self._message is not None or self.is_refused(node, now_ms)",
        "return self._message is not None",
        "tests/cluster/group/test_snapshots.py::test_a_snapshot_that_cannot_be_read_is_not_stored_and_asked_for_again_later",
        "assert 2 <= (1 + ",
    ),
    Bug(
        "takes any snapshot for a rebuild",
        "cluster/group/rebuilding.py",
        "return leader_term >= self.term and (index >= self.last_index or term == leader_term > self.term)",
        "return True",
        "tests/cluster/group/test_rebuilding.py::test_which_snapshots_cover_what_was_acknowledged",
        "is False",
    ),
    Bug(
        "keeps a lead that can never cover a damaged replica",
        "cluster/host/rebuilds.py",
        "if not group.send_rebuild(peer, request[1]):",
        "if not group.send_rebuild(peer, request[1]) and now_ms < 0:",
        "tests/cluster/group/test_rebuilding.py::test_an_idle_leader_that_cannot_cover_what_the_replica_said_makes_way",
        "did not",
    ),
    Bug(
        "forgets the clock of a voter that died",
        "cluster/host/host.py",
        "self.clocks.away(peer)",
        "self.clocks.forget(peer)",
        "tests/cluster/group/test_clock.py::test_C3_a_leader_whose_voters_have_died_does_not_go_by_its_own_clock",
        "excess_ms",
    ),
    Bug(
        "elects a disk that hangs",
        "cluster/host/raft_input.py",
        "if message.type == MessageType.TIMEOUT_NOW and not self._disk.may_lead(now_ms):",
        "if message.type == MessageType.TIMEOUT_NOW and now_ms < 0:",
        "tests/cluster/host/test_stuck_disk.py::test_who_has_not_heard_of_it_hands_over_in_vain",
        ".leads",
    ),
    Bug(
        "asks one to lead whose disk was late",
        "cluster/raft/succession.py",
        " and progress.recent_active and node not in late",
        " and progress.recent_active",
        "tests/cluster/host/test_stuck_disk.py::test_who_resigns_asks_nobody_whose_disk_was_late",
        "assert [2] == [3]",
    ),
    Bug(
        "carries on after a failed sync as if it had synced",
        "simulation/cluster/machine.py",
        '        self._end(SYNC_FAILED, "what is on the disk is not known")',
        "        self._input(self._persisted)",
        HOSTS + "test_after_a_failed_sync_the_process_has_ended_and_started_anew",
        "Error",
    ),
    Bug(
        "lets a wiped node vote",
        "simulation/cluster/host_node.py",
        'return "it has other data than it had" if named and named != store else ""',
        'return ""',
        HOSTS + "test_a_wiped_node_makes_no_majority",
        "leader completeness",
    ),
    Bug(
        "lets the clock of a silent replica count against the only one that can lead",
        "cluster/group/clock.py",
        "if voter not in silent and self._offsets",
        "if self._offsets",
        HOSTS + "test_a_wrong_clock_and_a_rotten_replica_leave_a_leader",
        "no calm",
    ),
]
