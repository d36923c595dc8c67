"""The catalog's word on a queue that moves to another shard (docs/decisions/queues.md, 16)."""

from mayfly.cluster.versions import LEVEL_NUMBERED_MOVES, LEVEL_QUEUE_MOVES
from mayfly.node.catalog import (
    Bind,
    Catalog,
    DeclareExchange,
    DeclareQueue,
    Done,
    FoundCluster,
    MoveQueue,
    NeedsLevel,
    NodeStarted,
    QueueDeclared,
    QueueMoved,
    QueueRecord,
    Refusal,
    RemoveQueues,
)
from mayfly.node.catalog.commands import CatalogCommand, decode, encode

SHARDS = 4


def one_queue(level: int = LEVEL_QUEUE_MOVES) -> tuple[Catalog, QueueRecord]:
    catalog = Catalog(SHARDS)
    catalog.apply(FoundCluster(((1, "n1", "n1:1"),), 3, level))
    catalog.apply(NodeStarted(1, 1 << 20, "n1"))
    declared = apply(catalog, DeclareQueue("/", "q", durable=True))
    assert isinstance(declared, QueueDeclared)
    apply(catalog, DeclareExchange("/", "x", auto_delete=True))
    apply(catalog, Bind("/", "x", "queue", "q", "k"))
    return catalog, declared.queue


def apply(catalog: Catalog, command: CatalogCommand) -> object:
    """As it comes out of the log."""
    result = catalog.apply(decode(encode(command)))
    copy = Catalog(SHARDS)
    copy.restore(catalog.snapshot())
    assert copy.snapshot() == catalog.snapshot()
    assert sorted(record.id for record in copy.moving_queues()) == sorted(r.id for r in catalog.moving_queues())
    return result


def refusal(catalog: Catalog, command: CatalogCommand) -> str:
    before = catalog.snapshot()
    result = apply(catalog, command)
    assert isinstance(result, Refusal) and catalog.snapshot() == before
    return result.text


def record_of(catalog: Catalog) -> QueueRecord:
    record = catalog.queue("/", "q")
    assert record is not None
    return record


def test_a_queue_is_where_it_was_until_the_leader_says_that_it_is_there() -> None:
    catalog, queue = one_queue()
    assert queue.shard == 1
    assert apply(catalog, MoveQueue("/", "q", 3)) == Done(True)
    assert (record_of(catalog).shard, record_of(catalog).moving_to) == (1, 3)
    assert [record.id for record in catalog.moving_queues()] == [queue.id]
    assert apply(catalog, QueueMoved(queue.id, 1, 3)) == Done(True)
    moved = record_of(catalog)
    assert (moved.shard, moved.moving_to) == (3, 0)
    assert moved.moves is not None and (moved.moves.sources, moved.moves.count) == ((1,), 1)
    assert not catalog.moving_queues()
    assert catalog.shard_queue_counts == (0, 0, 1, 0)
    (target,) = catalog.route("/", "x", "k", None)
    assert target is moved is catalog.queue_by_id(queue.id)


def test_asked_twice_or_for_where_it_is_nothing_changes() -> None:
    catalog, queue = one_queue()
    assert apply(catalog, MoveQueue("/", "q", 1)) == Done(False)
    apply(catalog, MoveQueue("/", "q", 2))
    assert apply(catalog, MoveQueue("/", "q", 2)) == Done(False)
    assert refusal(catalog, MoveQueue("/", "q", 1)) == (
        "queue 'q' in vhost '/' is still moving from shard 1 to shard 2: ask for shard 1 once it is there"
    )
    for late in (QueueMoved(queue.id, 1, 3), QueueMoved(queue.id, 2, 2), QueueMoved(99, 1, 2)):
        assert apply(catalog, late) == Done(False)
    apply(catalog, QueueMoved(queue.id, 1, 2))
    assert apply(catalog, QueueMoved(queue.id, 1, 2)) == Done(False)


def test_every_shard_in_which_it_was_is_remembered_once() -> None:
    catalog, queue = one_queue()
    for source, target in ((1, 2), (2, 1), (1, 3), (3, 2)):
        apply(catalog, MoveQueue("/", "q", target))
        apply(catalog, QueueMoved(queue.id, source, target))
    moves = record_of(catalog).moves
    assert moves is not None and (moves.sources, moves.count) == ((1, 2, 3), 4)


def test_what_cannot_move_is_refused_in_words() -> None:
    catalog, _ = one_queue()
    assert refusal(catalog, MoveQueue("/", "q", 5)) == "no shard 5: shards are numbered from 1 to 4"
    assert refusal(catalog, MoveQueue("/", "q", 0)) == "no shard 0: shards are numbered from 1 to 4"
    assert refusal(catalog, MoveQueue("/", "other", 2)) == "no queue 'other' in vhost '/'"
    assert refusal(catalog, MoveQueue("none", "q", 2)) == "vhost none not found"
    apply(catalog, DeclareQueue("/", "t", auto_delete=True, node_id=1, incarnation=1 << 20))
    assert refusal(catalog, MoveQueue("/", "t", 2)).startswith("queue 't' in vhost '/' is in the memory of node 1")


