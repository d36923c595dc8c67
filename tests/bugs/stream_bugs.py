"""Bugs made on purpose in streams: what leaves when, markers, keys."""

from tests.bugs.bug import Bug

_SHARD = "tests/node/shard/test_stream_ttls.py::"
_BROKER = "tests/node/broker/test_stream_ttls.py::"

STREAM_BUGS = [
    Bug(
        "has what is to stay for ever grow too old",
        "node/shard/stream_expiry.py",
        "        if message.ttl_ms == NEVER_TTL:\n            continue\n",
        "",
        _SHARD + "test_j2_never_is_exempt_from_age_and_all_others_are_not",
        "assert",
    ),
    Bug(
        "delivers what is late when the bound keeps it in the stream",
        "node/shard/stream_delivery.py",
        "        messages = [each for each in messages if not 0 <= each.deadline_ms <= state.time_ms]\n",
        "",
        _SHARD + "test_j2_nobody_is_given_what_is_late_though_the_bound_keeps_it_there",
        "== [12]",
    ),
    Bug(
        "leaves a marker though the key has messages",
        "node/shard/stream_expiry.py",
        "        if reason and key.count == key.markers and ",
        "        if reason and ",
        _SHARD + "test_j3_a_marker_takes_the_place_of_the_last_message_of_a_key",
        "assert",
    ),
    Bug(
        "has markers leave markers",
        "node/shard/stream_expiry.py",
        " and not message.marker_reason:",
        ":",
        _SHARD + "test_j3_a_marker_takes_the_place_of_the_last_message_of_a_key",
        "assert",
    ),
    Bug(
        "forgets in snapshots who has left a piece",
        "node/shard/snapshot/line_row.py",
        "    return row if piece.there is None else [*row, bytes(piece.there)]\n",
        "    return row\n",
        _SHARD + "test_c1_as_a_table_says_and_the_same_from_a_snapshot[3]",
        "Error",
    ),
    Bug(
        "keeps the deadlines of what left otherwise",
        "node/shard/stream_expiry.py",
        "        if stream.outdated:\n            _sweep(state, queue, stream)\n",
        "",
        _SHARD + "test_t13_deadlines_of_what_left_otherwise_go_too",
        "assert",
    ),
    Bug(
        "stores in queues what the stream refuses",
        "node/broker/publishing.py",
        "                return self._refuse(f\"invalid",
        "                self._refuse(f\"invalid",
        _BROKER + "test_j2_a_publisher_with_confirms_gets_a_nack",
        "assert",
    ),
    Bug(
        "lets the opt-in be switched off",
        "node/catalog/declarations.py",
        "    if switches_ttls_on(received, current) and queue_type(queue.arguments) == STREAM:\n",
        "    if queue_type(queue.arguments) == STREAM:\n        received = with_ttls_on(received)\n",
        _BROKER + "test_j2_the_opt_in_is_switched_on_by_a_redeclare_and_never_off",
        "Error",
    ),
    Bug(
        "purges a key in one go, however much it has",
        "node/shard/queues.py",
        "        state.return_budget -= len(offsets)\n        purged",
        "        purged",
        _SHARD + "test_j3_a_key_is_purged",
        "assert",
    ),
]
