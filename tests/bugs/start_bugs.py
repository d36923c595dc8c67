"""Bugs made on purpose in how nodes and shards start: what they wait for, and what they leave to others."""

from tests.bugs.bug import Bug

FORMING = "tests/simulation/test_forming.py::"
ADDED = "tests/node/catalog/test_added_shards.py::"
SHARDS = "tests/node/membership/test_added_shards.py::"
GROUPS = "tests/cluster/host/test_added_groups.py::"
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
    Bug(
        "begins an added shard with those who vote in it now",
        "node/catalog/members.py",
        "return self._added_shards[number] if",
        "return self.plan[shard] if",
        ADDED + "test_the_first_voters_are_kept_whatever_becomes_of_them",
        "assert",
    ),
    Bug(
        "forgets in a snapshot which shards were added",
        "node/catalog/members.py",
        "tuple(self._pinned), tuple(self._added_shards),",
        "tuple(self._pinned),",
        ADDED + "test_a_snapshot_has_them_from_their_level_on",
        "assert",
    ),
    Bug(
        "begins an added shard for itself alone",
        "cluster/host/replicas.py",
        "ConfState(voters=sorted(first_voters))",
        "ConfState(voters=[self._node])",
        SHARDS + "test_new_shards_serve_clients_of_every_node",
        "Error",
    ),
    Bug(
        "does not write down how an added shard began",
        "cluster/host/replicas.py",
        "has to be on disk waits for that.\n            self._writes.gather(write)",
        "has to be on disk waits for that.\n            assert write is not None",
        SHARDS + "test_new_shards_serve_clients_of_every_node",
        "Error",
    ),
    Bug(
        "begins an added group once more that its node had given up",
        "cluster/host/replicas.py",
        "if known is None and begins:",
        "if begins and (known is None or is_given_up(known)):",
        GROUPS + "test_what_was_given_up_stays_given_up_though_its_node_was_a_first_voter",
        "assert",
    ),
    Bug(
        "begins an added group on nodes that did not vote in it",
        "cluster/host/replicas.py",
        "ConfState(voters=sorted(first_voters)), self._node in first_voters, first)",
        "ConfState(voters=sorted(first_voters)), True, first)",
        GROUPS + "test_it_is_on_the_nodes_of_the_plan_and_the_others_are_fed",
        "assert",
    ),
    Bug(
        "looks for a shard that was added a moment ago in the memory of a node",
        "node/engine/engine.py",
        "        if is_transient(shard_id):\n            return self.transient.handle",
        "        if shard_id:\n            return self.transient.handle",
        SHARDS + "test_a_client_that_declares_a_queue_in_that_entry_is_answered",
        "Error",
    ),
]
