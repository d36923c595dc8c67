"""The times that the catalog writes down (RULES C1, C2)."""

from mayfly.cluster.group.applying import Applying
from mayfly.cluster.group.sessions import ENTRY_HEADER, ENTRY_VERSION, KIND_INTERNAL, encode_batch
from mayfly.cluster.versions import LEVEL_CATALOG_CLOCK
from mayfly.node.catalog import AddVhost, Catalog, CatalogCommand, DeclareQueue, FoundCluster
from mayfly.node.catalog.commands import encode
from mayfly.node.catalog.machine import CatalogMachine, frame_command
from tests.cluster.group.own_sessions import told_by_replica

LEFT_MS, NEXT_MS = 1_790_000_002_000, 1_790_000_001_000
"""Stamps of a leader that left, and of the next one: it makes its first entry before it has applied the other's last,
and its clock goes on from a heartbeat that was late."""


def entry(stamp_ms: int, *commands: CatalogCommand) -> bytes:
    """An entry of these commands."""
    batch = b"".join(part for command in commands for part in frame_command(encode(command)))
    return ENTRY_HEADER.pack(ENTRY_VERSION, stamp_ms, 0) + encode_batch(KIND_INTERNAL, 0, 0, 0, batch)


def replica() -> tuple[Applying, Catalog]:
    """One replica of the catalog's group, and what it holds."""
    catalog = Catalog(4)
    machine = CatalogMachine(catalog, lambda: None)
    return Applying(told_by_replica(0, lambda effects: None), machine, None), catalog


def two_replicas(level: int) -> tuple[Catalog, Catalog]:
    """Both are told of a queue in the next leader's entry; the second has the entry before it from a snapshot."""
    first, catalog = replica()
    first.apply(1, entry(LEFT_MS, FoundCluster(((1, "a", "a:1"),), 1, level), AddVhost("/")))
    steps = first.state_steps()
    state = steps.step()
    while state is None:
        state = steps.step()
    second, other = replica()
    reading = second.reading(state)
    while not reading.step():
        pass
    second.restore(reading, 1)
    for each in (first, second):
        each.apply(2, entry(NEXT_MS, DeclareQueue("/", "late", durable=True)))
    return catalog, other


def created_ms(catalog: Catalog) -> int:
    """When the queue was declared."""
    record = catalog.queue("/", "late")
    assert record is not None
    return record.created_ms


def test_c2_the_catalogs_times_do_not_go_back_with_a_change_of_leader() -> None:
    catalog, other = two_replicas(LEVEL_CATALOG_CLOCK)
    assert created_ms(catalog) == created_ms(other) == LEFT_MS
    assert catalog.snapshot() == other.snapshot()


def test_c1_below_the_level_all_go_by_the_stamps_as_the_release_before_does() -> None:
    catalog, other = two_replicas(LEVEL_CATALOG_CLOCK - 1)
    assert created_ms(catalog) == created_ms(other) == NEXT_MS
    assert catalog.snapshot() == other.snapshot()
