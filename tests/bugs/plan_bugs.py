"""Bugs made on purpose in the plan of who votes where, and in how it is changed."""

from tests.bugs.bug import Bug

MOVES = "tests/cluster/host/test_plan_moves.py::"
DOMAINS = "tests/cluster/host/test_placement_in_domains.py::"
CATALOG = "tests/node/catalog/test_changed_plans.py::"
DUTY = "tests/node/membership/test_plan_duty.py::"

PLAN_BUGS = [
    Bug(
        "copies several replicas to a node at once",
        "cluster/host/plan_moves.py",
        "if light in self._receiving or not self._may_go(heavy):",
        "if not self._may_go(heavy):",
        MOVES + "test_a_new_node_gets_its_share_one_replica_at_a_time",
        "one in and one out",
    ),
    Bug(
        "plans for a group that has lost its majority",
        "cluster/host/plan_moves.py",
        "if wanted is None or not self._is.has_majority(present):",
        "if wanted is None:",
        MOVES + "test_a_group_without_a_majority_is_left_alone_and_the_others_are_not",
        "left alone",
    ),
    Bug(
        "waits for ever for a move to a node that is gone",
        "cluster/host/plan_moves.py",
        "group in self._is.moving and (giver is None or giver in present)",
        "group in self._is.moving",
        MOVES + "test_a_move_to_a_node_that_goes_is_made_to_another_one",
        "assert",
    ),
    Bug(
        "moves leaders for any difference of load",
        "cluster/host/plan_moves.py",
        "return group if apart - left >= self._is.weight(group) else None",
        "return group if apart > left else None",
        MOVES + "test_load_that_is_nearly_the_same_moves_nothing",
        "assert not",
    ),
    Bug(
        "minds hosts before zones",
        "cluster/host/failure_domains.py",
        "        return tuple(gains)\n",
        "        return tuple(reversed(gains))\n",
        DOMAINS + "test_zones_count_before_hosts",
        "assert",
    ),
    Bug(
        "takes a plan that was made for other members",
        "node/catalog/members.py",
        "if command.version != self.version or not command.changes:",
        "if not command.changes:",
        CATALOG + "test_a_plan_is_changed_for_the_members_that_it_was_made_for",
        "it is another version",
    ),
    Bug(
        "reads domains as paths before all members can",
        "node/catalog/members.py",
        "return self.failure_domains(path_of if self.has_domain_paths else whole)",
        "return self.failure_domains(path_of)",
        CATALOG + "test_domains_are_paths_from_that_level_on",
        "assert",
    ),
    Bug(
        "moves everything at once when a member leaves",
        "node/catalog/changes.py",
        "members.is_gradual = self._plans and bool(self._state.queues)",
        "members.is_gradual = False",
        CATALOG + "test_the_log_itself_moves_nothing_where_there_are_queues",
        "assert",
    ),
    Bug(
        "lets a member vote again as soon as it is heard",
        "node/membership/plan_duty.py",
        "since_ms is not None and now_ms - since_ms >= least_ms and",
        "since_ms is not None and now_ms - since_ms >= 0 * least_ms and",
        DUTY + "test_one_that_is_back_for_a_moment_stays_away",
        "assert",
    ),
    Bug(
        "moves a queue that takes the heat with it",
        "node/membership/queue_balance.py",
        "if left and min(left)[0] <= load - load // GAIN_PARTS:",
        "if left:",
        "tests/node/membership/test_queue_balance.py::test_a_queue_that_is_alone_in_its_heat_stays",
        "what would leave",
    ),
    Bug(
        "moves a queue while a node drains",
        "node/membership/plan_duty.py",
        "if not busiest or goes or self._catalog.moving_queues():",
        "if not busiest or self._catalog.moving_queues():",
        DUTY + "test_no_queue_moves_by_itself_while_a_node_drains_or_is_silent",
        "assert",
    ),
    Bug(
        "lets every snapshot go as if it were alone",
        "cluster/transport/pace.py",
        "self._used_until_s = used_s + size_bytes / self._bytes_per_second",
        "self._used_until_s = used_s",
        "tests/cluster/transport/test_pace.py::test_in_no_period_more_goes_than_may",
        "assert",
    ),
]
