"""The clients' own tests against brokers, run against three MayflyMQ nodes and three RabbitMQ nodes.

    python -P tests/interop/own_suites.py [--rabbitmq] [--only NAME ... [--words "FILE -k NAME"]] [--checkouts FOLDER]
                                          [--keep FOLDER]

Each broker has the port that the suites know, 5672, in a network namespace of its own, so this needs root and iproute2.
Suites of py-amqp, kombu and amqplib come from packages, which pip and npm load. The others are in no package:
FOLDER/pika, FOLDER/bunny and so on are checkouts of their repositories, and missing ones are left out. What a suite
needs beside its client, pip and npm install into the temporary folder. Prints a line for each suite and broker, then
what failed. Runs the MayflyMQ that this Python has installed, or with PYTHONPATH=. the source tree.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SHARED: Final = Path(os.environ.get("MAYFLY_SHARED", ROOT.parent / "shared"))
RABBITMQ_SERVER: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
PORT: Final = 5672
CONTAINERS_PORT: Final = 2375
_SUITE_S: Final = 1_200
_ENDING_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_STOP_S: Final = 15.0
"""So long processes may take to end when they are asked to."""
_NODE_LINE: Final = re.compile(r"^# (pass|fail|skipped) (\d+)$", re.MULTILINE)
_NODE_FAILURE: Final = re.compile(r"^ *not ok \d+ - (.*)\n *---\n((?: .*\n)*?) *\.\.\.$", re.MULTILINE)
_RUBY_EXTRAS: Final = re.compile(r"RabbitMQ::HTTP|Toxiproxy|TLS connection")
"""What is not here: gems for the management API and for a proxy, and a TLS listener."""
_RUBY_ACCESS: Final[tuple[tuple[str, dict[str, str]], ...]] = (
    ("vhosts/bunny_testbed", {}),
    ("users/bunny_gem", {"password": "bunny_password", "tags": ""}),
    ("users/bunny_reader", {"password": "reader_password", "tags": ""}),
    ("permissions/bunny_testbed/guest", {"configure": ".*", "write": ".*", "read": ".*"}),
    ("permissions/bunny_testbed/bunny_gem", {"configure": ".*", "write": ".*", "read": ".*"}),
    ("permissions/bunny_testbed/bunny_reader", {"configure": "^---$", "write": "^---$", "read": ".*"}),
)
"""What Bunny's own script prepares, for the management API."""
_ZUNIT_LINE: Final = re.compile(r"^(not )?ok \d+ - (.*?)( # skip .*)?$", re.MULTILINE)
_ZUNIT_PLAN: Final = re.compile(r"^1\.\.(\d+)$", re.MULTILINE)
_ZUNIT: Final = """\
const zunit = require("zunit");
Object.assign(global, zunit.syntax);
const pattern = new RegExp(process.argv[1]);
const all = new zunit.Suite("rascal").discover({ pattern });
all.then((suite) => new zunit.Harness(suite).run(new zunit.TapReporter())).then(() => process.exit());
"""
"""What zUnit's own program does, with lines that can be read."""
_RANDOM_READABLE: Final = """\
const { randomBytes } = require("crypto");
const { Readable } = require("stream");
exports.createRandomStream = () => new Readable({ read(bytes) { this.push(randomBytes(bytes)); } });
"""
"""What rascal's tests want of a package that npm no longer has."""
_RUBY_LINE: Final = re.compile(r"(\d+) examples?, (\d+) failures?(?:, (\d+) pending)?")


@dataclass
class Suite:
    """Tests of a client that want a broker."""

    name: str
    words: list[str]
    """What pytest, rspec or `node --test` is told; for zUnit, patterns of the files' names."""
    package: str = ""
    """Whose source package has them; empty: a checkout has."""
    needs: list[str] = field(default_factory=list)
    """Packages that it imports, in a folder of its own: MayflyMQ keeps the versions that it has."""
    beside: str = ""
    """Another checkout that it imports."""
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class Outcome:
    """What a suite came to."""

    passed: int
    skipped: int
    failed: list[str]


