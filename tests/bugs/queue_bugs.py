"""Bugs made on purpose in what clients are given and told: deliveries, answers, limits, dead letters."""

from tests.bugs.bug import Bug

QUEUE_BUGS = [
    Bug(
        "answers a bind before the other nodes know of it",
        "node/duties/catalog_spread.py",
        "        if self._lagging(index):\n            self._waiting.append",
        "        if index < 0:\n            self._waiting.append",
        "tests/broker/test_three_nodes.py::test_the_answer_to_a_bind_waits_for_a_node_that_is_behind",
        "Left contains one more item: <Queue.BindOk",
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
        "routes dead letters by an old catalog",
        "node/duties/shard_duties.py",
        "if not self._has_caught_up:",
        "if now_ms < 0:",
        "tests/broker/test_dead_letter_duties.py::test_d6_a_new_leader_routes_nothing_before_its_catalog_is_as_new_as_its_lead",
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
