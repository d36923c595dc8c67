"""Bugs made on purpose in the pages of a node, and in who sees them."""

from tests.bugs.bug import Bug

LISTS = "tests/node/http/test_listing.py::"
DESK = "tests/node/http/test_desk.py::"

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
        "node/http/desk.py",
        "order = self._orders.get(name)",
        "order = self._orders.get(name := f'{name}{self._waiting}')",
        DESK + "test_whoever_waits_gets_one_page_that_was_begun_after_he_came",
        "assert",
    ),
    Bug(
        "makes pages without a rest",
        "node/http/desk.py",
        "await self._sleep(min(_LONGEST_REST_S, _REST * took_s))",
        "await self._sleep(0)",
        DESK + "test_pages_leave_most_of_the_time_to_others",
        "assert",
    ),
    Bug(
        "makes all rows of a list for one page of it",
        "node/http/listing.py",
        "        rows = await _made(found[first : first + page.size], row)\n",
        "        rows = (await _made(found, row))[first : first + page.size]\n",
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
]
