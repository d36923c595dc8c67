"""The load generators in C of ../shared/bench, one for AMQP and one for JetStream, with the same options and answers:
built, run under the machine's benchmark lock, their answer read.
"""

import json
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.clusters import ROOT, SHARED, BrokerFailed, Cluster
from bench.machine import machine_to_itself

_MAX_S: Final = 180
_QUEUE_TYPE: Final = "--queue-type"
_STRICT: Final = "--strict"
_COMMON: Final = ("--window", "1000", "--prefetch", "1000")
_FORMAT: Final = (r'\"p50\":%.3f,', r'\"p50\":%.3f,\"p90\":%.3f,\"p9999\":%.3f,')
_FIGURES: Final = ("h_q(h, .5) / 1e3,", "h_q(h, .5) / 1e3, h_q(h, .9) / 1e3, h_q(h, .9999) / 1e3,")
"""Percentiles that the generators know and do not print, put into the copies."""
_CONSUME_ARGUMENTS: Final = (
    "p = w32(p, 0);\n    out_method(w, 1, a, (size_t)(p - a));",
    """if (reads_stream()) {
      p = w32(p, 26);
      p = wstr(p, "x-stream-offset");
      *p++ = 'S';
      p = w32(p, 5);
      memcpy(p, "first", 5);
      p += 5;
    } else {
      p = w32(p, 0);
    }
    out_method(w, 1, a, (size_t)(p - a));""",
)
_START_CONSUMING: Final = (
    "static void start_consuming(worker_t *w) {",
    """static bool reads_stream(void) {
  for (int i = 0; cfg.consume_only && i < cfg.narg; i++)
    if (!strcmp(cfg.arg[i].key, "x-queue-type") && !strcmp(cfg.arg[i].val, "stream")) return true;
  return false;
}

static void start_consuming(worker_t *w) {""",
)
"""Whoever only consumes from streams begins with their first message."""
_READY: Final = (
    "      ready = w->out_b - w->out_a >= OUT_FLUSH;\n",
    """      ready = w->out_b - w->out_a >= OUT_FLUSH;
      if (rate > 0 && w->next >= allowed) {
        wait = (int64_t)((double)w->next / rate * 1e9) - (int64_t)(now_ns() - t0);
        if (wait < 100000) wait = 100000;
      }
""",
)
"""At a rate, what is due is published within 0.1 ms; else whoever has published all that was due would sleep until a
confirm comes, and messages would be late by as much: an open loop would be half closed."""
_OWN: Final = {"amqp": (_QUEUE_TYPE, "quorum"), "nats": ()}
"""By the scheme of the broker's URIs, as PROGRAMS; a `--queue-type` in a load is used instead. A stream of JetStream
has three replicas where there are three."""
PROGRAMS: Final = {"amqp": "amqpload", "nats": "natsload"}


class LoadGenerator:
    """The programs, built in a folder that may be written."""

    def __init__(self) -> None:
        """Raises BrokerFailed if they can't be built."""
        if not SHARED.is_dir():
            raise BrokerFailed(f"no load generator: {SHARED} is missing (MAYFLY_SHARED says where it is)")
        self.folder: Path = ROOT / "build" / "bench-tools"
        self.folder.mkdir(parents=True, exist_ok=True)
        for source in SHARED.iterdir():
            if source.suffix == ".c":
                text = with_due_times(with_more_percentiles(source.read_text()))
                if source.stem == PROGRAMS["amqp"]:
                    text = with_stream_offsets(text)
                (self.folder / source.name).write_text(text)
            elif source.is_file():
                shutil.copy(source, self.folder / source.name)
        done = subprocess.run(["make", "-s", "-C", str(self.folder)], capture_output=True, text=True)
        if done.returncode:
            needs = "Debian: apt-get install gcc make librabbitmq-dev"
            raise BrokerFailed(f"the load generators can't be built ({needs}):\n{done.stderr}")

    def run(self, cluster: Cluster, load: list[str], strict: bool = True) -> dict[str, Any]:
        """One run. Raises BrokerFailed if it did not get through, or, where `strict`, messages were lost, came twice or
        out of order."""
        command = command_line(
            str(self.folder), ",".join(cluster.uris), ",".join(map(str, cluster.pids)), load, strict
        )
        with machine_to_itself():
            done = subprocess.run(command, capture_output=True, text=True, timeout=2 * _MAX_S)
        if done.returncode:
            raise BrokerFailed(f"{shlex.join(command)}\nended with {done.returncode}: {done.stdout}{done.stderr}")
        result: dict[str, Any] = json.loads(done.stdout)
        return result


def with_more_percentiles(source: str) -> str:
    """A generator's source that prints p90 and p9999. Raises BrokerFailed where the places are not as they were."""
    return _changed(source, (_FORMAT, _FIGURES))


def with_due_times(source: str) -> str:
    """A generator's source that publishes what is due when it is due. Raises BrokerFailed as above."""
    return _changed(source, (_READY,))


def with_stream_offsets(source: str) -> str:
    """amqpload's source that reads streams from their beginning. Raises BrokerFailed as above."""
    return _changed(source, (_CONSUME_ARGUMENTS, _START_CONSUMING))


def _changed(source: str, changes: Sequence[tuple[str, str]]) -> str:
    for old, new in changes:
        if source.count(old) != 1:
            raise BrokerFailed(f"the load generator's source has {old!r} {source.count(old)} times, once expected")
        source = source.replace(old, new)
    return source


def command_line(folder: str, uris: str, pids: str, load: list[str], strict: bool = True) -> list[str]:
    """The words of a run. A window, prefetch or queue type in `load` has precedence."""
    scheme = uris.partition(":")[0]
    program = str(Path(folder) / PROGRAMS[scheme])
    own = () if _QUEUE_TYPE in load else _OWN[scheme]
    checks = (_STRICT,) if strict else ()
    return [
        program, "--uris", uris, "--cpu-pids", pids, "--max-time", str(_MAX_S), *own, *_COMMON, *checks, *load
    ]  # fmt: skip


def figures(result: dict[str, Any]) -> dict[str, float]:
    """What the table is made of."""
    return {
        "confirmed_s": float(result["confirmed_s"]),
        "consumed_s": float(result["consumed_s"]),
        "cpu_us": float(result["broker_cpu_per_100k"]) * 10,
        "latency_p50_ms": float(result["latency_ms"]["p50"]),
        "latency_p99_ms": float(result["latency_ms"]["p99"]),
        "confirm_p50_ms": float(result["confirm_ms"]["p50"]),
        "confirm_p99_ms": float(result["confirm_ms"]["p99"]),
        "other_cores": float(result["other_cores"]),
    }