_LOGIN: Final = f"amqp://guest:guest@127.0.0.1:{PORT}"
_NODE: Final = ("amqplib",)
_NODE_CHECKOUT: Final = ("rascal",)
_RUBY: Final = ("bunny",)
SUITES: Final = [
    Suite("py-amqp", ["-k", "plain", "t/integration/test_rmq.py"], "amqp"),
    Suite("kombu", ["t/integration/test_py_amqp.py"], "kombu", ["pytest-rerunfailures"]),
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
        needs=["gevent", "tornado", "twisted", "pytest-timeout"],
    ),
    Suite(
        "aiormq",
        ["-k", "not amqps and not ssl", "tests/test_channel.py", "tests/test_connection.py"],
        needs=["aiomisc-pytest", "pamqp==3.3.0", "yarl"],
        environment={"AMQP_URL": f"{_LOGIN}//"},
    ),
    Suite(
        "aio-pika",
        ["-k", "not amqps", "tests"],
        needs=["aiomisc-pytest", "pamqp==3.3.0", "shortuuid", "yarl"],
        beside="aiormq",
        environment={"DOCKER_HOST": f"tcp://127.0.0.1:{CONTAINERS_PORT}"},
    ),
    Suite(
        "amqpstorm",
        [
            f"amqpstorm/tests/functional/test_{name}.py"
            for name in ("basic", "exchange", "generic", "legacy", "queue", "reliability", "tx")
        ],
        needs=["requests"],
        environment={
            "AMQP_HOST": "127.0.0.1",
            "AMQP_USERNAME": "guest",
            "AMQP_PASSWORD": "guest",
            "AMQP_URI": f"{_LOGIN}/%2F",
            "AMQP_HTTP_URL": f"http://127.0.0.1:{PORT + 10_000}",
        },
    ),
    Suite("dramatiq", ["-o", "addopts=", "tests/test_rabbitmq.py"], needs=["pylibmc", "pytest-benchmark", "redis"]),
    Suite("bunny", [f"spec/{folder}/**/*_spec.rb" for folder in ("higher_level_api", "lower_level_api", "issues")]),
    Suite("amqplib", ["--test-timeout=20000"], "amqplib@2.2.0", ["claire@0.4.1"]),
    Suite(
        "rascal",
        [
            f"^{name}[.]tests[.]js$"
            for name in (
                "broker",
                "brokerAsPromised",
                "publications",
                "publicationsAsPromised",
                "shovel",
                "subscriptions",
                "subscriptionsAsPromised",
                "vhost",
            )
        ],
        needs=["amqplib@0.10.9", "chance@1", "zunit@4.0.2"],
    ),
    Suite(
        "celery",
        [
            *("-p", "celery.contrib.pytest"),
            *(
                f"t/integration/test_{name}.py"
                for name in (
                    "canvas",
                    "connection_recovery",
                    "inspect",
                    "loader",
                    "mem_leak_in_exception_handling",
                    "security",
                    "serialization",
                    "tasks",
                )
            ),
        ],
        needs=["psutil", "pytest-click", "pytest-order", "pytest-subtests", "pytest-timeout", "redis"],
        environment={"TEST_BROKER": f"{_LOGIN}//", "TEST_BACKEND": "rpc", "WORKER_LOGLEVEL": "INFO"},
    ),
    Suite(
        "faststream",
        [
            *("-o", "addopts=", "-m", "rabbit and connected", "--ignore=tests/brokers/rabbit/test_misconfigure.py"),
            *(f"tests/{folder}/rabbit" for folder in ("brokers", "docs", "examples", "opentelemetry", "prometheus")),
        ],
        needs=[
            "dirty-equals",
            "fastapi",
            "freezegun",
            "httpx",
            "opentelemetry-sdk",
            "prometheus-client",
            "pydantic-settings",
            "pytest-asyncio",
            "pytest-timeout",
        ],
    ),
]


