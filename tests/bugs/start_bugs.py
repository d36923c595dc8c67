"""Bugs made on purpose in how nodes start: what they wait for, and what they leave to others."""

from tests.bugs.bug import Bug

FORMING = "tests/simulation/test_forming.py::"
PRIVATE = "tests/node/shell/test_private_files.py::"

START_BUGS = [
    Bug(
        "waits for its pause although the one it waits for has asked",
        "node/membership/forming.py",
        "            self._ask_at_ms[address] = now_ms\n",
        "",
        FORMING + "test_the_pauses_between_questions_grow_and_who_asks_is_asked_at_once",
        "assert",
    ),
    Bug(
        "begins before the others have heard of it",
        "node/membership/forming.py",
        "self._asked_by.issuperset(others) or",
        "True or",
        FORMING + "test_a_founder_that_heard_all_lets_them_hear_itself_first",
        "assert",
    ),
    Bug(
        "takes a node that is none yet for one that refuses",
        "cluster/host/attempts.py",
        "        if refused:\n",
        "        if True:\n",
        "tests/cluster/host/test_attempts.py::test_pauses_double_up_to_a_bound_and_begin_anew_once_the_stream_was_up",
        "assert",
    ),
    Bug(
        "leaves an earlier version's data open to others",
        "node/shell/private_files.py",
        "    path.chmod(stat.S_IMODE(found.st_mode) & ~surplus)\n",
        "",
        PRIVATE + "test_the_folder_is_left_alone_where_somebody_else_has_something_in_it",
        "assert",
    ),
    Bug(
        "locks others out of a folder that they share",
        "node/shell/private_files.py",
        "if all(is_own(path.name) for path in inside):",
        "if True:",
        PRIVATE + "test_the_folder_is_left_alone_where_somebody_else_has_something_in_it",
        "assert",
    ),
    Bug(
        "takes from a group what it was given",
        "node/shell/private_files.py",
        "stat.S_IRWXO if group_is_chosen else _OTHERS",
        "_OTHERS",
        PRIVATE + "test_a_group_that_somebody_chose_keeps_its_access",
        "assert",
    ),
]
