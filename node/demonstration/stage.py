"""Builds the cluster that the scenes play on, and keeps it up for the reader afterwards."""

import os
import shlex
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from rich.text import Text

from mayfly.node.demonstration import expiry_scene, lease_scene, return_scene
from mayfly.node.demonstration.narrator import Narrator
from mayfly.node.local_nodes import exit_codes
from mayfly.node.local_nodes.local_cluster import (
    ClusterError,
    LocalCluster,
    NodePlan,
    default_data_dir,
    log_tail,
    plan_cluster,
    taken_addresses,
    this_mayfly,
)
from mayfly.node.local_nodes.stop_signals import StopSignals
from mayfly.node.settings import NodeSettings, SettingsError
from mayfly.node.settings.sources import load_settings
from mayfly.node.shell.build import describe_version

NODES: Final = 3
_START_WITHIN_S: Final = 60.0
_PORT_STEP: Final = 100
_PORTS_TRIED: Final = 50
_WATCH_S: Final = 0.2
_INTERRUPTED: Final = 130


def demonstrate(*, once: bool, base_port: int) -> int:
    """Play all scenes; the exit code: 0 if every promise was kept. Without `once`, stay until Ctrl-C."""
    narrator = Narrator()
    # Ctrl-C raises KeyboardInterrupt; SIGTERM is to end the nodes in the same orderly way.
    signal.signal(signal.SIGTERM, _interrupt)
    cluster: LocalCluster | None = None
    try:
        settings = load_settings(environment=os.environ)
        cluster = LocalCluster(_plan(narrator, base_port))
        _start(narrator, cluster)
        _play(narrator, cluster, settings)
        narrator.summary()
        if not once:
            _stay(narrator, cluster)
    except (ClusterError, SettingsError) as error:
        narrator.say(f"The demonstration cannot go on: {error}")
        return exit_codes.REFUSED if isinstance(error, SettingsError) else 1
    except KeyboardInterrupt:
        narrator.say("Interrupted.")
        return _INTERRUPTED
    finally:
        if cluster is not None:
            cluster.stop()
    return 0 if narrator.all_kept else 1


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _plan(narrator: Narrator, base_port: int) -> list[NodePlan]:
    """Three nodes from the base port on, or from the next one that is free."""
    data_dir = default_data_dir() / "demonstration"
    for port in range(base_port, base_port + _PORTS_TRIED * _PORT_STEP, _PORT_STEP):
        plans = plan_cluster(NODES, port, data_dir.with_name(f"{data_dir.name}-{port}"))
        taken = taken_addresses(plans)
        if not taken:
            if port != base_port:
                narrator.say(f"Taking base port {port} instead.")
            return plans
        narrator.say(f"{', '.join(map(str, taken))} in use by another process.")
    raise ClusterError(f"no free base port from {base_port} on")


def _start(narrator: Narrator, cluster: LocalCluster) -> None:
    folder = _folder(cluster)
    # Ours alone, by its name; and with the ports free, no node uses it.
    shutil.rmtree(folder, ignore_errors=True)
    narrator.scene(
        f"MayflyMQ {describe_version()}: {NODES} nodes as processes on this machine, data in {folder}"
    )
    began_s = time.monotonic()

    def on_serving(plan: NodePlan) -> None:
        addresses = f"AMQP {plan.amqp}, HTTP {plan.http}, peers {plan.peer}, pid {cluster.pid(plan)}"
        narrator.say(f"{plan.name} serves: {addresses}")

    cluster.start()
    cluster.wait_until_serving(on_serving, timeout_s=_START_WITHIN_S)
    if len(cluster.running()) < NODES:
        lost = next(plan for plan in cluster.plans if plan not in cluster.running())
        raise ClusterError(f"{lost.name} did not start; {log_tail(lost)}")
    narrator.say(f"the cluster is up after {time.monotonic() - began_s:.1f} s")


def _folder(cluster: LocalCluster) -> Path:
    return cluster.plans[0].log_file.parent


def _play(narrator: Narrator, cluster: LocalCluster, settings: NodeSettings) -> None:
    """All scenes; one that breaks off is a broken promise, and the next ones are played where they can be."""
    victim: NodePlan | None = None

    def lease() -> None:
        nonlocal victim
        victim = lease_scene.play(narrator, cluster, settings)

    def comeback() -> None:
        if victim is not None:
            return_scene.play(narrator, cluster, victim, settings)

    def expiry() -> None:
        expiry_scene.play(narrator, cluster.plans, settings)

    scenes = {
        "messages expire into another node's queue": expiry,
        "a lease outlives its leader": lease,
        "a killed node comes back": comeback,
    }
    for title, scene in scenes.items():
        try:
            scene()
        except Exception as error:  # whatever it is, the reader is told, and the nodes are stopped in order
            narrator.promise(title, False, f"broke off with {type(error).__name__}: {error}")
    for end in cluster.ended():
        narrator.promise("no node ends by itself", False, f"{end.describe()}; {log_tail(end.plan)}")


def _stay(narrator: Narrator, cluster: LocalCluster) -> None:
    """Keep the cluster up until Ctrl-C or SIGTERM."""
    narrator.scene("The cluster stays up for your own client, until Ctrl-C:")
    _print_addresses(narrator, cluster.plans)
    with StopSignals() as signals:
        while not signals.asked():
            for end in cluster.ended():
                narrator.say(f"{end.describe()}. Start it again: {end.plan.command()}")
            if not cluster.running():
                raise ClusterError("no node is left")
            time.sleep(_WATCH_S)
    narrator.say("Stopping the nodes.")


def _print_addresses(narrator: Narrator, plans: Sequence[NodePlan]) -> None:
    lines = [f"{plan.name}  amqp://{plan.amqp}/  http://{plan.http}/status" for plan in plans]
    lines.append(f"logs: {plans[0].log_file.parent}/*.log")
    lines.append(f"$ {shlex.join([*this_mayfly(), 'status', '--node', str(plans[0].http)])}")
    for line in lines:
        narrator.console.print(Text(f"    {line}"), soft_wrap=True)
