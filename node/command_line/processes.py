"""`mayfly node --processes N`: the process that starts the nodes of this host, watches them, and ends them.

It serves nobody and holds no data.
"""

import dataclasses
import logging
import os
import signal
import socket
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mayfly.node.local_nodes import exit_codes
from mayfly.node.local_nodes.local_cluster import (
    ChildEnd,
    ClusterError,
    LocalCluster,
    NodePlan,
    bound_sockets,
    taken_addresses,
)
from mayfly.node.local_nodes.stop_signals import StopSignals
from mayfly.node.local_nodes.usable_cores import usable_cores
from mayfly.node.settings import NodeSettings, SettingsError
from mayfly.node.settings.kinds import AUTO, Address
from mayfly.node.settings.node_settings import MOST_PROCESSES
from mayfly.node.settings.processes import choose_processes, folder_of, settings_of_process

log = logging.getLogger("mayfly.processes")

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 30.0
LASTED_S: Final = 60.0
"""A process that ran for so long before it ended is started again as if it had never failed."""
_AFTER_DRAIN_S: Final = 10.0
"""A drained node waits up to 5 s for its clients to say goodbye, and finishes the write that is under way."""
_WATCH_S: Final = 0.1


class Restarts:
    """How long to wait before a process that ended is started again: pauses that double, up to a bound."""

    def __init__(self) -> None:
        self._failures = 0

    def pause_s(self, ran_s: float) -> float:
        """It ended, after so long."""
        self._failures = 0 if ran_s >= LASTED_S else self._failures
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return pause_s


@dataclass(frozen=True)
class ProcessPlan(NodePlan):
    """How one of the processes is started: `name` is what it is called in the log, `options` are its settings."""

    options: Mapping[str, object] = field(default_factory=dict)

    def arguments(self) -> list[str]:
        """See `NodePlan.arguments`."""
        return [*self._words(self.options), "--log-as", self.name]


def plan_processes(
    settings: NodeSettings, amqp: Address, given: Mapping[str, object], config: Path | None
) -> list[ProcessPlan]:
    """A plan for each process. `given` are the options of this command; what file and environment say counts too.
    All of them serve `amqp`, which is the AMQP address of the settings with the port that was had, and the same address
    for TLS, if there is one."""
    plans = []
    for number in range(1, settings.processes + 1):
        own = settings_of_process(settings, number) | {"amqp_address": amqp}
        if settings.amqp_tls_address is not None:
            own["amqp_tls_address"] = settings.amqp_tls_address
        each = dataclasses.replace(settings, **own)
        plans.append(
            ProcessPlan(
                name=f"process {number}",
                amqp=amqp,
                http=each.http_address,
                peer=each.peer_address,
                frames=each.frames_listen_address,
                seeds=each.seeds,
                data_dir=each.data_dir,
                log_file=each.data_dir.with_suffix(".log"),
                config=config,
                options={**given, **own},
            )
        )
    return plans


def patience_s(settings: NodeSettings) -> float:
    """How long a node may take to stop after SIGTERM: its whole drain, and what comes after."""
    return (settings.drain_notice_ms + settings.drain_timeout_ms) / 1000 + _AFTER_DRAIN_S


def found_processes(data_dir: Path) -> int:
    """The highest number of a process that has data in this folder; 1: none but the first, if that."""
    further = [number for number in range(2, MOST_PROCESSES + 1) if (data_dir / folder_of(number)).exists()]
    return max(further, default=1)


def resolve_processes(
    settings: NodeSettings, keys: Collection[str], given: Mapping[str, object]
) -> tuple[NodeSettings, Mapping[str, object]]:
    """Settings and options in which `processes` is a number, whatever was said; what auto means is logged. `keys`: the
    settings that somebody has said, `given`: those of them that are options of this command."""
    if settings.processes != AUTO:
        return settings, given
    cores = usable_cores()
    chosen: dict[str, Any] = choose_processes(settings, keys, cores, found_processes(settings.data_dir))
    log.info("processes = auto, cores = %d: %s", cores, ", ".join(f"{key} = {value}" for key, value in chosen.items()))
    return dataclasses.replace(settings, **chosen), {**given, **chosen}


def refuse_surplus(settings: NodeSettings) -> None:
    """Raises SettingsError if more processes have data here than shall run: each is a member that would be missing."""
    surplus = [
        number
        for number in range(settings.processes + 1, MOST_PROCESSES + 1)
        if (settings.data_dir / folder_of(number)).exists()
    ]
    if surplus:
        folder = settings.data_dir / folder_of(surplus[-1])
        raise SettingsError([
            f"processes = {settings.processes}, and {folder} has the data of process {surplus[-1]}, a member of the "
            f"cluster: start with --processes {surplus[-1]}; to run fewer, take it out with `mayfly cluster remove` "
            "first, then delete the folder"
        ])


