"""Rules of the Raft paper that are kept above the core, by groups and hosts (docs/raft-paper.md lists all rules)."""

from mayfly.cluster.host.membership_steps import HandOver, next_step
from mayfly.cluster.raft import ConfState
from tests.cluster.host.three_hosts import Cluster


def test_figure_2_leaders_answer_a_command_when_it_is_applied() -> None:
    cluster = Cluster()
    cluster.run_until(cluster.leader)
    lead = cluster.leader()
    others = [id for id in cluster.ids if id != lead]
    answers: list[object] = []
    cluster.stuck |= set(others)
    cluster.nodes[lead].host.submit(0, [b"word"], 4, True, answers.append)
    cluster.exchange()
    assert (answers, cluster.nodes[lead].machines[0].commands) == ([], []), "no other disk has it yet"
    cluster.stuck.clear()
    cluster.kill(others[0])
    cluster.start(others[0])
    cluster.run_until(lambda: answers)
    assert cluster.nodes[lead].machines[0].commands == [b"word"]


def test_section_7_every_server_takes_snapshots_of_its_own() -> None:
    """With nothing but its own log: the leader tells nobody to, and sends none."""
    cluster = Cluster(compact_entries=10)
    cluster.loses = lambda sender, to, message: message.snapshot is not None
    cluster.run_until(cluster.leader)
    for number in range(60):
        cluster.nodes[1].host.submit(0, [b"%04d" % number], 4, False, None)
        cluster.exchange()
    cluster.run_until(
        lambda: all(node.host.groups[0].log.snapshot_metadata.index > 10 for node in cluster.nodes.values())
    )
    for store in cluster.stores.values():
        stored = store.load()[0]
        assert stored.snapshot is not None
        assert stored.snapshot.metadata.conf_state == ConfState([1, 2, 3]), "the membership is part of it"


def test_thesis_4_2_2_a_leader_that_is_to_go_hands_over_and_is_removed_by_the_next() -> None:
    present = ConfState([1, 2, 3])
    assert next_step(present, [2, 3], [2, 3], leader=1, caught_up=lambda node: True) == HandOver(2)
    step = next_step(present, [2, 3], [2, 3], leader=2, caught_up=lambda node: True)
    assert not isinstance(step, HandOver | None)
    assert [change.node_id for change in step.changes] == [1]
