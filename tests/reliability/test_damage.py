"""Damaged data under real nodes: `make damage`, in short; and damage to most copies, which nobody can repair.

CHAOS_SEED repeats the choices of a run, though not its timing.
"""

import shutil
from functools import partial
from pathlib import Path
from random import Random

import pytest

from tests.integration.clients import PERSISTENT, channel
from tests.integration.nodes import Nodes, wait_for
from tests.reliability.damage import REFUSED, expect_words_of_damage, last_words
from tests.reliability.dead_letters import DeadLetterRun, carry_out_dead_letters
from tests.reliability.faults import DAMAGE, kinds_of
from tests.reliability.run_chaos import report_dead_letters
from tests.reliability.test_chaos import RATE, demand, seed

pytestmark = [pytest.mark.processes, pytest.mark.slow]

SOME = 5
BODY = bytes(100_000)
"""Large enough not to wait in the write-ahead files."""
FLIPS = 400
MOST = (1, 2)
"""Of three."""


def test_t5_d6_dead_letters_while_data_are_damaged(tmp_path: Path) -> None:
    """Found, named and repaired from the others; nothing that was confirmed is lost, no dead letter twice or early."""
    run = DeadLetterRun(seed(), 0, kinds_of([DAMAGE]), RATE, least_faults=SOME)
    carry_out_dead_letters(run, tmp_path)
    print(report_dead_letters(run))
    demand(run, tmp_path)
    assert run.damages is not None and run.damages.outcomes.total() >= SOME


def test_damage_to_most_copies_is_told_with_what_to_do(tmp_path: Path) -> None:
    """No node throws away what it has, none ends over and over; and with sound data in one place all is there again."""
    with Nodes(tmp_path, 3) as nodes:
        expect_words_of_damage(nodes)
        nodes.serve()
        publish_to_be_kept(nodes, 60)
        nodes.until_well()
        nodes.kill(*nodes.ids)
        for id in MOST:
            flip_bodies(nodes.plan(id).data_dir / "log" / "data.mdb", Random(id))
        nodes.start()
        for id in nodes.ids:
            wait_for(partial(says_what_to_do, nodes, id), f"what to do, from node {id}")
        assert not nodes.ends()


def test_most_copies_of_an_earlier_time_are_told_with_what_to_do(tmp_path: Path) -> None:
    """Whole folders of an earlier stop at two of three nodes: they have forgotten what was confirmed since. Nobody goes
    on without it as if nothing was."""
    with Nodes(tmp_path / "nodes", 3) as nodes:
        expect_words_of_damage(nodes)
        nodes.serve()
        publish_to_be_kept(nodes, 5)
        nodes.until_well()
        nodes.kill(*nodes.ids)
        for id in MOST:
            shutil.copytree(nodes.plan(id).data_dir, tmp_path / f"older{id}")
        nodes.start()
        nodes.until_well()
        publish_to_be_kept(nodes, 20)
        nodes.until_well()
        nodes.kill(*nodes.ids)
        for id in MOST:
            shutil.rmtree(nodes.plan(id).data_dir)
            shutil.copytree(tmp_path / f"older{id}", nodes.plan(id).data_dir)
        nodes.start()
        expect_refused(nodes, MOST)
        nodes.start(*MOST)  # As whoever looks after processes would do.
        expect_refused(nodes, MOST)
        wait_for(lambda: is_not_ready(nodes, 3), "a node that is not ready alone")


def publish_to_be_kept(nodes: Nodes, count: int) -> None:
    """So many confirmed messages more."""
    with channel(nodes, 1, confirms=True) as publishing:
        publishing.queue_declare("kept", durable=True)
        for _ in range(count):
            publishing.basic_publish("", "kept", BODY, PERSISTENT)


def expect_refused(nodes: Nodes, ids: tuple[int, ...]) -> None:
    """These end, and no others, for data of an earlier time."""
    codes: dict[int, int] = {}

    def have_ended() -> bool:
        codes.update({id: end.code for end in nodes.ends() for id in nodes.ids if end.plan == nodes.plan(id)})
        return codes.keys() >= set(ids)

    wait_for(have_ended, "the end of those that have forgotten what was confirmed", every_s=0.1)
    assert codes.keys() == set(ids), "the one that has it ends as well"
    for id, code in codes.items():
        words = last_words(nodes.log_text(id))
        assert code == REFUSED and "data of an earlier time" in words, f"{code}: {words}"
        assert "of all copies with mayfly restore" in words, words


def is_not_ready(nodes: Nodes, id: int) -> bool:
    """Whether the node says that it is not, and why."""
    try:
        code, answer = nodes.page(id, "/health/ready")
    except OSError:
        return False
    return code == 503 and bool(answer["reason"])


def says_what_to_do(nodes: Nodes, id: int) -> bool:
    """Whether the node is not ready and says what is damaged where, and what to do, there and in its log."""
    try:
        code, answer = nodes.page(id, "/health/ready")
    except OSError:
        return False
    what, advice = "is damaged on nodes 1, 2, ", "`mayfly restore`"
    log = nodes.log_text(id)
    return code == 503 and all(text in answer["reason"] and text in log for text in (what, advice))


def flip_bodies(file: Path, random: Random) -> None:
    """Flip bits all over the file; heads of its pages are few of its octets."""
    content = bytearray(file.read_bytes())
    for _ in range(FLIPS):
        page = random.randrange(len(content) // 4096)
        content[4096 * page + random.randrange(200, 4096)] ^= 1 << random.randrange(8)
    file.write_bytes(content)
