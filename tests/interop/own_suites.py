"""The clients' own tests against brokers, run against three MayflyMQ nodes and three RabbitMQ nodes.

    python -P tests/interop/own_suites.py [--rabbitmq] [--only TEXT] [--checkouts FOLDER]

Each broker has the port that the suites know, 5672, in a network namespace of its own, so this needs root and iproute2.
Suites of py-amqp and kombu come from the source packages of the installed versions; pip loads them. Those of pika,
aiormq and Bunny are in no package: FOLDER/pika, FOLDER/aiormq and FOLDER/bunny are checkouts of their repositories,
and missing ones are left out. Prints a line for each suite and broker, then what failed. Runs the MayflyMQ that this
Python has installed, or with PYTHONPATH=. the source tree.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SHARED: Final = Path(os.environ.get("MAYFLY_SHARED", ROOT.parent / "shared"))
RABBITMQ_SERVER: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
PORT: Final = 5672
_SUITE_S: Final = 1_200
_RUBY_LINE: Final = re.compile(r"(\d+) examples?, (\d+) failures?(?:, (\d+) pending)?")


@dataclass
class Suite:
    """Tests of a client that want a broker."""

    name: str
    words: list[str]
    package: str = ""
    """Whose source package has them; empty: a checkout has."""
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class Outcome:
    """What a suite came to."""

    passed: int
    skipped: int
    failed: list[str]


SUITES: Final = [
    Suite("py-amqp", ["-k", "plain", "t/integration/test_rmq.py"], "amqp"),
    Suite("kombu", ["t/integration/test_py_amqp.py"], "kombu"),
    Suite(
        "pika",
        [
            f"tests/acceptance/{name}.py"
            for name in (
                "async_adapter_tests",
                "blocking_adapter_test",
                "enforce_one_basicget_test",
                "io_services_tests",
                "thread_safe_bounded_queue_test",
                "thread_safe_connection_test",
                "twisted_adapter_tests",
            )
        ],
    ),
    Suite(
        "aiormq",
        ["-k", "not amqps and not ssl", "tests/test_channel.py", "tests/test_connection.py"],
        environment={"AMQP_URL": f"amqp://guest:guest@127.0.0.1:{PORT}//"},
    ),
    Suite("bunny", ["spec/higher_level_api", "spec/lower_level_api", "spec/issues"]),
]


def main() -> None:
    """Run, print; ends the process with exit code 1 if something fails here that RabbitMQ passes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rabbitmq", action="store_true", help="run the suites against RabbitMQ as well")
    parser.add_argument("--only", default="", help="suites whose names have this")
    parser.add_argument("--checkouts", type=Path, help="folder of the checkouts")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("network namespaces need root")
    if arguments.rabbitmq and not RABBITMQ_SERVER.exists():
        sys.exit("RabbitMQ is not installed (Debian: apt-get install rabbitmq-server)")
    with tempfile.TemporaryDirectory(prefix="mayfly-suites-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        found = [
            (suite, place)
            for suite in SUITES
            if arguments.only in suite.name and (place := place_of(suite, folder, arguments.checkouts))
        ]
        theirs: dict[str, Outcome] = {}
        if arguments.rabbitmq:
            with rabbitmq(folder / "rabbitmq") as namespace:
                theirs = outcomes("RabbitMQ", namespace, found, folder)
        with mayfly(folder / "mayfly") as namespace:
            ours = outcomes("MayflyMQ", namespace, found, folder)
    worse = False
    for name, outcome in ours.items():
        for test in outcome.failed:
            fails_there = name in theirs and test in theirs[name].failed
            worse = worse or not fails_there
            print(f"{name}: {test}" + (" (on RabbitMQ as well)" if fails_there else ""))
    sys.exit(int(worse))


