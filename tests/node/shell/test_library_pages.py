"""The pages of libraries that a process holds on to are let go, but none that anything was written to."""

import asyncio
import ctypes
import mmap
import subprocess
import sys
from pathlib import Path

import pytest

from mayfly.node.settings import NodeSettings
from mayfly.node.settings.kinds import Address
from mayfly.node.shell import library_pages, process, process_memory
from mayfly.node.shell.library_pages import Entry, Library, Segment, for_each_unwritten, unwritten
from mayfly.node.shell.process import NodeProcess
from mayfly.node.shell.process_memory import BUSY_BYTES, FreedMemory

ROOT = Path(__file__).resolve().parents[3]
PAGE = mmap.PAGESIZE
KIB = 1024

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems do not let go of pages")

# gRPC's library is large, and most of what is looked at of it when it is loaded is not looked at again.
PROGRAM = """
import grpc.aio
from pathlib import Path
from mayfly.node.shell.library_pages import let_go_of_libraries

def files_kib():
    return int(Path("/proc/self/status").read_text().partition("RssFile:")[2].split()[0])

before = files_kib()
let_go_bytes = let_go_of_libraries()
print(before - files_kib(), let_go_bytes)

import asyncio, hashlib, ssl
assert hashlib.sha256(b"").hexdigest().startswith("e3b0c442")
ssl.create_default_context()

async def use_all_again():
    await grpc.aio.server().start()

asyncio.run(use_all_again())
let_go_of_libraries()
assert hashlib.sha256(b"").hexdigest().startswith("e3b0c442")
"""


# One thread loads a library again and again while another lets go: both have the interpreter for a moment each.
LOADING = """
import faulthandler, shutil, sys, threading
import _ctypes, lmdb.cpython
from mayfly.node.shell.library_pages import let_go_of_libraries

faulthandler.dump_traceback_later(120, exit=True)
other = sys.argv[1]
shutil.copy(lmdb.cpython.__file__, other)
sys.setswitchinterval(1e-6)
done, loaded = threading.Event(), 0

def load():
    global loaded
    while not done.is_set():
        _ctypes.dlclose(_ctypes.dlopen(other, 2))
        loaded += 1

thread = threading.Thread(target=load)
thread.start()
while loaded < 100:
    assert let_go_of_libraries() > 0
done.set()
thread.join()
"""


def test_a_thread_that_loads_a_library_meanwhile_and_this_one_do_not_wait_for_each_other(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LOADING, str(tmp_path / "other.so")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def library(*segments: Segment, base: int = 0) -> Library:
    return Library(base, segments)


def loaded(address: int, size: int, flags: int = 0) -> Segment:
    return Segment(kind=library_pages.LOADED, flags=flags, address=address, size=size)


def test_what_was_looked_at_to_load_libraries_is_let_go_and_they_work_as_before() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True)
    less_kib, let_go_bytes = map(int, done.stdout.split())
    assert less_kib > 8 * KIB
    assert let_go_bytes > less_kib * KIB


def test_nothing_was_written_to_what_is_let_go() -> None:
    """As the system says: what was written to a page of a private map is anonymous memory, and would be lost."""
    ranges: list[tuple[int, int]] = []
    for_each_unwritten(lambda start, size: ranges.append((start, start + size)))
    assert len(ranges) > 20
    is_let_go, seen = False, 0
    for line in Path("/proc/self/smaps").read_text(errors="surrogateescape").splitlines():
        fields = line.split()
        if "-" in fields[0]:
            start, end = (int(each, 16) for each in fields[0].split("-"))
            is_let_go = any(start < last and first < end for first, last in ranges)
            seen += is_let_go
            assert not (is_let_go and "w" in fields[1]), line
        elif is_let_go and fields[0] == "Anonymous:":
            assert fields[1] == "0", line
    assert seen >= len(ranges)


def test_whole_pages_without_leave_to_write_are_let_go() -> None:
    found = library(
        loaded(0, 2 * PAGE), loaded(4 * PAGE + 1, 2 * PAGE, flags=5), loaded(8 * PAGE, PAGE - 1, flags=4),
        loaded(10 * PAGE, PAGE, flags=library_pages.WRITABLE | 4), Segment(kind=6, address=0, size=PAGE),
        base=PAGE,
    )  # fmt: skip
    assert list(unwritten(found)) == [(PAGE, 2 * PAGE), (6 * PAGE, PAGE)]


def test_only_files_of_code_are_looked_at() -> None:
    maps = """\
7f00-7f10 r--p 00000000 fe:00 17 /lib/some.so
7f10-7f20 r-xp 00001000 fe:00 17 /lib/some.so
7f20-7f30 r-xp 00001000 fe:00 18 /lib/with a space.so
7f30-7f40 rw-s 00000000 fe:00 19 /data/data.mdb
7f40-7f50 r-xp 00000000 00:00 0
7ffc-7ffd r-xp 00000000 00:00 0 [vdso]
"""
    assert list(library_pages._files_with_code(maps)) == ["/lib/some.so", "/lib/with a space.so"]


@pytest.mark.parametrize(
    "entries, is_written",
    [
        ([(5, 1)], False),
        ([(5, 1), (library_pages.TEXT_IS_WRITTEN, 0)], True),
        ([(library_pages.FLAGS, 8)], False),
        ([(library_pages.FLAGS, 8 | library_pages.TEXT_IS_WRITTEN_FLAG)], True),
    ],
)
def test_a_library_whose_code_is_written_to_is_left_alone(entries: list[tuple[int, int]], is_written: bool) -> None:
    table = (Entry * (len(entries) + 1))(*(Entry(*each) for each in entries))
    dynamic = Segment(kind=library_pages.DYNAMIC, address=ctypes.addressof(table) - PAGE)
    found = library(loaded(0, PAGE), dynamic, base=PAGE)
    assert list(unwritten(found)) == ([] if is_written else [(PAGE, PAGE)])


def test_a_node_lets_go_when_it_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(process, "give_back", lambda: done.append("free memory"))
    monkeypatch.setattr(process, "let_go_of_libraries", lambda: done.append("libraries"))
    here = Address("127.0.0.1", 0)
    settings = NodeSettings(
        data_dir=tmp_path, amqp_address=here, http_address=here, peer_address=here, frames_address=here, shards=2
    )

    async def test() -> None:
        node = NodeProcess(settings)
        await node.start()
        await node.stop()

    asyncio.run(test())
    assert done == ["free memory", "libraries"]


def test_a_node_lets_go_when_a_busy_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[None] = []
    monkeypatch.setattr(process_memory, "let_go_of_libraries", lambda: done.append(None))
    freed = FreedMemory()
    counts = []
    for written_bytes in (BUSY_BYTES, 2 * BUSY_BYTES, 2 * BUSY_BYTES, 2 * BUSY_BYTES):
        freed.look(written_bytes, 0)
        counts.append(len(done))
    assert counts == [0, 0, 1, 1]