def run_processes(settings: NodeSettings, given: Mapping[str, object], config: Path | None) -> int:
    """Run all processes until SIGTERM or SIGINT; the exit code. Raises SettingsError, ClusterError if they can't be
    started."""
    refuse_surplus(settings)
    with ExitStack() as held, StopSignals(hang_up=settings.has_tls) as signals:
        amqp = _hold("amqp_address", settings.amqp_address, held)
        if settings.amqp_tls_address is not None:
            _hold("amqp_tls_address", settings.amqp_tls_address, held)
        plans = plan_processes(settings, amqp, given, config)
        taken = taken_addresses([dataclasses.replace(plan, amqp=plan.http) for plan in plans])
        if taken:
            raise ClusterError(f"{', '.join(map(str, dict.fromkeys(taken)))} in use by another process")
        return Supervisor(LocalCluster(plans, log_files=False), signals, patience_s(settings)).run()


def _hold(key: str, address: Address, held: ExitStack) -> Address:
    """Hold an address where nobody listens, so that our processes can share it; with port 0, the one that the system
    has chosen. Nothing listens here, so no client is sent here."""
    try:
        # Without the option first: with it, others who have set it as well would not be noticed.
        for probe in bound_sockets(address):
            probe.close()
        holders = bound_sockets(address, socket.SO_REUSEPORT)
    except OSError as error:
        raise ClusterError(f"{key} {address} can't be had: {error.strerror or error}") from None
    for holder in holders:
        held.enter_context(closing(holder))
    return Address(address.host, holders[0].getsockname()[1])


class Supervisor:
    """Starts the processes of a host, starts those again that end, and ends them all."""

    def __init__(self, cluster: LocalCluster, signals: StopSignals, patience_s: float) -> None:
        """Processes that have not ended `patience_s` after they were told to are killed."""
        self._patience_s = patience_s
        self._cluster = cluster
        self._signals = signals
        self._restarts = {plan.name: Restarts() for plan in cluster.plans}
        self._started_s: dict[str, float] = {}
        self._due_s: dict[str, float] = {}

    def run(self) -> int:
        """Until a signal comes, or no process may go on; the exit code."""
        try:
            for plan in self._cluster.plans:
                self._start(plan)
            while not self._signals.asked():
                if self._signals.hung_up():
                    self._pass_on_hang_up()
                for end in self._cluster.ended():
                    self._ended(end)
                for plan in self._cluster.plans:
                    if self._due_s.get(plan.name, float("inf")) <= time.monotonic():
                        self._start(plan)
                if not self._cluster.running() and not self._due_s:
                    log.error("no process is left")
                    return exit_codes.REFUSED
                time.sleep(_WATCH_S)
        finally:
            ends = self._stop()
        return 0 if all(end.code == 0 for end in ends) else 1

    def _start(self, plan: NodePlan) -> None:
        self._due_s.pop(plan.name, None)
        self._started_s[plan.name] = time.monotonic()
        try:
            pid = self._cluster.start_node(plan)
        except OSError as error:
            # What the system has none of now it may have later, and the others run.
            pause_s = self._put_off(plan)
            log.error("%s can't be started: %s; it is tried again in %.1f s", plan.name, error, pause_s)
            return
        log.info("%s of %d is pid %d; HTTP %s, peers %s, data in %s",
                 plan.name, len(self._cluster.plans), pid, plan.http, plan.peer, plan.data_dir)  # fmt: skip

    def _ended(self, end: ChildEnd) -> None:
        if end.code == exit_codes.REFUSED:
            log.error("%s, which means that it must not go on: it is not started again", end.describe())
            return
        pause_s = self._put_off(end.plan)
        log.warning("%s; it is started again in %.1f s", end.describe(), pause_s)

    def _pass_on_hang_up(self) -> None:
        """Certificates are to be read again: each process does that by itself."""
        for plan in self._cluster.running():
            pid = self._cluster.pid(plan)
            if pid is not None:
                os.kill(pid, signal.SIGHUP)

    def _put_off(self, plan: NodePlan) -> float:
        """Have it started again after a pause; the pause in seconds."""
        now_s = time.monotonic()
        pause_s = self._restarts[plan.name].pause_s(now_s - self._started_s[plan.name])
        self._due_s[plan.name] = now_s + pause_s
        return pause_s

    def _stop(self) -> list[ChildEnd]:
        """All at once: a client that is sent away from one of them should not land on the next to be stopped."""
        if self._cluster.running():
            log.info("stopping %s", ", ".join(plan.name for plan in self._cluster.running()))
        ends = self._cluster.stop(self._patience_s, self._signals.asked_again)
        for end in ends:
            if end.code != 0:
                log.error("%s", end.describe())
        return ends
