"""Bugs made on purpose in redrives: who moves, once, in order, at which rate (RULES R1)."""

from tests.bugs.bug import Bug

_SHARD = "tests/node/shard/test_redrives.py::"
_DUTY = "tests/node/broker/test_redrive_duties.py::"

REDRIVE_BUGS = [
    Bug(
        "applies a step of a redrive that is not the next one",
        "node/shard/redriving.py",
        " or step != redrive.step + 1:",
        ":",
        _SHARD + "test_r1_one_that_skips_a_step_moves_nothing",
        "assert 3 == 6",
    ),
    Bug(
        "redrives what came after the start",
        "node/shard/redrive.py",
        "        return index <= self.redrive_id and enqueued_ms <= self.started_ms\n",
        "        return index >= 0 and enqueued_ms >= 0\n",
        _SHARD + "test_r1_what_comes_after_the_start_is_not_moved",
        "it does not end",
    ),
    Bug(
        "moves what was decided before a pause",
        "node/shard/redriving.py",
        "    if redrive.state != RUNNING or step",
        "    if redrive.state > PAUSED or step",
        _SHARD + "test_r1_pause_resume_cancel",
        "moves nothing after it",
    ),
    Bug(
        "redrives what is past its deadline",
        "node/shard/redriving.py",
        "    if leaving is None or 0 <= message.deadline_ms <= state.time_ms:\n",
        "    if leaving is None:\n",
        _SHARD + "test_t5_what_is_past_its_deadline_expires_instead",
        "assert",
    ),
    Bug(
        "loses a message whose target has gone",
        "node/shard/redriving.py",
        "        if (locals_ or remotes) and all(_takes(state, target) for target in targets):\n",
        "        if len(targets) == locals_:\n",
        _SHARD + "test_r1_a_message_whose_target_has_gone_stays",
        "assert",
    ),
    Bug(
        "makes up for all the time without a leader",
        "node/shard/redrive.py",
        "        free_us = now_us - max(self.paid_us, now_us - BURST_US)\n",
        "        free_us = now_us - self.paid_us\n",
        _SHARD + "test_r1_the_rate_is_kept_and_a_burst_is_bounded",
        "is not made up for",
    ),
    Bug(
        "forgets in snapshots how far a redrive has come",
        "node/shard/redrive.py",
        "            [] if place is None else place",
        "            [] if place is None or place.index else place",
        _DUTY + "test_r1_the_next_leader_goes_on",
        "assert",
    ),
    Bug(
        "redrives by a catalog that is older than the lead",
        "node/duties/redrives.py",
        "            if redrive.redrive_id in self._fresh:\n",
        "            if redrive.redrive_id:\n",
        _DUTY + "test_r1_nothing_moves_before_the_catalog_is_as_new_as_the_lead",
        "assert not",
    ),
    Bug(
        "takes a late redrive for its repeat",
        "node/duties/redrives.py",
        "        elif redrive.tag != progress.tag:\n",
        "        elif redrive.tag < 0:\n",
        _DUTY + "test_r1_a_command_that_comes_late_may_be_the_step_of_its_repeat",
        "assert",
    ),
    Bug(
        "waits for no lane",
        "node/duties/redrives.py",
        " or self._is_held_up(progress):",
        ":",
        _DUTY + "test_r1_it_waits_for_lanes_that_do_not_move",
        "assert",
    ),
    Bug(
        "takes deaths before a redrive for a cycle",
        "node/dead_letter/death_headers.py",
        "        for record in records[: _since_redrive(headers, records)]\n",
        "        for record in records\n",
        "tests/node/dead_letter/test_redrive.py::test_d5_deaths_before_a_redrive_make_no_cycle",
        "assert",
    ),
]
