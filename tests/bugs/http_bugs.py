"""Bugs made on purpose in the pages of a node, and in who sees them."""

from tests.bugs.bug import Bug

LISTS = "tests/node/http/test_listing.py::"
PAGE_QUEUE = "tests/node/http/test_page_queue.py::"
SOURCES = "tests/node/operating/test_shard_sources.py::"
COPIES = "tests/node/operating/test_data_copies.py::"

HTTP_BUGS = [
    Bug(
        "takes a page of the web for this machine",
        "node/http/origins.py",
        'if name in _HERE or name.endswith(".localhost") or not set(".:") & set(name):',
        "if True:",
        "tests/node/http/test_origins.py::test_a_name_that_somebody_on_the_web_can_have_is_not_this_machine",
        "assert True is False",
    ),
    Bug(
        "makes a page for each who asks",
        "node/http/page_queue.py",
        "order = line.orders.get(name)",
        "order = line.orders.get(name := f'{name}{self._waiting}')",
        PAGE_QUEUE + "test_whoever_waits_gets_one_page_that_was_begun_after_he_came",
        "assert",
    ),
    Bug(
        "makes pages without a rest",
        "node/http/page_queue.py",
        "await self._sleep(min(_LONGEST_REST_S, _REST * took_s))",
        "await self._sleep(0)",
        PAGE_QUEUE + "test_pages_leave_most_of_the_time_to_others",
        "assert",
    ),
    Bug(
        "makes all rows of a list for one page of it",
        "node/http/listing.py",
        "        rows = await _made(found[first : first + page.size], rows_of)\n",
        "        rows = (await _made(found, rows_of))[first : first + page.size]\n",
        LISTS + "test_only_the_rows_of_the_page_are_made_and_few_at_a_time",
        "assert 3",
    ),
    Bug(
        "takes any regular expression for names",
        "node/http/name_search.py",
        "            if fault is not None:\n",
        "            if fault is not None and not fault:\n",
        LISTS + "test_patterns_that_cannot_be_searched_are_refused",
        "assert",
    ),
    Bug(
        "refuses a file of definitions for an old policy",
        "node/operating/definitions/reading.py",
        "pattern, known_part(apply_to, definition),",
        "pattern, definition,",
        "tests/node/operating/test_definitions.py::test_what_is_not_here_is_left_out_with_a_note_each_and_the_rest_is_done",
        "BadDefinitions",
    ),
    Bug(
        "is quicker with an unknown user than with an imported password",
        "node/catalog/passwords.py",
        "    if not is_quick(stored):\n        return right, \"\"\n",
        "    if not is_quick(stored) or not right:\n        return right, \"\"\n",
        "tests/node/catalog/test_passwords.py::test_a_wrong_password_costs_what_a_right_one_and_an_unknown_user_do",
        "assert",
    ),
    Bug(
        "shows what no node has told as nothing",
        "node/operating/queues.py",
        "            if record.shard in told.unknown:\n",
        "            if record.shard < 0:\n",
        SOURCES + "test_what_no_node_has_told_in_time_is_unknown_and_not_nothing",
        "assert",
    ),
    Bug(
        "waits for a node that hangs with every part of a page",
        "node/operating/node_questions.py",
        "                self._silent_since_ms[node_id] = self._now_ms()\n",
        "                pass\n",
        SOURCES + "test_a_node_that_hangs_is_waited_for_once",
        "assert",
    ),
    Bug(
        "asks nobody but the leader",
        "node/operating/shard_sources.py",
        "(self._engine.leader_of(shard), *planned)",
        "(self._engine.leader_of(shard),)",
        SOURCES + "test_the_leader_is_asked_and_then_another_that_should_have_it",
        "assert",
    ),
    Bug(
        "has metrics of a queue told by every replica",
        "node/operating/views/queue_views.py",
        "        return where == engine.node_id\n",
        "        return where == engine.node_id or record.shard in engine.shards\n",
        "tests/node/http/test_queue_pages.py::test_metrics_of_queues_are_on_a_page_of_their_own",
        "assert",
    ),
    Bug(
        "drops dead letters that were parked again meanwhile",
        "node/operating/views/local_dead_letters.py",
        "if death.sequence <= up_to and selection.has(death)]",
        "if selection.has(death)]",
        SOURCES + "test_d8_what_is_parked_again_is_not_dropped",
        "assert",
    ),
    Bug(
        "takes a copy that failed for one that has its shards",
        "node/operating/data_copies.py",
        "for each in copies if not each.error for group in each.groups}",
        "for each in copies for group in each.groups or self._groups.all()}",
        COPIES + "test_what_could_not_be_copied_is_told",
        "assert",
    ),
    Bug(
        "takes votes that nobody has told of for none that are in the way",
        "node/command_line/ready_command.py",
        "    if unknown:\n",
        "    if unknown and without is None:\n",
        "tests/node/command_line/test_ready_command.py::test_what_no_node_has_told_is_no_yes",
        "assert",
    ),
    Bug(
        "spreads what a queue does over the time in which nothing happened",
        "node/operating/views/sampled_rates.py",
        "        return max(looked_ms, min(self.quiet_ms, now_ms - SPAN_MS))\n",
        "        return looked_ms\n",
        "tests/node/operating/views/test_sampled_rates.py::test_the_first_who_asks_is_told_however_long_nobody_did",
        "not spread",
    ),
]
