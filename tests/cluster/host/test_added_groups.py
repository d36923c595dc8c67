"""Groups that hosts learn of while they run, where replicas are on the nodes of the plan alone."""

from mayfly.cluster.group.settings import BOOTSTRAP_INDEX
from mayfly.cluster.host.first_state import is_given_up
from tests.cluster.host.changing import Changing
from tests.cluster.host.test_feeding import Talk, placed

NEW = 3
FIRST = (2, 4, 5)
MOVED = (2, 4, 1)


def hear(cluster: Changing, *ids: int) -> None:
    """These nodes learn of the new group, as their catalog tells them: with whom it began, then who has it now."""
    for id in ids:
        cluster.nodes[id].host.add_group(NEW, FIRST)
    cluster.follow()


def with_new_group(plan: tuple[int, ...] = FIRST, late: tuple[int, ...] = ()) -> Changing:
    """Five nodes that have heard of a further group, but for those that are late."""
    cluster = placed()
    cluster.plan[NEW] = plan
    hear(cluster, *(id for id in cluster.members if id not in late))
    return cluster


def promise(cluster: Changing, id: int) -> tuple[int, int]:
    stored = cluster.stores[id].load()[NEW].hard_state
    return stored.term, stored.vote


def without_replica(cluster: Changing, id: int) -> bool:
    return NEW not in cluster.nodes[id].host.groups


def moved() -> Changing:
    """Node 5 has begun the group, and has given it up."""
    cluster = with_new_group()
    cluster.run_until(cluster.settled)
    Talk(cluster, 1, NEW).over_steps(5)
    cluster.plan[NEW] = MOVED
    cluster.follow()
    cluster.run_until(cluster.settled)
    cluster.run_until(lambda: NEW not in cluster.nodes[5].host.groups)
    return cluster


def test_it_is_on_the_nodes_of_the_plan_and_the_others_are_fed() -> None:
    cluster = with_new_group()
    assert sorted(id for id, node in cluster.nodes.items() if NEW in node.host.groups) == [*FIRST]
    cluster.run_until(cluster.settled)
    talk = Talk(cluster, 1, NEW)
    talk.over_steps(30)
    talk.check()
    assert [id for id, store in cluster.stores.items() if NEW in store.load()] == [*FIRST]


def test_a_first_voter_that_hears_of_it_late_begins_as_the_others_did() -> None:
    cluster = with_new_group(late=(5,))
    cluster.run_until(lambda: cluster.leader(NEW))
    talk = Talk(cluster, 1, NEW)
    talk.over_steps(10)
    assert NEW not in cluster.stores[5].load()
    hear(cluster, 5)
    cluster.exchange()
    stored = cluster.stores[5].load()[NEW]
    assert stored.snapshot is not None
    assert (stored.snapshot.metadata.index, stored.snapshot.metadata.conf_state.voters) == (BOOTSTRAP_INDEX, [*FIRST])
    talk.over_steps(10)
    talk.check()
    cluster.run_until(cluster.settled)
    cluster.run_until(lambda: cluster.nodes[5].machines[NEW].commands == talk.sent)


def test_first_voters_that_vote_no_more_by_then_begin_it_all_the_same() -> None:
    """It is planned elsewhere before any of them has heard of it: without a majority of them it had no leader, who
    could carry that out."""
    cluster = with_new_group(plan=(1, 3, 2))
    cluster.run_until(cluster.settled)
    assert all(without_replica(cluster, id) for id in (4, 5))
    talk = Talk(cluster, 5, NEW)
    talk.over_steps(20)
    talk.check()


def test_one_that_hears_of_it_when_it_is_elsewhere_gives_it_up_and_is_fed() -> None:
    cluster = with_new_group(late=(5,))
    cluster.run_until(lambda: cluster.leader(NEW))
    cluster.plan[NEW] = MOVED
    cluster.follow()
    cluster.run_until(cluster.settled)
    Talk(cluster, 1, NEW).over_steps(5)
    hear(cluster, 5)
    cluster.run_until(lambda: without_replica(cluster, 5))
    cluster.exchange()
    assert is_given_up(cluster.stores[5].load()[NEW])
    heard: list[object] = []
    cluster.nodes[5].host.submit(NEW, [b"more"], 4, True, heard.append)
    cluster.run_until(lambda: heard)
    assert heard == [5]


def test_what_is_stored_of_it_is_taken_up_when_the_node_has_heard_of_it_again() -> None:
    cluster = with_new_group()
    cluster.run_until(cluster.settled)
    talk = Talk(cluster, 1, NEW)
    talk.over_steps(10)
    talk.check()
    cluster.kill(4)
    cluster.start(4)
    assert without_replica(cluster, 4)
    term, _ = promise(cluster, 4)
    hear(cluster, 4)
    group = cluster.nodes[4].host.groups[NEW]
    assert (group.term, group.raw.last_index) >= (term, BOOTSTRAP_INDEX + len(talk.sent))
    talk.over_steps(10)
    talk.check()


def test_what_was_given_up_stays_given_up_though_its_node_was_a_first_voter() -> None:
    """RULES C1. It would begin with the first voters, and could vote once more in a term in which it has."""
    cluster = moved()
    promised = promise(cluster, 5)
    assert promised > (0, 0)
    cluster.kill(5)
    cluster.start(5)
    hear(cluster, 5)
    assert without_replica(cluster, 5)
    cluster.exchange()
    assert is_given_up(cluster.stores[5].load()[NEW])
    assert promise(cluster, 5) == promised
    cluster.plan[NEW] = FIRST
    cluster.follow()
    assert cluster.nodes[5].host.groups[NEW].hard_state.term >= promised[0]
    cluster.run_until(cluster.settled)
    leader = cluster.nodes[cluster.leader(NEW)].machines[NEW].commands
    cluster.run_until(lambda: cluster.nodes[5].machines[NEW].commands == leader)
