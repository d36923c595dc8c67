"""Nodes as child processes on this machine: planned, started, watched, stopped.

Plain and synchronous: a supervisor that does next to nothing cannot hang. It ends only processes it started,
by their ids.
"""

import base64
import http.client
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import mayfly
from mayfly.cluster.store.folder import make_folder
from mayfly.node.local_nodes.node_url import NodeUrl, no_page
from mayfly.node.settings import NodeSettings, show
from mayfly.node.settings.kinds import LARGEST_PORT, Address
from mayfly.node.settings.sources import no_option_of, option_of
from mayfly.node.shell.private_files import open_private

HOST: Final = "127.0.0.1"
HTTP_OFFSET: Final = 10_000
PEER_OFFSET: Final = 20_000
FRAMES_OFFSETS: Final = (15_000, 25_000, 5_000, -5_000, -10_000, -15_000)
"""Where frames of peers may go beside AMQP, the most wanted first: the system gives ports to connections that begin
(its ephemeral range), and one of those might hold a port there when the node starts."""
_EPHEMERAL_FILE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_EPHEMERAL: Final = range(32_768, 61_000)
"""Linux's default."""
_HTTP_TIMEOUT_S: Final = 2.0
_POLL_S: Final = 0.05
_LOG_TAIL_LINES: Final = 12
_SOURCE_ROOT: Final = Path(mayfly.__file__).resolve().parent.parent


class ClusterError(Exception):
    """A local cluster that cannot be started; the text says why."""


@dataclass(frozen=True)
class NodePlan:
    """How one node is started."""

    name: str
    amqp: Address
    http: Address
    peer: Address
    frames: Address
    """Where the node takes frames of others."""
    seeds: tuple[Address, ...]
    data_dir: Path
    log_file: Path
    config: Path | None = None
    secret: Path | None = None
    """The file with the cluster secret."""

    @property
    def addresses(self) -> tuple[Address, ...]:
        """All that the node listens on."""
        return (self.amqp, self.http, self.peer, self.frames)

    def own_settings(self) -> dict[str, object]:
        """What this node has for itself, whatever file and environment say."""
        settings: dict[str, object] = {
            "name": self.name,
            "data_dir": self.data_dir,
            "amqp_address": self.amqp,
            "http_address": self.http,
            "peer_address": self.peer,
            "frames_address": self.frames,
        }
        if len(self.seeds) > 1:
            settings["seeds"] = ",".join(map(str, self.seeds))
        if self.secret is not None:
            settings["cluster_secret_file"] = self.secret
        return settings

    def arguments(self) -> list[str]:
        """Arguments of `mayfly` that start this node alone."""
        return self._words(self.own_settings())

    def _words(self, settings: Mapping[str, object]) -> list[str]:
        """The words of a command with these settings, as they are written."""
        config = [] if self.config is None else ["--config", str(self.config)]
        return ["node", *config, *(word for key, value in settings.items() for word in words_of(key, value))]

    def command(self) -> str:
        """A line for the shell that starts this node alone, again, on the same data."""
        return shlex.join([*this_mayfly(), *self.arguments()])


def words_of(key: str, value: object) -> list[str]:
    """The words of the command line that give a setting a value."""
    if isinstance(value, bool):
        return [option_of(key) if value else no_option_of(key)]
    return [option_of(key), show(key, value)]


def ephemeral_ports() -> range:
    """The ports that the system gives to connections that begin here."""
    try:
        first, last = map(int, _EPHEMERAL_FILE.read_text().split())
    except (OSError, ValueError):
        return _EPHEMERAL
    return range(first, last + 1)


def frames_offset(count: int, base_port: int, ephemeral: range) -> int:
    """How far above AMQP the frames of so many nodes go: outside of the ephemeral range, if there is room."""
    for offset in FRAMES_OFFSETS:
        first, last = base_port + offset, base_port + offset + count - 1
        if first >= 1024 and last <= LARGEST_PORT and (last < ephemeral.start or first >= ephemeral.stop):
            return offset
    return FRAMES_OFFSETS[0]