def main() -> None:
    """Run, print; ends the process with exit code 1 if something fails here that RabbitMQ passes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rabbitmq", action="store_true", help="run the suites against RabbitMQ as well")
    parser.add_argument("--only", nargs="+", choices=[suite.name for suite in SUITES], help="these suites")
    parser.add_argument("--words", type=shlex.split, help="what a suite is told instead, to run some of it")
    parser.add_argument("--keep", type=Path, help="folder for what the suites print")
    parser.add_argument("--checkouts", type=Path, help="folder of the checkouts")
    arguments = parser.parse_args()
    for number in _ENDING_SIGNALS:
        signal.signal(number, _end)
    if os.geteuid() != 0:
        sys.exit("network namespaces need root")
    if arguments.rabbitmq and not RABBITMQ_SERVER.exists():
        sys.exit("RabbitMQ is not installed (Debian: apt-get install rabbitmq-server)")
    only = arguments.only or [suite.name for suite in SUITES]
    suites = [replace(suite, words=arguments.words or suite.words) for suite in SUITES if suite.name in only]
    with tempfile.TemporaryDirectory(prefix="mayfly-suites-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        found = [(suite, place) for suite in suites if (place := place_of(suite, folder, arguments.checkouts))]
        theirs: dict[str, Outcome] = {}
        if arguments.rabbitmq:
            with rabbitmq(folder / "rabbitmq") as namespace:
                theirs = outcomes("RabbitMQ", namespace, found, folder, arguments)
        with mayfly(folder / "mayfly") as namespace:
            ours = outcomes("MayflyMQ", namespace, found, folder, arguments)
    worse = False
    for name, outcome in ours.items():
        for test in outcome.failed:
            fails_there = name in theirs and test in theirs[name].failed
            worse = worse or not fails_there
            print(f"{name}: {test}" + (" (on RabbitMQ as well)" if fails_there else ""))
    sys.exit(int(worse))


def _end(number: int, _frame: FrameType | None) -> None:
    """Ends the program, and nodes and namespaces go with it; no other signal is to interrupt that."""
    for each in _ENDING_SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(f"ended by {signal.Signals(number).name}")


def place_of(suite: Suite, folder: Path, checkouts: Path | None) -> Path | None:
    """The folder with the suite's tests, unpacked if need be; None where there is none."""
    if not suite.package:
        place = checkouts / suite.name if checkouts else None
        if place is None or not place.is_dir():
            print(f"{suite.name}: left out, no checkout (--checkouts FOLDER, with FOLDER/{suite.name})")
            return None
        return _node_checkout(suite, place, folder) if suite.name in _NODE_CHECKOUT else place
    if suite.name in _NODE:
        return _node_package(suite, folder)
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


def _node_package(suite: Suite, folder: Path) -> Path | None:
    """The unpacked package, in a folder that has what it needs; None without npm."""
    if shutil.which("npm") is None:
        print(f"{suite.name}: left out, npm is not installed")
        return None
    around = folder / suite.name
    around.mkdir()
    subprocess.run(["npm", "pack", "--silent", suite.package], cwd=around, check=True, stdout=subprocess.DEVNULL)
    (archive,) = around.glob("*.tgz")
    with tarfile.open(archive) as packed:
        packed.extractall(around, filter="data")
    _npm_install(around, suite.needs)
    return around / "package"


def _node_checkout(suite: Suite, checkout: Path, folder: Path) -> Path | None:
    """A copy of the checkout, in a folder that has what it needs; None without npm."""
    if shutil.which("npm") is None:
        print(f"{suite.name}: left out, npm is not installed")
        return None
    around = folder / suite.name
    shutil.copytree(checkout, around / "package")
    needed = json.loads((checkout / "package.json").read_text(encoding="utf-8"))["dependencies"]
    _npm_install(around, [*(f"{name}@{versions}" for name, versions in needed.items()), *suite.needs])
    (around / "node_modules" / "random-readable.js").write_text(_RANDOM_READABLE, encoding="utf-8")
    return around / "package"


def _npm_install(around: Path, packages: list[str]) -> None:
    words = ["npm", "install", "--prefix", str(around), "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    subprocess.run([*words, *packages], check=True, stdout=subprocess.DEVNULL)


def _needed(suite: Suite, folder: Path, checkouts: Path | None) -> str:
    """The search path with what a suite in Python imports beside itself."""
    places = [os.environ.get("PYTHONPATH", "")]
    if suite.needs:
        target = folder / f"needs-{suite.name}"
        if not target.exists():
            words = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target)]
            subprocess.run([*words, *suite.needs], check=True, stderr=subprocess.DEVNULL)
        places.append(str(target))
    if suite.beside and checkouts:
        places.append(str(checkouts / suite.beside))
    return os.pathsep.join(place for place in reversed(places) if place)


