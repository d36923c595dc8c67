"""Bugs made on purpose in what bounds a node's memory and the time that others wait."""

from tests.bugs.bug import Bug

_WAITING = "tests/node/broker/test_waiting_events.py::"
_LARGE = "tests/node/broker/test_large_messages.py::"
_WRITES = "tests/cluster/host/test_pending_writes.py::"
_FULL = "tests/node/broker/test_full_disk.py::"

_TURNS = "tests/node/broker/test_routing_turns.py::"
_A_READ = _TURNS + "test_a_read_of_hostile_publishes_costs_a_bounded_number_of_steps_in_each_turn"

MEMORY_BUGS = [
    Bug(
        "counts a waiting method as if it carried nothing",
        "node/broker/waiting_events.py",
        "        return EVENT_BYTES + _CHARACTER_BYTES * names + len(event.arguments)\n",
        "        return EVENT_BYTES + 0 * names\n",
        _WAITING + "test_pipelined_declares_with_tables_stop_the_reading",
        "assert sent < WAITING_EVENTS_BYTES",
    ),
    Bug(
        "reads who declares without end during an alarm",
        "node/broker/pressure.py",
        "cluster.overloaded or cluster.blocked is not None:\n            return WAITING",
        "cluster.overloaded:\n            return WAITING",
        _WAITING + "test_what_waits_when_an_alarm_comes_stops_the_reading_then",
        "assert not client.connection.pressure.wants_reading",
    ),
    Bug(
        "lets a user make what it wants during an alarm",
        "node/broker/made_in_alarm.py",
        "        self._made[user] = made + 1\n",
        "        self._made[user] = made\n",
        _WAITING + "test_during_an_alarm_a_user_makes_a_bounded_number_of_things",
        "'DeclareOk' object has no attribute 'reply_code'",
    ),
    Bug(
        "gives a large message to all its shards at once",
        "node/broker/publishing.py",
        "        large = size_bytes > LARGE_PUBLISH_BYTES\n",
        "        large = size_bytes < 0\n",
        _LARGE + "test_one_shard_after_the_other_gets_a_large_message",
        "one at a time",
    ),
    Bug(
        "keeps the turn of a large message that is done",
        "node/broker/publishing.py",
        "                line.leave(shard_id, size_bytes)\n",
        "                line.leave(0, 0)\n",
        _LARGE + "test_one_shard_after_the_other_gets_a_large_message",
        "assert",
    ),
    Bug(
        "writes all that is large before what is small",
        "cluster/host/pending_writes.py",
        "        if large and (self._small_was_last or not small):\n",
        "        if large:\n",
        _WRITES + "test_small_writes_wait_for_one_large_write_at_most",
        "AssertionError",
    ),
    Bug(
        "goes on with groups whose write is still to come",
        "cluster/host/pending_writes.py",
        "        self._under_way_waiting = [group for group in self.waiting if group in batch.groups]\n",
        "        self._under_way_waiting = list(self.waiting)\n",
        _WRITES + "test_sixteen_large_messages_are_sixteen_batches",
        "AssertionError",
    ),
    Bug(
        "takes a large write for a disk that hangs",
        "cluster/host/disk_watch.py",
        "        self._allowed_ms = self.limit_ms + size_bytes // SLOW_BYTES_PER_MS\n",
        "        self._allowed_ms = self.limit_ms + 0 * size_bytes\n",
        "tests/cluster/host/test_stuck_disk.py::test_a_large_write_may_take_as_long_as_its_size_explains",
        "is_stuck",
    ),
    Bug(
        "opens a window for a consumer that is refused",
        "node/broker/operations/basic.py",
        "            consumers.windows.close(consumer_id)\n",
        "            pass\n",
        "tests/node/broker/test_consumer_windows.py::test_a_consumer_that_is_refused_has_no_window",
        "open_bytes",
    ),
    Bug(
        "lets clients wait for a disk that is full",
        "node/engine/flow_control.py",
        "            self._set_no_room(\"its disk is full\", now_ms)\n",
        "            pass\n",
        _FULL + "test_what_waits_for_a_full_disk_is_refused_and_what_comes_then",
        "did not come true",
    ),
    Bug(
        "routes all that was read at once, whatever it costs",
        "node/broker/publishing.py",
        "            if routes.turns.is_over:\n",
        "            if flags < 0:\n",
        _A_READ + "[topics]",
        "assert most <=",
    ),
    Bug(
        "looks at topics and exchanges alone, not at copies, for whose turn it is",
        "node/broker/publishing.py",
        "route.may_delay or route.wide_copies or may_have_copies:",
        "route.may_delay or route.wide_copies:",
        _A_READ + "[copies over exchanges]",
        "assert most <=",
    ),
    Bug(
        "makes copies for any number of queues at once",
        "node/broker/routes.py",
        "        self.wide_copies: int = copies if copies > WIDE_ROUTE_QUEUES else 0\n",
        "        self.wide_copies: int = 0\n",
        _TURNS + "test_copies_for_many_queues_count_also_where_the_route_is_remembered",
        "assert",
    ),
    Bug(
        "takes the fields of headers for nothing",
        "node/catalog/header_matching.py",
        "        self._steps.taken += steps\n",
        "",
        _TURNS + "test_an_engine_begins_a_turn_with_each_pump_and_is_busy_while_somebody_waits",
        "assert",
    ),
    Bug(
        "makes thousands of headers ready for nothing",
        "node/catalog/header_matching.py",
        "            self._steps.taken += _values_in(self._headers) - 1\n",
        "",
        "tests/node/catalog/test_header_matching.py::test_the_values_of_a_message_count_however_few_bindings_there_are",
        "assert 20000 <= ",
    ),
    Bug(
        "takes the way from exchange to exchange for nothing",
        "node/catalog/vhost.py",
        "            self._steps.taken += 1 + len(keys)\n",
        "",
        _TURNS + "test_each_exchange_that_is_come_to_counts_for_each_key",
        "assert",
    ),
    Bug(
        "gives each channel a turn, however many a connection has",
        "node/broker/operation.py",
        "routing_turns.enter(self.client,",
        "routing_turns.enter(self,",
        _TURNS + "test_connections_have_their_turns_one_after_the_other_whatever_they_have_to_do",
        "assert",
    ),
    Bug(
        "gives each shard with dead letters a message more in every turn",
        "node/duties/shard_duties.py",
        "        if not turns.is_over:\n            return True\n",
        "        if turns is not None:\n            return True\n",
        _TURNS + "test_d7_the_dead_of_all_shards_share_the_turns",
        "assert max(costs) <=",
    ),
    Bug(
        "routes the dead of a shard to the end of an entry, whatever they cost",
        "node/duties/shard_duties.py",
        "            if size >= TRANSFER_BYTES or turns.is_over:\n",
        "            if size >= TRANSFER_BYTES:\n",
        "tests/node/duties/test_dead_letter_duties.py::test_d7_a_look_at_deaths_ends_when_routing_them_takes_long",
        "assert",
    ),
    Bug(
        "sleeps while somebody waits for a turn",
        "node/engine/engine.py",
        " or self.catalog.routing_turns.has_waiting\n",
        "\n",
        _TURNS + "test_an_engine_begins_a_turn_with_each_pump_and_is_busy_while_somebody_waits",
        "assert node.engine.busy",
    ),
]
