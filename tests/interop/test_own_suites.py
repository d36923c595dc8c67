"""What `own_suites.py` starts ends with it, whenever it is told to end."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.nodes import wait_for
from tests.interop import own_suites
from tests.waiting import BOUND_S

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None or not own_suites.RABBITMQ_SERVER.exists(),
    reason="needs root, iproute2 (`apt-get install iproute2`) and rabbitmq-server",
)

STARTING = """\
#!/bin/sh
setsid sleep 1000 &
echo $! > "$RMQ_BASE.pid"
sleep 1000
"""
"""In place of the script that starts three nodes of RabbitMQ: one is on its way, in a session of its own."""


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_no_process_is_left_behind(tmp_path: Path, number: signal.Signals) -> None:
    script = tmp_path / "shared" / "bench" / "rabbitmq-cluster"
    script.parent.mkdir(parents=True)
    script.write_text(STARTING)
    script.chmod(0o755)
    (tmp_path / "checkouts" / "pika").mkdir(parents=True)
    program = subprocess.Popen(
        [
            *(sys.executable, "-P", own_suites.__file__, "--rabbitmq", "--only", "pika"),
            *("--checkouts", str(tmp_path / "checkouts")),
        ],
        env={**os.environ, "MAYFLY_SHARED": str(tmp_path / "shared"), "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    pid = 0
    try:
        wait_for(
            lambda: any(file.read_text().strip() for file in tmp_path.glob("mayfly-suites-*/rabbitmq.pid")),
            "a node that is about to start",
        )
        (file,) = tmp_path.glob("mayfly-suites-*/rabbitmq.pid")
        pid = int(file.read_text())
        assert runs(pid)
        program.send_signal(number)
        _, said = program.communicate(timeout=BOUND_S)
        assert (program.returncode, said.strip()) == (1, f"ended by {number.name}")
        wait_for(lambda: not runs(pid), "the end of the node")
        listed = subprocess.run(["ip", "netns"], stdout=subprocess.PIPE, text=True, check=True)
        assert f"rabbitmq-{program.pid}" not in listed.stdout
    finally:
        program.kill()
        program.wait()
        if pid:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