def outcomes(
    broker: str, namespace: str, suites: list[tuple[Suite, Path]], folder: Path, options: argparse.Namespace
) -> dict[str, Outcome]:
    """Each suite against the broker that listens in the namespace."""
    found = {}
    for suite, place in suites:
        outcome = run(suite, place, namespace, folder, options)
        found[suite.name] = outcome
        print(
            f"{broker:9} {suite.name:9} {outcome.passed} passed, {len(outcome.failed)} failed,"
            f" {outcome.skipped} skipped",
            flush=True,
        )
    return found


def run(suite: Suite, place: Path, namespace: str, folder: Path, options: argparse.Namespace) -> Outcome:
    """The suite against the broker that listens in the namespace."""
    report = folder / f"{suite.name}-{namespace}.xml"
    report.unlink(missing_ok=True)
    environment = {**os.environ, **suite.environment}
    if suite.name in _RUBY:
        for page, content in _RUBY_ACCESS:
            _put(namespace, page, content)
        # What Bundler would load beside the client is for other tests than these.
        stubs = folder / "stubs"
        stubs.mkdir(exist_ok=True)
        (stubs / "bundler.rb").write_text("module Bundler\n  def self.require(*) = nil\nend\n")
        files = [
            str(file.relative_to(place))
            for pattern in suite.words
            for file in sorted(place.glob(pattern))
            if not _RUBY_EXTRAS.search(file.read_text(encoding="utf-8"))
        ]
        words = ["rspec", "--format", "progress", "-I", "spec", "-I", str(stubs), *files]
    elif suite.name in _NODE:
        files = [str(file.relative_to(place)) for file in sorted(place.glob("test/*.test.js"))]
        words = ["node", "--test", "--test-concurrency=1", "--test-reporter=tap", *suite.words, *files]
    elif suite.name in _NODE_CHECKOUT:
        # Each file in a process of its own: the first test that throws where nobody catches it ends the process.
        words = ["sh", "-c", 'for file in "$@"; do node -e "$PROGRAM" "$file"; done', "sh", *suite.words]
        environment["PROGRAM"] = _ZUNIT
    else:
        environment["PYTHONPATH"] = _needed(suite, folder, options.checkouts)
        words = [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider"]
        words += [f"--junitxml={report}", *suite.words]
    kept = (options.keep or folder) / f"{suite.name}-{namespace.partition('-')[0]}.txt"
    with _containers(namespace) if "DOCKER_HOST" in suite.environment else nullcontext():
        in_time = _printed_to(kept, [*_inside(namespace), *words], place, environment)
    printed = kept.read_text(encoding="utf-8", errors="replace")
    if not in_time:
        print(f"{suite.name} did not end in {_SUITE_S} s:\n{printed[-2_000:]}")
        return Outcome(0, 0, [f"it did not end in {_SUITE_S} s"])
    if suite.name in _RUBY:
        outcome = _of_rspec(printed)
    elif suite.name in _NODE:
        outcome = _of_node(printed)
    elif suite.name in _NODE_CHECKOUT:
        outcome = _of_zunit(printed)
    else:
        outcome = _of_pytest(report)
    if outcome is None:
        print(f"{suite.name} did not run:\n{printed[-4_000:]}")
        return Outcome(0, 0, ["it did not run"])
    return outcome


def _printed_to(kept: Path, words: list[str], place: Path, environment: dict[str, str]) -> bool:
    """Run a suite, and see in the file how far it is; False if it did not end in time. What it started ends with it."""
    with kept.open("wb") as file:
        suite = subprocess.Popen(
            words, cwd=place, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            suite.wait(_SUITE_S)
        except subprocess.TimeoutExpired:
            return False
        finally:
            with suppress(ProcessLookupError):
                os.killpg(suite.pid, signal.SIGKILL)
            suite.wait()
    return True


def _put(namespace: str, page: str, content: dict[str, str]) -> None:
    words = ["curl", "--silent", "--fail", "--user", "guest:guest", "-X", "PUT", "-H", "Content-Type: application/json"]
    url = f"http://127.0.0.1:{PORT + 10_000}/api/{page}"
    subprocess.run([*_inside(namespace), *words, "-d", json.dumps(content), url], check=True)


def _of_rspec(printed: str) -> Outcome | None:
    counts = _RUBY_LINE.search(printed)
    if counts is None:
        return None
    failed = re.findall(r"^rspec (\S+)", printed, re.MULTILINE)
    pending = int(counts[3] or 0)
    return Outcome(int(counts[1]) - int(counts[2]) - pending, pending, failed)


def _of_node(printed: str) -> Outcome | None:
    counts = {word: int(number) for word, number in _NODE_LINE.findall(printed)}
    if "pass" not in counts:
        return None
    # A group fails with its tests, and says that it is one.
    failed = [name for name, details in _NODE_FAILURE.findall(printed) if "type: 'suite'" not in details]
    return Outcome(counts["pass"], counts["skipped"], failed)


def _of_zunit(printed: str) -> Outcome | None:
    planned = sum(int(number) for number in _ZUNIT_PLAN.findall(printed))
    lines = _ZUNIT_LINE.findall(printed)
    if not planned:
        return None
    failed = [name for bad, name, _ in lines if bad]
    skipped = sum(1 for _, _, why in lines if why)
    passed = len(lines) - len(failed) - skipped
    failed += [f"{planned - len(lines)} that were not reached"] * (len(lines) < planned)
    return Outcome(passed, skipped, failed)


def _of_pytest(report: Path) -> Outcome | None:
    if not report.exists():
        return None
    cases = list(ElementTree.parse(report).iter("testcase"))
    bad = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = [case for case in cases if case.find("skipped") is not None]
    names = sorted({f"{case.get('classname')}::{case.get('name')}" for case in bad})
    return Outcome(len(cases) - len(bad) - len(skipped), len(skipped), names)


def _inside(namespace: str) -> list[str]:
    return ["ip", "netns", "exec", namespace]


@contextmanager
def _containers(namespace: str) -> Iterator[None]:
    """For a suite that starts its broker as a container: it gets the one that runs already."""
    service = subprocess.Popen(
        [*_inside(namespace), sys.executable, str(Path(__file__).with_name("container_service.py"))],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert service.stdout is not None
        service.stdout.readline()  # It serves.
        yield
    finally:
        service.terminate()
        service.wait()


@contextmanager
def _namespace(name: str) -> Iterator[str]:
    """A network namespace with a loopback of its own, and addresses that nobody answers at, for tests of timeouts."""
    full = f"{name}-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", full], check=True)
    try:
        for words in (
            "link set lo up",
            "link add hole type veth peer name bottom",
            "link set hole up",
            "link set bottom up",
            "address add 10.255.255.254/24 dev hole",
        ):
            subprocess.run(["ip", "-n", full, *words.split()], check=True)
        yield full
    finally:
        _end_processes(full)
        subprocess.run(["ip", "netns", "delete", full], check=False)


def _end_processes(namespace: str) -> None:
    """Whatever runs in a namespace of this program: nodes, those included that were about to start, and so on."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        told: set[int] = set()
        until = time.monotonic() + _STOP_S
        while (pids := _processes(namespace)) and time.monotonic() < until:
            for pid in pids - told:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            told |= pids
            time.sleep(0.1)


def _processes(namespace: str) -> set[int]:
    listed = subprocess.run(["ip", "netns", "pids", namespace], stdout=subprocess.PIPE, text=True, check=False)
    return {int(pid) for pid in listed.stdout.split()}


@contextmanager
def mayfly(folder: Path) -> Iterator[str]:
    """Three nodes; the namespace in which they listen."""
    with _namespace("mayfly") as namespace:
        words = [sys.executable, "-P", "-m", "mayfly", "up", "--base-port", str(PORT), "--data-dir", str(folder)]
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
            with suppress(subprocess.TimeoutExpired):
                nodes.wait(_STOP_S)


@contextmanager
def rabbitmq(folder: Path) -> Iterator[str]:
    """Three nodes of the packaged server; the namespace in which they listen, and with which they end."""
    with _namespace("rabbitmq") as namespace:
        script = [*_inside(namespace), str(SHARED / "bench" / "rabbitmq-cluster"), "--management", "start"]
        environment = {**os.environ, "RMQ_BASE": str(folder), "RMQ_PORT": str(PORT)}
        started = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=300)
        if started.returncode:
            sys.exit(f"RabbitMQ does not start: {started.stdout}{started.stderr}")
        yield namespace


if __name__ == "__main__":
    main()