def plan_cluster(
    count: int, base_port: int, data_dir: Path, config: Path | None = None, secret: Path | None = None
) -> list[NodePlan]:
    """Node i, from 0, serves AMQP on base_port + i, HTTP 10 000 and peers 20 000 above, and frames of peers 15 000
    above, or where they are out of the system's ephemeral ports. `secret` is the file with their cluster secret.

    Raises ClusterError if there are no such ports.
    """
    highest = base_port + PEER_OFFSET + count - 1
    if base_port < 1 or highest > LARGEST_PORT:
        last = LARGEST_PORT - PEER_OFFSET - count + 1
        raise ClusterError(
            f"with base port {base_port}, {count} node(s) would need ports up to {highest} "
            f"(peers are {PEER_OFFSET} above AMQP); choose a base port from 1 to {last}"
        )
    frames = base_port + frames_offset(count, base_port, ephemeral_ports())
    seeds = tuple(Address(HOST, base_port + PEER_OFFSET + i) for i in range(count))
    folder = data_dir.absolute()
    return [
        NodePlan(
            name=f"node{i + 1}",
            amqp=Address(HOST, base_port + i),
            http=Address(HOST, base_port + HTTP_OFFSET + i),
            peer=seeds[i],
            frames=Address(HOST, frames + i),
            seeds=seeds,
            data_dir=folder / f"node{i + 1}",
            log_file=folder / f"node{i + 1}.log",
            config=config.absolute() if config else None,
            secret=secret,
        )
        for i in range(count)
    ]


def taken_addresses(plans: Sequence[NodePlan]) -> list[Address]:
    """The planned addresses that something else listens on."""
    return [address for plan in plans for address in plan.addresses if _is_taken(address)]


class ChildEnd(NamedTuple):
    """A child process that ended."""

    plan: NodePlan
    pid: int
    code: int
    """As in subprocess: negative for a signal."""

    def describe(self) -> str:
        """What happened, in words."""
        if self.code < 0:
            return f"{self.plan.name} (pid {self.pid}) was killed by {signal.Signals(-self.code).name}"
        return f"{self.plan.name} (pid {self.pid}) ended with exit code {self.code}"


class LocalCluster:
    """Child processes of this one, one for each plan."""

    def __init__(
        self, plans: Sequence[NodePlan], executable: Sequence[str] | None = None, log_files: bool = True
    ) -> None:
        """`executable` stands for `mayfly` in the commands of the children. Without `log_files` they write their logs
        to where this process does."""
        self._log_files = log_files
        self.plans = list(plans)
        self._executable = list(executable) if executable else [sys.executable, "-P", "-m", "mayfly"]
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start every node. Raises ClusterError if an address is taken."""
        taken = taken_addresses(self.plans)
        if taken:
            raise ClusterError(f"{', '.join(map(str, taken))} in use by another process; choose another --base-port")
        for plan in self.plans:
            self.start_node(plan)

    def start_node(self, plan: NodePlan) -> int:
        """Start one node; its process id. What it logs goes to the end of its log file."""
        make_folder(plan.data_dir)
        with nullcontext() if not self._log_files else open(open_private(plan.log_file), "ab") as log:
            child = subprocess.Popen(
                [*self._executable, *plan.arguments(), "--stop-with-parent", str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_child_environment(),
                # Ctrl-C in a terminal goes to the supervisor alone, which ends its children in order.
                process_group=0,
            )
        self._children[plan.name] = child
        return child.pid

    def pid(self, plan: NodePlan) -> int | None:
        """The process id of a node that runs."""
        child = self._children.get(plan.name)
        return child.pid if child is not None else None

    def running(self) -> list[NodePlan]:
        """The nodes whose processes have not been seen to end."""
        return [plan for plan in self.plans if plan.name in self._children]

    def ended(self) -> list[ChildEnd]:
        """The children that ended since the last call."""
        ends = []
        for plan in self.running():
            code = self._children[plan.name].poll()
            if code is not None:
                ends.append(ChildEnd(plan, self._children.pop(plan.name).pid, code))
        return ends

    def wait_until_serving(
        self,
        on_serving: Callable[[NodePlan], None] = lambda plan: None,
        on_end: Callable[[ChildEnd], None] = lambda end: None,
        stop: Callable[[], bool] = lambda: False,
        timeout_s: float | None = None,
    ) -> None:
        """Return when every node that still runs serves clients, or `stop` says so.

        Raises ClusterError when none is left, or at the timeout, with what the nodes say.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        waiting = self.running()
        while waiting and not stop():
            for end in self.ended():
                on_end(end)
                if end.plan in waiting:
                    waiting.remove(end.plan)
            if not self._children:
                raise ClusterError("no node is left; " + log_tail(self.plans[0]))
            reasons = {}
            for plan in list(waiting):
                reason = why_not_ready(plan.http)
                if reason is None:
                    waiting.remove(plan)
                    on_serving(plan)
                else:
                    reasons[plan.name] = reason
            if waiting and deadline is not None and time.monotonic() > deadline:
                raise ClusterError(f"not serving after {timeout_s} s: {reasons}; " + log_tail(waiting[0]))
            if waiting:
                time.sleep(_POLL_S)

    def kill(self, plan: NodePlan) -> ChildEnd:
        """SIGKILL one node, and return when it is gone."""
        child = self._children.pop(plan.name)
        child.kill()
        return ChildEnd(plan, child.pid, child.wait())

    def stop(self, patience_s: float = 10.0, hurry: Callable[[], bool] = lambda: False) -> list[ChildEnd]:
        """SIGTERM to every child at once, SIGKILL to those that are still there when the patience is over or `hurry`
        says so; how they ended."""
        for child in self._children.values():
            child.terminate()
        deadline = time.monotonic() + patience_s
        ends = self.ended()
        while self._children and time.monotonic() < deadline and not hurry():
            time.sleep(_POLL_S)
            ends += self.ended()
        return ends + [self.kill(plan) for plan in self.running()]


