"""`make jetstream-cuts`: losses of power under NATS JetStream, on the same disks as `make power-cuts`.

    python -P tests/reliability/jetstream_cuts.py [--cuts 3] [--seconds 8] [--rate 500] [--write FILE]

Three nodes, one stream with three replicas in files. Messages are published, their acknowledgements noted, then all
nodes lose their power at once and start again: what was acknowledged and is not in the stream any more is lost. By
default, where JetStream syncs every two minutes, and with `sync_interval: always`. Takes root, loop devices and a
nats-server.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
# Behind whatever MayflyMQ is installed: this brings in nothing but the tests' own modules then.
sys.path.append(str(ROOT))

from bench.nats_pipeline import NatsError, NatsPipeline
from bench.newer_peers import ROOT_FOLDER
from tests.integration.nodes import Ports
from tests.reliability import disks
from tests.reliability.disks import Disks
from tests.waiting import wait_for

SYNCS: Final = {"default": "by default: a sync every two minutes", "always": "`sync_interval: always`"}
TARGET: Final = "jetstream-cuts"
_IDS: Final = (1, 2, 3)
_STREAM: Final = "CUTS"
_SUBJECT: Final = "cuts"
_WINDOW: Final = 100
_BODY: Final = bytes(200)
_WITHIN_S: Final = 120.0
_ANSWERED_WITHIN_S: Final = 10.0


def nats_server() -> str | None:
    """The program: that of the path, or the one that `newer-peers` of ../shared/bench has put into its root folder."""
    found = shutil.which("nats-server")
    if found is None and (ROOT_FOLDER / "usr/sbin/nats-server").exists():
        return str(ROOT_FOLDER / "usr/sbin/nats-server")
    return found


def why_impossible() -> str:
    """What this machine lacks; empty: nothing."""
    if nats_server() is None:
        return f"there is no nats-server (../shared/bench/newer-peers puts one into {ROOT_FOLDER})"
    return disks.why_impossible()


@dataclass(slots=True)
class Cut:
    """One loss of power of all nodes."""

    acknowledged: int
    """Messages of which the publisher knew, since the stream was whole last, that they are stored."""
    lost: int
    """Of them those that are not in the stream afterwards."""
    stream_gone: bool
    """Whether there is no such stream any more."""


@dataclass(slots=True)
class CutRun:
    """Losses of power with one setting."""

    sync: str
    cuts: list[Cut] = field(default_factory=list)


class JetstreamNodes:
    """Three servers whose data are on disks that forget."""

    def __init__(self, folder: Path, sync: str, forgetful: Disks) -> None:
        server = nats_server()
        assert server is not None
        self._server = server
        self._folder = folder
        self._sync = sync
        self._disks = forgetful
        self._ports = Ports(len(_IDS))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def uri(self, id: int) -> str:
        """Where clients find a node."""
        return f"nats://127.0.0.1:{self._ports.base + id}"

    def start(self) -> None:
        """Start all; returns when they say that they are well."""
        for id in _IDS:
            with (self._folder / f"n{id}.log").open("ab") as log:
                words = [self._server, "-c", str(self._configuration(id))]
                self._processes[id] = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        wait_for(lambda: all(map(self._is_well, _IDS)), "JetStream on three nodes", _WITHIN_S, every_s=0.1)

    def cut_power(self) -> None:
        """All end at once, and what they had not synced is gone. They stand still when their disks go."""
        for process in self._processes.values():
            process.send_signal(signal.SIGSTOP)
        pids = [process.pid for process in self._processes.values()]
        wait_for(lambda: all(map(_stands_still, pids)), "processes that stand still", every_s=0.001)
        for id in _IDS:
            self._disks.cut(id)
        self._end()
        for id in _IDS:
            self._disks.come_back(id)

    def close(self) -> None:
        """End all."""
        self._end()
        self._ports.release()

    def _end(self) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._processes.clear()

    def _configuration(self, id: int) -> Path:
        routes = ", ".join(f"nats://127.0.0.1:{self._ports.base + 20_000 + each}" for each in _IDS)
        always = "sync_interval: always" if self._sync == "always" else ""
        file = self._folder / f"n{id}.conf"
        file.write_text(f"""
            server_name: n{id}
            listen: "127.0.0.1:{self._ports.base + id}"
            http: "127.0.0.1:{self._ports.base + 10_000 + id}"
            jetstream {{
                store_dir: "{self._disks.data_folder(id)}"
                max_file_store: 2G
                {always}
            }}
            cluster {{
                name: cuts
                listen: "127.0.0.1:{self._ports.base + 20_000 + id}"
                routes: [{routes}]
            }}
        """)
        return file

    def _is_well(self, id: int) -> bool:
        code = self._processes[id].poll()
        assert code is None, f"node {id} has ended with {code}: {(self._folder / f'n{id}.log').read_text()[-1_000:]}"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._ports.base + 10_000 + id}/healthz", timeout=5):
                return True
        except OSError:
            return False


class Client(NatsPipeline):
    """Asks, and does not wait long for answers that a server that has just started may never give."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._socket.settimeout(_ANSWERED_WITHIN_S)


