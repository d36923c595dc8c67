"""Disks that fail and disks that forget: a node never carries on as if nothing had happened, and comes back."""

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from mayfly.cluster.log import records
from mayfly.cluster.store.lmdb_file import meta_pages
from mayfly.cluster.store.write_ahead_store import WriteAheadStore
from tests.integration.clients import channel, connect, drain, publish_all
from tests.integration.nodes import BUS_ERROR, Nodes, wait_for
from tests.waiting import BOUND_S

pytestmark = [pytest.mark.processes]

BODIES = [b"%d kept" % number for number in range(60)]

NODE_WITH_FAILING_SYNC = '''
import os
from pathlib import Path

from mayfly.cluster.store import write_ahead_files
from mayfly.node.command_line import main

sync = write_ahead_files._sync

def fail(descriptor):
    folder = Path(os.readlink(f"/proc/self/fd/{descriptor}")).parent.parent
    if (Path(os.environ["FAILING_SYNC_SWITCHES"]) / folder.name).exists():
        raise OSError(5, os.strerror(5))

def failing(descriptor):
    fail(descriptor)
    sync(descriptor)

write_ahead_files._sync = failing
main()
'''


@pytest.fixture
def failing_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder; while there is a file in it called like a node's data folder, that node's syncs fail."""
    switches = tmp_path / "switches"
    switches.mkdir()
    monkeypatch.setenv("FAILING_SYNC_SWITCHES", str(switches))
    return switches


def _started(folder: Path, count: int, program: str = "") -> Iterator[Nodes]:
    script = folder / "node.py"
    if program:
        folder.mkdir(parents=True)
        script.write_text(program, encoding="utf-8")
    executable = [sys.executable, "-P", str(script)] if program else None
    with Nodes(folder, count, {"cache_bytes": 1024 * 1024}, executable) as nodes:
        nodes.serve()
        yield nodes


@pytest.fixture
def single(tmp_path: Path, failing_sync: Path) -> Iterator[Nodes]:
    yield from _started(tmp_path / "nodes", 1, NODE_WITH_FAILING_SYNC)


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Nodes]:
    yield from _started(tmp_path / "nodes", 3)


def test_a_sync_that_fails_stops_the_node_and_a_restart_has_all_that_was_confirmed(
    single: Nodes, failing_sync: Path
) -> None:
    with channel(single, 1) as declaring:
        declaring.queue_declare("kept", durable=True)
    publish_all(single, 1, "kept", BODIES)
    watching = connect(single, 1)
    single.expected_errors += ["can't be written", "Input/output error"]
    (failing_sync / single.plan(1).data_dir.name).touch()
    with pytest.raises(Exception):  # noqa: B017 (whatever the client makes of it, it is not confirmed)
        publish_all(single, 1, "kept", [b"not confirmed"])
    assert single.ends_by_itself(1) == 1
    with pytest.raises(pika.exceptions.AMQPError):
        watching.process_data_events(BOUND_S)
    assert "the log can't be written" in single.log_text(1)
    (failing_sync / single.plan(1).data_dir.name).unlink()
    single.start(1)
    single.until_serving()
    found = [body for body, _ in drain(single, 1, "kept")]
    assert found[: len(BODIES)] == BODIES
    assert found[len(BODIES) :] in ([], [b"not confirmed"])


def damage_an_entry(data: Path, at_least_bytes: int = 0) -> tuple[int, int]:
    """Flip one bit in the last entry of some shard's log; (group, index)."""
    WriteAheadStore(data / "log").close()  # Now all is in the log file.
    with lmdb.open(str(data / "log"), max_dbs=8, map_size=1 << 34) as environment:
        table = environment.open_db(b"entries", create=False)
        with environment.begin(write=True, db=table) as transaction:
            found = [(key, value) for key, value in transaction.cursor() if len(value) > at_least_bytes]
            key, value = max(found, key=lambda pair: (records.ENTRY_KEY.unpack(pair[0])[0] > 0, len(pair[1])))
            damaged = bytearray(value)
            damaged[-1] ^= 4
            transaction.put(key, bytes(damaged))
            group, index = records.ENTRY_KEY.unpack(key)
    return group, index


def test_a_node_alone_with_a_damaged_log_refuses_to_start_and_says_what_is_damaged(single: Nodes) -> None:
    with channel(single, 1) as declaring:
        declaring.queue_declare("kept", durable=True)
    publish_all(single, 1, "kept", BODIES)
    single.kill(1)
    group, index = damage_an_entry(single.plan(1).data_dir)
    single.expected_errors += ["is damaged", "cannot start"]
    single.start(1)
    assert single.ends_by_itself(1) == 78
    assert "empty that folder: the node joins as a new member" in single.log_text(1)
    assert "For a node alone put a backup in its place" in single.log_text(1)
    assert f"entry {index} of group {group} is corrupt" in single.log_text(1)
    assert "can't be rebuilt" in single.log_text(1)


def test_a_log_file_whose_pages_do_not_fit_together_ends_with_78_and_the_way_out(single: Nodes) -> None:
    """LMDB itself would end the process (SIGABRT), at every start."""
    with channel(single, 1) as declaring:
        declaring.queue_declare("kept", durable=True)
    publish_all(single, 1, "kept", BODIES)
    single.kill(1)
    folder = single.plan(1).data_dir / "log"
    WriteAheadStore(folder).close()
    with lmdb.open(str(folder), max_dbs=8, map_size=1 << 34) as environment:
        last_page = environment.info()["last_pgno"]
    file = folder / "data.mdb"
    octets = bytearray(file.read_bytes())
    for page in range(2, last_page + 1):
        octets[page * 4096 + 10] ^= 1
    file.write_bytes(octets)
    single.expected_errors += ["is damaged", "cannot start"]
    for _ in range(2):
        single.start(1)
        assert single.ends_by_itself(1) == 78
    assert "data.mdb is damaged: page" in single.log_text(1)
    assert "Nothing was changed in" in single.log_text(1)
    assert file.read_bytes() == octets


