"""Bugs made on purpose in queues that move between shards."""

from tests.bugs.bug import Bug

_CATALOG = "tests/node/catalog/test_queue_moves.py::"
_SHARD = "tests/node/shard/test_moves.py::"
_DUTY = "tests/node/duties/test_queue_moves.py::"
_LANES = "tests/node/duties/test_lane_transfers.py::"

MOVE_BUGS = [
    Bug(
        "takes a late word on an earlier move for the present one",
        "node/catalog/changes.py",
        "LEVEL_NUMBERED_MOVES and command.number != queue.move_number + 1:",
        "LEVEL_NUMBERED_MOVES and command.number > queue.move_number + 1:",
        _CATALOG + "test_what_is_said_late_of_an_earlier_move_counts_for_no_later_one",
        "Done(changed=True)",
    ),
    Bug(
        "moves a queue that was declared anew",
        "node/catalog/changes.py",
        "            command.id not in (0, queue.id) or command.number",
        "            command.number",
        _CATALOG + "test_a_move_that_was_meant_for_another_queue_of_the_name_is_refused",
        "assert",
    ),
    Bug(
        "sends a queue away that has come back",
        "node/shard/moves.py",
        "(number and number <= state.move_numbers.get(queue_id, 0))",
        "(number and number < state.move_numbers.get(queue_id, 0))",
        _SHARD + "test_a_move_out_that_comes_late_takes_a_queue_that_has_come_back_nowhere",
        "assert not",
    ),
    Bug(
        "forgets the number of a move in a snapshot",
        "node/shard/snapshot/queue_row.py",
        "        state.move_numbers[queue_id] = special_rows[_MOVE_NUMBER]\n",
        "        state.move_numbers[queue_id] = 1\n",
        _SHARD + "test_a_move_out_that_comes_late_takes_a_queue_that_has_come_back_nowhere",
        "assert",
    ),
    Bug(
        "says of a later move what its shard has of an earlier one",
        "node/duties/queue_moves.py",
        "        if self._shard.move_number(record.id) not in (0, record.move_number + 1):\n",
        "        if self._shard.move_number(record.id) > record.move_number + 1:\n",
        _DUTY + "test_a_leader_that_does_not_know_that_it_is_none_says_nothing_of_a_later_move",
        "assert not",
    ),
    Bug(
        "gives a move that its shard has behind it",
        "node/duties/queue_moves.py",
        " and self._shard.move_number(record.id) <= record.move_number:\n",
        ":\n",
        _DUTY + "test_a_leader_whose_catalog_is_behind_sends_no_queue_away_that_has_come_back",
        "assert not",
    ),
    Bug(
        "counts for a move how long an earlier one has waited",
        "node/duties/queue_moves.py",
        "        if number != record.move_number:\n",
        "        if number < 0:\n",
        _DUTY + "test_how_long_a_queue_has_waited_for_one_move_does_not_count_for_the_next",
        "assert not",
    ),
    Bug(
        "sends a queue to a shard that nobody leads",
        "node/duties/queue_moves.py",
        "        if not self._port.has_leader(record.moving_to):\n",
        "        if not record.moving_to:\n",
        _DUTY + "test_a_queue_does_not_leave_for_a_shard_that_nobody_leads",
        "assert not",
    ),
    Bug(
        "passes over what a queue that comes back has in its lane",
        "node/shard/queues.py",
        "    return queue.is_arriving or (queue.returns and state.level >= LEVEL_RETURNS_COUNTED)\n",
        "    return queue.is_arriving\n",
        _SHARD + "test_what_a_queue_that_comes_back_has_in_its_lane_is_a_part_of_it",
        "assert",
    ),
    Bug(
        "keeps what was published in the entry that drops a queue on its way back",
        "node/shard/queues.py",
        "        lines.append(queue.moving.late.leave())\n",
        "        queue.moving.late.leave()\n",
        _SHARD + "test_what_was_published_in_the_entry_that_drops_a_queue_on_its_way_back_goes_with_it",
        "assert not",
    ),
    Bug(
        "lets a letter without room hold up who makes room",
        "node/shard/dead_letters.py",
        "        if not beyond_limits and (queue.ready_count() or not queue.max_length):\n",
        "        if queue.ready_count() or not queue.max_length:\n",
        _SHARD + "test_d8_a_letter_without_room_does_not_hold_up_who_makes_room",
        "assert",
    ),
    Bug(
        "sends nothing that lets a queue be used before there is room",
        "node/duties/lane_transfers.py",
        "            if item_kind(message) == LETTER and fits >= needed_up_to:\n",
        "            if item_kind(message) == LETTER:\n",
        _LANES + "test_d8_letters_before_what_lets_a_queue_be_used_need_no_room",
        "assert",
    ),
    Bug(
        "puts a letter before what is still on its way with its queue",
        "node/shard/dead_letters.py",
        "        or (queue.is_arriving and state.level >= LEVEL_LETTERS_BEHIND_ARRIVALS)\n",
        "",
        _SHARD + "test_d7_a_letter_in_the_shard_to_which_a_queue_comes_waits_for_all_that_was_in_it",
        "assert",
    ),
    Bug(
        "commits to where a queue has moved on without waiting for what is behind it",
        "node/broker/operations/session.py",
        "        while uncrossed := crossings.uncrossed(transaction.queues(cluster.catalog)):\n",
        "        if uncrossed := crossings.uncrossed(transaction.queues(cluster.catalog)):\n",
        "tests/node/broker/test_transactions.py::"
        "test_a_queue_that_moves_on_while_a_commit_goes_over_is_gone_over_to_once_more",
        "assert",
    ),
    Bug(
        "has publishers wait for letters without room",
        "node/shard/moves.py",
        "        return Crossed(lane.last_own, False)\n",
        "        return Crossed(lane.last_sequence(), False)\n",
        _SHARD + "test_publishers_do_not_wait_for_letters_without_room",
        "assert",
    ),
    Bug(
        "gives the place of consumers that are on their way to an exclusive one",
        "node/shard/holders.py",
        "(consumers.count or (not again and _keeps_places(state, queue)))",
        "consumers.count",
        _SHARD + "test_no_exclusive_consumer_comes_before_those_that_are_on_their_way",
        "assert",
    ),
    Bug(
        "leaves a queue that has strayed where it is for half a minute",
        "node/duties/shard_leader.py",
        "            if moved is None or any(has_strayed(self.shard, self._catalog, each) for each in moved):\n",
        "            if moved is None:\n",
        _DUTY + "test_what_a_node_that_was_cut_off_says_of_an_earlier_move_loses_nothing",
        "assert",
    ),
]
