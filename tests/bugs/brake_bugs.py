"""Bugs made on purpose in brakes: what counts, what stops, and when it ends (RULES R5)."""

from tests.bugs.bug import Bug

_SHARD = "tests/node/shard/test_brake.py::"

BRAKE_BUGS = [
    Bug(
        "delivers on brake",
        "node/shard/delivery.py",
        "not ((queue.moving is not None or queue.brake is not None) and queue.holds_back):\n",
        "not (queue.moving is not None and queue.holds_back):\n",
        _SHARD + "test_r5_more_failures_than_the_limit_stop_deliveries",
        "assert",
    ),
    Bug(
        "delivers on brake once a leader has died",
        "node/shard/snapshot/queue_row.py",
        "        state.note_brake(queue)\n",
        "        queue.brake.is_on = False\n",
        "tests/simulation/test_brakes.py::"
        "test_r5_nothing_is_delivered_on_brake_while_leaders_die_and_clocks_are_stepped",
        "Error",
    ),
    Bug(
        "forgets the brake in a snapshot",
        "node/shard/snapshot/queue_row.py",
        "    brake = queue.brake.row() if queue.brake is not None and queue.has_failures else []\n",
        "    brake = queue.brake.row() if queue.brake is not None and queue.deleted else []\n",
        _SHARD + "test_r5_c1_replicas_that_are_restored_at_any_time_go_on_alike",
        "assert",
    ),
    Bug(
        "brakes for what the queue has no room for",
        "node/shard/state.py",
        "        if brake is not None and reason in FAILURES:\n",
        "        if brake is not None and reason:\n",
        _SHARD + "test_r5_deliveries_beyond_the_limit_count_and_other_deaths_do_not",
        "assert",
    ),
    Bug(
        "has nobody look when a brake ends",
        "node/shard/queue.py",
        "            deadline_ms = ends_ms if deadline_ms < 0 else min(deadline_ms, ends_ms)\n",
        "            deadline_ms = deadline_ms if deadline_ms < 0 else min(deadline_ms, ends_ms)\n",
        _SHARD + "test_r5_it_ends_when_no_more_than_the_limit_is_left_in_the_window",
        "assert",
    ),
    Bug(
        "gives on brake what is asked for",
        "node/shard/holders.py",
        "    message = None if queue.is_braked else get_one(state, queue)\n",
        "    message = get_one(state, queue)\n",
        _SHARD + "test_r5_a_get_is_answered_as_from_an_empty_queue_and_is_a_use_of_it",
        "assert",
    ),
    Bug(
        "ends a brake at the time at which it was said to end first",
        "node/shard/state.py",
        "            if brake.is_on:\n                self.touch(queue)",
        "            if brake.is_on and not brake.count:\n                self.touch(queue)",
        _SHARD + "test_r5_a_failure_while_it_is_on_moves_its_end",
        "assert",
    ),
    Bug(
        "leaves the brake behind when a queue moves",
        "node/shard/moves.py",
        "if queue.brake is not None and queue.brake.count else []\n",
        "if queue.brake is not None and queue.deleted else []\n",
        _SHARD + "test_r5_it_moves_with_its_queue_to_a_shard_with_another_clock",
        "assert",
    ),
    Bug(
        "counts what is older than the window",
        "node/shard/brake.py",
        "        while gone < len(self.starts) and self.starts[gone] + self.window_ms <= time_ms:\n",
        "        while gone < len(self.starts) and self.starts[gone] + self.window_ms < time_ms:\n",
        _SHARD + "test_r5_it_is_never_on_longer_than_the_window_behind_the_last_failure",
        "assert",
    ),
    Bug(
        "takes for a full queue what a consumer on brake would take",
        "node/shard/delivery.py",
        "        queue.ready_count() == 0 and queue.consumers.top_band() is not None and not queue.is_braked\n"
        "        and state.delivery_budget > 0\n    )\n\n\ndef has_room_for",
        "        queue.ready_count() == 0 and queue.consumers.top_band() is not None\n"
        "        and state.delivery_budget > 0\n    )\n\n\ndef has_room_for",
        _SHARD + "test_r5_a_full_queue_on_brake_refuses_what_a_consumer_would_take",
        "assert",
    ),
]