def test_whether_a_queue_may_move_is_known_without_asking_for_it() -> None:
    catalog, _ = one_queue()
    apply(catalog, DeclareQueue("/", "t", auto_delete=True, node_id=1, incarnation=1 << 20))
    before = catalog.snapshot()
    assert catalog.may_move(MoveQueue("/", "q", 2))
    assert not any(catalog.may_move(MoveQueue("/", name, shard)) for name, shard in (("q", 5), ("t", 2), ("none", 2)))
    assert catalog.snapshot() == before
    apply(catalog, MoveQueue("/", "q", 2))
    assert not catalog.may_move(MoveQueue("/", "q", 3)), "it moves already"


def test_below_its_level_no_queue_moves() -> None:
    catalog, _ = one_queue(LEVEL_QUEUE_MOVES - 1)
    assert "needs feature level 6, the cluster is at 5" in refusal(catalog, MoveQueue("/", "q", 2))
    assert isinstance(apply(catalog, MoveQueue("/", "q", 2)), NeedsLevel)


def test_a_queue_that_is_deleted_is_not_moving_any_more() -> None:
    catalog, queue = one_queue()
    apply(catalog, MoveQueue("/", "q", 2))
    apply(catalog, RemoveQueues((queue.id,)))
    assert not catalog.moving_queues()
    assert apply(catalog, QueueMoved(queue.id, 1, 2)) == Done(False)


def test_who_has_to_know_is_told_which_have_moved() -> None:
    catalog, queue = one_queue()
    before = catalog.queues_moved
    assert catalog.moved_since(before) == []
    apply(catalog, MoveQueue("/", "q", 2))
    apply(catalog, QueueMoved(queue.id, 1, 2))
    assert catalog.moved_since(before) == [queue.id]
    catalog.restore(catalog.snapshot())
    assert catalog.moved_since(before) is None


def moved_twice(level: int) -> tuple[Catalog, QueueRecord]:
    """A queue that was in shard 2, is in 1 again, and is to go to 2 once more."""
    catalog, queue = one_queue(level)
    for source, target, number in ((1, 2, 1), (2, 1, 2)):
        apply(catalog, MoveQueue("/", "q", target))
        assert apply(catalog, QueueMoved(queue.id, source, target, number)) == Done(True)
    apply(catalog, MoveQueue("/", "q", 2))
    return catalog, record_of(catalog)


def test_what_is_said_late_of_an_earlier_move_counts_for_no_later_one() -> None:
    catalog, queue = moved_twice(LEVEL_NUMBERED_MOVES)
    assert queue.move_number == 2
    for late in (0, 1, 2, 4):
        assert apply(catalog, QueueMoved(queue.id, 1, 2, late)) == Done(False)
    assert record_of(catalog) == queue
    assert apply(catalog, QueueMoved(queue.id, 1, 2, 3)) == Done(True)
    assert (record_of(catalog).shard, record_of(catalog).move_number) == (2, 3)


def test_below_the_level_at_which_moves_are_numbered_the_number_is_passed_over() -> None:
    """All replicas do alike then, those that know none as well."""
    catalog, queue = moved_twice(LEVEL_NUMBERED_MOVES - 1)
    apply(catalog, QueueMoved(queue.id, 1, 2, 1))
    assert record_of(catalog).shard == 2
    assert apply(catalog, MoveQueue("/", "q", 3, id=99, number=99)) == Done(True)


def test_a_move_that_was_meant_for_another_queue_of_the_name_is_refused() -> None:
    catalog, queue = one_queue(LEVEL_NUMBERED_MOVES)
    meant = MoveQueue("/", "q", 2, id=queue.id, number=1)
    assert catalog.may_move(meant)
    apply(catalog, RemoveQueues((queue.id,)))
    assert refusal(catalog, meant) == "no queue 'q' in vhost '/'"
    apply(catalog, DeclareQueue("/", "q", durable=True))
    assert refusal(catalog, meant) == (
        "queue 'q' in vhost '/' was declared anew, or has moved, since it was asked to move"
    )
    assert not catalog.may_move(meant)


def test_a_move_that_was_decided_before_another_one_is_refused() -> None:
    catalog, queue = one_queue(LEVEL_NUMBERED_MOVES)
    decided = MoveQueue("/", "q", 3, id=queue.id, number=1)
    apply(catalog, MoveQueue("/", "q", 2, id=queue.id, number=1))
    assert apply(catalog, MoveQueue("/", "q", 2, id=queue.id, number=1)) == Done(False), "it is on its way"
    apply(catalog, QueueMoved(queue.id, 1, 2, 1))
    assert "has moved, since it was asked to move" in refusal(catalog, decided)
    assert apply(catalog, MoveQueue("/", "q", 3, id=queue.id)) == Done(True)