class Publisher(NatsPipeline):
    """Publishes until the server is gone, and knows what was acknowledged until then."""

    def __init__(self, uri: str, rate: float) -> None:
        super().__init__(uri)
        self._gap_s = 1 / rate
        self.acknowledged: set[int] = set()
        """Where in the stream."""
        self.failure = ""
        """What was answered instead of that something is stored."""
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        message = b"PUB %s %s %d\r\n%s\r\n" % (_SUBJECT.encode(), self._acks, len(_BODY), _BODY)
        published = 0
        began_s = time.monotonic()
        try:
            while True:
                due = (time.monotonic() - began_s) / self._gap_s
                while published < min(due, len(self.acknowledged) + _WINDOW):
                    self._socket.sendall(message)
                    published += 1
                if published == len(self.acknowledged):
                    time.sleep(self._gap_s)
                else:
                    answer = json.loads(self._message())
                    if "seq" not in answer:
                        self.failure = str(answer.get("error", answer))
                        return
                    self.acknowledged.add(int(answer["seq"]))
        except (NatsError, OSError):
            pass  # its node has lost its power


def carry_out(folder: Path, sync: str, cuts: int, seconds: float, rate: float = 500.0, least: int = 0) -> CutRun:
    """So many losses of power of all nodes, each after so many seconds of publishing, and when more than `least`
    messages were acknowledged."""
    run = CutRun(sync)
    folder.mkdir(parents=True, exist_ok=True)
    forgetful = Disks(folder, _IDS)
    nodes = JetstreamNodes(folder, sync, forgetful)
    try:
        for id in _IDS:
            forgetful.data_folder(id).mkdir()
        nodes.start()
        _create_stream(nodes)
        for _ in range(cuts):
            publisher = Publisher(nodes.uri(1), rate)
            time.sleep(seconds)
            wait_for(partial(_has_enough, publisher, least), f"more than {least} acknowledged messages")
            nodes.cut_power()
            publisher.thread.join()
            assert not publisher.failure, f"a message was not stored: {publisher.failure}"
            for id in _IDS:
                forgetful.data_folder(id).mkdir(exist_ok=True)
            nodes.start()
            last = _last_in_stream(nodes)
            lost = sum(each > (last or 0) for each in publisher.acknowledged)
            run.cuts.append(Cut(len(publisher.acknowledged), lost, last is None))
            if last is None:
                _create_stream(nodes)
    finally:
        nodes.close()
        forgetful.close()
    return run


def _has_enough(publisher: Publisher, least: int) -> bool:
    """Also where no more come."""
    return len(publisher.acknowledged) > least or not publisher.thread.is_alive()


def _create_stream(nodes: JetstreamNodes) -> None:
    wish = {"name": _STREAM, "subjects": [_SUBJECT], "storage": "file", "num_replicas": len(_IDS)}

    def is_there() -> bool:
        try:
            with Client(nodes.uri(1)) as client:
                client.ask(f"$JS.API.STREAM.CREATE.{_STREAM}", wish)
        except (NatsError, OSError):
            return False
        return True

    wait_for(is_there, "a stream", _WITHIN_S, every_s=0.5)


def _last_in_stream(nodes: JetstreamNodes) -> int | None:
    """Where the last message of the stream is, when all its replicas are current; None: there is no such stream."""
    states: list[dict[str, Any] | None] = []

    def is_told() -> bool:
        try:
            with Client(nodes.uri(1)) as client:
                info = client.ask(f"$JS.API.STREAM.INFO.{_STREAM}", {})
        except NatsError as error:
            if "stream not found" in str(error):
                states.append(None)
            return bool(states)
        except OSError:
            return False
        others = [each["current"] for each in info["cluster"].get("replicas", [])]
        if info["cluster"].get("leader") and others == [True] * (len(_IDS) - 1):
            states.append(info["state"])
        return bool(states)

    wait_for(is_told, "what is in the stream", _WITHIN_S, every_s=0.2)
    state = states[-1]
    if state is None:
        return None
    assert state["messages"] == state["last_seq"] - state["first_seq"] + 1 or not state["messages"], state
    return int(state["last_seq"]) if state["messages"] else 0


def _stands_still(pid: int) -> bool:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    try:
        return all((task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)
    except (FileNotFoundError, ProcessLookupError):
        return False  # a thread has ended meanwhile


def report(runs: list[CutRun]) -> str:
    """Markdown."""
    server = nats_server()
    assert server is not None
    version = subprocess.run([server, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    lines = [
        f"{time.strftime('%Y-%m-%d')}, nats-server {version}, {os.cpu_count()} CPUs, "
        f"load average {os.getloadavg()[1]:.1f}.",
        "",
        "| JetStream, three nodes, R3 in files | times | acknowledged before | lost of it | the stream was gone |",
        "|---|---|---|---|---|",
    ]
    for run in runs:
        acknowledged = " + ".join(str(cut.acknowledged) for cut in run.cuts)
        lost = " + ".join(str(cut.lost) for cut in run.cuts)
        gone = sum(cut.stream_gone for cut in run.cuts)
        lines.append(f"| {SYNCS[run.sync]} | {len(run.cuts)} | {acknowledged} | {lost} | {gone} times |")
    return "\n".join(lines)


def main() -> None:
    """Run, print, write; ends the process."""
    from bench.newer_peers import newer_peers
    from tests.reliability.run_chaos import replace_figures

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=3, help="with each setting")
    parser.add_argument("--seconds", type=float, default=8.0, help="of publishing before each")
    parser.add_argument("--rate", type=float, default=500.0, help="messages per second, at most")
    parser.add_argument("--write", type=Path, help="Markdown file whose figures are replaced")
    arguments = parser.parse_args()
    if nats_server() is None:
        newer_peers()
    reason = why_impossible()
    if reason:
        sys.exit(reason)
    folder = Path(tempfile.mkdtemp(prefix="mayfly-jetstream-cuts-"))
    runs = [carry_out(folder / sync, sync, arguments.cuts, arguments.seconds, arguments.rate) for sync in SYNCS]
    text = report(runs)
    print("\n" + text, flush=True)
    if arguments.write is not None:
        replace_figures(arguments.write, TARGET, text)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
