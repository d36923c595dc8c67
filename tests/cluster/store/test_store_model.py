"""Random batches: the store on LMDB, reopened at will, holds what the one in memory holds."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mayfly.cluster.log.batch import WriteBatch
from mayfly.cluster.store.lmdb_store import LmdbLogStore
from simulation.cluster.memory_store import MemoryStore, SimulatedDisk
from tests.cluster.store.histories import MAP_BYTES, histories, same

patient = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@patient
@given(histories())
def test_lmdb_holds_what_memory_holds(history: list[WriteBatch | None]) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        model = MemoryStore()
        store = LmdbLogStore(folder, MAP_BYTES)
        for batch in history:
            if batch is None:
                store.close()
                store = LmdbLogStore(folder, MAP_BYTES)
            else:
                model.write(batch)
                store.write(batch)
        same(store, model)
        store.close()
        store = LmdbLogStore(folder, MAP_BYTES)
        same(store, model)
        store.close()
    finally:
        shutil.rmtree(folder)


@patient
@given(histories(), st.lists(st.sampled_from(["complete", "lost", "survives"]), min_size=12, max_size=12))
def test_a_crash_loses_or_keeps_a_write_whole(history: list[WriteBatch | None], fates: list[str]) -> None:
    disk, model = SimulatedDisk(), MemoryStore()
    for batch, fate in zip(history, fates, strict=False):
        if batch is None:
            continue
        try:
            model.check(batch)
        except ValueError:
            continue  # It built on a write that was lost.
        before = disk.load()
        disk.begin_write(batch)
        assert disk.busy()
        assert disk.load() == before
        if fate == "complete":
            disk.complete()
        else:
            disk.crash(pending_survives=fate == "survives")
        assert not disk.busy()
        if fate != "lost":
            model.write(batch)
        same(disk, model)
