"""Snapshots of the catalog are made and read in steps, and are of one moment all the same (RULES C1)."""
from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mayfly.node.catalog import (
    Bind,
    Catalog,
    CatalogCommand,
    DeclareQueue,
    DeleteVhost,
    MalformedSnapshot,
    RemoveQueues,
    SetPermissions,
    blocks,
    queue_table,
    snapshot,
)
from mayfly.node.catalog.commands import encode
from mayfly.node.catalog.machine import CatalogMachine, frame_command
from tests.node.catalog.test_catalog_snapshot import COMMANDS, all_queues, histories, routes

ROWS = 4


@pytest.fixture(autouse=True, scope="module")
def small_steps() -> Iterator[None]:
    """Blocks and steps of a few rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_BITS", 2)
        patch.setattr(queue_table, "BLOCK_BITS", 2)
        patch.setattr(queue_table, "_OFFSET", 3)
        patch.setattr(snapshot, "ROWS_WRITTEN_PER_STEP", ROWS)
        patch.setattr(snapshot, "ROWS_READ_PER_STEP", ROWS)
        yield


MANY_QUEUES: st.SearchStrategy[CatalogCommand] = st.builds(
    DeclareQueue, st.sampled_from(["/", "v"]), st.text("abcd", min_size=1, max_size=2), st.just(True)
)
REMOVALS: st.SearchStrategy[CatalogCommand] = st.builds(
    RemoveQueues, st.lists(st.integers(1, 40), max_size=4).map(tuple)
)
CHANGES = histories(st.lists(st.one_of(MANY_QUEUES, REMOVALS, COMMANDS), min_size=20, max_size=60))


@settings(max_examples=150, deadline=None)
@given(CHANGES, st.lists(st.integers(2, 18), min_size=1, max_size=3))
def test_c1_a_snapshot_is_of_the_moment_at_which_it_was_begun(commands: list[CatalogCommand], begun: list[int]) -> None:
    """Several may be under way. The last declare joins a block that was lent."""
    catalog = Catalog(3)
    making: list[tuple[bytes, snapshot.CatalogSnapshotInSteps]] = []
    made: list[tuple[bytes, bytes]] = []

    def step() -> None:
        for each in list(making):
            data = each[1].step()
            if data is not None:
                making.remove(each)
                made.append((each[0], data))

    for position, command in enumerate(commands):
        making += [(catalog.snapshot(), catalog.snapshot_steps())] * begun.count(position)
        catalog.apply(command, position)
        step()
    making.append((catalog.snapshot(), catalog.snapshot_steps()))
    catalog.apply(DeclareQueue("/", "last", durable=True))
    while making:
        step()
    for wanted, data in made:
        assert data == wanted


@settings(max_examples=150, deadline=None)
@given(CHANGES, CHANGES)
def test_c1_a_catalog_goes_on_while_it_reads_what_it_will_be(
    there: list[CatalogCommand], meanwhile: list[CatalogCommand]
) -> None:
    source, catalog, whole = Catalog(3), Catalog(3), Catalog(3)
    for command in there:
        source.apply(command)
    data = source.snapshot()
    reading = catalog.reading(data)
    over = False
    for command in meanwhile:
        over = over or reading.step()
        assert catalog.apply(command) == whole.apply(command)
        assert catalog.snapshot() == whole.snapshot()
    while not over:
        over = reading.step()
    catalog.become(reading.state)
    assert catalog.snapshot() == data
    assert routes(catalog) == routes(source)


def many(count: int) -> Catalog:
    catalog = Catalog(3)
    for number in range(count):
        catalog.apply(DeclareQueue("/", f"q{number}", durable=True))
        catalog.apply(Bind("/", "amq.direct", "queue", f"q{number}", "k"))
        catalog.apply(SetPermissions("guest", "/", "", "", f"{number}"))
    return catalog


def test_a_step_is_some_rows_and_the_number_of_steps_that_of_the_rows() -> None:
    catalog = many(200)
    rows = 2 * 200
    making = catalog.snapshot_steps()
    count = 1
    while (data := making.step()) is None:
        count += 1
    assert rows / (2 * ROWS) <= count <= rows / ROWS + 20
    reading = catalog.reading(data)
    count = last = 0
    while not reading.step():
        queues, bindings = len(reading.state.queues), sum(each.bindings_count for each in reading.state.vhosts.values())
        assert queues + bindings - last <= ROWS
        last = queues + bindings
        count += 1
    assert last == rows
    assert count <= 3 * 200 / ROWS + 20, "bindings are passed over once, and read later"


def test_the_form_is_one_message_of_the_shortest_heads() -> None:
    for count in (0, 15, 16, 70):
        data = many(count).snapshot()
        assert msgspec.msgpack.encode(msgspec.msgpack.decode(data)) == data


def test_what_is_replaced_is_let_go_bit_by_bit() -> None:
    catalog, empty = many(5_000), Catalog(3).snapshot()
    before = catalog._state
    reading = catalog.reading(empty)
    while not reading.step():
        pass
    catalog.become(reading.state)
    left = [len(before.queues)]
    while catalog.let_go():
        left.append(len(before.queues))
    assert left[0] == 5_000
    assert all(0 < more - less <= 1_024 for more, less in pairwise(left))
    assert len(before.queues) == len(before.vhosts["/"].queues) == before.vhosts["/"].bindings_count == 0
    assert catalog.snapshot() == empty
    assert not catalog.let_go()


def test_the_machine_has_steps_too_and_refuses_what_can_t_be_read_at_the_place() -> None:
    changes: list[int] = []
    machine = CatalogMachine(many(20), lambda: changes.append(1))
    making = machine.snapshot_steps()
    command = b"".join(frame_command(encode(DeleteVhost("/"))))
    machine.begin(1, 1, 1, command)
    machine.apply(None, 0, len(command))
    machine.finish()
    steps = 1
    while (data := making.step()) is None:
        steps += 1
    assert steps > 5
    assert list(machine.catalog.queues()) == []
    restoring = machine.restore_steps(data)
    steps = 1
    while not restoring.step():
        assert list(machine.catalog.queues()) == []
        steps += 1
    assert steps > 5
    assert not machine.restored
    restoring.finish()
    assert machine.restored
    assert len(list(machine.catalog.queues())) == 20
    assert len(changes) == 2
    with pytest.raises(MalformedSnapshot):
        Catalog(3).restore(data[:-40])


# --- which queues a shard has ---------------------------------------------------------------------------


def of_shard(catalog: Catalog, shard: int) -> list[int]:
    return [queue.id for block in catalog.blocks_of_shard(shard) for queue in catalog.queues_in_block(shard, block)]


@settings(max_examples=150, deadline=None)
@given(CHANGES)
def test_a_shard_has_the_queues_whose_records_say_so(commands: list[CatalogCommand]) -> None:
    catalog = Catalog(3)
    for command in commands:
        catalog.apply(command)
    again = Catalog(3)
    again.restore(catalog.snapshot())
    queues = all_queues(catalog)
    shards = {queue.shard for queue in queues} | {1, 2, 3}
    for each in (catalog, again):
        for shard in shards:
            assert of_shard(each, shard) == [queue.id for queue in queues if queue.shard == shard]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 3)), max_size=80))
def test_a_queue_whose_record_names_another_shard_is_in_that_one(changes: list[tuple[int, int]]) -> None:
    """Shard 0 stands for none: the queue goes. An id that went comes no more."""
    table = queue_table.QueueTable()
    at: dict[int, int] = {}
    highest = 0
    some = next(iter(many(1).queues()))
    for id, shard in changes:
        known = table.get(id)
        if shard and (known is not None or id > highest):
            table.put(msgspec.structs.replace(some, id=id, shard=shard))
            at[id] = shard
            highest = max(highest, id)
        elif not shard and known is not None:
            table.remove(known)
            del at[id]
    assert [queue.id for queue in table.values()] == sorted(at)
    assert [queue.id for queue in table.newest_first()] == sorted(at, reverse=True)
    assert len(table) == len(at)
    for shard in (1, 2, 3):
        found = [queue.id for block in table.blocks_of(shard) for queue in table.in_block(shard, block)]
        assert found == sorted(id for id, of in at.items() if of == shard)
