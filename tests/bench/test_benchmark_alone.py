"""One benchmark at a time on a machine, and what it has started ends with it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench import clusters
from bench.clusters import BrokerFailed, until_spread
from tests.node.command_line.stubs import is_running
from tests.waiting import BOUND_S, wait_for

ROOT = Path(clusters.__file__).parent.parent
BENCHMARK = """
import os, signal, sys, time
from pathlib import Path
from bench.clusters import running
from bench.machine import only_benchmark

# A shell's job in the background has it ignored, and passes that on.
signal.signal(signal.SIGINT, signal.default_int_handler)
with only_benchmark():
    child = [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(600)"]
    with running(child, Path(sys.argv[1]), dict(os.environ), 60):
        print("measures", flush=True)
        time.sleep(600)
"""


@contextmanager
def benchmark(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """One that has started a broker, whose process id is in the folder's log."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}
    process = subprocess.Popen(
        [sys.executable, "-c", BENCHMARK, str(folder / "log")], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def broker_of(folder: Path) -> int:
    wait_for(lambda: (folder / "log").read_text().endswith("\n"), "a broker")
    return int((folder / "log").read_text().splitlines()[-1])


def test_a_second_one_is_told_of_the_first_and_runs_when_that_has_ended(tmp_path: Path) -> None:
    with benchmark(tmp_path) as first:
        assert first.stdout is not None and first.stdout.readline() == "measures\n"
        with benchmark(tmp_path) as second:
            _, told = second.communicate(timeout=BOUND_S)
        assert second.returncode == 1
        assert told.startswith("another benchmark runs on this machine") and f"pid {first.pid}, -c {tmp_path}" in told
        first.kill()
        first.wait()
        with benchmark(tmp_path) as third:
            assert third.stdout is not None and third.stdout.readline() == "measures\n"


@pytest.mark.skipif(sys.platform != "linux", reason="by a signal of Linux's")
@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_brokers_end_with_it(by: signal.Signals, tmp_path: Path) -> None:
    with benchmark(tmp_path) as process:
        assert process.stdout is not None and process.stdout.readline() == "measures\n"
        broker = broker_of(tmp_path)
        assert is_running(broker)
        process.send_signal(by)
        process.wait(BOUND_S)
        wait_for(lambda: not is_running(broker), "the end of the broker")


def test_leaders_that_never_go_where_they_should_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {1: [{"leader": 1, "plan": [1, 2]}], 2: [{"leader": 0, "plan": [1, 2]}]}

    def page(port: int, path: str) -> str:
        import json

        return json.dumps({"shards": pages[port]}) if path == "/shards" else ""

    monkeypatch.setattr(clusters, "page", page)
    monkeypatch.setattr(clusters, "_SPREAD_WITHIN_S", 0)
    with pytest.raises(BrokerFailed, match="every shard is led by the node that is to lead it"):
        until_spread([1, 2])
    pages[2] = pages[1]
    until_spread([1, 2])