def place_of(suite: Suite, folder: Path, checkouts: Path | None) -> Path | None:
    """The folder with the suite's tests, unpacked if need be; None where there is none."""
    if not suite.package:
        place = checkouts / suite.name if checkouts else None
        if place is None or not place.is_dir():
            print(f"{suite.name}: left out, no checkout (--checkouts FOLDER, with FOLDER/{suite.name})")
            return None
        return place
    try:
        wanted = f"{suite.package}=={version(suite.package)}"
    except PackageNotFoundError:
        print(f"{suite.name}: left out, it is not installed (requirements/interop.txt)")
        return None
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*words, "--no-build-isolation", "--dest", str(folder), wanted], check=True)
    (archive,) = folder.glob(f"{suite.package}-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def outcomes(broker: str, namespace: str, suites: list[tuple[Suite, Path]], folder: Path) -> dict[str, Outcome]:
    """Each suite against the broker that listens in the namespace."""
    found = {}
    for suite, place in suites:
        outcome = run(suite, place, namespace, folder)
        found[suite.name] = outcome
        print(f"{broker:9} {suite.name:8} {outcome.passed} passed, {len(outcome.failed)} failed", flush=True)
    return found


def run(suite: Suite, place: Path, namespace: str, folder: Path) -> Outcome:
    """The suite against the broker that listens in the namespace."""
    inside = ["ip", "netns", "exec", namespace]
    report = folder / f"{suite.name}-{namespace}.xml"
    report.unlink(missing_ok=True)
    ruby = suite.name == "bunny"
    if ruby:
        words = ["rspec", "--format", "progress", "-I", "spec", *suite.words]
    else:
        words = [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider"]
        words += [f"--junitxml={report}", *suite.words]
    environment = {**os.environ, **suite.environment}
    done = subprocess.run(
        [*inside, *words], cwd=place, env=environment, capture_output=True, text=True, timeout=_SUITE_S, check=False
    )
    if ruby:
        counts = _RUBY_LINE.search(done.stdout)
        if counts is None:
            raise SystemExit(f"{suite.name} did not run:\n{done.stdout[-2_000:]}{done.stderr[-2_000:]}")
        failed = re.findall(r"^rspec (\S+)", done.stdout, re.MULTILINE)
        return Outcome(int(counts[1]) - int(counts[2]), int(counts[3] or 0), failed)
    if not report.exists():
        raise SystemExit(f"{suite.name} did not run:\n{done.stdout[-2_000:]}{done.stderr[-2_000:]}")
    cases = list(ElementTree.parse(report).iter("testcase"))
    bad = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = [case for case in cases if case.find("skipped") is not None]
    names = sorted({f"{case.get('classname')}::{case.get('name')}" for case in bad})
    return Outcome(len(cases) - len(bad) - len(skipped), len(skipped), names)


@contextmanager
def _namespace(name: str) -> Iterator[str]:
    """A network namespace with a loopback of its own."""
    full = f"{name}-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", full], check=True)
    try:
        subprocess.run(["ip", "-n", full, "link", "set", "lo", "up"], check=True)
        yield full
    finally:
        subprocess.run(["ip", "netns", "delete", full], check=False)


@contextmanager
def mayfly(folder: Path) -> Iterator[str]:
    """Three nodes; the namespace in which they listen."""
    with _namespace("mayfly") as namespace:
        words = [sys.executable, "-P", "-m", "node", "up", "--base-port", str(PORT), "--data-dir", str(folder)]
        nodes = subprocess.Popen(["ip", "netns", "exec", namespace, *words], stdout=subprocess.PIPE, text=True)
        try:
            assert nodes.stdout is not None
            # A line for each node that serves.
            for _ in range(3):
                if not nodes.stdout.readline():
                    sys.exit(f"MayflyMQ does not start, see {folder}")
            yield namespace
        finally:
            nodes.terminate()
            nodes.wait()


@contextmanager
def rabbitmq(folder: Path) -> Iterator[str]:
    """Three nodes of the packaged server; the namespace in which they listen."""
    with _namespace("rabbitmq") as namespace:
        script = ["ip", "netns", "exec", namespace, str(SHARED / "bench" / "rabbitmq-cluster")]
        environment = {**os.environ, "RMQ_BASE": str(folder), "RMQ_PORT": str(PORT)}
        try:
            started = subprocess.run([*script, "start"], env=environment, capture_output=True, text=True, timeout=300)
            if started.returncode:
                sys.exit(f"RabbitMQ does not start: {started.stdout}{started.stderr}")
            yield namespace
        finally:
            subprocess.run([*script, "stop"], env=environment, capture_output=True, timeout=120)


if __name__ == "__main__":
    main()