def why_not_ready(http_address: Address) -> str | None:
    """None if the node there serves clients, else the reason."""
    try:
        status, answer = fetch(http_address, "/health/ready")
    except OSError as error:
        return str(error)
    if status == http.client.OK:
        return None
    return str(answer.get("reason", f"HTTP status {status}"))


def fetch(
    http_address: NodeUrl | Address, path: str, timeout_s: float = _HTTP_TIMEOUT_S
) -> tuple[int, dict[str, Any]]:
    """GET a page of a node: status code and JSON. Raises OSError if that cannot be had in time.

    To a node that wants a login the one in the environment is shown, if there is one.
    """
    where = http_address if isinstance(http_address, NodeUrl) else NodeUrl(http_address)
    status, content = _fetched(where, path, timeout_s, {})
    login = own_login()
    if status == http.client.UNAUTHORIZED and login is not None:
        return _fetched(where, path, timeout_s, {"Authorization": f"Basic {base64.b64encode(login).decode()}"})
    return status, content


def own_login() -> bytes | None:
    """User and password in the environment, as for operators' commands; None without a password."""
    password = os.environ.get("MAYFLY_PASSWORD") or os.environ.get("MAYFLY_DEFAULT_PASS")
    user = os.environ.get("MAYFLY_USER") or os.environ.get("MAYFLY_DEFAULT_USER") or "guest"
    return f"{user}:{password}".encode() if password else None


def _fetched(where: NodeUrl, path: str, timeout_s: float, headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
    connection = where.connect(timeout_s)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(no_page(where, error)) from None
    finally:
        connection.close()
    if not isinstance(answer, dict):
        raise OSError(f"{where} does not answer as a MayflyMQ node")
    return response.status, answer


def log_tail(plan: NodePlan) -> str:
    """The last lines of a node's log."""
    try:
        lines = plan.log_file.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
    except OSError:
        lines = []
    return f"the end of {plan.log_file}:\n" + "\n".join(f"    {line}" for line in lines)


def _is_taken(address: Address) -> bool:
    try:
        for probe in bound_sockets(address):
            probe.close()
    except OSError:
        return True
    return False


def bound_sockets(address: Address, *options: int) -> list[socket.socket]:
    """Sockets that have the address, one for each meaning of its host, with these options of SOL_SOCKET switched on.

    They don't listen. Port 0 takes a free one, the same for all. Raises OSError if the address can't be had.
    """
    sockets: list[socket.socket] = []
    port = address.port
    try:
        for family, kind, protocol, _, where in socket.getaddrinfo(
            address.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            probe = socket.socket(family, kind, protocol)
            sockets.append(probe)
            # As the listeners do it, so that connections of an earlier run that linger are not in the way.
            for option in (socket.SO_REUSEADDR, *options):
                probe.setsockopt(socket.SOL_SOCKET, option, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((where[0], port, *where[2:]))
            port = probe.getsockname()[1]
    except OSError:
        for probe in sockets:
            probe.close()
        raise
    return sockets


def _is_installed() -> bool:
    return _SOURCE_ROOT.name in ("site-packages", "dist-packages")


def this_mayfly() -> list[str]:
    """The words that call this very build from a shell."""
    script = Path(sys.executable).parent / "mayfly"
    if _is_installed() and script.exists():
        return [str(script)]
    return ["env", f"PYTHONPATH={_SOURCE_ROOT}", sys.executable, "-P", "-m", "mayfly"]


def _child_environment() -> Mapping[str, str]:
    """The environment, with the children running the same code as this process, wherever it was found."""
    environment = dict(os.environ)
    if not _is_installed():
        earlier = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([str(_SOURCE_ROOT), *([earlier] if earlier else [])])
    return environment


def default_data_dir() -> Path:
    """Where `mayfly up` keeps its nodes' folders: the default of `mayfly node`."""
    return NodeSettings().data_dir
