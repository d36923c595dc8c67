"""The arithmetic of pauses, on histories made by hand."""

from random import Random

import pytest

from simulation.node.history import Delivery, History
from tests.reliability.faults import Fault, choose_victims, cuts, deck, kinds_of
from tests.reliability.figures import (
    PublisherNotes,
    longest_pause_ms,
    nodes_killed,
    percentile,
    served_from_afar,
    table,
    waits_by_kind,
)

MS = 1_000
EVERY_10_MS = [(at * 10 * MS, 1) for at in range(1, 101)]


def without(confirms: list[tuple[int, int]], from_ms: int, to_ms: int) -> list[tuple[int, int]]:
    return [confirm for confirm in confirms if not from_ms * MS < confirm[0] < to_ms * MS]


def test_a_pause_counts_from_the_fault_on() -> None:
    confirms = without(EVERY_10_MS, 480, 700)
    assert longest_pause_ms(confirms, 500 * MS, 900 * MS, 2_000 * MS) == 200


def test_a_pause_that_ends_after_the_span_counts_whole() -> None:
    confirms = without(EVERY_10_MS, 500, 800)
    assert longest_pause_ms(confirms, 500 * MS, 600 * MS, 2_000 * MS) == 300


def test_a_pause_after_the_span_does_not_count() -> None:
    confirms = without(EVERY_10_MS, 700, 900)
    assert longest_pause_ms(confirms, 500 * MS, 600 * MS, 2_000 * MS) == 10


def test_confirms_that_never_come_back_are_missed_until_the_end() -> None:
    assert longest_pause_ms(EVERY_10_MS, 900 * MS, 1_500 * MS, 3_000 * MS) == 2_000
    assert longest_pause_ms([], 900 * MS, 1_500 * MS, 3_000 * MS) == 2_100


def test_a_run_that_ends_in_the_midst_of_a_fault_has_figures() -> None:
    """What went wrong is told beside them: they must not hide it."""
    publishers = [PublisherNotes(1, "led", EVERY_10_MS, [(0, 1)])]
    fault = Fault("out of memory", (1,), ("led",), 500 * MS)
    found = waits_by_kind([fault], publishers, 2_000 * MS)
    assert (found[fault.kind].faults, found[fault.kind].own_ms) == (1, [])
    assert table(found)


def test_who_counts_for_what() -> None:
    """Survivors' clients only with queues that the victim led, and only where they belong."""
    fault = Fault("kill", (1,), ("led",), 500 * MS, 600 * MS, 800 * MS)
    pausing = [(at_us, node) for at_us, node in without(EVERY_10_MS, 500, 560)]
    publishers = [
        PublisherNotes(2, "led", pausing, [(0, 2)]),
        PublisherNotes(2, "other", EVERY_10_MS, [(0, 2)]),
        PublisherNotes(3, "led", EVERY_10_MS, [(0, 3), (400 * MS, 2)]),
        PublisherNotes(1, "other", without(EVERY_10_MS, 500, 590), [(0, 1)]),
        PublisherNotes(1, "led", EVERY_10_MS, [(0, 1), (499 * MS, 0)]),
    ]
    waits = waits_by_kind([fault], publishers, 1_000 * MS)["kill"]
    assert (waits.faults, waits.of_leaders) == (1, 1)
    assert waits.survivors_ms == [60]
    assert waits.own_ms == [90]
    assert waits.whole_ms == [200]
    assert table({"kill": waits})[-1] == "| kill | 1 (1) | 60 / 60 / 60 (1) | 90 / 90 / 90 (1) | 200 / 200 |"


def test_percentiles() -> None:
    assert percentile([5, 1, 4, 2, 3, 6, 7, 8, 9, 10], 0.9) == 9
    assert percentile([7], 0.9) == 7


def test_kinds_by_name_and_by_group() -> None:
    assert kinds_of(["kill-all", "partition"]) == ["kill all", "isolate", "deaf", "mute", "link"]
    assert kinds_of(["kill", "freeze"])[0] == "kill"
    with pytest.raises(ValueError, match="'frieze'"):
        kinds_of(["frieze"])


def test_directions_of_cuts() -> None:
    ids = (1, 2, 3)
    assert cuts(Fault("deaf", (1,)), ids) == [(2, 1), (3, 1)]
    assert cuts(Fault("mute", (1,)), ids) == [(1, 2), (1, 3)]
    assert cuts(Fault("isolate", (1,)), ids) == [(1, 2), (1, 3), (2, 1), (3, 1)]
    assert cuts(Fault("link", (1, 3)), ids) == [(1, 3), (3, 1)]


def test_partitions_by_jepsens_names() -> None:
    """Five nodes, as its runs for RabbitMQ's quorum queues have."""
    ids = (1, 2, 3, 4, 5)
    halves = Fault("partition-halves", choose_victims("partition-halves", ids, 3, Random(1)))
    hears = {id: {sender for sender in ids if (sender, id) not in cuts(halves, ids)} for id in ids}
    assert hears == {1: {1, 2}, 2: {1, 2}, 3: {3, 4, 5}, 4: {3, 4, 5}, 5: {3, 4, 5}}
    drawn = {choose_victims("random-partition-halves", ids, 3, Random(seed)) for seed in range(20)}
    assert {len(victims) for victims in drawn} == {2} and len(drawn) > 5
    ring = Fault("partition-majorities-ring", choose_victims("partition-majorities-ring", ids, 3, Random(1)))
    majorities = {
        id: frozenset({id, *(sender for sender in ids if (sender, id) not in cuts(ring, ids))}) for id in ids
    }
    assert all(id in heard and len(heard) == 3 for id, heard in majorities.items())
    assert len(set(majorities.values())) == 5
    alone = Fault("partition-random-node", choose_victims("partition-random-node", ids, 3, Random(1)))
    assert len(cuts(alone, ids)) == 8


def test_a_seed_draws_the_same_faults_and_every_kind() -> None:
    def drawn(seed: int) -> list[tuple[str, tuple[int, ...]]]:
        random = Random(seed)
        kinds = deck(kinds_of(["kill", "freeze"]), random)
        return [(kind, choose_victims(kind, (1, 2, 3), 2, random)) for kind, _ in zip(kinds, range(8), strict=False)]

    assert drawn(3) == drawn(3) != drawn(4)
    assert {kind for kind, _ in drawn(3)} == {"kill", "kill two", "kill all", "freeze"}
    assert all(len(set(victims)) == {"kill two": 2, "kill all": 3}.get(kind, 1) for kind, victims in drawn(3))


def test_who_was_served_by_a_node_without_the_shard() -> None:
    """Each confirm and each delivery by the node it came from: a client is not at home all the time."""
    publishers = [
        PublisherNotes(4, "led", [(1, 4), (2, 1), (3, 5)], []),
        PublisherNotes(4, "other", [(1, 4), (2, 1)], []),
    ]
    history = History()
    history.deliveries += [Delivery(1, "led", 1, "first", False), Delivery(2, "other", 2, "second", False)]
    replicas_of = {"led": (1, 2, 3), "other": (3, 4, 5)}
    assert served_from_afar(replicas_of, publishers, history, {"first": 5, "second": 5}) == (3, 1)


def test_killed_nodes_count_one_by_one() -> None:
    faults = [Fault("kill", (1,)), Fault("kill two", (1, 2)), Fault("freeze", (3,)), Fault("kill all", (1, 2, 3, 4, 5))]
    assert nodes_killed(faults) == 8