def test_a_damaged_replica_is_rebuilt_from_its_peers(three: Nodes) -> None:
    with channel(three, 1) as declaring:
        declaring.queue_declare("kept", durable=True)
    publish_all(three, 1, "kept", BODIES)
    three.until_well()
    three.kill(3)
    group, _ = damage_an_entry(three.plan(3).data_dir)
    three.start(3)
    wait_for(lambda: f"group {group} is damaged and will be rebuilt" in three.log_text(3), "damage is told")
    three.until_well()
    three.kill(1)
    assert [body for body, _ in drain(three, 3, "kept")] == BODIES
    three.heal()


@pytest.mark.slow
def test_a_log_file_whose_pages_do_not_fit_together_is_rebuilt_from_the_peers(three: Nodes) -> None:
    """But for what the node has promised: that is read, and kept."""
    with channel(three, 1) as declaring:
        declaring.queue_declare("kept", durable=True)
    publish_all(three, 1, "kept", BODIES)
    three.until_well()
    three.kill(3)
    folder = three.plan(3).data_dir / "log"
    damage_the_table_of_entries(folder / "data.mdb")
    three.expected_errors += ["is damaged: page"]
    three.start(3)
    wait_for(lambda: "all else is rebuilt from the other nodes" in three.log_text(3), "damage is told")
    three.until_well()
    assert (folder / "data.mdb.damaged").exists()
    three.kill(1)
    assert [body for body, _ in drain(three, 3, "kept")] == BODIES
    three.heal()
    three.kill(3)
    three.start(3)
    three.until_well()
    assert not (folder / "data.mdb.damaged").exists()


def damage_the_table_of_entries(file: Path) -> None:
    """Its root is no page of it any more."""
    WriteAheadStore(file.parent).close()  # Now all is in the log file.
    octets = bytearray(file.read_bytes())
    with file.open("rb") as handle:
        pages = [page for page in meta_pages(handle.fileno()) if page is not None]
    main = max(pages, key=lambda page: page.transaction).main.root
    at = octets.index(b"entries", main * 4096) + len(b"entries")
    root = int.from_bytes(octets[at + 40 : at + 48], sys.byteorder)
    octets[root * 4096] ^= 1
    file.write_bytes(octets)


def get_all(taking: BlockingChannel, taken: list[bytes]) -> None:
    """Get messages of the queue until the connection ends."""
    while True:
        _, _, body = taking.basic_get("kept", auto_ack=False)
        if body is not None:
            taken.append(body)


def consume_all(taking: BlockingChannel, taken: list[bytes]) -> None:
    """The same with a consumer."""
    for _, _, body in taking.consume("kept"):
        taken.append(body)


@pytest.mark.parametrize("take_all", [get_all, consume_all])
def test_damage_found_while_running_is_not_delivered_stops_the_node_and_is_rebuilt(
    three: Nodes, take_all: Callable[[BlockingChannel, list[bytes]], None]
) -> None:
    """LMDB maps the file, so what changes in it under a running node is what that node reads."""
    with channel(three, 1) as declaring:
        declaring.queue_declare("kept", durable=True)
    # Many times the cache, and more than waits in write-ahead files.
    bodies = [b"%06d" % number + b"x" * 30_000 for number in range(400)]
    publish_all(three, 1, "kept", bodies)
    three.until_well()
    file = three.plan(3).data_dir / "log" / "data.mdb"
    # What was written ahead is moved there by and by.
    wait_for(lambda: bodies[0] in file.read_bytes(), "the first message in the log file", every_s=0.1)
    place = file.read_bytes().index(bodies[0]) + 20_000
    with file.open("r+b") as handle:
        handle.seek(place)
        handle.write(b"?")
    three.expected_errors += ["is corrupt"]
    taken: list[bytes] = []
    with connect(three, 3) as client, pytest.raises(pika.exceptions.AMQPError):
        take_all(client.channel(), taken)
    assert set(taken) <= set(bodies), "a damaged message was delivered"
    assert three.ends_by_itself(3) == 1
    assert "is corrupt: it doesn't match its checksum" in three.log_text(3)
    three.start(3)
    three.until_serving()
    three.until_well()
    assert [body for body, _ in drain(three, 3, "kept")] == bodies


def test_a_log_that_cannot_be_read_under_a_running_node_ends_it_with_a_text(single: Nodes) -> None:
    """A page of LMDB's map that the disk doesn't give is a signal (SIGBUS) to whoever looks at it: here one behind the
    end of its file. Nothing can be done then but to say where the process was."""
    with channel(single, 1) as declaring:
        declaring.queue_declare("kept", durable=True)
    # Many times the cache, and more than waits in write-ahead files.
    publish_all(single, 1, "kept", [b"%06d" % number + b"x" * 30_000 for number in range(400)])
    file = single.plan(1).data_dir / "log" / "data.mdb"
    wait_for(lambda: b"000000" + b"x" * 3_000 in file.read_bytes(), "the first message in the log file", every_s=0.1)
    single.expected_errors += BUS_ERROR
    # Connected before, for the node may look there by itself.
    with connect(single, 1) as client:
        with file.open("r+b") as handle:
            handle.truncate(0)
        with pytest.raises(pika.exceptions.AMQPError):
            get_all(client.channel(), [])
    assert single.ends_by_itself(1) == -signal.SIGBUS
    assert "Fatal Python error: Bus error" in single.log_text(1)
